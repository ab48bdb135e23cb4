//! Room for one job: a permit, or an idle instance that was taken. An instance that is not used
//! returns to the idle ones, unless its deployment was retired meanwhile: then it ends at once, and
//! does not wait for the end of its idle time, which may be an hour.
//!
//! **Bounds.** As many taken instances are remembered as there are permits. **Cost.** One lock for
//! each reservation, and one more if it has an instance.

use std::collections::HashMap;
use std::sync::Arc;

use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::http_call::InstanceName;
use gristmill_core::id::EndpointId;
use gristmill_core::sharing::permits::Permit;
use gristmill_core::sharing::shares::Level;
use parking_lot::Mutex;

use crate::attempt::idle::{Idle, IdleInstance};

/// Room for one job. An idle instance returns to the idle ones if this is dropped before the job
/// began.
pub(super) struct Reserved {
    source: Option<ReservedRoom>,
    idle: Idle,
    /// Knows the instance, if there is one, by the number.
    taken: Taken,
    number: u64,
}

/// The source of the room.
pub(super) enum ReservedRoom {
    /// For an instance that is still to be made.
    Permit(Permit),
    /// An idle instance, with its permit.
    Instance(Box<IdleInstance>),
}

/// The idle instances that are taken for jobs which have not begun. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Taken(Arc<Mutex<TakenInstances>>);

#[derive(Debug, Default)]
struct TakenInstances {
    last: u64,
    /// The deployment of each; `None` once it was retired.
    deployments: HashMap<u64, Option<Arc<Deployment>>>,
    /// The endpoints whose idle instances are being examined. None of them is taken meanwhile.
    retiring: Vec<EndpointId>,
}

impl Taken {
    /// Reserves an idle instance of this deployment, or that of this name, for a job at this level;
    /// `None` if there is none.
    pub(super) fn reserve(
        &self,
        idle: &Idle,
        deployment: &Arc<Deployment>,
        level: Level,
        name: Option<InstanceName>,
    ) -> Option<Reserved> {
        // The instance is taken under the lock, so that `retire` finds it here or among the idle
        // ones.
        let mut taken = self.0.lock();
        if taken.retiring.contains(&deployment.endpoint.id) {
            return None;
        }
        let instance = Box::new(idle.take(deployment, level, name)?);
        taken.last += 1;
        let number = taken.last;
        taken.deployments.insert(number, Some(deployment.clone()));
        let source = Some(ReservedRoom::Instance(instance));
        Some(Reserved { source, idle: idle.clone(), taken: self.clone(), number })
    }

    /// Reserves a permit.
    pub(super) fn permit(&self, idle: &Idle, permit: Permit) -> Reserved {
        let source = Some(ReservedRoom::Permit(permit));
        Reserved { source, idle: idle.clone(), taken: self.clone(), number: 0 }
    }

    /// Ends the idle instances of an endpoint that serve another deployment than `current`. Those
    /// that are taken do not become idle again.
    pub(super) fn retire(
        &self,
        idle: &Idle,
        endpoint: &EndpointId,
        current: Option<&Arc<Deployment>>,
    ) {
        self.0.lock().begin_to_retire(endpoint, current);
        // Without the lock: ending an instance takes up to 100 µs.
        idle.retire(endpoint, current);
        let retiring = &mut self.0.lock().retiring;
        if let Some(at) = retiring.iter().position(|retiring| retiring == endpoint) {
            retiring.swap_remove(at);
        }
    }
}

impl TakenInstances {
    fn begin_to_retire(&mut self, endpoint: &EndpointId, current: Option<&Arc<Deployment>>) {
        self.retiring.push(endpoint.clone());
        let is_stale = |deployment: &Arc<Deployment>| {
            deployment.endpoint.id == *endpoint
                && current.is_none_or(|current| !Arc::ptr_eq(current, deployment))
        };
        for deployment in self.deployments.values_mut() {
            if deployment.as_ref().is_some_and(is_stale) {
                *deployment = None;
            }
        }
    }
}

impl Reserved {
    /// Whether it is the instance of this name.
    pub(super) fn is(&self, name: InstanceName) -> bool {
        match &self.source {
            Some(ReservedRoom::Instance(waiting)) => waiting.instance.name() == Some(name),
            Some(ReservedRoom::Permit(_)) | None => false,
        }
    }

    /// The room, for a job that begins.
    pub(super) fn into_parts(mut self) -> ReservedRoom {
        let source =
            self.source.take().expect("the source is taken once, when the reservation ends");
        if let ReservedRoom::Instance(_) = source {
            self.taken.0.lock().deployments.remove(&self.number);
        }
        source
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let Some(ReservedRoom::Instance(instance)) = self.source.take() else { return };
        let mut taken = self.taken.0.lock();
        match taken.deployments.remove(&self.number).flatten() {
            // Under the lock: a retirement that begins now finds the instance among the idle ones.
            Some(_) => self.idle.put_back(*instance),
            None => {
                // Without the lock, as in `retire`.
                drop(taken);
                drop(instance);
            }
        }
    }
}
