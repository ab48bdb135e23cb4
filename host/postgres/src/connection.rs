//! A connection to the database, for a thread that may block.
//!
//! The statements of a transaction are sent together, so that it costs one round trip, and the
//! answer to each of them is checked: the `COMMIT` of a transaction that has failed succeeds, as a
//! `ROLLBACK`.
//!
//! **Bounds.** An operation takes at most [`ANSWER_TIME_MAX`], unless the connection has another
//! bound; then the connection is closed.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::Duration;

use futures::future::{join3, try_join_all};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Row, Statement};

use crate::server::ServerSettings;
use crate::tls::Tls;
use crate::url::DatabaseUrl;

/// Longest time of a commit or a query. A database that has stopped without closing its connections
/// counts as lost after it.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// Longest time to connect.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// Settings of each connection. All statements look rows up by their key. Without statistics, as in
/// a new database, the planner would read whole tables for that. One plan serves all executions of
/// a statement: a plan for each of them cost some 5 % of the jobs/s of two cores.
///
/// With those of TCP the server ends a connection some 15 s after the host, or the network to it,
/// has vanished. By default it keeps the connection and its locks for two hours. A Unix socket
/// ignores them.
const SETTINGS: &str = "SET search_path = gristmill; SET enable_seqscan = off; \
     SET plan_cache_mode = force_generic_plan; SET jit = off; \
     SET idle_in_transaction_session_timeout = '10s'; SET lock_timeout = '10s'; SET timezone = 'UTC'; \
     SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; \
     SET tcp_user_timeout = '15s'";

/// Begins a transaction that only reads. The server ends a statement that takes longer, so that
/// other statements on the connection wait no longer for it.
const BEGIN_READ: &str = "BEGIN READ ONLY; SET LOCAL statement_timeout = '10s'";

/// The codes, or their beginnings, of failures that pass, or that an operator can end while hosts
/// work: connections, resources, interventions, lock and deadlock timeouts, a server that is a
/// standby, and rights that are missing.
const PASSING: [&str; 8] = ["08", "53", "57", "55P03", "40", "25006", "25P03", "42501"];

/// A failed operation on the database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DatabaseError {
    /// There is no connection, or the server does not work at present, does not accept this host,
    /// or could lose commits. Whether a transaction was committed is unknown.
    #[error("the database is unavailable: {0}")]
    Unavailable(String),
    /// A query of [`Connection::query_in_time`] was ended by the server, which works.
    #[error("a query of the database took more than 10 s, or waited so long for a lock")]
    Late,
    /// The server's disk is full. Nothing was written.
    #[error("the database's disk is full: {0}")]
    NoSpace(String),
    /// Another host has taken the database over. Nothing was written, and nothing will be.
    #[error("another host has taken over the database")]
    Fenced,
    /// A row with the same key exists. Nothing was written.
    #[error("{0}")]
    Duplicate(String),
    /// The server does not accept the statement, or the connection's settings.
    #[error("{0}")]
    Refused(String),
}

/// A value of a statement.
pub type Value<'a> = Box<dyn ToSql + Sync + Send + 'a>;

/// A statement with its values.
pub struct SqlQuery<'a> {
    /// With a `$1` for each value.
    pub sql: &'static str,
    /// Its values.
    pub values: Vec<Value<'a>>,
}

impl Debug for SqlQuery<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.sql)
    }
}

impl<'a> SqlQuery<'a> {
    /// The statement with these values.
    pub fn new(sql: &'static str, values: Vec<Value<'a>>) -> Self {
        Self { sql, values }
    }
}

/// A connection that is opened when it is needed, and again after it was lost.
pub struct Connection {
    config: Config,
    tls: Tls,
    answer_time_max: Duration,
    /// Present until the drop.
    runtime: Option<Runtime>,
    open: Option<Open>,
}

struct Open {
    client: Client,
    statements: HashMap<&'static str, Statement>,
}

