//! The limits of the queue API: [calls in ten seconds](super::call_rate), and concurrent calls, for
//! each key owner, endpoint and operation. The calls of the management API are counted together,
//! for each key owner, and so are the calls that count for no operation.
//!
//! The totals are the owner's. While several of its keys call, each key has a fair share of them
//! ([`KeyShares`]), and the first concurrent calls of a key are admitted a little beyond the limit.
//! Waiting calls leave a quarter of the concurrent calls to calls that do not wait. The concurrent
//! calls of the queue API and the streams of events and logs also count for [their
//! owner](super::owner_calls) on all endpoints together.
//!
//! **Bounds.** [`ENTRIES_MAX`] entries of about 260 bytes, and 60 for each further key; an entry is
//! dropped once no call counts in it. Each owner has [a share](SharedBound) of them: an owner with
//! 9,990 endpoints leaves entries to other owners. At the share or the bound a call that needs a
//! new entry gets 503. **Cost.** One lock of a sixteenth of the entries, and one look into a hash
//! map.

use std::collections::HashMap;
use std::collections::hash_map;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gristmill_core::access::key::{ApiKey, Scope};
use gristmill_core::deploy::endpoint::Endpoint;
use gristmill_core::id::{EndpointId, OwnerId};
use gristmill_core::sharing::key_shares::{KeyPosition, KeyShares};
use gristmill_core::sharing::shares::{Fit, Holdings, SharedBound};
use gristmill_core::time::Clock;
use gristmill_wire::management::RateLimit;
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::{self, Deserializer, Unexpected, Visitor};

use crate::answer::error::{ApiError, ErrorCode};
use crate::answer::refusal::Refusal;
use crate::limits::call_rate::{CallRate, RetryAfter};
use crate::limits::owner_calls::{AtShare, CallShares, OwnerCall, OwnerCalls};
use crate::limits::unauthenticated::AddressLimit;

/// Most entries at one time. An owner that is alone has room for 98,304: nine operations of 9,990
/// endpoints, and the management API.
const ENTRIES_MAX: usize = 1 << 17;

/// The first concurrent calls of a key are admitted although its owner's other keys hold all: up to
/// this part of the limit, at least one. Otherwise one key with calls that last for minutes, such
/// as event streams, would block the owner's other keys, which could not even cancel its jobs.
const FIRST_OF_KEY_PART: u32 = 64;

/// The owner's calls exceed the limit by at most this part of it, at least by one call.
const BEYOND_PART: u32 = 8;

const SHARDS: usize = 16;

/// Most entries of a shard.
const SHARD_ENTRIES_MAX: usize = ENTRIES_MAX / SHARDS;

/// An operation whose calls are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    Run,
    RunSync,
    /// `openai/*`.
    OpenAi,
    Status,
    /// Counted as [`Operation::Status`]; its calls wait.
    StatusSync,
    /// Counted as [`Operation::Status`].
    Timeline,
    Stream,
    Cancel,
    Retry,
    PurgeQueue,
    Health,
    Requests,
    /// `/http/…`.
    Http,
}

impl Operation {
    /// The scope that a key needs.
    pub(crate) fn scope(self) -> Scope {
        match self {
            Self::Run
            | Self::RunSync
            | Self::OpenAi
            | Self::Cancel
            | Self::Retry
            | Self::PurgeQueue
            // A handler may change something whatever the method is.
            | Self::Http => Scope::Submit,
            Self::Status
            | Self::StatusSync
            | Self::Timeline
            | Self::Stream
            | Self::Health
            | Self::Requests => Scope::Read,
        }
    }

    /// The operation that its calls are counted as.
    fn counted_as(self) -> Self {
        match self {
            Self::StatusSync | Self::Timeline => Self::Status,
            other => other,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::RunSync => "runsync",
            Self::OpenAi => "openai",
            Self::Status | Self::StatusSync | Self::Timeline => "status",
            Self::Stream => "stream",
            Self::Cancel => "cancel",
            Self::Retry => "retry",
            Self::PurgeQueue => "purge-queue",
            Self::Health => "health",
            Self::Requests => "requests",
            Self::Http => "http",
        }
    }
}

