//! The lines of endpoints that are kept longer than in memory. This crate does no I/O: the crate
//! `gristmill-logs` has the archive, in files, and the thread that fills it.

use std::fmt;
use std::sync::Arc;

use super::line::LogLine;
use crate::id::JobId;
use crate::incarnation::EndpointIncarnation;
use crate::runtime::LogLevel;
use crate::time::Timestamp;

/// Bytes of lines, as they count in memory, after which a read of the newest lines of the archive
/// ends: room for 10,000 usual ones. A read has one line at least.
pub const NEWEST_BYTES_MAX: usize = 4 << 20;

/// The same for a read of the next lines, which is one part of a stream.
pub const NEXT_BYTES_MAX: usize = 1 << 20;

/// The lines of endpoints that are kept longer than in memory.
pub trait LogArchive: Send + Sync + fmt::Debug {
    /// Lines of an endpoint in the order of their numbers. Blocks: it reads files. A line that was
    /// taken for the archive before this call is found, unless it could not be written, was deleted
    /// as one of the oldest, or was damaged.
    fn read(&self, endpoint: &EndpointIncarnation, query: ArchiveQuery) -> ArchivePage;
}

/// Selects lines of an endpoint in the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveQuery {
    /// Only lines after this number.
    pub after: u64,
    /// Only lines up to this number.
    pub up_to: u64,
    /// Only lines of this job.
    pub job: Option<JobId>,
    /// At most this many lines, the newest, up to [`NEWEST_BYTES_MAX`]; `None`: the oldest, up to
    /// [`NEXT_BYTES_MAX`].
    pub newest: Option<usize>,
}

/// Lines of the archive.
#[derive(Debug, Default)]
pub struct ArchivePage {
    /// The oldest first.
    pub lines: Vec<Arc<LogLine>>,
    /// Whether the oldest were wanted, and further lines follow.
    pub is_cut: bool,
}

/// The lines of one endpoint that its archive does not have yet.
#[derive(Debug)]
pub struct Batch {
    /// The oldest first.
    pub lines: Vec<Arc<LogLine>>,
    /// Lines before them that memory had to drop before the archive had them.
    pub lost: Option<Lost>,
    /// The archive had all lines up to this number, or has lost them.
    pub(super) after: u64,
}

impl Batch {
    /// All lines to write: the mark of lost lines, then the others.
    pub fn to_write(&self) -> impl Iterator<Item = Arc<LogLine>> {
        let mark = self.lost.map(|lost| Arc::new(lost.mark()));
        mark.into_iter().chain(self.lines.iter().cloned())
    }

    /// Bytes of the lines in memory.
    pub fn bytes(&self) -> usize {
        self.lines.iter().map(|line| line.bytes()).sum()
    }
}

/// Lines that the archive does not get, since memory had no more room for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// How many, one after the other.
    pub(super) count: u64,
    /// The number of the last of them.
    pub(super) number: u64,
    /// Its time.
    pub(super) at: Timestamp,
    /// Its job.
    pub(super) job: JobId,
}

impl Lost {
    /// Counts one more, which is newer.
    pub(super) fn add(lost: Option<Self>, line: &LogLine) -> Self {
        let count = lost.map_or(0, |lost| lost.count) + 1;
        Self { count, number: line.number, at: line.at, job: line.job }
    }

    /// Counts those of `newer` too.
    pub(super) fn join(older: Option<Self>, newer: Option<Self>) -> Option<Self> {
        match (older, newer) {
            (Some(older), Some(newer)) => Some(Self { count: older.count + newer.count, ..newer }),
            (older, newer) => newer.or(older),
        }
    }

    /// The line that stands for them in the archive. It has the number, the time and the job of the
    /// last of them.
    pub(super) fn mark(self) -> LogLine {
        let Self { count, number, at, job } = self;
        let text = match count {
            1 => "1 line up to here is missing: the host's disk was too slow or had no room".into(),
            count => format!(
                "{count} lines up to here are missing: the host's disk was too slow or had no room"
            ),
        };
        LogLine { number, at, job, level: LogLevel::Warn, text: text.into() }
    }
}
