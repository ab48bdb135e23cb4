//! From the journal to the database: copies the live data of the oldest segment into the tables.
//!
//! The frames of the segment name the jobs that have changed in it. For each of them the newest
//! visible state is written, which may come from a later segment; for a deleted job the checkpoint
//! only deletes rows that the database may have. Small payloads are copied, and large ones stay
//! where they are until [compaction](crate::compaction). When the whole segment is done, the
//! database records this and syncs, and the journal may overwrite the segment. After a crash before
//! that, the checkpoint begins again at the segment's start.
//!
//! Cost: one read of the segment, and about 10 µs for each remaining job. It runs on the database's
//! thread, in slices, and serves readers between them.

use std::collections::HashSet;
use std::io;

use gristmill_core::delivery::DeliveryId;
use gristmill_core::id::JobId;
use rusqlite::Connection;

use crate::database::Database;
use crate::db::Sync;
use crate::entry::{Job, Row, Stored};
use crate::error::Failure;
use crate::index::{Index, Phase};
use crate::journal::frame::{Frame, Frames};
use crate::journal::image::{BatchImage, FixedImage, JobImage, JobPlaces, StateImage};
use crate::journal::segment::Place;
use crate::journal::{Segment, damaged};
use crate::payloads::Kind;
use crate::row::integer;
use crate::slab::JobKey;
use crate::{chunks, deleting, delivery, payloads, repeat_rows, row, usage_rows};

/// Jobs in one transaction.
const SLICE: usize = 256;

/// The writes for one job.
struct Work<'a> {
    seq: u64,
    key: Option<JobKey>,
    deed: Deed<'a>,
    clears_result: bool,
    payloads: Vec<(Kind, Place)>,
    pages: &'a [(u64, Place)],
}

