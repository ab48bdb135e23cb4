//! The life of an endpoint, from its creation to its deletion.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::id::OwnerId;
use crate::metrics::endpoint::EndpointMetrics;

/// The time from an endpoint's creation to its deletion. All deployments of one endpoint have the
/// same incarnation, and so the same owner; an endpoint that is created again under the same id
/// gets a new one. These objects are not stored: each start of the host creates new ones, with the
/// same [names on disk](Self::name_on_disk).
#[derive(Debug, Clone)]
pub struct EndpointIncarnation(Arc<Incarnation>);

#[derive(Debug)]
struct Incarnation {
    owner: OwnerId,
    name_on_disk: Box<str>,
    has_ended: AtomicBool,
    metrics: EndpointMetrics,
}

impl Default for EndpointIncarnation {
    /// That of an endpoint of the operator.
    fn default() -> Self {
        Self::new(OwnerId::operator())
    }
}

impl EndpointIncarnation {
    /// That of some endpoint of this owner.
    pub fn new(owner: OwnerId) -> Self {
        Self::named(owner, "unnamed", rand::random())
    }

    /// That of the endpoint of this owner with this id, and the random `number` of its creation.
    pub(crate) fn named(owner: OwnerId, endpoint: &str, number: u64) -> Self {
        let name_on_disk = format!("{endpoint}.{number:016x}").into();
        let (has_ended, metrics) = (AtomicBool::new(false), EndpointMetrics::default());
        Self(Arc::new(Incarnation { owner, name_on_disk, has_ended, metrics }))
    }

    /// The owner of the endpoint.
    pub fn owner(&self) -> &OwnerId {
        &self.0.owner
    }

    /// The beginning of the names of its files: the endpoint's id, a dot, and 16 hexadecimal
    /// digits. The same after a restart, and another one for an endpoint that is created again.
    pub fn name_on_disk(&self) -> &str {
        &self.0.name_on_disk
    }

    /// The counters of its jobs, for the operator.
    pub fn metrics(&self) -> &EndpointMetrics {
        &self.0.metrics
    }

    /// Ends it, for ever: the endpoint is deleted.
    pub fn end(&self) {
        self.0.has_ended.store(true, Ordering::Release);
    }

    /// Whether the endpoint was deleted.
    pub fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::Acquire)
    }
}

impl PartialEq for EndpointIncarnation {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for EndpointIncarnation {}

impl Hash for EndpointIncarnation {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}
