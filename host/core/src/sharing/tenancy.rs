//! The parties that share the host: its owners, the endpoints of each, and callers and called jobs.
//!
//! Limits that keep a part of the host free for others apply only while there are others: the only
//! endpoint of the only owner may use all of the host. The catalog updates the answers with each
//! change. **Cost.** Reading an answer is one atomic load, and for the endpoints of an owner a look
//! into a set, which has the owners with several of them.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use crate::id::OwnerId;

/// The parties that share the host. Clones show the same.
#[derive(Debug, Clone, Default)]
pub struct Tenancy(Arc<Answers>);

#[derive(Debug, Default)]
struct Answers {
    several_owners: AtomicBool,
    calls: AtomicBool,
    of_several_endpoints: RwLock<HashSet<OwnerId>>,
}

impl Tenancy {
    /// Whether endpoints of at least two owners are deployed.
    pub fn has_several_owners(&self) -> bool {
        self.0.several_owners.load(Ordering::Relaxed)
    }

    /// Sets this answer.
    pub fn set_several_owners(&self, has_several: bool) {
        self.0.several_owners.store(has_several, Ordering::Relaxed);
    }

    /// Whether the handlers of any endpoint may call endpoints.
    pub fn has_calls(&self) -> bool {
        self.0.calls.load(Ordering::Relaxed)
    }

    /// Sets this answer.
    pub fn set_calls(&self, has_calls: bool) {
        self.0.calls.store(has_calls, Ordering::Relaxed);
    }

    /// Whether at least two endpoints of the owner are deployed.
    pub fn has_several_endpoints(&self, owner: &OwnerId) -> bool {
        self.0.of_several_endpoints.read().contains(owner)
    }

    /// Sets this answer for one owner.
    pub fn set_several_endpoints(&self, owner: &OwnerId, has_several: bool) {
        if self.has_several_endpoints(owner) != has_several {
            let mut owners = self.0.of_several_endpoints.write();
            match has_several {
                true => owners.insert(owner.clone()),
                false => owners.remove(owner),
            };
        }
    }

    /// Sets this answer for all owners.
    pub fn set_owners_of_several_endpoints(&self, owners: HashSet<OwnerId>) {
        *self.0.of_several_endpoints.write() = owners;
    }
}
