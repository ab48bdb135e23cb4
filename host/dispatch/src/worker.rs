//! One worker of an endpoint: claims a job, runs it, claims the next; sleeps when there is none
//! and ends after the endpoint's idle timeout.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gristmill_core::endpoint::Deployment;
use gristmill_core::id::{EndpointId, WorkerId};
use tracing::{debug, warn};

use crate::attempt;
use crate::shared::Shared;
use crate::worker_set::{Leave, Sleep, WorkerSet};

/// For how long no worker is started after a component could not be run. A deploy ends it early.
const FAULT_PAUSE: Duration = Duration::from_secs(5);

/// Runs a worker to its end. It is counted in `set` already.
pub(crate) async fn run(shared: Arc<Shared>, endpoint: EndpointId, set: Arc<WorkerSet>) {
    let worker = new_worker_id();
    debug!(worker.id = %worker, endpoint.id = %endpoint, "worker `{worker}` started");
    while let Next::Continue = step(&shared, &endpoint, &set, &worker).await {}
    debug!(worker.id = %worker, endpoint.id = %endpoint, "worker `{worker}` ended");
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
    worker: &WorkerId,
) -> Next {
    let Some(deployment) = shared.catalog.deployment(endpoint) else {
        set.left();
        return Next::End;
    };
    let scaling = deployment.endpoint.scaling;
    if set.is_surplus(scaling) == Leave::Yes {
        return Next::End;
    }
    if shared.is_draining() || !prepare(shared, &deployment, set).await {
        set.left();
        return Next::End;
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

/// Makes sure that the component can be run. `false`: it cannot, and the reason is noted.
async fn prepare(shared: &Shared, deployment: &Deployment, set: &WorkerSet) -> bool {
    let prepared = {
        let preparing = shared.runtime.prepare(deployment);
        let mut preparing = std::pin::pin!(preparing);
        // The usual case is ready at once and is not counted as initializing.
        match futures::poll!(preparing.as_mut()) {
            std::task::Poll::Ready(prepared) => prepared,
            std::task::Poll::Pending => {
                let _initializing = set.initializing();
                preparing.await
            }
        }
    };
    match prepared {
        Ok(()) => {
            set.clear_fault();
            true
        }
        Err(reason) => {
            let id = &deployment.endpoint.id;
            warn!(endpoint.id = %id, "endpoint `{id}` cannot run its component: {reason}");
            set.set_fault(reason, Instant::now() + FAULT_PAUSE);
            false
        }
    }
}

/// A name that no other worker of this process has, and hardly one of another process.
fn new_worker_id() -> WorkerId {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let random: u32 = rand::random();
    WorkerId::new(&format!("w{random:08x}{number:x}")).expect("hexadecimal digits are an id")
}
