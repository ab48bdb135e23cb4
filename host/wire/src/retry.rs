//! The rule by which a job runs again after an attempt that failed.

use serde::{Deserialize, Serialize};

use crate::bounds::{Bounds, DELAY_MS};
use crate::settings::{InvalidField, settings};

settings! {
    /// When a job runs again after an attempt that failed. The first further attempt begins
    /// `initialDelayMs` after the failure, and each later one `factor` times as long after the
    /// failure before it, but at most `maxDelayMs`. A handler that refuses its input ends the job.
    #[derive(Copy)]
    pub struct Retry;

    /// When a job runs again after an attempt that failed; a field that is left out keeps its
    /// value. In a submission that is the value of the endpoint.
    #[derive(Copy)]
    pub struct RetryInput {}

    numbers {
        /// The job is FAILED when so many attempts have failed; 1: no attempt is repeated. Crashes
        /// of hosts do not count.
        max_attempts: u32, MAX_ATTEMPTS = Bounds { min: 1, default: 1, max: 100 };
        /// Milliseconds between the first failure and the next attempt.
        initial_delay_ms: u64, INITIAL_DELAY_MS = Bounds { default: 1_000, ..DELAY_MS };
        /// Most milliseconds between a failure and the next attempt.
        max_delay_ms: u64, MAX_DELAY_MS = Bounds { default: 300_000, ..DELAY_MS };
        /// By which the delay grows from failure to failure.
        factor: u32, FACTOR = Bounds { min: 1, default: 2, max: 10 };
        /// Up to so many percent of each delay are left out, at random, so that jobs that failed
        /// together do not run again together.
        jitter: u32, JITTER_PERCENT = Bounds { min: 0, default: 20, max: 100 };
    }
    optional {}
    values {
        /// Whether an attempt is repeated that took longer than its execution timeout, or used all
        /// of its fuel.
        timeouts: bool = false;
        /// Whether an attempt is repeated that needed more memory than it may have.
        out_of_memory: bool = false;
    }
    objects {}
}

impl Retry {
    /// The rule of a submission: this one of its endpoint, with the fields that are given.
    ///
    /// # Errors
    /// For the first field with a value that it cannot have, named as in a submission.
    pub fn changed(mut self, given: RetryInput) -> Result<Self, InvalidField> {
        self.take(given).map_err(|error| error.below("policy.retry"))?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submission_changes_the_rule_of_its_endpoint() {
        let endpoint = Retry { max_attempts: 4, timeouts: true, ..Retry::default() };
        let given = |text: &str| serde_json::from_str::<RetryInput>(text).unwrap();
        let changed = endpoint.changed(given(r#"{"factor":1,"timeouts":false}"#)).unwrap();
        assert_eq!(changed, Retry { factor: 1, timeouts: false, ..endpoint });
        let refused = endpoint.changed(given(r#"{"maxAttempts":0}"#)).unwrap_err();
        assert_eq!(refused.to_string(), "`policy.retry.maxAttempts` must be 1 to 100, not 0");
    }
}
