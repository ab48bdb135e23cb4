//! Deletes ended jobs beyond the bounds of their endpoint's history.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use gristmill_core::job::retention::HistoryMax;
use gristmill_core::store::StoreError;
use tracing::warn;

use crate::outage_log::OutageLog;
use crate::shared::Shared;

/// Pause between two checks, in milliseconds: the jobs that end meanwhile can exceed the bounds.
const PAUSE_MS: u64 = 1_000;

/// Endpoints whose jobs are deleted at one time: their deletions share the waits for the disk, so a
/// check of ten thousand endpoints does not take ten thousand waits.
const AT_ONCE_MAX: usize = 16;

/// Runs until the store is closed. Costs a look at each endpoint in each pause.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut outage = OutageLog::default();
    loop {
        let view = shared.catalog.view();
        let endpoints = view.deployments.values().map(|deployment| &deployment.endpoint);
        let bounded: Vec<(_, HistoryMax)> = endpoints
            .map(|endpoint| (endpoint.id.clone(), endpoint.history_max()))
            .filter(|(_, max)| !max.is_none())
            .collect();
        drop(view);
        let trimmed: Vec<_> = stream::iter(bounded)
            .map(async |(endpoint, max)| {
                let trimmed = shared.store.trim_history(&endpoint, max).await;
                (endpoint, trimmed)
            })
            .buffer_unordered(AT_ONCE_MAX)
            .filter_map(async |(endpoint, trimmed)| Some((endpoint, trimmed.err()?)))
            .collect()
            .await;
        if trimmed.is_empty() {
            outage.end();
        }
        for (endpoint, error) in trimmed {
            if error == StoreError::Closed {
                return;
            }
            if outage.is_news(&error) {
                warn!(%endpoint, %error, "old jobs cannot be deleted: {error}");
            }
        }
        let clock = &shared.clock;
        clock.sleep_until(clock.now().plus_millis(PAUSE_MS)).await;
    }
}
