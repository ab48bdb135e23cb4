//! The bytes of each owner on the disk, by owner. [`disk_share`](crate::sharing::disk_share) has
//! the rule for them.
//!
//! **Bounds.** One entry of some 100 bytes for each owner whose account is in use.
//! **Cost.** A lock and a map lookup to find an account; its users keep it.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::id::OwnerId;
use crate::sharing::tenancy::Tenancy;

/// The bytes of one owner.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Bytes that are known.
    pub(crate) bytes: AtomicU64,
    /// The most bytes that the owner's files may have which are not counted yet.
    pub(crate) uncounted_max: AtomicU64,
}

/// The accounts of all owners of one disk.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    tenancy: Tenancy,
    of_owners: Mutex<HashMap<OwnerId, Weak<Account>>>,
}

impl Accounts {
    pub(crate) fn new(tenancy: Tenancy) -> Self {
        Self { tenancy, of_owners: Mutex::default() }
    }

    /// Whether the disk is shared.
    pub(crate) fn has_several_owners(&self) -> bool {
        self.tenancy.has_several_owners()
    }

    /// The bytes of the owner; a new entry if no user of the account exists.
    pub(crate) fn find(&self, owner: &OwnerId) -> Arc<Account> {
        let mut accounts = self.of_owners.lock();
        if let Some(account) = accounts.get(owner).and_then(Weak::upgrade) {
            return account;
        }
        accounts.retain(|_, account| account.strong_count() > 0);
        let account = Arc::default();
        accounts.insert(owner.clone(), Arc::downgrade(&account));
        account
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_one_entry_and_owners_without_holders_have_none() {
        let accounts = Accounts::default();
        let find = |name: &str| accounts.find(&OwnerId::new(name).unwrap());
        let [first, same, other] = ["a", "a", "b"].map(find);
        assert!(Arc::ptr_eq(&first, &same) && !Arc::ptr_eq(&first, &other));
        for number in 0..1_000 {
            drop(find(&format!("owner-{number}")));
        }
        assert!(accounts.of_owners.lock().len() <= 3);
    }
}
