//! The owner of all workers: starts them when jobs wait, and lets them end in a drain.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use gristmill_core::catalog::Catalog;
use gristmill_core::deploy::endpoint::{Deployment, EndpointSettings, Scaler};
use gristmill_core::http_call::HttpBody;
use gristmill_core::http_calls::{HttpCalls, NoAnswer, WantedAnswer};
use gristmill_core::id::EndpointId;
use gristmill_core::job::record::Demand;
use gristmill_core::job::starts::StartLimits;
use gristmill_core::logs::Logs;
use gristmill_core::runtime::Runtime;
use gristmill_core::signals::{EarlyEnd, EarlyEndCause, QueueListener, Signals};
use gristmill_core::store::JobStore;
use gristmill_core::time::Clock;
use gristmill_core::trace::Tracer;
use gristmill_core::workers::{Worker, WorkerCounts, Workers};
use hashbrown::HashMap;
use http::Response;
use parking_lot::RwLock;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::http_calls::call;
use crate::shared::Shared;
use crate::shortage::sentence;
use crate::workers::{EndpointWorkers, Event, Left, Starter};
use crate::{attempt, attempt_spans, due, expiry, history, request_bills};

/// Time for the last results, and for the jobs that a drain has stopped, to reach the disk. A
/// database that cannot be reached takes none, and must not keep a host from stopping.
const LAST_RESULTS: Duration = Duration::from_secs(10);

/// The parts of a dispatcher.
#[derive(Debug)]
pub struct Parts {
    /// The store of jobs.
    pub store: Arc<dyn JobStore>,
    /// The deployed endpoints.
    pub catalog: Arc<Catalog>,
    /// The runtime for handlers.
    pub runtime: Arc<dyn Runtime>,
    /// The store's signals.
    pub signals: Arc<Signals>,
    /// The store's clock.
    pub clock: Arc<dyn Clock>,
    /// The log lines of handlers.
    pub logs: Arc<Logs>,
    /// Makes the spans of attempts.
    pub tracer: Tracer,
    /// The tokio runtime for guests. It is not the one that serves HTTP, so that a guest that
    /// computes cannot delay an answer.
    pub guests: Handle,
}

/// Runs the jobs of all endpoints.
#[derive(Debug)]
pub struct Dispatcher {
    starter: Starter,
    sets: RwLock<HashMap<EndpointId, Arc<EndpointWorkers>>>,
}

/// The result of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Every running job ended by itself.
    Finished,
    /// Some jobs were stopped; they wait again, and lose only time.
    Requeued,
}

impl Dispatcher {
    /// Begins to run the waiting jobs and all future ones.
    pub fn start(parts: Parts) -> Arc<Self> {
        let Parts { store, catalog, runtime, signals, clock, logs, tracer, guests } = parts;
        let shared = Shared::new(store, catalog, runtime, signals.clone(), clock, logs, tracer);
        let shared = Arc::new(shared);
        let starter = Starter { shared: shared.clone(), guests, tasks: TaskTracker::new() };
        let dispatcher = Arc::new(Self { starter, sets: RwLock::default() });
        // Before any worker claims a job.
        for endpoint in shared.catalog.view().deployments.keys() {
            limit_starts(&shared, endpoint);
        }
        signals.set_queue_listener(dispatcher.clone());
        // Not on the guests' runtime: deletions must not wait for a handler that computes.
        tokio::spawn(expiry::run(shared.clone()));
        tokio::spawn(due::run(shared.clone()));
        tokio::spawn(history::run(shared.clone()));
        let (bills, clock) = (shared.request_bills.clone(), shared.clock.clone());
        tokio::spawn(request_bills::run(bills, shared.store.clone(), clock));
        dispatcher.go_on();
        for endpoint in shared.catalog.view().deployments.keys() {
            dispatcher.refresh(endpoint);
        }
        dispatcher
    }

    /// Goes on with the attempts that other hosts have had since before this host was active.
    fn go_on(&self) {
        let Starter { shared, guests, tasks } = &self.starter;
        let left = shared.store.left_attempts().unwrap_or_else(|error| {
            warn!(%error, "the jobs on other hosts cannot be read: {error}");
            Vec::new()
        });
        for attempt in left {
            let lease = attempt.lease;
            let found = self.workers(&attempt.endpoint).and_then(|(workers, deployment)| {
                let reservation = shared.runtime.expect(&deployment, &attempt)?;
                Some((workers, Left { deployment, reservation, attempt }))
            });
            match found {
                Some((workers, left)) => workers.go_on(&self.starter, left),
                None => {
                    let shared = shared.clone();
                    let give_up = async move { attempt::give_up(&shared, lease).await };
                    tasks.spawn_on(give_up, guests);
                }
            }
        }
    }

