//! The status of a job.

use std::fmt;
use std::str::FromStr;

use crate::words::words;

words! {
    /// The six states that a client can see, in the order of a job's life.
    #[derive(Hash)]
    pub enum JobStatus {
        /// Waits for a worker.
        InQueue = "IN_QUEUE",
        /// A worker runs it.
        InProgress = "IN_PROGRESS",
        /// The handler returned a result.
        Completed = "COMPLETED",
        /// The handler failed, or the platform gave the job up.
        Failed = "FAILED",
        /// A client cancelled it.
        Cancelled = "CANCELLED",
        /// The attempt ran longer than its executionTimeout.
        TimedOut = "TIMED_OUT",
    }
}

/// The error for a text that is not a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be one of IN_QUEUE, IN_PROGRESS, COMPLETED, FAILED, CANCELLED, TIMED_OUT")]
pub struct UnknownStatus;

impl FromStr for JobStatus {
    type Err = UnknownStatus;
    fn from_str(text: &str) -> Result<Self, UnknownStatus> {
        Self::ALL.into_iter().find(|status| status.as_str() == text).ok_or(UnknownStatus)
    }
}

impl JobStatus {
    /// Whether another attempt can follow, perhaps after a retry: until then the input is needed.
    pub fn needs_input(self) -> bool {
        match self {
            Self::InQueue | Self::InProgress | Self::Failed | Self::TimedOut => true,
            Self::Completed | Self::Cancelled => false,
        }
    }

    /// Whether the job has ended. Only a retry changes a final status.
    pub fn is_final(self) -> bool {
        match self {
            Self::InQueue | Self::InProgress => false,
            Self::Completed | Self::Failed | Self::Cancelled | Self::TimedOut => true,
        }
    }
}

impl fmt::Display for JobStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_one_spelling() {
        for status in JobStatus::ALL {
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
            assert_eq!(status.as_str().parse(), Ok(status));
        }
        assert!("DONE".parse::<JobStatus>().is_err());
    }
}
