//! A batch: the newest decided state of each changed job, written as one transaction and published
//! after the commit.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gristmill_core::billing::usage::{Bill, UsageSum};
use gristmill_core::id::{JobId, TemplateId};
use gristmill_core::job::idempotency::Idempotency;
use gristmill_core::job::note::ScheduleNumber;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{JobCounts, JobRecord};
use gristmill_core::job::retention::Retention;
use gristmill_core::job::state::JobStatus;
use gristmill_core::sharing::disk_share::DiskCharge;
use gristmill_core::time::Timestamp;
use gristmill_core::webhook::delivery::{Delivery, DeliveryId, NotSent};

use crate::format::EndpointKey;
use crate::format::image::JobLocations;
use crate::format::pages::{Page, paginate};
use crate::format::payload::PayloadKey;
use crate::medium::{Medium, PayloadLocation, SegmentId};
use crate::state::backlog::{Ack, Due, Urgency, Write};
use crate::state::caches::ChunkCache;
use crate::state::caches::PayloadCache;
use crate::state::disk_usage::webhook_charge;
use crate::state::index::{Endpoint, Index, Phase};
use crate::state::job::{
    CompletedWrite, Job, JobRow, Lifetime, NewRow, Pending, Stored, SubmissionAck,
};
use crate::state::meters::{MeterKey, UsageWrite};
use crate::state::owners::OwnerKey;
use crate::state::relay::Sender;
use crate::state::requests::{DbRequest, NewSegment};
use crate::state::room::Room;
use crate::state::slab::JobKey;
use crate::state::urls::Url;

/// The content of one transaction.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Endpoints without a row, with their names.
    pub(crate) endpoints: Vec<(EndpointKey, String)>,
    /// One entry for each changed job, with only its newest state.
    pub(crate) jobs: Vec<JobWrite>,
    /// The changed counts of endpoints, with their new values.
    pub(crate) totals: BTreeMap<EndpointKey, Lifetime>,
    /// Changed rows of usage, with their new values.
    pub(crate) usage: Vec<UsageWrite>,
    /// Deliveries after an attempt.
    pub(crate) deliveries: Vec<(EndpointKey, Delivery)>,
    /// Deliveries to remove.
    pub(crate) dropped_deliveries: Vec<DeliveryId>,
    pub(crate) forgotten: Vec<EndpointKey>,
    /// The idempotency records of submissions up to this number are removed.
    pub(crate) dropped_records_up_to: Option<u64>,
    /// Changed notes of schedules; `None`: the note is removed.
    pub(crate) schedules: BTreeMap<ScheduleNumber, Option<String>>,
    /// Callers that wait for the batch as a whole.
    pub(crate) acks: Vec<Ack>,
    pub(crate) operations: u64,
    /// What it occupies in the write buffer.
    pub(crate) room: Room,
    /// Approximate size in memory and in the journal, including webhooks.
    bytes: usize,
    #[cfg(test)]
    pub(crate) is_broken: bool,
    #[cfg(test)]
    pub(crate) hold: Option<std::sync::mpsc::Receiver<()>>,
}

/// The new content of one job.
#[derive(Debug)]
pub(crate) struct JobWrite {
    pub(crate) key: JobKey,
    pub(crate) fixed: Fixed,
    pub(crate) row: JobRow,
    pub(crate) kind: RowWrite,
    /// Set for a new job, even if it was created and removed without ever having a row.
    pub(crate) idempotency: Option<Idempotency>,
    pub(crate) output: Option<Json>,
    pub(crate) clear_result: bool,
    pub(crate) pages: Vec<Page>,
    /// The webhook to call at the job's end, until the batch makes a delivery from it.
    pub(crate) call: Option<Box<WebhookToCompose>>,
    pub(crate) delivery: Option<Box<NewDelivery>>,
    rewind: bool,
    counts: Lifetime,
    submission: Option<SubmissionAck>,
    acks: Vec<Ack>,
}