/// The limit of each operation.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "GivenLimits")]
pub struct RateLimits {
    /// `/run`.
    pub run: RateLimit,
    /// `/runsync`.
    pub runsync: RateLimit,
    /// `/openai/*`.
    pub openai: RateLimit,
    /// `/status`, `/status-sync` and `/timeline` together.
    pub status: RateLimit,
    /// `/stream`.
    pub stream: RateLimit,
    /// `/cancel`.
    pub cancel: RateLimit,
    /// `/retry`.
    pub retry: RateLimit,
    /// `/purge-queue`.
    pub purge_queue: RateLimit,
    /// `/requests`.
    pub requests: RateLimit,
    /// Requests below `/http`.
    pub http: RateLimit,
    /// All calls below `/v1`, and `/metrics`.
    pub management: RateLimit,
    /// Streams of `/v1/events` and of the log lines of endpoints, together.
    pub events: RateLimit,
    /// Calls without a valid key, for each address. Its rate is also that of the calls with a
    /// valid key that count for no operation, for each owner.
    pub unauthenticated: AddressLimit,
    /// Requests to public endpoints, for each address.
    pub visitors: AddressLimit,
}

impl Default for RateLimits {
    fn default() -> Self {
        let limit = |calls_per_10s, concurrent, calls_per_worker| RateLimit {
            calls_per_10s,
            concurrent,
            calls_per_worker,
        };
        Self {
            run: limit(1_000, Some(200), 200),
            runsync: limit(2_000, Some(400), 400),
            openai: limit(2_000, Some(400), 400),
            status: limit(2_000, Some(400), 400),
            stream: limit(2_000, Some(400), 400),
            cancel: limit(100, Some(20), 20),
            // The documented service names no limit; a retry costs an attempt, and is as rare as a
            // cancel.
            retry: limit(100, Some(20), 20),
            purge_queue: limit(2, None, 0),
            requests: limit(10, Some(2), 0),
            // A client of a REST API makes many small ones.
            http: limit(10_000, Some(400), 400),
            // The documented service names no limit.
            management: limit(1_000, Some(100), 0),
            // One of them lasts up to an hour.
            events: limit(200, Some(100), 0),
            unauthenticated: AddressLimit::default(),
            visitors: AddressLimit::default(),
        }
    }
}

impl RateLimits {
    /// `None`: the operation has no limit.
    fn of(&self, operation: Operation) -> Option<&RateLimit> {
        match operation {
            Operation::Run => Some(&self.run),
            Operation::RunSync => Some(&self.runsync),
            Operation::OpenAi => Some(&self.openai),
            Operation::Status | Operation::StatusSync | Operation::Timeline => Some(&self.status),
            Operation::Stream => Some(&self.stream),
            Operation::Cancel => Some(&self.cancel),
            Operation::PurgeQueue => Some(&self.purge_queue),
            Operation::Requests => Some(&self.requests),
            Operation::Http => Some(&self.http),
            Operation::Retry => Some(&self.retry),
            // The documented service names no limit for it, and it is cheap.
            Operation::Health => None,
        }
    }
}

/// The limits of a configuration file: missing values keep their defaults.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
struct GivenLimits {
    run: GivenLimit,
    runsync: GivenLimit,
    openai: GivenLimit,
    status: GivenLimit,
    stream: GivenLimit,
    cancel: GivenLimit,
    retry: GivenLimit,
    purge_queue: GivenLimit,
    requests: GivenLimit,
    http: GivenLimit,
    management: GivenLimit,
    events: GivenLimit,
    unauthenticated: AddressLimit,
    visitors: AddressLimit,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
struct GivenLimit {
    #[serde(rename = "calls-per-10s")]
    calls_per_10s: Option<u32>,
    concurrent: Option<Cap>,
    calls_per_worker: Option<u32>,
}

/// A bound on concurrent calls, or the word for none.
#[derive(Debug, Clone, Copy)]
enum Cap {
    AtMost(u32),
    Unlimited,
}

impl<'de> Deserialize<'de> for Cap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CapVisitor;

        impl Visitor<'_> for CapVisitor {
            type Value = Cap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of calls, 0 to 4294967295, or \"unlimited\"")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Cap, E> {
                let wrong = |_| E::invalid_value(Unexpected::Signed(number), &self);
                number.try_into().map(Cap::AtMost).map_err(wrong)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Cap, E> {
                let wrong = |_| E::invalid_value(Unexpected::Unsigned(number), &self);
                number.try_into().map(Cap::AtMost).map_err(wrong)
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Cap, E> {
                match word {
                    "unlimited" => Ok(Cap::Unlimited),
                    _ => Err(E::invalid_value(Unexpected::Str(word), &self)),
                }
            }
        }

        deserializer.deserialize_any(CapVisitor)
    }
}

