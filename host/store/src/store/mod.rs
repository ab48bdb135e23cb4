//! The store's public calls: each one decides in memory, leaves the writing to the writer thread,
//! and returns when the change is in the journal.

mod catalog_usage_webhooks;
mod job_actions;
mod jobs;
pub(crate) mod postgres;
mod search;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gristmill_core::billing::usage::Metered;
use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::job::loss::HostLoss;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{ChunkPage, JobRecord, Lease, Outcome};
use gristmill_core::job::state::JobEvent;
use gristmill_core::job::state::JobStatus;
use gristmill_core::limits::SMALL_RESULT_BYTES;
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use gristmill_core::signals::Signals;
use gristmill_core::store::{Fenced, StoreError};
use gristmill_core::time::{Clock, Timestamp};
use rusqlite::ErrorCode;
use tokio::sync::oneshot;

use crate::checkpoint::database::Database;
use crate::commit::journal_log::JournalLog;
use crate::commit::log::BatchLog;
use crate::commit::writer::Writer;
use crate::damage::Damage;
use crate::error::{OpenError, Recovery};
use crate::failure;
use crate::format::pages;
use crate::format::pages::Query;
use crate::format::payload::{Found, InputBytes, Kind, Payload, PayloadKey};
use crate::journal::Journal;
use crate::medium::{Medium, PayloadLocation};
use crate::postgres::beat::Beat;
use crate::recover;
use crate::settings::Settings;
use crate::shared::{READ_INLINE_BYTES_MAX, Reserved, Shared, answer, damaged};
use crate::state::decide::{End, Finished};
use crate::state::index::Index;
use crate::state::job::Job;
use crate::state::owners::Owners;
use crate::state::requests::{DbRequest, Located};
use crate::state::room::is_large;
use crate::sync::Mutex;
use crate::sync::thread::{self, JoinHandle};
use crate::tables::db::Db;
use crate::tables::schema::Schema;

/// Results of at most so many bytes are written on a nearly full disk too: 16 MiB for the most jobs
/// that can run at one time.
const UNBOUNDED_RESULT_BYTES: usize = 4 << 10;

/// Interval at which chunks and results that wait for disk space look for it again.
const DISK_SPACE_PAUSE: Duration = Duration::from_millis(100);

/// Keeps jobs and the catalog in a data directory: a journal in front of an SQLite file.
///
/// Dropping it without [`close`](gristmill_core::store::JobStore::close) is like a crash:
/// everything acknowledged is on disk, other changes may not be, and the next start repairs the
/// directory. The drop waits for the store's threads: for at most one batch and a part of a
/// checkpoint.
#[derive(Debug)]
pub struct Store {
    pub(crate) shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Shows signs of life in a database that hosts share.
    beat: Option<Beat>,
}

impl Store {
    /// Opens the store in `dir`, which is created if it does not exist, and repairs the state after
    /// an end without [`close`](gristmill_core::store::JobStore::close). Blocks; takes about two
    /// seconds for a million jobs that are not archived, and reads the whole database after such an
    /// end.
    ///
    /// # Errors
    /// [`OpenError`] names the reason, such as that another process uses the directory.
    pub fn open(
        dir: &Path,
        clock: Arc<dyn Clock>,
        signals: Arc<Signals>,
        settings: Settings,
    ) -> Result<(Self, Recovery), OpenError> {
        Self::open_as(dir, clock, signals, settings, Schema::PRODUCT)
    }

    /// Opens the store as a program with another schema does, for tests of upgrades.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    #[cfg(feature = "testing")]
    pub fn open_with_schema(
        dir: &Path,
        clock: Arc<dyn Clock>,
        signals: Arc<Signals>,
        settings: Settings,
        schema: Schema,
    ) -> Result<(Self, Recovery), OpenError> {
        Self::open_as(dir, clock, signals, settings, schema)
    }

