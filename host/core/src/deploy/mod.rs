//! The objects that users deploy: endpoints, templates, images, volumes and credentials, with the
//! networks that handlers may reach. [`catalog`](crate::catalog) keeps them.

pub mod digest;
pub mod egress;
pub mod endpoint;
pub mod handler_kind;
pub mod image;
pub mod input_checks;
pub mod network;
pub mod registry_auth;
pub mod release;
pub mod template;
pub mod volume;
pub mod volume_files;
