//! All jobs, except the [archived](crate::state::archived) ones. Each has a decided state, which
//! may be ahead of the disk, and a visible state, which is always on disk.
//!
//! **Invariants.** All changes happen under one lock, which is held for microseconds and never
//! during I/O. A job is in its endpoint's queue, or waits for its time there, exactly while its
//! decided state is IN_QUEUE, and is in the expiry exactly while its decided state is not REMOVED.
//! A job with a change that no batch has taken is in `backlog`. Changes that a caller waits for
//! reach the disk in the order in which they were decided.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use gristmill_core::billing::usage::Bill;
use gristmill_core::id::{EndpointId, JobId, OwnerId, SubmissionKind};
use gristmill_core::job::idempotency::Idempotency;
use gristmill_core::job::note::{ScheduleNote, ScheduleNumber};
use gristmill_core::job::policy::Start;
use gristmill_core::job::record::StreamPosition;
use gristmill_core::job::record::{JobCounts, Lease, NewJob, StoreEpoch};
use gristmill_core::job::retry::JobRetry;
use gristmill_core::job::state::{Claim, JobEvent, JobStatus};
use gristmill_core::job::tags::Tags;
use gristmill_core::signals::EarlyEnd;
use gristmill_core::store::{RetryAnswer, StoreError, SubmitAnswer};
use gristmill_core::time::Timestamp;
use gristmill_core::webhook::delivery::Delivery;
use gristmill_core::webhook::delivery::DeliveryId;
use rustc_hash::FxBuildHasher;
use tokio::sync::oneshot;

use crate::format::CatalogRow;
use crate::format::EndpointKey;
use crate::format::past::PastAttempts;
use crate::format::payload::Payload;
use crate::medium::SegmentId;
use crate::state::backlog::{Ack, Backlog, Due, Urgency, Write};
use crate::state::bulk_removal::{BulkRemoval, Purged};
use crate::state::calendar::Calendar;
use crate::state::disk_usage::{DiskUsage, EndpointMax, check_owner};
use crate::state::idempotency::{Dropped, ForgottenRecords, IdempotencyIndex, IdempotencyRecord};
use crate::state::ids::Ids;
use crate::state::job::{
    Attempt, Change, Delivered, Job, JobRow, JobTimes, Marks, NewRow, PayloadLocations, Pending,
    Rare, Stored, SubmissionAck,
};
use crate::state::lane::Flow;
use crate::state::meters::Meters;
use crate::state::order::Order;
use crate::state::outbox::Outbox;
use crate::state::owners::{OwnerKey, Owners};
use crate::state::positions::Positions;
use crate::state::queue_changes::{QueueChanges, QueueVersion};
use crate::state::ready::Ready;
use crate::state::requests::{DbRequest, NewSegment};
use crate::state::room::Room;
use crate::state::slab::{JobKey, Slab};
use crate::state::starts::StartRules;
use crate::state::urls::Url;

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
    pub(super) phase: Phase,
    pub(super) epoch: StoreEpoch,
    pub(super) jobs: Slab<Job>,
    pub(super) ids: Ids,
    /// Its keys are our own numbers, so a fast hash is safe. Each change of a job looks here.
    pub(super) endpoints: HashMap<EndpointKey, Endpoint, FxBuildHasher>,
    /// Endpoints by name, without those that are being deleted.
    pub(super) names: HashMap<EndpointId, EndpointKey>,
    /// Every existing job, by the time of its deletion.
    pub(super) expiry: Calendar,
    /// The jobs in `delayed` of their endpoints, by the time from which they may be claimed.
    pub(super) due: Calendar,
    /// When limits of starts let further jobs start, by endpoint.
    pub(super) openings: BTreeSet<(Timestamp, EndpointKey)>,
    /// Whether `due` or `openings` has an earlier first time since the last look.
    has_earlier: bool,
    /// When this store was opened.
    pub(super) opened_at: Timestamp,
    pub(super) archived: Archived,
    /// Changes that the writer has to write.
    pub(super) backlog: Backlog,
    /// Whether the writer waits with a time limit, which ends no later than the first lingering
    /// change is due.
    pub(crate) has_alarm: bool,
    /// Requests to the database's thread. Bounded by one entry for each caller.
    pub(super) requests: Vec<DbRequest>,
    /// Whether the database's thread waits for the batch that is being written.
    pub(super) is_commit_awaited: bool,
    /// The request to the writer to begin a new segment of the journal.
    pub(super) new_segment: NewSegment,
    /// Removals of many jobs, which the writer carries out slice by slice.
    pub(super) bulk_removals: VecDeque<BulkRemoval>,
    /// Endpoints that are being deleted.
    pub(super) deleting_endpoints: Vec<DeletingEndpoint>,
    pub(super) owners: Owners,
    /// The usage, as it is on disk.
    pub(super) meters: Meters,
    /// Webhooks that are still to be sent, as they are on disk.
    pub(super) outbox: Outbox<EndpointKey>,
    /// Deliveries that the next batch removes. No caller waits for that.
    pub(super) dropped_deliveries: Vec<DeliveryId>,
    /// Submissions with an `Idempotency-Key`, by which duplicates are recognised.
    pub(super) idempotency_index: IdempotencyIndex<EndpointKey, OwnerKey>,
    /// The next batch removes the rows of `idempotency_index` up to this number. No caller waits
    /// for that.
    pub(super) dropped_records_up_to: Option<u64>,
    /// Idempotency records that were dropped before older ones; the next checkpoint deletes their
    /// rows. After a crash the next start drops them again.
    pub(super) dropped_records: Vec<u64>,
    /// The notes of schedules, as they are on disk.
    pub(super) schedules: BTreeMap<ScheduleNumber, String>,
    /// Jobs that have ended without a result, for the notifications after the lock is released.
    pub(super) early_ends: Vec<EarlyEnd>,
    /// Changed queues, likewise.
    pub(super) queue_changes: QueueChanges,
    /// Dropped when the store has ended, so that callers that wait for the end are notified.
    pub(super) closers: Vec<Ack>,
    pub(super) last_seq: u64,
    pub(super) positions: Positions,
    pub(super) last_endpoint: u32,
    /// Number of jobs that clients can see.
    pub(super) visible_jobs: u64,
    /// Number of batches whose changes are visible.
    pub(super) published_batches: u64,
}

