//! One attempt at one job: runs the handler, stops it when the job is cancelled, and stores the
//! result and the usage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use gristmill_core::billing::usage::{Bill, Metered};
use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::incarnation::EndpointIncarnation;
use gristmill_core::job::handler_call::{CallError, HandlerCall};
use gristmill_core::job::loss::HostLoss;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{Chunk, ClaimedJob, Lease, Outcome};
use gristmill_core::job::state::ReleaseCause;
use gristmill_core::jobs::handler_calls::Caller;
use gristmill_core::limits::ERROR_BYTES_MAX;
use gristmill_core::metrics::endpoint::{AttemptValues, FinishedAs, RequestEnd};
use gristmill_core::runtime::{
    Attempt, AttemptEnd, AttemptKey, AttemptReport, AttemptSink, HandlerHost, LogLevel,
    Reservation, SinkClosed, StackCall, Usage,
};
use gristmill_core::signals::event_notice::JobEventNotice;
use gristmill_core::store::{Fenced, StoreError};
use gristmill_core::trace::TraceId;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::attempt_spans::{AttemptSpans, EndedAttempt};
use crate::shared::Shared;

/// The deadline of an attempt and the ttl of its job are on different clocks, which may differ by
/// this much although neither was set.
const TTL_SLACK_MS: u64 = 1_000;

/// The place of the attempt's worker among the `workersMax` of its endpoint.
pub(crate) trait Place: Send + Sync + 'static {
    /// Lends the place to a job that a call waits for.
    fn lend(&self);

    /// Waits until the worker has a place again.
    fn take_again(&self) -> impl Future<Output = ()> + Send;
}

/// Runs one claimed job to its end, with the sandbox that was reserved before the claim.
pub(crate) async fn run(
    shared: &Arc<Shared>,
    deployment: Arc<Deployment>,
    reservation: Reservation,
    job: ClaimedJob,
    place: impl Place,
) {
    let lease = job.lease;
    let endpoint = deployment.endpoint.id.clone();
    let template = deployment.endpoint.template.clone();
    let bytes_in = job.input.len() as u64;
    let began = shared.store.now();
    let waited_us = began.millis_since(job.queued_at).saturating_mul(1_000);
    deployment.incarnation.metrics().started(waited_us);
    let remaining_ms = job.ttl_at.millis_since(began);
    let ttl_at = job.ttl_at;
    let timeout_ms =
        job.execution_timeout_ms.unwrap_or(deployment.endpoint.settings.execution_timeout_ms);
    let is_ttl_first = remaining_ms < timeout_ms;
    let timeout_ms = timeout_ms.min(remaining_ms);
    let spans = AttemptSpans::open(&shared.tracer, job.trace.as_ref());
    let trace_id = job.trace.as_ref().map(|trace| trace.trace);
    let trace = spans.as_ref().map(AttemptSpans::context).or(job.trace);
    let stop = CancellationToken::new();
    let deadline = Instant::now() + Duration::from_millis(timeout_ms);
    let caller = Caller {
        job: lease.job,
        owner: job.owner.clone(),
        deployment: deployment.clone(),
        trace: trace.clone(),
        deadline,
    };
    let sink = Arc::new(Sink {
        shared: shared.clone(),
        lease,
        caller,
        place,
        trace: trace_id,
        progress: Mutex::default(),
        has_progress: Notify::new(),
        chunk_bytes: AtomicU64::new(0),
    });
    let attempt = Attempt {
        key: AttemptKey { job: lease.job, claim: lease.claim, worker: job.worker.clone() },
        number: job.attempt,
        deployment,
        input: job.input,
        s3_config: job.s3_config,
        trace,
        timeout_ms,
        deadline,
        stop: stop.clone(),
    };
    shared.signals.notify_job_event(
        &endpoint,
        lease.job,
        JobEventNotice::Started { attempt: attempt.number },
    );
    if reservation.is_elsewhere() {
        // With a stale lease the attempt is stopped at once.
        let _ = shared.store.note_elsewhere(lease).await;
    }
    let performing = shared.runtime.perform(reservation, attempt, sink.clone());
    let report = attend(shared, lease, &sink, &stop, performing).await;
    sink.incarnation().metrics().ended(measured(&report.usage));
    log_end(&endpoint, job.attempt, lease, &report);
    if let Some(spans) = spans {
        let ended = EndedAttempt { endpoint: &endpoint, lease, number: job.attempt, waited_us };
        spans.end(&ended, &job.worker, &report);
    }
    shared.signals.notify_job_event(&endpoint, lease.job, JobEventNotice::Ended(&report));
    let ending = match report.end {
        AttemptEnd::Returned(output) => {
            Ending::Result(Outcome::Completed(output), FinishedAs::Completed)
        }
        AttemptEnd::Failed { reason, error } => {
            Ending::Result(sink.failed(cut(error)), FinishedAs::Failed(reason))
        }
        // The ttl deletes the job; there is no result to store. If the clock was set back
        // meanwhile, the ttl lasts on.
        AttemptEnd::DeadlineReached
            if is_ttl_first && ttl_at.millis_since(shared.store.now()) <= TTL_SLACK_MS =>
        {
            Ending::Unwanted
        }
        AttemptEnd::DeadlineReached => Ending::Result(Outcome::TimedOut, FinishedAs::TimedOut),
        AttemptEnd::Stopped => release(shared, lease, ReleaseCause::Stopped).await,
        AttemptEnd::NoMemory => release(shared, lease, ReleaseCause::NoMemory).await,
        AttemptEnd::HostLost(loss) => host_lost(shared, lease, loss).await,
    };
    let output_bytes = match &ending {
        Ending::Result(Outcome::Completed(output), _) => output.len(),
        Ending::Result(outcome, _) => outcome.partial_output().map_or(0, Json::len),
        Ending::Unwanted => 0,
        Ending::WaitsAgain => {
            sink.incarnation().metrics().requeued();
            return;
        }
    };
    let bytes_out = sink.chunk_bytes.load(Ordering::Relaxed) + output_bytes as u64;
    let metered = report.usage.metered(template, bytes_in, bytes_out);
    let unwanted = match ending {
        Ending::Result(outcome, finished) => {
            let counted = || sink.incarnation().metrics().finished(finished);
            store_result(shared, lease, outcome, metered, counted).await
        }
        Ending::Unwanted => Some(metered),
        Ending::WaitsAgain => None,
    };
    if let Some(metered) = unwanted {
        let wall_ms = shared.store.now().millis_since(began);
        bill(shared, lease, Bill { endpoint, owner: job.owner, wall_ms, metered }).await;
    }
}

