//! What is left in a segment of large payloads moves to the database, when most of the segment is
//! not needed any more: a few jobs with a long life do not keep many files. Such payloads are
//! written a second time, which happens to the last ones of many only.
//!
//! Cost: a look at each job, and for each payload that moves what an insertion with a sync costs.

use std::io;

use crate::database::Database;
use crate::db::Sync;
use crate::error::Failure;
use crate::journal::segment::{Place, SegmentId};
use crate::payloads::{self, Kind};
use crate::slab::JobKey;

/// Jobs that are looked at under one hold of the lock.
const SLICE: usize = 1_000;

/// A payload that moves.
struct Kept {
    key: JobKey,
    seq: u64,
    kind: Kind,
    place: Place,
}

impl Database {
    /// Moves all payloads that are kept in a segment.
    pub(crate) fn compact(&mut self, segment: SegmentId) -> Result<(), Failure> {
        let mut from = 0;
        loop {
            let (kept, next) = self.kept_in(segment, from);
            for kept in kept {
                self.move_kept(&kept)?;
            }
            self.db.checkpoint_wal()?;
            self.serve_asks()?;
            match next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }

    /// What some of the jobs keep in the segment, and with which jobs to go on.
    fn kept_in(&self, segment: SegmentId, from: usize) -> (Vec<Kept>, Option<usize>) {
        let index = self.shared.index();
        let to = (from + SLICE).min(index.jobs.end());
        let mut found = Vec::new();
        for (key, job) in index.jobs.range(from..to) {
            // What is being removed lets go of the segment by itself.
            if !job.is_being_removed() {
                let kept = job.homes.kept().filter(|(_, place)| place.segment == segment);
                found.extend(kept.map(|(kind, place)| Kept { key, seq: job.seq, kind, place }));
            }
        }
        (found, (to < index.jobs.end()).then_some(to))
    }

    fn move_kept(&mut self, kept: &Kept) -> Result<(), Failure> {
        let &Kept { key, seq, kind, place } = kept;
        let bytes = match self.shared.journal.read(place) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(()),
            // It stays where it is: readers are told.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                tracing::error!("{error}");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        {
            let mut index = self.shared.index();
            let job = index.jobs.get_mut(key).filter(|job| job.seq == seq);
            let Some(job) = job.filter(|job| !job.is_being_removed()) else { return Ok(()) };
            job.stored.output |= kind == Kind::Output;
        }
        // What is let go of may be written over at once.
        self.db.transaction(Sync::Now, |db| {
            payloads::put(db, seq, kind, &bytes)?;
            payloads::unkeep(db, seq, kind)
        })?;
        let mut index = self.shared.index();
        if let Some(job) = index.jobs.get_mut(key).filter(|job| job.seq == seq)
            && job.homes.leave(kind, place)
        {
            job.homes.tidy();
            drop(index);
            self.shared.journal.release([place].into_iter());
        }
        Ok(())
    }
}
