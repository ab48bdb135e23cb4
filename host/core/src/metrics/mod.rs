//! Counters and durations that operators collect.

pub mod endpoint;
pub mod instruments;
pub mod series;
pub mod spread;
