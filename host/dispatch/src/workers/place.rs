//! The place of a worker among the `workersMax` of its endpoint, which it lends while its job waits
//! for a job that it has called.

use std::sync::Arc;

use super::state::{Event, Next, Step};
use super::{EndpointWorkers, Starter};
use crate::attempt_sink::Place;

/// The place of a worker that has a job. An attempt that ends without its place does no harm: the
/// worker takes another job only if there is a place.
pub(super) struct WorkerPlace {
    starter: Starter,
    workers: Arc<EndpointWorkers>,
    /// The worker.
    number: u64,
}

impl WorkerPlace {
    pub(super) fn new(starter: &Starter, workers: &Arc<EndpointWorkers>, number: u64) -> Self {
        Self { starter: starter.clone(), workers: workers.clone(), number }
    }

    fn apply(&self, step: Step) -> Next {
        match self.workers.deployment(&self.starter.shared) {
            Some(now) => self.workers.apply(&self.starter, &now, Event::Worker(self.number, step)),
            None => Next::Proceed,
        }
    }
}

impl Place for WorkerPlace {
    fn lend(&self) {
        self.apply(Step::Calls);
    }

    async fn take_again(&self) {
        loop {
            let changed = self.workers.changed();
            // A deleted endpoint has no bound.
            if self.apply(Step::Returns) != Next::Wait {
                return;
            }
            changed.await;
        }
    }
}
