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
pub(super) mod job;
mod job_actions;
mod job_filter;
pub(super) mod jobs;
pub(super) mod keys;
pub(super) mod logs;
pub(super) mod registry_auths;
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
pub(super) use upload::upload;
