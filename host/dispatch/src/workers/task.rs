//! The task of a worker while it looks for a job or has one. It prepares the component, reserves a
//! sandbox, claims a job, runs it, and repeats; it ends when the [state](super::state) decides that
//! the worker is idle.
//!
//! **The sandbox comes before the claim.** A job that waits for a sandbox is still in the queue: it
//! can be purged, a job of higher priority passes it, and its timeouts have not begun. After the
//! claim the worker checks the catalog once more, so that a job never runs a deployment that is
//! older than its submission.
//!
//! **The sandbox has the level of the next job to claim.** A worker that waits asks anew when that
//! changes, so that a called job never waits for the sandbox of a client's job. If another worker
//! has claimed the called job meanwhile, and this one claims a job at a lower level, it hands the
//! job back: a sandbox that is kept for called jobs must not be used for others, and a claim that
//! names a level would make each store decide about levels for a rare race.

use std::sync::Arc;
use std::task::Poll;

use gristmill_core::deploy::endpoint::{Deployment, EndpointType};
use gristmill_core::job::record::{ClaimedJob, Demand};
use gristmill_core::runtime::{CannotRun, Reservation};
use gristmill_core::sharing::shares::Level;
use gristmill_core::store::StoreError;
use tracing::warn;

use super::place::WorkerPlace;
use super::state::{Event, Next, Step, Worker};
use super::{EndpointWorkers, Left, Starter};
use crate::attempt;
use crate::requests::attempt::answer;
use crate::requests::line::{Number, WaitingRequest};
use crate::shared::Shared;

/// Runs a worker until it is idle or ends. It is active already.
pub(super) async fn run(starter: Starter, workers: Arc<EndpointWorkers>, worker: Worker) {
    Task::new(starter, workers, worker).run(Step::Begins).await;
}

/// The same for a worker that has a job already, which another host runs.
pub(super) async fn go_on(
    starter: Starter,
    workers: Arc<EndpointWorkers>,
    worker: Worker,
    Left { deployment, reservation, attempt }: Left,
) {
    let task = Task::new(starter, workers, worker);
    let place = WorkerPlace::new(&task.starter, &task.workers, worker.number);
    attempt::go_on(task.shared(), deployment, reservation, attempt, place).await;
    task.run(Step::Ends).await;
}

struct Task {
    starter: Starter,
    workers: Arc<EndpointWorkers>,
    worker: Worker,
    /// The deployment of the last round.
    deployment: Option<Arc<Deployment>>,
    /// Whether the state has ended the task.
    is_decided: bool,
}

/// A reservation, and the deployment and the level that it is for.
#[derive(Debug)]
struct Reserved {
    deployment: Arc<Deployment>,
    level: Level,
    reservation: Reservation,
}

/// What a worker has to do.
enum Claimed {
    Job(ClaimedJob),
    Request(Number, WaitingRequest, Demand),
    /// There was nothing, or the database did not answer.
    Nothing(Step),
}

/// The end of a wait for a sandbox.
enum Waited {
    Reserved(Reservation),
    /// Another deployment is to be run, or a job at another level.
    Changed,
    /// The worker ends.
    Ended,
}

impl Task {
    fn new(starter: Starter, workers: Arc<EndpointWorkers>, worker: Worker) -> Self {
        Self { starter, workers, worker, deployment: None, is_decided: false }
    }

    async fn run(mut self, mut step: Step) {
        let mut reserved = None;
        while let Some((next, room)) = self.round(step, reserved.take()).await {
            (step, reserved) = (next, room);
        }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.starter.shared
    }

