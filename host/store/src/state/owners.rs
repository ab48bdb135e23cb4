//! Numbers for the owners of jobs: a number takes less space in each job than a name.
//! Each owner has an account of the disk, which counts the bytes of its jobs, its webhook URLs, and
//! the number of its jobs.
//!
//! **Bounds.** The waiting jobs of all endpoints together have a bound, since each takes some 200
//! bytes of memory. So have all jobs that the store keeps: an ended job takes some 410 bytes at most until
//! its retention is over. Each owner has [a share](fair_share) of both bounds while the host has
//! several owners.
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
    jobs: JobNumbers,
    jobs_max: JobNumbers,
}

/// Numbers of jobs: of one owner, of all owners, or their bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct JobNumbers {
    /// Jobs that wait to be run.
    pub(crate) waiting: usize,
    /// Jobs in any status.
    pub(crate) kept: usize,
}

#[derive(Debug)]
struct Owner {
    name: OwnerId,
    account: DiskAccount,
    urls: Urls,
    jobs: JobNumbers,
}

/// Whether there is room for a job.
enum Fit {
    Fits,
    /// The jobs of all owners are at their bound.
    HostFull,
    /// The owner has its share.
    OwnerFull,
}

impl Owners {
    /// Without any owner, on this disk, and with room for so many jobs.
    pub(crate) fn new(disk_space: Arc<DiskSpaceGauge>, jobs_max: JobNumbers) -> Self {
        Self { disk_space, jobs_max, ..Self::default() }
    }

    /// The number of the owner; a new name gets a new number.
    pub(crate) fn key(&mut self, name: &OwnerId) -> OwnerKey {
        if let Some(key) = self.keys.get(name) {
            return *key;
        }
        let number = u32::try_from(self.all.len()).expect("fewer than 2^32 owners have jobs");
        let key = OwnerKey(number);
        let account = DiskAccount::new(&self.disk_space, name);
        let (urls, jobs) = (Urls::default(), JobNumbers::default());
        self.all.push(Owner { name: name.clone(), account, urls, jobs });
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
        let (waiting, limit) = (self.get(key).jobs.waiting, self.jobs_max.waiting);
        match self.fit(waiting, self.jobs.waiting, limit) {
            Fit::Fits => Ok(()),
            Fit::HostFull => Err(StoreError::HostQueueFull { limit }),
            Fit::OwnerFull => Err(StoreError::OwnerQueueFull { waiting }),
        }
    }

    /// Refuses one more job of the owner at the bounds of waiting jobs and of all jobs.
    ///
    /// # Errors
    /// Those of [`check_waiting`](Self::check_waiting), [`StoreError::HostJobsFull`] and
    /// [`StoreError::OwnerJobsFull`].
    pub(crate) fn check_new(&self, key: OwnerKey) -> Result<(), StoreError> {
        self.check_waiting(key)?;
        let (jobs, limit) = (self.get(key).jobs.kept, self.jobs_max.kept);
        match self.fit(jobs, self.jobs.kept, limit) {
            Fit::Fits => Ok(()),
            Fit::HostFull => Err(StoreError::HostJobsFull { limit }),
            Fit::OwnerFull => Err(StoreError::OwnerJobsFull { jobs }),
        }
    }

    /// Whether an owner with `own` of `all` jobs may have one more.
    fn fit(&self, own: usize, all: usize, max: usize) -> Fit {
        let Some(free) = max.checked_sub(all + 1) else { return Fit::HostFull };
        let is_admitted = !self.disk_space.has_several_owners()
            || own == 0
            || fair_share::admits(own as u64 + 1, free as u64);
        if is_admitted { Fit::Fits } else { Fit::OwnerFull }
    }

    /// Notes that a job of the owner waits, or waits no longer.
    pub(crate) fn recount_waiting(&mut self, key: OwnerKey, before: bool, after: bool) {
        self.recount(key, |jobs| &mut jobs.waiting, before, after);
    }

    /// Notes that the store keeps a job of the owner, or keeps it no longer.
    pub(crate) fn recount_kept(&mut self, key: OwnerKey, before: bool, after: bool) {
        self.recount(key, |jobs| &mut jobs.kept, before, after);
    }

    fn recount(
        &mut self,
        key: OwnerKey,
        number: fn(&mut JobNumbers) -> &mut usize,
        before: bool,
        after: bool,
    ) {
        let Some(owner) = self.all.get_mut(key.0 as usize) else { return };
        for jobs in [&mut owner.jobs, &mut self.jobs] {
            let number = number(jobs);
            *number = (*number + usize::from(after)).saturating_sub(usize::from(before));
        }
    }

    fn get(&self, key: OwnerKey) -> &Owner {
        self.all.get(key.0 as usize).expect("a number stands for an owner")
    }
}
