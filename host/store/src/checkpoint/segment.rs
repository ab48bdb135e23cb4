//! Checkpoints: copies the live data of the journal's oldest segment into the tables.
//!
//! The frames of the segment name the jobs that have changed in it. For each of them the newest
//! visible state is written, which may come from a later segment; for a deleted job the checkpoint
//! only deletes rows that the database may have. Small payloads are copied, and large ones stay
//! where they are until [compaction](crate::checkpoint::compaction). When the whole segment is
//! copied, the database records this and syncs, and the journal may overwrite the segment. After an
//! earlier crash, the checkpoint begins again at the segment's start.
//!
//! Cost: one read of the segment, and about 10 µs for each remaining job. It runs on the database's
//! thread, in slices, and serves readers between them. Small frames are written in groups: each
//! transaction writes whole pages to the write-ahead log, so that one for each small frame would
//! write a hundred times the bytes of its jobs.

use std::collections::HashSet;
use std::io;

use gristmill_core::id::JobId;
use gristmill_core::webhook::delivery::DeliveryId;
use rusqlite::Connection;

use crate::checkpoint::database::Database;
use crate::damage::damaged;
use crate::error::Failure;
use crate::format::decode;
use crate::format::image::{BatchImage, FixedImage, JobImage, JobLocations, StateImage};
use crate::format::payload::Kind;
use crate::journal::Segment;
use crate::journal::frame::{Frame, Frames};
use crate::medium::{PayloadLocation, SegmentId};
use crate::state::index::{Index, Phase};
use crate::state::job::{Job, JobRow, Stored};
use crate::state::slab::JobKey;
use crate::tables::chunks;
use crate::tables::db::Sync;
use crate::tables::deleting;
use crate::tables::delivery;
use crate::tables::idempotency;
use crate::tables::jobs::{self, Counted};
use crate::tables::payloads;
use crate::tables::schedules;
use crate::tables::sql::integer;
use crate::tables::usage;

/// Jobs in one transaction.
const SLICE: usize = 256;

/// Bytes of frames after which no further frame is added to a group: some hundred small jobs.
const GROUP_BYTES: usize = 256 << 10;

/// The writes for one job.
struct JobWrites<'a> {
    seq: u64,
    key: Option<JobKey>,
    change: RowChange<'a>,
    clears_result: bool,
    payloads: Vec<(Kind, PayloadLocation)>,
    pages: &'a [(u64, PayloadLocation)],
    /// The frame with the payloads.
    frame: &'a Frame<'a>,
}

/// A job's entry of a frame.
#[derive(Clone, Copy)]
struct Entry<'a> {
    image: &'a JobImage<'a>,
    locations: &'a JobLocations,
    frame: &'a Frame<'a>,
}

enum RowChange<'a> {
    Insert(&'a JobImage<'a>, &'a FixedImage<'a>, JobRow, Counted),
    /// With the time of the job's deletion.
    Update(JobRow, u64),
    Delete(Stored),
    /// The row has been written already.
    Nothing,
}

/// The journal cannot be read, while the database is being written.
fn unreadable(error: io::Error) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(error.into())
}

/// Writes the content of a frame other than jobs.
pub(crate) fn write_rest(
    db: &Connection,
    image: &BatchImage<'_>,
    locations: &[JobLocations],
    frame: &Frame<'_>,
) -> rusqlite::Result<()> {
    for (key, name) in &image.endpoints {
        let sql = "INSERT OR IGNORE INTO endpoint (seq, name, completed, failed, retried) \
             VALUES (?1, ?2, 0, 0, 0)";
        db.prepare_cached(sql)?.execute((key, name))?;
    }
    for (key, [completed, failed, retried]) in &image.counts {
        let sql = "UPDATE endpoint SET completed = ?2, failed = ?3, retried = ?4 WHERE seq = ?1";
        let counts = (key, integer(*completed), integer(*failed), integer(*retried));
        db.prepare_cached(sql)?.execute(counts)?;
    }
    for row in &image.usage {
        usage::put(db, row)?;
    }
    for (job, locations) in image.jobs.iter().zip(locations) {
        if let Some(idempotency) = &job.idempotency {
            idempotency::put(db, job.seq, job.endpoint, &job.id, idempotency)?;
        }
        if let Some(new) = &job.delivery {
            let body = locations.body.map(|location| frame.payload(location)).transpose();
            delivery::put(db, new, body.map_err(unreadable)?.as_deref())?;
        }
    }
    for after in &image.attempts {
        delivery::put(db, after, None)?;
    }
    for id in &image.dropped_deliveries {
        delivery::delete(db, DeliveryId(*id))?;
    }
    for key in &image.forgotten {
        db.prepare_cached("DELETE FROM endpoint WHERE seq = ?1")?.execute([key])?;
        deleting::unmark(db, *key)?;
    }
    if let Some(last) = image.dropped_records_up_to {
        idempotency::forget(db, last)?;
    }
    for (schedule, note) in &image.schedules {
        schedules::put(db, *schedule, *note)?;
    }
    Ok(())
}