    /// Takes no more jobs, leaves those on other hosts to the next active host, and waits for the
    /// other running ones: for up to `drain_timeout`, then they are stopped and queued again.
    /// Results are on disk when this returns, unless the store took none of them for
    /// [`LAST_RESULTS`].
    pub async fn drain(&self, drain_timeout: Duration) -> Drained {
        let Starter { shared, tasks, .. } = &self.starter;
        shared.begin_drain();
        shared.runtime.leave();
        for set in self.sets.read().values() {
            set.close();
        }
        tasks.close();
        let drained = if timeout(drain_timeout, tasks.wait()).await.is_ok() {
            Drained::Finished
        } else {
            info!("drain: stopping {} workers, their jobs wait again", tasks.len());
            shared.stop_attempts.cancel();
            Drained::Requeued
        };
        let stored = async {
            tasks.wait().await;
            shared.store.flush().await
        };
        match timeout(LAST_RESULTS, stored).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, "the last results may be lost: {error}"),
            // Closing the store gives them some more seconds.
            Err(_) => warn!("the last results are not stored yet; jobs without a result run again"),
        }
        drained
    }

    /// Gives the usage of the last HTTP requests to the store, before that is closed. No client
    /// reads an answer any more.
    pub async fn settle(&self) {
        let shared = &self.starter.shared;
        match timeout(LAST_RESULTS, shared.request_bills.write(&*shared.store)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, "the usage of the last requests is lost: {error}"),
            Err(_) => warn!("the usage of the last requests is lost: the store takes nothing"),
        }
    }

    /// The workers of the endpoint with the present deployment; `None` when it was deleted, or the
    /// host drains.
    fn workers(&self, endpoint: &EndpointId) -> Option<(Arc<EndpointWorkers>, Arc<Deployment>)> {
        let shared = &self.starter.shared;
        if shared.is_draining() {
            return None;
        }
        let deployment = shared.catalog.deployment(endpoint)?;
        if let Some(set) = self.sets.read().get(endpoint)
            && set.are_of(&deployment)
        {
            return Some((set.clone(), deployment));
        }
        let mut sets = self.sets.write();
        // Read again under the lock, so that a late call does not replace the workers of a newer
        // incarnation.
        let deployment = shared.catalog.deployment(endpoint)?;
        if let Some(set) = sets.get(endpoint) {
            if set.are_of(&deployment) {
                return Some((set.clone(), deployment));
            }
            set.delete();
        }
        let set = Arc::new(EndpointWorkers::new(&deployment));
        sets.insert(endpoint.clone(), set.clone());
        Some((set, deployment))
    }
}

/// Gives the store the limits of the endpoint's starts. Of two calls at one time the later change
/// of the endpoint counts.
fn limit_starts(shared: &Shared, endpoint: &EndpointId) {
    let current = || {
        let deployment = shared.catalog.deployment(endpoint)?;
        let EndpointSettings { throttle, keys, .. } = &deployment.endpoint.settings;
        Some(StartLimits { throttle: *throttle, keys: keys.clone() })
    };
    let mut given = None;
    while let Some(limits) = current().filter(|limits| given.as_ref() != Some(limits)) {
        shared.store.limit_starts(endpoint, &limits);
        given = Some(limits);
    }
}

impl QueueListener for Dispatcher {
    fn demand_changed(&self, endpoint: &EndpointId, demand: Demand) {
        // The jobs of an earlier endpoint with this id may still be deleted, and their demand has
        // versions of its own.
        if let Some((workers, now)) = self.workers(endpoint) {
            let demand = workers.demand(now.endpoint.kind, demand);
            workers.apply(&self.starter, &now, Event::Demand(demand));
        }
    }

    fn job_ended_early(&self, end: &EarlyEnd) {
        let shared = &self.starter.shared;
        if end.cause == EarlyEndCause::Expired
            && let Some(deployment) = shared.catalog.deployment(&end.endpoint)
        {
            deployment.incarnation.metrics().expired();
        }
        attempt_spans::record_early_end(&shared.tracer, end);
    }
}

