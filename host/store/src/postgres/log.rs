//! Commits batches to the database.

use std::mem::replace;
use std::sync::Arc;

use gristmill_postgres::{Connection, DatabaseError};
use tracing::{info, warn};

use crate::commit::log::{BatchLog, WriteError, Written};
use crate::error::Failure;
use crate::medium::SegmentId;
use crate::postgres::numbers::{PRUNE_EVERY, Series, lost_commits};
use crate::postgres::outage::Outage;
use crate::postgres::session::Session;
use crate::postgres::{Postgres, User, rows};
use crate::seal::Seal;
use crate::state::batch::Batch;

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

    /// Commits a batch, and returns the number of the commit.
    fn commit(&mut self, batch: &Batch) -> Result<i64, DatabaseError> {
        let confirmed = self.shared.confirmed.newest();
        let (committed, next) = (confirmed.jobs, confirmed.jobs + 1);
        // A new connection may lead to another server.
        if self.is_in_doubt || self.connection.is_closed() {
            let found = self.session.newest_commits(&mut self.connection)?;
            let found = found.ok_or(DatabaseError::Fenced)?;
            confirmed.check(found)?;
            match found.jobs {
                last if last == next && self.is_in_doubt => {
                    self.confirm()?;
                    return Ok(next);
                }
                last if last == committed => {}
                last => return Err(lost_commits("jobs", committed, last)),
            }
        }
        let mut queries = rows::queries(batch, &self.seal);
        if next % PRUNE_EVERY == 0 {
            queries.push(self.session.prune_commits(Series::Jobs, committed));
        }
        let logged = queries.len();
        queries.push(self.session.log_commit(next));
        // The last statement, so that its lock is held for the time of the commit only.
        queries.push(self.session.fence());
        let was_in_doubt = replace(&mut self.is_in_doubt, true);
        let rows = match self.connection.transaction(&queries) {
            // The server process of a lost connection goes on until it has carried out what it had
            // received. Its transaction has been committed since the look above.
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
        Ok(next)
    }

    /// Confirms a commit that the server shows, and whose answer was lost. The server shows it also
    /// when no synchronous standby has it: after a restart, or when the process that waited for the
    /// standby was ended. This further transaction writes a lock, so its commit waits for a
    /// standby, which then has all earlier commits.
    fn confirm(&mut self) -> Result<(), DatabaseError> {
        self.connection.transaction(&[self.session.fence()]).map(drop)
    }
}

impl BatchLog for PostgresLog {
    fn wait_for_room(&self) {}

    fn write(&mut self, batch: &Batch) -> Result<Written, WriteError> {
        let error = match self.commit(batch) {
            Ok(n) => {
                self.shared.set_cut_off(User::Writer, false);
                if self.outage.end() {
                    info!("the database is available again");
                }
                self.is_in_doubt = false;
                self.shared.confirmed.add(Series::Jobs, n);
                if let Some(last) = batch.jobs.iter().map(|job| job.fixed.seq).max() {
                    self.shared.commit_up_to(last);
                }
                return Ok(Written::nothing(batch.jobs.len()));
            }
            Err(error) => error,
        };
        Err(match error {
            // The disk of the database is not that of this host, so nothing here can make room on
            // it.
            DatabaseError::Unavailable(_) | DatabaseError::Late | DatabaseError::NoSpace(_) => {
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