    fn open_as(
        dir: &Path,
        clock: Arc<dyn Clock>,
        signals: Arc<Signals>,
        settings: Settings,
        schema: Schema,
    ) -> Result<(Self, Recovery), OpenError> {
        let mut db = Db::open(dir, settings.secrets_key.as_deref(), schema)?;
        let (journal, uncheckpointed) =
            Journal::open(&dir.join("journal"), db.journal, settings.journal_bounds())?;
        let upgraded = db.upgrade().map_err(|error| match error.sqlite_error_code() {
            // An upgrade is the first step that reads all rows.
            Some(ErrorCode::DatabaseCorrupt) => {
                let (file, details) = (db.file.clone(), error.to_string());
                Damage { file, offset: None, details }.into()
            }
            _ => OpenError::from(error),
        })?;
        let (mut index, end) = recover::load(
            &db,
            &journal,
            &uncheckpointed,
            Owners::new(settings.disk_space.clone(), settings.owners_max()),
            clock.now(),
        )?;
        drop(uncheckpointed);
        let mut recovery = Recovery { was_clean: db.was_clean, upgraded, ..Recovery::default() };
        let now = clock.now();
        if let (Some(max), Some(seen_at)) = (settings.clock_jump_max_ms, db.seen_at) {
            let jobs = index.overdue(seen_at, now);
            let is_ahead = now.millis_since(seen_at) > max && jobs > 0;
            if is_ahead || seen_at.millis_since(now) > max {
                return Err(OpenError::ClockJumped { seen_at, now, jobs });
            }
        }
        index.repair(HostLoss::Crash, settings.loss_bounds, now, &mut recovery);
        db.watch_space(settings.disk_space.clone());
        index.begin_epoch(db.begin_life(journal.end().segment, now)?);
        let (shard, seal, journal) = (db.shard, db.seal.clone(), Arc::new(journal));
        let log = JournalLog::new(journal.clone(), end, seal.clone(), settings.disk_space.clone());
        settings.disk_space.owe(journal.backlog_bytes());
        let medium = (journal.clone() as Arc<dyn Medium>, seal);
        let shared = Arc::new(Shared::new(shard, clock, signals, settings, index, medium));
        let database = Database::new(shared.clone(), journal, db);
        Ok((Self::start(shared, log, || database.start())?, recovery))
    }

    /// Starts the threads: first that of the medium, since the writer may wait for it.
    pub(crate) fn start(
        shared: Arc<Shared>,
        log: impl BatchLog + 'static,
        start_medium: impl FnOnce() -> Result<JoinHandle<()>, OpenError>,
    ) -> Result<Self, OpenError> {
        let store = Self { shared: shared.clone(), threads: Mutex::default(), beat: None };
        let medium = start_medium()?;
        store.threads.lock().push(medium);
        let mut writer = Writer::new(shared, log);
        // On a separate thread: the writer may wait for the medium, and a thread of an
        // asynchronous runtime must not wait.
        let drained = thread::scope(|scope| scope.spawn(|| writer.drain()).join());
        match drained {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(OpenError::Repair("the writer panicked".to_owned())),
        }
        let writer = writer.start()?;
        store.threads.lock().push(writer);
        Ok(store)
    }

    /// Reads payloads by row from the database.
    async fn read_payloads(
        &self,
        seqs: Vec<u64>,
        kind: Kind,
    ) -> Result<Vec<Found<Payload>>, StoreError> {
        self.shared.ask(|answer| DbRequest::Payloads { seqs, kind, answer }).await
    }

    /// Reads a payload from the journal; `None` when it has moved to the database.
    async fn read_place(
        &self,
        seq: u64,
        kind: Kind,
        location: PayloadLocation,
    ) -> Result<Option<Payload>, StoreError> {
        let Some(bytes) = self.shared.read_at(location).await? else { return Ok(None) };
        let payload = match kind {
            Kind::Input => InputBytes::read(&bytes, &self.shared.seal, seq),
            Kind::Output => Some(Payload { body: Json::from_stored(bytes), s3_config: None }),
        };
        payload
            .map(Some)
            .ok_or_else(|| damaged(format!("the stored input of row {seq} is damaged")))
    }

    /// Reads a payload, wherever it is; `None` when its job was deleted.
    async fn read_payload(
        &self,
        key: PayloadKey,
        location: Option<PayloadLocation>,
    ) -> Result<Option<Payload>, StoreError> {
        if let Some(payload) = self.shared.payloads.get(key) {
            return Ok(Some(payload));
        }
        let (seq, kind) = (key.seq(), key.kind());
        if let Some(location) = location
            && let Some(payload) = self.read_place(seq, kind, location).await?
        {
            return Ok(Some(payload));
        }
        let found = self.read_payloads(vec![seq], kind).await?.pop().unwrap_or(Ok(None));
        let payload = found.map_err(damaged)?;
        if let Some(payload) = &payload {
            self.shared.payloads.insert(key, payload.clone());
        }
        Ok(payload)
    }

    /// The text of a payload, as [`read_payload`](Self::read_payload) finds it.
    async fn read_body(
        &self,
        key: PayloadKey,
        location: Option<PayloadLocation>,
    ) -> Result<Option<Json>, StoreError> {
        Ok(self.read_payload(key, location).await?.map(|payload| payload.body))
    }