    /// One round: from `step` to the next step, with a reservation that the worker has waited for.
    /// `None` ends the task.
    async fn round(
        &mut self,
        step: Step,
        reserved: Option<Reserved>,
    ) -> Option<(Step, Option<Reserved>)> {
        let deployment = self.next_deployment()?;
        let Next::Work { seen } = self.apply(&deployment, step) else { return None };
        self.worker.version = deployment.endpoint.version;
        if let Err(CannotRun(reason)) = self.prepare(&deployment).await? {
            drop(reserved);
            if self.has_changed(&deployment) {
                return Some((Step::LeavesLine, None));
            }
            self.apply(&deployment, Step::Fails(reason));
            return None;
        }
        let level = self.workers.level();
        // A reservation for another deployment is useless, and so is one for a called job that is
        // not there any more.
        let reserved = reserved.filter(|reserved| {
            Arc::ptr_eq(&reserved.deployment, &deployment) && reserved.level <= level
        });
        let Some(reserved) = reserved.or_else(|| self.try_reserve(&deployment, level)) else {
            let Next::Wait = self.apply(&deployment, Step::FindsNoRoom) else { return None };
            return match self.wait_for_room(&deployment, level).await {
                Waited::Reserved(reservation) => {
                    Some((Step::LeavesLine, Some(Reserved { deployment, level, reservation })))
                }
                Waited::Changed => Some((Step::LeavesLine, None)),
                Waited::Ended => None,
            };
        };
        let step = match self.claim(deployment.endpoint.kind, seen).await {
            Claimed::Job(job) => {
                let left = self.workers.demand(deployment.endpoint.kind, job.left);
                self.apply(&deployment, Step::Claims(left));
                self.run_job(reserved, job).await;
                return Some((Step::Ends, None));
            }
            Claimed::Request(number, request, left) => {
                self.apply(&deployment, Step::Claims(left));
                self.answer(reserved, number, request).await;
                return Some((Step::Ends, None));
            }
            Claimed::Nothing(step) => step,
        };
        drop(reserved);
        self.begin_or_end(&deployment, step)
    }

    /// A job, or a request, of an endpoint of this type.
    async fn claim(&self, kind: EndpointType, seen: u64) -> Claimed {
        let requests = self.workers.requests();
        let mut step = Step::FindsNoJob { seen };
        if kind == EndpointType::Queue || requests.is_jobs_turn() {
            match self.claim_job(seen).await {
                Ok(job) => return Claimed::Job(job),
                Err(found_none) => step = found_none,
            }
        }
        match requests.take() {
            Some((number, request, left)) => Claimed::Request(number, request, left),
            None => Claimed::Nothing(step),
        }
    }

    async fn claim_job(&self, seen: u64) -> Result<ClaimedJob, Step> {
        let (endpoint, id) = (&self.workers.endpoint, self.worker.id());
        match self.shared().store.claim(endpoint, &id).await {
            Ok(Some(job)) => Ok(job),
            Ok(None) => Err(Step::FindsNoJob { seen }),
            // Nothing wakes a worker when the database of the jobs answers again.
            Err(StoreError::Unavailable) => Err(Step::FindsNoDatabase),
            Err(error) => {
                warn!(endpoint.id = %endpoint, %error, "worker `{id}` cannot claim: {error}");
                Err(Step::FindsNoJob { seen })
            }
        }
    }

    /// The next round after a step without a job.
    fn begin_or_end(
        &mut self,
        deployment: &Deployment,
        step: Step,
    ) -> Option<(Step, Option<Reserved>)> {
        match self.apply(deployment, step) {
            Next::Work { .. } => Some((Step::Begins, None)),
            _ => None,
        }
    }

    fn apply(&mut self, now: &Deployment, step: Step) -> Next {
        let event = Event::Worker(self.worker.number, step);
        let next = self.workers.apply(&self.starter, now, event);
        self.is_decided = next == Next::End;
        next
    }

    /// The present deployment; `None` when the worker ends without a job. If the deployment is
    /// another one than in the last round, an idle instance of this worker's last job is useless.
    fn next_deployment(&mut self) -> Option<Arc<Deployment>> {
        let shared = self.starter.shared.clone();
        let now = self.workers.deployment(&shared);
        if let Some(last) = &self.deployment
            && now.as_ref().is_none_or(|now| !Arc::ptr_eq(last, now))
        {
            let endpoint = &last.endpoint.id;
            shared.runtime.retire(endpoint, shared.catalog.deployment(endpoint).as_ref());
        }
        self.deployment.clone_from(&now);
        now.filter(|_| !shared.is_draining())
    }

