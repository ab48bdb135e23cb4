//! When a call is made again.

use std::time::Duration;

use crate::ClientError;

/// The pause before the first repetition, if the host names none; each further one is twice as
/// long.
const PAUSE: Duration = Duration::from_millis(250);

/// How often a call is repeated, and how long the client waits before.
///
/// Any call is repeated when no connection was made, and when the host refused it before it changed
/// anything: with 429, or for a full disk or a slow body
/// ([`ErrorCode::is_retry_safe`](crate::wire::ErrorCode::is_retry_safe)). A call that reads, or a
/// submission with an `Idempotency-Key`, is also repeated when the connection broke or the host or
/// a proxy was not available (502 to 504). No other call is repeated.
///
/// The client waits as long as `Retry-After` says; without it a quarter of a second before the
/// first repetition, and twice as long before each further one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Most repetitions of one call.
    pub count_max: u32,
    /// The longest wait before a repetition. If the host asks for a longer one, the call fails.
    pub wait_max: Duration,
}

impl Retries {
    /// Each call is made once.
    pub const NONE: Self = Self { count_max: 0, wait_max: Duration::ZERO };

    /// How long to wait before the repetition with this number, from 0 on; `None`: the call has
    /// failed.
    pub(crate) fn wait_before(
        self,
        repetition: u32,
        error: &ClientError,
        is_repeatable: bool,
    ) -> Option<Duration> {
        let may_repeat = error.is_retry_safe() || (is_repeatable && error.is_passing());
        if repetition >= self.count_max || !may_repeat {
            return None;
        }
        match error.retry_after() {
            Some(wait) => (wait <= self.wait_max).then_some(wait),
            None => Some(PAUSE.saturating_mul(1 << repetition.min(16)).min(self.wait_max)),
        }
    }
}

impl Default for Retries {
    /// Three repetitions, each after at most 30 seconds.
    fn default() -> Self {
        Self { count_max: 3, wait_max: Duration::from_secs(30) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, code: &str, retry_after: Option<&str>) -> ClientError {
        let body = format!(r#"{{"error":"no","code":"{code}"}}"#);
        let base = "http://h".parse().unwrap();
        ClientError::refused(status, body.as_bytes(), retry_after, true, &base)
    }

    #[test]
    fn a_call_is_repeated_only_if_that_is_safe() {
        let retries = Retries::default();
        let interrupted = ClientError::Interrupted("it broke".to_owned());
        let cases = [
            (refused(429, "rate_limited", None), true, true),
            (refused(429, "queue_full", None), true, true),
            (refused(503, "disk_full", None), true, true),
            (refused(408, "request_timeout", None), true, true),
            (refused(503, "unavailable", None), false, true),
            (refused(502, "of a proxy", None), false, true),
            (interrupted, false, true),
            (refused(500, "internal", None), false, false),
            (refused(400, "quota_exceeded", None), false, false),
            (refused(404, "not_found", None), false, false),
            (ClientError::Garbled("?".to_owned()), false, false),
        ];
        for (error, once, repeatable) in cases {
            assert_eq!(retries.wait_before(0, &error, false).is_some(), once, "{error:?}");
            assert_eq!(retries.wait_before(0, &error, true).is_some(), repeatable, "{error:?}");
            assert_eq!(retries.wait_before(3, &error, true), None, "{error:?}");
            assert_eq!(Retries::NONE.wait_before(0, &error, true), None, "{error:?}");
        }
    }

    #[test]
    fn the_host_chooses_the_wait_within_a_bound() {
        let retries = Retries { count_max: 9, wait_max: Duration::from_secs(5) };
        let wait = |repetition, after| {
            let error = refused(429, "queue_full", after);
            retries.wait_before(repetition, &error, false).map(|wait| wait.as_millis())
        };
        assert_eq!(wait(0, Some("5")), Some(5_000));
        assert_eq!(wait(0, Some("6")), None);
        assert_eq!([wait(0, None), wait(1, None), wait(8, None)], [250, 500, 5_000].map(Some));
    }
}