/// The columns of a job's row that never change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fixed {
    pub(crate) seq: u64,
    pub(crate) id: JobId,
    pub(crate) endpoint: EndpointKey,
    pub(crate) low_priority: bool,
    pub(crate) execution_timeout_ms: Option<u64>,
    pub(crate) retention: Retention,
    pub(crate) created_at: Timestamp,
}

/// A webhook of a job that has ended, with the parts that are needed to compose it.
#[derive(Debug)]
pub(crate) struct WebhookToCompose {
    pub(crate) id: DeliveryId,
    pub(crate) owner: OwnerKey,
    pub(crate) url: Url,
    /// The job as it ended.
    pub(crate) record: JobRecord,
    /// The charge for its body, or why it is given up at once.
    pub(crate) room: Result<DiskCharge, NotSent>,
    /// The location of the job's input, when it is in the journal.
    pub(crate) input: Option<PayloadLocation>,
    /// The locations of its chunks that are in the journal.
    pub(crate) pages: Vec<(u64, PayloadLocation)>,
}

/// A delivery that is added with the end of its job.
#[derive(Debug)]
pub(crate) struct NewDelivery {
    /// The owner of its job.
    pub(crate) owner: OwnerKey,
    pub(crate) delivery: Delivery,
    /// The bytes to send, unless the delivery is refused.
    pub(crate) body: Option<Bytes>,
    /// The charge for these bytes.
    pub(crate) charge: Option<DiskCharge>,
}

/// Usage that a batch adds. It is summed by integer keys first: cloning the `Arc` name for each job
/// would make all cores write to its reference count.
#[derive(Debug, Default)]
struct Used {
    by_number: BTreeMap<(EndpointKey, OwnerKey, TemplateId), UsageSum>,
    by_name: BTreeMap<MeterKey, UsageSum>,
}

/// The change of a job's row.
#[derive(Debug)]
pub(crate) enum RowWrite {
    Insert(Box<NewRow>),
    Update,
    /// Deletes the parts that the database may have.
    Delete(Stored),
    /// The job was created and removed without ever having a row.
    NeverStored,
}

/// Notifications to send after a commit, outside the lock.
#[derive(Debug, Default)]
pub(crate) struct Published {
    pub(crate) changed: Vec<JobId>,
    pub(crate) has_deliveries: bool,
    /// There are requests to the database's thread.
    pub(crate) has_ask: bool,
    /// The submissions in the batch whose callers wait for the end, with their jobs if these have
    /// ended.
    pub(crate) awaited: Vec<(Sender<Option<CompletedWrite>>, Option<CompletedWrite>)>,
    /// The other ones.
    pub(crate) submitted: Vec<Sender<Option<CompletedWrite>>>,
    pub(crate) acks: Vec<Ack>,
    /// Memory that other threads have allocated, which is slow to free: not under the lock.
    unused: Vec<Unused>,
}

/// What a job and its row needed until they were written.
type Unused = (Option<Box<Pending>>, Option<Box<NewRow>>);

/// Further users of published changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caches<'a> {
    pub(crate) payloads: &'a PayloadCache,
    pub(crate) chunks: &'a ChunkCache,
    pub(crate) medium: &'a dyn Medium,
}

/// Bounds of one batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchMax {
    pub(crate) jobs: usize,
    /// A batch is closed once it has this many bytes; its last job may exceed the bound.
    bytes: usize,
}

impl BatchMax {
    /// The bounds of one transaction. A frame of the journal is limited to 4 GiB; this bound keeps
    /// a batch far below that, whatever the settings are.
    const BYTES_MAX: usize = 256 << 20;

    pub(crate) fn new(jobs: usize, bytes: usize) -> Self {
        Self { jobs: jobs.max(1), bytes: bytes.clamp(1, Self::BYTES_MAX) }
    }
}

impl Batch {
    fn add_room(&mut self, room: Room) {
        self.bytes += room.bytes();
        self.room.add(room);
    }

