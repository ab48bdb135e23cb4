//! Events of jobs, for an observer in this process, such as `gristmill dev`. The observer is called
//! at once and in order, and no event is stored. Without an observer an event costs the check of
//! one pointer.
//!
//! HTTP requests, whose ids have the form of a job's id, have the events of their handler only:
//! its lines and its traps.

use crate::deploy::endpoint::EndpointType;
use crate::id::JobId;
use crate::runtime::{AttemptReport, LogLevel, StackCall};

/// Receives the events of jobs. Must be quick and must not block.
pub trait JobListener: Send + Sync {
    /// Called for an event of a job, or of a request on an endpoint of that kind.
    fn notify_job_event(&self, kind: EndpointType, id: JobId, notice: JobEventNotice<'_>);
}

/// An event of a job.
#[derive(Debug, Clone, Copy)]
pub enum JobEventNotice<'a> {
    /// The job waits: it was submitted, or will run again.
    Queued,
    /// An attempt begins.
    Started {
        /// The number of the attempt, from 1.
        attempt: u32,
    },
    /// Its handler logged a line.
    Logged {
        /// The severity.
        level: LogLevel,
        /// Without control characters.
        line: &'a str,
    },
    /// Its handler trapped; reported only by a runtime that explains traps.
    Trapped(&'a [StackCall]),
    /// The attempt has ended.
    Ended(&'a AttemptReport),
}
