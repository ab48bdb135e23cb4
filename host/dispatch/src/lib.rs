//! From the queue to a result.
//!
//! Each endpoint has a [set of workers](worker_set) that grows with its queue and shrinks when
//! there is nothing to do, by the endpoint's [`scaler`]. A [`worker`] claims one job after the other; an
//! [`attempt`] runs it and stores its result under the claim's fence. Beside them one task
//! [deletes what has expired](expiry), and one [calls webhooks](delivery).
//!
//! **Invariants.** Only `attempt.rs` finishes a job, and only with its lease. Nothing here decides
//! a job's state, reads a payload, or knows wasmtime. Every worker runs under one tracker and is
//! waited for in a drain.
//!
//! **Bounds.** An endpoint has at most `workersMax` workers, each with one job. Results on their
//! way to the disk are bounded by the store's write buffer.

mod attempt;
mod delivery;
mod dispatcher;
mod expiry;
mod scaler;
mod shared;
mod worker;
mod worker_set;

pub use delivery::{CallEnd, Deliverer, DeliveryParts, HttpSender, WebhookCall, WebhookSender};
pub use dispatcher::{Dispatcher, Drained, Parts};
