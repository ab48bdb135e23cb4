//! One job in memory: its decided state, its visible state, and its changes that are not on disk
//! yet.

use std::ops::Range;
use std::sync::Arc;

use gristmill_core::id::{EndpointId, JobId, OwnerId, WorkerId};
use gristmill_core::job::idempotency::Idempotency;
use gristmill_core::job::loss::Losses;
use gristmill_core::job::note::ScheduleNote;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{
    Chunk, CompletedJob, HostProcess, JobRecord, PastAttempt, RequeueCause,
};
use gristmill_core::job::retention::{ChosenRetention, Retention};
use gristmill_core::job::retry::JobRetry;
use gristmill_core::job::state::{Claim, JobState, JobStatus};
use gristmill_core::job::tags::Tags;
use gristmill_core::limits::OUTPUT_BYTES_MAX;
use gristmill_core::sharing::shares::Level;
use gristmill_core::time::Timestamp;
use gristmill_core::trace::TraceContext;

use crate::failure;
use crate::format::EndpointKey;
use crate::format::image::AttemptImage;
use crate::format::image::FixedImage;
use crate::format::image::HostImage;
use crate::format::image::JobLocations;
use crate::format::image::NewJobImage;
use crate::format::image::RowImage;
use crate::format::past::PastAttempts;
use crate::format::payload::{Kind, Payload, PayloadKey};
use crate::format::status_code;
use crate::format::status_from;
use crate::format::trace;
use crate::medium::{PayloadLocation, SegmentId};
use crate::state::backlog::{Ack, Urgency};
use crate::state::lane::Flow;
use crate::state::meters::Bills;
use crate::state::owners::OwnerKey;
use crate::state::owners::Owners;
use crate::state::ready::Rank;
use crate::state::relay::Sender;
use crate::state::room::{Room, is_large};
use crate::state::urls::Url;

/// Approximate bytes of a webhook besides its payloads and its URL, including its entry in the
/// outbox.
const WEBHOOK_HEAD_BYTES: usize = 1 << 10;

/// A job. A queued job that is on disk costs these 160 bytes, and about 35 more in the indexes by
/// id, queue position, number and time; a webhook URL, or tags, that no other job of the owner has
/// cost their length and about 130 bytes more.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: JobId,
    /// The number of the job's rows; also the order of submission.
    pub(crate) seq: u64,
    pub(crate) endpoint: EndpointKey,
    /// The owner of the key that submitted it.
    pub(crate) owner: OwnerKey,
    pub(crate) marks: Marks,
    /// Bytes of its input, about the size on disk.
    pub(crate) input_bytes: u32,
    /// Shared by the jobs of the owner with the same ones.
    pub(crate) tags: Option<Tags>,
    /// The URL to call when it ends, as long as it may be called.
    pub(crate) webhook: Option<Url>,
    /// The rows that the database may have.
    pub(crate) stored: Stored,
    /// The locations of its visible payloads that are in the journal.
    pub(crate) payload_locations: PayloadLocations,
    /// The segment of the journal with its last visible change; 0: it is only in the tables.
    pub(crate) segment: SegmentId,
    pub(crate) created_at: Timestamp,
    pub(crate) times: JobTimes,
    /// The decided state, on disk or not.
    pub(crate) row: JobRow,
    /// State that few jobs have.
    pub(crate) rare: Option<Box<Rare>>,
    /// Set while the disk is behind `row`.
    pub(crate) pending: Option<Box<Pending>>,
}

/// Properties of a job in one byte.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marks(u8);

impl Marks {
    const LOW_PRIORITY: u8 = 1;
    const DELAYED: u8 = 2;
    const DEBOUNCED: u8 = 4;

    /// Of a job that does not wait for its time.
    pub(crate) fn new(is_low_priority: bool, tags: Option<&Tags>) -> Self {
        let is_debounced = tags.is_some_and(|tags| tags.debounced_since_ms().is_some());
        let mark = |is_set, mark| if is_set { mark } else { 0 };
        Self(mark(is_low_priority, Self::LOW_PRIORITY) | mark(is_debounced, Self::DEBOUNCED))
    }

    /// Whether a later submission with its key replaces it, until it is claimed.
    pub(crate) fn is_debounced(self) -> bool {
        self.0 & Self::DEBOUNCED != 0
    }

