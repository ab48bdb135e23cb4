//! What happens to jobs, for whoever watches this process, such as `gristmill dev`. It is told as it
//! happens, in its order, and kept nowhere. Without a listener it costs a look at one pointer.

use crate::id::{EndpointId, JobId};
use crate::runtime::{AttemptReport, LogLevel, StackCall};

/// Is told what happens to jobs. Must be quick and must not block.
pub trait JobListener: Send + Sync {
    /// Something happened to a job of the endpoint.
    fn happened(&self, endpoint: &EndpointId, job: JobId, news: JobNews<'_>);
}

/// What can happen to a job.
#[derive(Debug, Clone, Copy)]
pub enum JobNews<'a> {
    /// It waits: it was submitted, or is to run again.
    Queued,
    /// An attempt begins.
    Started {
        /// The first is 1.
        attempt: u32,
    },
    /// Its handler logged a line.
    Logged {
        /// How much it matters.
        level: LogLevel,
        /// Without control characters.
        line: &'a str,
    },
    /// Its handler trapped; told only by a runtime that explains traps.
    Trapped(&'a [StackCall]),
    /// The attempt has ended.
    Ended(&'a AttemptReport),
}
