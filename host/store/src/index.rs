//! All jobs in memory: their decided state, which is ahead of the disk, and their visible state,
//! which never is.
//!
//! **Invariants.** All changes happen under one lock, which is held for microseconds and never
//! during I/O. A job is in its endpoint's queue exactly while its decided state is IN_QUEUE, and in
//! the expiry exactly while its decided state is not REMOVED. A job with a change that no batch has
//! taken is in `backlog`. Changes that a caller waits for reach the disk in the order in which they
//! were decided.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use gristmill_core::delivery::DeliveryId;
use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::idempotency::Idempotency;
use gristmill_core::job::{Claim, JobEvent, JobStatus};
use gristmill_core::listing::JobQuery;
use gristmill_core::record::{JobCounts, JobRecord, NewJob};
use gristmill_core::store::{RetryAnswer, StoreError, SubmitAnswer};
use gristmill_core::time::Timestamp;

use crate::backlog::{Backlog, Urgency};
use crate::bulk_removal::BulkRemoval;
use crate::chunks::Query;
use crate::disk_usage::{DiskUsage, EndpointMax, check_owner};
use crate::entry::{
    Ack, Change, EndpointKey, Job, Millis, NewRow, PayloadLocations, Pending, Row, Stored, Url,
};
use crate::expiry::Expiry;
use crate::idempotency_index::{Dropped, ForgottenRecords, IdempotencyIndex, IdempotencyRecord};
use crate::ids::Ids;
use crate::journal::segment::JournalLocation;
use crate::meters::Meters;
use crate::order::Order;
use crate::outbox::Outbox;
use crate::owners::{OwnerKey, Owners};
use crate::payloads::Payload;
use crate::ready::Ready;
use crate::requests::{ChunkRequest, DbRequest, Write};
use crate::slab::{JobKey, Slab};

/// Most jobs that a list examines under one hold of the lock: 50 µs.
const VISITS_MAX: usize = 1_000;

/// Most pages of chunks that one answer reads.
const PAGES_MAX: usize = 256;

/// Whether the store accepts work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It accepts work.
    Open,
    /// It accepts no new work, and completes the accepted work.
    Closing,
    /// It accepts no new work, and all accepted work is in the journal.
    Drained,
    /// It accepts no work, and abandons work that is not in the journal.
    Closed,
}

/// The state of the store in memory.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) phase: Phase,
    pub(crate) jobs: Slab<Job>,
    pub(crate) ids: Ids,
    pub(crate) endpoints: HashMap<EndpointKey, Endpoint>,
    /// Endpoints by name, without those that are being deleted.
    pub(crate) names: HashMap<EndpointId, EndpointKey>,
    pub(crate) expiry: Expiry,
    /// Changes that the writer has to write.
    pub(crate) backlog: Backlog,
    /// Requests to the database's thread. Bounded by one entry for each caller.
    pub(crate) requests: Vec<DbRequest>,
    /// Whether the database's thread waits for the batch that is being written.
    pub(crate) is_commit_awaited: bool,
    /// Removals of many jobs, which the writer carries out slice by slice.
    pub(crate) bulk_removals: VecDeque<BulkRemoval>,
    /// Endpoints that are being deleted.
    pub(crate) deleting_endpoints: Vec<DeletingEndpoint>,
    pub(crate) owners: Owners,
    /// The usage, as it is on disk.
    pub(crate) meters: Meters,
    /// Webhooks that are still to be sent, as they are on disk.
    pub(crate) outbox: Outbox<EndpointKey>,
    /// Deliveries that the next batch removes. No caller waits for that.
    pub(crate) dropped_deliveries: Vec<DeliveryId>,
    /// Submissions with an `Idempotency-Key`, by which duplicates are recognised.
    pub(crate) idempotency_index: IdempotencyIndex<EndpointKey, OwnerKey>,
    /// The next batch removes the rows of `idempotency_index` up to this number. No caller waits for that.
    pub(crate) dropped_records_up_to: Option<u64>,
    /// Idempotency records that were dropped before older ones; the next checkpoint deletes their rows. After a crash the next start
    /// drops them again.
    pub(crate) dropped_records: Vec<u64>,
    /// Dropped when the store has ended, which tells those who wait for that.
    pub(crate) closers: Vec<Ack>,
    pub(crate) last_seq: u64,
    pub(crate) last_queue_position: u64,
    pub(crate) last_endpoint: u32,
    /// Number of jobs that clients can see.
    pub(crate) visible_jobs: u64,
}

