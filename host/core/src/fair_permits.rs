//! Permits for something that all endpoints use together, such as threads or memory: one endpoint
//! cannot use up all of it, and neither can one owner with many endpoints.
//!
//! **Promise.** An endpoint holds at most a quarter of the permits, the endpoints of an owner
//! together at most a half. Callers wait for their endpoint's share first, then for their owner's,
//! then for all: a caller that waits for a share holds nothing that another owner needs. Within each
//! of the three the first to ask is the first to get.
//! **Cost.** A lock and a look into a map for each call; some 200 bytes for each owner and endpoint
//! that holds or awaits permits, and nothing for others.
//!
//! These permits are for short work, such as a file operation: the parts are fixed, and hold on a host
//! of one owner too, since a slow endpoint must not delay the other endpoints of its owner. The
//! permits of sandboxes (`permits` of the runtime) are held for as long as a job runs, up to a week.
//! There one endpoint may use the whole host while nobody else needs it, so an owner's share depends
//! on what is free, endpoints have none, and waiting owners take turns. Neither rule suits the other
//! use, and a sandbox's permit is one uncontended lock, not three semaphores.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::id::{EndpointId, OwnerId};

/// Permits that owners and endpoints share.
#[derive(Debug)]
pub struct FairPermits {
    all: Arc<Semaphore>,
    of_owner_max: usize,
    of_endpoint_max: usize,
    shares: Mutex<HashMap<Sharer, Weak<Semaphore>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Sharer {
    Owner(OwnerId),
    Endpoint(EndpointId),
}

/// The right of an endpoint to ask for permits. It holds none by itself.
#[derive(Debug, Clone)]
pub struct FairShare {
    /// Where a permit is taken, in this order: the endpoint's part, the owner's, and all.
    from: [Arc<Semaphore>; 3],
    max: usize,
}

/// Permits of an endpoint, given back when this is dropped.
#[derive(Debug)]
pub struct FairPermit(
    #[expect(dead_code, reason = "held until it is dropped")] [OwnedSemaphorePermit; 3],
);

impl FairPermits {
    /// So many permits in all, at least four.
    pub fn new(max: usize) -> Self {
        let max = max.clamp(4, Semaphore::MAX_PERMITS);
        Self {
            all: Arc::new(Semaphore::new(max)),
            of_owner_max: max / 2,
            of_endpoint_max: max / 4,
            shares: Mutex::default(),
        }
    }

    /// The share of an endpoint.
    pub fn share(&self, owner: &OwnerId, endpoint: &EndpointId) -> FairShare {
        let mut shares = self.shares.lock();
        let mut find = |sharer: Sharer, max: usize| {
            if let Some(share) = shares.get(&sharer).and_then(Weak::upgrade) {
                return share;
            }
            shares.retain(|_, share| share.strong_count() > 0);
            let share = Arc::new(Semaphore::new(max));
            shares.insert(sharer, Arc::downgrade(&share));
            share
        };
        let of_owner = find(Sharer::Owner(owner.clone()), self.of_owner_max);
        let of_endpoint = find(Sharer::Endpoint(endpoint.clone()), self.of_endpoint_max);
        let from = [of_endpoint, of_owner, self.all.clone()];
        FairShare { from, max: self.of_endpoint_max }
    }
}

impl FairShare {
    /// Waits for a permit.
    pub async fn acquire(&self) -> FairPermit {
        self.acquire_many(1).await
    }

    /// Waits for so many permits, or for the endpoint's whole share when that is less.
    pub async fn acquire_many(&self, count: usize) -> FairPermit {
        let count = u32::try_from(count.min(self.max)).unwrap_or(u32::MAX);
        let take = async |from: &Arc<Semaphore>| {
            from.clone().acquire_many_owned(count).await.expect("these semaphores are never closed")
        };
        let [of_endpoint, of_owner, all] = &self.from;
        FairPermit([take(of_endpoint).await, take(of_owner).await, take(all).await])
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn share(permits: &FairPermits, owner: &str, endpoint: &str) -> FairShare {
        permits.share(&OwnerId::new(owner).unwrap(), &EndpointId::new(endpoint).unwrap())
    }

    #[test]
    fn an_endpoint_has_a_quarter_and_an_owner_a_half() {
        let permits = FairPermits::new(32);
        let take_all = |owner: &str, endpoint: &str| -> Vec<_> {
            let share = share(&permits, owner, endpoint);
            std::iter::from_fn(|| share.acquire().now_or_never()).collect()
        };
        let first = take_all("a", "a1");
        assert_eq!(first.len(), 8);
        assert_eq!(take_all("a", "a1").len(), 0);
        let rest: Vec<_> = (2..9).flat_map(|n| take_all("a", &format!("a{n}"))).collect();
        assert_eq!(rest.len(), 8);
        assert_eq!(take_all("b", "b1").len(), 8);
        drop(first);
        assert_eq!(take_all("a", "a1").len(), 8);
    }

    #[test]
    fn a_request_for_more_than_a_share_takes_the_share() {
        let permits = FairPermits::new(100);
        let (a, b) = (share(&permits, "a", "a"), share(&permits, "b", "b"));
        let held = a.acquire_many(1_000).now_or_never().unwrap();
        assert!(a.acquire().now_or_never().is_none());
        let other = b.acquire_many(25).now_or_never();
        assert!(other.is_some());
        drop(held);
        assert!(a.acquire().now_or_never().is_some());
    }

    #[test]
    fn nothing_is_kept_of_endpoints_that_hold_nothing() {
        let permits = FairPermits::new(8);
        for n in 0..1_000 {
            drop(share(&permits, "a", &format!("a{n}")));
        }
        assert!(permits.shares.lock().len() <= 2);
    }

    #[test]
    fn a_caller_that_gives_up_waiting_leaves_nothing_behind() {
        let permits = FairPermits::new(8);
        let share = share(&permits, "a", "a");
        let held = share.acquire_many(2).now_or_never().unwrap();
        for _ in 0..100 {
            assert!(share.acquire().now_or_never().is_none());
        }
        drop(held);
        assert!(share.acquire_many(2).now_or_never().is_some());
        assert_eq!(permits.all.available_permits(), 8);
    }
}