enum Deed<'a> {
    Insert(&'a JobImage<'a>, &'a FixedImage<'a>, Row),
    Update(Row),
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
    places: &[JobPlaces],
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
        usage_rows::put(db, row)?;
    }
    for (job, places) in image.jobs.iter().zip(places) {
        if let Some(repeat) = &job.repeat {
            repeat_rows::put(db, job.seq, job.endpoint, &job.id, repeat)?;
        }
        if let Some(new) = &job.delivery {
            let body = places.body.map(|place| frame.payload(place)).transpose();
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
    if let Some(last) = image.forgotten_repeats {
        repeat_rows::forget(db, last)?;
    }
    Ok(())
}

impl Database {
    /// Copies the live data of a segment that is not written any more.
    pub(crate) fn checkpoint(&mut self, segment: &Segment) -> Result<(), Failure> {
        let id = segment.header.id;
        let end = segment.end.ok_or_else(|| damaged("a segment without an end"))?;
        let mut frames = Frames::of_checked(&segment.file, segment.header, end)?;
        let (mut written, mut last_seq) = (HashSet::new(), 0);
        while let Some(frame) = frames.next()? {
            let (image, places) = BatchImage::read(&frame)?;
            let write = |db: &Connection| write_rest(db, &image, &places, &frame);
            self.db.transaction(Sync::Later, write)?;
            self.bodies_have_moved(&image, &places);
            last_seq = image.jobs.iter().map(|job| job.seq).fold(last_seq, u64::max);
            let jobs: Vec<_> = image.jobs.iter().zip(&places).collect();
            for slice in jobs.chunks(SLICE) {
                let works = self.plan(slice, &mut written)?;
                self.carry_out(&works, &frame)?;
                self.db.checkpoint_wal()?;
                self.serve_asks()?;
            }
        }
        if frames.at() != end {
            return Err(damaged("a segment can no longer be read to its end").into());
        }
        self.drop_repeats(last_seq)?;
        self.db.set_settled(id)?;
        self.shared.journal.set_settled(id);
        Ok(())
    }

    /// Removes the rows of marks that were dropped before older ones. A mark after `last_seq` may have no row yet: its turn is
    /// the next checkpoint.
    fn drop_repeats(&mut self, last_seq: u64) -> Result<(), Failure> {
        let dropped = {
            let mut index = self.shared.index();
            let (dropped, later) = std::mem::take(&mut index.dropped_repeats)
                .into_iter()
                .partition::<Vec<_>, _>(|seq| *seq <= last_seq);
            index.dropped_repeats = later;
            dropped
        };
        for slice in dropped.chunks(SLICE) {
            self.db.transaction(Sync::Later, |db| repeat_rows::delete(db, slice))?;
            self.db.checkpoint_wal()?;
            self.serve_asks()?;
        }
        Ok(())
    }

    /// What is to be done for some jobs. A job whose removal is on its way to the journal is waited
    /// for: what says that it is gone does not know yet that the database has it.
    fn plan<'a>(
        &mut self,
        jobs: &[(&'a JobImage<'a>, &'a JobPlaces)],
        written: &mut HashSet<u64>,
    ) -> Result<Vec<Work<'a>>, Failure> {
        let keys: Vec<_> = jobs.iter().map(|(image, _)| image.job_id()).collect();
        let is_settled = |index: &Index| {
            let found = keys.iter().flatten().filter_map(|id| index.find(*id));
            !found.into_iter().any(|(_, job)| job.is_being_removed())
        };
        let shared = self.shared.clone();
        let mut index = shared.index();
        while !is_settled(&index) {
            index = self.wait_for_commit(index, &shared)?;
        }
        if index.phase == Phase::Closed {
            // An index that has ended knows of no job.
            return Err(Failure::Ended);
        }
        let mut plan = |(image, places): (&'a JobImage<'a>, &'a JobPlaces), id: Option<JobId>| {
            let key = id.and_then(|id| index.key_of(id));
            let job = key.and_then(|key| index.jobs.get_mut(key));
            work(image, places, key, job.filter(|job| job.seq == image.seq), written)
        };
        Ok(jobs.iter().zip(&keys).filter_map(|(job, id)| plan(*job, *id)).collect())
    }

    fn carry_out(&mut self, works: &[Work<'_>], frame: &Frame<'_>) -> Result<(), Failure> {
        let is_idle = |work: &Work<'_>| {
            matches!(work.deed, Deed::Nothing)
                && work.payloads.is_empty()
                && work.pages.is_empty()
                && !work.clears_result
        };
        if works.iter().all(is_idle) {
            return Ok(());
        }
        self.db.transaction(Sync::Later, |db| {
            works.iter().try_for_each(|work| work.write(db, frame))
        })?;
        let mut index = self.shared.index();
        for work in works {
            let Some(job) = work.key.and_then(|key| index.jobs.get_mut(key)) else { continue };
            if job.seq == work.seq {
                work.note(job);
            }
        }
        Ok(())
    }

    fn bodies_have_moved(&self, image: &BatchImage<'_>, places: &[JobPlaces]) {
        let with_body = image.jobs.iter().zip(places).filter(|(_, places)| places.body.is_some());
        let ids = with_body.filter_map(|(job, _)| Some(DeliveryId(job.delivery.as_ref()?.id)));
        let ids: Vec<_> = ids.collect();
        if ids.is_empty() {
            return;
        }
        let mut index = self.shared.index();
        for id in ids {
            index.outbox.set_body(id, None);
        }
    }
}

/// The writes for a job that has changed or was deleted.
fn work<'a>(
    image: &'a JobImage<'a>,
    places: &'a JobPlaces,
    key: Option<JobKey>,
    job: Option<&mut Job>,
    written: &mut HashSet<u64>,
) -> Option<Work<'a>> {
    let seq = image.seq;
    let clears_result = image.clears_result;
    if let &StateImage::Gone { job, output, chunks } = &image.state {
        let deed = Deed::Delete(Stored { job, output, chunks });
        return Some(Work { seq, key, deed, clears_result, payloads: Vec::new(), pages: &[] });
    }
    let job = job?;
    let row = job.visible()?.clone();
    job.stored.job = true;
    let deed = match &image.state {
        StateImage::New { fixed, .. } => Deed::Insert(image, fixed, row),
        _ if written.contains(&seq) => Deed::Nothing,
        _ => Deed::Update(row),
    };
    written.insert(seq);
    let mut payloads = Vec::new();
    if let Some(place) = places.input.filter(|_| job.homes.input == places.input) {
        payloads.push((Kind::Input, place));
    }
    if let Some(place) = places.output.filter(|_| job.homes.output() == places.output) {
        job.stored.output = true;
        payloads.push((Kind::Output, place));
    }
    // Pages of an earlier attempt may be deleted already.
    let has_pages = job.homes.find_pages(&places.pages).is_some();
    job.stored.chunks |= has_pages;
    let pages = if has_pages { &places.pages[..] } else { &[] };
    Some(Work { seq, key, deed, clears_result, payloads, pages })
}

impl Work<'_> {
    fn write(&self, db: &Connection, frame: &Frame<'_>) -> rusqlite::Result<()> {
        match &self.deed {
            Deed::Insert(image, fixed, row) => row::insert(db, image, fixed, row)?,
            Deed::Update(row) => {
                row::update(db, self.seq, row)?;
                if !row.needs_input() {
                    payloads::delete_input(db, self.seq)?;
                }
            }
            Deed::Delete(stored) if stored.job => {
                row::delete(db, self.seq)?;
                payloads::delete(db, self.seq, stored.output)?;
                if stored.chunks {
                    chunks::delete(db, self.seq)?;
                }
            }
            Deed::Delete(_) | Deed::Nothing => {}
        }
        if self.clears_result {
            chunks::delete(db, self.seq)?;
            payloads::delete_output(db, self.seq)?;
        }
        for &(kind, place) in &self.payloads {
            if place.stays() {
                payloads::keep(db, self.seq, kind, place)?;
            } else {
                payloads::put(db, self.seq, kind, &frame.payload(place).map_err(unreadable)?)?;
            }
        }
        for &(first, place) in self.pages {
            chunks::put(db, self.seq, first, &frame.payload(place).map_err(unreadable)?)?;
        }
        Ok(())
    }

    /// Records in the job which payloads have moved.
    fn note(&self, job: &mut Job) {
        for &(kind, place) in self.payloads.iter().filter(|(_, place)| !place.stays()) {
            job.homes.leave(kind, place);
        }
        let pages = job.homes.find_pages(self.pages);
        if let Some(results) = &mut job.homes.results {
            drop(pages.map(|range| results.pages.drain(range)));
        }
        job.homes.tidy();
    }
}
