//! The right to write to a database.
//!
//! A store that opens a database begins a *session*, and ends all others in the same transaction.
//! From then on no transaction of an earlier session is committed: each of them locks the row of
//! its session, and finds that it has ended. The update that ends a session waits for a transaction
//! that is being committed, and the new session sees it. This needs no clock and no timeout.
//!
//! A second rule only prevents disturbance: an advisory lock, which the session holds on its
//! reader's connection. A store that cannot get the lock does not begin a session. The server
//! releases the lock when the connection ends, so the database of a killed host is free at once.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use gristmill_postgres::{Connection, DatabaseError, SqlQuery, Value};

use crate::postgres::active_state::BootTime;
use crate::postgres::numbers::{Numbers, Series};

/// The key of the advisory lock.
pub(super) const LOCK: i64 = 0x6772_6973_746d_696c;

/// Time for which an opening store waits for the lock: the server notices the end of a killed
/// host's connection some milliseconds later, or seconds on a busy machine.
const LOCK_TIME_MAX: Duration = Duration::from_secs(5);

const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// The right to write to a database, until another session begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Session {
    /// Grows with each session of the database.
    pub(crate) number: i64,
}

/// A session that has begun.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) session: Session,
    /// Whether the session before was closed in order, or there was none.
    pub(crate) was_clean: bool,
    /// From when on the session counts as confirmed.
    pub(crate) confirmed_at: BootTime,
    /// Has the lock.
    pub(crate) lock_holder: Backend,
}

/// A process of the server, which serves one connection. The server uses the number of an ended
/// process again, so the time of its start belongs to its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backend {
    pid: i32,
    /// Microseconds on the server's clock.
    started_at: i64,
}

/// The session before, as it was when it counted as ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Predecessor {
    pub(crate) session: i64,
    /// The time of its last sign of life, in microseconds; `None` when it was closed in order, or
    /// has shown none.
    pub(crate) beat: Option<i64>,
}

/// Why no session began.
#[derive(Debug)]
pub(crate) enum NotBegun {
    /// Another store has the database open, or has shown a sign of life.
    InUse,
    Failed(DatabaseError),
}

impl From<DatabaseError> for NotBegun {
    fn from(error: DatabaseError) -> Self {
        Self::Failed(error)
    }
}

/// Takes the advisory lock on this connection, and returns its process; `None` when another
/// connection has the lock.
pub(crate) fn try_lock(connection: &mut Connection) -> Result<Option<Backend>, DatabaseError> {
    let sql = "SELECT pg_try_advisory_lock($1::bigint), pid, \
         (extract(epoch FROM backend_start) * 1000000)::bigint \
         FROM pg_stat_activity WHERE pid = pg_backend_pid()";
    let rows = connection.query(&SqlQuery::new(sql, vec![Box::new(LOCK)]))?;
    let row = rows.first().filter(|row| row.get(0));
    Ok(row.map(|row| Backend { pid: row.get(1), started_at: row.get(2) }))
}

impl Backend {
    /// Ends the process, if it still runs, and waits for that, for a second at most. A role may end
    /// its own processes.
    pub(crate) fn end(self, connection: &mut Connection) -> Result<(), DatabaseError> {
        let sql = "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity WHERE pid = $1::integer \
             AND (extract(epoch FROM backend_start) * 1000000)::bigint = $2::bigint";
        let values: Vec<Value<'_>> = vec![Box::new(self.pid), Box::new(self.started_at)];
        connection.query(&SqlQuery::new(sql, values)).map(drop)
    }
}

impl Session {
    /// Begins a session on the reader's connection, and ends all others. Other hosts reach the new
    /// one at `address`.
    pub(crate) fn begin(
        connection: &mut Connection,
        predecessor: Option<Predecessor>,
        address: Option<SocketAddr>,
    ) -> Result<Begun, NotBegun> {
        let begun_at = Instant::now();
        let lock_holder = loop {
            if let Some(holder) = try_lock(connection)? {
                break holder;
            }
            if begun_at.elapsed() > LOCK_TIME_MAX {
                return Err(NotBegun::InUse);
            }
            std::thread::sleep(LOCK_PAUSE);
        };
        let newest = "SELECT session, is_clean FROM session ORDER BY session DESC LIMIT 1";
        let newest = connection.query(&SqlQuery::new(newest, Vec::new()))?;
        let newest = newest.first().map(|row| (row.get::<_, i64>(0), row.get::<_, bool>(1)));
        if newest.map(|(session, _)| session) != predecessor.map(|it| it.session) {
            return Err(NotBegun::InUse);
        }
        let (last, was_clean) = newest.unwrap_or((0, true));
        let session = Self { number: last + 1 };
        let queries = session.begin_queries(predecessor, address);
        let confirmed_at = BootTime::now();
        match connection.transaction(&queries) {
            Ok(_) => Ok(Begun { session, was_clean, confirmed_at, lock_holder }),
            // The session before has shown a sign of life since it was judged.
            Err(DatabaseError::Fenced) => Err(NotBegun::InUse),
            Err(error) => Err(error.into()),
        }
    }