    pub(crate) fn is_low_priority(self) -> bool {
        self.0 & Self::LOW_PRIORITY != 0
    }

    /// Whether it waits for its time: no worker may claim it yet.
    pub(crate) fn is_delayed(self) -> bool {
        self.0 & Self::DELAYED != 0
    }

    pub(crate) fn set_delayed(&mut self, is_delayed: bool) {
        self.0 = self.0 & !Self::DELAYED | if is_delayed { Self::DELAYED } else { 0 };
    }
}

/// A duration of up to 49 days; a longer one is cut. Clients can only request shorter ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Millis(u32);

/// The rows of a job that the database may have: at least all rows that it has.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stored {
    /// The job's row, and its input's.
    pub(crate) job: bool,
    pub(crate) output: bool,
    pub(crate) chunks: bool,
}

/// The locations of a job's visible payloads in the journal. Other payloads are in the database.
#[derive(Debug, Default)]
pub(crate) struct PayloadLocations {
    pub(crate) input: Option<PayloadLocation>,
    pub(crate) results: Option<Box<ResultLocations>>,
}

/// The locations of the results of attempts.
#[derive(Debug, Default)]
pub(crate) struct ResultLocations {
    pub(crate) output: Option<PayloadLocation>,
    /// Pages of chunks by the index of their first chunk, ascending; chunks in the database come
    /// before these.
    pub(crate) pages: Vec<(u64, PayloadLocation)>,
}

impl PayloadLocations {
    pub(crate) fn output(&self) -> Option<PayloadLocation> {
        self.results.as_ref()?.output
    }

    pub(crate) fn pages(&self) -> &[(u64, PayloadLocation)] {
        self.results.as_ref().map_or(&[], |results| &results.pages)
    }

    pub(crate) fn results_mut(&mut self) -> &mut ResultLocations {
        self.results.get_or_insert_default()
    }

    /// Adds the locations that a batch wrote.
    pub(crate) fn add(&mut self, locations: JobLocations) {
        self.input = locations.input.or(self.input);
        if locations.output.is_some() || !locations.pages.is_empty() {
            let results = self.results_mut();
            results.output = locations.output.or(results.output);
            results.pages.extend(locations.pages);
        }
    }

    /// Removes the location of a payload. False when the payload is not at `location`.
    pub(crate) fn clear(&mut self, kind: Kind, location: PayloadLocation) -> bool {
        let stored = match (kind, &mut self.results) {
            (Kind::Input, _) => &mut self.input,
            (Kind::Output, Some(results)) => &mut results.output,
            (Kind::Output, None) => return false,
        };
        stored.take_if(|stored| *stored == location).is_some()
    }

    /// Releases unused memory.
    pub(crate) fn tidy(&mut self) {
        self.results.take_if(|results| results.output.is_none() && results.pages.is_empty());
    }

    /// The index range of `some`, the pages of one batch, among the pages.
    pub(crate) fn find_pages(&self, some: &[(u64, PayloadLocation)]) -> Option<Range<usize>> {
        let (first, _) = some.first()?;
        let at = self.pages().partition_point(|(index, _)| index < first);
        let range = at..at + some.len();
        (self.pages().get(range.clone())? == some).then_some(range)
    }

    /// The payloads that stay in the journal and keep their segment alive.
    pub(crate) fn kept(&self) -> impl Iterator<Item = (Kind, PayloadLocation)> {
        let input = self.input.map(|location| (Kind::Input, location));
        let output = self.output().map(|location| (Kind::Output, location));
        input.into_iter().chain(output).filter(|(_, location)| location.is_kept())
    }
}

/// The columns of a job's row that can change.
#[derive(Debug, Clone)]
pub(crate) struct JobRow {
    /// `None` once the job is removed. Together with `last_claim` this is the whole [`JobState`].
    pub(crate) status: Option<JobStatus>,
    /// Lost hosts that are crashes; [`losses`](Self::losses) has all.
    pub(crate) crashes: u8,
    /// Saturates at the greatest number.
    pub(crate) retries: u16,
    pub(crate) last_claim: Claim,
    /// The job's position in the queue; the lowest is claimed first.
    pub(crate) queue_position: u64,
    pub(crate) ttl_at: Timestamp,
    /// Absent until the job is claimed, ends, is queued again or has its ttl shortened. Shared, so
    /// that a snapshot is cheap.
    pub(crate) attempt: Option<Arc<Attempt>>,
}