/// An endpoint with its queue.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) name: EndpointId,
    pub(crate) ready: Ready,
    /// All its jobs, in the order of their submission. About 8 bytes for each.
    pub(crate) history: Order,
    /// The counts that clients see.
    pub(crate) counts: JobCounts,
    /// Whether the endpoint has a row, or will have one once the batch that is being written is
    /// committed.
    pub(crate) is_stored: bool,
    /// The bytes of all its jobs on disk.
    pub(crate) disk_usage: DiskUsage,
}

impl Endpoint {
    pub(crate) fn new(name: EndpointId) -> Self {
        let (ready, history) = (Ready::default(), Order::default());
        let (counts, disk_usage) = (JobCounts::default(), DiskUsage::default());
        Self { name, ready, history, counts, is_stored: false, disk_usage }
    }
}

/// An endpoint that is being deleted.
#[derive(Debug)]
pub(crate) struct DeletingEndpoint {
    pub(crate) key: EndpointKey,
    /// Resolve when it is deleted on disk.
    pub(crate) acks: Vec<Ack>,
}

/// Locations of chunks.
#[derive(Debug)]
pub(crate) struct FoundChunks {
    /// The number of the job's rows.
    pub(crate) seq: u64,
    pub(crate) query: Query,
    /// Whether the first chunk is in the database, or does not exist.
    pub(crate) begins_in_database: bool,
    /// The pages in the journal with the chunks that are not in the database.
    pub(crate) pages: Vec<(u64, JournalLocation)>,
}

/// Calls of the dispatcher that are due once the lock is released.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub(crate) struct ReadyNotice {
    pub(crate) endpoint: EndpointId,
    pub(crate) job: JobId,
    pub(crate) may_start_worker: bool,
}

/// The result of a submission.
#[derive(Debug)]
pub(crate) enum Decided {
    Queued(ReadyNotice),
    /// The submission is a duplicate.
    Repeated(SubmitAnswer),
}

impl Index {
    pub(crate) fn new(owners: Owners) -> Self {
        Self {
            phase: Phase::Open,
            jobs: Slab::new(),
            ids: Ids::new(),
            endpoints: HashMap::new(),
            names: HashMap::new(),
            expiry: Expiry::default(),
            backlog: Backlog::default(),
            requests: Vec::new(),
            is_commit_awaited: false,
            bulk_removals: VecDeque::new(),
            deleting_endpoints: Vec::new(),
            owners,
            meters: Meters::default(),
            outbox: Outbox::default(),
            dropped_deliveries: Vec::new(),
            idempotency_index: IdempotencyIndex::default(),
            dropped_records_up_to: None,
            dropped_records: Vec::new(),
            closers: Vec::new(),
            last_seq: 0,
            last_queue_position: 0,
            last_endpoint: 0,
            visible_jobs: 0,
        }
    }

    pub(crate) fn key_of(&self, id: JobId) -> Option<JobKey> {
        self.ids.get(id, &self.jobs)
    }

    /// The job with the id, whether clients see it or not.
    pub(crate) fn find(&self, id: JobId) -> Option<(JobKey, &Job)> {
        let key = self.key_of(id)?;
        Some((key, self.jobs.get(key)?))
    }

    /// The job, unless its time is over or it belongs to another endpoint, such as a deleted one of the
    /// same name.
    pub(crate) fn find_of(
        &self,
        endpoint: &EndpointId,
        id: JobId,
        now: Timestamp,
    ) -> Option<(JobKey, &Job)> {
        let (key, job) = self.find(id)?;
        let is_asked_for = self.names.get(endpoint) == Some(&job.endpoint);
        (is_asked_for && job.purge_at() > now).then_some((key, job))
    }

    /// The endpoint's queue and counts, unless it never had a job or is being deleted.
    pub(crate) fn endpoint(&self, endpoint: &EndpointId) -> Option<(EndpointKey, &Endpoint)> {
        let key = *self.names.get(endpoint)?;
        Some((key, self.endpoints.get(&key)?))
    }

    pub(crate) fn endpoint_or_new(&mut self, name: &EndpointId) -> EndpointKey {
        if let Some(key) = self.names.get(name) {
            return *key;
        }
        let next = self.last_endpoint.checked_add(1);
        self.last_endpoint = next.expect("fewer than 2^32 endpoints are ever made");
        let key = EndpointKey(self.last_endpoint);
        self.names.insert(name.clone(), key);
        self.endpoints.insert(key, Endpoint::new(name.clone()));
        key
    }