    /// Whether there is nothing to write; callers may still wait for an answer.
    pub(crate) fn is_empty(&self) -> bool {
        let leaves_nothing =
            |job: &JobWrite| matches!(job.kind, RowWrite::NeverStored) && job.idempotency.is_none();
        self.jobs.iter().all(leaves_nothing)
            && self.totals.is_empty()
            && self.usage.is_empty()
            && self.endpoints.is_empty()
            && self.deliveries.is_empty()
            && self.dropped_deliveries.is_empty()
            && self.forgotten.is_empty()
            && self.dropped_records_up_to.is_none()
            && self.schedules.is_empty()
    }
}

/// The writer's next work.
#[derive(Debug)]
pub(crate) enum NextBatch {
    Commit {
        batch: Box<Batch>,
        /// Changed jobs, in the batch or after it.
        jobs_in_flight: usize,
    },
    /// The database's thread has asked for a new segment of the journal.
    BeginSegment,
    /// Nothing is due before this time is over, or before the writer is woken.
    Wait(Option<Duration>),
    /// The store is closing, and everything is written.
    Drained,
    /// The store has ended.
    Ended,
}

impl Index {
    /// The changes that are due at `now`. One slice of a bulk removal may be carried out first.
    pub(crate) fn next_batch(&mut self, max: BatchMax, now: Timestamp) -> NextBatch {
        if self.phase == Phase::Closed {
            return NextBatch::Ended;
        }
        if self.new_segment == NewSegment::Asked {
            self.new_segment = NewSegment::Beginning;
            return NextBatch::BeginSegment;
        }
        if self.backlog.len() < max.jobs {
            self.remove_slice(now);
        }
        let due = self.backlog.due();
        let is_due = match due {
            Some(Due::Now) => true,
            Some(Due::By(at)) => self.phase != Phase::Open || at <= Instant::now(),
            None => false,
        };
        if is_due || !self.bulk_removals.is_empty() {
            let takes_all = self.phase != Phase::Open;
            let batch = Box::new(self.take_batch(max, takes_all, now));
            let jobs_in_flight = batch.jobs.len() + self.backlog.len();
            return NextBatch::Commit { batch, jobs_in_flight };
        }
        if self.phase == Phase::Closing {
            self.phase = Phase::Drained;
            return NextBatch::Drained;
        }
        NextBatch::Wait(match due {
            Some(Due::By(at)) => Some(at.saturating_duration_since(Instant::now())),
            Some(Due::Now) | None => None,
        })
    }

    /// Takes the changes that are due, or all of them, up to the bounds. Costs some 100 ns for each
    /// job. Usage counts in the hour of `time`.
    pub(crate) fn take_batch(&mut self, max: BatchMax, takes_all: bool, time: Timestamp) -> Batch {
        let mut round = self.backlog.begin_round(takes_all, Instant::now());
        let mut used = Used::default();
        let dropped_deliveries = std::mem::take(&mut self.dropped_deliveries);
        let dropped_records_up_to = self.dropped_records_up_to.take();
        let mut batch = Batch { dropped_deliveries, dropped_records_up_to, ..Batch::default() };
        while batch.jobs.len() < max.jobs && batch.bytes < max.bytes {
            let is_large = |key| self.jobs.get(key).is_some_and(Job::has_large_change);
            let Some(write) = self.backlog.pop(&mut round, is_large) else { break };
            match write {
                Write::Job(key) => self.take_job(key, &mut batch, &mut used),
                Write::Barrier(ack) => batch.acks.push(ack),
                Write::Delivery(delivery, room, ack) => {
                    batch.operations += 1;
                    let endpoint = self.outbox.endpoint_of(delivery.id);
                    batch.deliveries.extend(endpoint.map(|endpoint| (endpoint, *delivery)));
                    batch.add_room(room);
                    batch.acks.push(ack);
                }
                Write::Bills(bills, room) => {
                    batch.operations += 1;
                    batch.add_room(room);
                    for Bill { endpoint, template, owner, used: of_bill } in bills {
                        let key = MeterKey { endpoint, template, owner };
                        used.by_name.entry(key).or_default().add(&of_bill.billed);
                    }
                }
                Write::Notes(notes, ack) => {
                    batch.operations += 1;
                    batch.schedules.extend(notes);
                    batch.acks.push(ack);
                }
                Write::Forget(endpoint) => {
                    batch.operations += 1;
                    batch.forgotten.push(endpoint);
                }
                #[cfg(test)]
                Write::Break => batch.is_broken = true,
                #[cfg(test)]
                Write::Hold(until) => {
                    batch.hold = Some(until);
                    break;
                }
            }
        }
        let jobs = &self.jobs;
        self.backlog.drop_stale(|key| {
            let pending = jobs.get(key).and_then(|job| job.pending.as_ref());
            pending.is_some_and(|pending| pending.queued == Some(Urgency::Deferred))
        });
        for (key, sum) in &mut batch.totals {
            if let Some(Endpoint { counts, .. }) = self.endpoints.get(key) {
                let JobCounts { completed, failed, retried, .. } = *counts;
                sum.add(Lifetime { completed, failed, retried });
            }
        }
        batch.usage = self.meters.with(self.named(used), time);
        batch
    }

