//! Whether a job runs again after an attempt that failed, and when: a pure function of the rule,
//! the failures so far, and the wish of the handler.
//!
//! The rule is that of the submission, or else that of the endpoint at the time of the failure.
//! Only failures of the handler count against it: neither crashes of a host nor released attempts.

pub use gristmill_wire::Retry;

use crate::limits::DELAY_MS;
use crate::metrics::failure_reason::FailureReason;
use crate::time::Timestamp;

/// What a job remembers of its failed attempts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobRetry {
    /// The rule of its submission; `None`: that of its endpoint counts.
    pub rule: Option<Retry>,
    /// Its attempts that have failed since a client submitted or retried it, without one after
    /// which it is not run again.
    pub failures: u32,
    /// The last attempt failed, and the rule permits no other one although it permitted one before.
    pub is_exhausted: bool,
}

/// What a handler wishes for its job if its attempt fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryWish {
    /// It does not run again.
    Never,
    /// The next attempt begins after so many milliseconds, if the rule permits one.
    After(u64),
}

/// The failure of an attempt, as far as rules distinguish failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The handler returned an error or trapped, or the host ended it.
    Error,
    /// The handler refused its input, which stays the same.
    InvalidInput,
    /// It reached its executionTimeout, or used all of its fuel.
    Timeout,
    /// It needed more memory than it may have.
    OutOfMemory,
}

impl From<FailureReason> for FailureKind {
    fn from(reason: FailureReason) -> Self {
        match reason {
            FailureReason::Handler
            | FailureReason::Trap
            | FailureReason::NoSpace
            | FailureReason::InvalidOutput
            | FailureReason::Host => Self::Error,
            FailureReason::InvalidInput => Self::InvalidInput,
            FailureReason::FuelLimit => Self::Timeout,
            FailureReason::MemoryLimit => Self::OutOfMemory,
        }
    }
}

/// An attempt that failed.
#[derive(Debug, Clone)]
pub struct FailedAttempt {
    /// How.
    pub kind: FailureKind,
    /// Why, in a sentence.
    pub error: String,
    /// The handler's wish.
    pub wish: Option<RetryWish>,
    /// The rule of the endpoint.
    pub endpoint_rule: Retry,
    /// A random number, by which delays differ.
    pub random: u32,
}

/// What follows a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailure {
    /// The job waits, and may run again from this time on.
    RunsAgain(Timestamp),
    /// The job ends: no rule, or its handler, permits another attempt.
    Ends,
    /// The job ends: it has had all attempts that its rule permits, or its ttl leaves no time for
    /// another one.
    EndsExhausted,
}

impl FailedAttempt {
    /// What follows for a job that is deleted at `ttl_at`.
    pub fn decide(&self, job: JobRetry, ttl_at: Timestamp, now: Timestamp) -> AfterFailure {
        let rule = job.rule.unwrap_or(self.endpoint_rule);
        let is_repeated = match self.kind {
            FailureKind::Error => true,
            FailureKind::InvalidInput => matches!(self.wish, Some(RetryWish::After(_))),
            FailureKind::Timeout => rule.timeouts,
            FailureKind::OutOfMemory => rule.out_of_memory,
        };
        if rule.max_attempts <= 1 || !is_repeated || self.wish == Some(RetryWish::Never) {
            return AfterFailure::Ends;
        }
        let delay_ms = match self.wish {
            Some(RetryWish::After(ms)) => ms.min(DELAY_MS.max),
            Some(RetryWish::Never) | None => delay_ms(&rule, job.failures, self.random),
        };
        let run_at = now.plus_millis(delay_ms);
        match job.failures.saturating_add(1) < rule.max_attempts && run_at < ttl_at {
            true => AfterFailure::RunsAgain(run_at),
            false => AfterFailure::EndsExhausted,
        }
    }
}

/// Milliseconds to the next attempt after `failures` failures before this one.
fn delay_ms(rule: &Retry, failures: u32, random: u32) -> u64 {
    let growth = u64::from(rule.factor).saturating_pow(failures);
    let longest = rule.initial_delay_ms.saturating_mul(growth).min(rule.max_delay_ms);
    // At most 7 days of milliseconds, and 100 percent: no product is over 2^64.
    let spread = longest * u64::from(rule.jitter) / 100;
    longest - ((u128::from(spread) * u128::from(random)) >> 32) as u64
}

#[cfg(test)]
#[path = "retry_tests.rs"]
mod tests;