    /// Queues a FAILED or TIMED_OUT job again.
    ///
    /// # Errors
    /// Those of a submission, at the bounds of its endpoint; nothing has changed then.
    pub(crate) fn retry(
        &mut self,
        endpoint: &EndpointId,
        id: JobId,
        max: EndpointMax,
        now: Timestamp,
    ) -> Result<(RetryAnswer, Option<ReadyNotice>), StoreError> {
        let found = self.find_of(endpoint, id, now);
        let Some((key, job, status)) =
            found.and_then(|(key, job)| Some((key, job, job.row.status?)))
        else {
            return Ok((RetryAnswer::NotFound, None));
        };
        if job.row.state().apply(JobEvent::RetryRequested).is_err() {
            return Ok((RetryAnswer::WrongStatus(status), None));
        }
        let (own, input_bytes) = (DiskUsage::of(job), job.input_bytes);
        if let Some(Endpoint { ready, disk_usage, .. }) = self.endpoints.get(&job.endpoint) {
            // Its result is removed, and its input waits instead of being kept.
            let mut others = *disk_usage;
            others.remove(own);
            max.check(ready.len(), others, input_bytes)?;
            self.owners.check_waiting(job.owner)?;
        }
        match self.decide(key, JobEvent::RetryRequested, now) {
            Ok(notice) => Ok((RetryAnswer::Queued, notice)),
            Err(_) => Ok((RetryAnswer::WrongStatus(status), None)),
        }
    }

    /// Adds a job to its queue, unless it came before. `ack` resolves when it, or the one that came
    /// before, is on disk.
    pub(crate) fn submit(
        &mut self,
        new: Submitted,
        now: Timestamp,
        max: EndpointMax,
        ack: Ack,
    ) -> Result<Decided, StoreError> {
        let Submitted { job, input, reserved } = new;
        // Checked under the same lock as the deletion. The endpoint's jobs are deleted after its
        // incarnation has ended, so a job that is accepted here is deleted with the others.
        if job.incarnation.has_ended() {
            return Err(StoreError::EndpointDeleted);
        }
        let endpoint = self.endpoint_or_new(&job.endpoint);
        if let Some(answer) = job
            .idempotency
            .and_then(|idempotency| self.idempotency_index.find(&endpoint, idempotency))
        {
            match answer {
                SubmitAnswer::Repeated(first) => self.ack_id(first, ack),
                SubmitAnswer::Queued | SubmitAnswer::KeyReused => drop(ack.send(())),
            }
            return Ok(Decided::Repeated(answer));
        }
        let Endpoint { ready, history, disk_usage, .. } =
            self.endpoints.get_mut(&endpoint).expect("it has just been made");
        let input_bytes = u32::try_from(input.len()).unwrap_or(u32::MAX);
        max.of(job.waiting_jobs_max).check(ready.len(), *disk_usage, input_bytes)?;
        let may_linger = job.may_linger;
        let owner = self.owners.key(&job.owner);
        check_owner(self.owners.account(owner), input_bytes)?;
        self.owners.check_waiting(owner)?;
        let webhook: Option<Url> = job.webhook.map(|url| Arc::new(url.into()));
        if let Some(url) = &webhook {
            self.owners.urls(owner).check(url)?;
        }
        self.last_seq += 1;
        self.last_queue_position += 1;
        if let Some(Idempotency { key, content }) = job.idempotency {
            let first = IdempotencyRecord { seq: self.last_seq, job: job.id, content, at: now };
            let owners = &mut self.owners;
            // The owner of the endpoint: the operator may submit jobs to the endpoints of others.
            let of_endpoint = || owners.key(job.incarnation.owner());
            match self.idempotency_index.insert(&endpoint, of_endpoint, key, first) {
                Some(Dropped::UpTo(last)) => self.dropped_records_up_to = Some(last),
                Some(Dropped::Only(seq)) => self.dropped_records.push(seq),
                None => {}
            }
        }
        let webhook = webhook.map(|url| self.owners.urls(owner).hold(url));
        let insert = NewRow {
            owner: job.owner,
            ttl_ms: job.policy.ttl_ms,
            webhook: webhook.clone(),
            input: input.clone(),
            idempotency: job.idempotency,
        };
        let change = Change {
            insert: Some(Box::new(insert)),
            operations: 1,
            reserved,
            acks: vec![ack],
            ..Change::default()
        };
        let pending = Pending { visible: None, queued: None, change, input: Some(input) };
        let low_priority = job.policy.low_priority;
        let entry = Job {
            id: job.id,
            seq: self.last_seq,
            endpoint,
            owner,
            low_priority,
            input_bytes,
            webhook,
            stored: Stored::default(),
            payload_locations: PayloadLocations::default(),
            created_at: now,
            retention_ms: Millis::new(job.retention_ms),
            execution_timeout_ms: Millis::new(job.policy.execution_timeout_ms),
            row: Row {
                status: Some(JobStatus::InQueue),
                crashes: 0,
                retries: 0,
                last_claim: Claim::default(),
                queue_position: self.last_queue_position,
                ttl_at: now.plus_millis(job.policy.ttl_ms),
                attempt: None,
            },
            live: None,
            pending: Some(Box::new(pending)),
        };
        let ttl_at = entry.row.ttl_at;
        let own = DiskUsage::of(&entry);
        disk_usage.add(own);
        self.owners.account(owner).add(own.bytes());
        self.owners.recount_waiting(owner, false, true);
        let key = self.jobs.insert(entry);
        self.ids.insert(job.id, key, &self.jobs);
        ready.insert(low_priority, self.last_queue_position, key);
        history.insert(self.last_seq, key);
        self.expiry.insert(ttl_at, key);
        let urgency = if may_linger { Urgency::Deferred } else { Urgency::Now };
        if let Some(pending) = self.jobs.get_mut(key).and_then(|job| job.pending.as_mut()) {
            self.backlog.push_job(key, &mut pending.queued, urgency);
        }
        let notice =
            ReadyNotice { endpoint: job.endpoint, job: job.id, may_start_worker: !low_priority };
        Ok(Decided::Queued(notice))
    }

