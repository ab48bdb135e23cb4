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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(number: usize) -> KeyId {
        KeyId::new(&format!("k{number}")).unwrap()
    }

    /// A call of the key, which is admitted if `cap` allows it.
    fn take_permit(shares: &mut KeyShares, number: usize, now_ms: u64, cap: u32) -> bool {
        let me = shares.find(&key(number), Duration::from_millis(now_ms));
        let used: u32 = shares.keys.iter().map(|k| k.permits.load(Ordering::Relaxed)).sum();
        let has_permit = used + shares.permits_of_others(me, cap) < cap;
        if has_permit {
            shares.permits(me).unwrap().fetch_add(1, Ordering::Relaxed);
        } else {
            shares.permit_refused(me);
        }
        has_permit
    }

    fn return_permit(shares: &mut KeyShares, number: usize) {
        let sharer = shares.keys.iter().find(|sharer| sharer.key == Some(key(number)));
        sharer.unwrap().permits.fetch_sub(1, Ordering::Relaxed);
    }

    fn held(shares: &KeyShares, number: usize) -> u32 {
        let sharer = shares.keys.iter().find(|sharer| sharer.key == Some(key(number)));
        sharer.map_or(0, |sharer| sharer.permits.load(Ordering::Relaxed))
    }

    #[test]
    fn a_single_key_may_use_the_whole_limit() {
        let mut shares = KeyShares::default();
        let taken = (0..500).filter(|_| take_permit(&mut shares, 0, 0, 400)).count();
        assert_eq!(taken, 400);
        let me = shares.find(&key(0), Duration::ZERO);
        assert_eq!(shares.calls_of_others(me, 1_000), 0);
    }

    #[test]
    fn a_second_key_gets_its_half_as_permits_are_returned() {
        let mut shares = KeyShares::default();
        while take_permit(&mut shares, 0, 0, 400) {}
        for _ in 0..400 {
            // Both keys continue to call; the first one calls first.
            return_permit(&mut shares, 0);
            for number in [0, 1] {
                while take_permit(&mut shares, number, 0, 400) {}
            }
        }
        assert_eq!((held(&shares, 0), held(&shares, 1)), (200, 200));
    }

    #[test]
    fn other_keys_may_use_what_a_modest_key_does_not_request() {
        let mut shares = KeyShares::default();
        assert!(take_permit(&mut shares, 1, 0, 400));
        return_permit(&mut shares, 1);
        let taken = (0..500).filter(|_| take_permit(&mut shares, 0, 0, 400)).count();
        assert_eq!(taken, 399, "one is kept for the key that took one before");
        assert!(take_permit(&mut shares, 1, 0, 400));
        return_permit(&mut shares, 1);
        // Two periods later nothing is reserved for it any more.
        assert!(take_permit(&mut shares, 0, 20_000, 400));
    }

    #[test]
    fn calls_are_reserved_for_a_key_up_to_its_requests() {
        let mut shares = KeyShares::default();
        let admit = |shares: &mut KeyShares, number, calls, now_ms| {
            let me = shares.find(&key(number), Duration::from_millis(now_ms));
            (0..calls).for_each(|_| shares.admitted(me));
            me
        };
        for _ in 0..30 {
            shares.find(&key(1), Duration::ZERO);
        }
        let me = admit(&mut shares, 0, 499, 0);
        assert_eq!(shares.calls_of_others(me, 1_000), 0, "it has not had its own half yet");
        let me = admit(&mut shares, 0, 1, 0);
        assert_eq!(shares.calls_of_others(me, 1_000), 30);
        assert_eq!(shares.calls_of_others(me, 40), 20, "a half at most");
        admit(&mut shares, 1, 10, 0);
        let me = shares.find(&key(0), Duration::from_millis(9_999));
        assert_eq!(shares.calls_of_others(me, 1_000), 21);
        // The next period knows the requests of the last one.
        let me = admit(&mut shares, 0, 500, 10_000);
        assert_eq!(shares.calls_of_others(me, 1_000), 31);
        let me = admit(&mut shares, 0, 500, 20_000);
        assert_eq!(shares.calls_of_others(me, 1_000), 0);
    }

    #[test]
    fn keys_beyond_the_bound_count_as_one() {
        let mut shares = KeyShares::default();
        for number in 0..10_000 {
            shares.find(&key(number), Duration::ZERO);
        }
        assert_eq!(shares.keys.len(), KEYS_MAX + 1);
    }

    proptest! {
        /// For any behaviour of the keys: there are never more concurrent calls than the cap, and a
        /// key without any gets the next free one before a key that has its part.
        #[test]
        fn the_cap_holds_and_every_key_is_served(
            events in prop::collection::vec((0_usize..4, any::<bool>(), 0_u64..3_000), 1..400),
            cap in 1_u32..30,
        ) {
            let mut shares = KeyShares::default();
            let mut now = 0;
            for (number, takes, gap) in events {
                now += gap;
                if takes {
                    take_permit(&mut shares, number, now, cap);
                } else if held(&shares, number) > 0 {
                    return_permit(&mut shares, number);
                }
                let used: u32 = (0..4).map(|number| held(&shares, number)).sum();
                prop_assert!(used <= cap);
            }
            if cap < 5 {
                return Ok(());
            }
            // A key without any calls twice, while another one ends a call and begins another at
            // once.
            while take_permit(&mut shares, 0, now, cap) {}
            let is_left_out = held(&shares, 4) == 0 && !take_permit(&mut shares, 4, now, cap);
            let used: u32 = (0..5).map(|number| held(&shares, number)).sum();
            let part = cap / u32::try_from(shares.keys.len()).unwrap();
            if is_left_out && used == cap && held(&shares, 0) > part {
                return_permit(&mut shares, 0);
                prop_assert!(!take_permit(&mut shares, 0, now, cap));
                prop_assert!(take_permit(&mut shares, 4, now, cap));
            }
        }
    }
}
