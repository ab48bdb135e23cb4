//! The names by which clients of HTTP endpoints ask for the same instance again.
//!
//! **Bounds.** A name for each instance that answers HTTP requests and may answer several.
//! **Cost.** A lock when such an instance begins and ends; nothing for others.

use std::collections::HashSet;
use std::sync::Arc;

use gristmill_core::http_call::InstanceName;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The names of the present instances. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names(Arc<Present>);

#[derive(Debug, Default)]
struct Present {
    names: Mutex<HashSet<InstanceName>>,
    /// Fires when an instance is idle again, or has ended.
    changed: Notify,
}

/// The name of an instance, which is present until this is dropped.
#[derive(Debug)]
pub(crate) struct Name {
    name: InstanceName,
    all: Names,
}

impl Names {
    pub(crate) fn begin(&self) -> Name {
        let name = InstanceName::generate();
        self.0.names.lock().insert(name);
        Name { name, all: self.clone() }
    }

    pub(crate) fn is_present(&self, name: InstanceName) -> bool {
        self.0.names.lock().contains(&name)
    }

    /// The next change after this call.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.0.changed.notified()
    }
}

impl Name {
    pub(crate) fn get(&self) -> InstanceName {
        self.name
    }

    /// Its instance is idle.
    pub(crate) fn is_idle(&self) {
        self.all.0.changed.notify_waiters();
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        self.all.0.names.lock().remove(&self.name);
        self.all.0.changed.notify_waiters();
    }
}