    /// The usage with the names of its keys.
    fn named(&self, used: Used) -> BTreeMap<MeterKey, UsageSum> {
        let Used { by_number, mut by_name } = used;
        for ((endpoint, owner, template), sum) in by_number {
            if let Some(endpoint) = self.endpoints.get(&endpoint) {
                let (endpoint, owner) = (endpoint.name.clone(), self.owners.name(owner).clone());
                by_name.entry(MeterKey { endpoint, template, owner }).or_default().add(&sum);
            }
        }
        by_name
    }

    fn take_job(&mut self, key: JobKey, batch: &mut Batch, used: &mut Used) {
        let Some(job) = self.jobs.get_mut(key) else { return };
        let Some(pending) = &mut job.pending else { return };
        if pending.queued.take().is_none() {
            return; // a newer entry of this job was taken already
        }
        let change = std::mem::take(&mut pending.change);
        if let Some(endpoint) = self.endpoints.get_mut(&job.endpoint)
            && !std::mem::replace(&mut endpoint.is_stored, true)
        {
            batch.endpoints.push((job.endpoint, endpoint.name.to_string()));
        }
        if let Some(note) = change.note {
            batch.schedules.insert(note.schedule, Some(note.text));
        }
        let is_gone = job.row.status.is_none();
        let idempotency = change.insert.as_ref().and_then(|new| new.idempotency);
        let kind = match change.insert {
            Some(_) if is_gone => RowWrite::NeverStored,
            Some(new) => RowWrite::Insert(new),
            None if is_gone => RowWrite::Delete(job.stored),
            None => RowWrite::Update,
        };
        let chunks = if is_gone { Vec::new() } else { change.chunks };
        let name = self.endpoints.get(&job.endpoint).map(|endpoint| &endpoint.name);
        // A job that ended and was queued again before the commit has no visible end.
        let is_final = job.row.status.is_some_and(JobStatus::is_final);
        let call = name.filter(|_| change.sends_webhook && is_final).and_then(|name| {
            let record = job.record_of(&job.row, name)?;
            let url = job.webhook.clone()?;
            let room = if self.outbox.is_full(&job.endpoint) {
                Err(NotSent::OutboxFull)
            } else {
                let pending = self.outbox.pending_bytes(job.owner);
                self.owners.check_delivery(job.owner, &url, pending).and_then(|()| {
                    webhook_charge(self.owners.account(job.owner), job.webhook_bytes() as u64)
                })
            };
            let id = self.outbox.next_id();
            Some(Box::new(WebhookToCompose {
                id,
                owner: job.owner,
                url,
                record,
                room,
                pages: job.payload_locations.pages().to_vec(),
                input: job.payload_locations.input,
            }))
        });
        let webhook_bytes = if call.is_some() { job.webhook_bytes() } else { 0 };
        for (template, sum) in change.bills.into_iter() {
            used.by_number.entry((job.endpoint, job.owner, template)).or_default().add(&sum);
        }
        let write = JobWrite {
            key,
            fixed: fixed(job),
            row: job.row.clone(),
            kind,
            idempotency,
            output: change.output.filter(|_| !is_gone),
            clear_result: change.clear_result && !is_gone,
            pages: paginate(change.chunks_first, chunks),
            call,
            delivery: None,
            rewind: change.rewind,
            counts: change.counts,
            submission: change.submission,
            acks: change.acks,
        };
        if write.counts != Lifetime::default() {
            batch.totals.entry(job.endpoint).or_default().add(write.counts);
        }
        batch.operations += change.operations;
        // An end without a reservation, such as a cancel or a crash of the host, has a webhook too.
        batch.bytes += webhook_bytes.saturating_sub(change.room.bytes());
        batch.add_room(change.room);
        batch.jobs.push(write);
    }