fn measured(usage: &Usage) -> AttemptValues {
    let Usage { run_us, cpu_us, sent_bytes, received_bytes, chunks, log_lines_dropped, .. } =
        *usage;
    let start_us = usage.instantiate_us;
    AttemptValues {
        start_us,
        run_us,
        cpu_us,
        sent_bytes,
        received_bytes,
        chunks,
        log_lines_dropped,
    }
}

/// The meaning of an attempt's end for its job.
enum Ending {
    /// It is the job's result, and counts so.
    Result(Outcome, FinishedAs),
    /// The job was cancelled or deleted meanwhile.
    Unwanted,
    /// The job runs again.
    WaitsAgain,
}

/// Releases a job that was claimed for a deployment which has been replaced since.
pub(crate) async fn hand_back(shared: &Shared, job: &ClaimedJob) {
    // A job that was cancelled or deleted meanwhile needs no action, since no part of it has run.
    let _ = release(shared, job.lease, ReleaseCause::Stopped).await;
}

/// Releases the job of an attempt that the host has stopped.
async fn release(shared: &Shared, lease: Lease, cause: ReleaseCause) -> Ending {
    match shared.store.release(lease, cause).await {
        // The job waits again.
        Ok(Fenced::Applied) | Err(StoreError::Closed) => Ending::WaitsAgain,
        Ok(Fenced::Stale) => Ending::Unwanted,
        Err(error) => {
            warn!(job.id = %lease.job, %error, "job cannot be released: {error}");
            Ending::WaitsAgain
        }
    }
}

/// Ends an attempt whose host is lost. Nothing is billed, as after the end of this host.
async fn host_lost(shared: &Shared, lease: Lease, loss: HostLoss) -> Ending {
    match shared.store.host_lost(lease, loss).await {
        Ok(Fenced::Applied) => {
            warn!(job.id = %lease.job, "the host that ran job `{}` is lost", lease.job)
        }
        // Deleted or cancelled meanwhile, or this host is ending.
        Ok(Fenced::Stale) | Err(StoreError::Closed) => {}
        Err(error) => warn!(job.id = %lease.job, %error, "job cannot be queued again: {error}"),
    }
    Ending::WaitsAgain
}

