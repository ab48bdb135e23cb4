//! Counters and durations that operators collect.

pub mod endpoint;
pub mod failure_reason;
pub mod instruments;
pub mod requests;
pub mod spread;
