//! One worker of an endpoint. It reserves a sandbox, claims a job, runs it, and repeats. It sleeps
//! when there is no job, and ends after the endpoint's idle timeout.
//!
//! **The sandbox comes before the claim.** A job that waits for a sandbox is still in the queue: it
//! can be purged, a job of higher priority passes it, and its timeouts have not begun. After the
//! claim the worker checks the catalog once more, so that a job never runs a deployment that is
//! older than its submission.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use gristmill_core::deploy::endpoint::{Deployment, Scaling};
use gristmill_core::id::{EndpointId, WorkerId};
use gristmill_core::job::record::{ClaimedJob, Demand};
use gristmill_core::runtime::{CannotRun, Reservation};
use gristmill_core::store::StoreError;
use gristmill_core::time::Timestamp;
use gristmill_core::workers;
use tokio::runtime::Handle;
use tokio::sync::futures::Notified;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::attempt;
use crate::shared::Shared;
use crate::worker_set::{
    Idle, MissedWakeups, Retire, Sleep, Starting, Throttle, Throttled, WorkerSet,
};

/// Time after which a component that could not be prepared is tried again, if jobs wait for it. A
/// deploy ends the pause.
const FAULT_PAUSE: Duration = Duration::from_secs(5);

/// Pause of a worker that cannot claim because the database of the jobs cannot be reached.
const UNAVAILABLE_PAUSE: Duration = Duration::from_millis(500);

/// A worker that waits for a sandbox checks this often whether jobs still wait: they may have been
/// cancelled or purged, or have expired, and its place in the line keeps others waiting.
const QUEUE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The parts that are needed to start a worker.
#[derive(Debug, Clone)]
pub(crate) struct Starter {
    pub(crate) shared: Arc<Shared>,
    /// The threads that run handlers.
    pub(crate) guests: Handle,
    /// The workers that have not ended.
    pub(crate) workers: TaskTracker,
}

impl Starter {
    /// Starts a worker that `set` counts already.
    pub(crate) fn start(&self, endpoint: &EndpointId, set: &Arc<WorkerSet>) {
        let worker = run(self.clone(), endpoint.clone(), set.clone());
        self.workers.spawn_on(worker, &self.guests);
    }

    /// Starts another worker if the waiting jobs need one.
    async fn start_missing(&self, deployment: &Deployment, set: &Arc<WorkerSet>) {
        let endpoint = &deployment.endpoint.id;
        // A store that returns an error is closing.
        let Ok(demand) = self.shared.store.demand(endpoint).await else { return };
        let Some(now) = self.shared.catalog.deployment(endpoint) else { return };
        // An endpoint that was deleted and created again has another set.
        if now.incarnation == deployment.incarnation {
            let scaling = now.endpoint.scaling().in_effect();
            let missing = set.missing(scaling, demand.jobs, demand.claimable, 1);
            self.start_all(endpoint, set, missing);
        }
    }

    /// Starts workers that `set` counts already.
    pub(crate) fn start_all(&self, endpoint: &EndpointId, set: &Arc<WorkerSet>, workers: u32) {
        for _ in 0..workers {
            self.start(endpoint, set);
        }
    }
}

/// Runs a worker to its end. `set` counts it already.
async fn run(starter: Starter, endpoint: EndpointId, set: Arc<WorkerSet>) {
    let mut worker = Worker::new(&set, starter.shared.clock.now());
    debug!(worker.id = %worker.id, endpoint.id = %endpoint, "a worker started");
    while let Next::Continue = step(&starter, &endpoint, &set, &mut worker).await {}
    debug!(worker.id = %worker.id, endpoint.id = %endpoint, "a worker ended");
}

enum Next {
    Continue,
    End,
}

