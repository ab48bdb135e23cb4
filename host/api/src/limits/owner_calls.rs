//! The concurrent calls of each owner, on all endpoints together.
//!
//! The limits of operations are for one endpoint, and an owner creates endpoints and sets their
//! limits. The bound of the owner's connections is none for calls either, since an HTTP/2
//! connection has up to 256. So an owner has [a share](SharedBound) of the calls, on a host of one
//! owner too, and always one call.
//!
//! **Bounds.** The counter of an owner is dropped with the last entry that counts calls of the
//! owner. **Cost.** Two additions at the beginning of a call and two at its end; a lock for each
//! new entry.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use gristmill_core::id::OwnerId;
use gristmill_core::sharing::shares::{Fit, SharedBound};
use parking_lot::Mutex;

/// Calls for each connection that the host accepts. A client with HTTP/1 has one.
pub(crate) const CALLS_OF_CONNECTION: u64 = 4;

/// Owners whose counters may have been dropped are looked for when so many further owners have
/// called.
const SWEEP_AFTER: usize = 64;

/// The calls of all owners.
#[derive(Debug)]
pub(crate) struct CallShares {
    all: Arc<All>,
    owners: Mutex<Owners>,
}

#[derive(Debug)]
struct All {
    bound: SharedBound,
    calls: AtomicU64,
}

#[derive(Debug, Default)]
struct Owners {
    calls: HashMap<OwnerId, Weak<AtomicU64>>,
    sweep_at: usize,
}

/// The calls of one owner. Clones count together.
#[derive(Debug, Clone)]
pub(crate) struct OwnerCalls {
    all: Arc<All>,
    calls: Arc<AtomicU64>,
}

/// A call that counts until this is dropped.
#[derive(Debug)]
pub(crate) struct OwnerCall(OwnerCalls);

/// The owner has as many calls as it may have beside those of other owners now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AtShare {
    /// The owner's calls.
    pub(crate) held: u64,
}

impl CallShares {
    /// Counts up to so many calls of all owners together.
    pub(crate) fn new(calls_max: u64) -> Self {
        let all = All { bound: SharedBound::always(calls_max), calls: AtomicU64::new(0) };
        Self { all: Arc::new(all), owners: Mutex::default() }
    }

    pub(crate) fn of(&self, owner: &OwnerId) -> OwnerCalls {
        let mut owners = self.owners.lock();
        let known = owners.calls.get(owner).and_then(Weak::upgrade);
        let calls = known.unwrap_or_else(|| owners.add(owner));
        OwnerCalls { all: self.all.clone(), calls }
    }
}

impl Owners {
    fn add(&mut self, owner: &OwnerId) -> Arc<AtomicU64> {
        if self.calls.len() >= self.sweep_at {
            self.calls.retain(|_, calls| calls.strong_count() > 0);
            self.sweep_at = 2 * self.calls.len() + SWEEP_AFTER;
        }
        let calls = Arc::new(AtomicU64::new(0));
        self.calls.insert(owner.clone(), Arc::downgrade(&calls));
        calls
    }
}

impl OwnerCalls {
    /// Counts a further call.
    ///
    /// # Errors
    /// [`AtShare`]; the call does not count.
    pub(crate) fn begin(&self) -> Result<OwnerCall, AtShare> {
        let used = self.all.calls.fetch_add(1, Ordering::Relaxed);
        let held = self.calls.fetch_add(1, Ordering::Relaxed);
        let call = OwnerCall(self.clone());
        let fits = held == 0 || self.all.bound.fit(held, used, 1) == Fit::Fits;
        if fits { Ok(call) } else { Err(AtShare { held }) }
    }
}

impl Drop for OwnerCall {
    fn drop(&mut self) {
        let Self(OwnerCalls { all, calls }) = self;
        all.calls.fetch_sub(1, Ordering::Relaxed);
        calls.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> OwnerId {
        OwnerId::new(name).unwrap()
    }

    #[test]
    fn an_owner_leaves_calls_to_the_next_and_always_has_one() {
        let shares = CallShares::new(64);
        let fill = |name: &str| -> Vec<OwnerCall> {
            let calls = shares.of(&owner(name));
            std::iter::from_fn(|| calls.begin().ok()).collect()
        };
        let first = fill("first");
        assert_eq!(first.len(), 48, "three quarters");
        assert_eq!(shares.of(&owner("first")).begin().unwrap_err(), AtShare { held: 48 });
        let held: Vec<_> = (0..20).flat_map(|n| fill(&format!("owner-{n}"))).collect();
        assert_eq!(fill("last").len(), 1, "beyond the bound");
        drop((first, held));
        assert_eq!(fill("last").len(), 48, "calls that ended count no longer");
    }

    #[test]
    fn owners_without_calls_leave_no_memory() {
        let shares = CallShares::new(64);
        let kept = shares.of(&owner("kept"));
        let _call = kept.begin().unwrap();
        for n in 0..10_000 {
            shares.of(&owner(&format!("owner-{n}"))).begin().unwrap();
        }
        assert!(shares.owners.lock().calls.len() <= SWEEP_AFTER + 2);
        assert_eq!(shares.of(&owner("kept")).calls.load(Ordering::Relaxed), 1);
    }
}
