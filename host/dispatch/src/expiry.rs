//! Deletes jobs whose ttl or retention is over.

use std::sync::Arc;

use gristmill_core::store::{NextExpiry, StoreError};
use tracing::warn;

use crate::outage_log::OutageLog;
use crate::shared::Shared;

/// Longest sleep between two checks, in milliseconds. The deletion after a ttl that was shortened
/// meanwhile is late by at most this time; other deletions are not late.
const SLEEP_MS_MAX: u64 = 250;

/// Runs until the store is closed.
pub(crate) async fn run(shared: Arc<Shared>) {
    let clock = &shared.clock;
    let mut outage = OutageLog::default();
    loop {
        match shared.store.expire().await {
            Ok(NextExpiry(next)) => {
                outage.end();
                clock.sleep_until(next.min(clock.now().plus_millis(SLEEP_MS_MAX))).await;
            }
            Err(StoreError::Closed) => return,
            Err(error) => {
                if outage.is_news(&error) {
                    warn!(%error, "expired jobs cannot be deleted: {error}");
                }
                clock.sleep_until(clock.now().plus_millis(SLEEP_MS_MAX)).await;
            }
        }
    }
}
