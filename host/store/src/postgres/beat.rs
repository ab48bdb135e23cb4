//! The signs of life of an active host: a row that it updates on a connection of its own, so
//! that no query delays them.
//!
//! An update that takes the time `L` confirms the host as of its begin, and the next one begins 0.5
//! s after it, or at its end if that is later. So the newest sign of life is up to `max(0.5 s, L) +
//! L` old. It counts for 2 s, so hosts work with a database whose commits take less than 1 s.
//!
//! **Cost.** Two transactions a second.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use gristmill_postgres::{Connection, DatabaseError, SqlQuery};

use crate::postgres::active_state::{ActiveState, BootTime};
use crate::postgres::session::Session;
use crate::sync::thread::{Builder, JoinHandle};

/// Time from the begin of an update to that of the next one.
const INTERVAL: Duration = Duration::from_millis(500);

/// Longest time of an update: a later sign of life counts for nothing.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(3);

/// Pause after a failure.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The thread that updates the row. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Beat {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Beat {
    /// Starts it; `connection` is not open yet.
    pub(crate) fn start(
        connection: Connection,
        session: Session,
        active_state: ActiveState,
    ) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let mut connection = connection.with_answer_time_max(ANSWER_TIME_MAX);
        let beat = move || {
            let mut pause = Duration::ZERO;
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let (requested_at, begun) = (BootTime::now(), Instant::now());
                pause = match beat(&mut connection, session) {
                    Ok(true) => {
                        active_state.confirm(requested_at);
                        pause_after(begun.elapsed())
                    }
                    // The writer and the reader notice that the session has ended.
                    Ok(false) => INTERVAL,
                    Err(_) => RETRY_PAUSE,
                };
            }
        };
        let thread = Builder::new().name("store-beat".to_owned()).spawn(beat)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

/// The pause after an update that took this time.
fn pause_after(took: Duration) -> Duration {
    INTERVAL.saturating_sub(took)
}

/// Updates the row. False when the session has ended: the next active host removes the row.
fn beat(connection: &mut Connection, session: Session) -> Result<bool, DatabaseError> {
    let update = "UPDATE beat SET at = clock_timestamp() WHERE session = $1::bigint";
    let query = SqlQuery::new(update, vec![Box::new(session.number)]);
    Ok(connection.transaction(&[query])?.first() == Some(&1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::active_state::CONFIRMED_FOR;

    #[test]
    fn signs_of_life_count_without_a_gap_if_commits_take_less_than_a_second() {
        for took_ms in (0..1_000).step_by(10) {
            let took = Duration::from_millis(took_ms);
            // The age of a sign of life when the next one is confirmed.
            let age = took + pause_after(took) + took;
            assert!(age < CONFIRMED_FOR, "{age:?} with commits of {took:?}");
        }
    }

    #[test]
    fn the_pause_never_makes_more_than_two_transactions_a_second() {
        for took_ms in [0, 1, 100, 499, 500, 501, 3_000] {
            let took = Duration::from_millis(took_ms);
            assert!(took + pause_after(took) >= INTERVAL, "{took:?}");
        }
    }
}
