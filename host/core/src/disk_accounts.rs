//! The bytes of each owner on the disk, by owner. [`disk_share`](crate::disk_share) has the rule
//! for them.
//!
//! **Bounds.** One number, of some 100 bytes, for each owner whose account is in use.
//! **Cost.** A lock and a map lookup to find an account; its users keep it.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::id::OwnerId;
use crate::tenancy::Tenancy;

/// The accounts of all owners of one disk.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    tenancy: Tenancy,
    bytes: Mutex<HashMap<OwnerId, Weak<AtomicU64>>>,
}

impl Accounts {
    pub(crate) fn new(tenancy: Tenancy) -> Self {
        Self { tenancy, bytes: Mutex::default() }
    }

    /// Whether the disk is shared.
    pub(crate) fn has_several_owners(&self) -> bool {
        self.tenancy.has_several_owners()
    }

    /// The number of bytes of the owner; a new number if no user of the account exists.
    pub(crate) fn find(&self, owner: &OwnerId) -> Arc<AtomicU64> {
        let mut accounts = self.bytes.lock();
        if let Some(bytes) = accounts.get(owner).and_then(Weak::upgrade) {
            return bytes;
        }
        accounts.retain(|_, bytes| bytes.strong_count() > 0);
        let bytes = Arc::default();
        accounts.insert(owner.clone(), Arc::downgrade(&bytes));
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_one_number_and_owners_without_holders_have_none() {
        let accounts = Accounts::default();
        let find = |name: &str| accounts.find(&OwnerId::new(name).unwrap());
        let [first, same, other] = ["a", "a", "b"].map(find);
        assert!(Arc::ptr_eq(&first, &same) && !Arc::ptr_eq(&first, &other));
        for number in 0..1_000 {
            drop(find(&format!("owner-{number}")));
        }
        assert!(accounts.bytes.lock().len() <= 3);
    }
}