/// The progress in a segment.
#[derive(Default)]
struct Progress {
    /// Jobs whose rows were written.
    written: HashSet<u64>,
    last_seq: u64,
    /// Bytes that the tables were owed for the groups that are complete.
    owed: u64,
}

/// The next frames, which are written together: up to [`GROUP_BYTES`], and the rest of the last
/// one.
fn next_group<'a>(frames: &mut Frames<'a>) -> io::Result<Vec<Frame<'a>>> {
    let (mut group, mut bytes) = (Vec::new(), 0);
    while bytes < GROUP_BYTES
        && let Some(frame) = frames.next()?
    {
        bytes += frame.encoded_batch().len() + frame.payloads.len as usize;
        group.push(frame);
    }
    Ok(group)
}

impl Database {
    /// Copies the live data of a segment that is not written any more.
    pub(crate) fn checkpoint(&mut self, segment: &Segment) -> Result<(), Failure> {
        self.remove_stale_marks()?;
        let id = segment.header.id;
        let end = segment.end.ok_or_else(|| damaged("a segment without an end"))?;
        let mut frames = Frames::of_checked(&segment.file, segment.header, end)?;
        let mut progress = Progress::default();
        loop {
            let group = next_group(&mut frames)?;
            if group.is_empty() {
                break;
            }
            self.checkpoint_group(id, &group, &mut progress)?;
        }
        if frames.at() != end {
            return Err(damaged("a segment can no longer be read to its end").into());
        }
        self.drop_idempotency_rows(progress.last_seq)?;
        self.db.set_checkpointed(id)?;
        let settled = self.journal.set_checkpointed(id);
        self.shared.settings.disk_space.settle_written(settled);
        self.has_unused_pages = true;
        Ok(())
    }