/// One round: read the endpoint, then run one job, wait for a sandbox, or sleep.
async fn step(
    starter: &Starter,
    endpoint: &EndpointId,
    set: &Arc<WorkerSet>,
    worker: &mut Worker,
) -> Next {
    let shared = &starter.shared;
    let changed = set.changed();
    let reserved = worker.reserved.take();
    // The endpoint was deleted, and perhaps created again: then the new endpoint has separate
    // workers.
    let deployment = shared.catalog.deployment(endpoint).filter(|now| {
        worker.deployment.as_ref().is_none_or(|last| last.incarnation == now.incarnation)
    });
    let Some(deployment) = deployment else {
        worker.set_deployment(shared, endpoint, None);
        set.remove_worker();
        return Next::End;
    };
    worker.set_deployment(shared, endpoint, Some(&deployment));
    let scaling = deployment.endpoint.scaling().in_effect();
    if set.retire_surplus(scaling) == Retire::Yes {
        return Next::End;
    }
    if shared.is_draining() {
        set.remove_worker();
        return Next::End;
    }
    let Some(prepared) = prepare(shared, &deployment, set).await else {
        set.remove_worker();
        return Next::End;
    };
    // Before the claim: the set may start a worker too many for a moment, but never one too few.
    drop(worker.starting.take());
    if let Err(CannotRun(reason)) = prepared {
        drop(reserved);
        // Each worker tries again every few seconds, so a reason is logged once.
        let (unhealthy, is_new) = set.unhealthy(reason.clone());
        if is_new {
            warn!(endpoint.id = %endpoint, "endpoint `{endpoint}` cannot run its component: {reason}");
        }
        let _ = tokio::time::timeout(FAULT_PAUSE, changed).await;
        drop(unhealthy);
        return try_again(shared, endpoint, set, scaling).await;
    }

    let mut wake_up = std::pin::pin!(set.wake_up());
    wake_up.as_mut().enable();
    let observed = set.observe_queue();
    // A reservation for another deployment is useless.
    let reserved = reserved.filter(|(reserved_for, _)| Arc::ptr_eq(reserved_for, &deployment));
    let reserved = reserved.map(|(_, reservation)| reservation);
    let reserved = reserved.or_else(|| shared.runtime.try_reserve(&deployment));
    if let Some(reservation) = reserved {
        let claimed = match shared.store.claim(endpoint, &worker.id).await {
            Ok(claimed) => claimed,
            // Nothing wakes a worker when the database of the jobs answers again, so this one looks again.
            Err(StoreError::Unavailable) => {
                drop(reservation);
                let _ = tokio::time::timeout(UNAVAILABLE_PAUSE, changed).await;
                return Next::Continue;
            }
            Err(error) => {
                warn!(endpoint.id = %endpoint, %error, "worker `{}` cannot claim: {error}", worker.id);
                set.remove_worker();
                return Next::End;
            }
        };
        if let Some(job) = claimed {
            // This worker is no longer registered, since a wake-up must reach a sleeping worker. A
            // wake-up that has arrived already is passed on.
            wake_up.set(set.wake_up());
            if set.take_shortage() {
                starter.start_missing(&deployment, set).await;
            }
            run_job(shared, set, deployment, reservation, job).await;
            return Next::Continue;
        }
    } else if has_jobs(shared, endpoint).await {
        wake_up.set(set.wake_up());
        let Throttle::Waits(throttled) = set.throttle() else { return Next::End };
        tokio::select! {
            // A reservation that is there is kept: if it were dropped for a change, this worker
            // would wait at the end of the line again.
            biased;
            reservation = shared.runtime.reserve(&deployment) => {
                worker.reserved = Some((deployment.clone(), reservation));
            }
            // The endpoint has changed, or the host drains.
            () = changed => {}
            retires = too_few_jobs(shared, endpoint, &throttled, scaling) => {
                if retires == Retire::Yes {
                    return Next::End;
                }
            }
        }
        return Next::Continue;
    }

    sleep(shared, set, scaling, observed, wake_up).await
}

