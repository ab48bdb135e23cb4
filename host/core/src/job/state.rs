//! The life of a job as one pure function, [`JobState::apply`]. It reads no clock and does no I/O;
//! stores, dispatcher and API carry out the [`Effect`]s that it returns.
//! docs/internals/architecture.md shows its table, which a test compares with this code.

use serde::{Deserialize, Serialize};

pub use gristmill_wire::{JobStatus, UnknownStatus};

use crate::job::loss::HostLoss;
use crate::time::Timestamp;

/// The claim number, which fences off late results: it grows by one with each claim of the job and
/// is never reset. An attempt with an older number may not change the job.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Claim(pub u32);

impl Claim {
    /// The claim after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobState {
    /// Waits for a worker.
    InQueue,
    /// A worker runs it; only the holder of `claim` may finish it.
    InProgress {
        /// The claim number of the running attempt.
        claim: Claim,
    },
    /// The handler returned a result.
    Completed,
    /// The handler failed, or the platform gave the job up.
    Failed,
    /// A client cancelled it.
    Cancelled,
    /// The attempt ran longer than its executionTimeout.
    TimedOut,
    /// Purged, or its ttl or retention is over. No client can see the job any more.
    Removed,
}

/// The end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The handler returned a result.
    Completed,
    /// The handler failed.
    Failed,
    /// The attempt reached its executionTimeout.
    TimedOut,
}

/// Why the host stops an attempt whose job is to run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseCause {
    /// The host drains, or the endpoint has changed since the claim.
    Stopped,
    /// The attempt waited for memory when no attempt of the host got any.
    NoMemory,
}

/// An event of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEvent {
    /// A worker took the job.
    Claimed {
        /// The new claim number.
        claim: Claim,
    },
    /// The attempt with the claim `by` ended.
    Finished {
        /// The claim number of the attempt.
        by: Claim,
        /// How it ended.
        verdict: Verdict,
    },
    /// The attempt with the claim `by` failed, and the job is to run again.
    AttemptFailed {
        /// The claim number of the attempt.
        by: Claim,
        /// The time before which the next attempt does not begin.
        run_at: Timestamp,
    },
    /// The attempt with the claim `by` was stopped for a reason of the host.
    Released {
        /// The claim number of the attempt.
        by: Claim,
        /// The reason.
        cause: ReleaseCause,
    },
    /// The host was lost while the job ran.
    HostLost {
        /// Why.
        loss: HostLoss,
        /// Whether this loss reached [its bound](crate::job::loss::LossBounds).
        is_last: bool,
    },
    /// A client requested cancellation.
    CancelRequested,
    /// A client requested to run the job again.
    RetryRequested,
    /// A client purged the queue.
    Purged,
    /// The job's ttl is over.
    TtlElapsed,
    /// The result's retention is over.
    RetentionElapsed,
}

/// An action that a transition requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Put the job into its endpoint's queue and wake a worker: at the end after a retry of a
    /// client, and at its earlier position after a failed attempt, a release or a crash of the
    /// host.
    Enqueue,
    /// Take the job out of the queue.
    Dequeue,
    /// Stop the running attempt.
    StopAttempt,
    /// Start the clock of the result's retention.
    StartRetention,
    /// Delete output, error, chunks and the stream's read position.
    ClearResult,
    /// Delete the job with all its data.
    Delete,
    /// Count the job as completed.
    CountCompleted,
    /// Count the job as failed.
    CountFailed,
    /// Count the job as retried.
    CountRetried,
    /// Send the job's webhook.
    SendWebhook,
    /// Notify all listeners of the job.
    WakeWaiters,
}

/// The event does not apply in this state; the job is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event} does not apply to a job that is {state}")]
pub struct IllegalTransition {
    /// The unchanged state of the job.
    pub state: &'static str,
    /// The event that was refused.
    pub event: &'static str,
}

