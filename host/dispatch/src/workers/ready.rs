//! An idle worker for a job that is being submitted. The submission claims the job for it under the
//! same lock, so a job that finds an idle worker is never in the queue, and its worker starts with
//! the job.

use std::sync::Arc;

use futures::FutureExt as _;
use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::id::WorkerId;
use gristmill_core::job::record::ClaimedJob;
use gristmill_core::runtime::Reservation;
use gristmill_core::workers::ReadyWorker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::state::Worker;
use super::task::Claimed;
use super::{EndpointWorkers, Starter};

/// A worker that has a sandbox and no task yet.
pub(crate) struct Ready {
    starter: Starter,
    workers: Arc<EndpointWorkers>,
    worker: Worker,
    id: WorkerId,
    /// `None` once the task is started.
    room: Option<(Arc<Deployment>, Reservation)>,
    /// A drain waits for the worker as for its task.
    _token: TaskTrackerToken,
}

impl EndpointWorkers {
    /// An idle worker for a job of the present deployment. `None` if it cannot run at once.
    pub(crate) fn ready(
        self: &Arc<Self>,
        starter: &Starter,
        deployment: Arc<Deployment>,
    ) -> Option<Ready> {
        let token = starter.tasks.token();
        let mut worker = self.take_idle()?;
        worker.version = deployment.endpoint.version;
        let runtime = &starter.shared.runtime;
        // Ready at once, unless the component or its files have left the memory since its last job.
        let is_prepared = matches!(runtime.prepare(&deployment).now_or_never(), Some(Ok(())));
        let room = is_prepared.then(|| runtime.try_reserve(&deployment)).flatten();
        let Some(reservation) = room else {
            self.start(starter, worker, None);
            return None;
        };
        let (starter, workers) = (starter.clone(), self.clone());
        let (id, room) = (worker.id(), Some((deployment, reservation)));
        Some(Ready { starter, workers, worker, id, room, _token: token })
    }
}

impl ReadyWorker for Ready {
    fn id(&self) -> &WorkerId {
        &self.id
    }

    fn run(mut self: Box<Self>, job: ClaimedJob) {
        let claimed = self.room.take().map(|(deployment, reservation)| Claimed {
            deployment,
            reservation,
            job,
        });
        self.workers.start(&self.starter, self.worker, claimed);
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        if self.room.take().is_some() {
            self.workers.start(&self.starter, self.worker, None);
        }
    }
}

impl std::fmt::Debug for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ready").field("id", &self.id).finish_non_exhaustive()
    }
}
