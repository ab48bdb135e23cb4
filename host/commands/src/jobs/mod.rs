//! The commands about jobs: those of one job, and those of all jobs of an endpoint or of the host.

mod actions;
pub(crate) mod health;
pub(crate) mod job;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod requests;
pub(crate) mod stream;
pub(crate) mod submit;
pub(crate) mod timeline;
