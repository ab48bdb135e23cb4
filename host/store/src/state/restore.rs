//! The state of an earlier process: its endpoints, jobs and records are put back as they were read,
//! and what its end left behind is repaired with the same events as always.

use std::collections::HashMap;

use gristmill_core::billing::usage::UsageRow;
use gristmill_core::id::{EndpointId, JobId, OwnerId};
use gristmill_core::job::loss::{HostLoss, LossBounds};
use gristmill_core::job::record::{JobCounts, Lease, LeftAttempt};
use gristmill_core::job::state::{Claim, JobEvent, JobStatus};
use gristmill_core::time::Timestamp;
use gristmill_core::webhook::delivery::{Delivery, DeliveryId};

use crate::error::Recovery;
use crate::format::EndpointKey;
use crate::format::image::{IdempotencyImage, JobImage, JobLocations, NewJobImage, StateImage};
use crate::format::pages::payload_bytes;
use crate::medium::{Medium, PayloadLocation, SegmentId};
use crate::state::disk_usage::DiskUsage;
use crate::state::found_row::FoundRow;
use crate::state::idempotency::{Dropped, IdempotencyRecord};
use crate::state::index::{Endpoint, Index};
use crate::state::job::{Job, JobRow};
use crate::state::owners::OwnerKey;

impl Index {
    /// Adds an endpoint that has a row.
    pub(crate) fn restore_endpoint(
        &mut self,
        key: EndpointKey,
        name: EndpointId,
        counts: JobCounts,
    ) {
        let mut endpoint = Endpoint::new(name.clone());
        endpoint.is_stored = true;
        endpoint.counts = counts;
        // If two endpoints have one name, the older was being deleted, and the newer one counts.
        if let Some(older) = self.names.insert(name, key) {
            self.begin_deletion(older);
        }
        self.use_up(key);
        self.endpoints.insert(key, endpoint);
    }

    /// The number of an endpoint that may be deleted must not be used again. Until the journal is
    /// checkpointed, each start repeats the end of the deletion, which would otherwise remove the
    /// mark of the next endpoint's deletion.
    pub(crate) fn use_up(&mut self, key: EndpointKey) {
        self.last_endpoint = self.last_endpoint.max(key.0);
    }

    /// Continues a deletion that a crash interrupted. False when the endpoint had no job, or all of
    /// them are removed.
    pub(crate) fn continue_deletion(&mut self, key: EndpointKey) -> bool {
        self.use_up(key);
        let Some(name) = self.endpoint_name(key) else { return false };
        // A newer endpoint of the name may have replaced it.
        if self.names.get(&name) == Some(&key) {
            self.names.remove(&name);
            self.begin_deletion(key);
        }
        true
    }

    /// The name of an endpoint, also while it is being deleted.
    pub(crate) fn endpoint_name(&self, key: EndpointKey) -> Option<EndpointId> {
        self.endpoints.get(&key).map(|endpoint| endpoint.name.clone())
    }

    /// Adds a job of the tables.
    ///
    /// # Errors
    /// The value that is invalid.
    pub(crate) fn restore_row(&mut self, row: &NewJobImage<'_>) -> Result<(), String> {
        let job = Job::of_row(row, &mut self.owners)?;
        self.restore(job);
        Ok(())
    }

    /// Adds a job of the tables that was archived.
    pub(crate) fn restore_found(&mut self, row: FoundRow) {
        let owner = self.owners.key(&row.owner);
        self.restore(Job { owner, ..row.job });
    }

    /// Adds the locations of payloads that stayed in the journal, by the number of their job.
    pub(crate) fn restore_locations(&mut self, mut kept: HashMap<u64, JobLocations>) {
        for job in self.jobs.values_mut() {
            if let Some(locations) = kept.remove(&job.seq) {
                job.payload_locations.add(locations);
            }
        }
    }

    /// Adds an idempotency record, unless its endpoint is deleted. Records come oldest first.
    /// `owners` has the owner of each endpoint of the catalog; other endpoints, of a store that is
    /// used without a catalog, count as the operator's.
    pub(crate) fn restore_idempotency_record(
        &mut self,
        seq: u64,
        endpoint: EndpointKey,
        job: JobId,
        record: IdempotencyImage,
        owners: &HashMap<EndpointId, OwnerId>,
    ) {
        // A row outlives its job and its endpoint, so their numbers must not be used again.
        self.use_up_seq(seq);
        self.use_up(endpoint);
        let Some(name) = self.endpoints.get(&endpoint).map(|endpoint| &endpoint.name) else {
            return;
        };
        // Another endpoint may have the name of one that is being deleted.
        if self.names.get(name) != Some(&endpoint) {
            return;
        }
        let keys = &mut self.owners;
        let owner = || match owners.get(name) {
            Some(owner) => keys.key(owner),
            None => keys.key(&OwnerId::operator()),
        };
        let IdempotencyImage { key, content, at } = record;
        let first = IdempotencyRecord { seq, job, content, at: Timestamp::from_millis(at) };
        if let Some(Dropped::Only(seq)) =
            self.idempotency_index.insert(&endpoint, owner, key, first)
        {
            self.dropped_records.push(seq);
        }
    }

