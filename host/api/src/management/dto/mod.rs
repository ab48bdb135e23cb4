//! Conversions between the domain and the documents of the management API
//! ([`gristmill_wire::management`]).

mod billing;
mod delivery;
mod endpoint;
mod handler;
mod job;
mod job_action;
mod key;
mod log;
mod pod;
mod registry_auth;
mod release;
mod template;
mod volume;

pub(crate) use billing::billing_record;
pub(crate) use delivery::delivery;
pub(crate) use endpoint::{deployed_endpoint, endpoint, endpoint_of, endpoint_with_secret};
pub(crate) use handler::handler;
pub(crate) use job::job_list;
pub(crate) use job_action::job_action;
pub(crate) use key::{key, key_with_text};
pub(crate) use log::log_line;
pub(crate) use pod::pod;
pub(crate) use registry_auth::registry_auth;
pub(crate) use release::{release, release_with_settings};
pub(crate) use template::template;
pub(crate) use volume::{DATA_CENTER, network_volume, volume_file};
