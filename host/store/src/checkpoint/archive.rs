//! Ended jobs leave memory: their rows are marked as archived, and found in the tables from then
//! on.
//!
//! A sweep examines all jobs in memory, slice by slice between the other work of the database's
//! thread, and archives those that ended long enough ago and whose rows are complete: all their
//! changes are in checkpointed segments, and none of their payloads is in the journal. So neither a
//! checkpoint nor the replay of a start meets an archived job, except after a crash that lost the
//! commit of its return to memory; the replay then looks for its row ([`recover`](crate::recover)).
//!
//! Readers get an archived job from its row. A change first puts the job back into memory, where
//! all changes are decided. Expiry and the deletion of an endpoint delete archived rows without
//! that.
//!
//! **Cost.** A sweep takes some 50 ns for each job in memory, at most once a minute; an archived
//! job about 10 µs, once. If too many jobs wait only for a checkpoint, the oldest segments are
//! checkpointed early.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::job::retention::HistoryExcess;
use gristmill_core::sharing::disk_space::Shortage;
use gristmill_core::store::{StoreError, StoreFull};
use gristmill_core::time::Timestamp;
use rusqlite::Row;
use rusqlite::types::Type;
use tracing::error;

use crate::checkpoint::database::Database;
use crate::error::Failure;
use crate::format::EndpointKey;
use crate::format::archived::ArchivedJob;
use crate::format::payload::PayloadKey;
use crate::journal::Segment;
use crate::medium::SegmentId;
use crate::shared::damaged;
use crate::state::archived::ArchiveRule;
use crate::state::found_row::FoundRow;
use crate::state::index::{Index, Phase};
use crate::state::job::{Delivered, Job};
use crate::state::owners::Owners;
use crate::state::requests::{DeletedArchived, Located};
use crate::state::slab::JobKey;
use crate::tables::archived;
use crate::tables::archived::Deletable;
use crate::tables::db::Sync;
use crate::tables::jobs;
use crate::tables::sql;

/// Jobs that one transaction archives or deletes, and slots that are examined under one hold of the
/// lock.
const SLICE: usize = 256;

/// Slices without a job to archive that are examined before the thread looks for other work.
const EMPTY_SLICES_MAX: usize = 16;

/// Milliseconds after which an expiry that found no space on the disk is tried again.
const EXPIRY_PAUSE_MS: u64 = 1_000;

/// Reads a row of a job.
///
/// # Errors
/// Also when it has an invalid value.
pub(crate) fn read_row(row: &Row<'_>) -> rusqlite::Result<FoundRow> {
    let image = jobs::read(row)?;
    let mut owners = Owners::default();
    let job = Job::of_row(&image, &mut owners);
    let mut job = job.map_err(|reason| sql::invalid(0, Type::Null, reason))?;
    if let Some(chunks) = jobs::delivered(row)? {
        // Only a reader that is still there keeps the job in memory.
        job.rare_mut().delivered = Some(Delivered { chunks, at: Timestamp::from_millis(0) });
    }
    let owner = owners.name(job.owner).clone();
    Ok(FoundRow { job, owner })
}

/// An error of a row's content, for the caller that asked for the row. Others end the store.
pub(crate) fn content<T>(read: rusqlite::Result<T>) -> rusqlite::Result<Result<T, String>> {
    match read {
        Err(
            error @ (rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)),
        ) => Ok(Err(format!("the row of an ended job is damaged: {error}"))),
        read => read.map(Ok),
    }
}

impl Database {
    /// When the next sweep is due.
    pub(crate) fn sweep_due_in(&self, index: &Index) -> Option<Duration> {
        let now = (index.published_batches(), self.journal.checkpointed());
        // Marks are written to the tables, which may not grow on a disk that is nearly full.
        self.sweep.due_in(now).filter(|_| !self.is_tight())
    }

    /// A segment to checkpoint so that jobs can leave memory.
    pub(crate) fn early_checkpoint(&self) -> Option<Segment> {
        self.journal.ended_up_to(self.sweep.checkpoint_until)
    }

