//! Instances that wait for their next job, on endpoints that reuse them.
//!
//! An instance that waits has its place among the running ones still, so that the pool is never
//! exhausted; whoever needs a place ends the one that has waited longest. What it costs otherwise is
//! the instance's memory, until its time is over; a look for one goes through all that wait, of which
//! there are at most as many as jobs may run.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_core::digest::ComponentDigest;
use gristmill_core::endpoint::{Deployment, Metering};
use gristmill_core::id::EndpointId;
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

use crate::instance::Instance;

/// How often instances are looked for whose time is over.
const SWEEP: Duration = Duration::from_millis(500);

/// What an instance may be reused for: jobs of the same version of the same endpoint.
#[derive(Debug, PartialEq, Eq)]
struct Purpose {
    endpoint: EndpointId,
    version: u32,
    component: Option<ComponentDigest>,
    metering: Metering,
}

impl Purpose {
    fn of(deployment: &Deployment) -> Self {
        let endpoint = &deployment.endpoint;
        Self {
            endpoint: endpoint.id.clone(),
            version: endpoint.version,
            component: deployment.component,
            metering: endpoint.limits.metering,
        }
    }
}

struct Waiting {
    purpose: Purpose,
    until: Instant,
    // Before its place: the pool has room once it is gone.
    instance: Instance,
    place: OwnedSemaphorePermit,
}

/// The instances that wait, of all endpoints. A clone is the same.
#[derive(Clone, Default)]
pub(crate) struct Idle(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The one that has waited longest first.
    waiting: VecDeque<Waiting>,
    is_swept: bool,
}

impl Idle {
    /// The instance that has waited shortest for a job of this deployment, with its place.
    pub(crate) fn take(&self, deployment: &Deployment) -> Option<(Instance, OwnedSemaphorePermit)> {
        let mut state = self.0.lock();
        if state.waiting.is_empty() {
            return None;
        }
        let purpose = Purpose::of(deployment);
        let found = state.waiting.iter().rposition(|waiting| waiting.purpose == purpose)?;
        let Waiting { instance, place, .. } = state.waiting.remove(found)?;
        Some((instance, place))
    }

    /// Lets an instance wait for so long.
    pub(crate) fn put(&self, mut instance: Instance, place: OwnedSemaphorePermit, wait: Duration) {
        instance.end();
        let purpose = Purpose::of(&instance.state().attempt.deployment);
        let until = Instant::now() + wait;
        let mut state = self.0.lock();
        state.waiting.push_back(Waiting { purpose, until, instance, place });
        if !std::mem::replace(&mut state.is_swept, true) {
            tokio::spawn(self.clone().sweep());
        }
    }

    /// Ends the one that has waited longest, if any.
    pub(crate) fn end_oldest(&self) {
        // Dropped after the lock: it takes up to 100 µs.
        let oldest = self.0.lock().waiting.pop_front();
        drop(oldest);
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().waiting.len()
    }

    /// Ends those whose time is over, until none waits.
    async fn sweep(self) {
        loop {
            tokio::time::sleep(SWEEP).await;
            let (over, is_done) = {
                let mut state = self.0.lock();
                let now = Instant::now();
                let all = std::mem::take(&mut state.waiting);
                let over;
                (over, state.waiting) = all.into_iter().partition(|waiting| waiting.until <= now);
                state.is_swept = !state.waiting.is_empty();
                (over, !state.is_swept)
            };
            drop::<VecDeque<_>>(over);
            if is_done {
                return;
            }
        }
    }
}

impl std::fmt::Debug for Idle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Idle").field("waiting", &self.len()).finish()
    }
}