/// Waits for the attempt's end. Meanwhile passes progress on, and stops the attempt when its job
/// was cancelled or deleted, or when the time of a drain is over.
async fn attend(
    shared: &Shared,
    lease: Lease,
    sink: &Sink<impl Place>,
    stop: &CancellationToken,
    performing: impl Future<Output = AttemptReport>,
) -> AttemptReport {
    let mut performing = std::pin::pin!(performing);
    // A handler that never waits ends here, before the job gets a listener.
    if let Poll::Ready(report) = futures::poll!(performing.as_mut()) {
        return report;
    }
    let mut stopped = std::pin::pin!(shared.stop_attempts.cancelled());
    let watch = shared.signals.watch(lease.job);
    loop {
        let changed = watch.changed();
        // The lease decides, since the status that clients see may not even show the submission
        // yet.
        let is_over = matches!(shared.store.holds_lease(lease).await, Ok(false));
        if is_over {
            stop.cancel();
        }
        tokio::select! {
            biased;
            report = &mut performing => return report,
            () = changed => {}
            () = sink.has_progress.notified() => sink.store_progress().await,
            () = &mut stopped, if !stop.is_cancelled() => stop.cancel(),
        }
    }
}

/// Stores the result and bills it, without waiting for the disk. Calls `accepted` when it is the
/// job's result. Returns the bill when the job does not need the result any more.
async fn store_result(
    shared: &Shared,
    lease: Lease,
    outcome: Outcome,
    metered: Metered,
    accepted: impl FnOnce(),
) -> Option<Metered> {
    match shared.store.finish_deferred(lease, outcome, metered.clone()).await {
        Ok(Fenced::Applied) => {
            accepted();
            None
        }
        Ok(Fenced::Stale) => {
            debug!(job.id = %lease.job, "late result of job `{}` was dropped", lease.job);
            Some(metered)
        }
        Err(error) => {
            warn!(job.id = %lease.job, %error, "result of job `{}` is lost: {error}", lease.job);
            None
        }
    }
}

async fn bill(shared: &Shared, lease: Lease, bill: Bill) {
    match shared.store.bill(lease, bill).await {
        Ok(()) | Err(StoreError::Closed) => {}
        Err(error) => warn!(%error, "an attempt without a result is not billed: {error}"),
    }
}

fn cut(mut error: String) -> String {
    if error.len() > ERROR_BYTES_MAX {
        error.truncate(error.floor_char_boundary(ERROR_BYTES_MAX));
    }
    error
}

fn log_end(endpoint: &EndpointId, number: u32, lease: Lease, report: &AttemptReport) {
    let usage = &report.usage;
    let end = match &report.end {
        AttemptEnd::Returned(_) => "returned",
        AttemptEnd::Failed { .. } => "failed",
        AttemptEnd::DeadlineReached => "ran out of time",
        AttemptEnd::Stopped => "was stopped",
        AttemptEnd::NoMemory => "got no memory",
        AttemptEnd::HostLost(_) => "lost its host",
    };
    debug!(
        job.id = %lease.job,
        endpoint.id = %endpoint,
        attempt.no = number,
        instantiate_us = usage.instantiate_us,
        run_us = usage.run_us,
        cpu_us = usage.cpu_us,
        fuel_used = usage.fuel,
        memory_bytes = usage.memory_bytes_peak,
        chunks = usage.chunks,
        "job `{}` attempt {number} {end}", lease.job
    );
}

/// Most calls of a stack in the log: the innermost ones.
const STACK_CALLS_MAX: usize = 32;

/// The stack of a trap as log lines, the innermost call first; none for a component without names.
fn stack_lines(stack: &[StackCall]) -> Vec<String> {
    let named = stack.iter().filter_map(|call| {
        let function = call.source_name()?;
        Some(match &call.location {
            Some(location) => format!("trap: at {function} ({location})"),
            None => format!("trap: at {function}"),
        })
    });
    named.take(STACK_CALLS_MAX).collect()
}

/// Receives chunks, progress and log lines of the sandbox during the attempt.
struct Sink<P> {
    shared: Arc<Shared>,
    lease: Lease,
    /// The attempt, as its handler's calls of other endpoints show it.
    caller: Caller,
    /// The worker's place, which it lends during such a call.
    place: P,
    /// The trace of the job, for its log lines.
    trace: Option<TraceId>,
    progress: Mutex<Progress>,
    has_progress: Notify,
    /// Bytes of the chunks that the store has accepted.
    chunk_bytes: AtomicU64,
}

/// The newest progress value; a newer one replaces it.
#[derive(Default)]
struct Progress {
    value: Option<Json>,
    is_stored: bool,
}

impl<P> Sink<P> {
    fn endpoint(&self) -> &EndpointId {
        &self.caller.deployment.endpoint.id
    }

    fn incarnation(&self) -> &EndpointIncarnation {
        &self.caller.deployment.incarnation
    }

