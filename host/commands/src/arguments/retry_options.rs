//! When jobs run again after an attempt that failed, as options of endpoints and of submissions.

use clap::Args;
use gristmill_client::wire::{Retry, RetryInput};

use super::parse::bounded;

/// The fields that are given. A submission that leaves a field out has the value of its endpoint.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Retries")]
pub(crate) struct RetryOptions {
    /// Attempts that may fail until the job is FAILED; crashes of hosts do not count [default for
    /// an endpoint: 1].
    #[arg(long, value_name = "N", value_parser = bounded::<u64>(Retry::MAX_ATTEMPTS))]
    retry_attempts: Option<u64>,
    /// Milliseconds between the first failure and the next attempt [default for an endpoint: 1000].
    #[arg(long, value_name = "MS", value_parser = bounded::<u64>(Retry::INITIAL_DELAY_MS))]
    retry_delay: Option<u64>,
    /// Most milliseconds between a failure and the next attempt [default for an endpoint: 300000].
    #[arg(long, value_name = "MS", value_parser = bounded::<u64>(Retry::MAX_DELAY_MS))]
    retry_max_delay: Option<u64>,
    /// By which the delay grows from failure to failure [default for an endpoint: 2].
    #[arg(long, value_name = "N", value_parser = bounded::<u64>(Retry::FACTOR))]
    retry_factor: Option<u64>,
    /// Up to so many percent of each delay are left out, at random [default for an endpoint: 20].
    #[arg(long, value_name = "PERCENT", value_parser = bounded::<u64>(Retry::JITTER_PERCENT))]
    retry_jitter: Option<u64>,
    /// Also after an attempt that took too long or used all of its fuel [default for an endpoint:
    /// false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    retry_timeouts: Option<bool>,
    /// Also after an attempt that needed more memory than it may have [default for an endpoint:
    /// false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    retry_out_of_memory: Option<bool>,
}

impl RetryOptions {
    /// The given fields; `None` without any.
    pub(crate) fn document(self) -> Option<RetryInput> {
        let given = RetryInput {
            max_attempts: self.retry_attempts,
            initial_delay_ms: self.retry_delay,
            max_delay_ms: self.retry_max_delay,
            factor: self.retry_factor,
            jitter: self.retry_jitter,
            timeouts: self.retry_timeouts,
            out_of_memory: self.retry_out_of_memory,
        };
        (given != RetryInput::default()).then_some(given)
    }
}
