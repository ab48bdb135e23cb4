//! The limits of the queue API: calls in any ten seconds, and calls at one time, for each key
//! owner, endpoint and operation.
//!
//! **Bounds.** [`ENTRIES_MAX`] entries of about 300 bytes; an entry is forgotten once nothing is
//! counted in it. At the bound the caller is refused with 503: only somebody who makes keys and
//! endpoints by the ten thousand gets there.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gristmill_core::endpoint::Endpoint;
use gristmill_core::id::{EndpointId, OwnerId};
use gristmill_core::key::Scope;
use gristmill_core::rate::{OperationLimit, RateVerdict, RateWindow};
use gristmill_core::time::Clock;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::error::{ApiError, ErrorCode};
use crate::refusal::Refusal;
use crate::strangers::AddressLimit;

/// Most entries at one time.
const ENTRIES_MAX: usize = 100_000;

const SHARDS: usize = 16;

/// What is counted separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    Run,
    RunSync,
    /// `openai/*`.
    OpenAi,
    /// `status` and `status-sync`.
    Status,
    Stream,
    Cancel,
    Retry,
    PurgeQueue,
    Health,
    Requests,
}

impl Operation {
    /// What a key must be good for.
    pub(crate) fn scope(self) -> Scope {
        match self {
            Self::Run
            | Self::RunSync
            | Self::OpenAi
            | Self::Cancel
            | Self::Retry
            | Self::PurgeQueue => Scope::Submit,
            Self::Status | Self::Stream | Self::Health | Self::Requests => Scope::Read,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::RunSync => "runsync",
            Self::OpenAi => "openai",
            Self::Status => "status",
            Self::Stream => "stream",
            Self::Cancel => "cancel",
            Self::Retry => "retry",
            Self::PurgeQueue => "purge-queue",
            Self::Health => "health",
            Self::Requests => "requests",
        }
    }
}

/// The limit of each operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct RateLimits {
    /// `/run`.
    pub run: OperationLimit,
    /// `/runsync`.
    pub runsync: OperationLimit,
    /// `/openai/*`.
    pub openai: OperationLimit,
    /// `/status` and `/status-sync` together.
    pub status: OperationLimit,
    /// `/stream`.
    pub stream: OperationLimit,
    /// `/cancel`.
    pub cancel: OperationLimit,
    /// `/purge-queue`.
    pub purge_queue: OperationLimit,
    /// `/requests`.
    pub requests: OperationLimit,
    /// Calls without a valid key, for each address.
    pub unauthenticated: AddressLimit,
}

impl Default for RateLimits {
    fn default() -> Self {
        let limit = |calls_per_10s, concurrent, calls_per_worker| OperationLimit {
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
            purge_queue: limit(2, None, 0),
            requests: limit(10, Some(2), 0),
            unauthenticated: AddressLimit::default(),
        }
    }
}

impl RateLimits {
    /// `None`: the operation has no limit.
    fn of(&self, operation: Operation) -> Option<&OperationLimit> {
        match operation {
            Operation::Run => Some(&self.run),
            Operation::RunSync => Some(&self.runsync),
            Operation::OpenAi => Some(&self.openai),
            Operation::Status => Some(&self.status),
            Operation::Stream => Some(&self.stream),
            Operation::Cancel => Some(&self.cancel),
            Operation::PurgeQueue => Some(&self.purge_queue),
            Operation::Requests => Some(&self.requests),
            // The documented service names no limit for these, and both are cheap.
            Operation::Retry | Operation::Health => None,
        }
    }
}

/// Counts calls, and refuses those beyond the limits.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    limits: RateLimits,
    clock: Arc<dyn Clock>,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<Subject, Entry>,
    swept_at_ms: u64,
}

/// Whose calls are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Subject {
    owner: OwnerId,
    endpoint: EndpointId,
    operation: Operation,
}

#[derive(Debug, Default)]
struct Entry {
    window: RateWindow,
    concurrent: Arc<AtomicU32>,
}