/// Sleeps until a wake-up, unless a job arrived after the worker's last check. Ends the worker
/// after the idle timeout, unless `workersMin` keeps it: then it sleeps on without a timeout, since
/// a change of the endpoint wakes it.
async fn sleep(
    shared: &Shared,
    set: &WorkerSet,
    scaling: Scaling,
    observed: MissedWakeups,
    wake_up: Pin<&mut Notified<'_>>,
) -> Next {
    if set.try_sleep(observed) == Sleep::No {
        return Next::Continue;
    }
    if shared.is_draining() {
        // A drain that began a moment ago may have woken the sleepers before this worker slept.
        set.wake_all();
    }
    sleep_until_woken(set, scaling, wake_up).await
}

async fn sleep_until_woken(
    set: &WorkerSet,
    scaling: Scaling,
    mut wake_up: Pin<&mut Notified<'_>>,
) -> Next {
    let idle_timeout = Duration::from_secs(scaling.idle_timeout_s.into());
    while tokio::time::timeout(idle_timeout, wake_up.as_mut()).await.is_err() {
        match set.after_idle_timeout(scaling) {
            Idle::Retires => return Next::End,
            Idle::Woken => {}
            Idle::Stays => {
                wake_up.await;
                break;
            }
        }
    }
    Next::Continue
}

/// Runs a claimed job, unless the endpoint has changed since `deployment` was read: then the job is
/// released.
async fn run_job(
    shared: &Arc<Shared>,
    set: &WorkerSet,
    deployment: Arc<Deployment>,
    reservation: Reservation,
    job: ClaimedJob,
) {
    let current = shared.catalog.deployment(&deployment.endpoint.id);
    if current.is_some_and(|current| Arc::ptr_eq(&current, &deployment)) {
        let _running = set.running();
        attempt::run(shared, deployment, reservation, job).await;
    } else {
        attempt::hand_back(shared, &job).await;
    }
}

/// Whether a job waits. A store that returns an error is closing.
async fn has_jobs(shared: &Shared, endpoint: &EndpointId) -> bool {
    shared.store.demand(endpoint).await.is_ok_and(|demand| demand.claimable > 0)
}

/// Resolves when fewer jobs wait than workers wait for a sandbox: a job that was cancelled or has
/// expired leaves its worker in the line. Returns whether this worker ends.
async fn too_few_jobs(
    shared: &Shared,
    endpoint: &EndpointId,
    throttled: &Throttled<'_>,
    scaling: Scaling,
) -> Retire {
    loop {
        tokio::time::sleep(QUEUE_CHECK_INTERVAL).await;
        let observed = throttled.observe_queue();
        // A store that returns an error is closing.
        let claimable = shared.store.demand(endpoint).await.map_or(0, |demand| demand.claimable);
        if claimable == 0 {
            return Retire::No;
        }
        if throttled.leaves_surplus(observed, claimable, scaling) == Retire::Yes {
            return Retire::Yes;
        }
    }
}

/// Makes sure that the component can run, or returns the reason why it cannot. `None` when the host
/// drains meanwhile: a drain waits for all workers, and the count of a volume's files may take
/// minutes.
async fn prepare(
    shared: &Shared,
    deployment: &Deployment,
    set: &WorkerSet,
) -> Option<Result<(), CannotRun>> {
    let preparing = shared.runtime.prepare(deployment);
    let mut preparing = std::pin::pin!(preparing);
    // Usually the component is ready at once, and the worker is not counted as initializing.
    let prepared = match futures::poll!(preparing.as_mut()) {
        Poll::Ready(prepared) => prepared,
        Poll::Pending => {
            let _initializing = set.initializing();
            loop {
                let changed = set.changed();
                if shared.is_draining() {
                    return None;
                }
                tokio::select! {
                    biased;
                    prepared = &mut preparing => break prepared,
                    () = changed => {}
                }
            }
        }
    };
    if prepared.is_ok() {
        set.clear_fault();
    }
    Some(prepared)
}

/// After a pause: whether there is a job to try the component for. A job of low priority starts no worker, so it
/// keeps only those of `workersMin`.
async fn try_again(
    shared: &Shared,
    endpoint: &EndpointId,
    set: &WorkerSet,
    scaling: Scaling,
) -> Next {
    let observed = set.observe_queue();
    let is_kept = set.alive() <= scaling.workers_min;
    let needs_worker = |demand: Demand| demand.jobs > 0 || is_kept && demand.claimable > 0;
    // A store that returns an error is closing.
    if shared.store.demand(endpoint).await.is_ok_and(needs_worker) {
        return Next::Continue;
    }
    match set.try_retire(observed) {
        Retire::Yes => Next::End,
        Retire::No => Next::Continue,
    }
}