    fn has_changed(&self, deployment: &Arc<Deployment>) -> bool {
        let now = self.shared().catalog.deployment(&deployment.endpoint.id);
        now.is_none_or(|now| !Arc::ptr_eq(&now, deployment))
    }

    /// Makes sure that the component can run, or returns the reason why it cannot. `None` when the
    /// host drains meanwhile: a drain waits for all workers, and the count of a volume's files may
    /// take minutes. `None` too when the worker gives way to one whose call is over.
    async fn prepare(&mut self, deployment: &Arc<Deployment>) -> Option<Result<(), CannotRun>> {
        let shared = self.starter.shared.clone();
        let mut preparing = std::pin::pin!(shared.runtime.prepare(deployment));
        // Usually the component is ready at once, and the worker is not counted as initializing.
        if let Poll::Ready(prepared) = futures::poll!(preparing.as_mut()) {
            return Some(prepared);
        }
        let workers = self.workers.clone();
        loop {
            let changed = workers.changed();
            if shared.is_draining() {
                return None;
            }
            let Next::Proceed = self.apply(deployment, Step::Prepares) else { return None };
            tokio::select! {
                biased;
                prepared = &mut preparing => {
                    self.apply(deployment, Step::Prepared);
                    return Some(prepared);
                }
                () = changed => {}
            }
        }
    }

    fn try_reserve(&self, deployment: &Arc<Deployment>, level: Level) -> Option<Reserved> {
        let reservation = self.shared().runtime.try_reserve(deployment, level)?;
        Some(Reserved { deployment: deployment.clone(), level, reservation })
    }

    async fn wait_for_room(&mut self, deployment: &Arc<Deployment>, level: Level) -> Waited {
        let (shared, workers) = (self.starter.shared.clone(), self.workers.clone());
        let mut reserving = std::pin::pin!(shared.runtime.reserve(deployment, level));
        loop {
            let changed = workers.changed();
            if self.has_changed(deployment) || self.workers.level() != level {
                return Waited::Changed;
            }
            let Next::Wait = self.apply(deployment, Step::Waits) else { return Waited::Ended };
            tokio::select! {
                // A reservation that is there is kept: if it were dropped for a change, this worker
                // would wait at the end of the line again.
                biased;
                reservation = &mut reserving => return Waited::Reserved(reservation),
                () = changed => {}
            }
        }
    }

    /// Answers a request, unless the endpoint has changed since its deployment was read: then the
    /// request waits again.
    async fn answer(&self, reserved: Reserved, number: Number, request: WaitingRequest) {
        let Reserved { deployment, reservation, .. } = reserved;
        if self.has_changed(&deployment) {
            drop(reservation);
            let demand = self.workers.requests().put_back(number, request);
            if let Some(now) = self.workers.deployment(self.shared()) {
                self.workers.apply(&self.starter, &now, Event::Demand(demand));
            }
        } else {
            let place = WorkerPlace::new(&self.starter, &self.workers, self.worker.number);
            let (shared, worker) = (self.shared(), self.worker.id());
            answer(shared, deployment, reservation, request, worker, place).await;
        }
    }

    /// Runs a claimed job, unless the endpoint has changed since its deployment was read, or the
    /// sandbox is for a deeper job: then the job is released.
    async fn run_job(
        &self,
        Reserved { deployment, level, reservation }: Reserved,
        job: ClaimedJob,
    ) {
        if job.level < level || self.has_changed(&deployment) {
            drop(reservation);
            attempt::hand_back(self.shared(), &job).await;
        } else {
            let place = WorkerPlace::new(&self.starter, &self.workers, self.worker.number);
            attempt::run(self.shared(), deployment, reservation, job, place).await;
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if !self.is_decided {
            self.workers.lose(&self.starter, self.worker.number);
        }
    }
}