    /// Copies the live data of some frames.
    fn checkpoint_group(
        &mut self,
        id: SegmentId,
        group: &[Frame<'_>],
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let (mut decoded, mut owed) = (Vec::with_capacity(group.len()), 0);
        for frame in group {
            let (image, locations) = decode::frame(frame)?;
            owed += image.owed_bytes(frame.encoded_batch().len(), &locations);
            decoded.push((frame, image, locations));
        }
        // Before the jobs of all these frames, as at a start.
        self.db.transaction(Sync::Later, |db| {
            decoded
                .iter()
                .try_for_each(|(frame, image, locations)| write_rest(db, image, locations, frame))
        })?;
        let mut entries = Vec::new();
        for (frame, image, locations) in &decoded {
            self.record_moved_bodies(image, locations);
            let jobs = image.jobs.iter().zip(locations);
            entries.extend(jobs.map(|(image, locations)| Entry { image, locations, frame }));
        }
        let last_seq = entries.iter().map(|entry| entry.image.seq).max();
        progress.last_seq = progress.last_seq.max(last_seq.unwrap_or(0));
        for slice in entries.chunks(SLICE) {
            let slice_writes = self.plan(slice, &mut progress.written)?;
            self.carry_out(&slice_writes)?;
            self.db.checkpoint_wal(self.is_tight())?;
            self.settle(id, progress.owed);
            self.serve_requests()?;
            self.archive_meanwhile()?;
        }
        progress.owed += owed;
        Ok(())
    }

    /// The first `written` bytes that the tables were owed for a segment are not owed any more, if
    /// they are in the file: those in the write-ahead log are still to be written to it.
    fn settle(&self, id: SegmentId, written: u64) {
        if self.db.is_moved() {
            let settled = self.journal.settle_up_to(id, written);
            self.shared.settings.disk_space.settle_written(settled);
        }
    }

    /// Removes the rows of idempotency records that were dropped before older ones. A record after
    /// `last_seq` may have no row yet: its turn is the next checkpoint.
    fn drop_idempotency_rows(&mut self, last_seq: u64) -> Result<(), Failure> {
        let dropped = self.shared.index().take_dropped_records(last_seq);
        for slice in dropped.chunks(SLICE) {
            self.db.transaction(Sync::Later, |db| idempotency::delete(db, slice))?;
            self.db.checkpoint_wal(self.is_tight())?;
            self.serve_requests()?;
        }
        Ok(())
    }

    /// The writes for some jobs. A job whose removal is not in the journal yet is waited for: the
    /// removal does not say yet which rows the database has.
    fn plan<'a>(
        &mut self,
        entries: &[Entry<'a>],
        written: &mut HashSet<u64>,
    ) -> Result<Vec<JobWrites<'a>>, Failure> {
        let keys: Vec<_> = entries.iter().map(|entry| entry.image.job_id()).collect();
        let is_settled = |index: &Index| {
            let found = keys.iter().flatten().filter_map(|id| index.find(*id));
            !found.into_iter().any(|(_, job)| job.is_being_removed())
        };
        let shared = self.shared.clone();
        let mut index = shared.index();
        while !is_settled(&index) {
            index = self.wait_for_commit(index, &shared)?;
        }
        if index.phase() == Phase::Closed {
            // An index that has ended knows of no job.
            return Err(Failure::Ended);
        }
        let mut plan = |entry: &Entry<'a>, id: Option<JobId>| {
            let key = id.and_then(|id| index.key_of(id));
            let job = key.and_then(|key| index.job_of_row(key, entry.image.seq));
            writes_of(*entry, key, job, written)
        };
        Ok(entries.iter().zip(&keys).filter_map(|(entry, id)| plan(entry, *id)).collect())
    }

    fn carry_out(&mut self, slice_writes: &[JobWrites<'_>]) -> Result<(), Failure> {
        let is_idle = |writes: &JobWrites<'_>| {
            matches!(writes.change, RowChange::Nothing)
                && writes.payloads.is_empty()
                && writes.pages.is_empty()
                && !writes.clears_result
        };
        if slice_writes.iter().all(is_idle) {
            return Ok(());
        }
        self.db.transaction(Sync::Later, |db| {
            slice_writes.iter().try_for_each(|writes| writes.write(db))
        })?;
        let mut index = self.shared.index();
        for writes in slice_writes {
            if let Some(job) = writes.key.and_then(|key| index.job_of_row(key, writes.seq)) {
                writes.note(job);
            }
        }
        Ok(())
    }

    fn record_moved_bodies(&self, image: &BatchImage<'_>, locations: &[JobLocations]) {
        let with_body =
            image.jobs.iter().zip(locations).filter(|(_, locations)| locations.body.is_some());
        let ids = with_body.filter_map(|(job, _)| Some(DeliveryId(job.delivery.as_ref()?.id)));
        let ids: Vec<_> = ids.collect();
        if ids.is_empty() {
            return;
        }
        let mut index = self.shared.index();
        for id in ids {
            index.outbox_mut().set_body(id, None);
        }
    }
}

/// The writes for a job that has changed or was deleted.
fn writes_of<'a>(
    Entry { image, locations, frame }: Entry<'a>,
    key: Option<JobKey>,
    job: Option<&mut Job>,
    written: &mut HashSet<u64>,
) -> Option<JobWrites<'a>> {
    let seq = image.seq;
    let clears_result = image.clears_result;
    if let &StateImage::Deleted { job, output, chunks } = &image.state {
        let change = RowChange::Delete(Stored { job, output, chunks });
        return Some(JobWrites {
            seq,
            key,
            change,
            clears_result,
            payloads: Vec::new(),
            pages: &[],
            frame,
        });
    }
    let visible = job.and_then(|job| {
        let row = job.visible()?.clone();
        Some((job, row))
    });
    let Some((job, row)) = visible else {
        // The job is removed. Rows of an attempt before, which a start could not see in the newer
        // row, still go.
        return clears_result.then(|| JobWrites {
            seq,
            key,
            change: RowChange::Nothing,
            clears_result,
            payloads: Vec::new(),
            pages: &[],
            frame,
        });
    };
    let purge_at = row.purge_at(&job.times).as_millis();
    let counted = Counted { input_bytes: job.input_bytes, purge_at: Some(purge_at) };
    job.stored.job = true;
    let change = match &image.state {
        StateImage::New { fixed, .. } => RowChange::Insert(image, fixed, row, counted),
        _ if written.contains(&seq) => RowChange::Nothing,
        _ => RowChange::Update(row, purge_at),
    };
    written.insert(seq);
    let mut payloads = Vec::new();
    if let Some(location) =
        locations.input.filter(|_| job.payload_locations.input == locations.input)
    {
        payloads.push((Kind::Input, location));
    }
    if let Some(location) =
        locations.output.filter(|_| job.payload_locations.output() == locations.output)
    {
        job.stored.output = true;
        payloads.push((Kind::Output, location));
    }
    // Pages of an earlier attempt may be deleted already.
    let has_pages = job.payload_locations.find_pages(&locations.pages).is_some();
    job.stored.chunks |= has_pages;
    let pages = if has_pages { &locations.pages[..] } else { &[] };
    Some(JobWrites { seq, key, change, clears_result, payloads, pages, frame })
}

