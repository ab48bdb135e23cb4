//! A job as data: its states, its record, its payloads and its documents.
//!
//! [`state`] decides each change; [`record`] is what the store keeps. The calls of clients and
//! handlers are in [`jobs`](crate::jobs).

pub mod action;
pub mod document;
pub mod filter;
pub mod handler_call;
pub mod idempotency;
pub mod listing;
pub mod loss;
pub mod note;
pub mod payload;
pub mod policy;
pub mod record;
pub mod retention;
pub mod retry;
pub mod starts;
pub mod state;
pub mod tags;