    /// Adds to `begun` the further chunks of `query` that are in `pages` of the journal.
    async fn read_pages(
        &self,
        pages: Vec<(u64, PayloadLocation)>,
        query: Query,
        begun: ChunkPage,
    ) -> Result<ChunkPage, StoreError> {
        let bytes: u64 = pages.iter().map(|(_, location)| u64::from(location.len)).sum();
        let medium = self.shared.medium.clone();
        let read = move || pages::read(&*medium, &pages, &query, begun);
        let read = match bytes <= READ_INLINE_BYTES_MAX.into() {
            true => read(),
            false => tokio::task::spawn_blocking(read).await.map_err(|_| StoreError::Closed)?,
        };
        read.map_err(|error| self.shared.unreadable(&error))
    }

    /// Waits until the change is on disk; if it was not applied, until the earlier change that
    /// prevented it is on disk.
    async fn await_durable(
        &self,
        is_applied: bool,
        on_disk: oneshot::Receiver<()>,
    ) -> Result<Fenced, StoreError> {
        answer(on_disk).await?;
        Ok(fenced(is_applied))
    }
}

/// A record; for a long error also its key, and its position in the journal.
type FoundRecord = Option<(Box<JobRecord>, Option<(PayloadKey, Option<PayloadLocation>)>)>;

impl Drop for Store {
    fn drop(&mut self) {
        self.shared.end(None);
        for thread in self.threads.lock().drain(..) {
            // A panic of the thread was reported as fatal.
            let _ = thread.join();
        }
        self.shared.settings.disk_space.settle(self.shared.medium.backlog_bytes());
    }
}

impl Store {
    /// The endpoints that the store has any data of, except usage, with the number of their jobs.
    /// Endpoints that are being deleted are not among them.
    ///
    /// # Errors
    /// When the store is closed.
    pub fn endpoints(&self) -> Result<Vec<(EndpointId, u64)>, StoreError> {
        self.shared.read(|index, _| index.endpoints_with_jobs())
    }

    /// Gives back space of the disk in the background, if it is nearly full: deleted data leaves
    /// the journal and the tables. To be called after each measurement of a nearly full disk.
    pub fn give_back_space(&self) {
        self.shared.wake_medium();
    }

