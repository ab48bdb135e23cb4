//! The HTTP APIs of Gristmill as serde types: requests, answers, events and errors, each written
//! once, for the host, for its clients and for tests.
//!
//! * [`queue`]: submissions, the status of jobs, streams, health.
//! * [`management`]: endpoints, templates, handlers, keys, volumes, usage, log lines.
//! * [`ErrorBody`] and [`ErrorCode`]: every refusal.
//! * [`bounds`]: the bounds of numbers and texts, with their units.
//! * [`settings`]: documents of settings, each with its default and its bounds, and the checks of
//!   fields.
//!
//! **Promises.** A type reads what it has written. It reads answers with fields that it does not
//! know, so that a client works with a newer host (except in rate limits, which endpoints take and
//! show in the same form); it refuses a request with an invalid id, host or number. Times are RFC
//! 3339 in UTC, durations whole milliseconds unless the name or the comment of a field says
//! otherwise. Payloads of jobs stay JSON text, byte for byte.
//!
//! **Cost.** No dependencies beyond serde and thiserror. With the feature `openapi`, which only the
//! host enables, the types have schemas.

pub mod bounds;
mod console;
mod error;
mod grouping;
mod host_pattern;
pub mod id;
mod job_status;
mod json_object;
pub mod management;
mod metering;
mod policy;
pub mod queue;
mod registry_host;
mod retry;
#[cfg(feature = "openapi")]
pub mod schema;
mod scope;
pub mod settings;
pub mod whole_number;
mod words;

pub use console::{ConsoleLink, ConsoleLinkQuestion, ConsoleLogin};
pub use error::{ErrorBody, ErrorCode, UnknownErrorCode};
pub use host_pattern::{HostPattern, InvalidHostPattern};
pub use job_status::{JobStatus, UnknownStatus};
pub use metering::Metering;
pub use registry_host::{InvalidRegistryHost, RegistryHost};
pub use retry::{Retry, RetryInput};
pub use scope::Scope;