    /// Adds a job that is already on disk.
    pub(crate) fn restore(&mut self, mut job: Job) {
        let webhook = job.webhook.take().filter(|_| job.row.needs_input());
        job.webhook = webhook.map(|url| self.owners.urls(job.owner).hold(url));
        self.last_seq = self.last_seq.max(job.seq);
        self.last_queue_position = self.last_queue_position.max(job.row.queue_position);
        self.visible_jobs += 1;
        let (id, seq, purge_at, status) = (job.id, job.seq, job.purge_at(), job.row.status);
        let (low_priority, position, endpoint) =
            (job.low_priority, job.row.queue_position, job.endpoint);
        let disk_usage = DiskUsage::of(&job);
        self.owners.account(job.owner).add(disk_usage.bytes());
        self.owners.recount_waiting(job.owner, false, status == Some(JobStatus::InQueue));
        let key = self.jobs.insert(job);
        self.ids.insert(id, key, &self.jobs);
        self.expiry.insert(purge_at, key);
        if let Some(endpoint) = self.endpoints.get_mut(&endpoint) {
            endpoint.count_status(None, status);
            endpoint.disk_usage.add(disk_usage);
            endpoint.history.insert(seq, key);
            if status == Some(JobStatus::InQueue) {
                endpoint.ready.insert(low_priority, position, key);
            }
        }
    }

    /// Removes a job as if it had never been restored.
    pub(crate) fn unrestore(&mut self, id: JobId) -> Option<Job> {
        let key = self.key_of(id)?;
        self.ids.remove(id, key);
        let job = self.jobs.remove(key)?;
        self.visible_jobs -= 1;
        self.expiry.remove(job.purge_at(), key);
        let disk_usage = DiskUsage::of(&job);
        self.owners.account(job.owner).remove(disk_usage.bytes());
        self.owners.recount_waiting(job.owner, job.row.status == Some(JobStatus::InQueue), false);
        if let Some(url) = &job.webhook {
            self.owners.urls(job.owner).release(url);
        }
        if let Some(endpoint) = self.endpoints.get_mut(&job.endpoint) {
            endpoint.count_status(job.row.status, None);
            endpoint.disk_usage.remove(disk_usage);
            endpoint.history.remove(job.seq, key);
            if job.row.status == Some(JobStatus::InQueue) {
                endpoint.ready.remove(job.low_priority, job.row.queue_position, key);
            }
        }
        Some(job)
    }

    /// Resolves `ack` once everything decided so far about the job is on disk and visible.
    pub(crate) fn ack_job(&mut self, key: JobKey, ack: Ack) {
        match self.jobs.get_mut(key).and_then(|job| job.pending.as_mut()) {
            Some(pending) => {
                pending.change.acks.push(ack);
                // A change that is being written is awaited in any case.
                if pending.queued.is_some() {
                    self.backlog.push_job(key, &mut pending.queued, Urgency::Now);
                }
            }
            // The receiver may be dropped already.
            None => drop(ack.send(())),
        }
    }

    /// Like [`ack_job`](Self::ack_job), for a job that may be deleted.
    pub(crate) fn ack_id(&mut self, id: JobId, ack: Ack) {
        match self.key_of(id) {
            Some(key) => self.ack_job(key, ack),
            None => drop(ack.send(())),
        }
    }