/// The results of the last attempt.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attempt {
    /// When the job was queued for this attempt, unless that was its submission.
    pub(crate) queued_at: Option<Timestamp>,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Option<Timestamp>,
    pub(crate) worker: Option<WorkerId>,
    /// The whole error, or its [beginning](failure).
    pub(crate) error: Option<String>,
    pub(crate) chunk_count: u64,
    /// The process of another host that runs it. Boxed, since few attempts have any at a time.
    pub(crate) host: Option<Box<HostProcess>>,
    /// Lost hosts of this attempt and earlier ones that are no crashes. Here, since few jobs have
    /// any. The tables of a data directory have none.
    pub(crate) losses: u8,
    /// Bytes of its chunks and its output.
    pub(crate) result_bytes: u64,
    /// The attempts before it, the usage of all, the retries, and whether a caller has shortened
    /// the ttl of a job with a chosen retention.
    pub(crate) past: PastAttempts,
}

/// The state that few jobs have.
#[derive(Debug, Default)]
pub(crate) struct Rare {
    /// The newest progress value; never written.
    pub(crate) progress: Option<Json>,
    /// The read position of its stream; never written before the job is archived.
    pub(crate) delivered: Option<Delivered>,
    /// Its position in a distributed trace; written once.
    pub(crate) trace: Option<TraceContext>,
    /// Calls of handlers that wait for its end; never written, since they end with the process.
    pub(crate) calls: u32,
}

impl Rare {
    /// The state of a new job.
    pub(crate) fn with(trace: Option<TraceContext>) -> Option<Box<Self>> {
        trace.map(|trace| Box::new(Self { trace: Some(trace), ..Self::default() }))
    }
}

/// How far a client has read the stream of a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delivered {
    /// 0 while the first page is being delivered.
    pub(crate) chunks: u64,
    /// When the client has last read.
    pub(crate) at: Timestamp,
}

/// The difference between a job in memory and the job on disk.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The state that clients see meanwhile; `None` while the submission is not on disk.
    pub(crate) visible: Option<JobRow>,
    /// How urgent `change` is; `None` when a batch has taken all changes.
    pub(crate) queued: Option<Urgency>,
    /// The change that the next batch writes.
    pub(crate) change: Change,
    /// The submission's payload, until it is on disk.
    pub(crate) input: Option<Payload>,
}

/// A job's change that the next batch writes.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// The columns that never change again, if the row is new.
    pub(crate) insert: Option<Box<NewRow>>,
    pub(crate) output: Option<Json>,
    /// The chunks and the output of an earlier attempt are deleted, before those of this change are
    /// written.
    pub(crate) clear_result: bool,
    /// This change resets the stream's read position.
    pub(crate) rewind: bool,
    pub(crate) chunks_first: u64,
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) counts: Lifetime,
    /// The usage of the attempts that have ended with this change.
    pub(crate) bills: Bills,
    /// The job has ended with this change, and has a webhook.
    pub(crate) sends_webhook: bool,
    /// Number of decisions in this change.
    pub(crate) operations: u64,
    /// What it occupies in the write buffer.
    pub(crate) room: Room,
    pub(crate) submission: Option<SubmissionAck>,
    /// What its schedule notes with the submission.
    pub(crate) note: Option<ScheduleNote>,
    pub(crate) acks: Vec<Ack>,
}

/// The columns of a job's row that are written once. They are not needed in memory.
#[derive(Debug)]
pub(crate) struct NewRow {
    pub(crate) owner: OwnerId,
    pub(crate) ttl_ms: u64,
    pub(crate) webhook: Option<Url>,
    pub(crate) input: Payload,
    pub(crate) idempotency: Option<Idempotency>,
    pub(crate) tags: Option<Tags>,
    pub(crate) trace: Option<TraceContext>,
}

/// Most bytes of an output that an acknowledgement carries. Larger ones are bounded for each key
/// where they are read.
pub(crate) const COMPLETED_BYTES_MAX: usize = 16 << 10;

