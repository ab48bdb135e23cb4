//! The workers of one endpoint: the [state], the threads that bring it [events], and the
//! [tasks](task) of active workers.
//!
//! **Locks.** The state's lock is held for a decision, which waits for nothing, and never while the
//! store, the catalog or the runtime is called.

mod events;
mod place;
mod state;
mod task;

use std::fmt::Write as _;
use std::sync::Arc;

use gristmill_core::deploy::endpoint::{Deployment, EndpointType, Scaling};
use gristmill_core::id::{EndpointId, WorkerId};
use gristmill_core::incarnation::EndpointIncarnation;
use gristmill_core::job::record::{Demand, LeftAttempt};
use gristmill_core::runtime::Reservation;
use gristmill_core::sharing::shares::Level;
use gristmill_core::workers::{self, WorkerCounts};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio_util::task::TaskTracker;

pub(crate) use self::state::Event;
use self::state::{State, Worker};
use crate::requests::line::RequestLine;
use crate::shared::Shared;

/// The parts that are needed to start a worker.
#[derive(Debug, Clone)]
pub(crate) struct Starter {
    pub(crate) shared: Arc<Shared>,
    /// The threads that run handlers.
    pub(crate) guests: Handle,
    /// The workers that look for a job or have one.
    pub(crate) tasks: TaskTracker,
}

/// An attempt that another host has had since before this host was active.
pub(crate) struct Left {
    pub(crate) deployment: Arc<Deployment>,
    pub(crate) reservation: Reservation,
    pub(crate) attempt: LeftAttempt,
}

/// The workers of one incarnation of an endpoint.
#[derive(Debug)]
pub(crate) struct EndpointWorkers {
    endpoint: EndpointId,
    incarnation: EndpointIncarnation,
    state: Mutex<State>,
    /// Wakes the workers that wait for a sandbox, for their component or for a place.
    changed: Notify,
    /// Wakes the timer.
    earlier: Notify,
    /// The HTTP requests that wait.
    requests: RequestLine,
}

impl EndpointWorkers {
    pub(crate) fn new(deployment: &Deployment) -> Self {
        Self {
            endpoint: deployment.endpoint.id.clone(),
            incarnation: deployment.incarnation.clone(),
            state: Mutex::default(),
            changed: Notify::new(),
            earlier: Notify::new(),
            requests: RequestLine::default(),
        }
    }

    /// Whether the deployment is one of this incarnation.
    pub(crate) fn are_of(&self, deployment: &Deployment) -> bool {
        self.incarnation == deployment.incarnation
    }

    /// The host drains: what runs goes on.
    pub(crate) fn close(&self) {
        self.state.lock().close();
        self.changed.notify_waiters();
        self.earlier.notify_one();
        self.requests.close();
    }

    /// The endpoint was deleted. The store stops its jobs.
    pub(crate) fn delete(&self) {
        self.close();
        self.requests.delete();
    }

    /// The HTTP requests that wait.
    pub(crate) fn requests(&self) -> &RequestLine {
        &self.requests
    }

    /// The demand for workers, with these jobs in the store.
    pub(crate) fn demand(&self, kind: EndpointType, jobs: Demand) -> Demand {
        match kind {
            EndpointType::Queue => jobs,
            EndpointType::LoadBalancer => self.requests.jobs_changed(jobs),
        }
    }

    pub(crate) fn counts(&self, scaling: Scaling) -> WorkerCounts {
        self.state.lock().counts(scaling)
    }

    /// Number of workers.
    pub(crate) fn alive(&self) -> u32 {
        self.state.lock().alive()
    }

    /// The level at which a sandbox is to be asked for.
    fn level(&self) -> Level {
        self.state.lock().level()
    }

    /// Why the component cannot be prepared.
    pub(crate) fn fault(&self) -> Option<String> {
        self.state.lock().fault().map(str::to_owned)
    }

    /// The workers, in the order in which they were started.
    pub(crate) fn list(&self) -> Vec<workers::Worker> {
        let listed = self.state.lock().list();
        let shown = |worker: Worker| workers::Worker {
            id: worker.id(),
            version: worker.version,
            started_at: worker.started_at,
        };
        listed.into_iter().map(shown).collect()
    }

    /// The present deployment, unless the endpoint was deleted, and perhaps created again: then its
    /// workers end.
    pub(crate) fn deployment(&self, shared: &Shared) -> Option<Arc<Deployment>> {
        let found = shared.catalog.deployment(&self.endpoint);
        let found = found.filter(|found| self.are_of(found));
        if found.is_none() {
            self.delete();
        }
        found
    }

    /// The next change after this call.
    fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }
}

impl Worker {
    /// Its id for clients. It ends with the version of the endpoint that it runs, such as
    /// `w3f9c2a017-v12`, so that each job shows its version.
    fn id(self) -> WorkerId {
        let Self { number, random, version, .. } = self;
        // `format!` would make three texts, each longer than the one before.
        let mut id = String::with_capacity(32);
        write!(id, "w{random:08x}{number:x}-v{version}").expect("a text takes all characters");
        WorkerId::new(&id).expect("letters, digits and a hyphen are an id")
    }
}
