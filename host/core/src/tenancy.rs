//! Whether several owners share the host.
//!
//! Limits that keep a part of the host free for other owners hold only then: a host of one owner
//! uses all of itself. The catalog keeps the answer up to date with each change; a look at it is
//! one atomic load.

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

    /// Notes the answer.
    pub fn set_several_owners(&self, has_several: bool) {
        self.0.store(has_several, Ordering::Relaxed);
    }
}
