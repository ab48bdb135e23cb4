//! Deletes jobs whose ttl or retention is over.

use std::sync::Arc;

use gristmill_core::store::{NextExpiry, StoreError};
use tracing::warn;

use crate::shared::Shared;

/// Longest sleep between two checks, in milliseconds. The deletion after a ttl that was shortened
/// meanwhile is late by at most this time; other deletions are not late.
const SLEEP_MS_MAX: u64 = 250;

/// Runs until the store is closed.
pub(crate) async fn run(shared: Arc<Shared>) {
    let clock = &shared.clock;
    let mut is_unreachable = false;
    loop {
        match shared.store.expire().await {
            Ok(NextExpiry(next)) => {
                is_unreachable = false;
                clock.sleep_until(next.min(clock.now().plus_millis(SLEEP_MS_MAX))).await;
            }
            Err(StoreError::Closed) => return,
            Err(error) => {
                // A database that cannot be reached for minutes is reported once.
                let was_unreachable =
                    std::mem::replace(&mut is_unreachable, error == StoreError::Unavailable);
                if !(was_unreachable && is_unreachable) {
                    warn!(%error, "expired jobs cannot be deleted: {error}");
                }
                clock.sleep_until(clock.now().plus_millis(SLEEP_MS_MAX)).await;
            }
        }
    }
}
