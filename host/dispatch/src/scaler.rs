//! Scaling of endpoints that do not start a worker for each job: when a new job finds no idle
//! worker, a task examines the queue, and starts further workers by the endpoint's [`Scaler`].
//! There is one task for an endpoint at a time, and none while no job waits.

use std::sync::Arc;

use gristmill_core::endpoint::Scaler;
use gristmill_core::id::EndpointId;

use crate::dispatcher::Starter;
use crate::worker_set::{Demand, WorkerSet};

/// Examines the queue until no waiting job could take another worker. The caller has marked the
/// endpoint as watched.
pub(crate) async fn watch(starter: Starter, endpoint: EndpointId, set: Arc<WorkerSet>) {
    let shared = &starter.shared;
    loop {
        // Before the check: a job that arrives after this starts another watcher.
        set.unwatch();
        let Some(deployment) = shared.catalog.deployment(&endpoint) else { return };
        let scaling = deployment.endpoint.scaling;
        let Ok(demand) = shared.store.demand(&endpoint).await else { return };
        let Some(since) = demand.since else { return };
        if shared.is_draining() {
            return;
        }
        let patience_ms = match scaling.scaler {
            Scaler::RequestCount(_) => {
                for _ in 0..set.missing(scaling, demand.jobs) {
                    starter.start(&endpoint, &set);
                }
                return;
            }
            Scaler::QueueDelay(seconds) => u64::from(seconds) * 1_000,
        };
        if !set.watch() {
            return;
        }
        let now = shared.clock.now();
        let mut look_at = since.plus_millis(patience_ms);
        if look_at <= now {
            if set.grow(scaling) == Demand::StartWorker {
                starter.start(&endpoint, &set);
            }
            look_at = now.plus_millis(patience_ms);
        }
        shared.clock.sleep_until(look_at).await;
    }
}
