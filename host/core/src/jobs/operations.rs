//! The operations on jobs that clients call: the API's only way to the store of jobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::deploy::endpoint::{Deployment, Endpoint, EndpointType};
use crate::deploy::input_checks::InputChecks;
use crate::id::{EndpointId, JobId};
use crate::job::filter::JobSearch;
use crate::job::listing::{JobPage, JobQuery};
use crate::job::payload::Json;
use crate::job::policy::Strictness;
use crate::job::record::{CompletedJob, JobCounts, JobRecord, StreamPosition};
use crate::job::state::JobStatus;
use crate::job::tags::Tags;
use crate::jobs::stream::{PageMemory, Position, StreamPage, output_of, page_bytes_max};
use crate::jobs::submissions::submit;
pub use crate::jobs::submissions::{SubmitError, SubmitMode, SubmitRequest, Submitted};
use crate::limits::{OUTPUT_BYTES_MAX, STREAM_PAGE_BYTES_MAX, STREAM_PAGE_CHUNKS_MAX};
use crate::signals::{JobWatch, Signals};
use crate::store::{JobStore, RetryAnswer, StoreError};
use crate::time::Timestamp;
use crate::workers::{WorkerCounts, Workers};

/// A job as a client sees it.
#[derive(Debug, Clone)]
pub struct JobDocument {
    /// The record of the job.
    pub record: Box<JobRecord>,
    /// The time of reading, for values that still grow.
    pub read_at: Timestamp,
    /// The result; while the job runs, its newest progress value.
    pub output: Option<Json>,
    /// Why a waiting job does not run.
    pub waiting_reason: Option<String>,
}

/// An endpoint's health.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Health {
    /// Jobs by state.
    pub jobs: JobCounts,
    /// Workers by state.
    pub workers: WorkerCounts,
}

/// The jobs of all endpoints.
#[derive(Debug)]
pub struct Jobs {
    store: Arc<dyn JobStore>,
    signals: Arc<Signals>,
    workers: Arc<dyn Workers>,
    strictness: Strictness,
    checks: Arc<InputChecks>,
    is_draining: AtomicBool,
    /// Notifies calls that wait for other events than changes of a job.
    closing: CancellationToken,
    /// The same state as a flag, which a waiting call reads with one load.
    is_closing: AtomicBool,
    /// Calls that wait for a change of a job.
    waiting_calls: AtomicU64,
}

/// A call that waits; it is counted until this value is dropped.
struct WaitingCall<'a>(&'a AtomicU64);

impl<'a> WaitingCall<'a> {
    fn begin(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Jobs {
    /// Combines the parts. The store must report to `signals`.
    pub fn new(
        store: Arc<dyn JobStore>,
        signals: Arc<Signals>,
        workers: Arc<dyn Workers>,
        strictness: Strictness,
        checks: Arc<InputChecks>,
    ) -> Self {
        let closing = CancellationToken::new();
        let (is_draining, is_closing) = (AtomicBool::new(false), AtomicBool::new(false));
        let waiting_calls = AtomicU64::new(0);
        Self {
            store,
            signals,
            workers,
            strictness,
            checks,
            is_draining,
            closing,
            is_closing,
            waiting_calls,
        }
    }

    /// Stores a job and returns its id; then the job is on stable storage, and may already run. A
    /// duplicate submission returns the job of the first one.
    ///
    /// # Errors
    /// [`SubmitError`]; then nothing was stored.
    pub async fn submit(
        &self,
        deployment: &Deployment,
        request: SubmitRequest,
    ) -> Result<Submitted, SubmitError> {
        if !self.is_accepting() {
            return Err(StoreError::Closed.into());
        }
        submit(&*self.store, &self.checks, deployment, request, self.strictness).await
    }

    /// The job's record. `None`: it is unknown, deleted, or another endpoint's.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn record(
        &self,
        endpoint: &EndpointId,
        id: JobId,
    ) -> Result<Option<Box<JobRecord>>, StoreError> {
        self.store.job(endpoint, id).await
    }

    /// Most bytes that [`Jobs::document`] of this record holds in memory at one time.
    pub fn document_bytes(record: &JobRecord) -> usize {
        let result = usize::try_from(record.result_bytes).unwrap_or(usize::MAX);
        result.min(OUTPUT_BYTES_MAX) + page_bytes_max(record, 0)
    }

    /// The document of a job: the record, and the output when there is one. A large output is read
    /// and assembled on a thread that may block. `None` if a COMPLETED job was deleted after its
    /// record was read, so that a document without an output always means a list that is too large.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn document(
        &self,
        record: Box<JobRecord>,
    ) -> Result<Option<JobDocument>, StoreError> {
        let output = match record.status {
            JobStatus::Completed => {
                let output = output_of(&*self.store, &record).await?;
                if output.is_none() && self.record(&record.endpoint, record.id).await?.is_none() {
                    return Ok(None);
                }
                output
            }
            JobStatus::Failed => self.store.output(record.id).await?,
            JobStatus::InProgress => record.progress.clone(),
            JobStatus::InQueue | JobStatus::Cancelled | JobStatus::TimedOut => None,
        };
        let read_at = self.store.now();
        let waiting_reason = match record.status {
            JobStatus::InQueue if record.run_at(read_at).is_some() => {
                Some(record.delay_reason().to_owned())
            }
            JobStatus::InQueue => match record.blocked {
                Some(blocked) => {
                    let key = record.tags.as_ref().and_then(Tags::job_key).unwrap_or_default();
                    Some(blocked.reason(key, read_at))
                }
                None => self.workers.waiting_reason(&record.endpoint),
            },
            _ => None,
        };
        Ok(Some(JobDocument { record, read_at, output, waiting_reason }))
    }

