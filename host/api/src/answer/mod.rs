//! The forms of answers that all routes share: errors, the headers of refusals and for browsers,
//! JSON, amounts and times.

pub(crate) mod amount;
pub(crate) mod browser_headers;
pub(crate) mod control_error;
pub(crate) mod elements;
pub(crate) mod error;
pub(crate) mod json;
pub(crate) mod refusal;
pub(crate) mod wire_time;