/// All archived jobs.
#[derive(Debug, Default)]
pub(crate) struct Archived {
    pub(super) jobs: u64,
    /// When the next one is to be deleted.
    pub(super) next_purge_at: Option<Timestamp>,
}

/// An endpoint with its queue.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(super) name: EndpointId,
    pub(super) ready: Ready,
    /// The jobs that wait for their time, by queue position.
    pub(super) delayed: Order,
    /// Of the jobs in `delayed` those that a later submission with their key replaces.
    replaceable: BTreeMap<Flow, JobKey>,
    /// Its time in the index's `openings`; never: it has none.
    opening: Timestamp,
    pub(super) queue_version: QueueVersion,
    /// All its jobs in memory, in the order of their submission. About 8 bytes for each.
    pub(super) history: Order,
    /// The counts that clients see.
    pub(super) counts: JobCounts,
    /// Whether the endpoint has a row, or will have one once the batch that is being written is
    /// committed.
    pub(super) is_stored: bool,
    /// The bytes of all its jobs on disk, archived or not.
    pub(super) disk_usage: DiskUsage,
    /// The number of its archived jobs.
    pub(super) archived: u64,
    /// They have numbers less than this one.
    pub(super) archived_below: u64,
}

impl Endpoint {
    pub(super) fn new(name: EndpointId) -> Self {
        let (ready, delayed, history) = (Ready::default(), Order::default(), Order::default());
        let (counts, disk_usage) = (JobCounts::default(), DiskUsage::default());
        let (archived, archived_below) = (0, 0);
        Self {
            name,
            ready,
            delayed,
            replaceable: BTreeMap::new(),
            opening: Timestamp::NEVER,
            queue_version: QueueVersion::default(),
            history,
            counts,
            is_stored: false,
            disk_usage,
            archived,
            archived_below,
        }
    }

    /// Number of jobs that wait for a worker, or for their time.
    pub(super) fn waiting(&self) -> usize {
        self.ready.len() + self.delayed.len()
    }

    /// Adds a job that waits: to the queue, or before its time to those that wait for it.
    pub(super) fn add_waiting(
        &mut self,
        job: &mut Job,
        key: JobKey,
        (due, owners): (&mut Calendar, &mut Owners),
        now: Timestamp,
    ) {
        let position = job.row.queue_position;
        job.marks.set_delayed(job.queued_at() > now);
        if job.marks.is_delayed() {
            let is_new = self.delayed.insert(position, key);
            debug_assert!(is_new, "a job waits once");
            due.insert(job.queued_at(), key);
            if job.is_replaceable() {
                self.replaceable.insert(job.flow(), key);
            }
        } else {
            let holds = self.ready.insert(job.rank(), position, key, now);
            self.hold_tags(holds, job, owners);
        }
    }

    /// Lets the limits of starts hold the tags of the job, if `holds`.
    pub(super) fn hold_tags(&mut self, holds: bool, job: &Job, owners: &mut Owners) {
        if let Some(tags) = job.tags.as_ref().filter(|_| holds) {
            let tags = owners.hold_tags(job.owner, tags);
            self.ready.hold(job.flow(), (job.owner, tags));
        }
    }

