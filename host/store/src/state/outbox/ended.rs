//! The memory of the deliveries that have ended: the logs of all endpoints.
//!
//! **Bounds.** [`ENDED_BYTES_MAX`] for all owners, and [a share](SharedBound) for each owner while
//! several owners have ended deliveries. Beyond it an owner loses its own oldest deliveries, except
//! for the newest [`KEPT`]: no owner shortens the log of another one. An owner that is over its
//! share, because another one has come, loses at most [`DROPPED_AT_ONCE`] for each further
//! delivery. **Cost.** Some 30 bytes for each delivery, and a search in a set when it ends and when
//! it is dropped.

use std::collections::BTreeSet;

use gristmill_core::sharing::shares::{Fit, Holdings, SharedBound};
use gristmill_core::webhook::delivery::DeliveryId;

use crate::state::owners::OwnerKey;

/// Most bytes of memory of all ended deliveries: 25,000 with URLs of 2,000 bytes, and 75,000 with
/// short ones.
pub(super) const ENDED_BYTES_MAX: u64 = 64 << 20;

/// Ended deliveries that each owner keeps in any case.
const KEPT: usize = 16;

/// Most deliveries that are dropped for one.
const DROPPED_AT_ONCE: usize = 8;

/// The ended deliveries of all owners.
#[derive(Debug, Default)]
pub(super) struct Ended {
    ids: BTreeSet<(OwnerKey, DeliveryId)>,
    bytes: Holdings<OwnerKey>,
}

impl Ended {
    /// Adds a delivery of so many bytes. Returns the owner's oldest deliveries, if they have to be
    /// [removed](Self::remove) for it.
    pub(super) fn add(&mut self, owner: OwnerKey, id: DeliveryId, bytes: u64) -> Vec<DeliveryId> {
        let (held, all) = (self.bytes.of(&owner), self.bytes.all());
        self.bytes.add(&owner, bytes);
        self.ids.insert((owner, id));
        let bound = SharedBound::now(ENDED_BYTES_MAX, self.bytes.holders() > 1);
        if bound.fit(held, all, bytes) == Fit::Fits {
            return Vec::new();
        }
        let own = self.ids.range((owner, DeliveryId(0))..=(owner, DeliveryId(u64::MAX)));
        let mut oldest: Vec<_> =
            own.take(KEPT + DROPPED_AT_ONCE).map(|(_, delivery)| *delivery).collect();
        oldest.truncate(oldest.len().saturating_sub(KEPT));
        oldest
    }

    /// Removes a delivery that had so many bytes.
    pub(super) fn remove(&mut self, owner: OwnerKey, id: DeliveryId, bytes: u64) {
        if self.ids.remove(&(owner, id)) {
            self.bytes.remove(&owner, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use gristmill_core::id::OwnerId;
    use gristmill_core::sharing::disk_space::DiskSpaceGauge;

    use super::*;
    use crate::state::owners::{Owners, OwnersMax};

    const BYTES: u64 = 1 << 20;

    /// Adds deliveries, and drops those that have to go.
    fn add(ended: &mut Ended, owner: OwnerKey, ids: std::ops::Range<u64>) -> Vec<u64> {
        let mut dropped = Vec::new();
        for id in ids {
            for id in ended.add(owner, DeliveryId(id), BYTES) {
                ended.remove(owner, id, BYTES);
                dropped.push(id.0);
            }
        }
        dropped
    }

    fn count(ended: &Ended, owner: OwnerKey) -> usize {
        ended.ids.iter().filter(|(of, _)| *of == owner).count()
    }

    #[test]
    fn an_owner_loses_its_own_oldest_deliveries_only() {
        let mut owners =
            Owners::new(std::sync::Arc::<DiskSpaceGauge>::default(), OwnersMax::default());
        let [first, second] = ["a", "b"].map(|name| owners.key(&OwnerId::new(name).unwrap()));
        let mut ended = Ended::default();
        assert_eq!(add(&mut ended, first, 0..64), [0; 0], "the only owner may have all");
        assert_eq!(add(&mut ended, first, 64..65), (0..8).collect::<Vec<_>>());
        // A second owner keeps its newest ones even while the first has everything.
        add(&mut ended, second, 100..120);
        assert!(count(&ended, second) >= KEPT, "{}", count(&ended, second));
        add(&mut ended, first, 200..400);
        assert!(count(&ended, first) <= 48, "{}", count(&ended, first));
        let kept = count(&ended, second);
        add(&mut ended, first, 400..600);
        assert_eq!(count(&ended, second), kept);
        for (owner, id) in ended.ids.clone() {
            ended.remove(owner, id, BYTES);
        }
        assert_eq!((ended.bytes.all(), ended.bytes.holders()), (0, 0));
    }
}