    /// Reserves room for bytes of a running job, and waits while the disk does not `admit` them:
    /// the rest of the reserve is for cancels, deletes and expiry, which make room. They would wait
    /// behind a write that found no space. `None` when the lease is not the current one.
    async fn reserve_for(
        &self,
        lease: Lease,
        bytes: usize,
        admits: impl Fn(&DiskSpaceGauge) -> bool,
    ) -> Result<Option<Reserved<'_>>, StoreError> {
        loop {
            let mut turn = None;
            if is_large(bytes) {
                turn = self.shared.turn_of(lease, bytes)?;
                if turn.is_none() {
                    return Ok(None);
                }
            }
            if let Some(reserved) = self.shared.reserve_if(bytes, turn, &admits).await? {
                return Ok(Some(reserved));
            }
            if !self.shared.change_live(|index, now| index.leased(lease, now).is_some())? {
                return Ok(None);
            }
            // Boxed: the future of the usual end stays small, and is copied for each job.
            Box::pin(tokio::time::sleep(DISK_SPACE_PAUSE)).await;
        }
    }

    /// Decides the end of an attempt. An attempt that has run no handler has no `metered`.
    async fn finish_now(
        &self,
        lease: Lease,
        outcome: Outcome,
        metered: Option<Metered>,
    ) -> Result<bool, StoreError> {
        let shared = &self.shared;
        let end = End::from(outcome);
        let mut wanted = end.len();
        let mut attempt = Some((end, metered));
        loop {
            let is_small = wanted <= UNBOUNDED_RESULT_BYTES;
            let admits = |disk_space: &DiskSpaceGauge| is_small || disk_space.admits_results();
            let Some(mut reserved) = self.reserve_for(lease, wanted, admits).await? else {
                return Ok(false);
            };
            let decided = shared.change(|index, now| {
                let (mut end, metered) = attempt.take()?;
                let results_max = shared.settings.result_bytes_max;
                if end.len() > SMALL_RESULT_BYTES
                    && let Err(full) = index.check_results(lease, end.len(), results_max, now)
                {
                    end = end.without_results(full);
                }
                // The size of a webhook is only known under the lock, where a caller must not wait.
                let needed = end.len() + index.webhook_bytes(lease, now);
                if needed > wanted {
                    wanted = needed;
                    attempt = Some((end, metered));
                    return None;
                }
                let finished = index.finish(lease, end, metered, reserved.take_room(), now);
                if finished.is_some() {
                    reserved.hand_over();
                }
                Some(finished)
            })?;
            let Some(finished) = decided else { continue };
            let is_applied = finished.is_some();
            if let Some(Finished { seq, unsent: Some(body) }) = finished {
                let key = PayloadKey::Output(seq, lease.claim);
                shared.payloads.insert(key, Payload { body, s3_config: None });
            }
            return Ok(is_applied);
        }
    }

    /// Reads a job, in memory or in its archived row. `look` returns `None` for a job that the
    /// caller may not see.
    async fn look<T>(
        &self,
        id: JobId,
        look: impl Fn(&Index, &Job, Timestamp) -> Option<T>,
    ) -> Result<Option<T>, StoreError> {
        loop {
            let found = self.shared.read(|index, now| match index.find(id) {
                Some((_, job)) => Some(look(index, job, now)),
                // The usual case of an unknown id costs the database's thread nothing.
                None if !index.has_archived() => Some(None),
                None => None,
            })?;
            if let Some(found) = found {
                return Ok(found);
            }
            let locate = |answer| DbRequest::Locate { id, answer };
            match self.shared.ask(locate).await?.map_err(damaged)? {
                Located::Archived(row) => {
                    return self.shared.read(|index, now| look(index, &row.job, now));
                }
                Located::InMemory => {}
                Located::Nowhere => return Ok(None),
            }
        }
    }

    /// The status of a job that clients of the endpoint can see.
    async fn status(
        &self,
        endpoint: &EndpointId,
        id: JobId,
    ) -> Result<Option<JobStatus>, StoreError> {
        self.look(id, |index, job, now| {
            let row = job.visible_at(now).filter(|_| index.is_job_of(endpoint, job, now))?;
            row.status
        })
        .await
    }

    /// Runs `change` when memory has the job, or when the job does not exist or is not `wanted`: an
    /// archived job is put back into memory first. The caller wakes the writer.
    async fn change_job<T>(
        &self,
        id: JobId,
        is_wanted: impl Fn(&Index, &Job, Timestamp) -> bool,
        change: impl FnOnce(&mut Index, Timestamp) -> T,
    ) -> Result<T, StoreError> {
        let (mut change, mut is_absent) = (Some(change), false);
        loop {
            let changed = self.shared.change_live(|index, now| {
                let may_be_archived = index.has_archived() && !index.has(id) && !is_absent;
                let change = if may_be_archived { None } else { change.take() };
                change.map(|change| change(index, now))
            })?;
            if let Some(changed) = changed {
                return Ok(changed);
            }
            let found = self.look(id, |index, job, now| is_wanted(index, job, now).then_some(()));
            is_absent = found.await?.is_none();
            if !is_absent {
                self.shared.ask(|answer| DbRequest::Load { id, answer }).await??;
            }
        }
    }

    /// The number of ended jobs that have left memory: their rows in the tables are all that the
    /// store has of them.
    pub fn archived_jobs(&self) -> u64 {
        self.shared.index().archived_jobs()
    }

    /// The record of a job, with an error that may be cut, and the position of the whole error if
    /// it is cut.
    async fn find_record(
        &self,
        endpoint: &EndpointId,
        id: JobId,
    ) -> Result<FoundRecord, StoreError> {
        self.look(id, |index, job, now| {
            let job = Some(job).filter(|job| index.is_job_of(endpoint, job, now))?;
            let row = job.visible_at(now)?;
            let mut record = job.record_of(row, endpoint)?;
            if record.status == JobStatus::InQueue {
                record.blocked = index.blocked(job, now);
            }
            let is_cut = record.error.as_deref().is_some_and(failure::is_cut);
            let error = is_cut.then(|| (job.output_key(row), job.payload_locations.output()));
            // Boxed: the answer passes through a dozen futures on its way to the client.
            Some((Box::new(record), error))
        })
        .await
    }

    /// Decides an event after which a running job waits again; the receiver resolves when it, or
    /// the change that won the race, is on disk.
    fn requeue_now(
        &self,
        lease: Lease,
        event: JobEvent,
    ) -> Result<(bool, oneshot::Receiver<()>), StoreError> {
        let (ack, on_disk) = oneshot::channel();
        let (is_applied, notice) = self.shared.change(|index, now| {
            let Some((key, _)) = index.leased(lease, now) else {
                index.ack_id(lease.job, ack);
                return (false, None);
            };
            let decided = index.decide(key, event, now);
            index.ack_job(key, ack);
            match decided {
                Ok(notice) => (true, notice),
                Err(_) => (false, None),
            }
        })?;
        self.shared.notify_queued(notice.as_ref());
        Ok((is_applied, on_disk))
    }
}

fn fenced(is_applied: bool) -> Fenced {
    if is_applied { Fenced::Applied } else { Fenced::Stale }
}
