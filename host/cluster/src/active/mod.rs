//! The side of the active host: its runners, and the choice of a host for each attempt.

mod attempt;
mod attempts;
mod balance;
pub(crate) mod cluster_runtime;
mod link;
mod request;
pub(crate) mod runners;
pub(crate) mod site;
