//! The turns of fetches. A slow or silent registry can make a fetch last for minutes, so the
//! fetches of one owner must leave turns to other owners.
//!
//! **Bounds.** [`FETCHES_MAX`] fetches at one time, three of them for one owner. Up to
//! [`WAITING_MAX`] further fetches of an owner wait.
//! **Cost.** A lock and a map lookup for each fetch.

use gristmill_core::id::OwnerId;
use gristmill_core::registries::FetchError;
use gristmill_core::sharing::permits::{Permit, Permits};

/// Images that are fetched at one time; more wait.
pub(crate) const FETCHES_MAX: usize = 4;

/// Fetches of one owner that wait for their turn; a further one is refused.
const WAITING_MAX: usize = 16;

/// The turns.
#[derive(Debug)]
pub(crate) struct FetchTurns(Permits);

impl FetchTurns {
    pub(crate) fn new() -> Self {
        Self(Permits::for_work(FETCHES_MAX))
    }

    /// Waits for a turn of the owner, which lasts until the permit is dropped. The wait has no
    /// bound in time.
    ///
    /// # Errors
    /// [`FetchError::TooManyWaiting`].
    pub(crate) async fn take(&self, owner: &OwnerId) -> Result<Permit, FetchError> {
        let share = self.0.owner_share(owner);
        if share.waiting() >= WAITING_MAX {
            return Err(FetchError::TooManyWaiting(format!(
                "{WAITING_MAX} images of this owner wait to be fetched, which is the limit; try \
                 again shortly"
            )));
        }
        Ok(share.acquire().await)
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
        let turns = FetchTurns::new();
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
    }
}