impl Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connection(open: {})", self.open.is_some())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A runtime must not wait for its tasks where the thread of another one drops it.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Connection {
    /// A connection that is not open yet.
    ///
    /// # Errors
    /// When the system has no resources for its event loop.
    pub fn new(url: &DatabaseUrl) -> std::io::Result<Self> {
        let mut config = url.config().clone();
        config.connect_timeout(CONNECT_TIME_MAX).application_name("gristmill");
        if config.get_hosts().len() > 1 {
            // After a failover the former primary may answer as a standby.
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        // A machine that has vanished closes no connection.
        config.keepalives_idle(Duration::from_secs(5)).tcp_user_timeout(Duration::from_secs(15));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let answer_time_max = ANSWER_TIME_MAX;
        let tls = url.tls().clone();
        Ok(Self { config, tls, answer_time_max, runtime: Some(runtime), open: None })
    }

    /// The same with another longest time of an operation.
    pub fn with_answer_time_max(mut self, answer_time_max: Duration) -> Self {
        self.answer_time_max = answer_time_max;
        self
    }

    /// Whether no connection is open, so that the next operation opens one.
    pub fn is_closed(&self) -> bool {
        self.open.as_ref().is_none_or(|open| open.client.is_closed())
    }

    /// Closes the connection; the next operation opens another one.
    pub fn close(&mut self) {
        self.open = None;
    }

    /// Runs `work` on the connection, which is opened first if it is closed. After a failure that
    /// leaves the connection in doubt, it is closed.
    fn run<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Open) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, DatabaseError> {
        if self.is_closed() {
            self.open = None;
            let runtime = self.runtime.as_ref().expect("a runtime until the drop");
            let connected = runtime.block_on(async {
                timeout(CONNECT_TIME_MAX, connect(&self.config, &self.tls)).await
            });
            self.open = Some(connected.map_err(|_| late())??);
        }
        self.run_open(work)
    }

    /// The same on a connection that is open: what `work` continues is lost with it.
    fn run_open<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Open) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, DatabaseError> {
        let runtime = self.runtime.as_ref().expect("a runtime until the drop");
        let answer_time_max = self.answer_time_max;
        let lost = || DatabaseError::Unavailable("the connection was lost".to_owned());
        let open = self.open.as_mut().ok_or_else(lost)?;
        let done = runtime.block_on(async { timeout(answer_time_max, work(open)).await });
        let done = done.map_err(|_| late()).and_then(|done| done.map_err(|error| classify(&error)));
        if matches!(done, Err(DatabaseError::Unavailable(_))) {
            self.open = None;
        }
        done
    }

    /// Runs statements as one transaction, and returns the numbers of their rows.
    pub fn transaction(&mut self, queries: &[SqlQuery<'_>]) -> Result<Vec<u64>, DatabaseError> {
        self.run(async |open| {
            open.prepare(queries).await?;
            let Open { client, statements } = open;
            let each = queries.iter().filter_map(|query| Some((statements.get(query.sql)?, query)));
            let each = each
                .map(async |(statement, query)| client.execute(statement, &values_of(query)).await);
            // The messages are sent in the order of the first polls.
            let (begun, done, committed) = join3(
                client.batch_execute("BEGIN"),
                try_join_all(each),
                client.batch_execute("COMMIT"),
            )
            .await;
            begun?;
            let rows = done?;
            committed?;
            Ok(rows)
        })
    }

    /// Begins a transaction of many steps. A connection that is lost ends it: no step is carried
    /// out on another one.
    pub fn begin(&mut self) -> Result<Transaction<'_>, DatabaseError> {
        self.script("BEGIN")?;
        Ok(Transaction { connection: self, is_over: false })
    }

    /// The rows of a query.
    pub fn query(&mut self, query: &SqlQuery<'_>) -> Result<Vec<Row>, DatabaseError> {
        self.run(async |open| {
            open.prepare(std::slice::from_ref(query)).await?;
            let Some(statement) = open.statements.get(query.sql) else { return Ok(Vec::new()) };
            open.client.query(statement, &values_of(query)).await
        })
    }

    /// The rows of a query that may read much. After 10 s the server ends it, and the connection
    /// stays open with its locks.
    ///
    /// # Errors
    /// [`DatabaseError::Late`] then.
    pub fn query_in_time(&mut self, query: &SqlQuery<'_>) -> Result<Vec<Row>, DatabaseError> {
        let found = self.run(async |open| match open.read(query).await {
            Err(error) if is_late(&error) => Ok(None),
            found => found.map(Some),
        })?;
        found.ok_or(DatabaseError::Late)
    }

    /// Runs statements without values, one after the other.
    pub fn script(&mut self, sql: &str) -> Result<(), DatabaseError> {
        self.run(async |open| open.client.batch_execute(sql).await)
    }
}

/// A transaction of many steps, which is undone unless it is committed.
#[derive(Debug)]
pub struct Transaction<'a> {
    connection: &'a mut Connection,
    is_over: bool,
}