    /// Removes a job that waits no longer.
    pub(super) fn remove_waiting(&mut self, job: &mut Job, key: JobKey, due: &mut Calendar) {
        let position = job.row.queue_position;
        if job.marks.is_delayed() {
            if job.is_replaceable() && self.replaceable.get(&job.flow()) == Some(&key) {
                self.replaceable.remove(&job.flow());
            }
            job.marks.set_delayed(false);
            let was_there = self.delayed.remove(position, key);
            debug_assert!(was_there, "a job that waits for its time is among those");
            due.remove(job.queued_at(), key);
        } else {
            self.ready.remove(job.rank(), position, key);
        }
    }
}

/// An endpoint that is being deleted.
#[derive(Debug)]
pub(crate) struct DeletingEndpoint {
    pub(crate) key: EndpointKey,
    /// Whether all its jobs in memory are removed.
    pub(super) has_left_memory: bool,
    /// Whether the database's thread has yet to find out that it has no archived jobs.
    pub(super) awaits_tables: bool,
    /// Resolve when it is deleted on disk.
    pub(crate) acks: Vec<Ack>,
}

/// A notification of a job that waits from now on. It is due once the lock is released.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub(crate) struct QueuedNotice {
    pub(crate) endpoint: EndpointId,
    pub(crate) job: JobId,
}

/// The result of a submission.
#[derive(Debug)]
pub(crate) enum Decided {
    Queued(QueuedNotice),
    /// The submission is a duplicate. The receiver resolves when the job of the first one is on
    /// disk.
    Repeated(SubmitAnswer, oneshot::Receiver<()>),
}

impl Index {
    pub(crate) fn new(owners: Owners) -> Self {
        Self {
            phase: Phase::Open,
            epoch: StoreEpoch::default(),
            jobs: Slab::new(),
            ids: Ids::new(),
            endpoints: HashMap::default(),
            names: HashMap::new(),
            expiry: Calendar::default(),
            due: Calendar::default(),
            openings: BTreeSet::new(),
            has_earlier: false,
            opened_at: Timestamp::from_millis(0),
            archived: Archived::default(),
            backlog: Backlog::default(),
            has_alarm: false,
            requests: Vec::new(),
            new_segment: NewSegment::No,
            is_commit_awaited: false,
            bulk_removals: VecDeque::new(),
            deleting_endpoints: Vec::new(),
            owners,
            meters: Meters::default(),
            outbox: Outbox::default(),
            dropped_deliveries: Vec::new(),
            idempotency_index: IdempotencyIndex::default(),
            dropped_records_up_to: None,
            schedules: BTreeMap::new(),
            dropped_records: Vec::new(),
            early_ends: Vec::new(),
            queue_changes: QueueChanges::default(),
            closers: Vec::new(),
            last_seq: 0,
            positions: Positions::default(),
            last_endpoint: 0,
            visible_jobs: 0,
            published_batches: 0,
        }
    }

    /// The position in the list that the next job will have.
    pub(crate) fn next_seq(&self) -> u64 {
        self.last_seq + 1
    }

    /// All leases from now on have this epoch.
    pub(crate) fn begin_epoch(&mut self, epoch: StoreEpoch) {
        self.epoch = epoch;
    }

    /// Test only: adds a write behind all others.
    #[cfg(test)]
    pub(crate) fn push_last(&mut self, write: Write) {
        self.backlog.push_last(write);
    }

    /// Test only: the number of idempotency records of an owner.
    #[cfg(test)]
    pub(crate) fn idempotency_records_of(&mut self, owner: &OwnerId) -> usize {
        let key = self.owners.key(owner);
        self.idempotency_index.len_of(&key)
    }

    /// Test only: whether the writer has taken all writes.
    #[cfg(test)]
    pub(crate) fn is_backlog_empty(&self) -> bool {
        self.backlog.is_empty()
    }

    /// Whether the store accepts work.
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// An index in place of that of a store that has ended: it accepts nothing.
    pub(crate) fn closed() -> Self {
        Self { phase: Phase::Closed, ..Self::new(Owners::default()) }
    }

    /// Begins to close the store, unless it is closed already. Returns whether `closer` was taken:
    /// it is dropped when the store has ended.
    pub(crate) fn begin_close(&mut self, closer: Ack) -> bool {
        match self.phase {
            Phase::Open => self.phase = Phase::Closing,
            Phase::Closing | Phase::Drained => {}
            Phase::Closed => return false,
        }
        self.closers.push(closer);
        true
    }

    /// The requests to the database's thread that have come since the last call.
    pub(crate) fn take_requests(&mut self) -> Vec<DbRequest> {
        std::mem::take(&mut self.requests)
    }

    /// Adds a request to the database's thread.
    pub(crate) fn push_request(&mut self, request: DbRequest) {
        self.requests.push(request);
    }

