//! Keeps a host from answering from its memory when another host may own the database.
//!
//! Calls are refused while this host is not known to be active, as during an outage of the database; a call that
//! is in progress for longer than that is answered as well, since it would otherwise wait for the database
//! for as long as that is away. The same holds for a call that waits for a commit which the database refuses, as
//! with a full disk. The answer to a reading call is checked once more: a host that was paused
//! may have made it before.
//!
//! **Cost.** Two reads of a clock for each call.

use std::time::Duration;

use gristmill_store::ActiveState;
use tokio::sync::watch;
use tokio::time::Instant;

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
    loss: watch::Receiver<Loss>,
}

/// The reason why a call may wait for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    Nothing,
    /// Commits are refused: reading calls are answered.
    Commits,
    /// This host may be no longer active.
    Database,
}

impl Loss {
    fn of(active_state: &ActiveState) -> Self {
        if active_state.age() > WAIT_MAX {
            Self::Database
        } else if active_state.refuses_commits() {
            Self::Commits
        } else {
            Self::Nothing
        }
    }
}

impl Gate {
    /// Watches the state until the last gate is dropped.
    pub(crate) fn new(active_state: ActiveState) -> Self {
        let (sender, loss) = watch::channel(Loss::Nothing);
        let watched = active_state.clone();
        tokio::spawn(async move {
            while !sender.is_closed() {
                let found = Loss::of(&watched);
                sender.send_if_modified(|seen| std::mem::replace(seen, found) != found);
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        });
        Self { active_state, loss }
    }

    /// Whether no other host can own the database.
    pub(crate) fn is_open(&self) -> bool {
        self.active_state.is_confirmed()
    }

    /// Resolves when a call has waited long enough.
    pub(crate) async fn lost(&self) {
        let (mut loss, patient_until) = (self.loss.clone(), Instant::now() + WAIT_MAX);
        loop {
            let found = loss.wait_for(|loss| *loss != Loss::Nothing).await.map(|loss| *loss);
            match found {
                Ok(Loss::Nothing) => {}
                Ok(Loss::Database) => return,
                Ok(Loss::Commits) if Instant::now() >= patient_until => return,
                Ok(Loss::Commits) => {
                    let _ = tokio::time::timeout_at(patient_until, loss.changed()).await;
                }
                // The host is stopping.
                Err(_) => std::future::pending().await,
            }
        }
    }
}