/// Resolves when a submission is on disk and visible.
#[derive(Debug)]
pub(crate) struct SubmissionAck {
    pub(crate) sender: Sender<Option<CompletedWrite>>,
    /// Whether the caller waits for the end of the job too.
    pub(crate) wants_end: bool,
}

impl SubmissionAck {
    /// Whether the caller gets its job with the acknowledgement, if the job has this row and this
    /// output by then.
    pub(crate) fn takes(&self, row: &JobRow, output: &Json) -> bool {
        let is_completed = row.status == Some(JobStatus::Completed) && row.chunk_count() == 0;
        self.wants_end && is_completed && output.len() <= COMPLETED_BYTES_MAX
    }
}

/// A job that was completed before its submission was written. The caller makes the record, since
/// it holds no lock.
#[derive(Debug)]
pub(crate) struct CompletedWrite {
    pub(crate) id: JobId,
    pub(crate) created_at: Timestamp,
    pub(crate) times: JobTimes,
    pub(crate) row: JobRow,
    pub(crate) new: Box<NewRow>,
    pub(crate) output: Json,
}

impl CompletedWrite {
    /// The job, on its endpoint.
    pub(crate) fn into_job(self, endpoint: &EndpointId) -> Option<CompletedJob> {
        let Self { id, created_at, times, row, new, output } = self;
        let record = row.record(id, created_at, &times, endpoint)?;
        let record = Box::new(JobRecord { tags: new.tags, trace: new.trace, ..record });
        Some(CompletedJob { record, output })
    }
}

/// Counts over an endpoint's life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) retried: u64,
}

impl Lifetime {
    pub(crate) fn add(&mut self, more: Self) {
        self.completed += more.completed;
        self.failed += more.failed;
        self.retried += more.retried;
    }
}

impl Millis {
    pub(crate) fn new(ms: u64) -> Self {
        Self(u32::try_from(ms).unwrap_or(u32::MAX))
    }

    pub(crate) fn get(self) -> u64 {
        self.0.into()
    }
}

/// How long a job may run, and how long it is kept after its end. Most jobs have only the default
/// retention.
#[derive(Debug, Clone)]
pub(crate) struct JobTimes {
    /// 0: not chosen.
    execution_timeout_ms: Millis,
    default_ms: Millis,
    chosen: Option<Box<Chosen>>,
}

/// 16 bytes for each job that has them. 0: not chosen.
#[derive(Debug, Clone, Copy)]
struct Chosen {
    completed: Millis,
    failed: Millis,
    cancelled: Millis,
    /// The ttl of the submission: a retry of an old job begins another one.
    ttl: Millis,
}

impl Chosen {
    fn retention(&self) -> ChosenRetention {
        let chosen = |ms: Millis| Some(ms.get()).filter(|ms| *ms > 0);
        ChosenRetention {
            completed_ms: chosen(self.completed),
            failed_ms: chosen(self.failed),
            cancelled_ms: chosen(self.cancelled),
        }
    }
}

impl JobTimes {
    pub(crate) fn new(
        execution_timeout_ms: Option<u64>,
        retention: Retention,
        ttl_ms: u64,
    ) -> Self {
        let Retention { default_ms, chosen } = retention;
        let is_chosen = chosen != ChosenRetention::NONE;
        let millis = |ms: Option<u64>| Millis::new(ms.unwrap_or(0));
        let chosen = is_chosen.then(|| {
            Box::new(Chosen {
                completed: millis(chosen.completed_ms),
                failed: millis(chosen.failed_ms),
                cancelled: millis(chosen.cancelled_ms),
                ttl: Millis::new(ttl_ms),
            })
        });
        let execution_timeout_ms = millis(execution_timeout_ms);
        Self { execution_timeout_ms, default_ms: Millis::new(default_ms), chosen }
    }

    pub(crate) fn execution_timeout_ms(&self) -> Option<u64> {
        Some(self.execution_timeout_ms.get()).filter(|ms| *ms > 0)
    }

    pub(crate) fn retention(&self) -> Retention {
        let chosen = self.chosen.as_ref().map_or(ChosenRetention::NONE, |it| it.retention());
        Retention { default_ms: self.default_ms.get(), chosen }
    }

