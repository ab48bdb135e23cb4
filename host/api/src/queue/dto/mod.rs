//! Conversions between the domain and the documents of the queue API ([`gristmill_wire::queue`]).

mod answer;
mod health;
mod requests;
mod status;
mod stream;
mod timeline;

pub(crate) use answer::{JOB_ID, accepted, add_job_id_header, add_request_id_header};
pub(crate) use health::health_report;
pub(crate) use requests::request_list;
pub(crate) use status::status_document;
pub(crate) use stream::{FIRST_ATTEMPT, StreamAnswer, stream_page, write_chunk};
pub(crate) use timeline::timeline;
