//! What the headers of a call beyond a limit say: `Retry-After`, and the fields of the IETF draft on
//! rate limit headers.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use gristmill_core::rate::WINDOW;

/// Which limit was reached, and when trying again makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    operation: &'static str,
    quota: Quota,
    retry_after_s: u64,
}

/// What there is no more of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quota {
    /// Calls in the window.
    Calls(u32),
    /// Calls at one time.
    AtOneTime(u32),
}

impl Refusal {
    /// Of a call beyond the `calls` of `operation`; after `wait` one is admitted.
    pub(crate) fn calls(operation: &'static str, calls: u32, wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Self { operation, quota: Quota::Calls(calls), retry_after_s: seconds.max(1) }
    }

    /// Of a call beyond the `cap` on calls of `operation` at one time. There is a place when another
    /// one ends; nobody knows when that is.
    pub(crate) fn at_one_time(operation: &'static str, cap: u32) -> Self {
        Self { operation, quota: Quota::AtOneTime(cap), retry_after_s: 1 }
    }

    /// The same, when it is known after how long there is a place.
    pub(crate) fn after(self, wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Self { retry_after_s: seconds.max(1), ..self }
    }

    /// Adds the headers to the answer.
    pub(crate) fn write(self, headers: &mut HeaderMap) {
        let Self { operation, quota, retry_after_s } = self;
        let policy = match quota {
            Quota::Calls(calls) => format!("\"{operation}\";q={calls};w={}", WINDOW.as_secs()),
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
