//! The fuzz targets: one function for each, which panics when a check fails. The fuzzer calls them
//! with generated inputs; the test `fuzz` calls them with the seeds, so that the targets keep
//! working and fixed faults stay fixed.

#![allow(unreachable_pub, missing_docs, reason = "the fuzzer's programs and a test share this")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what is not expected is what a fuzzer looks for"
)]

mod component;
mod host;
mod query;
mod record;
mod segment;
mod sse_resume;
mod submission;

pub use component::component;
pub use query::query;
pub use record::record;
pub use segment::segment;
pub use sse_resume::sse_resume;
pub use submission::submission;
