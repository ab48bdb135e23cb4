//! The commands about what is deployed, about keys and usage, and about the host itself.

pub(crate) mod billing;
pub(crate) mod cluster;
pub(crate) mod console;
pub(crate) mod endpoints;
pub(crate) mod handlers;
pub(crate) mod keys;
pub(crate) mod registry_auths;
pub(crate) mod schedules;
pub(crate) mod secrets;
pub(crate) mod templates;
mod volume_files;
pub(crate) mod volumes;
