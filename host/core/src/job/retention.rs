//! How long jobs are kept after their end.
//!
//! By default that is the time of the contract: 30 minutes for `/run`, at least one minute for
//! `/runsync`, and never beyond the job's ttl. An endpoint or a submission can choose another time,
//! separately for jobs that complete, that fail or time out, and that are cancelled. A job with a
//! chosen retention is kept for all of it, also beyond its ttl: the ttl bounds waiting and running.
//! A ttl that a caller has shortened is final: the stores do not move it at an end or a retry.

use serde::{Deserialize, Serialize};

use crate::job::state::JobStatus;
use crate::time::Timestamp;

/// The retentions that an endpoint or a submission chooses, in milliseconds. `None`: not chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChosenRetention {
    /// Of jobs that complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_ms: Option<u64>,
    /// Of jobs that fail or time out. Their input is kept as long, for a retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_ms: Option<u64>,
    /// Of jobs that are cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled_ms: Option<u64>,
}

impl ChosenRetention {
    /// Nothing chosen.
    pub const NONE: Self = Self { completed_ms: None, failed_ms: None, cancelled_ms: None };

    /// These retentions, and those of `other` where none is chosen here.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            completed_ms: self.completed_ms.or(other.completed_ms),
            failed_ms: self.failed_ms.or(other.failed_ms),
            cancelled_ms: self.cancelled_ms.or(other.cancelled_ms),
        }
    }

    /// Replaces each chosen retention by what `check` returns for it, by its name on the wire.
    ///
    /// # Errors
    /// The first error of `check`.
    pub fn try_map<E>(
        self,
        check: impl Fn(&'static str, u64) -> Result<u64, E>,
    ) -> Result<Self, E> {
        let each = |field, value: Option<u64>| value.map(|ms| check(field, ms)).transpose();
        Ok(Self {
            completed_ms: each("retention.completed", self.completed_ms)?,
            failed_ms: each("retention.failed", self.failed_ms)?,
            cancelled_ms: each("retention.cancelled", self.cancelled_ms)?,
        })
    }

    /// The retention of a job that ended with this status.
    fn of(self, status: JobStatus) -> Option<u64> {
        match status {
            JobStatus::Completed => self.completed_ms,
            JobStatus::Failed | JobStatus::TimedOut => self.failed_ms,
            JobStatus::Cancelled => self.cancelled_ms,
            JobStatus::InQueue | JobStatus::InProgress => None,
        }
    }
}

/// Most that an endpoint keeps of its history, the jobs that have ended. The oldest jobs beyond a
/// bound are deleted although their retention is not over. `None`: no bound but those of the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryMax {
    /// Most jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u64>,
    /// Most bytes of results, and of the inputs of jobs that can be retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl HistoryMax {
    /// A job that ended less than so many milliseconds ago is kept beyond the bounds: a caller that
    /// waits for its end still reads it.
    pub const SPARED_MS: u64 = 10_000;

    /// Whether a job that ended at this time is kept beyond the bounds.
    pub fn spares(ended_at: Option<Timestamp>, now: Timestamp) -> bool {
        ended_at.is_some_and(|end| end.plus_millis(Self::SPARED_MS) > now)
    }

    /// Whether there is no bound.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The part of a history of so many `jobs`, which keep so many `bytes`, that must be deleted;
    /// `None`: nothing.
    pub fn excess(self, jobs: u64, bytes: u64) -> Option<HistoryExcess> {
        let over = |now: u64, max: Option<u64>| max.map_or(0, |max| now.saturating_sub(max));
        let excess = HistoryExcess { jobs: over(jobs, self.jobs), bytes: over(bytes, self.bytes) };
        (!excess.is_none()).then_some(excess)
    }
}

/// The part of an endpoint's history that must be deleted: at least so many jobs, which keep at
/// least so many bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HistoryExcess {
    /// Jobs.
    pub jobs: u64,
    /// Bytes.
    pub bytes: u64,
}

impl HistoryExcess {
    /// Whether nothing must be deleted any more.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    /// Counts the deletion of a job that keeps so many bytes.
    pub fn delete_job(&mut self, bytes: u64) {
        self.jobs = self.jobs.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// How long a job is kept after its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// The time of the contract, in milliseconds.
    pub default_ms: u64,
    /// The time that the endpoint or the submission chose instead.
    pub chosen: ChosenRetention,
}

impl Retention {
    /// The retention of the contract.
    pub const fn by_default(default_ms: u64) -> Self {
        Self { default_ms, chosen: ChosenRetention::NONE }
    }

