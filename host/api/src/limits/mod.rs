//! The bounds of calls: how many, how often, and how much memory their bodies take, counted for the
//! origin and the key of a call. Each refusal names its bound and, where it helps, the time after
//! which the call may be repeated.

mod call_rate;
pub(crate) mod checks;
pub(crate) mod in_flight;
pub(crate) mod owner_calls;
pub(crate) mod rate_limit;
pub(crate) mod unauthenticated;