impl GivenLimit {
    fn over(self, default: RateLimit) -> RateLimit {
        RateLimit {
            calls_per_10s: self.calls_per_10s.unwrap_or(default.calls_per_10s),
            concurrent: match self.concurrent {
                Some(Cap::AtMost(calls)) => Some(calls),
                Some(Cap::Unlimited) => None,
                None => default.concurrent,
            },
            calls_per_worker: self.calls_per_worker.unwrap_or(default.calls_per_worker),
        }
    }
}

impl From<GivenLimits> for RateLimits {
    fn from(given: GivenLimits) -> Self {
        let default = Self::default();
        Self {
            run: given.run.over(default.run),
            runsync: given.runsync.over(default.runsync),
            openai: given.openai.over(default.openai),
            status: given.status.over(default.status),
            stream: given.stream.over(default.stream),
            cancel: given.cancel.over(default.cancel),
            retry: given.retry.over(default.retry),
            purge_queue: given.purge_queue.over(default.purge_queue),
            requests: given.requests.over(default.requests),
            http: given.http.over(default.http),
            management: given.management.over(default.management),
            events: given.events.over(default.events),
            unauthenticated: given.unauthenticated,
            visitors: given.visitors,
        }
    }
}

/// Counts calls, and refuses calls beyond the limits.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    limits: RateLimits,
    clock: Arc<dyn Clock>,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
    call_shares: CallShares,
}

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<Subject, Entry>,
    /// The entries of each owner.
    held: Holdings<OwnerId>,
    swept_at: Duration,
}

/// The key of an entry, whose calls are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Subject {
    owner: OwnerId,
    calls: Calls,
}

/// The calls of one entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Calls {
    Queue(EndpointId, Operation),
    Management,
    Streams,
    /// Calls that need no key, or that were refused before they could count for an operation.
    Other,
}

#[derive(Debug)]
struct Entry {
    rate: CallRate,
    shares: KeyShares,
    in_flight: Arc<CallsInFlight>,
    of_owner: OwnerCalls,
}

/// Concurrent calls.
#[derive(Debug, Default)]
struct CallsInFlight {
    all: AtomicU32,
    /// Concurrent calls that wait.
    waiting: AtomicU32,
}

/// A call that counts as concurrent until this is dropped.
#[derive(Debug)]
pub(crate) struct ConcurrencyPermit {
    /// `None`: the operation has no cap.
    _of_operation: Option<OperationPermit>,
    /// `None`: a call of the management API, which can take a key or an endpoint from the other
    /// calls.
    _of_owner: Option<OwnerCall>,
}

#[derive(Debug)]
struct OperationPermit {
    in_flight: Arc<CallsInFlight>,
    of_key: Arc<AtomicU32>,
    waits: bool,
}

