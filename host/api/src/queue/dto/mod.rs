//! Conversions between the domain and the documents of the queue API ([`gristmill_wire::queue`]).

mod answer;
mod status;
mod stream;

pub(crate) use answer::{JOB_ID, REQUEST_ID, accepted, add_job_id_header, add_request_id_header};
pub(crate) use status::status_document;
pub(crate) use stream::{FIRST_ATTEMPT, StreamAnswer, stream_page, write_chunk};
