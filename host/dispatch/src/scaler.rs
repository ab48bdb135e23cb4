//! Endpoints that do not want a worker for each job: looks at the queue when a job has come that finds
//! no idle worker, and starts further workers by the endpoint's [`Scaler`]. One task for an endpoint at
//! a time, and none while nothing waits.

use std::sync::Arc;

use gristmill_core::endpoint::Scaler;
use gristmill_core::id::EndpointId;

use crate::dispatcher::Starter;
use crate::worker_set::{Demand, WorkerSet};

/// Looks until nothing waits that could take another worker. The caller has said that it watches.
pub(crate) async fn watch(starter: Starter, endpoint: EndpointId, set: Arc<WorkerSet>) {
    let shared = &starter.shared;
    loop {
        // Before looking: whoever comes after that is watched by somebody else.
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
