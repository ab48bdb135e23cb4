//! One worker of an endpoint: claims a job, runs it, claims the next; sleeps when there is none
//! and ends after the endpoint's idle timeout.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use gristmill_core::endpoint::Deployment;
use gristmill_core::id::{EndpointId, WorkerId};
use tracing::{debug, warn};

use crate::attempt;
use crate::shared::Shared;
use crate::worker_set::{Leave, Sleep, WorkerSet};

/// After how long a component that could not be prepared is tried again, if jobs wait for it. A
/// deploy ends it early.
const FAULT_PAUSE: Duration = Duration::from_secs(5);

/// Runs a worker to its end. It is counted in `set` already.
pub(crate) async fn run(shared: Arc<Shared>, endpoint: EndpointId, set: Arc<WorkerSet>) {
    let mut worker = Worker::new();
    debug!(worker.id = %worker.id, endpoint.id = %endpoint, "a worker started");
    while let Next::Continue = step(&shared, &endpoint, &set, &mut worker).await {}
    debug!(worker.id = %worker.id, endpoint.id = %endpoint, "a worker ended");
}

enum Next {
    Continue,
    End,
}

/// One round: look at the endpoint, then run one job or sleep.
async fn step(
    shared: &Arc<Shared>,
    endpoint: &EndpointId,
    set: &WorkerSet,
    worker: &mut Worker,
) -> Next {
    let changed = set.changed();
    let Some(deployment) = shared.catalog.deployment(endpoint) else {
        set.left();
        return Next::End;
    };
    worker.runs(deployment.endpoint.version);
    let worker = &worker.id;
    let scaling = deployment.endpoint.scaling;
    if set.is_surplus(scaling) == Leave::Yes {
        return Next::End;
    }
    if shared.is_draining() {
        set.left();
        return Next::End;
    }
    if let Err(reason) = prepare(shared, &deployment, set).await {
        warn!(endpoint.id = %endpoint, "endpoint `{endpoint}` cannot run its component: {reason}");
        let unhealthy = set.unhealthy(reason);
        let _ = tokio::time::timeout(FAULT_PAUSE, changed).await;
        drop(unhealthy);
        return try_again(shared, endpoint, set).await;
    }

    let mut wake_up = std::pin::pin!(set.wake_up());
    wake_up.as_mut().enable();
    let looked = set.looks();
    let claimed = match shared.store.claim(endpoint, std::slice::from_ref(worker)).await {
        Ok(claimed) => claimed,
        Err(error) => {
            warn!(endpoint.id = %endpoint, %error, "worker `{worker}` cannot claim: {error}");
            set.left();
            return Next::End;
        }
    };
    if let Some(job) = claimed.into_iter().next() {
        // No longer registered: a wake-up must go to a worker that sleeps. One that came already
        // is passed on.
        wake_up.set(set.wake_up());
        let _running = set.running();
        attempt::run(shared, deployment, job).await;
        return Next::Continue;
    }

    if set.sleeps(looked) == Sleep::No {
        return Next::Continue;
    }
    if shared.is_draining() {
        // A drain that began just now may have looked for sleepers before this one.
        set.wake_all();
    }
    let idle_timeout = Duration::from_secs(scaling.idle_timeout_s.into());
    if tokio::time::timeout(idle_timeout, wake_up).await.is_ok() {
        return Next::Continue;
    }
    match set.may_leave(scaling) {
        Leave::Yes => Next::End,
        Leave::No => Next::Continue,
    }
}

/// Makes sure that the component can be run, or says why it cannot.
async fn prepare(shared: &Shared, deployment: &Deployment, set: &WorkerSet) -> Result<(), String> {
    let preparing = shared.runtime.prepare(deployment);
    let mut preparing = std::pin::pin!(preparing);
    // The usual case is ready at once and is not counted as initializing.
    match futures::poll!(preparing.as_mut()) {
        Poll::Ready(prepared) => prepared?,
        Poll::Pending => {
            let _initializing = set.initializing();
            preparing.await?;
        }
    }
    set.clear_fault();
    Ok(())
}

/// After a pause: whether there is a job to try it for.
async fn try_again(shared: &Shared, endpoint: &EndpointId, set: &WorkerSet) -> Next {
    let looked = set.looks();
    // A store that cannot say closes down.
    if shared.store.demand(endpoint).await.is_ok_and(|demand| demand.jobs > 0) {
        return Next::Continue;
    }
    match set.leaves(looked) {
        Leave::Yes => Next::End,
        Leave::No => Next::Continue,
    }
}

/// A worker as clients see it. Its id ends with the version of the endpoint that it runs, such as
/// `w3f9c2a017-v12`: so each job tells which version ran it.
struct Worker {
    /// A name that no other worker of this process has, and hardly one of another process.
    name: String,
    version: u32,
    id: WorkerId,
}

impl Worker {
    fn new() -> Self {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let random: u32 = rand::random();
        let name = format!("w{random:08x}{number:x}");
        Self { id: worker_id(&name, 0), name, version: 0 }
    }

    fn runs(&mut self, version: u32) {
        if self.version != version {
            self.version = version;
            self.id = worker_id(&self.name, version);
        }
    }
}

fn worker_id(name: &str, version: u32) -> WorkerId {
    WorkerId::new(&format!("{name}-v{version}")).expect("letters, digits and a hyphen are an id")
}
