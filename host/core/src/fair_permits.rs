//! Permits for something that all endpoints use together, such as threads or memory: one endpoint
//! cannot use up all of it, and neither can one owner with many endpoints. Work that belongs to no
//! endpoint counts for a key, or for the owner alone.
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
//! There one endpoint may use the whole host while no other endpoint needs it, so an owner's share depends
//! on what is free, endpoints have none, and waiting owners take turns. Neither rule suits the other
//! use, and a sandbox's permit is one uncontended lock, not three semaphores.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::id::{EndpointId, KeyId, OwnerId};

/// Permits that owners and endpoints share.
#[derive(Debug)]
pub struct FairPermits {
    all: Arc<Semaphore>,
    of_owner_max: usize,
    /// Of an endpoint, or of a key.
    of_part_max: usize,
    shares: Mutex<HashMap<Sharer, Weak<Semaphore>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Sharer {
    Owner(OwnerId),
    Endpoint(EndpointId),
    Key(KeyId),
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
        Self::few(max.max(4))
    }

    /// So many permits in all, at least one. Where a share would be less than one permit it is one;
    /// with a single permit, a caller then waits for at most one permit of each other owner.
    pub fn few(max: usize) -> Self {
        let max = max.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            all: Arc::new(Semaphore::new(max)),
            of_owner_max: (max / 2).max(1),
            of_part_max: (max / 4).max(1),
            shares: Mutex::default(),
        }
    }

    /// The share of an endpoint.
    pub fn share(&self, owner: &OwnerId, endpoint: &EndpointId) -> FairShare {
        self.share_of(owner, Sharer::Endpoint(endpoint.clone()))
    }

    /// The share of a key, which is as large as an endpoint's.
    pub fn share_of_key(&self, owner: &OwnerId, key: &KeyId) -> FairShare {
        self.share_of(owner, Sharer::Key(key.clone()))
    }

    fn share_of(&self, owner: &OwnerId, sharer: Sharer) -> FairShare {
        let mut shares = self.shares.lock();
        let of_owner = part(&mut shares, Sharer::Owner(owner.clone()), self.of_owner_max);
        let of_sharer = part(&mut shares, sharer, self.of_part_max);
        FairShare { from: [of_sharer, of_owner, self.all.clone()], max: self.of_part_max }
    }

    /// The share of an owner, for work that belongs to no endpoint: a half of the permits.
    pub fn owner_share(&self, owner: &OwnerId) -> FairShare {
        let max = self.of_owner_max;
        let of_owner = part(&mut self.shares.lock(), Sharer::Owner(owner.clone()), max);
        // Instead of an endpoint's part, a part that only this share has and that bounds nothing.
        FairShare { from: [Arc::new(Semaphore::new(max)), of_owner, self.all.clone()], max }
    }
}

/// The part of all permits that this sharer may hold.
fn part(
    shares: &mut HashMap<Sharer, Weak<Semaphore>>,
    sharer: Sharer,
    max: usize,
) -> Arc<Semaphore> {
    if let Some(share) = shares.get(&sharer).and_then(Weak::upgrade) {
        return share;
    }
    shares.retain(|_, share| share.strong_count() > 0);
    let share = Arc::new(Semaphore::new(max));
    shares.insert(sharer, Arc::downgrade(&share));
    share
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
    fn one_permit_goes_round_owners_and_keys() {
        let permits = FairPermits::few(1);
        let share = |owner: &str, key: &str| {
            permits.share_of_key(&OwnerId::new(owner).unwrap(), &KeyId::new(key).unwrap())
        };
        let waits = [("a", "1"), ("a", "1"), ("a", "1"), ("a", "2"), ("b", "3")];
        let shares = waits.map(|(owner, key)| share(owner, key));
        let mut waiting: Vec<_> =
            shares.iter().map(|share| Some(Box::pin(share.acquire()))).collect();
        let mut order = vec![];
        let mut held = None;
        for _ in 0..20 {
            for (number, wait) in waiting.iter_mut().enumerate() {
                let Some(permit) = wait.as_mut().and_then(|wait| wait.now_or_never()) else {
                    continue;
                };
                assert!(held.is_none(), "there is one permit");
                (held, *wait) = (Some(permit), None);
                order.push(number);
            }
            held = None;
        }
        // The other key and the other owner wait for one permit each.
        assert_eq!(order, [0, 4, 3, 1, 2]);
    }

    #[test]
    fn an_owner_without_an_endpoint_has_a_half() {
        let permits = FairPermits::new(4);
        let owner = |name: &str| permits.owner_share(&OwnerId::new(name).unwrap());
        let take = |name: &str| owner(name).acquire().now_or_never();
        let held = [take("a").unwrap(), take("a").unwrap()];
        assert!(take("a").is_none());
        assert!(share(&permits, "a", "a1").acquire().now_or_never().is_none(), "one share");
        let others = [take("b"), take("c")];
        assert!(others.iter().all(Option::is_some));
        drop(held);
        assert!(take("a").is_some());
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
    fn endpoints_without_permits_take_no_memory() {
        let permits = FairPermits::new(8);
        for n in 0..1_000 {
            drop(share(&permits, "a", &format!("a{n}")));
        }
        assert!(permits.shares.lock().len() <= 2);
    }

    #[test]
    fn an_abandoned_wait_leaves_no_state() {
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