/// A place among the calls at one time; free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtomicU32>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RateLimiter {
    pub(crate) fn new(limits: RateLimits, clock: Arc<dyn Clock>) -> Self {
        Self {
            limits,
            clock,
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Counts a call and gives it a place. `None`: the operation has no cap on calls at one time.
    ///
    /// # Errors
    /// 429 when the limit is reached, with the time after which a call is admitted.
    pub(crate) fn enter(
        &self,
        owner: &OwnerId,
        endpoint: &Endpoint,
        operation: Operation,
        running_workers: impl FnOnce() -> u64,
    ) -> Result<Option<Place>, ApiError> {
        let Some(limit) = self.limits.of(operation) else { return Ok(None) };
        let limit = endpoint.rate_limits.get(operation.as_str()).unwrap_or(limit);
        let now_ms = u64::try_from(self.clock.elapsed().as_millis()).unwrap_or(u64::MAX);
        let subject = Subject { owner: owner.clone(), endpoint: endpoint.id.clone(), operation };
        let mut shard = self.shard(&subject).lock();
        let entry = shard.entry(subject, now_ms)?;
        // First the place, so that a call that finds none does not count.
        let place = match limit.concurrent {
            Some(cap) => Some(entry.place(cap).ok_or_else(|| too_many_at_once(operation, cap))?),
            None => None,
        };
        let mut calls = limit.calls_per_10s;
        let mut verdict = entry.window.admit(now_ms, calls);
        if matches!(verdict, RateVerdict::Refused { .. }) {
            // Only now does it matter how many workers run.
            calls = limit.effective(running_workers());
            verdict = entry.window.admit(now_ms, calls);
        }
        match verdict {
            RateVerdict::Admitted { .. } => Ok(place),
            RateVerdict::Refused { retry_after } => Err(too_many(operation, calls, retry_after)),
        }
    }

    fn shard(&self, subject: &Subject) -> &Mutex<Shard> {
        let hash = usize::try_from(self.hasher.hash_one(subject) % SHARDS as u64);
        #[expect(clippy::indexing_slicing, reason = "the remainder is below SHARDS")]
        &self.shards[hash.unwrap_or_default()]
    }
}

impl Shard {
    fn entry(&mut self, subject: Subject, now_ms: u64) -> Result<&mut Entry, ApiError> {
        const SWEEP_MS: u64 = 30_000;
        let is_full = self.entries.len() >= ENTRIES_MAX / SHARDS;
        if now_ms >= self.swept_at_ms + SWEEP_MS || (is_full && now_ms > self.swept_at_ms) {
            self.swept_at_ms = now_ms;
            self.entries.retain(|_, entry| !entry.is_idle(now_ms));
        }
        if self.entries.len() >= ENTRIES_MAX / SHARDS && !self.entries.contains_key(&subject) {
            return Err(ApiError::new(
                ErrorCode::Unavailable,
                "too many different callers at one time; try again shortly",
            ));
        }
        Ok(self.entries.entry(subject).or_default())
    }
}

impl Entry {
    fn place(&self, cap: u32) -> Option<Place> {
        // The shard's lock is held: nobody else adds meanwhile.
        if self.concurrent.load(Ordering::Relaxed) >= cap {
            return None;
        }
        self.concurrent.fetch_add(1, Ordering::Relaxed);
        Some(Place(self.concurrent.clone()))
    }

    fn is_idle(&self, now_ms: u64) -> bool {
        self.window.is_idle(now_ms) && Arc::strong_count(&self.concurrent) == 1
    }
}

fn too_many(operation: Operation, calls: u32, retry_after: Duration) -> ApiError {
    let name = operation.as_str();
    let sentence = format!("too many calls of {name}: at most {calls} in 10 seconds");
    let refusal = Refusal::calls(name, calls, retry_after);
    ApiError::new(ErrorCode::RateLimited, sentence).with_refusal(refusal)
}

fn too_many_at_once(operation: Operation, cap: u32) -> ApiError {
    let name = operation.as_str();
    let sentence = format!("too many calls of {name} at one time: at most {cap}");
    ApiError::new(ErrorCode::ConcurrencyLimited, sentence)
        .with_refusal(Refusal::at_one_time(name, cap))
}

#[cfg(test)]
mod tests {
    use gristmill_core::id::TemplateId;
    use gristmill_core::time::{ManualClock, Timestamp};

    use super::*;

    fn limiter(calls_per_10s: u32, concurrent: u32) -> RateLimiter {
        let run =
            OperationLimit { calls_per_10s, concurrent: Some(concurrent), calls_per_worker: 5 };
        RateLimiter::new(
            RateLimits { run, ..RateLimits::default() },
            Arc::new(ManualClock::new(Timestamp::from_millis(0))),
        )
    }

    fn enter(limiter: &RateLimiter, owner: &str, workers: u64) -> Result<Option<Place>, ApiError> {
        let owner = OwnerId::new(owner).unwrap();
        let template = TemplateId::new("t").unwrap();
        let id = EndpointId::new("e").unwrap();
        let endpoint = Endpoint::new(id, owner.clone(), template, Timestamp::from_millis(0));
        limiter.enter(&owner, &endpoint, Operation::Run, || workers)
    }

    #[test]
    fn running_workers_raise_the_limit_at_once() {
        let limiter = limiter(2, 100);
        assert!(enter(&limiter, "a", 0).is_ok());
        assert!(enter(&limiter, "a", 0).is_ok());
        assert!(enter(&limiter, "a", 0).is_err());
        assert!(enter(&limiter, "a", 1).is_ok());
        assert!(enter(&limiter, "b", 0).is_ok(), "owners are counted apart");
    }

    #[test]
    fn a_place_is_free_again_when_the_call_has_ended() {
        let limiter = limiter(100, 2);
        let places = [enter(&limiter, "a", 0).unwrap(), enter(&limiter, "a", 0).unwrap()];
        assert!(enter(&limiter, "a", 0).is_err());
        drop(places);
        assert!(enter(&limiter, "a", 0).is_ok());
    }

    #[test]
    fn entries_are_bounded_and_forgotten() {
        let mut shard = Shard::default();
        let subject = |i: usize| Subject {
            owner: OwnerId::new("o").unwrap(),
            endpoint: EndpointId::new(&format!("e{i}")).unwrap(),
            operation: Operation::Run,
        };
        for i in 0..ENTRIES_MAX / SHARDS {
            shard.entry(subject(i), 0).unwrap().window.admit(0, 1);
        }
        assert!(shard.entry(subject(ENTRIES_MAX), 5_000).is_err());
        assert!(shard.entry(subject(0), 5_000).is_ok(), "who is known already goes on");
        assert!(shard.entry(subject(ENTRIES_MAX), 20_000).is_ok());
        assert_eq!(shard.entries.len(), 1);
    }
}
