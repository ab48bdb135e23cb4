//! Jobs that leave memory some time after their end, and return when a call changes them.
//!
//! **Invariants.** An archived job has no entry here; its row in the tables is the whole of it, and
//! no frame of the journal that is not checkpointed names it. Only the database's thread archives
//! and loads jobs, so what this thread finds in neither place does not exist. The counts of jobs
//! and the disk usage of endpoints and owners include archived jobs; the number of jobs in memory
//! does not.
//!
//! **Bounds.** A call examines a bounded number of jobs under one hold of the lock.

use std::collections::BTreeMap;

use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::job::state::{JobEvent, JobStatus};
use gristmill_core::store::StoreFull;
use gristmill_core::time::Timestamp;

use crate::format::EndpointKey;
use crate::format::archived::{ArchivedJob, ArchivedSum};
use crate::medium::SegmentId;
use crate::state::disk_usage::DiskUsage;
use crate::state::found_row::{FoundRow, archived};
use crate::state::index::Index;
use crate::state::job::Job;
use crate::state::slab::JobKey;

/// Which jobs may leave memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArchiveRule {
    pub(crate) now: Timestamp,
    /// Milliseconds since the end of the job, and until its deletion.
    pub(crate) after_ms: u64,
    /// The last segment of the journal that is checkpointed.
    pub(crate) checkpointed: SegmentId,
}

/// The jobs that one slice of a search has found.
#[derive(Debug, Default)]
pub(crate) struct Archivable {
    pub(crate) jobs: Vec<(JobKey, ArchivedJob)>,
    /// Ended jobs that wait only for the checkpoint of a segment, by that segment.
    pub(crate) blocked: BTreeMap<SegmentId, u64>,
    /// Whether there are ended jobs that may leave memory later.
    pub(crate) has_later: bool,
    /// Where the next slice begins.
    pub(crate) next: Option<usize>,
}

impl Index {
    /// Whether any job is archived.
    pub(crate) fn has_archived(&self) -> bool {
        self.archived.jobs > 0
    }

    /// The number of archived jobs.
    pub(crate) fn archived_jobs(&self) -> u64 {
        self.archived.jobs
    }

    /// The number of batches whose changes are visible.
    pub(crate) fn published_batches(&self) -> u64 {
        self.published_batches
    }

    /// When the next archived job is to be deleted.
    pub(crate) fn next_archived_purge_at(&self) -> Timestamp {
        self.archived.next_purge_at.unwrap_or(Timestamp::NEVER)
    }

    /// The same as the tables have it, in milliseconds.
    pub(crate) fn set_next_archived_purge_at(&mut self, at: Option<u64>) {
        // The tables have no greater number.
        let at = at.filter(|at| *at < i64::MAX.unsigned_abs());
        self.archived.next_purge_at = at.map(Timestamp::from_millis);
    }

    /// Whether clients can ask for a job of this endpoint.
    pub(crate) fn is_endpoint_known(&self, key: EndpointKey) -> bool {
        let name = self.endpoints.get(&key).map(|endpoint| &endpoint.name);
        name.is_some_and(|name| self.names.get(name) == Some(&key))
    }

    /// An endpoint that is being deleted and has archived jobs, or waits for the answer that it has
    /// none.
    pub(crate) fn deleting_with_archived(&self) -> Option<EndpointKey> {
        let has_archived =
            |key: &EndpointKey| self.endpoints.get(key).is_some_and(|found| found.archived > 0);
        let mut deleting = self.deleting_endpoints.iter();
        deleting.find(|it| it.awaits_tables || has_archived(&it.key)).map(|it| it.key)
    }

    /// Jobs that may leave memory, among `slots` of the slab from the `from`th on.
    pub(crate) fn archivable(&self, from: usize, slots: usize, rule: ArchiveRule) -> Archivable {
        let (jobs, next) = self.slice_of_jobs(from, slots);
        let mut found = Archivable { next, ..Archivable::default() };
        for (key, job) in jobs {
            if !job.row.status.is_some_and(JobStatus::is_final) {
                continue;
            }
            let ended_at = job.row.attempt.as_ref().and_then(|attempt| attempt.finished_at);
            let is_old = ended_at.is_none_or(|end| end.plus_millis(rule.after_ms) <= rule.now);
            // A job that is deleted soon stays: its row need not be written twice.
            let is_kept = job.purge_at() > rule.now.plus_millis(rule.after_ms);
            let is_unused = is_kept && is_unread(job, &rule) && !self.is_deleting(job.endpoint);
            let is_at_rest = is_unused && is_at_rest(job);
            if is_old && is_at_rest && job.segment > rule.checkpointed {
                *found.blocked.entry(job.segment).or_default() += 1;
            } else if is_old && is_at_rest && has_all_rows(job) {
                let owner = self.owners.name(job.owner).clone();
                found.jobs.push((key, archived(job, owner)));
                continue;
            }
            found.has_later |= is_kept;
        }
        found
    }

