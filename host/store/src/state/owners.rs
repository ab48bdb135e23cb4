//! Numbers for the owners of jobs: a number takes less space in each job than a name.
//! Each owner has an account of the disk, which counts the bytes of its jobs, and its webhook URLs.
//!
//! An owner stays here until the end of the process. There are at most as many as API keys were
//! ever created, and each takes some 200 bytes.

use std::collections::HashMap;
use std::sync::Arc;

use gristmill_core::disk_share::DiskAccount;
use gristmill_core::disk_space::DiskSpaceGauge;
use gristmill_core::id::OwnerId;

use crate::state::urls::Urls;

/// The number of an owner, valid until the store is closed. It is never written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OwnerKey(u32);

/// All owners of jobs since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    disk_space: Arc<DiskSpaceGauge>,
    all: Vec<Owner>,
    keys: HashMap<OwnerId, OwnerKey>,
}

#[derive(Debug)]
struct Owner {
    name: OwnerId,
    account: DiskAccount,
    urls: Urls,
}

impl Owners {
    /// Without any owner, on this disk.
    pub(crate) fn new(disk_space: Arc<DiskSpaceGauge>) -> Self {
        Self { disk_space, ..Self::default() }
    }

    /// The number of the owner; a new name gets a new number.
    pub(crate) fn key(&mut self, name: &OwnerId) -> OwnerKey {
        if let Some(key) = self.keys.get(name) {
            return *key;
        }
        let number = u32::try_from(self.all.len()).expect("fewer than 2^32 owners have jobs");
        let key = OwnerKey(number);
        let account = DiskAccount::new(&self.disk_space, name);
        self.all.push(Owner { name: name.clone(), account, urls: Urls::default() });
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

    fn get(&self, key: OwnerKey) -> &Owner {
        self.all.get(key.0 as usize).expect("a number stands for an owner")
    }
}
