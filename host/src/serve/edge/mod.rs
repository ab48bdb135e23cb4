//! The connections of callers, from their acceptance to their last byte, with what they may hold. Nothing here
//! knows a job: [`Front`](crate::serve::front::Front) answers each call.

mod activity;
pub(crate) mod addresses;
mod answer_body;
pub(crate) mod connection;
mod half_close;
mod interrupts;
mod linger;
pub(crate) mod listener;
mod protocol;
pub(crate) mod response_budget;
pub(crate) mod tls;
mod unauthenticated;
mod unread;
mod watched;
