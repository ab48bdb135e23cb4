//! A host that may own a database: it looks for the host that does, and takes the database over when that
//! host has ended.
//!
//! **Safety** does not depend on the rules here: the begin of a session ends all others ([`session`]), and
//! the begin fails when the active host has shown a sign of life since it was judged.
//!
//! The rules keep hosts that work from being replaced:
//! * a host that closed its session in order is replaced at once;
//! * so is a host whose connection is closed, and whose address refuses connections: its process has ended;
//! * a host whose connection is closed, without a sign of life for [`SILENCE_MIN`], is replaced;
//! * a host whose connection is open, without a sign of life for [`FROZEN_MIN`], is paused or cut off: its
//!   connection is closed by force, and it is replaced.
//!
//! The candidate must itself have seen the database for as long as it counts the silence. Otherwise the
//! first host that reaches the database after an outage would replace the active host.
//!
//! [`session`]: super::session

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_core::depot::Depot;
use gristmill_core::id::ShardId;
use gristmill_core::time::Timestamp;

use crate::error::OpenError;
use crate::postgres::active_state::ActiveState;
use crate::postgres::connection::{Call, Connection, DatabaseError, Value};
use crate::postgres::depot::PostgresDepot;
use crate::postgres::meta;
use crate::postgres::schema;
use crate::postgres::session::{self, Begun, NotBegun, Predecessor, Session};
use crate::postgres::url::DatabaseUrl;
use crate::seal::Seal;

/// Silence after which a host without its connection counts as ended.
pub(super) const SILENCE_MIN: Duration = Duration::from_secs(3);

/// Silence after which a host counts as ended although its connection is open.
const FROZEN_MIN: Duration = Duration::from_secs(10);

/// Longest time between two looks of one uninterrupted observation.
const LOOK_GAP_MAX: Duration = Duration::from_secs(2);

/// Longest time to find out whether an address refuses connections.
const KNOCK_TIME_MAX: Duration = Duration::from_millis(300);

/// A connected host without a session.
#[derive(Debug)]
pub struct Candidate {
    url: DatabaseUrl,
    reader: Connection,
    shard: ShardId,
    seal: Arc<Seal>,
    /// When the uninterrupted observation of the database began, and its last look.
    observed: Option<(Instant, Instant)>,
    /// The connection that holds the lock, and when it was first seen with it.
    holder: Option<(i32, Instant)>,
}

/// What a look has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Another host is active.
    Taken(ActiveHost),
    /// No host is active: this one may begin.
    Free(Vacancy),
}

/// The active host of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActiveHost {
    /// The number of its session.
    pub session: u64,
    /// Where other hosts reach it.
    pub address: Option<SocketAddr>,
}

/// The state of a database without an active host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vacancy {
    predecessor: Option<Predecessor>,
    /// The connection that is closed by force.
    frozen: Option<i32>,
}

/// The newest session, as the database shows it.
#[derive(Clone, Copy)]
struct Newest {
    session: i64,
    is_alive: bool,
    address: Option<SocketAddr>,
    /// The time of its last sign of life, in microseconds, and the time since then.
    beat: Option<(i64, Duration)>,
}

/// A session that has begun.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) url: DatabaseUrl,
    pub(crate) shard: ShardId,
    pub(crate) seal: Arc<Seal>,
    pub(crate) session: Session,
    pub(crate) was_clean: bool,
    pub(crate) active_state: ActiveState,
    /// Holds the session's lock.
    pub(crate) reader: Connection,
}

impl Candidate {
    /// Connects to a database, makes or upgrades its tables, and checks the key file, which the first host
    /// creates. Blocks.
    ///
    /// # Errors
    /// [`OpenError`] names what is wrong with the database or the key.
    pub fn connect(url: &DatabaseUrl, key_file: &Path) -> Result<Self, OpenError> {
        let mut reader = Connection::new(url).map_err(OpenError::Thread)?;
        schema::prepare(&mut reader)?;
        let (shard, seal) = meta::read(&mut reader, key_file)?;
        let (url, seal) = (url.clone(), Arc::new(seal));
        Ok(Self { url, reader, shard, seal, observed: None, holder: None })
    }

    /// A key for this purpose, which all hosts of the database have.
    pub fn derived_key(&self, purpose: &str) -> [u8; 32] {
        self.seal.derived_key(purpose)
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
        let (newest, holder) = found.inspect_err(|_| self.observed = None)?;
        let now = Instant::now();
        let since = match self.observed {
            Some((since, last)) if now - last < LOOK_GAP_MAX => since,
            _ => {
                self.holder = None;
                now
            }
        };
        self.observed = Some((since, now));
        self.holder = holder.map(|pid| match self.holder {
            Some((known, since)) if known == pid => (pid, since),
            _ => (pid, now),
        });
        Ok(self.judge(newest, now - since, now))
    }

