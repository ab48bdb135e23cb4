//! Numbers for the owners of jobs: a number takes less space in each job than a name.
//! Each owner has an account of the disk, which counts the bytes of its jobs, its webhook URLs, and the number of its waiting jobs.
//!
//! **Bounds.** The waiting jobs of all endpoints together have a bound, since each takes some 200 bytes of memory, and each owner has
//! [a share](fair_share) of it while the host has several owners.
//!
//! An owner stays here until the end of the process. There are at most as many as API keys were
//! ever created, and each takes some 200 bytes.

use std::collections::HashMap;
use std::sync::Arc;

use gristmill_core::disk_share::DiskAccount;
use gristmill_core::disk_space::DiskSpaceGauge;
use gristmill_core::fair_share;
use gristmill_core::id::OwnerId;
use gristmill_core::store::StoreError;

use crate::state::urls::Urls;

/// The number of an owner, valid until the store is closed. It is never written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct OwnerKey(u32);

/// All owners of jobs since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    disk_space: Arc<DiskSpaceGauge>,
    all: Vec<Owner>,
    keys: HashMap<OwnerId, OwnerKey>,
    /// Waiting jobs of all owners.
    waiting: usize,
    waiting_max: usize,
}

#[derive(Debug)]
struct Owner {
    name: OwnerId,
    account: DiskAccount,
    urls: Urls,
    waiting: usize,
}

impl Owners {
    /// Without any owner, on this disk, and with room for so many waiting jobs.
    pub(crate) fn new(disk_space: Arc<DiskSpaceGauge>, waiting_max: usize) -> Self {
        Self { disk_space, waiting_max, ..Self::default() }
    }

    /// The number of the owner; a new name gets a new number.
    pub(crate) fn key(&mut self, name: &OwnerId) -> OwnerKey {
        if let Some(key) = self.keys.get(name) {
            return *key;
        }
        let number = u32::try_from(self.all.len()).expect("fewer than 2^32 owners have jobs");
        let key = OwnerKey(number);
        let account = DiskAccount::new(&self.disk_space, name);
        self.all.push(Owner { name: name.clone(), account, urls: Urls::default(), waiting: 0 });
        self.keys.insert(name.clone(), key);
        key
    }

    pub(crate) fn name(&self, key: OwnerKey) -> &OwnerId {
        &self.get(key).name
    }

    /// The bytes of the owner on the disk.
    pub(crate) fn account(&self, key: OwnerKey) -> &DiskAccount {
        &self.get(key).account
    }

    /// The webhook URLs of the owner's jobs.
    pub(crate) fn urls(&mut self, key: OwnerKey) -> &mut Urls {
        let owner = self.all.get_mut(key.0 as usize);
        &mut owner.expect("a number stands for an owner").urls
    }

    /// Refuses one more waiting job of the owner at the bound of all owners, or at the owner's share.
    ///
    /// # Errors
    /// [`StoreError::HostQueueFull`] and [`StoreError::OwnerQueueFull`].
    pub(crate) fn check_waiting(&self, key: OwnerKey) -> Result<(), StoreError> {
        let Some(free) = self.waiting_max.checked_sub(self.waiting + 1) else {
            return Err(StoreError::HostQueueFull { limit: self.waiting_max });
        };
        let waiting = self.get(key).waiting;
        let is_admitted = !self.disk_space.has_several_owners()
            || waiting == 0
            || fair_share::admits(waiting as u64 + 1, free as u64);
        if is_admitted { Ok(()) } else { Err(StoreError::OwnerQueueFull { waiting }) }
    }

    /// Notes that a job of the owner waits, or waits no longer.
    pub(crate) fn recount_waiting(&mut self, key: OwnerKey, before: bool, after: bool) {
        let Some(owner) = self.all.get_mut(key.0 as usize) else { return };
        let recount = |count: &mut usize| {
            *count = (*count + usize::from(after)).saturating_sub(usize::from(before));
        };
        recount(&mut owner.waiting);
        recount(&mut self.waiting);
    }

    fn get(&self, key: OwnerKey) -> &Owner {
        self.all.get(key.0 as usize).expect("a number stands for an owner")
    }
}
