//! The execution policy of a submission.

use serde::{Deserialize, Serialize};

use crate::job::retention::ChosenRetention;
use crate::limits::{Bounds, EXECUTION_TIMEOUT_MS, RETENTION_MS, TTL_MS};

/// How long a job may wait and run, and whether it may start workers. The values are always inside
/// their bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Time for one attempt, in milliseconds; counts only while the handler runs. `None`: that of
    /// the endpoint when the attempt begins.
    pub execution_timeout_ms: Option<u64>,
    /// Lifetime of the job from its submission, in milliseconds; covers waiting and running.
    pub ttl_ms: u64,
    /// Whether the job runs only on existing workers, after the jobs that are not low priority.
    pub low_priority: bool,
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
#[error("policy.{field} must be {} to {} ms", bounds.min, bounds.max)]
pub struct PolicyOutOfBounds {
    field: &'static str,
    bounds: Bounds,
}

impl PolicyRequest {
    /// Fills in the defaults and checks the bounds.
    ///
    /// # Errors
    /// [`PolicyOutOfBounds`] names the field and its bounds, unless `strictness` is
    /// [`Strictness::Clamp`].
    pub fn resolve(self, strictness: Strictness) -> Result<Policy, PolicyOutOfBounds> {
        let check = |field, bounds, value| strictness.check(field, bounds, value);
        let timeout = |ms| check("executionTimeout", EXECUTION_TIMEOUT_MS, ms);
        let ttl = self.ttl_ms.unwrap_or(TTL_MS.default);
        Ok(Policy {
            execution_timeout_ms: self.execution_timeout_ms.map(timeout).transpose()?,
            ttl_ms: check("ttl", TTL_MS, ttl)?,
            low_priority: self.low_priority.unwrap_or(false),
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
            Self::Refuse => Err(PolicyOutOfBounds { field, bounds }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(timeout: Option<u64>, ttl: Option<u64>) -> PolicyRequest {
        PolicyRequest {
            execution_timeout_ms: timeout,
            ttl_ms: ttl,
            low_priority: None,
            ..PolicyRequest::default()
        }
    }

    #[test]
    fn absent_fields_take_the_defaults() {
        let policy = request(None, None).resolve(Strictness::Refuse).unwrap();
        let expected =
            Policy { execution_timeout_ms: None, ttl_ms: 86_400_000, low_priority: false };
        assert_eq!(policy, expected);
    }

    #[test]
    fn the_bounds_are_inclusive_and_named() {
        const DAYS_7: u64 = 604_800_000;
        for inside in [request(Some(5_000), Some(10_000)), request(Some(DAYS_7), Some(DAYS_7))] {
            assert!(inside.resolve(Strictness::Refuse).is_ok());
        }
        let cases = [
            (request(Some(4_999), None), "policy.executionTimeout must be 5000 to 604800000 ms"),
            (request(None, Some(9_999)), "policy.ttl must be 10000 to 604800000 ms"),
            (request(None, Some(DAYS_7 + 1)), "policy.ttl must be 10000 to 604800000 ms"),
        ];
        for (outside, complaint) in cases {
            let refused = outside.resolve(Strictness::Refuse).unwrap_err();
            assert_eq!(refused.to_string(), complaint);
            assert!(outside.resolve(Strictness::Clamp).is_ok());
        }
        let clamped = request(Some(1), Some(u64::MAX)).resolve(Strictness::Clamp).unwrap();
        assert_eq!((clamped.execution_timeout_ms, clamped.ttl_ms), (Some(5_000), DAYS_7));
    }

    #[test]
    fn retentions_outside_their_bounds_are_refused_or_clamped() {
        const MINUTE: u64 = 60_000;
        const DAY: u64 = 86_400_000;
        for (value, nearest) in [(MINUTE - 1, MINUTE), (30 * DAY + 1, 30 * DAY), (0, MINUTE)] {
            let chosen = |field: &str| ChosenRetention {
                completed_ms: (field == "completed").then_some(value),
                failed_ms: (field == "failed").then_some(value),
                cancelled_ms: (field == "cancelled").then_some(value),
            };
            for field in ["completed", "failed", "cancelled"] {
                let request =
                    PolicyRequest { retention: chosen(field), ..PolicyRequest::default() };
                let refused = request.resolve_retention(Strictness::Refuse).unwrap_err();
                let expected = format!("policy.retention.{field} must be 60000 to 2592000000 ms");
                assert_eq!(refused.to_string(), expected);
                let clamped = request.resolve_retention(Strictness::Clamp).unwrap();
                let values = [clamped.completed_ms, clamped.failed_ms, clamped.cancelled_ms];
                assert_eq!(values.into_iter().flatten().collect::<Vec<_>>(), [nearest]);
            }
        }
    }
}