impl Drop for OperationPermit {
    fn drop(&mut self) {
        self.in_flight.all.fetch_sub(1, Ordering::Relaxed);
        self.of_key.fetch_sub(1, Ordering::Relaxed);
        if self.waits {
            self.in_flight.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A call that is to be counted.
struct NewCall<'a> {
    /// For the sentence and the headers of a refusal.
    name: &'static str,
    limit: &'a RateLimit,
    /// Whether it leaves concurrent calls to calls that do not wait.
    waits: bool,
}

impl RateLimiter {
    /// Counts calls, and up to `calls_max` concurrent calls of all owners.
    pub(crate) fn new(limits: RateLimits, calls_max: u64, clock: Arc<dyn Clock>) -> Self {
        Self {
            limits,
            clock,
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
            call_shares: CallShares::new(calls_max),
        }
    }

    /// Counts a call of the queue API. `None`: the operation is not counted.
    ///
    /// # Errors
    /// 429 when a limit or the owner's share is reached, with the time after which a call is
    /// admitted.
    pub(crate) fn admit(
        &self,
        key: &ApiKey,
        endpoint: &Endpoint,
        operation: Operation,
        running_workers: impl FnOnce() -> u64,
    ) -> Result<Option<ConcurrencyPermit>, ApiError> {
        let Some(limit) = self.limits.of(operation) else { return Ok(None) };
        let name = operation.as_str();
        let limit = endpoint.settings.rate_limits.get(name).unwrap_or(limit);
        let calls = Calls::Queue(endpoint.id.clone(), operation.counted_as());
        let call = NewCall { name, limit, waits: operation == Operation::StatusSync };
        self.count(key, calls, &call, running_workers).map(Some)
    }

    /// Counts a call of the management API, as [`admit`](Self::admit) does.
    ///
    /// # Errors
    /// Those of [`admit`](Self::admit).
    pub(crate) fn enter_management(&self, key: &ApiKey) -> Result<ConcurrencyPermit, ApiError> {
        let limit = &self.limits.management;
        let call = NewCall { name: "management", limit, waits: false };
        self.count(key, Calls::Management, &call, || 0)
    }

    /// Counts a stream of events or of log lines, which lasts until the permit is dropped.
    ///
    /// # Errors
    /// Those of [`admit`](Self::admit).
    pub(crate) fn enter_stream(&self, key: &ApiKey) -> Result<ConcurrencyPermit, ApiError> {
        let limit = &self.limits.events;
        let call = NewCall { name: "events and logs", limit, waits: false };
        self.count(key, Calls::Streams, &call, || 0)
    }

    /// Counts a call with a valid key that counts for no operation: one that needs no key, or one
    /// that is refused because its route or endpoint does not exist or its key has no permission.
    ///
    /// A call that is refused for its job, such as a deleted one, counts for its operation only:
    /// clients that poll keep the whole pace of `/status`.
    ///
    /// # Errors
    /// 429 beyond the rate of callers without a key.
    pub(crate) fn count_other(&self, key: &ApiKey) -> Result<(), ApiError> {
        const NAME: &str = "public, unknown or forbidden routes";
        let limit = RateLimit {
            calls_per_10s: self.limits.unauthenticated.calls_per_10s.get(),
            concurrent: None,
            calls_per_worker: 0,
        };
        let call = NewCall { name: NAME, limit: &limit, waits: false };
        self.count(key, Calls::Other, &call, || 0).map(drop)
    }

    fn count(
        &self,
        key: &ApiKey,
        calls: Calls,
        call: &NewCall<'_>,
        running_workers: impl FnOnce() -> u64,
    ) -> Result<ConcurrencyPermit, ApiError> {
        let NewCall { name, limit, waits } = *call;
        let now = self.clock.elapsed();
        let counts_for_owner = !matches!(calls, Calls::Management | Calls::Other);
        let subject = Subject { owner: key.owner.clone(), calls };
        let mut shard = self.shard(&subject).lock();
        let entry = shard.entry(subject, now, &self.call_shares)?;
        let me = entry.shares.find(&key.id, now);
        // The caps are checked first, so that a call refused for one does not count.
        let of_owner = counts_for_owner.then(|| entry.of_owner.begin()).transpose()?;
        let of_operation = match limit.concurrent {
            Some(cap) => {
                let permit = entry.permit(me, waits, cap);
                Some(permit.map_err(|reached| too_many_at_once(name, reached))?)
            }
            None => None,
        };
        let permit = ConcurrencyPermit { _of_operation: of_operation, _of_owner: of_owner };
        let mut calls = limit.calls_per_10s;
        let mut admitted = entry.admit(me, calls, now);
        if admitted.is_err() {
            // The running workers are counted only if the fixed limit is reached.
            calls = limit.effective(running_workers());
            admitted = entry.admit(me, calls, now);
        }
        admitted.map_err(|RetryAfter(wait)| too_many(name, calls, wait))?;
        entry.shares.admitted(me);
        Ok(permit)
    }

    fn shard(&self, subject: &Subject) -> &Mutex<Shard> {
        let hash = usize::try_from(self.hasher.hash_one(subject) % SHARDS as u64);
        #[expect(clippy::indexing_slicing, reason = "the remainder is below SHARDS")]
        &self.shards[hash.unwrap_or_default()]
    }
}

impl Shard {
    fn entry(
        &mut self,
        subject: Subject,
        now: Duration,
        call_shares: &CallShares,
    ) -> Result<&mut Entry, ApiError> {
        const SWEEP: Duration = Duration::from_secs(30);
        const ENTRIES: SharedBound = SharedBound::always(SHARD_ENTRIES_MAX as u64);
        /// A sweep looks at each entry.
        const SWEEP_WHEN_SCARCE: Duration = Duration::from_millis(250);
        // An owner can be at its share only when the entries of all would be beyond that of one.
        let len = self.entries.len() as u64;
        let is_scarce = ENTRIES.fit(len, len, 1) != Fit::Fits;
        let interval = if is_scarce { SWEEP_WHEN_SCARCE } else { SWEEP };
        if now >= self.swept_at + interval {
            self.sweep(now);
        }
        let new = match self.entries.entry(subject) {
            hash_map::Entry::Occupied(known) => return Ok(known.into_mut()),
            hash_map::Entry::Vacant(new) => new,
        };
        let owner = &new.key().owner;
        let refusal = match self.held.try_add(&ENTRIES, owner, 1) {
            Fit::Fits => {
                let of_owner = call_shares.of(owner);
                return Ok(new.insert(Entry::new(of_owner)));
            }
            Fit::Full => "too many different callers at one time; try again shortly",
            Fit::AtShare => {
                "too many different endpoints and operations of this owner are called within 10 \
                 seconds, beside the calls of other owners; try again shortly"
            }
        };
        Err(ApiError::new(ErrorCode::Unavailable, refusal))
    }

    /// Drops the entries in which no call counts any more.
    fn sweep(&mut self, now: Duration) {
        let Self { entries, held, swept_at } = self;
        *swept_at = now;
        entries.retain(|subject, entry| {
            let is_idle = entry.is_idle(now);
            if is_idle {
                held.remove(&subject.owner, 1);
            }
            !is_idle
        });
    }
}

impl Entry {
    fn new(of_owner: OwnerCalls) -> Self {
        let (rate, shares) = (CallRate::default(), KeyShares::default());
        Self { rate, shares, in_flight: Arc::default(), of_owner }
    }

    /// Admits a concurrent call of the key, or returns the bound that is reached.
    fn permit(&mut self, me: KeyPosition, waits: bool, cap: u32) -> Result<OperationPermit, u32> {
        // The shard's lock is held, so no other call can be added meanwhile.
        let kept = self.shares.permits_of_others(me, cap);
        let is_reached = |used: &AtomicU32, bound: u32| {
            used.load(Ordering::Relaxed).saturating_add(kept) >= bound
        };
        let waiting_max = cap - cap / 4;
        let of_key = self.shares.permits(me).cloned();
        let held = of_key.as_ref().map_or(0, |permits| permits.load(Ordering::Relaxed));
        let is_first = cap > 0
            && held < (cap / FIRST_OF_KEY_PART).max(1)
            && self.in_flight.all.load(Ordering::Relaxed)
                < cap.saturating_add((cap / BEYOND_PART).max(1));
        let reached = if is_first && !waits {
            None
        } else if is_reached(&self.in_flight.all, cap) {
            Some(cap)
        } else {
            (waits && is_reached(&self.in_flight.waiting, waiting_max)).then_some(waiting_max)
        };
        let (None, Some(of_key)) = (reached, of_key) else {
            self.shares.permit_refused(me);
            return Err(reached.unwrap_or(cap));
        };
        self.in_flight.all.fetch_add(1, Ordering::Relaxed);
        of_key.fetch_add(1, Ordering::Relaxed);
        if waits {
            self.in_flight.waiting.fetch_add(1, Ordering::Relaxed);
        }
        Ok(OperationPermit { in_flight: self.in_flight.clone(), of_key, waits })
    }

    /// Counts a call of the key, unless there are `calls` already, or the rest is reserved for
    /// other keys.
    fn admit(&mut self, me: KeyPosition, calls: u32, now: Duration) -> Result<(), RetryAfter> {
        let kept = self.shares.calls_of_others(me, calls);
        self.rate.admit(now, calls, kept)
    }

    fn is_idle(&self, now: Duration) -> bool {
        self.rate.is_idle(now) && Arc::strong_count(&self.in_flight) == 1
    }
}

fn too_many(name: &'static str, calls: u32, retry_after: Duration) -> ApiError {
    let sentence = format!("too many calls of {name}: at most {calls} in 10 seconds");
    let refusal = Refusal::calls(name, calls, retry_after);
    ApiError::new(ErrorCode::RateLimited, sentence).with_refusal(refusal)
}

fn too_many_at_once(name: &'static str, cap: u32) -> ApiError {
    let sentence = format!("too many calls of {name} at one time: at most {cap}");
    ApiError::new(ErrorCode::ConcurrencyLimited, sentence)
        .with_refusal(Refusal::at_one_time(name, cap))
}

impl From<AtShare> for ApiError {
    fn from(AtShare { held }: AtShare) -> Self {
        let sentence = format!(
            "this owner's keys have {held} calls in progress, the most that one owner may have now"
        );
        let refusal = Refusal::at_one_time("calls", u32::try_from(held).unwrap_or(u32::MAX));
        Self::new(ErrorCode::ConcurrencyLimited, sentence).with_refusal(refusal)
    }
}

#[cfg(test)]
#[path = "rate_limit_tests.rs"]
mod tests;
