//! `/http/{endpoint}/…`: requests for handlers of HTTP, for programs and not for pages.
//!
//! The path below the endpoint belongs to its handler, so these calls never reach the router, which
//! merges slashes and knows routes. A handler is code of its author on the origin of the API and of
//! the console. The [rules] therefore make its answers useless for a page: no document, no
//! script and no cookie come from here, and no credential of this host reaches the handler.
//!
//! **Bounds.** `maxRequestMib` for a body; a piece of it is in memory, or all of one that has at
//! most [`READ_AHEAD_BYTES`](body::READ_AHEAD_BYTES). The budget of answers for those that are not
//! read.

mod body;
mod door;
mod refusal;
mod request;
mod rules;
mod target;

pub(crate) use door::Door;
pub(crate) use refusal::refuse;
pub(crate) use target::Target;
