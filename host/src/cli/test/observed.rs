//! The job of a case.

use gristmill_core::job::payload::Json;
use gristmill_core::job::state::JobStatus;
use gristmill_core::runtime::StackCall;

/// The end of a job, wherever it ran.
#[derive(Debug, Clone)]
pub(super) struct Observed {
    /// How it ended.
    pub(super) status: JobStatus,
    /// Its output; after chunks without a value, the list of their outputs.
    pub(super) output: Option<Json>,
    /// Why it did not complete.
    pub(super) error: Option<String>,
    /// The outputs of its chunks, if they were read.
    pub(super) chunks: Option<Vec<Json>>,
    /// How long it ran, in microseconds.
    pub(super) run_us: u64,
    /// Further properties that only a local sandbox knows.
    pub(super) local: Option<ObservedLocally>,
}

/// Properties that are known only where the handler runs.
#[derive(Debug, Clone)]
pub(super) struct ObservedLocally {
    /// The fuel that it used; `None` without fuel metering.
    pub(super) fuel: Option<u64>,
    /// The greatest sum of its memories, in bytes.
    pub(super) memory_bytes_peak: u64,
    /// Its log lines, with levels.
    pub(super) log: Vec<String>,
    /// Its stack when it trapped.
    pub(super) stack: Vec<StackCall>,
}

impl Observed {
    /// How long it ran, in whole milliseconds.
    pub(super) fn run_ms(&self) -> u64 {
        self.run_us / 1_000
    }
}