impl JobState {
    /// Applies `event` to the job's state.
    ///
    /// # Errors
    /// [`IllegalTransition`] when the event does not apply, such as a result of an attempt whose
    /// claim is not the current one.
    pub fn apply(self, event: JobEvent) -> Result<(Self, &'static [Effect]), IllegalTransition> {
        use Effect as E;
        use JobEvent as On;
        use JobState as S;
        Ok(match (self, event) {
            (S::InQueue, On::Claimed { claim }) => (S::InProgress { claim }, &[E::WakeWaiters]),
            (S::InQueue, On::CancelRequested) => {
                (S::Cancelled, &[E::Dequeue, E::StartRetention, E::SendWebhook, E::WakeWaiters])
            }
            (S::InQueue, On::Purged | On::TtlElapsed) => {
                (S::Removed, &[E::Dequeue, E::Delete, E::WakeWaiters])
            }

            (S::InProgress { claim }, On::Finished { by, verdict }) if by == claim => match verdict
            {
                Verdict::Completed => (
                    S::Completed,
                    &[E::CountCompleted, E::StartRetention, E::SendWebhook, E::WakeWaiters],
                ),
                Verdict::Failed => (S::Failed, FAILED),
                Verdict::TimedOut => (S::TimedOut, FAILED),
            },
            (S::InProgress { claim }, On::Released { by, .. }) if by == claim => {
                (S::InQueue, &[E::ClearResult, E::Enqueue, E::WakeWaiters])
            }
            (S::InProgress { claim }, On::AttemptFailed { by, .. }) if by == claim => {
                (S::InQueue, &[E::ClearResult, E::Enqueue, E::CountRetried, E::WakeWaiters])
            }
            (S::InProgress { .. }, On::HostLost { is_last: false, .. }) => {
                (S::InQueue, &[E::ClearResult, E::Enqueue, E::CountRetried, E::WakeWaiters])
            }
            (S::InProgress { .. }, On::HostLost { is_last: true, .. }) => (S::Failed, FAILED),
            (S::InProgress { .. }, On::CancelRequested) => {
                (S::Cancelled, &[E::StopAttempt, E::StartRetention, E::SendWebhook, E::WakeWaiters])
            }
            (S::InProgress { .. }, On::TtlElapsed) => {
                (S::Removed, &[E::StopAttempt, E::Delete, E::WakeWaiters])
            }

            (S::Failed | S::TimedOut, On::RetryRequested) => {
                (S::InQueue, &[E::ClearResult, E::Enqueue, E::CountRetried, E::WakeWaiters])
            }
            (
                S::Completed | S::Failed | S::Cancelled | S::TimedOut,
                On::TtlElapsed | On::RetentionElapsed,
            ) => (S::Removed, &[E::Delete, E::WakeWaiters]),
            // Cancelling twice, or too late, changes nothing and is not an error.
            (S::Completed | S::Failed | S::Cancelled | S::TimedOut, On::CancelRequested) => {
                (self, &[])
            }

            (state, event) => {
                return Err(IllegalTransition { state: state.name(), event: event.name() });
            }
        })
    }

    /// The status that a client sees; `None` for a removed job.
    pub fn status(self) -> Option<JobStatus> {
        match self {
            Self::InQueue => Some(JobStatus::InQueue),
            Self::InProgress { .. } => Some(JobStatus::InProgress),
            Self::Completed => Some(JobStatus::Completed),
            Self::Failed => Some(JobStatus::Failed),
            Self::Cancelled => Some(JobStatus::Cancelled),
            Self::TimedOut => Some(JobStatus::TimedOut),
            Self::Removed => None,
        }
    }

    /// The state's name in docs and errors.
    pub fn name(self) -> &'static str {
        self.status().map_or("REMOVED", JobStatus::as_str)
    }
}

const FAILED: &[Effect] =
    &[Effect::CountFailed, Effect::StartRetention, Effect::SendWebhook, Effect::WakeWaiters];

impl JobEvent {
    /// The event's name in docs and errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Claimed { .. } => "claim",
            Self::Finished { verdict: Verdict::Completed, .. } => "finish: completed",
            Self::Finished { verdict: Verdict::Failed, .. } => "finish: failed",
            Self::Finished { verdict: Verdict::TimedOut, .. } => "finish: timed out",
            Self::AttemptFailed { .. } => "finish: failed, again",
            Self::Released { .. } => "release",
            Self::HostLost { is_last: false, .. } => "host lost",
            Self::HostLost { is_last: true, .. } => "host lost, last time",
            Self::CancelRequested => "cancel",
            Self::RetryRequested => "retry",
            Self::Purged => "purge",
            Self::TtlElapsed => "ttl elapsed",
            Self::RetentionElapsed => "retention elapsed",
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
