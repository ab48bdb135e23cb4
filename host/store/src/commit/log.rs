//! The part of a medium that makes batches durable.

use std::fmt::Debug;

use crate::error::Failure;
use crate::format::image::JobLocations;
use crate::medium::SegmentId;
use crate::state::batch::Batch;

/// Makes batches durable, one after the other. Only the writer thread uses it.
pub(crate) trait BatchLog: Debug + Send {
    /// Waits while the medium is too far behind its log. The caller has taken no batch.
    fn wait_for_room(&self);

    /// Writes a batch. It is on stable storage, as a whole, when this returns `Ok`.
    ///
    /// # Errors
    /// [`WriteError`].
    fn write(&mut self, batch: &Batch) -> Result<Written, WriteError>;

    /// Begins a new segment, unless the newest one is empty. All earlier batches are in earlier
    /// segments than the returned one.
    ///
    /// # Errors
    /// [`WriteError`].
    fn begin_segment(&mut self) -> Result<SegmentId, WriteError>;
}

/// Where a batch was written.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) segment: SegmentId,
    /// For each job of the batch, in the same order.
    pub(crate) locations: Vec<JobLocations>,
    /// Whether an earlier segment has ended with it, and the medium's thread may copy that segment.
    pub(crate) has_ended_segment: bool,
}

impl Written {
    /// A batch of `jobs` jobs that changes nothing.
    pub(crate) fn nothing(jobs: usize) -> Self {
        let locations = (0..jobs).map(|_| JobLocations::default()).collect();
        Self { segment: SegmentId(0), locations, has_ended_segment: false }
    }
}

/// Why a batch was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// There is no space. Nothing was written, and the same batch may be written again.
    #[error("{0}")]
    NoSpace(std::io::Error),
    /// The medium does not answer at present. The same batch must be written again: the log finds
    /// out whether it was written.
    #[error("{0}")]
    Unavailable(String),
    /// The content of the medium is unknown: the store must end.
    #[error("{0}")]
    Fatal(Failure),
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::NoSpace(error) => Self::Journal(error),
            WriteError::Unavailable(reason) => Self::Server(reason),
            WriteError::Fatal(failure) => failure,
        }
    }
}
