//! Doubles of the host's parts and builders of its values, for the tests of several crates.
//!
//! A test uses the real part where it can: the sandbox, the binary. These doubles stand for the
//! parts that a test does not examine, so each does nothing, or remembers its calls. [`ModelStore`]
//! is more: it gives the same answers as the durable store, whose tests compare both, so that tests
//! of other crates need no database.
//!
//! *Invariant:* the crate depends on `core` alone, and only tests depend on it, so no test makes
//! cargo compile a crate twice, and no shipped program contains it. A double that one crate alone
//! uses stays in that crate.

mod claim_each;
mod end_attempt;
mod files;
mod jobs;
mod model_store;
mod runtime;
mod schedules;
mod spans;
mod usage;
mod workers;

pub use claim_each::ClaimEach;
pub use end_attempt::EndAttempt;
pub use files::{NoBackup, NoRegistries, RecordedFiles};
pub use jobs::new_job;
pub use model_store::ModelStore;
pub use runtime::NoRuntime;
pub use schedules::NoSchedules;
pub use spans::RecordedSpans;
pub use usage::usage_of_all_hours;
pub use workers::{NoWorkers, RecordedWorkers};