/// A worker. Its id for clients ends with the version of the endpoint that it runs, such as
/// `w3f9c2a017-v12`, so that each job shows its version.
struct Worker {
    /// A number that is unique in this process.
    number: u64,
    /// A name that almost surely is unique among all processes.
    name: String,
    id: WorkerId,
    started_at: Timestamp,
    /// The set that lists it.
    set: Arc<WorkerSet>,
    /// Until it looks for a job.
    starting: Option<Starting>,
    /// The deployment of its last round.
    deployment: Option<Arc<Deployment>>,
    /// The reservation that it has waited for, with its deployment.
    reserved: Option<(Arc<Deployment>, Reservation)>,
}

impl Worker {
    fn new(set: &Arc<WorkerSet>, started_at: Timestamp) -> Self {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let random: u32 = rand::random();
        let name = format!("w{random:08x}{number:x}");
        let (id, starting) = (worker_id(&name, 0), Some(Starting(set.clone())));
        let set = set.clone();
        Self { number, name, id, started_at, set, starting, deployment: None, reserved: None }
    }

    /// Begins a round with this deployment; `None`: the endpoint was deleted. If the deployment has
    /// changed, an idle instance of this worker's last job is useless.
    fn set_deployment(
        &mut self,
        shared: &Shared,
        endpoint: &EndpointId,
        deployment: Option<&Arc<Deployment>>,
    ) {
        let is_same = match (&self.deployment, deployment) {
            (Some(last), Some(now)) => Arc::ptr_eq(last, now),
            (last, now) => last.is_none() && now.is_none(),
        };
        if is_same {
            return;
        }
        if self.deployment.is_some() {
            shared.runtime.retire(endpoint, shared.catalog.deployment(endpoint).as_ref());
        }
        if let Some(deployment) = deployment {
            let version = deployment.endpoint.version;
            self.id = worker_id(&self.name, version);
            let (id, started_at) = (self.id.clone(), self.started_at);
            self.set.show(self.number, workers::Worker { id, version, started_at });
        }
        self.deployment = deployment.cloned();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.set.hide(self.number);
    }
}

fn worker_id(name: &str, version: u32) -> WorkerId {
    WorkerId::new(&format!("{name}-v{version}")).expect("letters, digits and a hyphen are an id")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The wake-up of a sleeping worker may reach a worker that is awake and looks at the queue.
    /// That worker then counts as idle in the sleeper's place, so the sleeper must sleep on: the
    /// count would be too high otherwise, and a later job would wait for a worker that is awake.
    #[tokio::test(start_paused = true)]
    async fn a_sleeper_whose_wake_up_another_worker_has_sleeps_on() {
        let set = WorkerSet::default();
        let scaling = Scaling { workers_min: 0, workers_max: 2, ..Scaling::default() };
        assert_eq!(set.refresh(scaling, 2, 2), 2);
        let mut awake = std::pin::pin!(set.wake_up());
        awake.as_mut().enable();
        let mut asleep = std::pin::pin!(set.wake_up());
        asleep.as_mut().enable();
        assert_eq!(set.try_sleep(set.observe_queue()), Sleep::Yes);
        set.job_ready(scaling, true);
        let mut sleeping = std::pin::pin!(sleep_until_woken(&set, scaling, asleep));
        let idle_timeout = Duration::from_secs(scaling.idle_timeout_s.into());
        let slept = tokio::time::timeout(3 * idle_timeout, sleeping.as_mut()).await;
        assert!(slept.is_err(), "the wake-up is with the other worker");
        // The other worker begins a job, and passes the wake-up on.
        awake.set(set.wake_up());
        assert!(matches!(sleeping.await, Next::Continue));
    }
}
