//! The memory of the deliveries that have ended: the logs of all endpoints.
//!
//! **Bounds.** [`ENDED_BYTES_MAX`] for all owners, and [a share](fair_share) for each owner while
//! several owners have ended deliveries. Beyond it an owner loses its own oldest deliveries, except for
//! the newest [`KEPT`]: no owner shortens the log of another one. An owner that is over its share,
//! because another one has come, loses at most [`DROPPED_AT_ONCE`] for each further delivery.
//! **Cost.** Some 30 bytes for each delivery, and a search in a set when it ends and when it is dropped.

use std::collections::{BTreeSet, HashMap};

use gristmill_core::sharing::fair_share;
use gristmill_core::webhook::delivery::DeliveryId;

use crate::state::owners::OwnerKey;

/// Most bytes of memory of all ended deliveries: 25,000 with URLs of 2,000 bytes, and 75,000 with short
/// ones.
pub(super) const ENDED_BYTES_MAX: u64 = 64 << 20;

/// Ended deliveries that each owner keeps in any case.
const KEPT: usize = 16;

/// Most deliveries that are dropped for one.
const DROPPED_AT_ONCE: usize = 8;

/// The ended deliveries of all owners.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// Owners with at least one.
    of_owners: HashMap<OwnerKey, OfOwner>,
    bytes: u64,
}

#[derive(Debug, Default)]
struct OfOwner {
    ids: BTreeSet<DeliveryId>,
    bytes: u64,
}

impl Ended {
    /// Adds a delivery of so many bytes. Returns the owner's oldest deliveries, if they have to be
    /// [removed](Self::remove) for it.
    pub(super) fn add(&mut self, owner: OwnerKey, id: DeliveryId, bytes: u64) -> Vec<DeliveryId> {
        self.bytes += bytes;
        let own = self.of_owners.entry(owner).or_default();
        own.ids.insert(id);
        own.bytes += bytes;
        let (own_bytes, excess) = (own.bytes, own.ids.len().saturating_sub(KEPT));
        let free = ENDED_BYTES_MAX.checked_sub(self.bytes);
        let is_shared = self.of_owners.len() > 1;
        if free.is_some_and(|free| !is_shared || fair_share::admits(own_bytes, free)) {
            return Vec::new();
        }
        let own = self.of_owners.get(&owner).into_iter().flat_map(|own| &own.ids);
        own.take(excess.min(DROPPED_AT_ONCE)).copied().collect()
    }

    /// Removes a delivery that had so many bytes.
    pub(super) fn remove(&mut self, owner: OwnerKey, id: DeliveryId, bytes: u64) {
        let Some(own) = self.of_owners.get_mut(&owner) else { return };
        if own.ids.remove(&id) {
            own.bytes -= bytes;
            self.bytes -= bytes;
        }
        if own.ids.is_empty() {
            self.of_owners.remove(&owner);
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
        ended.of_owners.get(&owner).map_or(0, |own| own.ids.len())
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
        for owner in [first, second] {
            for id in ended.of_owners[&owner].ids.clone() {
                ended.remove(owner, id, BYTES);
            }
        }
        assert!(ended.of_owners.is_empty() && ended.bytes == 0);
    }
}
