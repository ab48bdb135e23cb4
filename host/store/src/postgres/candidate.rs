//! A host that may own a database: it looks for the host that does, and takes the database over
//! when that host has ended.
//!
//! **Safety** does not depend on the rules here: the begin of a session ends all others
//! ([`session`]), and the begin fails when the active host has shown a sign of life since it was
//! judged.
//!
//! The rules keep hosts that work from being replaced:
//! * a host that closed its session in order is replaced at once;
//! * so is a host whose connection is closed, and whose address refuses connections: its process
//!   has ended;
//! * a host whose connection is closed, without a sign of life for [`SILENCE_MIN`], is replaced;
//! * a host whose connection is open, without a sign of life for [`FROZEN_MIN`], is paused or cut
//!   off: its connection is closed by force, and it is replaced.
//!
//! [`observation`](super::observation) has the rules.
//!
//! [`session`]: super::session
//! [`SILENCE_MIN`]: super::observation::SILENCE_MIN
//! [`FROZEN_MIN`]: super::observation::FROZEN_MIN

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_core::depot::Depot;
use gristmill_core::id::ShardId;
use gristmill_core::job::loss::HostLoss;
use gristmill_core::time::Timestamp;
use gristmill_postgres::{Connection, DatabaseError, DatabaseUrl, SqlQuery, Value};

use crate::error::OpenError;
use crate::postgres::active_state::ActiveState;
use crate::postgres::depot::PostgresDepot;
use crate::postgres::load::{self, NotLoaded};
use crate::postgres::meta;
use crate::postgres::observation::{Newest, Observation, Seen, Vacancy};
use crate::postgres::schema;
use crate::postgres::session::{self, Backend, Begun, NotBegun, Session};
use crate::seal::Seal;

/// Longest time to find out whether an address refuses connections.
const KNOCK_TIME_MAX: Duration = Duration::from_millis(300);

/// A connected host without a session.
#[derive(Debug)]
pub struct Candidate {
    url: DatabaseUrl,
    reader: Connection,
    shard: ShardId,
    seal: Arc<Seal>,
    /// `None` after a look that failed.
    observation: Option<Observation>,
}

/// A session that has begun.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) url: DatabaseUrl,
    pub(crate) shard: ShardId,
    pub(crate) seal: Arc<Seal>,
    pub(crate) session: Session,
    pub(crate) was_clean: bool,
    /// The end of the host before: a host that was paused or cut off has not ended.
    pub(crate) ended: HostLoss,
    pub(crate) active_state: ActiveState,
    /// Holds the session's lock.
    pub(crate) reader: Connection,
    pub(crate) lock_holder: Backend,
}

impl Candidate {
    /// Connects to a database, makes or upgrades its tables, and checks the key file, which the
    /// first host creates. Blocks.
    ///
    /// # Errors
    /// [`OpenError`] names what is wrong with the database or the key.
    pub fn connect(url: &DatabaseUrl, key_file: &Path) -> Result<Self, OpenError> {
        let mut reader = Connection::new(url).map_err(OpenError::Thread)?;
        schema::prepare(&mut reader)?;
        let (shard, seal) = meta::read(&mut reader, key_file)?;
        let (url, seal) = (url.clone(), Arc::new(seal));
        Ok(Self { url, reader, shard, seal, observation: None })
    }

    /// A key for this purpose from each key in the file, the first one first. All hosts of the
    /// database have one of them.
    pub fn derived_keys(&self, purpose: &str) -> Vec<[u8; 32]> {
        self.seal.derived_keys(purpose)
    }

