//! Commits batches to the database.

use std::mem::replace;
use std::sync::Arc;

use tracing::{info, warn};

use crate::commit::log::{BatchLog, WriteError, Written};
use crate::error::Failure;
use crate::medium::SegmentId;
use crate::postgres::connection::{Connection, DatabaseError};
use crate::postgres::outage::Outage;
use crate::postgres::session::Session;
use crate::postgres::{Postgres, User, rows};
use crate::seal::Seal;
use crate::state::batch::Batch;

/// Commits after which the records of earlier ones are removed.
const PRUNE_EVERY: i64 = 1_000;

/// The writer's connection.
#[derive(Debug)]
pub(crate) struct PostgresLog {
    connection: Connection,
    shared: Arc<Postgres>,
    seal: Arc<Seal>,
    session: Session,
    /// Whether the outcome of the commit after it is unknown.
    is_in_doubt: bool,
    outage: Outage,
}

impl PostgresLog {
    pub(crate) fn new(
        connection: Connection,
        shared: Arc<Postgres>,
        seal: Arc<Seal>,
        session: Session,
    ) -> Self {
        Self { connection, shared, seal, session, is_in_doubt: false, outage: Outage::default() }
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), DatabaseError> {
        let committed = self.shared.last_commit();
        let next = committed + 1;
        if self.is_in_doubt {
            match self.session.last_commit(&mut self.connection)? {
                None => return Err(DatabaseError::Fenced),
                Some(last) if last == next => return Ok(()),
                Some(last) if last == committed => {}
                Some(last) => return Err(lost_commits(committed, last)),
            }
        }
        let mut calls = rows::calls(batch, &self.seal);
        if next % PRUNE_EVERY == 0 {
            calls.push(self.session.prune_commits(committed));
        }
        let logged = calls.len();
        calls.push(self.session.log_commit(next));
        // The last statement, so that its lock is held for the time of the commit only.
        calls.push(self.session.fence());
        let was_in_doubt = replace(&mut self.is_in_doubt, true);
        let rows = match self.connection.transaction(&calls) {
            // The server process of a lost connection goes on until it has carried out what it had received.
            // Its transaction has been committed since the look above.
            Err(DatabaseError::Duplicate(_)) if was_in_doubt => {
                let reason = "a commit whose answer was lost has ended just now";
                return Err(DatabaseError::Unavailable(reason.to_owned()));
            }
            Err(error @ DatabaseError::Unavailable(_)) => return Err(error),
            // This transaction has failed, but the one before may still be carried out.
            Err(error @ DatabaseError::NoSpace(_)) => {
                self.is_in_doubt = was_in_doubt;
                return Err(error);
            }
            done => {
                self.is_in_doubt = false;
                done?
            }
        };
        if rows.get(logged) != Some(&1) {
            return Err(DatabaseError::Refused(format!(
                "the database has lost commit {committed} of this host"
            )));
        }
        Ok(())
    }
}

/// After a failover to a server that had not received the newest commits.
pub(crate) fn lost_commits(confirmed: i64, last: i64) -> DatabaseError {
    DatabaseError::Refused(format!(
        "the database has lost commits that it had confirmed: commit {confirmed} of this host is missing, the last \
         one is {last}"
    ))
}

impl BatchLog for PostgresLog {
    fn wait_for_room(&self) {}

    fn write(&mut self, batch: &Batch) -> Result<Written, WriteError> {
        let error = match self.commit(batch) {
            Ok(()) => {
                self.shared.set_cut_off(User::Writer, false);
                if self.outage.end() {
                    info!("the database is available again");
                }
                self.is_in_doubt = false;
                self.shared.count_commit();
                if let Some(last) = batch.jobs.iter().map(|job| job.fixed.seq).max() {
                    self.shared.commit_up_to(last);
                }
                return Ok(Written::nothing(batch.jobs.len()));
            }
            Err(error) => error,
        };
        Err(match error {
            // The disk of the database is not that of this host, so nothing here can make room on it.
            DatabaseError::Unavailable(_) | DatabaseError::NoSpace(_) => {
                self.shared.set_cut_off(User::Writer, true);
                let reason = error.to_string();
                if self.outage.is_news(&reason) {
                    warn!("{reason}; new work is refused until it is available again");
                }
                WriteError::Unavailable(reason)
            }
            DatabaseError::Fenced | DatabaseError::Duplicate(_) | DatabaseError::Refused(_) => {
                WriteError::Fatal(Failure::Server(error.to_string()))
            }
        })
    }

    fn begin_segment(&mut self) -> Result<SegmentId, WriteError> {
        Ok(SegmentId(0))
    }
}