impl JobWrites<'_> {
    fn write(&self, db: &Connection) -> rusqlite::Result<()> {
        let frame = self.frame;
        match &self.change {
            RowChange::Insert(image, fixed, row, counted) => {
                jobs::insert(db, image, fixed, &row.image(), *counted)?;
            }
            RowChange::Update(row, purge_at) => {
                jobs::update(db, self.seq, &row.image(), Some(*purge_at))?;
                if !row.needs_input() {
                    payloads::delete_input(db, self.seq)?;
                }
            }
            RowChange::Delete(stored) if stored.job => {
                jobs::delete(db, self.seq)?;
                payloads::delete(db, self.seq, stored.output)?;
                if stored.chunks {
                    chunks::delete(db, self.seq)?;
                }
            }
            RowChange::Delete(_) | RowChange::Nothing => {}
        }
        if self.clears_result {
            chunks::delete(db, self.seq)?;
            payloads::delete_output(db, self.seq)?;
        }
        for &(kind, location) in &self.payloads {
            if location.is_kept() {
                payloads::keep(db, self.seq, kind, location)?;
            } else {
                payloads::put(db, self.seq, kind, &frame.payload(location).map_err(unreadable)?)?;
            }
        }
        for &(first, location) in self.pages {
            chunks::put(db, self.seq, first, &frame.payload(location).map_err(unreadable)?)?;
        }
        Ok(())
    }

    /// Records in the job which payloads have moved.
    fn note(&self, job: &mut Job) {
        for &(kind, location) in self.payloads.iter().filter(|(_, location)| !location.is_kept()) {
            job.payload_locations.clear(kind, location);
        }
        let pages = job.payload_locations.find_pages(self.pages);
        if let Some(results) = &mut job.payload_locations.results {
            drop(pages.map(|range| results.pages.drain(range)));
        }
        job.payload_locations.tidy();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::journal::checksum;
    use crate::journal::{Appender, Bounds, Journal, JournalRecord};

    #[test]
    fn small_frames_are_written_together_and_large_ones_alone() {
        let dir = tempfile::tempdir().unwrap();
        let none = SegmentId(0);
        let known = JournalRecord { checkpointed: none, last: none, end: None };
        let bounds = Bounds { segment_bytes: 64 << 20, uncheckpointed_max: 1 };
        let journal = Arc::new(Journal::open(dir.path(), known, bounds).unwrap().0);
        let mut appender = Appender::new(journal.clone(), 0);
        let mut append = |count: usize, bytes: usize| {
            for _ in 0..count {
                let mut parts = Vec::new();
                checksum::add(&mut parts, [Bytes::from(vec![7; bytes])]);
                appender.append(b"batch", &parts).unwrap();
            }
        };
        append(900, 600);
        append(3, 300 << 10);
        append(2, 600);
        appender.begin_segment().unwrap();
        let segment = journal.ended_to_checkpoint().unwrap();
        let mut frames =
            Frames::of_checked(&segment.file, segment.header, segment.end.unwrap()).unwrap();
        let mut groups = Vec::new();
        while let group = next_group(&mut frames).unwrap()
            && !group.is_empty()
        {
            groups.push(group.len());
        }
        assert_eq!(groups, [431, 431, 39, 1, 1, 2]);
    }
}