    /// Resolves `ack` once everything decided so far is on disk and visible.
    pub(crate) fn ack_all(&mut self, ack: Ack) {
        self.backlog.push_last(Write::Barrier(ack));
    }

    /// Locations of the visible chunks for `request`: the job's rows, its claim, and the query.
    pub(crate) fn chunk_query(
        &self,
        request: &ChunkRequest,
        now: Timestamp,
    ) -> Option<FoundChunks> {
        let (_, job) = self.find(request.id)?;
        let row = job.visible_at(now)?;
        let query = Query {
            attempt: row.stream_attempt(),
            from: request.from,
            end: row.chunk_count(),
            bytes_max: request.bytes_max,
            count_max: request.count_max,
        };
        let pages = job.payload_locations.pages();
        let before = pages.partition_point(|(first, _)| *first <= request.from);
        let pages = pages.iter().skip(before.saturating_sub(1)).take(PAGES_MAX).copied();
        Some(FoundChunks {
            seq: job.seq,
            query,
            begins_in_database: before == 0,
            pages: pages.collect(),
        })
    }

    /// The visible counts of an endpoint.
    pub(crate) fn counts(&self, endpoint: &EndpointId) -> JobCounts {
        self.endpoint(endpoint).map(|(_, endpoint)| endpoint.counts).unwrap_or_default()
    }

    /// Adds the matching ones of the next `VISITS_MAX` jobs before `before` to `jobs`. Returns where
    /// the list goes on: `Continue` when there may be more for this page, `Break` for the next one.
    pub(crate) fn list(
        &self,
        name: &EndpointId,
        query: &JobQuery,
        before: u64,
        jobs: &mut Vec<JobRecord>,
        now: Timestamp,
    ) -> ControlFlow<Option<u64>, u64> {
        let Some((_, endpoint)) = self.endpoint(name) else { return ControlFlow::Break(None) };
        let mut last = before;
        for (looks, (seq, key)) in endpoint.history.below(before).rev().enumerate() {
            if jobs.len() >= query.count_max {
                return ControlFlow::Break(Some(last));
            }
            if looks == VISITS_MAX {
                return ControlFlow::Continue(last);
            }
            last = seq;
            let Some(job) = self.jobs.get(key) else { continue };
            let status = job.visible_at(now).and_then(|row| row.status);
            if status.is_some() && query.status.is_none_or(|wanted| status == Some(wanted)) {
                jobs.extend(job.record(name, now));
            }
        }
        ControlFlow::Break(None)
    }

    /// Begins to delete an endpoint, if there is one of this name. Its webhooks are removed at once,
    /// since the next endpoint of the name would sign them. Jobs that are submitted from now on belong
    /// to a new endpoint of the same name. Returns its idempotency records, to be dropped without the
    /// lock.
    pub(crate) fn forget(&mut self, endpoint: &EndpointId) -> Option<ForgottenRecords<OwnerKey>> {
        let key = self.names.remove(endpoint)?;
        let (records, up_to) = self.idempotency_index.forget_endpoint(&key, self.last_seq);
        self.dropped_records_up_to = Some(up_to);
        self.dropped_deliveries.extend(self.outbox.forget(&key));
        self.leave(key);
        Some(records)
    }

    /// Removes all jobs of an endpoint that has no name any more, then the endpoint.
    pub(crate) fn leave(&mut self, key: EndpointKey) {
        self.deleting_endpoints.push(DeletingEndpoint { key, acks: Vec::new() });
        self.bulk_removals.push_back(BulkRemoval::Forget { endpoint: key, from: 0 });
    }

    /// Resolves `ack` when the deleted endpoints of this name are deleted on disk.
    pub(crate) fn ack_deletion(&mut self, endpoint: &EndpointId, ack: Ack) {
        let Self { endpoints, deleting_endpoints, .. } = self;
        let is_it = |deleting: &&mut DeletingEndpoint| {
            endpoints.get(&deleting.key).is_some_and(|found| found.name == *endpoint)
        };
        // They are deleted one after the other.
        match deleting_endpoints.iter_mut().rfind(is_it) {
            Some(last) => last.acks.push(ack),
            None => self.ack_all(ack),
        }
    }

    /// Whether the endpoint is being deleted.
    pub(crate) fn is_leaving(&self, key: EndpointKey) -> bool {
        self.deleting_endpoints.iter().any(|deleting| deleting.key == key)
    }
}

/// A submission with its payload.
#[derive(Debug)]
pub(crate) struct Submitted {
    /// Its `input` and `s3_config` are empty; their values are in `input` below.
    pub(crate) job: NewJob,
    pub(crate) input: Payload,
    /// Bytes that it occupies in the write buffer.
    pub(crate) reserved: usize,
}
