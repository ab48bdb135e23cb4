//! Idle instances, which wait for their next job on endpoints that reuse instances.
//!
//! An instance serves one deployment, identified by the object in the catalog. The instance keeps
//! that object alive, so no other deployment can have the same identity. After a change, or a
//! deletion and creation, an endpoint has another deployment, even with the same names and
//! versions; its idle instances end at once.
//!
//! An idle instance keeps its slot, so that the pool is never exhausted, and is charged the memory
//! that it has. A worker or a job that finds no room ends the instance that has been idle longest;
//! if its owner or endpoint is at its share, first those of this owner. **Cost.** The instance's
//! memory, until its idle time is over. A search examines all idle instances, at most as many as
//! jobs may run.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::http_call::InstanceName;
use gristmill_core::id::EndpointId;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::attempt::instance::Instance;
use gristmill_core::sharing::permits::Permits;
use gristmill_core::sharing::shares::Level;

/// Interval at which instances whose idle time is over are ended.
const SWEEP: Duration = Duration::from_millis(500);

/// An idle instance, or an instance that was taken for a job that is not claimed yet.
pub(crate) struct IdleInstance {
    until: Instant,
    pub(crate) instance: Instance,
}

impl IdleInstance {
    fn deployment(&self) -> &Arc<Deployment> {
        &self.instance.state().attempt.deployment
    }
}

/// The idle instances of all endpoints. Clones share them.
#[derive(Clone)]
pub(crate) struct Idle {
    permits: Permits,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The longest idle first.
    waiting: VecDeque<IdleInstance>,
    is_swept: bool,
}

impl State {
    /// Takes the instance that must make room for a waiting worker.
    fn take_for(&mut self, permits: &Permits) -> Option<IdleInstance> {
        let oldest = {
            let idle: Vec<_> =
                self.waiting.iter().map(|waiting| waiting.instance.charge().permit()).collect();
            permits.wanted(idle.iter().map(|permit| &**permit))?
        };
        self.waiting.remove(oldest)
    }
}

impl Idle {
    /// No instances yet. Instances are ended when a worker waits for one of `permits`.
    pub(crate) fn new(permits: Permits) -> Self {
        Self { permits, state: Arc::default() }
    }

    /// The instance of this deployment that has been idle for the shortest time, or that of this
    /// name, for a job at this level; `None` too if its slot is kept for deeper levels.
    pub(crate) fn take(
        &self,
        deployment: &Arc<Deployment>,
        level: Level,
        name: Option<InstanceName>,
    ) -> Option<IdleInstance> {
        let mut state = self.state.lock();
        let is_right = |waiting: &IdleInstance| {
            Arc::ptr_eq(waiting.deployment(), deployment)
                && (name.is_none() || waiting.instance.name() == name)
        };
        let found = state.waiting.iter().rposition(is_right)?;
        if !state.waiting.get(found)?.instance.charge().permit().try_move(level) {
            return None;
        }
        state.waiting.remove(found)
    }

    /// Adds an idle instance for at most this time, unless a worker waits for its permit.
    pub(crate) fn put(&self, mut instance: Instance, wait: Duration) {
        instance.end();
        self.put_back(IdleInstance { until: Instant::now() + wait, instance });
    }

    /// Returns an instance that was taken, but did not get a job.
    pub(crate) fn put_back(&self, waiting: IdleInstance) {
        // Without a runtime the sweep cannot end it: the host is stopping.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut state = self.state.lock();
        state.waiting.push_back(waiting);
        if !std::mem::replace(&mut state.is_swept, true) {
            runtime.spawn(self.clone().sweep());
        }
        drop(state);
        self.make_room();
    }

    /// Does what [`make_room`](Self::make_room) does, and keeps no instance alive.
    pub(crate) fn room_maker(&self) -> impl Fn() + Send + Sync + use<> {
        let (permits, state) = (self.permits.clone(), Arc::downgrade(&self.state));
        move || {
            if let Some(state) = state.upgrade() {
                Self { permits: permits.clone(), state }.make_room();
            }
        }
    }

    /// Ends instances, the longest idle first, as long as this gives a permit to a waiting worker.
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

    /// Number of idle instances.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// The bytes that they are charged.
    pub(crate) fn bytes(&self) -> u64 {
        let state = self.state.lock();
        let charged = |waiting: &IdleInstance| waiting.instance.charge().permit().amount().bytes;
        state.waiting.iter().map(charged).sum()
    }

    /// Ends some of them, and returns whether any are left.
    fn end_if(&self, mut is_over: impl FnMut(&IdleInstance) -> bool) -> bool {
        let mut state = self.state.lock();
        let all = std::mem::take(&mut state.waiting);
        let over: VecDeque<_>;
        (over, state.waiting) = all.into_iter().partition(|waiting| is_over(waiting));
        let is_left = !state.waiting.is_empty();
        drop(state);
        drop(over);
        is_left
    }

    /// Ends instances whose idle time is over, until none is left.
    async fn sweep(self) {
        loop {
            tokio::time::sleep(SWEEP).await;
            let now = Instant::now();
            if !self.end_if(|waiting| waiting.until <= now) {
                let mut state = self.state.lock();
                // An instance may have been added since.
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