    /// Makes the changes of a batch visible, which is written to this segment of the journal.
    pub(crate) fn publish(
        &mut self,
        batch: Batch,
        (segment, locations): (SegmentId, Vec<JobLocations>),
        to: &Caches<'_>,
    ) -> Published {
        let mut published = Published { acks: batch.acks, ..Published::default() };
        self.published_batches += 1;
        published.changed.reserve(batch.jobs.len());
        for (mut write, locations) in batch.jobs.into_iter().zip(locations) {
            published.changed.push(write.fixed.id);
            for page in &write.pages {
                to.chunks.insert(write.fixed.seq, write.row.stream_attempt(), page.clone());
            }
            if write.row.status.is_none() {
                let (seq, attempt) = (write.fixed.seq, write.row.stream_attempt());
                to.payloads.remove(PayloadKey::Input(seq));
                to.payloads.remove(PayloadKey::Output(seq, attempt));
            }
            if let Some(new) = write.delivery.take() {
                let NewDelivery { owner, delivery, charge, .. } = *new;
                let id = delivery.id;
                if self.is_deleting(write.fixed.endpoint) {
                    self.dropped_deliveries.push(id);
                } else {
                    published.has_deliveries = true;
                    let dropped = self.outbox.add(write.fixed.endpoint, owner, delivery);
                    self.dropped_deliveries.extend(dropped);
                    self.outbox.set_body(id, locations.body);
                    self.outbox.set_charge(id, charge);
                }
            }
            self.record_locations(&write, locations, to.medium);
            self.publish_job(write, segment, &mut published);
        }
        for (_, delivery) in batch.deliveries {
            self.dropped_deliveries.extend(self.outbox.replace(delivery));
        }
        for (schedule, note) in batch.schedules {
            match note {
                Some(text) => self.schedules.insert(schedule, text),
                None => self.schedules.remove(&schedule),
            };
        }
        if self.meters.publish(batch.usage) {
            self.requests.push(DbRequest::StoreUsage);
            published.has_ask = true;
        }
        for key in batch.forgotten {
            if let Some(endpoint) = self.endpoints.remove(&key) {
                self.forget_limits(endpoint, key);
            }
            let left = self.deleting_endpoints.extract_if(.., |deleting| deleting.key == key);
            published.acks.extend(left.flat_map(|deleting| deleting.acks));
        }
        published
    }

    /// Records the locations of the payloads in the batch, and releases those that are not needed
    /// any more.
    fn record_locations(&mut self, write: &JobWrite, locations: JobLocations, medium: &dyn Medium) {
        let Some(job) = self.jobs.get_mut(write.key) else { return };
        if write.row.status.is_none() {
            medium.release(&mut job.payload_locations.kept().map(|(_, location)| location));
            return;
        }
        if !write.row.needs_input() {
            medium.release(
                &mut job
                    .payload_locations
                    .input
                    .take()
                    .into_iter()
                    .filter(|location| location.is_kept()),
            );
        }
        if write.clear_result
            && let Some(results) = &mut job.payload_locations.results
        {
            results.pages.clear();
            medium.release(
                &mut results.output.take().into_iter().filter(|location| location.is_kept()),
            );
        }
        let new = locations.input.into_iter().chain(locations.output);
        medium.hold(&mut new.filter(|location| location.is_kept()));
        job.payload_locations.add(locations);
    }

