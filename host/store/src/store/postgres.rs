//! Opening the store in a PostgreSQL database.

use std::net::SocketAddr;
use std::sync::Arc;

use gristmill_core::depot::Depot;
use gristmill_core::job::record::StoreEpoch;
use gristmill_core::signals::Signals;
use gristmill_core::time::Clock;
use gristmill_postgres::{Connection, DatabaseError, DatabaseUrl};

use crate::error::{OpenError, Recovery};
use crate::medium::Medium;
use crate::postgres::Postgres;
use crate::postgres::active_state::ActiveState;
use crate::postgres::beat::Beat;
use crate::postgres::candidate::{Candidate, Opened};
use crate::postgres::depot::PostgresDepot;
use crate::postgres::load::load;
use crate::postgres::log::PostgresLog;
use crate::postgres::numbered::Numbered;
use crate::postgres::numbers::Series;
use crate::postgres::observation::Vacancy;
use crate::postgres::reader::PostgresReader;
use crate::postgres::session::NotBegun;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::state::owners::Owners;
use crate::store::Store;
use crate::sync::thread;

/// A database whose active host this is.
#[derive(Debug)]
pub struct TakenOver {
    /// The jobs and the catalog.
    pub store: Store,
    /// The findings of the start.
    pub recovery: Recovery,
    /// The components.
    pub depot: Arc<dyn Depot>,
    /// Whether the host is still the active one.
    pub active_state: ActiveState,
    /// The number of the host's session.
    pub session: u64,
}

/// Why a host has not become active.
#[derive(Debug)]
pub enum NotTaken {
    /// The active host works or another host was faster, so without a reason; or the database does
    /// not work at present: look again.
    LookAgain(Box<Candidate>, Option<String>),
    /// The clock is far from the newest time that a host has recorded ([`OpenError::ClockJumped`]),
    /// and nothing was changed: look again when the clock is known to be right.
    ClockJumped(Box<Candidate>, OpenError),
    /// The database, or this host, needs attention.
    Failed(OpenError),
}

impl Store {
    /// Opens the store in the database at `url`, makes or upgrades its tables, and ends the session
    /// of the host that had it open before, unless that host is connected. Blocks; takes some
    /// seconds for a million jobs.
    ///
    /// `settings.secrets_key` names the file with the key of the stored secrets, which all hosts of
    /// a database share; the first one creates it.
    ///
    /// # Errors
    /// [`OpenError`] names the reason, such as that another host has the database open.
    pub fn open_postgres(
        url: &DatabaseUrl,
        clock: Arc<dyn Clock>,
        signals: Arc<Signals>,
        settings: Settings,
    ) -> Result<(Self, Recovery), OpenError> {
        on_own_thread(|| {
            let key_file = settings.secrets_key.as_deref().ok_or_else(|| {
                OpenError::Database(
                    "it needs the file of a key, which all of its hosts share".to_owned(),
                )
            })?;
            let mut candidate = Candidate::connect(url, key_file)?;
            let vacancy = candidate.vacancy()?;
            let opened = candidate.begin(vacancy, None).map_err(|(_, reason)| reason)?;
            let taken = Self::open_session(opened, clock, signals, settings)?;
            Ok((taken.store, taken.recovery))
        })
    }

    /// Takes a database over: begins a session, which ends that of the host before, and reads the
    /// jobs. Other hosts reach this one at `address`. Blocks, as above.
    ///
    /// With `settings.clock_jump_max_ms` the clock may differ from that of the database by so much
    /// at most. The two may be one clock, which is wrong: unless `settings.is_clock_synchronised`,
    /// the clock is also compared with the last sign of life of the host before. If it is ahead of
    /// that, the rows of all jobs are read once more.
    ///
    /// # Errors
    /// [`NotTaken`] says whether to look again.
    pub fn take_over(
        mut candidate: Candidate,
        vacancy: Vacancy,
        address: Option<SocketAddr>,
        clock: Arc<dyn Clock>,
        signals: Arc<Signals>,
        settings: Settings,
    ) -> Result<TakenOver, NotTaken> {
        if let Err(error) = check_clock(&mut candidate, &*clock, &settings) {
            return Err(match error {
                OpenError::DatabaseUnavailable(reason) => {
                    NotTaken::LookAgain(Box::new(candidate), Some(reason))
                }
                jumped @ OpenError::ClockJumped { .. } => {
                    NotTaken::ClockJumped(Box::new(candidate), jumped)
                }
                error => NotTaken::Failed(error),
            });
        }
        let opened =
            candidate.begin(vacancy, address).map_err(|(candidate, reason)| match reason {
                NotBegun::InUse => NotTaken::LookAgain(candidate, None),
                // A full disk of the database refuses what a new session writes; it is not this
                // host's fault.
                NotBegun::Failed(
                    error @ (DatabaseError::Unavailable(_) | DatabaseError::NoSpace(_)),
                ) => NotTaken::LookAgain(candidate, Some(error.to_string())),
                NotBegun::Failed(error) => NotTaken::Failed(error.into()),
            })?;
        let taken = on_own_thread(|| Self::open_session(opened, clock, signals, settings));
        taken.map_err(NotTaken::Failed)
    }

