//! Scaling of endpoints that do not start a worker for each job: when a new job finds no idle
//! worker, a task examines the queue, and starts further workers by the endpoint's [`Scaler`].
//! There is one task for an endpoint at a time, and none while no job waits.

use std::sync::Arc;
use std::time::Duration;

use gristmill_core::deploy::endpoint::Scaler;
use gristmill_core::id::EndpointId;
use gristmill_core::time::Timestamp;

use crate::worker::Starter;
use crate::worker_set::{Demand, STARTED_AT_ONCE_MAX, WorkerSet};

/// Watches the queue until no waiting job could use another worker. The caller has marked the
/// endpoint as watched.
///
/// The wait of a job is measured by the wall clock, but is at least the time for which this task
/// has watched it: a clock that is set back keeps no worker from starting.
pub(crate) async fn watch(starter: Starter, endpoint: EndpointId, set: Arc<WorkerSet>) {
    let shared = &starter.shared;
    // The oldest waiting job: when it was queued, and since when this task watches it.
    let mut watched: Option<(Timestamp, Duration)> = None;
    let mut grown_at: Option<Duration> = None;
    let mut incarnation = None;
    loop {
        // Before the check: a job that arrives after this starts another watcher.
        set.unwatch();
        // Before the endpoint is read: a change of it, such as a shorter delay, ends the sleep below.
        let changed = set.changed();
        let Some(deployment) = shared.catalog.deployment(&endpoint) else { return };
        // An endpoint that was deleted and created again has another set.
        if *incarnation.get_or_insert_with(|| deployment.incarnation.clone())
            != deployment.incarnation
        {
            return;
        }
        let scaling = deployment.endpoint.scaling().in_effect();
        let Ok(demand) = shared.store.demand(&endpoint).await else { return };
        let Some(since) = demand.since else { return };
        if shared.is_draining() {
            return;
        }
        let patience_ms = match scaling.scaler {
            Scaler::RequestCount(_) => {
                let at_most = STARTED_AT_ONCE_MAX;
                let missing = set.missing(scaling, demand.jobs, demand.claimable, at_most);
                starter.start_all(&endpoint, &set, missing);
                return;
            }
            Scaler::QueueDelay(seconds) => u64::from(seconds) * 1_000,
        };
        if !set.watch() {
            return;
        }
        let elapsed = shared.clock.elapsed();
        let (_, watched_since) = *match &mut watched {
            Some(oldest) if oldest.0 == since => oldest,
            other => other.insert((since, elapsed)),
        };
        let watched_ms = elapsed.saturating_sub(watched_since).as_millis();
        let waited_ms = shared.clock.now().millis_since(since);
        let waited_ms = waited_ms.max(u64::try_from(watched_ms).unwrap_or(u64::MAX));
        let patience = Duration::from_millis(patience_ms);
        let look_at = elapsed + patience.saturating_sub(Duration::from_millis(waited_ms));
        let mut look_at = look_at.max(grown_at.map_or(elapsed, |grown_at| grown_at + patience));
        if look_at <= elapsed {
            if set.grow(scaling) == Demand::StartWorker {
                starter.start(&endpoint, &set);
            }
            grown_at = Some(elapsed);
            look_at = elapsed + patience;
        }
        tokio::select! {
            () = shared.clock.sleep_until_elapsed(look_at) => {}
            () = changed => {}
        }
    }
}