    /// A sweep may find more than before, since payloads have moved to the tables.
    pub(crate) fn payloads_moved(&mut self) {
        self.sweep.seen = None;
    }

    /// Carries out a step of the work with archived jobs that is due, between the slices of a
    /// checkpoint.
    pub(crate) fn archive_meanwhile(&mut self) -> Result<(), Failure> {
        let (due_in, deleting) = {
            let index = self.shared.index();
            (self.sweep_due_in(&index), index.deleting_with_archived())
        };
        if let Some(endpoint) = deleting {
            self.forget_archived(endpoint)?;
        }
        if due_in == Some(Duration::ZERO) { self.sweep() } else { Ok(()) }
    }

    /// Carries out a step of a sweep: archives some jobs.
    pub(crate) fn sweep(&mut self) -> Result<(), Failure> {
        self.remove_stale_marks()?;
        let checkpointed = self.journal.checkpointed();
        for _ in 0..EMPTY_SLICES_MAX {
            let (now, after_ms) = (self.shared.clock.now(), self.sweep.after_ms);
            let rule = ArchiveRule { now, after_ms, checkpointed };
            let (found, published) = {
                let index = self.shared.index();
                let from = self.sweep.next.unwrap_or(0);
                (index.archivable(from, SLICE, rule), index.published_batches())
            };
            if self.sweep.next.is_none() {
                self.sweep.begun_at = Instant::now();
                self.sweep.seen = Some((published, checkpointed));
                self.sweep.has_later = false;
                self.sweep.blocked.clear();
            }
            self.sweep.next = found.next;
            self.sweep.has_later |= found.has_later;
            for (segment, jobs) in found.blocked {
                *self.sweep.blocked.entry(segment).or_default() += jobs;
            }
            if self.sweep.next.is_none() {
                self.sweep.end();
            }
            if !found.jobs.is_empty() {
                let archived = self.archive(found.jobs, checkpointed);
                if archived.is_err() {
                    // The jobs of this slice stay: the next sweep meets them again.
                    self.sweep.seen = None;
                }
                return archived;
            }
            if self.sweep.next.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn archive(
        &mut self,
        jobs: Vec<(JobKey, ArchivedJob)>,
        checkpointed: SegmentId,
    ) -> Result<(), Failure> {
        // A crash may undo this commit: the next start loads the jobs.
        let next = self.db.transaction(Sync::Later, |db| {
            let rows: Vec<_> = jobs.iter().map(|(_, job)| job.clone()).collect();
            archived::mark(db, &rows)?;
            archived::next_purge_at(db)
        })?;
        {
            let mut index = self.shared.index();
            if index.phase() == Phase::Closed {
                // An index that has ended knows of no job.
                return Err(Failure::Ended);
            }
            self.sweep.changed = index.archive(jobs, checkpointed);
            index.set_next_archived_purge_at(next);
        }
        self.remove_stale_marks()
    }

    /// Removes the marks of jobs that have changed while they were archived: memory has them.
    /// Called before rows are deleted or written for another reason.
    pub(crate) fn remove_stale_marks(&mut self) -> Result<(), Failure> {
        if self.sweep.changed.is_empty() {
            return Ok(());
        }
        let changed = &self.sweep.changed;
        let next = self.db.transaction(Sync::Later, |db| {
            archived::unmark(db, changed)?;
            archived::next_purge_at(db)
        })?;
        self.shared.index().set_next_archived_purge_at(next);
        self.sweep.changed.clear();
        Ok(())
    }

    /// Whether memory has, or had, the job of a marked row: the mark could not be removed yet for
    /// lack of space.
    pub(super) fn has_stale_mark(&self, seq: u64) -> bool {
        self.sweep.changed.iter().any(|job| job.seq == seq)
    }

    /// Where the store has a job. Only this thread archives and loads jobs, so the answer is exact.
    pub(crate) fn locate(&self, id: JobId) -> Result<Result<Located, String>, Failure> {
        if self.shared.index().has(id) {
            return Ok(Ok(Located::InMemory));
        }
        Ok(match content(archived::find(self.db.connection(), id, read_row))? {
            Ok(Some(row)) if !self.has_stale_mark(row.job.seq) => {
                Ok(Located::Archived(Box::new(row)))
            }
            Ok(_) => Ok(Located::Nowhere),
            Err(details) => Err(details),
        })
    }

    /// Puts an archived job back into memory, unless its endpoint is being deleted, or the jobs
    /// in memory have reached their bound.
    pub(crate) fn load(&mut self, id: JobId) -> Result<Result<(), StoreError>, Failure> {
        let loaded = self.try_load(id);
        match loaded {
            Err(error) if error.is_no_space() => Ok(Err(StoreFull::Disk(Shortage::Bytes).into())),
            loaded => loaded,
        }
    }

    fn try_load(&mut self, id: JobId) -> Result<Result<(), StoreError>, Failure> {
        if self.shared.index().has(id) {
            return Ok(Ok(()));
        }
        self.remove_stale_marks()?;
        let row = match content(archived::find(self.db.connection(), id, read_row))? {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(Ok(())),
            Err(details) => return Ok(Err(damaged(details))),
        };
        {
            let mut index = self.shared.index();
            if !index.is_endpoint_known(row.job.endpoint) {
                return Ok(Ok(()));
            }
            if let Err(full) = index.check_load(&row) {
                return Ok(Err(full.into()));
            }
        }
        // A crash may undo this commit, and not the change that follows: the replay of a start
        // looks for the row of a job that is not in memory.
        let next = self.db.transaction(Sync::Later, |db| {
            archived::unmark(db, &[row.archived()])?;
            archived::next_purge_at(db)
        })?;
        let now = self.shared.clock.now();
        let mut index = self.shared.index();
        if index.phase() == Phase::Closed {
            return Err(Failure::Ended);
        }
        index.load(row, now);
        index.set_next_archived_purge_at(next);
        drop(index);
        self.shared.wake_writer();
        Ok(Ok(()))
    }

    /// Deletes archived jobs whose time is over, up to a number. On stable storage when this
    /// returns. Returns the time of the next one.
    pub(crate) fn expire_archived(
        &mut self,
        now: Timestamp,
        count_max: usize,
    ) -> Result<Timestamp, Failure> {
        match self.delete_due(now, count_max) {
            Err(error) if error.is_no_space() => return Ok(now.plus_millis(EXPIRY_PAUSE_MS)),
            done => done?,
        }
        Ok(self.shared.index().next_archived_purge_at())
    }

    fn delete_due(&mut self, now: Timestamp, count_max: usize) -> Result<(), Failure> {
        self.remove_stale_marks()?;
        let db = self.db.connection();
        let rows = archived::due(db, now.as_millis(), count_max)?;
        self.delete_archived(&rows, Sync::Now, None)
    }

    /// Deletes some of the oldest archived jobs of an endpoint, no more than exceed the bounds of
    /// its history. Returns their number; 0 also when the disk has no space for the deletion.
    pub(crate) fn trim_archived(
        &mut self,
        name: &EndpointId,
        mut excess: HistoryExcess,
    ) -> Result<usize, Failure> {
        let key = self.shared.index().endpoint(name).map(|(key, _)| key);
        let Some(key) = key else { return Ok(0) };
        let trimmed = self.remove_stale_marks().and_then(|()| {
            let mut rows = archived::oldest_of_endpoint(self.db.connection(), key, SLICE)?;
            rows.retain(|row| {
                let is_excess = !excess.is_none();
                // The sums do not change for a damaged row.
                if let Some(job) = &row.job {
                    excess.delete_job(job.kept);
                }
                is_excess
            });
            // A loss of power may undo the deletion: the next call repeats it.
            self.delete_archived(&rows, Sync::Later, None)?;
            Ok(rows.len())
        });
        match trimmed {
            Err(error) if error.is_no_space() => Ok(0),
            trimmed => trimmed,
        }
    }

    /// Deletes those of the jobs that are archived and belong to the endpoint. On stable storage
    /// when this returns. A damaged row stays until the end of its time.
    pub(crate) fn delete_of_endpoint(
        &mut self,
        name: &EndpointId,
        ids: &[JobId],
    ) -> Result<Result<DeletedArchived, StoreError>, Failure> {
        let deleted = self.try_delete_of_endpoint(name, ids);
        match deleted {
            Err(error) if error.is_no_space() => Ok(Err(StoreFull::Disk(Shortage::Bytes).into())),
            deleted => deleted.map(Ok),
        }
    }

    fn try_delete_of_endpoint(
        &mut self,
        name: &EndpointId,
        ids: &[JobId],
    ) -> Result<DeletedArchived, Failure> {
        self.remove_stale_marks()?;
        let (key, (in_memory, others)) = {
            let index = self.shared.index();
            // A job that is named twice has one row, and its bytes are counted once.
            let ids: HashSet<JobId> = ids.iter().copied().collect();
            let ids: (Vec<_>, Vec<_>) = ids.into_iter().partition(|id| index.has(*id));
            (index.endpoint(name).map(|(key, _)| key), ids)
        };
        let now = self.shared.clock.now();
        let mut rows = Vec::new();
        for id in others {
            let row = archived::deletable(self.db.connection(), id)?;
            // A job whose time is over does not exist for clients; its row is deleted on its own.
            let is_wanted = |row: &Deletable| {
                let job = row.job.as_ref();
                job.is_some_and(|job| Some(job.endpoint) == key && job.purge_at > now.as_millis())
            };
            rows.extend(row.filter(is_wanted));
        }
        self.delete_archived(&rows, Sync::Now, None)?;
        Ok(DeletedArchived { deleted: rows.len() as u64, in_memory })
    }

    /// Deletes some archived jobs of an endpoint that is being deleted; the last ones together with
    /// a sync.
    pub(crate) fn forget_archived(&mut self, endpoint: EndpointKey) -> Result<(), Failure> {
        self.remove_stale_marks()?;
        let db = self.db.connection();
        let mut rows = archived::of_endpoint(db, endpoint, SLICE + 1)?;
        let is_last = rows.len() <= SLICE;
        rows.truncate(SLICE);
        // The journal must not forget the endpoint before its rows are deleted for good.
        let sync = if is_last { Sync::Now } else { Sync::Later };
        self.delete_archived(&rows, sync, is_last.then_some(endpoint))?;
        if is_last {
            self.shared.index().end_of_archived(endpoint);
            self.shared.wake_writer();
        }
        Ok(())
    }

    /// Deletes these rows, which are the last ones of `ended`.
    fn delete_archived(
        &mut self,
        rows: &[Deletable],
        sync: Sync,
        ended: Option<EndpointKey>,
    ) -> Result<(), Failure> {
        if rows.is_empty() && ended.is_none() {
            return Ok(());
        }
        let next = self.db.transaction(sync, |db| {
            archived::delete(db, rows)?;
            ended.map(|endpoint| archived::delete_sums(db, endpoint)).transpose()?;
            archived::next_purge_at(db)
        })?;
        for row in rows.iter().filter(|row| row.job.is_none()) {
            error!(
                "the row {} of an ended job was damaged, and is deleted at the end of its time. The sums of \
                 ended jobs are too high since then: `gristmill check` lists them, and `gristmill repair` \
                 computes them again",
                row.seq
            );
        }
        {
            let mut index = self.shared.index();
            if index.phase() == Phase::Closed {
                return Err(Failure::Ended);
            }
            index.remove_archived(rows.iter().filter_map(|row| row.job.as_ref()));
            index.set_next_archived_purge_at(next);
        }
        self.has_unused_pages = true;
        for row in rows {
            self.shared.payloads.remove(PayloadKey::Input(row.seq));
        }
        let ids: Vec<_> = rows.iter().filter_map(|row| row.id).collect();
        self.shared.notify_changed(&ids);
        Ok(())
    }
}
