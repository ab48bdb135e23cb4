//! The execution policy of a submission.

use gristmill_wire::RetryInput;
use gristmill_wire::settings::InvalidField;
use serde::{Deserialize, Serialize};

use crate::job::retention::ChosenRetention;
use crate::job::retry::Retry;
use crate::limits::{Bounds, DEBOUNCE_MS, DELAY_MS, EXECUTION_TIMEOUT_MS, RETENTION_MS, TTL_MS};
use crate::time::Timestamp;

/// How long a job may wait and run, and whether it may start workers. The values are always inside
/// their bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Time for one attempt, in milliseconds; counts only while the handler runs. `None`: that of
    /// the endpoint when the attempt begins.
    pub execution_timeout_ms: Option<u64>,
    /// Lifetime of the job from its submission, or from the time before which it does not start, in
    /// milliseconds; covers waiting and running.
    pub ttl_ms: u64,
    /// Whether the job runs only on existing workers, after the jobs that are not low priority.
    pub low_priority: bool,
    /// When it may start.
    pub start: Start,
    /// When it runs again after an attempt that failed; `None`: as its endpoint says.
    pub retry: Option<Retry>,
}

/// When a job may start, at the earliest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Start {
    /// At once.
    #[default]
    Now,
    /// So many milliseconds after its submission.
    After(u64),
    /// At this time.
    At(Timestamp),
    /// So many milliseconds after the last of the submissions with its key that replace each other,
    /// and at most `max_ms` after the first of them.
    Debounced {
        /// `policy.debounceMs`.
        ms: u64,
        /// `policy.debounceMaxMs`.
        max_ms: u64,
    },
}

/// `policy.debounceMaxMs` by default, in times of `policy.debounceMs`.
const DEBOUNCE_MAX: u64 = 10;

impl Start {
    /// That of `policy.debounceMs` and `policy.debounceMaxMs`.
    pub fn debounced(ms: u64, max_ms: Option<u64>) -> Self {
        let longest = ms.saturating_mul(DEBOUNCE_MAX).min(DEBOUNCE_MS.max.max(ms));
        Self::Debounced { ms, max_ms: max_ms.unwrap_or(longest) }
    }

    /// The time before which a job does not start that is submitted now and replaces no other one;
    /// `None`: it may at once.
    pub fn due(self, now: Timestamp) -> Option<Timestamp> {
        let due = match self {
            Self::Now => now,
            Self::After(ms) => now.plus_millis(ms),
            Self::At(at) => at,
            Self::Debounced { ms, max_ms } => now.plus_millis(ms.min(max_ms)),
        };
        Some(due).filter(|due| *due > now)
    }
}

/// The policy of a submission; a missing field takes its default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PolicyRequest {
    /// `policy.executionTimeout`, in milliseconds.
    pub execution_timeout_ms: Option<u64>,
    /// `policy.ttl`, in milliseconds.
    pub ttl_ms: Option<u64>,
    /// `policy.lowPriority`.
    pub low_priority: Option<bool>,
    /// `policy.delay`, `policy.runAt` or `policy.debounceMs`.
    pub start: Start,
    /// `policy.retry`.
    pub retry: Option<RetryInput>,
    /// `policy.retention`.
    pub retention: ChosenRetention,
}

/// The treatment of numbers outside their bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strictness {
    /// Refuse the submission.
    #[default]
    Refuse,
    /// Take the nearest value inside the bounds.
    Clamp,
}

/// A number outside its bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("policy.{field} must be {} to {} {unit}", bounds.min, bounds.max)]
pub struct PolicyOutOfBounds {
    field: &'static str,
    bounds: Bounds,
    unit: &'static str,
}

/// A policy that no job can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPolicy {
    /// A number outside its bounds.
    #[error(transparent)]
    OutOfBounds(#[from] PolicyOutOfBounds),
    /// A part of its rule of retries.
    #[error(transparent)]
    Retry(#[from] InvalidField),
}

impl PolicyRequest {
    /// Fills in the defaults and checks the bounds, for a submission at `now` to an endpoint with
    /// this rule of retries.
    ///
    /// # Errors
    /// [`InvalidPolicy`] names the field and its bounds. With [`Strictness::Clamp`] only a rule of
    /// retries is refused.
    pub fn resolve(
        self,
        strictness: Strictness,
        endpoint_rule: Retry,
        now: Timestamp,
    ) -> Result<Policy, InvalidPolicy> {
        let check = |field, bounds, value| strictness.check(field, bounds, value);
        let timeout = |ms| check("executionTimeout", EXECUTION_TIMEOUT_MS, ms);
        let ttl = self.ttl_ms.unwrap_or(TTL_MS.default);
        let start = match self.start {
            Start::Now => Start::Now,
            Start::After(ms) => Start::After(check("delay", DELAY_MS, ms)?),
            Start::At(at) => {
                let ms = check("runAt", DELAY_MS, at.millis_since(now))
                    .map_err(|error| PolicyOutOfBounds { unit: "ms away", ..error })?;
                Start::At(at.min(now.plus_millis(ms)))
            }
            Start::Debounced { ms, max_ms } => Start::Debounced {
                ms: check("debounceMs", DEBOUNCE_MS, ms)?,
                max_ms: check("debounceMaxMs", DEBOUNCE_MS, max_ms)?,
            },
        };
        Ok(Policy {
            execution_timeout_ms: self.execution_timeout_ms.map(timeout).transpose()?,
            ttl_ms: check("ttl", TTL_MS, ttl)?,
            low_priority: self.low_priority.unwrap_or(false),
            start,
            retry: self.retry.map(|given| endpoint_rule.changed(given)).transpose()?,
        })
    }

    /// Checks the bounds of the chosen retentions.
    ///
    /// # Errors
    /// As for [`resolve`](Self::resolve).
    pub fn resolve_retention(
        self,
        strictness: Strictness,
    ) -> Result<ChosenRetention, PolicyOutOfBounds> {
        self.retention.try_map(|field, ms| strictness.check(field, RETENTION_MS, ms))
    }
}

impl Strictness {
    fn check(
        self,
        field: &'static str,
        bounds: Bounds,
        value: u64,
    ) -> Result<u64, PolicyOutOfBounds> {
        match self {
            _ if bounds.contains(value) => Ok(value),
            Self::Clamp => Ok(bounds.clamp(value)),
            Self::Refuse => Err(PolicyOutOfBounds { field, bounds, unit: "ms" }),
        }
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
