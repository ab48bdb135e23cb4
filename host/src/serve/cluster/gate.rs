//! Keeps a host from answering from its memory when another host may own the database.
//!
//! Calls are refused while this host is not known to be active, as during an outage of the database; a call that
//! is in progress for longer than that is answered as well, since it would otherwise wait for the database
//! for as long as that is away. The answer to a reading call is checked once more: a host that was paused
//! may have made it before.
//!
//! **Cost.** Two reads of a clock for each call.

use std::time::Duration;

use gristmill_store::ActiveState;
use tokio::sync::watch;

/// How long a call in progress waits for the database.
const WAIT_MAX: Duration = Duration::from_secs(5);

const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// The reason for refusals.
pub(crate) const UNCONFIRMED: &str = "the database cannot be reached; try again shortly";

/// The answer to a call that was in progress.
pub(crate) const UNKNOWN: &str = "the database cannot be reached, and whether the call has taken effect is \
                                  unknown; try again shortly";

/// Whether this host is active, for calls.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    active_state: ActiveState,
    is_lost: watch::Receiver<bool>,
}

impl Gate {
    /// Watches the state until the last gate is dropped.
    pub(crate) fn new(active_state: ActiveState) -> Self {
        let (sender, is_lost) = watch::channel(false);
        let watched = active_state.clone();
        tokio::spawn(async move {
            while !sender.is_closed() {
                let is_lost = watched.age() > WAIT_MAX;
                sender.send_if_modified(|seen| std::mem::replace(seen, is_lost) != is_lost);
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        });
        Self { active_state, is_lost }
    }

    /// Whether no other host can own the database.
    pub(crate) fn is_open(&self) -> bool {
        self.active_state.is_confirmed()
    }

    /// Resolves when a call has waited long enough.
    pub(crate) async fn lost(&self) {
        if self.is_lost.clone().wait_for(|is_lost| *is_lost).await.is_err() {
            // The host is stopping.
            std::future::pending().await
        }
    }
}
