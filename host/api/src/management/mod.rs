//! The routes of the management API, one file for each kind of object.

mod document;
mod dry_run;
mod fields;
pub(crate) mod input;
mod job_filter;
mod page;

pub(crate) mod backup;
pub(crate) mod billing;
pub(crate) mod cluster;
pub(crate) mod endpoints;
pub(crate) mod events;
pub(crate) mod handlers;
pub(crate) mod http_requests;
pub(crate) mod job_actions;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod logs;
pub(crate) mod pods;
pub(crate) mod registry_auths;
pub(crate) mod releases;
pub(crate) mod schedules;
pub(crate) mod secrets;
pub(crate) mod series;
pub(crate) mod system;
pub(crate) mod templates;
pub(crate) mod volume_files;
pub(crate) mod volumes;
pub(crate) mod webhooks;
