//! The headers of a call beyond a limit: `Retry-After`, and the fields of the IETF draft on rate
//! limit headers.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use gristmill_wire::management::RateLimit;

/// The reached limit, and when the client should try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    operation: &'static str,
    quota: Quota,
    retry_after_s: u64,
}

/// The exhausted resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quota {
    /// Calls in the window.
    Calls(u32),
    /// Concurrent calls.
    AtOneTime(u32),
}

impl Refusal {
    /// For a call beyond the `calls` of `operation`; after `wait` a call is admitted.
    pub(crate) fn calls(operation: &'static str, calls: u32, wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Self { operation, quota: Quota::Calls(calls), retry_after_s: seconds.max(1) }
    }

    /// For a call beyond the `cap` on concurrent calls of `operation`. The next one is admitted
    /// when another one ends, which cannot be predicted.
    pub(crate) fn at_one_time(operation: &'static str, cap: u32) -> Self {
        Self { operation, quota: Quota::AtOneTime(cap), retry_after_s: 1 }
    }

    /// The same, if the time until the next admission is known.
    pub(crate) fn after(self, wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Self { retry_after_s: seconds.max(1), ..self }
    }

    /// Adds the headers to the answer.
    pub(crate) fn write(self, headers: &mut HeaderMap) {
        let Self { operation, quota, retry_after_s } = self;
        let policy = match quota {
            Quota::Calls(calls) => {
                format!("\"{operation}\";q={calls};w={}", RateLimit::WINDOW.as_secs())
            }
            Quota::AtOneTime(cap) => {
                format!("\"{operation}\";q={cap};qu=\"concurrent-requests\"")
            }
        };
        let left = format!("\"{operation}\";r=0;t={retry_after_s}");
        headers.insert(header::RETRY_AFTER, HeaderValue::from(retry_after_s));
        for (name, text) in [("ratelimit-policy", policy), ("ratelimit", left)] {
            let value = HeaderValue::from_str(&text).expect("names and digits are a header value");
            headers.insert(name, value);
        }
    }
}