impl Transaction<'_> {
    /// Carries out a statement, and returns the number of its rows.
    pub fn execute(&mut self, query: &SqlQuery<'_>) -> Result<u64, DatabaseError> {
        self.connection.run_open(async |open| {
            open.prepare(std::slice::from_ref(query)).await?;
            let Some(statement) = open.statements.get(query.sql) else { return Ok(0) };
            open.client.execute(statement, &values_of(query)).await
        })
    }

    /// Runs statements without values, one after the other.
    pub fn script(&mut self, sql: &str) -> Result<(), DatabaseError> {
        self.connection.run_open(async |open| open.client.batch_execute(sql).await)
    }

    /// Commits all steps. Each step must have succeeded.
    ///
    /// # Errors
    /// After [`DatabaseError::Unavailable`] the outcome is unknown.
    pub fn commit(mut self) -> Result<(), DatabaseError> {
        self.is_over = true;
        self.script("COMMIT")
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // The server undoes the transaction of a connection that ends.
            self.connection.close();
        }
    }
}

impl Open {
    async fn prepare(&mut self, queries: &[SqlQuery<'_>]) -> Result<(), tokio_postgres::Error> {
        for query in queries {
            if !self.statements.contains_key(query.sql) {
                let statement = self.client.prepare(query.sql).await?;
                self.statements.insert(query.sql, statement);
            }
        }
        Ok(())
    }

    /// The rows of a query, in a transaction of its own.
    async fn read(&mut self, query: &SqlQuery<'_>) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.prepare(std::slice::from_ref(query)).await?;
        let Self { client, statements } = self;
        let Some(statement) = statements.get(query.sql) else { return Ok(Vec::new()) };
        // The messages are sent in the order of the first polls, so that the transaction ends in
        // any case.
        let (begun, found, ended) = join3(
            client.batch_execute(BEGIN_READ),
            client.query(statement, &values_of(query)),
            client.batch_execute("COMMIT"),
        )
        .await;
        begun?;
        let found = found?;
        ended?;
        Ok(found)
    }
}

fn values_of<'a>(query: &'a SqlQuery<'_>) -> Vec<&'a (dyn ToSql + Sync)> {
    query.values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect()
}

/// Opens a connection. Each failure counts as one that passes, such as a wrong password while an
/// operator changes it: nothing has been written.
async fn connect(config: &Config, tls: &Tls) -> Result<Open, DatabaseError> {
    let refused = |error: tokio_postgres::Error| match classify(&error) {
        DatabaseError::Refused(reason) => DatabaseError::Unavailable(reason),
        other => other,
    };
    let (client, connection) = config.connect(tls.clone()).await.map_err(refused)?;
    tokio::spawn(connection);
    client.batch_execute(SETTINGS).await.map_err(refused)?;
    let rows = client.query(ServerSettings::SQL, &[]).await.map_err(refused)?;
    match rows.first().and_then(|row| ServerSettings::of(row).fault()) {
        Some(fault) => Err(DatabaseError::Unavailable(fault)),
        None => Ok(Open { client, statements: HashMap::new() }),
    }
}

fn late() -> DatabaseError {
    DatabaseError::Unavailable("it does not answer".to_owned())
}

/// Whether the server has ended a statement because it took too long.
fn is_late(error: &tokio_postgres::Error) -> bool {
    let codes = [SqlState::QUERY_CANCELED, SqlState::LOCK_NOT_AVAILABLE];
    error.code().is_some_and(|code| codes.contains(code))
}

fn classify(error: &tokio_postgres::Error) -> DatabaseError {
    let Some(found) = error.as_db_error() else {
        let details =
            std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
        return DatabaseError::Unavailable(details);
    };
    let (code, details) = (found.code(), format!("{} ({})", found.message(), found.code().code()));
    let is_of = |class: &str| code.code().starts_with(class);
    if *code == SqlState::DIVISION_BY_ZERO {
        // Only the check of the session divides.
        DatabaseError::Fenced
    } else if *code == SqlState::UNIQUE_VIOLATION {
        DatabaseError::Duplicate(details)
    } else if *code == SqlState::DISK_FULL {
        DatabaseError::NoSpace(details)
    } else if PASSING.iter().any(|class| is_of(class)) {
        DatabaseError::Unavailable(details)
    } else {
        DatabaseError::Refused(details)
    }
}
