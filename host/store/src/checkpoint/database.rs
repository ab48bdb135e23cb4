//! The one thread that uses the database: it checkpoints the journal, and answers requests for data
//! in the tables. Submitting and finishing jobs does not wait for it, unless it has fallen far
//! behind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_core::runtime::is_no_space;
use gristmill_core::sharing::disk_space::{Shortage, SpaceWait};
use gristmill_core::store::{StoreError, StoreFull};
use tracing::{error, info, warn};

use crate::checkpoint::bill_expiry::BillExpiry;
use crate::checkpoint::rotation::Rotation;
use crate::checkpoint::sweep::Sweep;
use crate::error::{Failure, OpenError};
use crate::format::EndpointKey;
use crate::journal::{Gaps, Journal, MoveRoom, Segment};
use crate::medium::SegmentId;
use crate::shared::{Shared, Waited};
use crate::state::index::{Index, Phase};
use crate::state::requests::DbRequest;
use crate::sync::thread::{Builder, JoinHandle};
use crate::sync::{self, MutexGuard};
use crate::tables::catalog;
use crate::tables::chunks;
use crate::tables::db::{Db, Sync};
use crate::tables::delivery;
use crate::tables::job_action;
use crate::tables::payloads;

/// After this time without work, unused space of the file is released step by step.
pub(crate) const IDLE: Duration = Duration::from_secs(1);

/// After this time, a write that found no space is tried again.
const SPACE_PAUSE: Duration = Duration::from_millis(250);

/// The interval at which the newest time is recorded, before other work that waits.
const NOTE_TIME: Option<Duration> =
    if sync::HAS_TIME { Some(Duration::from_secs(600)) } else { None };

/// The database, with its pending work.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) shared: Arc<Shared>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) db: Db,
    /// The search for ended jobs that leave memory.
    pub(crate) sweep: Sweep,
    /// When the newest time was recorded last.
    noted_at: Instant,
    /// The segment that was compacted last. The remaining held payloads there belong to jobs that
    /// are being removed, and are released with them.
    compacted: Option<SegmentId>,
    /// The newest segment of the journal that the tables have recorded.
    noted: SegmentId,
    /// Set while a write waits for space.
    space_wait: Option<Stalled>,
    /// Whether the last step has answered requests.
    has_answered: bool,
    /// Whether the tables may have pages without content.
    pub(crate) has_unused_pages: bool,
    /// When the writer last began a segment because the disk is nearly full.
    segment_begun_at: Option<Instant>,
    pub(crate) bill_expiry: BillExpiry,
    /// The rotation of the key of stored secrets that is being carried out.
    pub(crate) rotation: Option<Rotation>,
    #[cfg(test)]
    pub(crate) watch: Option<(std::sync::mpsc::Sender<String>, std::sync::mpsc::Receiver<()>)>,
}

/// The answer to the caller of a write, unless the write has failed for another reason than lack of
/// space.
fn or_full(written: rusqlite::Result<()>) -> Result<Result<(), StoreError>, Failure> {
    match written.map_err(Failure::from) {
        Err(error) if error.is_no_space() => Ok(Err(StoreFull::Disk(Shortage::Bytes).into())),
        written => written.map(Ok),
    }
}

/// A write that waits for space.
#[derive(Debug)]
struct Stalled {
    /// Whether a caller waits for it.
    is_answer: bool,
    _guard: SpaceWait,
}

/// The next work.
enum DatabaseWork {
    Answer(Vec<DbRequest>),
    Checkpoint(Segment),
    Compact(SegmentId),
    /// Return unused bytes of the journal to the file system.
    MakeHoles(Gaps),
    /// Delete archived jobs of an endpoint that is being deleted.
    Forget(EndpointKey),
    /// Archive ended jobs.
    Sweep,
    /// Carry out the next step of a rotation of the key.
    Rotate,
    /// Record the newest segment, and the time.
    Note(SegmentId),
    Tidy,
    End(Phase),
}

impl Database {
    pub(crate) fn new(shared: Arc<Shared>, journal: Arc<Journal>, db: Db) -> Self {
        let noted = journal.end().segment;
        let bill_expiry = BillExpiry::default();
        let rotation = Rotation::to_complete(db.word);
        let sweep = Sweep::new(shared.settings.archive_after_ms);
        Self {
            shared,
            journal,
            db,
            sweep,
            noted_at: Instant::now(),
            compacted: None,
            noted,
            space_wait: None,
            has_answered: false,
            has_unused_pages: true,
            segment_begun_at: None,
            bill_expiry,
            rotation,
            #[cfg(test)]
            watch: None,
        }
    }