    /// The document of a job that its submission has returned.
    pub fn document_of(&self, job: CompletedJob) -> JobDocument {
        let CompletedJob { record, output } = job;
        let output = Some(output);
        JobDocument { record, read_at: self.store.now(), output, waiting_reason: None }
    }

    /// The job's input, as long as the host keeps it: until the job is completed or cancelled.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn input(&self, id: JobId) -> Result<Option<Json>, StoreError> {
        self.store.input(id).await
    }

    /// Waits until the job has ended or `wait` is over, and returns its record at that time.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn wait_for_end(
        &self,
        endpoint: &EndpointId,
        id: JobId,
        wait: Duration,
    ) -> Result<Option<Box<JobRecord>>, StoreError> {
        let deadline = Instant::now() + wait;
        let watch = self.signals.watch(id);
        loop {
            let changed = watch.changed();
            let record = self.store.job(endpoint, id).await?;
            let is_final = record.as_ref().is_none_or(|record| record.status.is_final());
            if is_final || self.waited_long_enough(deadline, changed).await {
                return Ok(record);
            }
        }
    }

    /// The value that a COMPLETED job's handler returned, including `null` after chunks.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn returned(&self, id: JobId) -> Result<Option<Json>, StoreError> {
        self.store.output(id).await
    }

    /// Listens to a job until the returned value is dropped.
    pub fn watch(&self, id: JobId) -> JobWatch {
        self.signals.watch(id)
    }

    /// Refuses new jobs from now on, because the host drains.
    pub fn stop_accepting(&self) {
        self.is_draining.store(true, Ordering::SeqCst);
    }

    /// Whether new jobs are accepted: until the host begins to stop.
    pub fn is_accepting(&self) -> bool {
        !self.is_draining.load(Ordering::SeqCst)
    }

    /// Ends all waiting calls with their present answer, now and in future, because the host stops.
    pub fn stop_waiting(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        self.signals.wake_all();
        self.closing.cancel();
    }

    /// Whether calls do not wait any more.
    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst)
    }

    /// The calls that wait for a change of a job now.
    pub fn waiting_calls(&self) -> u64 {
        self.waiting_calls.load(Ordering::Relaxed)
    }

    /// Resolves when calls do not wait any more.
    pub async fn closed(&self) {
        self.closing.cancelled().await;
    }

    /// Waits for a change. `true`: this call must not wait any longer.
    async fn waited_long_enough(
        &self,
        deadline: Instant,
        changed: impl Future<Output = ()>,
    ) -> bool {
        // `changed` listens already, so that a close between this check and the wait is not missed.
        if self.is_closing() {
            return true;
        }
        let _counted = WaitingCall::begin(&self.waiting_calls);
        tokio::select! {
            // A change at the time of the deadline still counts.
            biased;
            () = changed => false,
            () = tokio::time::sleep_until(deadline) => true,
        }
    }

    /// The next page of the job's stream. Waits up to `wait` for something new: a chunk, the job's
    /// end, or another attempt than that of `position`. Call [`Jobs::mark_delivered`] once the page
    /// has been handed over.
    ///
    /// # Errors
    /// Errors of the store, and of `memory`.
    pub async fn stream<M: PageMemory>(
        &self,
        endpoint: &EndpointId,
        id: JobId,
        position: Position,
        wait: Duration,
        memory: &M,
    ) -> Result<Option<(StreamPage, M::Held)>, M::Error> {
        let deadline = Instant::now() + wait;
        let watch = self.signals.watch(id);
        loop {
            let changed = watch.changed();
            let Some(record) = self.store.job(endpoint, id).await? else { return Ok(None) };
            let (from, is_restart) = match position {
                Position::Undelivered => (record.chunks_delivered, false),
                Position::From(index) => (index, false),
                Position::At(position) if position.attempt == record.attempt => {
                    (position.index, false)
                }
                Position::At(_) => (0, true),
            };
            let held = memory.take(2 * page_bytes_max(&record, from)).await?;
            let page =
                self.store.chunks(id, from, STREAM_PAGE_BYTES_MAX, STREAM_PAGE_CHUNKS_MAX).await?;
            if page.attempt != record.attempt {
                // Another attempt began between the two reads: `record` and `from` are out of date.
                continue;
            }
            let is_last = page.next() >= record.chunk_count;
            let status = match record.status {
                status if status.is_final() && !is_last => JobStatus::InProgress,
                status => status,
            };
            let is_worth_telling = is_restart || !page.chunks.is_empty() || status.is_final();
            if is_worth_telling || self.waited_long_enough(deadline, changed).await {
                let is_read = position == Position::Undelivered && !page.chunks.is_empty();
                if is_read && record.status.is_final() {
                    // The job may have left memory. It has to be there when the page is delivered,
                    // or else a reader whose next call comes soon would get the page again. Without
                    // room in memory the position is not noted, and the page is delivered all the
                    // same.
                    let at = StreamPosition { attempt: page.attempt, index: from };
                    let _ = self.store.mark_delivered(id, at).await;
                }
                let error = if status.is_final() { record.error } else { None };
                return Ok(Some((StreamPage { status, error, is_restart, page }, held)));
            }
        }
    }

    /// Remembers that the chunks before `next` have reached a client; nothing changes when the job
    /// has another attempt meanwhile.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn mark_delivered(&self, id: JobId, next: StreamPosition) -> Result<(), StoreError> {
        self.store.mark_delivered(id, next).await
    }

    /// Cancels the job and returns its status: CANCELLED, or its earlier final status.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn cancel(
        &self,
        endpoint: &EndpointId,
        id: JobId,
    ) -> Result<Option<JobStatus>, StoreError> {
        self.store.cancel(endpoint, id).await
    }

    /// Queues a FAILED or TIMED_OUT job again, unless the endpoint's queue is full.
    ///
    /// # Errors
    /// Those of the store, including its refusals at the endpoint's bounds.
    pub async fn retry(
        &self,
        endpoint: &EndpointId,
        id: JobId,
        waiting_jobs_max: Option<u32>,
    ) -> Result<RetryAnswer, StoreError> {
        self.store.retry(endpoint, id, waiting_jobs_max).await
    }

    /// Removes all waiting jobs of the endpoint and returns their number.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn purge(&self, endpoint: &EndpointId) -> Result<u64, StoreError> {
        self.store.purge(endpoint).await
    }

    /// Shortens the remaining lifetime of the job.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn shorten_ttl(
        &self,
        endpoint: &EndpointId,
        id: JobId,
        ttl_ms: u64,
    ) -> Result<(), StoreError> {
        self.store.shorten_ttl(endpoint, id, ttl_ms).await
    }

    /// The endpoint's jobs, newest first, and the time of reading.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn list(
        &self,
        endpoint: &EndpointId,
        query: &JobQuery,
    ) -> Result<(JobPage, Timestamp), StoreError> {
        let page = self.store.list(endpoint, query).await?;
        Ok((page, self.store.now()))
    }

    /// The jobs of several endpoints that match, newest first, and the time of reading.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn search(&self, search: &JobSearch) -> Result<(JobPage, Timestamp), StoreError> {
        let page = self.store.search(search).await?;
        Ok((page, self.store.now()))
    }

    /// The endpoint's jobs and workers. HTTP requests that wait or run are counted as jobs.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn health(&self, endpoint: &Endpoint) -> Result<Health, StoreError> {
        let mut jobs = self.store.counts(&endpoint.id).await?;
        let workers = self.workers.counts(&endpoint.id);
        if endpoint.kind == EndpointType::LoadBalancer {
            jobs.in_queue += self.workers.waiting_requests(&endpoint.id);
            // A worker runs one request or job at a time.
            jobs.in_progress = workers.running;
        }
        Ok(Health { jobs, workers })
    }

    /// The store's time.
    pub fn now(&self) -> Timestamp {
        self.store.now()
    }
}
