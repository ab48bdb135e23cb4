//! The job or the request of a case.

use gristmill_core::job::payload::Json;
use gristmill_core::job::state::JobStatus;
use gristmill_core::limits::OUTPUT_BYTES_MAX;
use gristmill_core::runtime::StackCall;
use http::{HeaderMap, StatusCode};

use crate::local::WholeAnswer;

/// Most bytes of a job's chunks that are kept, since cases run concurrently: no output may be
/// larger than half of it, so that a list of chunks that is an output is always kept.
pub(super) const CHUNKS_BYTES_MAX: usize = 2 * OUTPUT_BYTES_MAX;

/// The end of a job or a request, wherever it ran.
#[derive(Debug, Clone)]
pub(super) struct Observed {
    /// How it ended.
    pub(super) status: JobStatus,
    /// Its output; after chunks without a value, the list of their outputs. Of a request it is the
    /// body of the answer.
    pub(super) output: Option<Json>,
    /// Why it did not complete.
    pub(super) error: Option<String>,
    /// Its chunks, if they were read.
    pub(super) chunks: Option<ObservedChunks>,
    /// How long it ran, in microseconds.
    pub(super) run_us: u64,
    /// The head of the answer to a request.
    pub(super) head: Option<ObservedHead>,
    /// Further properties that only a local sandbox knows.
    pub(super) local: Option<ObservedLocally>,
}

/// The head of an answer.
#[derive(Debug, Clone)]
pub(super) struct ObservedHead {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
}

/// The chunks of a job. When they have more than [`CHUNKS_BYTES_MAX`], they are only counted.
#[derive(Debug, Clone, Default)]
pub(super) struct ObservedChunks {
    count: u64,
    bytes: usize,
    /// The output of each chunk, unless there are too many bytes.
    outputs: Vec<Json>,
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

impl ObservedChunks {
    /// Adds the output of the next chunk.
    pub(super) fn add(&mut self, output: Json) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(output.len());
        if self.bytes <= CHUNKS_BYTES_MAX {
            self.outputs.push(output);
        } else {
            self.outputs = Vec::new();
        }
    }

    /// Number of chunks.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The outputs of all chunks, in order; `None` when they have more than [`CHUNKS_BYTES_MAX`].
    pub(super) fn outputs(&self) -> Option<&[Json]> {
        (self.bytes <= CHUNKS_BYTES_MAX).then_some(self.outputs.as_slice())
    }
}

impl FromIterator<Json> for ObservedChunks {
    fn from_iter<T: IntoIterator<Item = Json>>(outputs: T) -> Self {
        let mut chunks = Self::default();
        outputs.into_iter().for_each(|output| chunks.add(output));
        chunks
    }
}

impl Observed {
    /// A request with this answer.
    pub(super) fn answered(answer: WholeAnswer, run_us: u64) -> Self {
        let output = answer.json();
        Self {
            status: JobStatus::Completed,
            output: Some(output),
            error: None,
            chunks: None,
            run_us,
            head: Some(ObservedHead { status: answer.status, headers: answer.headers }),
            local: None,
        }
    }

    /// A request without an answer.
    pub(super) fn unanswered(status: JobStatus, error: String, run_us: u64) -> Self {
        let (output, chunks, head, local) = (None, None, None, None);
        Self { status, output, error: Some(error), chunks, run_us, head, local }
    }

    /// How long it ran, in whole milliseconds.
    pub(super) fn run_ms(&self) -> u64 {
        self.run_us / 1_000
    }
}
