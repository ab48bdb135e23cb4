//! The calls that concern jobs: submissions, reads, streams and changes by clients
//! ([`operations`]), and the jobs that handlers submit to other endpoints ([`handler_calls`]).

pub mod handler_calls;
pub mod operations;
pub mod scheduling;
pub mod stream;
mod submissions;
pub mod timeline;