#[async_trait]
impl HttpCalls for Dispatcher {
    async fn call(&self, wanted: WantedAnswer) -> Result<Response<HttpBody>, NoAnswer> {
        let endpoint = &wanted.deployment.endpoint.id;
        let (workers, now) = self.workers(endpoint).ok_or(NoAnswer::Stopped)?;
        // Another owner may have made an endpoint with the id since the caller was checked.
        if !workers.are_of(&wanted.deployment) {
            return Err(NoAnswer::Stopped);
        }
        if now.endpoint.scaling().in_effect().workers_max == 0 {
            return Err(NoAnswer::Busy);
        }
        call(&self.starter, &workers, now, wanted).await
    }
}

impl Workers for Dispatcher {
    fn refresh(&self, endpoint: &EndpointId) {
        let shared = &self.starter.shared;
        let current = shared.catalog.deployment(endpoint);
        shared.runtime.retire(endpoint, current.as_ref());
        if current.is_none() {
            // Deleted.
            if let Some(set) = self.sets.write().remove(endpoint) {
                set.delete();
            }
            return;
        }
        let Some((workers, now)) = self.workers(endpoint) else { return };
        limit_starts(shared, endpoint);
        workers.apply(&self.starter, &now, Event::Changed);
        // The store reports only changes, and jobs may have waited since an earlier start.
        let (starter, endpoint) = (self.starter.clone(), endpoint.clone());
        self.starter.guests.spawn(async move {
            let shared = &starter.shared;
            // A store that returns an error is closing.
            let Ok(demand) = shared.store.demand(&endpoint).await else { return };
            let now = shared.catalog.deployment(&endpoint).filter(|now| workers.are_of(now));
            if let Some(now) = now {
                let demand = workers.demand(now.endpoint.kind, demand);
                workers.apply(&starter, &now, Event::Demand(demand));
            }
        });
    }

    fn counts(&self, endpoint: &EndpointId) -> WorkerCounts {
        let Some(deployment) = self.starter.shared.catalog.deployment(endpoint) else {
            return WorkerCounts::default();
        };
        let set = self.sets.read().get(endpoint).cloned();
        set.map(|set| set.counts(deployment.endpoint.scaling().in_effect())).unwrap_or_default()
    }

    fn list(&self, endpoint: &EndpointId) -> Vec<Worker> {
        let set = self.sets.read().get(endpoint).cloned();
        set.map(|set| set.list()).unwrap_or_default()
    }

    fn waiting_requests(&self, endpoint: &EndpointId) -> u64 {
        let sets = self.sets.read();
        sets.get(endpoint).map_or(0, |set| set.requests().len() as u64)
    }

    fn waiting_reason(&self, endpoint: &EndpointId) -> Option<String> {
        let shared = &self.starter.shared;
        if shared.is_draining() {
            return Some("the host is shutting down; the job runs after its next start".into());
        }
        let deployment = shared.catalog.deployment(endpoint)?;
        let scaling = deployment.endpoint.scaling();
        if scaling.paused {
            return Some("the endpoint is paused".into());
        }
        let workers_max = scaling.workers_max;
        if workers_max == 0 {
            return Some("the endpoint is paused: workersMax is 0".into());
        }
        let set = self.sets.read().get(endpoint).cloned();
        let Some(set) = set else { return Some("no worker has been started".into()) };
        if let Some(fault) = set.fault() {
            return Some(format!("the handler cannot be run: {fault}"));
        }
        let counts = set.counts(scaling);
        if counts.initializing > 0 {
            return Some("a worker is preparing the handler".into());
        }
        if counts.throttled > 0 {
            let shortage = shared.runtime.shortage(&deployment);
            return Some(shortage.map_or_else(|| "the job waits for a sandbox".into(), sentence));
        }
        if counts.running >= u64::from(workers_max) {
            return Some(format!("all {workers_max} workers are busy (workersMax)"));
        }
        let alive = u64::from(set.alive());
        match scaling.scaler {
            Scaler::QueueDelay(seconds) if alive > 0 && counts.running == alive => {
                return Some(format!(
                    "another worker is started for a job that waits for {seconds} s"
                ));
            }
            Scaler::RequestCount(jobs) if jobs > 1 && alive > 0 && counts.running == alive => {
                return Some(format!(
                    "another worker is started when there are {jobs} jobs for each"
                ));
            }
            Scaler::QueueDelay(_) | Scaler::RequestCount(_) => {}
        }
        if alive == 0 {
            return Some("no worker runs, and a lowPriority job does not start one".into());
        }
        None
    }
}