    fn publish_job(&mut self, write: JobWrite, segment: SegmentId, published: &mut Published) {
        let Some(job) = self.jobs.get_mut(write.key) else { return };
        job.segment = segment;
        let before = job.visible_status();
        let after = write.row.status;
        let mut new = match write.kind {
            RowWrite::Insert(new) => Some(new),
            RowWrite::Update | RowWrite::Delete(_) | RowWrite::NeverStored => None,
        };
        if let Some(ack) = write.submission {
            let sent = write.output.filter(|output| ack.takes(&write.row, output));
            let completed = sent.and_then(|output| {
                let (id, created_at, times) = (job.id, job.created_at, job.times.clone());
                let (row, new) = (write.row.clone(), new.take()?);
                Some(CompletedWrite { id, created_at, times, row, new, output })
            });
            match ack.wants_end {
                true => published.awaited.push((ack.sender, completed)),
                false => published.submitted.push(ack.sender),
            }
        }
        if let Some(endpoint) = self.endpoints.get_mut(&job.endpoint) {
            endpoint.count_status(before, after);
            endpoint.counts.completed += write.counts.completed;
            endpoint.counts.failed += write.counts.failed;
            endpoint.counts.retried += write.counts.retried;
        }
        self.visible_jobs += u64::from(after.is_some());
        self.visible_jobs -= u64::from(before.is_some());
        if write.rewind
            && let Some(rare) = &mut job.rare
        {
            rare.delivered = None;
        }
        published.acks.extend(write.acks);
        match &mut job.pending {
            Some(pending) if pending.queued.is_some() => {
                pending.visible = Some(write.row);
                pending.input = None;
            }
            // Nothing was decided since then, so callers that arrived meanwhile have nothing more
            // to wait for.
            Some(pending) => {
                published.acks.append(&mut pending.change.acks);
                published.unused.push((job.pending.take(), new));
            }
            None => {}
        }
        // A job that needs no input any more can never be queued again, so it sends no webhook.
        if !after.is_some_and(JobStatus::needs_input)
            && let Some(url) = job.webhook.take()
        {
            self.owners.release_url(job.owner, &url);
        }
        if after.is_none() {
            if let Some(endpoint) = self.endpoints.get_mut(&write.fixed.endpoint) {
                endpoint.history.remove(write.fixed.seq, write.key);
            }
            self.ids.remove(write.fixed.id, write.key);
            self.owners.remove_in_memory(job.owner);
            if let Some(tags) = &job.tags {
                self.owners.release_tags(job.owner, tags);
            }
            if let Some(trace) = job.trace() {
                self.owners.release_trace(job.owner, trace);
            }
            self.jobs.remove(write.key);
        }
    }
}

impl Endpoint {
    /// Moves one job from one visible status to another; `None` stands for a job that no client
    /// can see.
    pub(crate) fn count_status(&mut self, before: Option<JobStatus>, after: Option<JobStatus>) {
        let counts = &mut self.counts;
        counts.in_queue += u64::from(after == Some(JobStatus::InQueue));
        counts.in_queue -= u64::from(before == Some(JobStatus::InQueue));
        counts.in_progress += u64::from(after == Some(JobStatus::InProgress));
        counts.in_progress -= u64::from(before == Some(JobStatus::InProgress));
    }
}

fn fixed(job: &Job) -> Fixed {
    Fixed {
        seq: job.seq,
        id: job.id,
        endpoint: job.endpoint,
        low_priority: job.marks.is_low_priority(),
        execution_timeout_ms: job.times.execution_timeout_ms(),
        retention: job.times.retention(),
        created_at: job.created_at,
    }
}
