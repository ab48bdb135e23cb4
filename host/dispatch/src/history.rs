//! Deletes ended jobs beyond the bounds of their endpoint's history.

use std::sync::Arc;

use gristmill_core::job::retention::HistoryMax;
use gristmill_core::store::StoreError;
use tracing::warn;

use crate::shared::Shared;

/// Pause between two checks, in milliseconds: the jobs that end meanwhile can exceed the bounds.
const PAUSE_MS: u64 = 1_000;

/// Runs until the store is closed. Costs a look at each endpoint in each pause.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let view = shared.catalog.view();
        let endpoints = view.deployments.values().map(|deployment| &deployment.endpoint);
        let bounded: Vec<(_, HistoryMax)> = endpoints
            .filter(|endpoint| !endpoint.history_max.is_none())
            .map(|endpoint| (endpoint.id.clone(), endpoint.history_max))
            .collect();
        drop(view);
        for (endpoint, max) in bounded {
            match shared.store.trim_history(&endpoint, max).await {
                Ok(()) => {}
                Err(StoreError::Closed) => return,
                Err(error) => warn!(%endpoint, %error, "old jobs cannot be deleted: {error}"),
            }
        }
        let clock = &shared.clock;
        clock.sleep_until(clock.now().plus_millis(PAUSE_MS)).await;
    }
}
