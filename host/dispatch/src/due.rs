//! Jobs that wait for their time: makes them claimable when it has come.

use std::sync::Arc;

use gristmill_core::store::StoreError;

use crate::shared::Shared;
use crate::wake::{self, SLEEP_MS_MAX};

/// Runs until the store is closed.
pub(crate) async fn run(shared: Arc<Shared>) {
    let clock = &shared.clock;
    loop {
        let next = match shared.store.fire_due() {
            Ok(next) => next,
            Err(StoreError::Closed) => return,
            Err(_) => clock.now().plus_millis(SLEEP_MS_MAX),
        };
        tokio::select! {
            () = wake::at(&**clock, next) => {}
            () = shared.signals.due_is_added() => {}
        }
    }
}
