//! The names by which clients of HTTP endpoints ask for the same instance again. A name is known
//! only at the deployment of its instance: no endpoint notices the instances of another one.
//!
//! **Bounds.** A name for each instance that answers HTTP requests and may answer several.
//! **Cost.** A lock when such an instance begins and ends; nothing for others.

use std::collections::HashMap;
use std::sync::Arc;

use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::http_call::InstanceName;
use parking_lot::Mutex;

/// The present instances with names. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names(Arc<Mutex<HashMap<InstanceName, Arc<Deployment>>>>);

/// The name of an instance, which is present until this is dropped.
#[derive(Debug)]
pub(crate) struct Name {
    name: InstanceName,
    all: Names,
}

impl Names {
    pub(crate) fn begin(&self, deployment: &Arc<Deployment>) -> Name {
        let name = InstanceName::generate();
        self.0.lock().insert(name, deployment.clone());
        Name { name, all: self.clone() }
    }

    /// Whether this deployment has an instance of this name.
    pub(crate) fn has(&self, deployment: &Arc<Deployment>, name: InstanceName) -> bool {
        self.0.lock().get(&name).is_some_and(|of| Arc::ptr_eq(of, deployment))
    }
}

impl Name {
    pub(crate) fn get(&self) -> InstanceName {
        self.name
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        // Without the lock, since it may be the last user of the deployment.
        let removed = self.all.0.lock().remove(&self.name);
        drop(removed);
    }
}