    /// The components in the database, for reading.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn depot(&self) -> io::Result<Arc<dyn Depot>> {
        Ok(Arc::new(PostgresDepot::reading(Connection::new(&self.url)?)))
    }

    /// Looks for the active host. Blocks, for half a second at most when the database
    /// works.
    ///
    /// # Errors
    /// [`OpenError::DatabaseUnavailable`] while the database cannot be reached.
    pub fn look(&mut self) -> Result<Seen, OpenError> {
        let found = self.newest().and_then(|newest| Ok((newest, self.find_holder()?)));
        let before = self.observation.take();
        let (newest, holder) = found?;
        let seen = Observation::look(before, newest.as_ref(), holder, Instant::now());
        self.observation = Some(seen);
        Ok(seen.judge(newest.as_ref(), refuses))
    }

    fn newest(&mut self) -> Result<Option<Newest>, DatabaseError> {
        let sql = "SELECT session.session, is_alive, address, (extract(epoch FROM at) * 1000000)::bigint \
             FROM session LEFT JOIN beat ON beat.session = session.session \
             ORDER BY session.session DESC LIMIT 1";
        let rows = self.reader.query(&SqlQuery::new(sql, Vec::new()))?;
        Ok(rows.first().map(|row| Newest {
            session: row.get(0),
            is_alive: row.get(1),
            address: row.get::<_, Option<&str>>(2).and_then(|address| address.parse().ok()),
            beat: row.get(3),
        }))
    }

    /// The process of the server whose connection holds the session's lock.
    fn find_holder(&mut self) -> Result<Option<i32>, DatabaseError> {
        let sql = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 \
             AND (classid::bigint << 32) | objid::bigint = $1::bigint \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        let rows = self.reader.query(&SqlQuery::new(sql, vec![Box::new(session::LOCK)]))?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    /// Begins a session, which ends that of the host before. Blocks.
    ///
    /// # Errors
    /// The candidate, to look again, when the host before has shown a sign of life, or another host
    /// was faster; and the reason when that was not expected.
    pub(crate) fn begin(
        mut self,
        vacancy: Vacancy,
        address: Option<SocketAddr>,
    ) -> Result<Opened, (Box<Self>, NotBegun)> {
        if let Some(pid) = vacancy.frozen {
            let values: Vec<Value<'_>> = vec![Box::new(pid)];
            let end = SqlQuery::new("SELECT pg_terminate_backend($1::integer)", values);
            if let Err(error) = self.reader.query(&end) {
                return Err((Box::new(self), error.into()));
            }
        }
        let ended = match vacancy.frozen {
            Some(_) => HostLoss::Unreachable,
            None => HostLoss::Crash,
        };
        match Session::begin(&mut self.reader, vacancy.predecessor, address) {
            Ok(Begun { session, was_clean, confirmed_at, lock_holder }) => {
                let Self { url, reader, shard, seal, .. } = self;
                let active_state = ActiveState::since(confirmed_at);
                Ok(Opened {
                    url,
                    shard,
                    seal,
                    session,
                    was_clean,
                    ended,
                    active_state,
                    reader,
                    lock_holder,
                })
            }
            Err(reason) => {
                // Without the lock, which it may hold.
                self.reader.close();
                Err((Box::new(self), reason))
            }
        }
    }

    /// The time of the database's clock.
    pub(crate) fn database_time(&mut self) -> Result<Timestamp, DatabaseError> {
        let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
        let rows = self.reader.query(&SqlQuery::new(sql, Vec::new()))?;
        let ms = rows.first().map_or(0, |row| row.get::<_, i64>(0).max(0).unsigned_abs());
        Ok(Timestamp::from_millis(ms))
    }

    /// The newest time that a host has recorded: the last sign of life of the newest session.
    /// `None` in a new database. The session's begin does not count beside it: the clock may have
    /// been put right since.
    pub(crate) fn seen_at(&mut self) -> Result<Option<Timestamp>, DatabaseError> {
        let sql = "SELECT (extract(epoch FROM coalesce(at, began_at)) * 1000)::bigint \
             FROM session LEFT JOIN beat ON beat.session = session.session \
             ORDER BY session.session DESC LIMIT 1";
        let rows = self.reader.query(&SqlQuery::new(sql, Vec::new()))?;
        let seen_at = rows.first().map(|row| row.get::<_, i64>(0).max(0).unsigned_abs());
        Ok(seen_at.map(Timestamp::from_millis))
    }

    /// Number of jobs that have not ended and would be deleted at `now`. Reads the row of each job.
    pub(crate) fn overdue(&mut self, seen_at: Timestamp, now: Timestamp) -> Result<u64, NotLoaded> {
        load::overdue(&mut self.reader, seen_at, now)
    }

    /// The present state, for a host that does not wait for another one.
    pub(crate) fn vacancy(&mut self) -> Result<Vacancy, DatabaseError> {
        let predecessor = self.newest()?.map(|newest| newest.as_predecessor());
        Ok(Vacancy { predecessor, frozen: None })
    }
}

/// Whether no process listens at this address of a machine that works.
fn refuses(address: SocketAddr) -> bool {
    let knocked = TcpStream::connect_timeout(&address, KNOCK_TIME_MAX);
    knocked.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}