    /// The segment that the writer has begun on request. Without a request, makes one.
    pub(crate) fn take_new_segment(&mut self) -> Option<SegmentId> {
        match self.new_segment {
            NewSegment::No => self.new_segment = NewSegment::Asked,
            NewSegment::Asked | NewSegment::Beginning => {}
            NewSegment::Begun(segment) => {
                self.new_segment = NewSegment::No;
                return Some(segment);
            }
        }
        None
    }

    /// Forgets a segment that was begun for an earlier request.
    pub(crate) fn discard_new_segment(&mut self) {
        if matches!(self.new_segment, NewSegment::Begun(_)) {
            self.new_segment = NewSegment::No;
        }
    }

    /// Records the answer to the request; `None` when no segment could be begun.
    pub(crate) fn answer_new_segment(&mut self, begun: Option<SegmentId>) {
        self.new_segment = begun.map_or(NewSegment::No, NewSegment::Begun);
    }

    /// Whether the database's thread waits for the batch that is being written, from now on.
    pub(crate) fn await_commit(&mut self) {
        self.is_commit_awaited = true;
    }

    /// Whether the database's thread waited for the batch that was just committed.
    pub(crate) fn take_commit_awaited(&mut self) -> bool {
        std::mem::take(&mut self.is_commit_awaited)
    }

    /// The job whose rows have this number, unless another job has its key by now.
    pub(crate) fn job_of_row(&mut self, key: JobKey, seq: u64) -> Option<&mut Job> {
        self.jobs.get_mut(key).filter(|job| job.seq == seq)
    }

    /// Adds the usage of an attempt without a result, with the room that it occupies.
    pub(crate) fn add_bill(&mut self, lease: Lease, bill: Bill, room: Room) {
        self.add_usage_of_cancelled(lease, &bill.used);
        self.add_bills(vec![bill], room);
    }

    /// Adds usage that belongs to no job, with the room that it occupies.
    pub(crate) fn add_bills(&mut self, bills: Vec<Bill>, room: Room) {
        self.backlog.push(Write::Bills(bills, room));
    }

    /// The notes of schedules, as they are on disk.
    pub(crate) fn schedule_notes(&self) -> Vec<ScheduleNote> {
        let note = |(schedule, text): (&ScheduleNumber, &String)| ScheduleNote {
            schedule: *schedule,
            text: text.clone(),
        };
        self.schedules.iter().map(note).collect()
    }

    /// Adds a note that is on disk.
    pub(crate) fn restore_note(&mut self, note: ScheduleNote) {
        self.schedules.insert(note.schedule, note.text);
    }

    /// Changes notes of schedules; `None` removes one. `ack` resolves when the change is on disk.
    pub(crate) fn note_schedules(
        &mut self,
        notes: Vec<(ScheduleNumber, Option<String>)>,
        ack: Ack,
    ) {
        self.backlog.push(Write::Notes(notes, ack));
    }

    /// The usage, as it is on disk.
    pub(crate) fn meters(&self) -> &Meters {
        &self.meters
    }

    /// The usage, for the database's thread, which copies it to the tables.
    pub(crate) fn meters_mut(&mut self) -> &mut Meters {
        &mut self.meters
    }

    /// The webhooks that are still to be sent.
    pub(crate) fn outbox(&self) -> &Outbox<EndpointKey> {
        &self.outbox
    }

    /// The webhooks, for changes that are never written.
    pub(crate) fn outbox_mut(&mut self) -> &mut Outbox<EndpointKey> {
        &mut self.outbox
    }

    /// Records the result of an attempt to send a webhook. `ack` resolves when it is on disk.
    /// Returns whether the batch releases the `room`: not when the webhook does not exist any more.
    pub(crate) fn record_attempt(
        &mut self,
        id: DeliveryId,
        after: impl FnOnce(&Delivery) -> Delivery,
        room: Room,
        ack: Ack,
    ) -> bool {
        let Some(delivery) = self.outbox.get(id) else {
            self.ack_all(ack);
            return false;
        };
        let after = Box::new(after(delivery));
        self.backlog.push(Write::Delivery(after, room, ack));
        true
    }

    /// Begins to remove the waiting jobs of an endpoint. `answer` resolves when they are removed in
    /// memory.
    pub(crate) fn begin_purge(&mut self, endpoint: &EndpointId, answer: oneshot::Sender<Purged>) {
        let until = self.positions.last() + 1;
        if let Some((endpoint, _)) = self.endpoint(endpoint) {
            let removal = BulkRemoval::Purge { endpoint, until, removed: 0, answer };
            self.bulk_removals.push_back(removal);
            return;
        }
        let (ack, on_disk) = oneshot::channel();
        self.ack_all(ack);
        // A dropped receiver means that the caller does not need the answer any more.
        let _ = answer.send(Purged { removed: 0, on_disk });
    }

    /// Whether the writer must be woken for a change: not for changes that linger while it has an
    /// alarm.
    pub(crate) fn needs_writer(&self) -> bool {
        let only_lingers = matches!(self.backlog.due(), Some(Due::By(_)));
        !(self.has_alarm && only_lingers && self.bulk_removals.is_empty())
    }

