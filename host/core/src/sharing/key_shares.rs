//! Fair shares of one limit among the keys that use it, as pure logic: one key must not use up the
//! calls of all keys of its owner, neither per time nor at one time.
//!
//! The caller enforces the limit itself. A key may use the parts that other keys do not request,
//! and so all of it when it is alone. Each key is *guaranteed* an equal part of the limit, as far
//! as it has requested calls in this period of ten seconds or in the previous one. A key that has
//! its part already cannot use the guaranteed parts of other keys, even if they are unused.
//!
//! **Bounds.** [`KEYS_MAX`] keys have a separate share each; all further keys share one. **Cost.**
//! About 60 bytes for each key; a pass over the keys for each call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::id::KeyId;

/// Most keys with a separate share.
pub const KEYS_MAX: usize = 32;

const PERIOD_S: u64 = 10;

/// The keys that use one limit.
#[derive(Debug, Default)]
pub struct KeyShares {
    period: u64,
    keys: Vec<Sharer>,
}

#[derive(Debug)]
struct Sharer {
    /// `None`: all keys beyond [`KEYS_MAX`].
    key: Option<KeyId>,
    /// Its concurrent calls.
    permits: Arc<AtomicU32>,
    now: Requested,
    before: Requested,
    /// Calls that were admitted in this period.
    admitted: u32,
}

/// The requests of a key in one period, whether they were admitted or not.
#[derive(Debug, Clone, Copy, Default)]
struct Requested {
    calls: u32,
    permits: u32,
}

/// One key among [`KeyShares`], until the next call of [`KeyShares::find`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyPosition(usize);

impl KeyShares {
    /// The key's position at `now`, on any monotonic clock. Records a request for one more call,
    /// and for one more concurrent call.
    pub fn find(&mut self, key: &KeyId, now: Duration) -> KeyPosition {
        self.advance(now.as_secs() / PERIOD_S);
        let known = self.keys.iter().position(|sharer| sharer.key.as_ref() == Some(key));
        let position = known.unwrap_or_else(|| self.add(key));
        if let Some(sharer) = self.keys.get_mut(position) {
            let held = sharer.permits.load(Ordering::Relaxed);
            sharer.now.calls = sharer.now.calls.saturating_add(1);
            sharer.now.permits = sharer.now.permits.max(held.saturating_add(1));
        }
        KeyPosition(position)
    }

    fn add(&mut self, key: &KeyId) -> usize {
        let is_full = self.keys.len() >= KEYS_MAX;
        let others = self.keys.iter().position(|sharer| sharer.key.is_none());
        if let Some(others) = others.filter(|_| is_full) {
            return others;
        }
        self.keys.push(Sharer {
            key: (!is_full).then(|| key.clone()),
            permits: Arc::default(),
            now: Requested::default(),
            before: Requested::default(),
            admitted: 0,
        });
        self.keys.len() - 1
    }

    /// Calls of `limit` in ten seconds that are reserved for other keys.
    pub fn calls_of_others(&self, me: KeyPosition, limit: u32) -> u32 {
        self.of_others(me, limit, |sharer| {
            (sharer.now.calls.max(sharer.before.calls), sharer.admitted)
        })
    }

    /// Concurrent calls of `cap` that are reserved for other keys.
    pub fn permits_of_others(&self, me: KeyPosition, cap: u32) -> u32 {
        self.of_others(me, cap, |sharer| {
            let requested = sharer.now.permits.max(sharer.before.permits);
            (requested, sharer.permits.load(Ordering::Relaxed))
        })
    }

    /// `of` returns how much a key has requested, and how much it has.
    fn of_others(&self, me: KeyPosition, limit: u32, of: impl Fn(&Sharer) -> (u32, u32)) -> u32 {
        if self.keys.len() == 1 {
            return 0;
        }
        let part = limit / u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
        // A key below its own part uses any free call, or else keys could wait for each other.
        if self.keys.get(me.0).is_some_and(|sharer| of(sharer).1 < part) {
            return 0;
        }
        let others = self.keys.iter().enumerate().filter(|(position, _)| *position != me.0);
        let kept = others.map(|(_, sharer)| {
            let (requested, has) = of(sharer);
            requested.min(part).saturating_sub(has)
        });
        kept.sum()
    }

    /// The key's call was admitted.
    pub fn admitted(&mut self, me: KeyPosition) {
        if let Some(sharer) = self.keys.get_mut(me.0) {
            sharer.admitted = sharer.admitted.saturating_add(1);
        }
    }

    /// The key was refused for the cap, and so wants one more than it requested.
    pub fn permit_refused(&mut self, me: KeyPosition) {
        if let Some(sharer) = self.keys.get_mut(me.0) {
            sharer.now.permits = sharer.now.permits.saturating_add(1);
        }
    }

    /// The counter of the key's concurrent calls.
    pub fn permits(&self, me: KeyPosition) -> Option<&Arc<AtomicU32>> {
        self.keys.get(me.0).map(|sharer| &sharer.permits)
    }

    fn advance(&mut self, period: u64) {
        if period <= self.period {
            return;
        }
        let is_next = period == self.period + 1;
        self.period = period;
        for sharer in &mut self.keys {
            let last = std::mem::take(&mut sharer.now);
            sharer.before = if is_next { last } else { Requested::default() };
            sharer.admitted = 0;
        }
        self.keys
            .retain(|sharer| sharer.before.calls > 0 || sharer.permits.load(Ordering::Relaxed) > 0);
    }
}

#[cfg(test)]
#[path = "key_shares_tests.rs"]
mod tests;
