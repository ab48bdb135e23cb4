//! Runs jobs: takes them from the queue, runs their handlers, and stores their results.
//!
//! Each endpoint has [workers] whose number grows with its queue, by the endpoint's scaler, and
//! shrinks when there are no jobs. A worker claims one job after the other; an [`attempt`] runs it
//! and stores its result with its claim. [HTTP requests](requests) wait in memory for the same
//! workers. Further tasks [start delayed jobs](due), [submit those of
//! schedules](scheduler), [delete expired jobs](expiry), delete jobs beyond the [bounds of a
//! history](history), and [send webhooks](delivery).
//!
//! **Invariants.** Only `attempt.rs` finishes a job, and only with its lease. This crate does not
//! decide a job's state, read a payload, or depend on wasmtime. Every worker runs under one
//! tracker, and a drain waits for it.
//!
//! **Bounds.** An endpoint has at most `workersMax` workers, each with one job, beside those whose
//! jobs wait for jobs that they have called. The store's write buffer bounds the results that are
//! being written.

mod agenda;
mod attempt;
mod attempt_sink;
mod attempt_spans;
mod delivery;
mod dispatcher;
mod due;
mod expiry;
mod history;
mod http_calls;
mod outage_log;
mod request_bills;
mod requests;
mod scheduler;
mod shared;
mod shortage;
mod wake;
mod workers;

pub use delivery::{CallEnd, Deliverer, DeliveryParts, HttpSender, WebhookCall, WebhookSender};
pub use dispatcher::{Dispatcher, Drained, Parts};
pub use scheduler::{Scheduler, SchedulerParts};
