//! HTTP endpoints: requests for handlers of HTTP. A call names its endpoint by a path,
//! `/http/{endpoint}/…`, or by a host name of the endpoint's own.
//!
//! The path below the endpoint belongs to its handler, so these calls never reach the router, which
//! merges slashes and knows routes. A handler is code of its author. By a path it is on the origin
//! of the API and of the console, so the [rules] make its answers useless for a page: no document,
//! no script and no cookie come from there. By a name it has an origin of its own. No credential of
//! this host reaches it in either way.
//!
//! **Bounds.** `maxRequestMib` for a body; a piece of it is in memory, or all of one that has at
//! most [`READ_AHEAD_BYTES`](body::READ_AHEAD_BYTES). The budget of answers for those that are not
//! read.

mod affinity;
mod body;
mod cors;
mod deferred;
mod door;
mod noted;
mod refusal;
mod request;
mod rules;
mod target;

pub(crate) use door::Door;
pub(crate) use refusal::refuse;
pub(crate) use target::{Address, Target};
pub use target::{ByName, by_name, reads_on};