    /// Starts the thread. It ends when the index is closed, or drained.
    pub(crate) fn start(self) -> Result<JoinHandle<()>, OpenError> {
        let builder = Builder::new().name("store-database".to_owned());
        builder.spawn(move || self.run()).map_err(OpenError::Thread)
    }

    fn run(self) {
        let shared = self.shared.clone();
        let end = catch_unwind(AssertUnwindSafe(|| self.serve()));
        shared.end(match end {
            Ok(Ok(()) | Err(Failure::Ended)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("the database's thread panicked".to_owned()),
        });
    }

    fn serve(mut self) -> Result<(), Failure> {
        let mut is_tidy = false;
        loop {
            let work = self.next_work(is_tidy);
            let is_answer = matches!(work, DatabaseWork::Answer(_) | DatabaseWork::MakeHoles(_));
            is_tidy = false;
            let done = match work {
                DatabaseWork::Answer(requests) => self.answer_all(requests),
                DatabaseWork::Checkpoint(segment) => self.checkpoint(&segment),
                DatabaseWork::Compact(segment) => self.compact(segment).map(|()| {
                    self.compacted = Some(segment);
                    self.payloads_moved();
                }),
                DatabaseWork::MakeHoles(gaps) => self.make_holes(&gaps),
                DatabaseWork::Forget(endpoint) => self.forget_archived(endpoint),
                DatabaseWork::Sweep => self.sweep(),
                DatabaseWork::Rotate => self.rotate(),
                DatabaseWork::Note(segment) => self.note(segment),
                DatabaseWork::Tidy => self.tidy().map(|is_done| is_tidy = is_done),
                DatabaseWork::End(Phase::Drained) => {
                    let (end, now) = (self.journal.end(), self.shared.clock.now());
                    return Ok(self.db.close(end, now)?);
                }
                DatabaseWork::End(_) => return Ok(()),
            };
            match done.and_then(|()| Ok(self.db.checkpoint_wal(self.is_tight())?)) {
                Ok(()) => self.record_success(is_answer),
                Err(error) if error.is_no_space() => self.record_no_space(&error, is_answer),
                Err(error) => return Err(error),
            }
        }
    }

    fn note(&mut self, segment: SegmentId) -> Result<(), Failure> {
        self.db.note(segment, self.shared.clock.now())?;
        self.noted = segment;
        self.noted_at = Instant::now();
        Ok(())
    }

    fn tidy(&mut self) -> Result<bool, Failure> {
        let is_tight = self.is_tight();
        self.has_unused_pages = self.db.tidy(is_tight)?;
        self.journal.trim(is_tight)?;
        Ok(!self.has_unused_pages)
    }

    /// Bytes that could not be returned for lack of space are tried again by the next start.
    fn make_holes(&self, gaps: &Gaps) -> Result<(), Failure> {
        match self.journal.make_holes(gaps) {
            Err(error) if is_no_space(&error) => {
                warn!("unused bytes of the journal cannot be returned to the disk: {error}");
                Ok(())
            }
            done => Ok(done?),
        }
    }

    /// Whether the disk is nearly full.
    pub(crate) fn is_tight(&self) -> bool {
        self.shared.settings.disk_space.is_tight()
    }

    /// The next step that gives back space while the disk is nearly full. Deletions are in the
    /// journal first, and free the space of the tables only when their segment is checkpointed:
    /// without new work that segment would never be long enough.
    fn relief(&mut self, index: &mut Index) -> Option<DatabaseWork> {
        if !self.is_tight() {
            return None;
        }
        if let Some(segment) = self.journal.ended_to_checkpoint() {
            return Some(DatabaseWork::Checkpoint(segment));
        }
        // A copy that is being made keeps the file as it is.
        if self.has_unused_pages && !self.db.is_frozen() {
            return Some(DatabaseWork::Tidy);
        }
        // A rotation asks for segments of its own.
        if self.rotation.is_some() {
            return None;
        }
        let is_due = self.segment_begun_at.is_none_or(|begun_at| begun_at.elapsed() >= IDLE);
        if is_due && self.journal.has_open_frames() {
            if index.take_new_segment().is_some() {
                self.segment_begun_at = Some(Instant::now());
                return self.journal.ended_to_checkpoint().map(DatabaseWork::Checkpoint);
            }
            self.shared.wake_writer();
        }
        None
    }

    /// The failed write has changed nothing. It is tried again after a pause, in which readers are
    /// served.
    fn record_no_space(&mut self, error: &Failure, is_answer: bool) {
        if self.space_wait.is_none() {
            error!("the database waits for space on the disk: {error}");
            let guard = self.shared.settings.disk_space.wait_for_space();
            self.space_wait = Some(Stalled { is_answer, _guard: guard });
        }
        // Overwrites pages that the tables have already, so the log need not grow for the retry. If
        // the tables have to grow for it, it fails like the write.
        let _ = self.db.checkpoint_wal(true);
        let shared = self.shared.clone();
        let mut index = shared.index();
        if index.phase() != Phase::Closed {
            shared.wait_medium(&mut index, Some(SPACE_PAUSE));
        }
    }

    /// Records a success. An answer that only reads does not show that there is space again, nor
    /// does a hole, which takes no space.
    fn record_success(&mut self, is_answer: bool) {
        if self.space_wait.take_if(|stalled| stalled.is_answer || !is_answer).is_some() {
            info!("the database continues: the disk has space again");
        }
    }

    /// Waits for work.
    fn next_work(&mut self, is_tidy: bool) -> DatabaseWork {
        let shared = self.shared.clone();
        let mut index = shared.index();
        loop {
            if index.phase() == Phase::Closed {
                return DatabaseWork::End(Phase::Closed);
            }
            // A checkpoint answers requests between its slices, and requests that never end would
            // keep it from its start. While a write waits for space, readers come first.
            let has_answered = std::mem::take(&mut self.has_answered);
            if has_answered
                && self.space_wait.is_none()
                && let Some(segment) = self.journal.next_to_checkpoint()
            {
                return DatabaseWork::Checkpoint(segment);
            }
            let newest = self.journal.end().segment;
            // Requests that never end must not keep the newest time from being recorded either.
            let is_note_due = NOTE_TIME.is_some_and(|time| self.noted_at.elapsed() >= time);
            if is_note_due && self.space_wait.is_none() {
                return DatabaseWork::Note(newest);
            }
            let requests = index.take_requests();
            if !requests.is_empty() {
                self.has_answered = true;
                return DatabaseWork::Answer(requests);
            }
            if index.phase() == Phase::Drained {
                return DatabaseWork::End(Phase::Drained);
            }
            // While a write waits for space, a checkpoint may give back some, and this cannot.
            if newest != self.noted && self.space_wait.is_none() {
                return DatabaseWork::Note(newest);
            }
            // First, since it is the only step that never takes space.
            if self.is_tight()
                && let Some(gaps) = self.journal.next_gaps().unwrap_or_else(|error| {
                    warn!("unused bytes of the journal are not returned to the disk: {error}");
                    None
                })
            {
                return DatabaseWork::MakeHoles(gaps);
            }
            if let Some(segment) = self.journal.next_to_checkpoint() {
                return DatabaseWork::Checkpoint(segment);
            }
            if let Some(work) = self.relief(&mut index) {
                return work;
            }
            if let Some(endpoint) = index.deleting_with_archived() {
                return DatabaseWork::Forget(endpoint);
            }
            if let Some(segment) = self.early_checkpoint() {
                return DatabaseWork::Checkpoint(segment);
            }
            // A rotation writes inputs twice before their space is free: it waits for space.
            let has_space = self.shared.settings.disk_space.admits_work();
            if let Some(rotation) = self.rotation.as_mut().filter(|_| has_space) {
                if rotation.is_ready(&mut index) {
                    return DatabaseWork::Rotate;
                }
                self.shared.wake_writer();
            }
            let disk_space = &self.shared.settings.disk_space;
            let room = self.is_tight().then(|| MoveRoom {
                free: disk_space.free_bytes(),
                above_reserve: disk_space.bytes_above_reserve(),
            });
            let sparse = self.journal.to_compact(room);
            if let Some(segment) = sparse.filter(|segment| self.compacted != Some(*segment)) {
                return DatabaseWork::Compact(segment);
            }
            let sweep_in = self.sweep_due_in(&index);
            if sweep_in == Some(Duration::ZERO) {
                return DatabaseWork::Sweep;
            }
            // A rotation asks the writer again if its disk was full.
            let idle = if is_tidy && self.rotation.is_none() {
                NOTE_TIME.map(|time| time.saturating_sub(self.noted_at.elapsed()))
            } else {
                Some(IDLE)
            };
            let wait = idle.map(|idle| sweep_in.map_or(idle, |sweep_in| sweep_in.min(idle)));
            if self.shared.wait_medium(&mut index, wait) == Waited::Idle && wait == idle {
                return if is_tidy { DatabaseWork::Note(newest) } else { DatabaseWork::Tidy };
            }
        }
    }

    /// Waits until the batch that is being written is committed; answers requests meanwhile.
    pub(crate) fn wait_for_commit<'a>(
        &mut self,
        mut index: MutexGuard<'a, Index>,
        shared: &'a Shared,
    ) -> Result<MutexGuard<'a, Index>, Failure> {
        if index.phase() == Phase::Closed {
            return Err(Failure::Ended);
        }
        let requests = index.take_requests();
        if requests.is_empty() {
            index.await_commit();
            shared.wait_medium(&mut index, None);
            return Ok(index);
        }
        drop(index);
        self.answer_all(requests)?;
        Ok(shared.index())
    }

    /// Answers the present requests.
    pub(crate) fn serve_requests(&mut self) -> Result<(), Failure> {
        let requests = self.shared.index().take_requests();
        self.answer_all(requests)
    }

    fn answer_all(&mut self, requests: Vec<DbRequest>) -> Result<(), Failure> {
        let mut no_space = Ok(());
        for request in requests {
            match self.answer(request) {
                Err(error) if error.is_no_space() => no_space = Err(error),
                done => done?,
            }
        }
        no_space
    }

    fn answer(&mut self, request: DbRequest) -> Result<(), Failure> {
        let db = self.db.connection();
        // A dropped receiver means that the caller does not need the answer any more.
        match request {
            DbRequest::Payloads { seqs, kind, answer } => {
                let read = |&seq: &u64| payloads::get(db, &self.db.seal, seq, kind);
                let found: rusqlite::Result<_> = seqs.iter().map(read).collect();
                let _ = answer.send(found?);
            }
            DbRequest::Chunks { seq, query, answer } => {
                let _ = answer.send(chunks::get(db, seq, &query)?);
            }
            DbRequest::Locate { id, answer } => drop(answer.send(self.locate(id)?)),
            DbRequest::Load { id, answer } => drop(answer.send(self.load(id)?)),
            DbRequest::Search { search, before, found, answer } => {
                drop(answer.send(self.search(&search, before, found)?));
            }
            DbRequest::ExpireArchived { now, count_max, answer } => {
                let next = self.expire_archived(now, count_max)?;
                let _ = answer.send(next);
            }
            DbRequest::TrimArchived { endpoint, excess, answer } => {
                let _ = answer.send(self.trim_archived(&endpoint, excess)?);
            }
            DbRequest::DeleteArchived { endpoint, ids, answer } => {
                drop(answer.send(self.delete_of_endpoint(&endpoint, &ids)?));
            }
            DbRequest::PutAction { action, answer } => {
                let put = self.db.transaction(Sync::Now, |db| job_action::put(db, &action));
                let _ = answer.send(or_full(put)?);
            }
            DbRequest::DeleteAction { id, answer } => {
                let deleted = self.db.transaction(Sync::Later, |db| job_action::delete(db, &id));
                let _ = answer.send(or_full(deleted)?);
            }
            DbRequest::Actions { answer } => drop(answer.send(job_action::load(db)?)),
            DbRequest::DeliveryBody { id, answer } => {
                let _ = answer.send(delivery::body(db, id)?);
            }
            DbRequest::Catalog { answer } => {
                let _ = answer.send(catalog::read(db, &self.db.seal)?);
            }
            DbRequest::WriteCatalog(rows, answer) => {
                let deleted = self.shared.index().numbers_of_deleted(&rows);
                let written = self.db.write_catalog(&rows, &deleted);
                let _ = answer.send(or_full(written)?);
            }
            DbRequest::Usage { query, answer, .. } => match self.usage(&query) {
                Ok(rows) => drop(answer.send(Ok(rows))),
                // The newest usage must be in the table, and has no room there.
                Err(error) if error.is_no_space() => {
                    drop(answer.send(Err(StoreFull::Disk(Shortage::Bytes).into())));
                    return Err(error);
                }
                Err(error) => return Err(error),
            },
            DbRequest::StoreUsage => self.store_usage().inspect_err(|error| {
                if error.is_no_space() {
                    self.shared.index().push_request(DbRequest::StoreUsage);
                }
            })?,
            DbRequest::Backup { with_secrets_key, answer } => {
                let _ = answer.send(self.backup(with_secrets_key)?);
            }
            DbRequest::Rotate { answer } => self.begin_rotation(answer)?,
            #[cfg(test)]
            DbRequest::WatchRotation { steps, go } => self.watch = Some((steps, go)),
            #[cfg(test)]
            DbRequest::JobRows { answer } => {
                let count = "SELECT (SELECT count(*) FROM job) + (SELECT count(*) FROM input)
                     + (SELECT count(*) FROM output) + (SELECT count(*) FROM chunk)";
                let rows: i64 = db.query_row(count, [], |row| row.get(0))?;
                let _ = answer.send(rows.unsigned_abs());
            }
        }
        Ok(())
    }
}
