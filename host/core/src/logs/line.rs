//! One line of a handler's log.

use crate::id::JobId;
use crate::runtime::LogLevel;
use crate::time::Timestamp;

/// Bytes of a line in memory besides its text.
pub(super) const LINE_BYTES: usize = 100;

/// A line that a handler has logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Grows from line to line of the endpoint: the time of the line in milliseconds, or one more
    /// than the line before. It reveals nothing about other endpoints. With an archive it grows
    /// after a restart, too, even if the clock went back; without one it usually does.
    pub number: u64,
    /// When it was logged.
    pub at: Timestamp,
    /// The job.
    pub job: JobId,
    /// Its severity.
    pub level: LogLevel,
    /// The handler's message, without control characters.
    pub text: Box<str>,
}

impl LogLine {
    /// Bytes that it takes in memory.
    pub fn bytes(&self) -> usize {
        self.text.len() + LINE_BYTES
    }
}