    fn open_session(
        mut opened: Opened,
        clock: Arc<dyn Clock>,
        signals: Arc<Signals>,
        settings: Settings,
    ) -> Result<TakenOver, OpenError> {
        let connect = || Connection::new(&opened.url).map_err(OpenError::Thread);
        let (writer, beating, parts) = (connect()?, connect()?, connect()?);
        let (session, active_state) = (opened.session, opened.active_state.clone());
        // Before the jobs are read, which may take longer than a host may be silent.
        let beat =
            Beat::start(beating, session, active_state.clone()).map_err(OpenError::Thread)?;
        let owners = Owners::new(settings.disk_space.clone(), settings.owners_max());
        let now = clock.now();
        let mut index = load(&mut opened.reader, &opened.seal, owners, now)?;
        let mut recovery = Recovery { was_clean: opened.was_clean, ..Recovery::default() };
        index.repair(opened.ended, settings.loss_bounds, now, &mut recovery);
        index.begin_epoch(StoreEpoch(u32::try_from(session.number).unwrap_or(u32::MAX)));
        let Opened { shard, seal, reader, lock_holder, .. } = opened;
        let postgres = Arc::new(Postgres::new(active_state.clone()));
        let medium = (postgres.clone() as Arc<dyn Medium>, seal.clone());
        let shared = Arc::new(Shared::new(shard, clock, signals, settings, index, medium));
        let log = PostgresLog::new(writer, postgres.clone(), seal, session);
        let numbered = |series| Numbered::new(postgres.clone(), session, series);
        let (to_catalog, to_components) = (numbered(Series::Catalog), numbered(Series::Components));
        let locked = (reader, lock_holder);
        let reader = PostgresReader::new(shared.clone(), postgres, locked, session, to_catalog);
        let mut store = Self::start(shared, log, || reader.start())?;
        store.beat = Some(beat);
        let depot = Arc::new(PostgresDepot::new(parts, to_components));
        let session = session.number.unsigned_abs();
        Ok(TakenOver { store, recovery, depot, active_state, session })
    }
}

/// Compares the clock with that of the database, and with the last sign of life of the host before.
/// This must precede the begin of a session, which deletes the sign of life.
fn check_clock(
    candidate: &mut Candidate,
    clock: &dyn Clock,
    settings: &Settings,
) -> Result<(), OpenError> {
    let Some(max) = settings.clock_jump_max_ms else { return Ok(()) };
    let database = candidate.database_time()?;
    let now = clock.now();
    if now.millis_since(database).max(database.millis_since(now)) > max {
        return Err(OpenError::ClocksDiffer { now, database });
    }
    if settings.is_clock_synchronised {
        return Ok(());
    }
    let Some(seen_at) = candidate.seen_at()? else { return Ok(()) };
    let is_ahead = now.millis_since(seen_at) > max;
    let jobs = if is_ahead { candidate.overdue(seen_at, now)? } else { 0 };
    if jobs > 0 || seen_at.millis_since(now) > max {
        return Err(OpenError::ClockJumped { seen_at, now, jobs });
    }
    Ok(())
}

/// The connections wait, and a thread of an asynchronous runtime must not.
fn on_own_thread<T: Send>(
    work: impl FnOnce() -> Result<T, OpenError> + Send,
) -> Result<T, OpenError> {
    let done = thread::scope(|scope| scope.spawn(work).join());
    done.unwrap_or_else(|_| Err(OpenError::Repair("the start panicked".to_owned())))
}