    /// What the newest session means to a candidate that has `observed` the database for this time.
    fn judge(&self, newest: Option<Newest>, observed: Duration, now: Instant) -> Seen {
        let Some(newest) = newest else {
            return Seen::Free(Vacancy { predecessor: None, frozen: None });
        };
        let Newest { session, is_alive, address, beat } = newest;
        // A session without signs of life is that of an earlier version, which had none.
        let silence = beat.map_or(Duration::MAX, |(_, silence)| silence);
        let is_over = !is_alive
            || match self.holder {
                Some((_, since)) => silence.min(observed).min(now - since) >= FROZEN_MIN,
                None => silence.min(observed) >= SILENCE_MIN || address.is_some_and(refuses),
            };
        if is_over {
            let frozen = self.holder.filter(|_| is_alive).map(|(pid, _)| pid);
            return Seen::Free(Vacancy { predecessor: Some(newest.as_predecessor()), frozen });
        }
        Seen::Taken(ActiveHost { session: session.unsigned_abs(), address })
    }

    fn newest(&mut self) -> Result<Option<Newest>, DatabaseError> {
        let sql = "SELECT session.session, is_alive, address, (extract(epoch FROM at) * 1000000)::bigint, \
             (extract(epoch FROM clock_timestamp() - at) * 1000)::bigint \
             FROM session LEFT JOIN beat ON beat.session = session.session \
             ORDER BY session.session DESC LIMIT 1";
        let rows = self.reader.query(&Call::new(sql, Vec::new()))?;
        Ok(rows.first().map(|row| {
            let silence = row.get::<_, Option<i64>>(4).map(|ms| ms.max(0).unsigned_abs());
            Newest {
                session: row.get(0),
                is_alive: row.get(1),
                address: row.get::<_, Option<&str>>(2).and_then(|address| address.parse().ok()),
                beat: row.get::<_, Option<i64>>(3).zip(silence.map(Duration::from_millis)),
            }
        }))
    }

    /// The process of the server whose connection holds the session's lock.
    fn find_holder(&mut self) -> Result<Option<i32>, DatabaseError> {
        let sql = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 \
             AND (classid::bigint << 32) | objid::bigint = $1::bigint \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        let rows = self.reader.query(&Call::new(sql, vec![Box::new(session::LOCK)]))?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    /// Begins a session, which ends that of the host before. Blocks.
    ///
    /// # Errors
    /// The candidate, to look again, when the host before has shown a sign of life, or another host was
    /// faster; and the reason when that was not expected.
    pub(crate) fn begin(
        mut self,
        vacancy: Vacancy,
        address: Option<SocketAddr>,
    ) -> Result<Opened, (Box<Self>, NotBegun)> {
        if let Some(pid) = vacancy.frozen {
            let values: Vec<Value<'_>> = vec![Box::new(pid)];
            let end = Call::new("SELECT pg_terminate_backend($1::integer)", values);
            if let Err(error) = self.reader.query(&end) {
                return Err((Box::new(self), error.into()));
            }
        }
        match Session::begin(&mut self.reader, vacancy.predecessor, address) {
            Ok(Begun { session, was_clean, confirmed_at }) => {
                let Self { url, reader, shard, seal, .. } = self;
                let active_state = ActiveState::since(confirmed_at);
                Ok(Opened { url, shard, seal, session, was_clean, active_state, reader })
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
        let rows = self.reader.query(&Call::new(sql, Vec::new()))?;
        let ms = rows.first().map_or(0, |row| row.get::<_, i64>(0).max(0).unsigned_abs());
        Ok(Timestamp::from_millis(ms))
    }

    /// The present state, for a host that does not wait for another one.
    pub(crate) fn vacancy(&mut self) -> Result<Vacancy, DatabaseError> {
        let predecessor = self.newest()?.map(|newest| newest.as_predecessor());
        Ok(Vacancy { predecessor, frozen: None })
    }
}

impl Newest {
    /// The session as the next one finds it, if it has not shown a further sign of life by then.
    fn as_predecessor(&self) -> Predecessor {
        let beat = self.beat.map(|(at, _)| at).filter(|_| self.is_alive);
        Predecessor { session: self.session, beat }
    }
}

/// Whether no process listens at this address of a machine that works.
fn refuses(address: SocketAddr) -> bool {
    let knocked = TcpStream::connect_timeout(&address, KNOCK_TIME_MAX);
    knocked.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}