    /// All idempotency records are restored.
    pub(crate) fn end_of_idempotency_records(&mut self) {
        self.dropped_records_up_to = Some(self.idempotency_index.no_record_up_to(self.last_seq));
    }

    /// Adds a webhook. `of_archived` is the owner of its job if that is archived, and `owners` has
    /// the owner of each endpoint of the catalog.
    pub(crate) fn restore_delivery(
        &mut self,
        endpoint: EndpointKey,
        delivery: Delivery,
        of_archived: Option<&OwnerId>,
        owners: &HashMap<EndpointId, OwnerId>,
    ) {
        // The next endpoint of the name would sign the webhooks of the endpoint that is being
        // deleted.
        if self.names.get(&delivery.endpoint) == Some(&endpoint) {
            let (id, owner) = (delivery.id, self.owner_of_delivery(&delivery, of_archived, owners));
            let charge = self.owners.account(owner).charge_existing(delivery.body_bytes);
            self.dropped_deliveries.extend(self.outbox.add(endpoint, owner, delivery));
            self.outbox.set_charge(id, Some(charge));
        } else {
            self.drop_delivery(endpoint, delivery.id);
        }
    }

    /// Deletes the row of a webhook whose endpoint is missing. A row can outlive its endpoint, so
    /// the endpoint's number must not be used again; nor that of the webhook, since a batch deletes
    /// rows after it writes others.
    pub(crate) fn drop_delivery(&mut self, endpoint: EndpointKey, id: DeliveryId) {
        self.use_up(endpoint);
        self.outbox.use_up(id);
        self.dropped_deliveries.push(id);
    }

    /// Counts the body of a delivery for the owner of its job. The body of a deleted job counts for
    /// the owner of the endpoint: another owner than the job's only if the operator submitted it.
    fn owner_of_delivery(
        &mut self,
        delivery: &Delivery,
        of_archived: Option<&OwnerId>,
        owners: &HashMap<EndpointId, OwnerId>,
    ) -> OwnerKey {
        match (self.find(delivery.job), of_archived) {
            (Some((_, job)), _) => job.owner,
            (None, Some(owner)) => self.owners.key(owner),
            (None, None) => {
                let operator = OwnerId::operator();
                self.owners.key(owners.get(&delivery.endpoint).unwrap_or(&operator))
            }
        }
    }

    /// Continues the usage after the runs so far, with the rows of the newest hours.
    pub(crate) fn restore_usage(&mut self, last_run: u32, newest: Vec<UsageRow>) {
        self.meters.begin_after(last_run);
        for UsageRow { key, sum } in newest {
            self.meters.newest.add(key.hour, &key.template, &key.owner, &sum);
        }
    }

    /// Holds the payloads of all jobs in the medium, which `has` them.
    ///
    /// # Errors
    /// A job with a payload in a segment that does not exist.
    pub(crate) fn hold_payloads(
        &mut self,
        medium: &dyn Medium,
        has: impl Fn(PayloadLocation) -> bool,
    ) -> Result<(), (JobId, SegmentId)> {
        for job in self.jobs.values_mut() {
            if !job.row.needs_input() {
                job.payload_locations.input = None;
            }
            let kept = || job.payload_locations.kept().map(|(_, location)| location);
            if let Some(location) = kept().find(|location| !has(*location)) {
                return Err((job.id, location.segment));
            }
            medium.hold(&mut kept());
        }
        Ok(())
    }

    /// Adds a job that is already on disk.
    pub(crate) fn restore(&mut self, job: Job) {
        self.last_seq = self.last_seq.max(job.seq);
        self.positions.restore(job.row.queue_position, job.priority(), job.created_at);
        self.visible_jobs += 1;
        let (status, endpoint_key) = (job.row.status, job.endpoint);
        let disk_usage = DiskUsage::of(&job);
        self.owners.account(job.owner).add_existing(disk_usage.bytes());
        self.owners.recount_waiting(job.owner, false, status == Some(JobStatus::InQueue));
        let key = self.put(job);
        if let Some(endpoint) = self.endpoints.get_mut(&endpoint_key) {
            endpoint.count_status(None, status);
            endpoint.disk_usage.add(disk_usage);
            if status == Some(JobStatus::InProgress)
                && let Some(job) = self.jobs.get(key)
            {
                endpoint.ready.restore_running(job.flow());
            }
            if status == Some(JobStatus::InQueue)
                && let Some(job) = self.jobs.get_mut(key)
            {
                // `repair` knows the time, and adds those to the queue whose time has come.
                let created_at = job.created_at;
                endpoint.add_waiting(job, key, (&mut self.due, &mut self.owners), created_at);
                self.queue_changes.add(endpoint_key, &mut endpoint.queue_version);
            }
        }
    }

