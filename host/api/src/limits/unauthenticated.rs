//! Bounds calls without a valid key from one address, so that guessing keys and calling routes
//! without a key cannot keep the host busy; and apart from them, the requests of an address to
//! public endpoints. Calls with a valid key are never counted here.
//!
//! **Bounds.** At most N calls in *any* ten seconds, and a little more than half of them in one
//! burst. [`ADDRESSES_MAX`] addresses of about 100 bytes, which are dropped some seconds after
//! their last call; at the bound all unauthenticated calls are refused, and quiet addresses are
//! dropped each [`SWEEP_WHEN_FULL`]. An IPv6 address counts as its /64, which one caller usually
//! has alone.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::Extensions;
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use gristmill_edge::CallOrigin;
use gristmill_wire::management::RateLimit;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::answer::error::{ApiError, ErrorCode};
use crate::answer::refusal::Refusal;

/// Most addresses at one time.
const ADDRESSES_MAX: usize = 100_000;

/// The interval at which quiet addresses are dropped while there is no room for others: an address
/// is quiet 20 ms after one call.
const SWEEP_WHEN_FULL: Duration = Duration::from_millis(250);

/// Calls that are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Calls without a valid key.
    Unauthenticated,
    /// Requests to public endpoints.
    Visits,
}

impl Counted {
    /// The name of the limit in the headers of a refusal.
    fn name(self) -> &'static str {
        match self {
            Self::Unauthenticated => "unauthenticated",
            Self::Visits => "visitors",
        }
    }

    fn sentence(self, calls: u32) -> String {
        let what = match self {
            Self::Unauthenticated => "calls without a valid API key",
            Self::Visits => "requests",
        };
        format!("too many {what} from this address: at most {calls} in 10 seconds")
    }
}

/// The limit of each address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct AddressLimit {
    /// Calls in any ten seconds.
    #[serde(rename = "calls-per-10s")]
    pub calls_per_10s: NonZeroU32,
}

impl Default for AddressLimit {
    fn default() -> Self {
        const { Self { calls_per_10s: NonZeroU32::new(1_000).expect("it is not zero") } }
    }
}

/// Counts the calls of each address.
pub(crate) struct AddressLimiter {
    counted: Counted,
    calls: NonZeroU32,
    addresses_max: usize,
    clock: DefaultClock,
    limiter: DefaultKeyedRateLimiter<IpAddr>,
    /// When addresses were dropped last.
    swept_at: Mutex<Instant>,
}

impl std::fmt::Debug for AddressLimiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AddressLimiter").field("calls", &self.calls).finish_non_exhaustive()
    }
}

impl AddressLimiter {
    pub(crate) fn new(counted: Counted, limit: AddressLimit) -> Self {
        let calls = limit.calls_per_10s;
        // A bucket of size B with R refills in the window admits B + R - 1 calls in the window.
        let refills = NonZeroU32::new(calls.get() / 2).unwrap_or(NonZeroU32::MIN);
        let burst = NonZeroU32::new(calls.get() - refills.get() + 1).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::with_period(RateLimit::WINDOW / refills.get())
            .expect("ten seconds over 2^31 is more than a nanosecond");
        let limiter = RateLimiter::keyed(quota.allow_burst(burst));
        let swept_at = Mutex::new(Instant::now());
        let addresses_max = ADDRESSES_MAX;
        let clock = DefaultClock::default();
        Self { counted, calls, addresses_max, clock, limiter, swept_at }
    }

    /// Counts a call.
    ///
    /// # Errors
    /// 429 beyond the limit of its address.
    pub(crate) fn admit(&self, request: &Extensions) -> Result<(), ApiError> {
        // Without a listener in front there is no address, and no caller to limit.
        request.get::<Arc<CallOrigin>>().map_or(Ok(()), |origin| self.admit_from(origin))
    }

    /// The same for a call from there.
    ///
    /// # Errors
    /// 429 beyond the limit of its address.
    pub(crate) fn admit_from(&self, origin: &CallOrigin) -> Result<(), ApiError> {
        self.sweep();
        if self.limiter.len() >= self.addresses_max {
            let sentence = "too many addresses call without a valid API key; try again shortly";
            let (calls, sentence) = (self.calls.get(), sentence.to_owned());
            return Err(refuse(self.counted, calls, SWEEP_WHEN_FULL, sentence));
        }
        let refused = self.limiter.check_key(&origin.peer().known_as()).err();
        match refused.map(|until| until.wait_time_from(self.clock.now())) {
            Some(wait) => Err(too_many(self.counted, self.calls.get(), wait)),
            None => Ok(()),
        }
    }

    /// Drops quiet addresses, once in a window, and more often while there is no room.
    fn sweep(&self) {
        let is_full = self.limiter.len() >= self.addresses_max;
        let interval = if is_full { SWEEP_WHEN_FULL } else { RateLimit::WINDOW };
        let mut swept_at = self.swept_at.lock();
        if swept_at.elapsed() >= interval {
            *swept_at = Instant::now();
            self.limiter.retain_recent();
            self.limiter.shrink_to_fit();
        }
    }
}

/// The refusal of a call without a valid key beyond the limit of its address, which is so many
/// calls; after `wait` one is admitted.
pub(crate) fn too_many_calls(calls: u32, wait: Duration) -> ApiError {
    too_many(Counted::Unauthenticated, calls, wait)
}

fn too_many(counted: Counted, calls: u32, wait: Duration) -> ApiError {
    refuse(counted, calls, wait, counted.sentence(calls))
}

fn refuse(counted: Counted, calls: u32, wait: Duration, sentence: String) -> ApiError {
    let refusal = Refusal::calls(counted.name(), calls, wait);
    ApiError::new(ErrorCode::RateLimited, sentence).with_refusal(refusal)
}

#[cfg(test)]
mod tests {
    use gristmill_edge::PeerAddress;

    use super::*;

    fn from(address: &str) -> Extensions {
        let mut request = Extensions::new();
        let peer = PeerAddress(address.parse().unwrap());
        request.insert(Arc::new(CallOrigin::from(peer)));
        request
    }

    #[test]
    fn each_address_has_a_limit_of_its_own() {
        let limit = AddressLimit { calls_per_10s: NonZeroU32::new(5).unwrap() };
        let unauthenticated = AddressLimiter::new(Counted::Unauthenticated, limit);
        for address in ["192.0.2.1", "192.0.2.2", "2001:db8::1"] {
            // Four at once; two more within ten seconds, the second just at their end.
            for _ in 0..4 {
                assert!(unauthenticated.admit(&from(address)).is_ok());
            }
            assert!(unauthenticated.admit(&from(address)).is_err());
        }
        assert!(unauthenticated.admit(&from("2001:db8::2")).is_err(), "it is the same /64");
        assert!(
            unauthenticated.admit(&from("::ffff:192.0.2.1")).is_err(),
            "it is the same address"
        );
        assert!(unauthenticated.admit(&from("2001:db8:0:1::1")).is_ok());
    }

    #[test]
    fn a_full_table_has_room_again_when_its_addresses_are_quiet() {
        let limit = AddressLimit::default();
        let unauthenticated = AddressLimiter {
            addresses_max: 3,
            ..AddressLimiter::new(Counted::Unauthenticated, limit)
        };
        for address in ["192.0.2.1", "192.0.2.2", "192.0.2.3"] {
            assert!(unauthenticated.admit(&from(address)).is_ok());
        }
        assert!(unauthenticated.admit(&from("192.0.2.4")).is_err());
        std::thread::sleep(SWEEP_WHEN_FULL);
        assert!(unauthenticated.admit(&from("192.0.2.4")).is_ok());
    }
}
