//! The forms of answers that all routes share: errors, unknown routes and times.

pub(crate) mod control_error;
pub(crate) mod elements;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod fallback;
pub(crate) mod wire_time;