    /// Removes a job as if it had never been restored.
    pub(crate) fn remove_restored(&mut self, id: JobId) -> Option<Job> {
        let key = self.key_of(id)?;
        let mut job = self.take(key)?;
        self.visible_jobs -= 1;
        let disk_usage = DiskUsage::of(&job);
        self.owners.account(job.owner).remove(disk_usage.bytes());
        self.owners.recount_waiting(job.owner, job.row.status == Some(JobStatus::InQueue), false);
        if let Some(endpoint) = self.endpoints.get_mut(&job.endpoint) {
            endpoint.count_status(job.row.status, None);
            endpoint.disk_usage.remove(disk_usage);
            if job.row.status == Some(JobStatus::InProgress) {
                // No limit is known yet, so no tags are held.
                let _ = endpoint.ready.ended(job.flow(), job.created_at);
            }
            if job.row.status == Some(JobStatus::InQueue) {
                endpoint.remove_waiting(&mut job, key, &mut self.due);
                self.queue_changes.add(job.endpoint, &mut endpoint.queue_version);
            }
        }
        Some(job)
    }

    /// Applies a frame's entry of a job to the self.
    ///
    /// # Errors
    /// The value that is invalid.
    pub(crate) fn replay_job(
        &mut self,
        image: &JobImage<'_>,
        (segment, locations): (SegmentId, JobLocations),
    ) -> Result<(), String> {
        let id = image.job_id().ok_or("a job has an invalid id")?;
        self.last_seq = self.last_seq.max(image.seq);
        let before = self.remove_restored(id);
        let mut job = match (&image.state, before) {
            (StateImage::Deleted { .. }, _) => return Ok(()),
            (StateImage::New { fixed, row, input }, before) => {
                let new = NewJobImage {
                    seq: image.seq,
                    id: image.id,
                    endpoint: image.endpoint,
                    fixed: *fixed,
                    row: *row,
                    input_bytes: input.unwrap_or(0),
                };
                let stored = before.map(|before| before.stored).unwrap_or_default();
                Job { stored, ..Job::of(&new, &mut self.owners)? }
            }
            (StateImage::Changed(row), Some(before)) => Job { row: JobRow::of(row)?, ..before },
            // The endpoint is deleted, and all its jobs with it.
            (StateImage::Changed(_), None) => return Ok(()),
        };
        if image.clears_result
            && let Some(results) = &mut job.payload_locations.results
        {
            results.pages.clear();
            results.output = None;
        }
        job.payload_locations.add(locations);
        job.segment = segment;
        if self.endpoints.contains_key(&job.endpoint) {
            self.restore(job);
        }
        Ok(())
    }

    /// Number of jobs that have not ended and would be deleted at `now`, or whose time would have
    /// come since `seen_at`.
    pub(crate) fn overdue(&self, seen_at: Timestamp, now: Timestamp) -> u64 {
        let jobs = self.jobs.range(0..self.jobs.end()).map(|(_, job)| job);
        let is_open = |job: &&Job| job.row.status.is_some_and(|status| !status.is_final());
        let fires = |job: &&Job| {
            let is_first = job.row.last_claim == Claim::default();
            (is_first || job.row.waits_for_retry())
                && job.marks.is_delayed()
                && (seen_at..=now).contains(&job.queued_at())
        };
        jobs.filter(is_open).filter(|job| job.purge_at() <= now || fires(job)).count() as u64
    }

    /// Decides the state of jobs past their time and of jobs that ran on the host that had the
    /// store, whose loss is `ended`. Those on other hosts are [left](Self::left_attempts).
    pub(crate) fn repair(
        &mut self,
        ended: HostLoss,
        bounds: LossBounds,
        now: Timestamp,
        recovery: &mut Recovery,
    ) {
        self.opened_at = now;
        loop {
            let due = self.expiry.due(now, usize::MAX);
            if due.is_empty() {
                break;
            }
            recovery.expired += due.len() as u64;
            for key in due {
                self.expire(key, now);
            }
        }
        self.fire_due(now, usize::MAX);
        self.replace_debounced(now);
        let running: Vec<_> = self
            .jobs
            .range(0..self.jobs.end())
            .filter(|(_, job)| job.row.status == Some(JobStatus::InProgress))
            .filter(|(_, job)| {
                let is_left = job.row.host().is_some();
                recovery.left += u64::from(is_left);
                !is_left
            })
            .map(|(key, job)| (key, job.row.losses().is_last(ended, bounds)))
            .collect();
        for (key, is_last) in running {
            // The dispatcher does not exist yet; it examines all queues when it starts.
            let lost = self.decide(key, JobEvent::HostLost { loss: ended, is_last }, now);
            debug_assert!(lost.is_ok(), "a running job can lose its host");
            if is_last {
                recovery.given_up += 1;
                if let Some(job) = self.jobs.get_mut(key) {
                    job.row.attempt_mut().error = Some(bounds.error(ended));
                }
            } else {
                recovery.requeued += 1;
            }
        }
        recovery.waiting = self.endpoints.values().map(|endpoint| endpoint.waiting() as u64).sum();
    }