    /// The jobs that have ended without a result since the last call.
    pub(crate) fn take_early_ends(&mut self) -> Vec<EarlyEnd> {
        std::mem::take(&mut self.early_ends)
    }

    /// Deletes up to `count_max` jobs in memory whose time is over, and as many idempotency
    /// records. Returns the time of the next one, and whether anything has changed; then `ack`
    /// resolves when that is on disk.
    pub(crate) fn expire_due(
        &mut self,
        now: Timestamp,
        count_max: usize,
        ack: Ack,
    ) -> (Timestamp, bool) {
        let due = self.expiry.due(now, count_max);
        for &key in &due {
            self.expire(key, now);
        }
        let forgotten = self.idempotency_index.expire(now, count_max);
        self.dropped_records_up_to = forgotten.or(self.dropped_records_up_to);
        let is_change = !due.is_empty() || forgotten.is_some();
        if is_change {
            self.ack_all(ack);
        }
        let next = self.expiry.next().min(self.idempotency_index.next());
        (next, is_change)
    }

    /// Adds up to `count_max` jobs whose time has come to their queues. Returns the time of the
    /// next one.
    pub(crate) fn fire_due(&mut self, now: Timestamp, count_max: usize) -> Timestamp {
        for key in self.due.due(now, count_max) {
            let Some(job) = self.jobs.get_mut(key) else { continue };
            let Some(endpoint) = self.endpoints.get_mut(&job.endpoint) else { continue };
            endpoint.remove_waiting(job, key, &mut self.due);
            endpoint.add_waiting(job, key, (&mut self.due, &mut self.owners), now);
            self.queue_changes.add(job.endpoint, &mut endpoint.queue_version);
        }
        while let Some((_, key)) = self.openings.first().filter(|(at, _)| *at <= now).copied() {
            self.openings.pop_first();
            let Some(endpoint) = self.endpoints.get_mut(&key) else { continue };
            endpoint.opening = Timestamp::NEVER;
            for (owner, tags) in endpoint.ready.fire(now, count_max) {
                self.owners.release_tags(owner, &tags);
            }
            self.queue_changes.add(key, &mut endpoint.queue_version);
            self.plan_opening(key);
            if self.endpoints.get(&key).is_some_and(|endpoint| endpoint.opening <= now) {
                return now;
            }
        }
        self.next_due()
    }

    /// When [`fire_due`](Self::fire_due) has something to do.
    fn next_due(&self) -> Timestamp {
        let opening = self.openings.first().map_or(Timestamp::NEVER, |(at, _)| *at);
        self.due.next().min(opening)
    }

    /// Sets the limits of the starts of an endpoint's jobs.
    pub(crate) fn limit_starts(
        &mut self,
        endpoint: &EndpointId,
        rules: StartRules,
        now: Timestamp,
    ) {
        if rules == StartRules::default() && !self.names.contains_key(endpoint) {
            return;
        }
        let key = self.endpoint_or_new(endpoint);
        let Some(endpoint) = self.endpoints.get_mut(&key) else { return };
        if endpoint.ready.limit(rules, now, self.opened_at) {
            self.queue_changes.add(key, &mut endpoint.queue_version);
            self.plan_opening(key);
        }
    }

    /// Finds the endpoint when its limits let further jobs start.
    pub(super) fn plan_opening(&mut self, key: EndpointKey) {
        let Some(endpoint) = self.endpoints.get_mut(&key) else { return };
        let next = endpoint.ready.next_time();
        if next != endpoint.opening {
            self.has_earlier |= next < self.next_due();
            let Some(endpoint) = self.endpoints.get_mut(&key) else { return };
            self.openings.remove(&(endpoint.opening, key));
            endpoint.opening = next;
            if next < Timestamp::NEVER {
                self.openings.insert((next, key));
            }
        }
    }

    /// Forgets what limits the starts of an endpoint that is deleted.
    pub(super) fn forget_limits(&mut self, endpoint: Endpoint, key: EndpointKey) {
        self.openings.remove(&(endpoint.opening, key));
        for (owner, tags) in endpoint.ready.into_held() {
            self.owners.release_tags(owner, &tags);
        }
    }

    /// Whether a job has an earlier time than all others since the last call, or a limit.
    pub(crate) fn take_earlier(&mut self) -> bool {
        std::mem::take(&mut self.has_earlier)
    }

    /// Records how far a client has read the stream of a job.
    pub(crate) fn mark_delivered(&mut self, id: JobId, next: StreamPosition, now: Timestamp) {
        if let Some(key) = self.key_of(id)
            && let Some(job) = self.jobs.get_mut(key)
            && let Some(visible) = job.visible()
            && visible.stream_attempt() == next.attempt
        {
            let chunk_count = visible.chunk_count();
            if chunk_count > 0 {
                let chunks = job.chunks_delivered().unwrap_or(0).max(next.index.min(chunk_count));
                job.rare_mut().delivered = Some(Delivered { chunks, at: now });
            }
        }
    }