    /// Whether a retention is chosen for any end.
    pub(crate) fn has_chosen_retention(&self) -> bool {
        self.chosen.is_some()
    }

    /// The end of the ttl of a job that is retried now.
    pub(crate) fn ttl_after_retry(&self, ttl_at: Timestamp, now: Timestamp) -> Timestamp {
        let Some(chosen) = &self.chosen else { return ttl_at };
        self.retention().ttl_after_retry(chosen.ttl.get(), ttl_at, now)
    }
}

/// The retention of a job as it was written.
fn retention_of(fixed: &FixedImage<'_>) -> Retention {
    let chosen = ChosenRetention {
        completed_ms: fixed.retention_completed_ms,
        failed_ms: fixed.retention_failed_ms,
        cancelled_ms: fixed.retention_cancelled_ms,
    };
    Retention { default_ms: fixed.retention_ms, chosen }
}

impl JobRow {
    /// The row as it is written.
    pub(crate) fn image(&self) -> RowImage<'_> {
        let attempt = self.attempt.as_deref().map(|attempt| AttemptImage {
            started_at: attempt.started_at.map(Timestamp::as_millis),
            finished_at: attempt.finished_at.map(Timestamp::as_millis),
            worker: attempt.worker.as_ref().map(WorkerId::as_str),
            error: attempt.error.as_deref(),
            chunk_count: attempt.chunk_count,
            host: attempt.host.as_deref().copied().map(HostImage::from),
        });
        RowImage {
            state: status_code(self.status),
            claim: self.last_claim.0,
            crashes: self.crashes,
            losses: self.losses().others,
            retries: self.retries,
            queue_position: self.queue_position,
            ttl_at: self.ttl_at.as_millis(),
            attempt,
            queued_at: self.queued_again_at().map(Timestamp::as_millis),
            result_bytes: self.result_bytes(),
            past: self.attempt.as_ref().and_then(|attempt| attempt.past.bytes()),
        }
    }

    /// The row of an image.
    ///
    /// # Errors
    /// The value that is invalid.
    pub(crate) fn of(image: &RowImage<'_>) -> Result<Self, String> {
        // The tables have no attempt without a time. The ttl of such a job may have been shortened.
        let attempt = match image.attempt.or_else(|| image.past.map(|_| AttemptImage::default())) {
            Some(attempt) => Some(Arc::new(Attempt {
                queued_at: image.queued_at.map(Timestamp::from_millis),
                started_at: attempt.started_at.map(Timestamp::from_millis),
                finished_at: attempt.finished_at.map(Timestamp::from_millis),
                worker: attempt.worker.map(WorkerId::new).transpose().map_err(text)?,
                error: attempt.error.map(str::to_owned),
                chunk_count: attempt.chunk_count,
                host: attempt.host.map(|host| Box::new(host.into())),
                losses: image.losses,
                result_bytes: image.result_bytes,
                past: PastAttempts::of(image.past)?,
            })),
            None => None,
        };
        let status = status_from(image.state);
        Ok(Self {
            status: Some(status.ok_or_else(|| format!("unknown job state {}", image.state))?),
            last_claim: Claim(image.claim),
            crashes: image.crashes,
            retries: image.retries,
            queue_position: image.queue_position,
            ttl_at: Timestamp::from_millis(image.ttl_at),
            attempt,
        })
    }

    pub(crate) fn state(&self) -> JobState {
        match self.status {
            Some(JobStatus::InQueue) => JobState::InQueue,
            Some(JobStatus::InProgress) => JobState::InProgress { claim: self.last_claim },
            Some(JobStatus::Completed) => JobState::Completed,
            Some(JobStatus::Failed) => JobState::Failed,
            Some(JobStatus::Cancelled) => JobState::Cancelled,
            Some(JobStatus::TimedOut) => JobState::TimedOut,
            None => JobState::Removed,
        }
    }

    /// Whether the job's input is kept.
    pub(crate) fn needs_input(&self) -> bool {
        self.status.is_some_and(JobStatus::needs_input)
    }

    /// How often it has lost its host since a client submitted or retried it.
    /// The process of another host that runs the job.
    pub(crate) fn host(&self) -> Option<HostProcess> {
        self.attempt.as_ref()?.host.as_deref().copied()
    }

    /// Its attempt has ended.
    pub(crate) fn forget_host(&mut self) {
        if self.host().is_some() {
            self.attempt_mut().host = None;
        }
    }

    pub(crate) fn losses(&self) -> Losses {
        let others = self.attempt.as_ref().map_or(0, |attempt| attempt.losses);
        Losses { crashes: self.crashes, others }
    }

    pub(crate) fn set_losses(&mut self, Losses { crashes, others }: Losses) {
        self.crashes = crashes;
        if self.losses().others != others {
            self.attempt_mut().losses = others;
        }
    }

    /// The part about the last attempt, for changes.
    pub(crate) fn attempt_mut(&mut self) -> &mut Attempt {
        Arc::make_mut(self.attempt.get_or_insert_default())
    }

    /// Whether memory has only the beginning of its error.
    pub(crate) fn has_cut_error(&self) -> bool {
        let error = self.attempt.as_ref().and_then(|attempt| attempt.error.as_deref());
        error.is_some_and(failure::is_cut)
    }

    /// Whether a caller has shortened the ttl of this job, which has a chosen retention.
    fn has_shortened_ttl(&self) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| attempt.past.has_shortened_ttl())
    }

    /// When the job was queued again, if it was.
    pub(crate) fn queued_again_at(&self) -> Option<Timestamp> {
        self.attempt.as_ref()?.queued_at
    }

    /// The attempts before the next one, if the present one ends now.
    pub(crate) fn past_after(
        &self,
        end: RequeueCause,
        created_at: Timestamp,
        now: Timestamp,
    ) -> PastAttempts {
        let Some(attempt) = self.attempt.as_deref() else { return PastAttempts::default() };
        let Some(started_at) = attempt.started_at else { return attempt.past.clone() };
        attempt.past.with(PastAttempt {
            queued_at: attempt.queued_at.unwrap_or(created_at),
            started_at,
            ended_at: attempt.finished_at.unwrap_or(now),
            end,
            error: attempt.error.as_deref().map(|error| PastAttempt::beginning(error).to_owned()),
        })
    }

    /// The rule of its submission for failed attempts, and those so far.
    pub(crate) fn retry(&self) -> JobRetry {
        self.attempt.as_ref().map(|attempt| attempt.past.retry()).unwrap_or_default()
    }

    /// Whether it waits for the attempt after one that failed.
    pub(crate) fn waits_for_retry(&self) -> bool {
        self.status == Some(JobStatus::InQueue) && self.retry().failures > 0
    }

    /// Changes what the job remembers of its failed attempts.
    pub(crate) fn set_retry(&mut self, retry: JobRetry) {
        if self.retry() != retry {
            let attempt = self.attempt_mut();
            attempt.past = attempt.past.with_retry(retry);
        }
    }

    /// The attempt that the stream belongs to: the last one, or the next one while none has begun
    /// since the job was queued.
    pub(crate) fn stream_attempt(&self) -> Claim {
        let has_begun = self.attempt.as_ref().is_some_and(|attempt| attempt.started_at.is_some());
        if has_begun { self.last_claim } else { self.last_claim.next() }
    }

    pub(crate) fn chunk_count(&self) -> u64 {
        self.attempt.as_ref().map_or(0, |attempt| attempt.chunk_count)
    }

    /// Bytes of the last attempt's chunks and output.
    pub(crate) fn result_bytes(&self) -> u64 {
        self.attempt.as_ref().map_or(0, |attempt| attempt.result_bytes)
    }

    /// The record of the job with this row; `None` once it is removed. Lacks what the row does not
    /// have: the progress, the read position, the tags and the trace.
    pub(crate) fn record(
        &self,
        id: JobId,
        created_at: Timestamp,
        times: &JobTimes,
        endpoint: &EndpointId,
    ) -> Option<JobRecord> {
        let status = self.status?;
        let attempt = self.attempt.as_deref();
        let (past_attempts, usage) = attempt.map(|attempt| attempt.past.read()).unwrap_or_default();
        Some(JobRecord {
            id,
            endpoint: endpoint.clone(),
            status,
            created_at,
            queued_at: self.queued_again_at().unwrap_or(created_at),
            started_at: attempt.and_then(|attempt| attempt.started_at),
            finished_at: attempt.and_then(|attempt| attempt.finished_at),
            worker: attempt.and_then(|attempt| attempt.worker.clone()),
            retries: self.retries.into(),
            error: attempt.and_then(|attempt| attempt.error.clone()),
            blocked: None,
            is_exhausted: matches!(status, JobStatus::Failed | JobStatus::TimedOut)
                && self.retry().is_exhausted,
            progress: None,
            attempt: self.stream_attempt(),
            chunk_count: self.chunk_count(),
            result_bytes: if status == JobStatus::Completed { self.result_bytes() } else { 0 },
            chunks_delivered: 0,
            purge_at: self.purge_at(times),
            past_attempts,
            usage,
            tags: None,
            trace: None,
        })
    }

    /// When the job is deleted: at the end of its ttl or of its retention, whichever is first.
    pub(crate) fn purge_at(&self, times: &JobTimes) -> Timestamp {
        let finished_at = self.attempt.as_ref().and_then(|attempt| attempt.finished_at);
        match (finished_at, self.status) {
            (Some(end), Some(status)) => times.retention().purge_at(status, end, self.ttl_at),
            _ => self.ttl_at,
        }
    }
}

