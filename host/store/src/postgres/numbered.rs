//! Transactions that have a [number](crate::postgres::numbers) of their thread's series.
//!
//! **Cost.** Two statements in each transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use gristmill_postgres::{Connection, DatabaseError, SqlQuery};

use crate::postgres::Postgres;
use crate::postgres::numbers::{PRUNE_EVERY, Series};
use crate::postgres::session::Session;

/// The right of a thread, other than the writer, to commit.
#[derive(Debug)]
pub(crate) struct Numbered {
    medium: Arc<Postgres>,
    session: Session,
    series: Series,
    /// The number of the newest transaction, whatever became of it.
    last: AtomicI64,
}

impl Numbered {
    pub(crate) fn new(medium: Arc<Postgres>, session: Session, series: Series) -> Self {
        Self { medium, session, series, last: AtomicI64::new(0) }
    }

    /// Runs statements as one transaction of the session. Only one thread at a time may call this.
    pub(crate) fn transaction(
        &self,
        connection: &mut Connection,
        mut queries: Vec<SqlQuery<'_>>,
    ) -> Result<(), DatabaseError> {
        // Each transaction has a new number, also the repetition of another one, which may still be
        // carried out: if two had the same number, it would not show that only the second one is
        // missing.
        let n = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        if n % PRUNE_EVERY == 0 {
            queries.push(self.session.prune_commits(self.series, n - 1));
        }
        queries.push(self.session.log_number(self.series, n));
        queries.push(self.session.fence());
        connection.transaction(&queries)?;
        self.medium.confirmed.add(self.series, n);
        Ok(())
    }
}
