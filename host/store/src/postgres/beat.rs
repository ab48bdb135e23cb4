//! The signs of life of an active host: a row that it updates on a connection of its own, so
//! that no query delays them.
//!
//! **Cost.** Two transactions a second.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use crate::postgres::active_state::{ActiveState, Moment};
use crate::postgres::connection::{Call, Connection, DatabaseError};
use crate::postgres::session::Session;
use crate::sync::thread::{Builder, JoinHandle};

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
                let requested_at = Moment::now();
                pause = match beat(&mut connection, session) {
                    Ok(true) => {
                        active_state.confirm(requested_at);
                        INTERVAL
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

/// Updates the row. False when the session has ended: the next active host removes the row.
fn beat(connection: &mut Connection, session: Session) -> Result<bool, DatabaseError> {
    let update = "UPDATE beat SET at = clock_timestamp() WHERE session = $1::bigint";
    let call = Call::new(update, vec![Box::new(session.number)]);
    Ok(connection.transaction(&[call])?.first() == Some(&1))
}
