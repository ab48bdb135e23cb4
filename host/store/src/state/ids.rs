//! Finds jobs by id.
//!
//! A hash table with keys only, since the ids are in the slab: 6 to 12 bytes for each job. It
//! consists of [`PARTS`] small tables that grow one by one. With a million jobs, an insertion that
//! makes a table grow moves a thousand keys, which takes some 100 µs; with one table all callers
//! would wait a thousand times as long.

use std::hash::BuildHasher as _;

use gristmill_core::id::JobId;
use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use crate::state::job::Job;
use crate::state::slab::{JobKey, Slab};

const PARTS: usize = 1_024;

/// The keys of all jobs in the slab, by id. An operation costs a hash and an access to the slab.
#[derive(Debug)]
pub(crate) struct Ids {
    parts: Vec<HashTable<JobKey>>,
}

impl Ids {
    pub(crate) fn new() -> Self {
        let parts = std::iter::repeat_with(HashTable::new).take(PARTS).collect();
        Self { parts }
    }

    pub(crate) fn get(&self, id: JobId, jobs: &Slab<Job>) -> Option<JobKey> {
        let hash = hash(id);
        let part = self.parts.get(part(hash))?;
        part.find(hash, |key| jobs.get(*key).is_some_and(|job| job.id == id)).copied()
    }

    /// Adds a job that is in the slab, and not here yet.
    pub(crate) fn insert(&mut self, id: JobId, key: JobKey, jobs: &Slab<Job>) {
        debug_assert!(self.get(id, jobs).is_none(), "job ids are unique");
        let hash_of = |key: &JobKey| jobs.get(*key).map_or(0, |job| hash(job.id));
        let hash = hash(id);
        if let Some(part) = self.parts.get_mut(part(hash)) {
            part.insert_unique(hash, key, hash_of);
        }
    }

    /// Removes a job, which must still be in the slab.
    pub(crate) fn remove(&mut self, id: JobId, key: JobKey) {
        let hash = hash(id);
        let found = self.parts.get_mut(part(hash)).map(|part| part.find_entry(hash, |k| *k == key));
        match found {
            Some(Ok(entry)) => drop(entry.remove()),
            Some(Err(_)) | None => debug_assert!(false, "a job in the slab is here"),
        }
    }
}

/// Hosts make the ids, from random numbers, so no client can choose ids with the same hash: a hash
/// without a secret is enough.
fn hash(id: JobId) -> u64 {
    FxBuildHasher.hash_one(id)
}

/// The table uses the lowest and the highest bits of a hash; the part is chosen by bits between
/// them.
fn part(hash: u64) -> usize {
    usize::try_from(hash >> 40).unwrap_or(0) % PARTS
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use gristmill_core::id::{ShardId, SubmissionKind};

    use super::*;

    /// The ids of one moment differ in few bytes, and still spread over all parts.
    #[test]
    fn ids_of_one_moment_spread_over_the_parts() {
        const IDS: usize = 100 * PARTS;
        let mut counts = vec![0; PARTS];
        let mut hashes = HashSet::new();
        for _ in 0..IDS {
            let id = JobId::generate(SubmissionKind::Async, ShardId(0));
            let hash = hash(id);
            counts[part(hash)] += 1;
            hashes.insert(hash);
        }
        // Of 1,024 parts with a mean of 100, random numbers fill none with more than 150 or less
        // than 50.
        let (fewest, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(*fewest > 40 && *most < 170, "{fewest} to {most} in a part");
        assert_eq!(hashes.len(), IDS, "no two ids have one hash");
    }
}