    /// The statements that begin the session.
    pub(super) fn begin_queries(
        self,
        predecessor: Option<Predecessor>,
        address: Option<SocketAddr>,
    ) -> Vec<SqlQuery<'static>> {
        let mut queries = Vec::with_capacity(8);
        if let Some(Predecessor { session, beat: Some(beat) }) = predecessor {
            let end = "WITH ended AS (DELETE FROM beat WHERE session = $1::bigint \
                 AND (extract(epoch FROM at) * 1000000)::bigint = $2::bigint RETURNING 1) \
                 SELECT 1 / count(*) FROM ended";
            queries.push(SqlQuery::new(end, vec![Box::new(session), Box::new(beat)]));
        }
        let number = || Box::new(self.number);
        let address = address.map(|address| address.to_string());
        queries.extend([
            SqlQuery::new("UPDATE session SET is_alive = false WHERE is_alive", Vec::new()),
            SqlQuery::new("DELETE FROM beat", Vec::new()),
            SqlQuery::new("DELETE FROM commit_log", Vec::new()),
            SqlQuery::new("DELETE FROM session WHERE session < $1::bigint - 100", vec![Box::new(self.number - 1)]),
            SqlQuery::new(
                "INSERT INTO session (session, is_alive, is_clean) VALUES ($1::bigint, true, false)",
                vec![number()],
            ),
            SqlQuery::new(
                "INSERT INTO commit_log (session, n) VALUES ($1::bigint, 0)",
                vec![number()],
            ),
            SqlQuery::new(
                "INSERT INTO beat (session, address) VALUES ($1::bigint, $2::text)",
                vec![number() as Value<'_>, Box::new(address)],
            ),
        ]);
        queries
    }

    /// The last statement of each transaction: it fails when the session has ended. It writes the
    /// lock of a row, so the commit waits for a synchronous standby also when the transaction has
    /// changed nothing else.
    pub(crate) fn fence(self) -> SqlQuery<'static> {
        let sql = "SELECT 1 / count(*) FROM \
             (SELECT 1 FROM session WHERE session = $1::bigint AND is_alive FOR SHARE) AS alive";
        SqlQuery::new(sql, vec![Box::new(self.number)])
    }

    /// Records the number of a commit; adds no row when the commit before is missing.
    pub(crate) fn log_commit(self, n: i64) -> SqlQuery<'static> {
        let sql = "INSERT INTO commit_log (session, n) SELECT $1::bigint, $2::bigint WHERE EXISTS \
             (SELECT 1 FROM commit_log WHERE session = $1::bigint AND n = $2::bigint - 1)";
        SqlQuery::new(sql, vec![Box::new(self.number), Box::new(n)])
    }

    /// Records the number of a commit of another series, which may have gaps.
    pub(crate) fn log_number(self, series: Series, n: i64) -> SqlQuery<'static> {
        let sql = "INSERT INTO commit_log (session, n) VALUES ($1::bigint, $2::bigint)";
        SqlQuery::new(sql, vec![Box::new(series.key(self.number)), Box::new(n)])
    }

    /// Removes the records of the commits of a series before this one.
    pub(crate) fn prune_commits(self, series: Series, before: i64) -> SqlQuery<'static> {
        let sql = "DELETE FROM commit_log WHERE session = $1::bigint AND n < $2::bigint";
        SqlQuery::new(sql, vec![Box::new(series.key(self.number)), Box::new(before)])
    }

    /// The numbers of the newest commits; `None` when the session has ended.
    pub(crate) fn newest_commits(
        self,
        connection: &mut Connection,
    ) -> Result<Option<Numbers>, DatabaseError> {
        let sql = "SELECT coalesce((SELECT max(n) FROM commit_log WHERE session = $1::bigint), 0), \
             coalesce((SELECT max(n) FROM commit_log WHERE session = $2::bigint), 0), \
             coalesce((SELECT max(n) FROM commit_log WHERE session = $3::bigint), 0) \
             FROM session WHERE session = $1::bigint AND is_alive";
        let key = |series: Series| -> Value<'_> { Box::new(series.key(self.number)) };
        let rows = connection.query(&SqlQuery::new(sql, Series::ALL.map(key).into()))?;
        Ok(rows.first().map(|row| Numbers {
            jobs: row.get(0),
            catalog: row.get(1),
            components: row.get(2),
        }))
    }

    /// Ends the session in order: everything is committed.
    pub(crate) fn close(self, connection: &mut Connection) -> Result<(), DatabaseError> {
        let sql = "UPDATE session SET is_alive = false, is_clean = true \
             WHERE session = $1::bigint AND is_alive";
        connection.transaction(&[SqlQuery::new(sql, vec![Box::new(self.number)])]).map(drop)
    }
}
