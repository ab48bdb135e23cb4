//! The side of the active host: its runners, and the choice of a host for each attempt.

mod attempt;
mod balance;
pub(crate) mod cluster_runtime;
mod link;
pub(crate) mod runners;
pub(crate) mod site;