    /// Removes jobs from memory that are marked in the tables. Returns those that have changed
    /// since they were found: they stay, and their marks are to be removed.
    pub(crate) fn archive(
        &mut self,
        jobs: Vec<(JobKey, ArchivedJob)>,
        checkpointed: SegmentId,
    ) -> Vec<ArchivedJob> {
        let mut changed = Vec::new();
        for (key, archived) in jobs {
            let job = self.jobs.get(key).filter(|job| job.seq == archived.seq);
            let is_same = job.is_some_and(|job| {
                let is_final = job.row.status.is_some_and(JobStatus::is_final);
                let has_mark = job.purge_at().as_millis() == archived.purge_at
                    && job.chunks_delivered() == archived.delivered;
                let is_here = job.segment <= checkpointed && !self.is_deleting(job.endpoint);
                is_final && has_mark && is_here && is_at_rest(job) && has_all_rows(job)
            });
            if !is_same {
                changed.push(archived);
                continue;
            }
            let Some(job) = self.take(key) else { continue };
            if let Some(endpoint) = self.endpoints.get_mut(&job.endpoint) {
                endpoint.archived += 1;
                endpoint.archived_below = endpoint.archived_below.max(job.seq + 1);
            }
            self.archived.jobs += 1;
        }
        changed
    }

    /// Whether memory has room for an archived job.
    ///
    /// # Errors
    /// The bound that is reached.
    pub(crate) fn check_load(&mut self, row: &FoundRow) -> Result<(), StoreFull> {
        let owner = self.owners.key(&row.owner);
        self.owners.check_in_memory(owner)?;
        match &row.job.tags {
            Some(tags) => self.owners.check_tags(owner, tags, self.outbox.pending_bytes(owner)),
            None => Ok(()),
        }
    }

    /// Puts an archived job back into memory. Its mark is removed already. If its endpoint is being
    /// deleted, it is deleted as well.
    pub(crate) fn load(&mut self, row: FoundRow, now: Timestamp) {
        let FoundRow { mut job, owner } = row;
        job.owner = self.owners.key(&owner);
        let endpoint = job.endpoint;
        let key = self.put(job);
        if let Some(endpoint) = self.endpoints.get_mut(&endpoint) {
            endpoint.archived = endpoint.archived.saturating_sub(1);
        }
        self.archived.jobs = self.archived.jobs.saturating_sub(1);
        if self.is_deleting(endpoint) {
            // The deletion may have passed its number already.
            let _ = self.decide(key, JobEvent::TtlElapsed, now);
        }
    }

    /// Counts the archived jobs of an earlier process. The greatest number of those of the endpoint
    /// is `last`.
    pub(crate) fn restore_archived(&mut self, sum: &ArchivedSum, last: u64) {
        let usage = DiskUsage::of_ended(sum.jobs, sum.kept);
        let owner = self.owners.key(&sum.owner);
        self.owners.account(owner).add_existing(usage.bytes());
        if let Some(endpoint) = self.endpoints.get_mut(&sum.endpoint) {
            endpoint.disk_usage.add(usage);
            endpoint.archived += sum.jobs;
            endpoint.archived_below = endpoint.archived_below.max(last + 1);
        }
        self.archived.jobs += sum.jobs;
        self.visible_jobs += sum.jobs;
    }

    /// The numbers up to `seq` are not used again.
    pub(crate) fn use_up_seq(&mut self, seq: u64) {
        self.last_seq = self.last_seq.max(seq);
    }

    /// Forgets archived jobs whose rows are deleted.
    pub(crate) fn remove_archived<'a>(&mut self, jobs: impl Iterator<Item = &'a ArchivedJob>) {
        for job in jobs {
            let usage = DiskUsage::of_ended(1, job.kept);
            let owner = self.owners.key(&job.owner);
            self.owners.account(owner).remove(usage.bytes());
            if let Some(endpoint) = self.endpoints.get_mut(&job.endpoint) {
                endpoint.disk_usage.remove(usage);
                endpoint.archived = endpoint.archived.saturating_sub(1);
            }
            self.archived.jobs = self.archived.jobs.saturating_sub(1);
            self.visible_jobs = self.visible_jobs.saturating_sub(1);
        }
    }

    /// Whether clients of an endpoint can see this archived job.
    pub(crate) fn is_job_of(&self, endpoint: &EndpointId, job: &Job, now: Timestamp) -> bool {
        self.names.get(endpoint) == Some(&job.endpoint) && job.purge_at() > now
    }

    /// Whether memory has the job.
    pub(crate) fn has(&self, id: JobId) -> bool {
        self.key_of(id).is_some()
    }
}

/// Milliseconds for which a job stays in memory, at least, after a client has read its stream: the
/// client's next call may follow at once, and needs the new position.
const READER_PAUSE_MS: u64 = 60_000;

/// Whether no client is reading the job's stream.
fn is_unread(job: &Job, rule: &ArchiveRule) -> bool {
    let pause_ms = rule.after_ms.max(READER_PAUSE_MS);
    let read_at = job.rare.as_ref().and_then(|rare| rare.delivered).map(|delivered| delivered.at);
    read_at.is_none_or(|at| at.plus_millis(pause_ms) <= rule.now)
}

/// Whether memory has nothing of the job that its row, with its mark, lacks, and no frame is to be
/// written.
fn is_at_rest(job: &Job) -> bool {
    let locations = &job.payload_locations;
    let is_in_tables =
        locations.input.is_none() && locations.output().is_none() && locations.pages().is_empty();
    job.pending.is_none() && is_in_tables
}

fn has_all_rows(job: &Job) -> bool {
    job.stored.job
}
