//! The components of each owner in the owner's share of the disk, with their compiled files.
//!
//! **Promise.** After each change of the catalog the [account](DiskAccount) of an owner contains
//! the files of all components that the owner has, those that only a release keeps as well. A
//! component counts in full for each of its owners. **Cost.** A step for each owner of the catalog
//! at each of its changes, which copy as much anyway.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use super::owner_share::OwnerShares;
use crate::id::OwnerId;
use crate::sharing::disk_share::{DiskAccount, DiskCharge};
use crate::sharing::disk_space::DiskSpaceGauge;
use crate::store_error::OwnerQuota;

/// The charges of all owners.
#[derive(Debug, Default)]
pub(super) struct ComponentCharges {
    disk_space: Arc<DiskSpaceGauge>,
    of_owners: Mutex<HashMap<OwnerId, DiskCharge>>,
}

impl ComponentCharges {
    /// Counts the components that are on this disk already.
    pub(super) fn new(disk_space: Arc<DiskSpaceGauge>, shares: &OwnerShares) -> Self {
        let charges = Self { disk_space, ..Self::default() };
        charges.update(shares);
        charges
    }

    /// Refuses a change by which one of these owners has a further component, beyond its share of
    /// the disk. The files are on the disk already, and are removed after a refusal. Files that are
    /// compiled again are not refused: jobs need them.
    ///
    /// # Errors
    /// [`OwnerQuota::Components`].
    pub(super) fn check(
        &self,
        before: &OwnerShares,
        after: &OwnerShares,
        owners: &BTreeSet<OwnerId>,
    ) -> Result<(), OwnerQuota> {
        for owner in owners {
            if after.component_bytes(owner) <= before.component_bytes(owner) {
                continue;
            }
            let more = after
                .component_disk_bytes(owner)
                .saturating_sub(before.component_disk_bytes(owner));
            let account = DiskAccount::new(&self.disk_space, owner);
            if !account.admits_written_work(more) {
                let (more_mib, held_mib) = (more.div_ceil(1 << 20), account.bytes() >> 20);
                return Err(OwnerQuota::Components { more_mib, held_mib });
            }
        }
        Ok(())
    }

    /// Counts the components of a changed catalog. Their files were announced to the gauge when
    /// they were written.
    pub(super) fn update(&self, shares: &OwnerShares) {
        let mut of_owners = self.of_owners.lock();
        of_owners.retain(|owner, _| shares.component_disk_bytes(owner) > 0);
        for owner in shares.owners() {
            let bytes = shares.component_disk_bytes(owner);
            match of_owners.get_mut(owner) {
                Some(charge) => charge.resize(bytes),
                None if bytes > 0 => {
                    let charge = DiskAccount::new(&self.disk_space, owner).charge_existing(bytes);
                    of_owners.insert(owner.clone(), charge);
                }
                None => {}
            }
        }
    }
}