    /// The end of a failed attempt, with its partial output.
    fn failed(&self, error: String) -> Outcome {
        match self.progress.lock().value.take() {
            Some(output) => Outcome::FailedWith { error, output },
            None => Outcome::Failed(error),
        }
    }

    async fn store_progress(&self) {
        let value = {
            let mut progress = self.progress.lock();
            let is_stored = std::mem::replace(&mut progress.is_stored, true);
            progress.value.clone().filter(|_| !is_stored)
        };
        let Some(value) = value else { return };
        // With a stale lease, no client can ask for the value any more.
        let _ = self.shared.store.set_progress(self.lease, value).await;
    }
}

#[async_trait]
impl<P: Place> AttemptSink for Sink<P> {
    async fn emit(&self, chunks: Vec<Chunk>) -> Result<(), SinkClosed> {
        let bytes: usize = chunks.iter().map(Chunk::len).sum();
        match self.shared.store.append_chunks(self.lease, chunks).await {
            Ok(Fenced::Applied) => {
                self.chunk_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                Ok(())
            }
            Ok(Fenced::Stale) | Err(_) => Err(SinkClosed),
        }
    }

    fn progress(&self, value: Json) {
        *self.progress.lock() = Progress { value: Some(value), is_stored: false };
        self.has_progress.notify_one();
    }

    fn log(&self, level: LogLevel, line: &str) {
        let Shared { logs, clock, signals, .. } = &*self.shared;
        logs.add(self.incarnation(), clock.now(), self.lease.job, level, line);
        signals.notify_job_event(
            self.endpoint(),
            self.lease.job,
            JobEventNotice::Logged { level, line },
        );
        macro_rules! write {
            ($level:ident) => {
                tracing::$level!(
                    target: "handler",
                    {
                        job.id = %self.lease.job,
                        endpoint.id = %self.endpoint(),
                        trace.id = self.trace.map(tracing::field::display),
                    },
                    "{line}"
                )
            };
        }
        match level {
            LogLevel::Trace => write!(trace),
            LogLevel::Debug => write!(debug),
            LogLevel::Info => write!(info),
            LogLevel::Warn => write!(warn),
            LogLevel::Error => write!(error),
        }
    }

    async fn requested(&self, end: RequestEnd, took_us: u64) {
        self.incarnation().metrics().request_ended(end, took_us);
    }

    fn trapped(&self, stack: Vec<StackCall>) {
        let Self { shared, lease, .. } = self;
        // Beside the job's error, which has one sentence: the console shows the lines of a job.
        for line in stack_lines(&stack) {
            let now = shared.clock.now();
            shared.logs.add(self.incarnation(), now, lease.job, LogLevel::Error, &line);
        }
        shared.signals.notify_job_event(
            self.endpoint(),
            lease.job,
            JobEventNotice::Trapped(&stack),
        );
    }

    fn host(&self) -> Option<&dyn HandlerHost> {
        Some(self)
    }
}

#[async_trait]
impl<P: Place> HandlerHost for Sink<P> {
    async fn submit(&self, call: HandlerCall) -> Result<JobId, CallError> {
        self.shared.handler_calls.submit(&self.caller, call).await
    }

    async fn call(&self, call: HandlerCall) -> Result<Json, CallError> {
        let called = self.shared.handler_calls.begin(&self.caller, call).await?;
        self.place.lend();
        let output = called.output().await;
        self.place.take_again().await;
        output
    }
}

#[cfg(test)]
mod tests {
    use gristmill_core::runtime::SourceLocation;

    use super::*;

    #[test]
    fn a_stack_has_a_line_for_each_call_with_a_name() {
        let call = |function: Option<&str>, location: Option<(&str, Option<u32>)>| StackCall {
            function: function.map(str::to_owned),
            location: location.map(|(file, line)| SourceLocation { file: file.to_owned(), line }),
        };
        let stack = [
            call(Some("core::panicking::panic"), None),
            call(None, Some(("src/lib.rs", Some(3)))),
            call(Some("count"), Some(("src/lib.rs", Some(7)))),
            call(Some("main"), Some(("src/main.rs", None))),
            call(Some("gristmill:handler/run@0.1.0#handle"), None),
        ];
        let expected = [
            "trap: at core::panicking::panic",
            "trap: at count (src/lib.rs:7)",
            "trap: at main (src/main.rs)",
        ];
        assert_eq!(stack_lines(&stack), expected);
        assert_eq!(stack_lines(&vec![stack[0].clone(); 900]).len(), STACK_CALLS_MAX);
    }
}
