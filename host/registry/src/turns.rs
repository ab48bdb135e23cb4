//! The turns of fetches. A slow or silent registry can make a fetch last for minutes, so the
//! fetches of one owner must leave turns to other owners.
//!
//! **Bounds.** [`FETCHES_MAX`] fetches at one time, three of them for one owner. Up to
//! [`WAITING_MAX`] further fetches of an owner wait.
//! **Cost.** A lock and a map lookup for each fetch.

use std::collections::HashMap;
use std::sync::Arc;

use gristmill_core::id::OwnerId;
use gristmill_core::registries::FetchError;
use gristmill_core::sharing::fair_permits::{FairPermit, FairPermits};
use parking_lot::Mutex;

/// Images that are fetched at one time; more wait.
pub(crate) const FETCHES_MAX: usize = 4;

/// Fetches of one owner that wait for their turn; a further one is refused.
const WAITING_MAX: usize = 16;

/// The turns.
#[derive(Debug)]
pub(crate) struct Turns {
    permits: FairPermits,
    /// The number of waiting fetches of each owner who has any.
    waiting: Arc<Mutex<HashMap<OwnerId, usize>>>,
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self { permits: FairPermits::new(FETCHES_MAX), waiting: Arc::default() }
    }

    /// Waits for a turn of the owner, which lasts until the permit is dropped. The wait has no
    /// bound in time.
    ///
    /// # Errors
    /// [`FetchError::TooManyWaiting`].
    pub(crate) async fn take(&self, owner: &OwnerId) -> Result<FairPermit, FetchError> {
        let _waiting = self.wait(owner)?;
        Ok(self.permits.owner_share(owner).acquire().await)
    }

    fn wait(&self, owner: &OwnerId) -> Result<Waiting, FetchError> {
        let mut all = self.waiting.lock();
        let waiting = all.entry(owner.clone()).or_default();
        if *waiting >= WAITING_MAX {
            return Err(FetchError::TooManyWaiting(format!(
                "{WAITING_MAX} images of this owner wait to be fetched, which is the limit; try \
                 again shortly"
            )));
        }
        *waiting += 1;
        Ok(Waiting { owner: owner.clone(), all: self.waiting.clone() })
    }
}

/// A fetch that counts as waiting until this is dropped.
struct Waiting {
    owner: OwnerId,
    all: Arc<Mutex<HashMap<OwnerId, usize>>>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        let Some(waiting) = all.get_mut(&self.owner) else { return };
        *waiting -= 1;
        if *waiting == 0 {
            all.remove(&self.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn owner(name: &str) -> OwnerId {
        OwnerId::new(name).unwrap()
    }

    #[test]
    fn an_owner_leaves_turns_to_others_and_a_bounded_number_waits() {
        let turns = Turns::new();
        let (evil, good) = (owner("evil"), owner("good"));
        let take = |owner: &OwnerId| turns.take(owner).now_or_never();
        let held = [take(&evil), take(&evil), take(&evil)];
        assert!(held.iter().all(|turn| matches!(turn, Some(Ok(_)))));
        let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| Box::pin(turns.take(&evil))).collect();
        assert!(waiting.iter_mut().all(|turn| turn.as_mut().now_or_never().is_none()));
        assert!(matches!(take(&evil), Some(Err(FetchError::TooManyWaiting(_)))));
        assert!(matches!(take(&good), Some(Ok(_))));
        // A caller that gives up leaves its place to the next.
        waiting.pop();
        assert!(take(&evil).is_none());
        drop(held);
        let served = waiting.iter_mut().filter_map(|turn| turn.as_mut().now_or_never());
        assert_eq!(served.collect::<Vec<_>>().len(), 3);
        drop(waiting);
        assert!(turns.waiting.lock().is_empty());
    }
}
