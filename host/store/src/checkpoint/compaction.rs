//! Moves the remaining large payloads of a segment to the database when most of the segment is
//! unused, so that a few long-lived jobs do not keep many files alive. Only these payloads, the
//! last of many, are written a second time.
//!
//! Cost: examines each job once, and inserts and syncs each payload that moves.

use std::io;

use crate::checkpoint::database::Database;
use crate::error::Failure;
use crate::format::payload::Kind;
use crate::journal::segment::{JournalLocation, SegmentId};
use crate::state::slab::JobKey;
use crate::tables::db::Sync;
use crate::tables::payloads;

/// Jobs that are examined under one hold of the lock.
const SLICE: usize = 1_000;

/// A payload that moves.
struct Kept {
    key: JobKey,
    seq: u64,
    kind: Kind,
    location: JournalLocation,
}

impl Database {
    /// Moves all payloads that are still needed in a segment.
    pub(crate) fn compact(&mut self, segment: SegmentId) -> Result<(), Failure> {
        let mut from = 0;
        loop {
            let (kept, next) = self.kept_in(segment, from);
            for kept in kept {
                self.move_kept(&kept)?;
            }
            self.db.checkpoint_wal()?;
            self.serve_requests()?;
            match next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }

    /// The payloads of some jobs in the segment, and the index of the job to continue with.
    fn kept_in(&self, segment: SegmentId, from: usize) -> (Vec<Kept>, Option<usize>) {
        let index = self.shared.index();
        let (jobs, next) = index.slice_of_jobs(from, SLICE);
        let mut found = Vec::new();
        for (key, job) in jobs {
            // A job that is being removed releases the segment by itself.
            if !job.is_being_removed() {
                let kept = job
                    .payload_locations
                    .kept()
                    .filter(|(_, location)| location.segment == segment);
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
        let bytes = match self.shared.journal.read(location) {
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
            self.shared.journal.release([location].into_iter());
        }
        Ok(())
    }
}
