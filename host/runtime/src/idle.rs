//! Instances that wait for their next job, on endpoints that reuse them.
//!
//! An instance serves one deployment: the very object in the catalog, which the instance keeps alive, so that no other
//! deployment is ever taken for it. An endpoint that was changed, or deleted and created again, has another one, whatever
//! their names and versions; its idle instances end at once.
//!
//! An instance that waits keeps its permit, so that the pool is never exhausted; a worker that finds no permit
//! ends the instance that has waited longest, and of its own owner's instances only while that owner has its share. The cost is the instance's memory, until its time is over. A search goes
//! through all idle instances; there are at most as many as jobs may run.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_core::endpoint::Deployment;
use gristmill_core::id::EndpointId;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::instance::Instance;
use crate::permits::{Amount, Permit, Permits, Wanted};

/// How often instances are looked for whose time is over.
const SWEEP: Duration = Duration::from_millis(500);

/// An instance that waits, or has been taken for a job that is still to be claimed.
pub(crate) struct Waiting {
    until: Instant,
    // Dropped before its permit: the pool has room by then.
    pub(crate) instance: Instance,
    pub(crate) permit: Permit,
}

impl Waiting {
    fn deployment(&self) -> &Arc<Deployment> {
        &self.instance.state().attempt.deployment
    }
}

/// The instances that wait, of all endpoints. A clone is the same.
#[derive(Clone)]
pub(crate) struct Idle {
    permits: Permits,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The one that has waited longest first.
    waiting: VecDeque<Waiting>,
    is_swept: bool,
}

impl State {
    /// Takes the instance that is to make room for a worker that waits.
    fn take_for(&mut self, permits: &Permits) -> Option<Waiting> {
        let mut held = HashMap::<_, Amount>::new();
        for Waiting { permit, .. } in &self.waiting {
            let held = held.entry(permit.owner().clone()).or_default();
            *held = held.plus(permit.amount());
        }
        let is_wanted = |waiting: &Waiting, wanted: &Wanted| match wanted {
            Wanted::OfAny => true,
            Wanted::Of(owner) => waiting.permit.owner() == owner,
        };
        let wanted = permits.wanted(&held)?;
        let oldest = self.waiting.iter().position(|waiting| is_wanted(waiting, &wanted))?;
        self.waiting.remove(oldest)
    }
}

impl Idle {
    /// No instance waits yet. Instances make room as soon as a worker waits for one of `permits`.
    pub(crate) fn new(permits: Permits) -> Self {
        Self { permits, state: Arc::default() }
    }

    /// The instance of this deployment that has waited shortest.
    pub(crate) fn take(&self, deployment: &Arc<Deployment>) -> Option<Waiting> {
        let mut state = self.state.lock();
        let is_right = |waiting: &Waiting| Arc::ptr_eq(waiting.deployment(), deployment);
        let found = state.waiting.iter().rposition(is_right)?;
        state.waiting.remove(found)
    }

    /// Lets an instance wait for so long, unless its permit is wanted.
    pub(crate) fn put(&self, mut instance: Instance, permit: Permit, wait: Duration) {
        instance.end();
        self.put_back(Waiting { until: Instant::now() + wait, instance, permit });
    }

    /// Lets an instance go on waiting that was taken, and did not get a job.
    pub(crate) fn put_back(&self, waiting: Waiting) {
        // Without a runtime the sweep cannot end it: the host is ending.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut state = self.state.lock();
        state.waiting.push_back(waiting);
        if !std::mem::replace(&mut state.is_swept, true) {
            runtime.spawn(self.clone().sweep());
        }
        drop(state);
        self.make_room();
    }

    /// Ends instances, the one that has waited longest first, for as long as a worker waits for a permit that this gives it.
    pub(crate) fn make_room(&self) {
        while self.permits.waiting() > 0 {
            // Dropped after the lock: it takes up to 100 µs.
            let ended = self.state.lock().take_for(&self.permits);
            if ended.is_none() {
                return;
            }
        }
    }

    /// Ends the instances of an endpoint that serve another deployment than `current`.
    pub(crate) fn retire(&self, endpoint: &EndpointId, current: Option<&Arc<Deployment>>) {
        self.end_if(|waiting| {
            let deployment = waiting.deployment();
            deployment.endpoint.id == *endpoint
                && current.is_none_or(|current| !Arc::ptr_eq(current, deployment))
        });
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Ends some of them, and returns whether any are left.
    fn end_if(&self, mut is_over: impl FnMut(&Waiting) -> bool) -> bool {
        let mut state = self.state.lock();
        let all = std::mem::take(&mut state.waiting);
        let over: VecDeque<_>;
        (over, state.waiting) = all.into_iter().partition(|waiting| is_over(waiting));
        let is_left = !state.waiting.is_empty();
        drop(state);
        drop(over);
        is_left
    }

    /// Ends those whose time is over, until none waits.
    async fn sweep(self) {
        loop {
            tokio::time::sleep(SWEEP).await;
            let now = Instant::now();
            if !self.end_if(|waiting| waiting.until <= now) {
                let mut state = self.state.lock();
                // An instance may have come since.
                state.is_swept = !state.waiting.is_empty();
                if !state.is_swept {
                    return;
                }
            }
        }
    }
}

impl std::fmt::Debug for Idle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Idle").field("waiting", &self.len()).finish()
    }
}
