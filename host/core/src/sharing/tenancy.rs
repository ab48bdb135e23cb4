//! Whether several owners share the host.
//!
//! Limits that keep a part of the host free for other owners apply only then: on a host with one
//! owner, that owner may use all of the host. The catalog updates the answer with each change;
//! reading it is one atomic load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the host has several owners. Clones show the same.
#[derive(Debug, Clone, Default)]
pub struct Tenancy(Arc<AtomicBool>);

impl Tenancy {
    /// Whether endpoints of at least two owners are deployed.
    pub fn has_several_owners(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the answer.
    pub fn set_several_owners(&self, has_several: bool) {
        self.0.store(has_several, Ordering::Relaxed);
    }
}
