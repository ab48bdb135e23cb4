//! The commands that call a host over HTTP. They use `gristmill-client` and none of the host's own
//! crates; a test checks this ([`structure.rs`](../../../../tests/product/e2e/structure.rs)).

pub(super) mod advice;
pub(super) mod billing;
pub(super) mod cluster;
mod connection;
pub(super) mod console;
mod endpoint_options;
pub(super) mod endpoints;
pub(super) mod handlers;
pub(super) mod health;
mod interrupt;
pub(super) mod job;
mod job_actions;
mod job_filter;
pub(super) mod jobs;
pub(super) mod keys;
pub(super) mod logs;
mod new_file;
pub(super) mod registry_auths;
mod repetition;
pub(super) mod requests;
mod resource;
mod retention;
pub(super) mod secrets;
pub(super) mod stream;
pub(super) mod submit;
pub(super) mod templates;
pub(super) mod timeline;
mod upload;
mod volume_files;
pub(super) mod volumes;

pub(super) use connection::ConnectionArgs;
pub(super) use endpoint_options::{EndpointOptions, given};
pub(super) use interrupt::{signalled, unless_signalled};
pub(super) use new_file::NewFile;
pub(super) use repetition::until_accepted;
pub(super) use upload::upload;
