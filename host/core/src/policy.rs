//! The execution policy of a submission.

use serde::{Deserialize, Serialize};

use crate::limits::{Bounds, EXECUTION_TIMEOUT_MS, TTL_MS};

/// How long a job may wait and run, and whether it may start workers. The values are always inside
/// their bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Time for one attempt, in milliseconds; counts only while the handler runs.
    pub execution_timeout_ms: u64,
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
#[error("policy.{field} must be {} to {} ms, not {value}", bounds.min, bounds.max)]
pub struct PolicyOutOfBounds {
    field: &'static str,
    bounds: Bounds,
    value: u64,
}

impl PolicyRequest {
    /// Fills in the defaults and checks the bounds. `execution_timeout_ms` is the endpoint's
    /// default.
    ///
    /// # Errors
    /// [`PolicyOutOfBounds`] names the field and its bounds, unless `strictness` is
    /// [`Strictness::Clamp`].
    pub fn resolve(
        self,
        execution_timeout_ms: u64,
        strictness: Strictness,
    ) -> Result<Policy, PolicyOutOfBounds> {
        let check = |field, bounds: Bounds, value: u64| match strictness {
            _ if bounds.contains(value) => Ok(value),
            Strictness::Clamp => Ok(bounds.clamp(value)),
            Strictness::Refuse => Err(PolicyOutOfBounds { field, bounds, value }),
        };
        let timeout = self.execution_timeout_ms.unwrap_or(execution_timeout_ms);
        let ttl = self.ttl_ms.unwrap_or(TTL_MS.default);
        Ok(Policy {
            execution_timeout_ms: check("executionTimeout", EXECUTION_TIMEOUT_MS, timeout)?,
            ttl_ms: check("ttl", TTL_MS, ttl)?,
            low_priority: self.low_priority.unwrap_or(false),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(timeout: Option<u64>, ttl: Option<u64>) -> PolicyRequest {
        PolicyRequest { execution_timeout_ms: timeout, ttl_ms: ttl, low_priority: None }
    }

    #[test]
    fn absent_fields_take_the_defaults() {
        let policy = request(None, None).resolve(600_000, Strictness::Refuse).unwrap();
        let expected =
            Policy { execution_timeout_ms: 600_000, ttl_ms: 86_400_000, low_priority: false };
        assert_eq!(policy, expected);
    }

    #[test]
    fn the_bounds_are_inclusive_and_named() {
        const DAYS_7: u64 = 604_800_000;
        for inside in [request(Some(5_000), Some(10_000)), request(Some(DAYS_7), Some(DAYS_7))] {
            assert!(inside.resolve(600_000, Strictness::Refuse).is_ok());
        }
        let cases = [
            (
                request(Some(4_999), None),
                "policy.executionTimeout must be 5000 to 604800000 ms, not 4999",
            ),
            (request(None, Some(9_999)), "policy.ttl must be 10000 to 604800000 ms, not 9999"),
            (
                request(None, Some(DAYS_7 + 1)),
                "policy.ttl must be 10000 to 604800000 ms, not 604800001",
            ),
        ];
        for (outside, complaint) in cases {
            let refused = outside.resolve(600_000, Strictness::Refuse).unwrap_err();
            assert_eq!(refused.to_string(), complaint);
            assert!(outside.resolve(600_000, Strictness::Clamp).is_ok());
        }
        let clamped = request(Some(1), Some(u64::MAX)).resolve(600_000, Strictness::Clamp).unwrap();
        assert_eq!((clamped.execution_timeout_ms, clamped.ttl_ms), (5_000, DAYS_7));
    }
}
