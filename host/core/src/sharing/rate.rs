//! The limits of an operation's calls.

use std::time::Duration;

/// The time for which a limit names its calls.
pub const WINDOW: Duration = Duration::from_secs(10);

/// The limits of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct OperationLimit {
    /// Calls at once, and in ten seconds, for each key owner and endpoint.
    pub calls_per_10s: u32,
    /// Calls at one time, for each key owner and endpoint; `None`: no bound.
    pub concurrent: Option<u32>,
    /// Calls in ten seconds for each running worker of the endpoint; the limit is the greater of
    /// this and `calls_per_10s`.
    pub calls_per_worker: u32,
}

impl OperationLimit {
    /// The limit with `running_workers` running workers.
    pub fn effective(&self, running_workers: u64) -> u32 {
        let dynamic = running_workers.saturating_mul(self.calls_per_worker.into());
        self.calls_per_10s.max(u32::try_from(dynamic).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_higher_of_base_and_workers_is_the_limit() {
        let limit =
            OperationLimit { calls_per_10s: 1_000, concurrent: Some(200), calls_per_worker: 200 };
        assert_eq!([0, 5, 6].map(|workers| limit.effective(workers)), [1_000, 1_000, 1_200]);
        assert_eq!(limit.effective(u64::MAX), u32::MAX);
    }
}
