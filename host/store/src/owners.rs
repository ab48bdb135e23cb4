//! Numbers for the owners of jobs: a number takes less space in each job than a name.
//!
//! An owner stays here until the end of the process. There are at most as many as API keys were
//! ever created, and each takes some 100 bytes.

use std::collections::HashMap;

use gristmill_core::id::OwnerId;

/// The number of an owner, valid until the store is closed. It is never written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OwnerKey(u32);

/// All owners of jobs since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    names: Vec<OwnerId>,
    keys: HashMap<OwnerId, OwnerKey>,
}

impl Owners {
    /// The number of the owner; a new name gets a new number.
    pub(crate) fn key(&mut self, name: &OwnerId) -> OwnerKey {
        if let Some(key) = self.keys.get(name) {
            return *key;
        }
        let number = u32::try_from(self.names.len()).expect("fewer than 2^32 owners have jobs");
        let key = OwnerKey(number);
        self.names.push(name.clone());
        self.keys.insert(name.clone(), key);
        key
    }

    pub(crate) fn name(&self, key: OwnerKey) -> &OwnerId {
        self.names.get(key.0 as usize).expect("a number stands for a name")
    }
}
