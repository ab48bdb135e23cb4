//! Moves the remaining large payloads of a segment to the database when most of the segment is
//! unused, so that a few long-lived jobs do not keep many files alive. Only these payloads, the
//! last of many, are written a second time.
//!
//! Cost: examines each job once, and inserts and syncs each payload that moves.

use std::io;

use crate::checkpoint::database::Database;
use crate::error::Failure;
use crate::format::payload::{InputBytes, Kind};
use crate::medium::{Medium as _, PayloadLocation, SegmentId};
use crate::state::slab::JobKey;
use crate::tables::db::Sync;
use crate::tables::payloads;

/// Jobs that are examined under one hold of the lock.
const SLICE: usize = 1_000;

/// The same for a rotation of the key, which may move the inputs of all of them.
const SLICE_OF_ROTATION: usize = 64;

/// A payload that moves.
struct Kept {
    key: JobKey,
    seq: u64,
    kind: Kind,
    location: PayloadLocation,
}

impl Database {
    /// Moves all payloads that are still needed in a segment.
    pub(crate) fn compact(&mut self, segment: SegmentId) -> Result<(), Failure> {
        let mut from = Some(0);
        while let Some(index) = from {
            let (kept, next) = self.kept(index, SLICE, |_, location| location.segment == segment);
            for kept in kept {
                self.move_kept(&kept)?;
                self.db.checkpoint_wal(self.is_tight())?;
            }
            self.serve_requests()?;
            from = next;
        }
        Ok(())
    }

    /// Moves the inputs with encrypted settings in segments up to `last`, of some jobs from the
    /// `from`th on. Returns the index of the job to continue with.
    pub(crate) fn move_inputs_with_settings(
        &mut self,
        last: SegmentId,
        from: usize,
    ) -> Result<Option<usize>, Failure> {
        let is_old =
            |kind, location: PayloadLocation| kind == Kind::Input && location.segment <= last;
        let (kept, next) = self.kept(from, SLICE_OF_ROTATION, is_old);
        for kept in kept {
            let end = self.journal.read_end(kept.location, InputBytes::LENGTH_BYTES)?;
            if end.is_some_and(|end| end.iter().any(|byte| *byte != 0)) {
                if !self.shared.settings.disk_space.admits_work() {
                    // These jobs are examined again once there is space.
                    return Ok(Some(from));
                }
                self.move_kept(&kept)?;
                self.db.checkpoint_wal(self.is_tight())?;
                self.serve_requests()?;
            }
        }
        Ok(next)
    }

    /// The payloads in the journal of up to `jobs` jobs, as far as `is_wanted`, and the index of
    /// the job to continue with.
    fn kept(
        &self,
        from: usize,
        jobs: usize,
        is_wanted: impl Fn(Kind, PayloadLocation) -> bool,
    ) -> (Vec<Kept>, Option<usize>) {
        let index = self.shared.index();
        let (jobs, next) = index.slice_of_jobs(from, jobs);
        let mut found = Vec::new();
        for (key, job) in jobs {
            // A job that is being removed releases the segment by itself.
            if !job.is_being_removed() {
                let kept = job
                    .payload_locations
                    .kept()
                    .filter(|(kind, location)| is_wanted(*kind, *location));
                found.extend(kept.map(|(kind, location)| Kept {
                    key,
                    seq: job.seq,
                    kind,
                    location,
                }));
            }
        }
        (found, next)
    }

    fn move_kept(&mut self, kept: &Kept) -> Result<(), Failure> {
        let &Kept { key, seq, kind, location } = kept;
        let bytes = match self.journal.read(location) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(()),
            // The damaged payload stays where it is, and readers get an error.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                tracing::error!("{error}");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        {
            let mut index = self.shared.index();
            let job = index.job_of_row(key, seq);
            let Some(job) = job.filter(|job| !job.is_being_removed()) else { return Ok(()) };
            job.stored.output |= kind == Kind::Output;
        }
        // To the write-ahead log and to the tables. Many moves fit between two measurements of the
        // disk.
        self.shared.settings.disk_space.grant(2 * bytes.len() as u64);
        // Released bytes may be overwritten at once, so their copy must be synced first.
        self.db.transaction(Sync::Now, |db| {
            payloads::put(db, seq, kind, &bytes)?;
            payloads::unkeep(db, seq, kind)
        })?;
        let mut index = self.shared.index();
        if let Some(job) = index.job_of_row(key, seq)
            && job.payload_locations.clear(kind, location)
        {
            job.payload_locations.tidy();
            drop(index);
            self.journal.release(&mut [location].into_iter());
        }
        Ok(())
    }
}