    /// The idempotency records that were dropped before older ones and whose rows exist: those of
    /// submissions up to `last_seq`. A later record may have no row yet.
    pub(crate) fn take_dropped_records(&mut self, last_seq: u64) -> Vec<u64> {
        let (dropped, later) =
            std::mem::take(&mut self.dropped_records).into_iter().partition(|seq| *seq <= last_seq);
        self.dropped_records = later;
        dropped
    }

    pub(crate) fn key_of(&self, id: JobId) -> Option<JobKey> {
        self.ids.get(id, &self.jobs)
    }

    /// The job with the id, whether clients see it or not.
    pub(crate) fn find(&self, id: JobId) -> Option<(JobKey, &Job)> {
        let key = self.key_of(id)?;
        Some((key, self.jobs.get(key)?))
    }

    /// The job, unless its time is over or it belongs to another endpoint, such as a deleted one of
    /// the same name.
    pub(crate) fn find_of(
        &self,
        endpoint: &EndpointId,
        id: JobId,
        now: Timestamp,
    ) -> Option<(JobKey, &Job)> {
        let (key, job) = self.find(id)?;
        self.is_job_of(endpoint, job, now).then_some((key, job))
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

    /// The numbers of the endpoints whose records these rows delete. An endpoint without jobs gets
    /// a number, so that a job that is submitted meanwhile is deleted as well.
    pub(crate) fn numbers_of_deleted(&mut self, rows: &[CatalogRow]) -> Vec<EndpointKey> {
        let deleted = rows.iter().filter(|row| row.kind == "endpoint" && row.body.is_none());
        let names = deleted.filter_map(|row| EndpointId::new(&row.name).ok());
        names.map(|name| self.endpoint_or_new(&name)).collect()
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
    ) -> Result<(RetryAnswer, Option<QueuedNotice>), StoreError> {
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
        if let Some(endpoint) = self.endpoints.get(&job.endpoint) {
            // Its result is removed, and its input waits instead of being kept.
            let mut others = endpoint.disk_usage;
            others.remove(own);
            max.check(endpoint.waiting(), others, input_bytes)?;
            self.owners.check_waiting(job.owner)?;
            // Each end of the job may add a webhook.
            check_owner(self.owners.account(job.owner), input_bytes)?;
        }
        match self.decide(key, JobEvent::RetryRequested, now) {
            Ok(notice) => Ok((RetryAnswer::Queued, notice)),
            Err(_) => Ok((RetryAnswer::WrongStatus(status), None)),
        }
    }

    /// The answer to a submission that came before, and the wait until its job is on disk.
    pub(crate) fn find_repeated(
        &mut self,
        endpoint: &EndpointId,
        idempotency: Idempotency,
        ack: Ack,
    ) -> Option<SubmitAnswer> {
        let endpoint = self.names.get(endpoint)?;
        let found = self.idempotency_index.find(endpoint, idempotency)?;
        self.ack_repeated(&found, ack);
        Some(found)
    }

    /// Acknowledges a submission whose idempotency key was used before: once the first job is on
    /// disk, or at once if the key belongs to another request.
    fn ack_repeated(&mut self, answer: &SubmitAnswer, ack: Ack) {
        match answer {
            SubmitAnswer::Repeated(first) => self.ack_id(*first, ack),
            SubmitAnswer::Queued | SubmitAnswer::Completed(_) | SubmitAnswer::KeyReused => {
                let _ = ack.send(());
            }
        }
    }

    /// Whether this is the job of a handler's call that is sent again: it has the id of the first
    /// time.
    fn is_sent_before(&self, id: JobId) -> bool {
        matches!(id.submission(), SubmissionKind::Handler(_)) && self.has(id)
    }

    /// Adds a job to its queue, unless the submission is a duplicate.
    pub(crate) fn submit(
        &mut self,
        new: Submitted,
        now: Timestamp,
        max: EndpointMax,
    ) -> Result<Decided, StoreError> {
        let Submitted { job, input, room, ack } = new;
        // Checked under the same lock as the deletion. The endpoint's jobs are deleted after its
        // incarnation has ended, so a job that is accepted here is deleted with the others.
        if job.incarnation.has_ended() {
            return Err(StoreError::EndpointDeleted);
        }
        let endpoint = self.endpoint_or_new(&job.endpoint);
        let first = |idempotency| self.idempotency_index.find(&endpoint, idempotency);
        let sent_before = || self.is_sent_before(job.id).then_some(SubmitAnswer::Repeated(job.id));
        if let Some(answer) = job.idempotency.and_then(first).or_else(sent_before) {
            let (ack, on_disk) = oneshot::channel();
            self.ack_repeated(&answer, ack);
            return Ok(Decided::Repeated(answer, on_disk));
        }
        let input_bytes = u32::try_from(input.len()).unwrap_or(u32::MAX);
        let found = self.endpoints.get(&endpoint).expect("it has just been made");
        let max = max.of(job.waiting_jobs_max);
        let debounced = self.debounce(endpoint, &job, now);
        let replaced = debounced.as_ref().and_then(|debounced| debounced.replaces);
        let waiting = found.waiting() - usize::from(replaced.is_some());
        max.check(waiting, found.disk_usage, input_bytes)?;
        let owner = self.owners.key(&job.owner);
        let webhook: Option<Url> = job.webhook.map(|url| Arc::new(url.into()));
        let (start, tags) = match debounced {
            Some(Debounced { due, tags, .. }) => (Start::At(due), Some(tags)),
            None => (job.policy.start, job.tags),
        };
        self.check_new_job(owner, input_bytes, webhook.as_ref(), tags.as_ref())?;

        self.last_seq += 1;
        let priority = tags.as_ref().map_or(0, Tags::priority);
        let queue_position = self.positions.next(priority, now);
        if let Some(idempotency) = job.idempotency {
            // The owner of the endpoint: the operator may submit jobs to the endpoints of others.
            self.remember_key(endpoint, job.incarnation.owner(), idempotency, job.id, now);
        }
        let webhook = webhook.map(|url| self.owners.hold_url(owner, url));
        let tags = tags.map(|tags| self.owners.hold_tags(owner, &tags));
        let trace = job.trace.map(|trace| self.owners.hold_trace(owner, trace));
        let insert = NewRow {
            owner: job.owner,
            ttl_ms: job.policy.ttl_ms,
            webhook: webhook.clone(),
            input: input.clone(),
            idempotency: job.idempotency,
            tags: tags.clone(),
            trace: trace.clone(),
        };
        let change = Change {
            insert: Some(Box::new(insert)),
            operations: 1,
            room,
            submission: Some(ack),
            note: job.note,
            ..Change::default()
        };
        let pending = Pending { visible: None, queued: None, change, input: Some(input) };
        let due = start.due(now);
        let past = job.policy.retry.map(|rule| {
            PastAttempts::default().with_retry(JobRetry { rule: Some(rule), ..JobRetry::default() })
        });
        let attempt = (due.is_some() || past.is_some()).then(|| {
            let past = past.unwrap_or_default();
            Arc::new(Attempt { queued_at: due, past, ..Attempt::default() })
        });
        let entry = Job {
            id: job.id,
            seq: self.last_seq,
            endpoint,
            owner,
            marks: Marks::new(job.policy.low_priority, tags.as_ref()),
            input_bytes,
            webhook,
            tags,
            stored: Stored::default(),
            payload_locations: PayloadLocations::default(),
            created_at: now,
            segment: SegmentId(0),
            times: JobTimes::new(job.policy.execution_timeout_ms, job.retention, job.policy.ttl_ms),
            row: JobRow {
                status: Some(JobStatus::InQueue),
                crashes: 0,
                retries: 0,
                last_claim: Claim::default(),
                queue_position,
                ttl_at: due.unwrap_or(now).plus_millis(job.policy.ttl_ms),
                attempt,
            },
            rare: Rare::with(trace),
            pending: Some(Box::new(pending)),
        };
        let urgency = if job.may_linger { Urgency::Deferred } else { Urgency::Now };
        self.enqueue_new(entry, urgency, now);
        if let Some(replaced) = replaced {
            // After the new job, so that a crash between the two loses neither.
            let cancelled = self.decide(replaced, JobEvent::CancelRequested, now);
            debug_assert!(cancelled.is_ok(), "a job that waits can be cancelled");
        }
        Ok(Decided::Queued(QueuedNotice { endpoint: job.endpoint, job: job.id }))
    }

    /// When a job with `policy.debounceMs` starts, and which one it replaces.
    fn debounce(&self, endpoint: EndpointKey, job: &NewJob, now: Timestamp) -> Option<Debounced> {
        let (Start::Debounced { ms, max_ms }, Some(tags)) = (job.policy.start, &job.tags) else {
            return None;
        };
        let flow = tags.job_key().map_or(Flow::NONE, Flow::of);
        let found = self.endpoints.get(&endpoint);
        let replaces = found.and_then(|endpoint| endpoint.replaceable.get(&flow)).copied();
        let before = replaces.and_then(|key| self.jobs.get(key)?.tags.as_ref());
        let since = before.and_then(Tags::debounced_since_ms).map(Timestamp::from_millis);
        let since = since.unwrap_or(now).min(now);
        let due = now.plus_millis(ms).min(since.plus_millis(max_ms)).max(now);
        // The submission was checked with a value as long as this one.
        let tags = tags.clone().with_debounce(since.as_millis()).unwrap_or_else(|_| tags.clone());
        Some(Debounced { due, tags, replaces })
    }

    /// Checks that the owner of a new job has room for it, and for its webhook and tags.
    fn check_new_job(
        &mut self,
        owner: OwnerKey,
        input_bytes: u32,
        webhook: Option<&Url>,
        tags: Option<&Tags>,
    ) -> Result<(), StoreError> {
        check_owner(self.owners.account(owner), input_bytes)?;
        self.owners.check_new(owner)?;
        if let Some(url) = webhook {
            self.owners.check_webhook(owner, url, self.outbox.pending_bytes(owner))?;
        }
        if let Some(tags) = tags {
            self.owners.check_tags(owner, tags, self.outbox.pending_bytes(owner))?;
        }
        Ok(())
    }

    /// Records that the newest submission has used an idempotency key. The record may replace an
    /// older one of `owner`, which is then deleted from the tables too.
    fn remember_key(
        &mut self,
        endpoint: EndpointKey,
        owner: &OwnerId,
        Idempotency { key, content }: Idempotency,
        job: JobId,
        now: Timestamp,
    ) {
        let first = IdempotencyRecord { seq: self.last_seq, job, content, at: now };
        let owners = &mut self.owners;
        match self.idempotency_index.insert(&endpoint, || owners.key(owner), key, first) {
            Some(Dropped::UpTo(last)) => self.dropped_records_up_to = Some(last),
            Some(Dropped::Only(seq)) => self.dropped_records.push(seq),
            None => {}
        }
    }

    /// Adds the newest job to its queue, to what its owner has, to all indexes, and to the next
    /// batch.
    fn enqueue_new(&mut self, job: Job, urgency: Urgency, now: Timestamp) {
        let Job { id, seq, owner, endpoint: endpoint_key, .. } = job;
        let ttl_at = job.row.ttl_at;
        let usage = DiskUsage::of(&job);
        self.owners.account(owner).add(usage.bytes());
        self.owners.add_waiting(owner);
        self.owners.add_in_memory(owner);
        let endpoint = self.endpoints.get_mut(&endpoint_key).expect("its queue has been checked");
        let key = self.jobs.insert(job);
        endpoint.disk_usage.add(usage);
        if let Some(job) = self.jobs.get_mut(key) {
            endpoint.add_waiting(job, key, (&mut self.due, &mut self.owners), now);
        }
        self.queue_changes.add(endpoint_key, &mut endpoint.queue_version);
        endpoint.history.insert(seq, key);
        self.plan_opening(endpoint_key);
        self.ids.insert(id, key, &self.jobs);
        self.expiry.insert(ttl_at, key);
        if let Some(pending) = self.jobs.get_mut(key).and_then(|job| job.pending.as_mut()) {
            self.backlog.push_job(key, &mut pending.queued, urgency);
        }
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

    /// Begins to delete an endpoint, if there is one of this name. Its webhooks are removed at
    /// once, since the next endpoint of the name would sign them. Jobs that are submitted from now
    /// on belong to a new endpoint of the same name. Returns its idempotency records, to be dropped
    /// without the lock.
    pub(crate) fn forget(&mut self, endpoint: &EndpointId) -> Option<ForgottenRecords<OwnerKey>> {
        let key = self.names.remove(endpoint)?;
        let (records, up_to) = self.idempotency_index.forget_endpoint(&key, self.last_seq);
        self.dropped_records_up_to = Some(up_to);
        self.dropped_deliveries.extend(self.outbox.forget(&key));
        self.begin_deletion(key);
        Some(records)
    }

    /// Removes all jobs of an endpoint that has no name any more, then the endpoint.
    pub(crate) fn begin_deletion(&mut self, key: EndpointKey) {
        let deleting = DeletingEndpoint {
            key,
            has_left_memory: false,
            awaits_tables: false,
            acks: Vec::new(),
        };
        self.deleting_endpoints.push(deleting);
        self.bulk_removals.push_back(BulkRemoval::Forget { endpoint: key, before: u64::MAX });
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
    pub(crate) fn is_deleting(&self, key: EndpointKey) -> bool {
        self.deleting_endpoints.iter().any(|deleting| deleting.key == key)
    }
}

/// A submission that may replace another one.
struct Debounced {
    due: Timestamp,
    tags: Tags,
    replaces: Option<JobKey>,
}

/// A submission with its payload.
#[derive(Debug)]
pub(crate) struct Submitted {
    /// Its `input` and `s3_config` are empty; their values are in `input` below.
    pub(crate) job: NewJob,
    pub(crate) input: Payload,
    /// What it occupies in the write buffer.
    pub(crate) room: Room,
    pub(crate) ack: SubmissionAck,
}
