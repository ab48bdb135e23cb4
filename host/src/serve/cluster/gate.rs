//! Keeps a host from answering from its memory when another host may own the database.
//!
//! Calls are refused while this host is not known to be active, as during an outage of the
//! database; a call that is in progress for longer than that is answered as well, since it would
//! otherwise wait for the database for as long as that is away. The same holds for a call that
//! waits for a commit which the database refuses, as with a full disk. The answer to a reading call
//! is checked once more: a host that was paused may have made it before.
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
    /// Commits are refused since this time: reading calls are answered.
    Commits(Instant),
    /// This host may be no longer active.
    Database,
}

impl Loss {
    /// The loss that is found after this one.
    fn next(self, active_state: &ActiveState) -> Self {
        if active_state.age() > WAIT_MAX {
            return Self::Database;
        }
        match (active_state.refuses_commits(), self) {
            (false, _) => Self::Nothing,
            (true, Self::Commits(since)) => Self::Commits(since),
            (true, Self::Nothing | Self::Database) => Self::Commits(Instant::now()),
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
                sender.send_if_modified(|seen| {
                    let found = seen.next(&watched);
                    std::mem::replace(seen, found) != found
                });
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
        waited_long_enough(self.loss.clone()).await;
    }
}

/// A call that has waited long for other reasons, such as its job, still waits [`WAIT_MAX`] for the
/// database: it may have lost a connection, and use the next one a moment later.
async fn waited_long_enough(mut loss: watch::Receiver<Loss>) {
    let begun = Instant::now();
    loop {
        let found = loss.wait_for(|loss| *loss != Loss::Nothing).await.map(|loss| *loss);
        match found {
            Ok(Loss::Nothing) => {}
            Ok(Loss::Database) => return,
            Ok(Loss::Commits(since)) => {
                let patient_until = begun.max(since) + WAIT_MAX;
                if Instant::now() >= patient_until {
                    return;
                }
                let _ = tokio::time::timeout_at(patient_until, loss.changed()).await;
            }
            // The host is stopping.
            Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_that_waits_for_its_job_survives_a_lost_connection() {
        let (sender, loss) = watch::channel(Loss::Nothing);
        let call = tokio::spawn(waited_long_enough(loss));
        for _ in 0..3 {
            tokio::time::sleep(WAIT_MAX + Duration::from_secs(2)).await;
            sender.send_replace(Loss::Commits(Instant::now()));
            tokio::time::sleep(WAIT_MAX - Duration::from_secs(1)).await;
            sender.send_replace(Loss::Nothing);
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!call.is_finished(), "no loss lasted for long");

        sender.send_replace(Loss::Commits(Instant::now()));
        tokio::time::sleep(WAIT_MAX + Duration::from_millis(10)).await;
        assert!(call.is_finished());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_comes_during_a_loss_waits_as_long_as_any_other() {
        let (_sender, loss) = watch::channel(Loss::Commits(Instant::now()));
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        let call = tokio::spawn(waited_long_enough(loss));
        tokio::time::sleep(WAIT_MAX - Duration::from_secs(1)).await;
        assert!(!call.is_finished());
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(call.is_finished());
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_may_be_replaced_answers_at_once() {
        let (sender, loss) = watch::channel(Loss::Nothing);
        let call = tokio::spawn(waited_long_enough(loss));
        tokio::time::sleep(Duration::from_secs(60)).await;
        sender.send_replace(Loss::Database);
        tokio::time::timeout(Duration::from_millis(10), call).await.unwrap().unwrap();
    }
}
