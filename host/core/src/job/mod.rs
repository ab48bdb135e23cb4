//! A job: its states, its record, and everything that a client sees of it.
//!
//! [`state`] decides each change; [`record`] is what the store keeps; [`operations`] are the calls of
//! clients.

pub mod action;
pub mod document;
pub mod event_notice;
pub mod failure_reason;
pub mod filter;
pub mod handler_call;
pub mod handler_calls;
pub mod idempotency;
pub mod input_checks;
pub mod listing;
pub mod operations;
pub mod payload;
pub mod policy;
pub mod record;
pub mod retention;
pub mod signals;
pub mod state;
pub mod stream;
pub mod submissions;
pub mod tags;
pub mod timeline;