    /// Cancels the jobs whose replacement was stored before a crash.
    fn replace_debounced(&mut self, now: Timestamp) {
        let jobs = self.jobs.range(0..self.jobs.end()).filter(|(_, job)| job.is_replaceable());
        let mut jobs: Vec<_> =
            jobs.map(|(key, job)| ((job.endpoint, job.flow()), job.seq, key)).collect();
        jobs.sort_unstable();
        for pair in jobs.windows(2) {
            let [(of, _, key), (next, ..)] = pair else { continue };
            if of == next {
                let cancelled = self.decide(*key, JobEvent::CancelRequested, now);
                debug_assert!(cancelled.is_ok(), "a job that waits can be cancelled");
            }
        }
    }

    /// The attempts of running jobs that other hosts have had before this start.
    pub(crate) fn left_attempts(&self) -> Vec<LeftAttempt> {
        let jobs = self.jobs.range(0..self.jobs.end()).map(|(_, job)| job);
        jobs.filter(|job| job.row.status == Some(JobStatus::InProgress))
            .filter_map(|job| self.left_attempt(job))
            .collect()
    }

    fn left_attempt(&self, job: &Job) -> Option<LeftAttempt> {
        let attempt = job.row.attempt.as_deref()?;
        let claim = job.row.last_claim;
        Some(LeftAttempt {
            endpoint: self.endpoints.get(&job.endpoint)?.name.clone(),
            lease: Lease { job: job.id, claim, epoch: self.epoch },
            worker: attempt.worker.clone()?,
            host: job.row.host()?,
            owner: self.owners.name(job.owner).clone(),
            attempt: claim.0,
            started_at: attempt.started_at?,
            execution_timeout_ms: job.times.execution_timeout_ms(),
            ttl_at: job.row.ttl_at,
            trace: job.trace().cloned(),
            input_bytes: job.input_bytes.into(),
            chunks: attempt.chunk_count,
            chunk_bytes: payload_bytes(attempt.chunk_count, attempt.result_bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use gristmill_core::id::{ShardId, SubmissionKind};

    use super::*;
    use crate::state::owners::Owners;

    #[test]
    fn records_count_for_the_owners_of_their_endpoints() {
        let id = JobId::generate(SubmissionKind::Async, ShardId(1));
        let mut index = Index::new(Owners::default());
        let name = |name: &str| EndpointId::new(name).unwrap();
        for (number, of) in [(1, "a"), (2, "a"), (3, "b"), (4, "without-record")] {
            index.names.insert(name(of), EndpointKey(number));
            index.endpoints.insert(EndpointKey(number), Endpoint::new(name(of)));
        }
        let owner = |name: &str| OwnerId::new(name).unwrap();
        let owners = HashMap::from([(name("a"), owner("x")), (name("b"), owner("y"))]);
        // `a` was created again, so its first endpoint is being deleted. The endpoint 9 is deleted.
        for (seq, endpoint) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 4), (6, 9)] {
            let record =
                IdempotencyImage { key: [u8::try_from(seq).unwrap(); 16], content: [0; 16], at: 7 };
            index.restore_idempotency_record(seq, EndpointKey(endpoint), id, record, &owners);
        }
        index.end_of_idempotency_records();
        let records = |index: &mut Index, owner: &OwnerId| {
            let key = index.owners.key(owner);
            index.idempotency_index.len_of(&key)
        };
        assert_eq!(records(&mut index, &owner("x")), 2);
        assert_eq!(records(&mut index, &owner("y")), 1);
        assert_eq!(records(&mut index, &OwnerId::operator()), 1);
        assert_eq!((index.last_seq, index.dropped_records_up_to), (6, Some(1)));
        assert_eq!(index.last_endpoint, 9, "its number is not used again");
        index.drop_delivery(EndpointKey(11), DeliveryId(5));
        assert_eq!(
            (index.last_endpoint, &index.dropped_deliveries[..]),
            (11, &[DeliveryId(5)][..])
        );
        assert_eq!(index.outbox_mut().next_id(), DeliveryId(6), "nor that of its webhook");
    }
}