impl Stored {
    /// The rows of a job whose row in the database is `row`.
    pub(crate) fn of(row: &JobRow) -> Self {
        // The bytes of a failed job may belong to chunks only; deleting an output that does not
        // exist is cheap.
        let output = match row.status {
            Some(JobStatus::Completed) => true,
            Some(JobStatus::Failed) => row.result_bytes() > 0,
            Some(
                JobStatus::InQueue
                | JobStatus::InProgress
                | JobStatus::Cancelled
                | JobStatus::TimedOut,
            )
            | None => false,
        };
        Self { job: true, output, chunks: row.chunk_count() > 0 }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn text(error: impl ToString) -> String {
    error.to_string()
}

impl Job {
    /// A job as it was written when it was new. Its payloads and rows are unknown.
    ///
    /// # Errors
    /// The value that is invalid.
    pub(crate) fn of(image: &NewJobImage<'_>, owners: &mut Owners) -> Result<Self, String> {
        let NewJobImage { seq, id, endpoint, fixed, row, input_bytes } = image;
        let tags = fixed.tags.map(Tags::from_text).transpose().map_err(text)?;
        Ok(Self {
            id: JobId::from_bytes(id).map_err(text)?,
            seq: *seq,
            endpoint: EndpointKey(*endpoint),
            owner: owners.key(&OwnerId::new(fixed.owner).map_err(text)?),
            marks: Marks::new(fixed.low_priority, tags.as_ref()),
            input_bytes: *input_bytes,
            webhook: fixed.webhook.map(|url| Arc::new(url.into())),
            tags,
            stored: Stored::default(),
            payload_locations: PayloadLocations::default(),
            segment: SegmentId(0),
            created_at: Timestamp::from_millis(fixed.created_at),
            times: JobTimes::new(
                Some(fixed.execution_timeout_ms),
                retention_of(fixed),
                fixed.ttl_ms,
            ),
            row: JobRow::of(row)?,
            rare: Rare::with(trace::context(fixed.trace, fixed.trace_state)),
            pending: None,
        })
    }

    /// A job of the tables.
    ///
    /// # Errors
    /// The value that is invalid.
    pub(crate) fn of_row(image: &NewJobImage<'_>, owners: &mut Owners) -> Result<Self, String> {
        let job = Self::of(image, owners)?;
        Ok(Self { stored: Stored::of(&job.row), ..job })
    }

    /// The state that clients see; `None` while the submission is not on disk.
    pub(crate) fn visible(&self) -> Option<&JobRow> {
        match &self.pending {
            Some(pending) => pending.visible.as_ref(),
            None => Some(&self.row),
        }
    }

    /// The key of the output, or of the long error, in this row of the job.
    pub(crate) fn output_key(&self, row: &JobRow) -> PayloadKey {
        PayloadKey::Output(self.seq, row.stream_attempt())
    }

    pub(crate) fn visible_status(&self) -> Option<JobStatus> {
        self.visible()?.status
    }

    /// Like [`visible`](Self::visible), and `None` once the job's time is over.
    pub(crate) fn visible_at(&self, now: Timestamp) -> Option<&JobRow> {
        self.visible().filter(|row| row.purge_at(&self.times) > now)
    }

    /// Whether its removal is being written to the journal.
    pub(crate) fn is_being_removed(&self) -> bool {
        let is_taken = self.pending.as_ref().is_some_and(|pending| pending.queued.is_none());
        self.row.status.is_none() && is_taken
    }

    pub(crate) fn purge_at(&self) -> Timestamp {
        self.row.purge_at(&self.times)
    }

    /// Moves the end of its ttl to an earlier time. From then on neither an end nor a retry moves
    /// it.
    pub(crate) fn shorten_ttl(&mut self, ttl_at: Timestamp) {
        self.row.ttl_at = ttl_at;
        // The ttl of other jobs never moves.
        if self.times.has_chosen_retention() {
            let attempt = self.row.attempt_mut();
            attempt.past = attempt.past.with_shortened_ttl();
        }
    }

    /// Whether the chosen retention of this job moves the end of its ttl.
    pub(crate) fn has_movable_ttl(&self) -> bool {
        self.times.has_chosen_retention() && !self.row.has_shortened_ttl()
    }

    /// Whether the change that is to be written is large, with its webhook.
    pub(crate) fn has_large_change(&self) -> bool {
        self.pending.as_deref().is_some_and(|Pending { change, .. }| {
            let webhook_bytes = if change.sends_webhook { self.webhook_bytes() } else { 0 };
            is_large(change.room.bytes().max(webhook_bytes))
        })
    }

    /// Approximate bytes of the webhook at its end: the input, and the output or the chunks.
    pub(crate) fn webhook_bytes(&self) -> usize {
        let Some(url) = &self.webhook else { return 0 };
        // A list of chunks over the size limit of outputs is not sent.
        let results = usize::try_from(self.row.result_bytes()).unwrap_or(usize::MAX);
        let results = results.min(OUTPUT_BYTES_MAX);
        self.input_bytes as usize + url.len() + results + WEBHOOK_HEAD_BYTES
    }

    /// The chunks of its stream that a client has read; `None` without a reader.
    pub(crate) fn chunks_delivered(&self) -> Option<u64> {
        Some(self.rare.as_ref()?.delivered?.chunks)
    }

    pub(crate) fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Its position in a distributed trace.
    pub(crate) fn trace(&self) -> Option<&TraceContext> {
        self.rare.as_ref()?.trace.as_ref()
    }

    /// Whether a later submission with its key replaces it.
    pub(crate) fn is_replaceable(&self) -> bool {
        self.marks.is_debounced()
            && self.marks.is_delayed()
            && self.row.last_claim == Claim::default()
    }

    /// Its rank while it waits.
    pub(crate) fn rank(&self) -> Rank {
        match &self.rare {
            Some(rare) if rare.calls > 0 => Rank::Called(Level::called(self.id.submission())),
            _ if self.marks.is_low_priority() => Rank::Low(self.flow()),
            _ => Rank::Normal(self.flow()),
        }
    }

    /// Its priority.
    pub(crate) fn priority(&self) -> u8 {
        self.tags.as_ref().map_or(0, Tags::priority)
    }

    /// The flow of its key.
    pub(crate) fn flow(&self) -> Flow {
        self.tags.as_ref().and_then(Tags::job_key).map_or(Flow::NONE, Flow::of)
    }

    /// When it was last queued.
    pub(crate) fn queued_at(&self) -> Timestamp {
        self.row.queued_again_at().unwrap_or(self.created_at)
    }

    /// The record of a row of this job.
    pub(crate) fn record_of(&self, row: &JobRow, endpoint: &EndpointId) -> Option<JobRecord> {
        let record = row.record(self.id, self.created_at, &self.times, endpoint)?;
        let progress = self.rare.as_ref().and_then(|rare| rare.progress.clone());
        Some(JobRecord {
            progress: progress.filter(|_| record.status == JobStatus::InProgress),
            chunks_delivered: self.chunks_delivered().unwrap_or(0),
            tags: self.tags.clone(),
            trace: self.trace().cloned(),
            ..record
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_small() {
        println!("a job in memory: {} bytes", size_of::<Job>());
        assert!(size_of::<Job>() <= 160);
    }
}