    /// When a job that ended at `finished_at` with this status is deleted: at the end of its
    /// retention, or of its ttl if that is earlier.
    pub fn purge_at(
        self,
        status: JobStatus,
        finished_at: Timestamp,
        ttl_at: Timestamp,
    ) -> Timestamp {
        let kept_ms = self.chosen.of(status).unwrap_or(self.default_ms);
        ttl_at.min(finished_at.plus_millis(kept_ms))
    }

    /// The end of the ttl of a job that ends now: no earlier than that of a chosen retention.
    #[must_use]
    pub fn ttl_after_end(self, status: JobStatus, ttl_at: Timestamp, now: Timestamp) -> Timestamp {
        let chosen = self.chosen.of(status);
        chosen.map_or(ttl_at, |kept_ms| ttl_at.max(now.plus_millis(kept_ms)))
    }

    /// The end of the ttl of a job that is retried now. A job with a chosen retention may be older
    /// than its ttl: it waits and runs for a whole ttl again.
    #[must_use]
    pub fn ttl_after_retry(self, ttl_ms: u64, ttl_at: Timestamp, now: Timestamp) -> Timestamp {
        if self.chosen.failed_ms.is_some() { now.plus_millis(ttl_ms) } else { ttl_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn a_submission_comes_before_its_endpoint() {
        let of_submission = ChosenRetention { failed_ms: Some(1), ..ChosenRetention::NONE };
        let of_endpoint =
            ChosenRetention { failed_ms: Some(2), completed_ms: Some(3), ..ChosenRetention::NONE };
        let both = of_submission.or(of_endpoint);
        assert_eq!(
            (both.completed_ms, both.failed_ms, both.cancelled_ms),
            (Some(3), Some(1), None)
        );
    }

    #[test]
    fn the_excess_of_a_history_is_what_exceeds_its_bounds() {
        let max = |jobs, bytes| HistoryMax { jobs, bytes };
        let excess = |jobs, bytes| Some(HistoryExcess { jobs, bytes });
        for (max, expected) in [
            (max(None, None), None),
            (max(Some(10), Some(1_000)), None),
            (max(Some(9), None), excess(1, 0)),
            (max(Some(1), Some(1_000)), excess(9, 0)),
            (max(Some(10), Some(999)), excess(0, 1)),
            (max(Some(4), Some(1)), excess(6, 999)),
        ] {
            assert_eq!(max.excess(10, 1_000), expected, "{max:?}");
        }
        let mut left = HistoryExcess { jobs: 1, bytes: 150 };
        left.delete_job(100);
        assert_eq!(left, HistoryExcess { jobs: 0, bytes: 50 });
        left.delete_job(100);
        assert!(left.is_none());
    }

    #[test]
    fn a_chosen_retention_outlives_the_ttl_and_a_default_one_does_not() {
        let chosen = ChosenRetention { failed_ms: Some(30 * DAY), ..ChosenRetention::NONE };
        let retention = Retention { default_ms: 1_000, chosen };
        let (ttl_at, now) = (at(5_000), at(4_500));
        for (status, ttl_after, purged) in [
            (JobStatus::Completed, 5_000, 5_000),
            (JobStatus::Cancelled, 5_000, 5_000),
            (JobStatus::Failed, 4_500 + 30 * DAY, 4_500 + 30 * DAY),
            (JobStatus::TimedOut, 4_500 + 30 * DAY, 4_500 + 30 * DAY),
        ] {
            let ttl_after_end = retention.ttl_after_end(status, ttl_at, now);
            assert_eq!(ttl_after_end, at(ttl_after), "{status}");
            assert_eq!(retention.purge_at(status, now, ttl_after_end), at(purged), "{status}");
        }
        let retried = at(10 * DAY);
        let ttl_at = retention.ttl_after_end(JobStatus::Failed, ttl_at, now);
        assert_eq!(retention.ttl_after_retry(DAY, ttl_at, retried), at(11 * DAY));
        let default = Retention::by_default(1_000);
        assert_eq!(default.ttl_after_retry(DAY, at(5_000), at(4_600)), at(5_000));
    }
}
