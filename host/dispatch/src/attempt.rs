//! One attempt at one job: runs the handler, stops it when the job is cancelled, and stores the
//! result and the usage.

use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use gristmill_core::billing::usage::{Bill, JobUsage, Metered};
use gristmill_core::deploy::endpoint::{Deployment, EndpointType};
use gristmill_core::id::{EndpointId, OwnerId, WorkerId};
use gristmill_core::job::loss::HostLoss;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{ClaimedJob, Lease, LeftAttempt, Outcome, PastAttempt, S3Config};
use gristmill_core::job::retry::{FailedAttempt, FailureKind};
use gristmill_core::job::state::ReleaseCause;
use gristmill_core::jobs::handler_calls::Caller;
use gristmill_core::limits::ERROR_BYTES_MAX;
use gristmill_core::metrics::endpoint::FinishedAs;
use gristmill_core::runtime::{Attempt, AttemptEnd, AttemptKey, AttemptReport, Reservation};
use gristmill_core::signals::event_notice::JobEventNotice;
use gristmill_core::store::{Fenced, StoreError, TriedAgain};
use gristmill_core::time::Timestamp;
use gristmill_core::trace::TraceContext;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::attempt_sink::{Place, Sink};
use crate::attempt_spans::{AttemptSpans, EndedAttempt};
use crate::requests::deferred;
use crate::shared::Shared;

/// The deadline of an attempt and the ttl of its job are on different clocks, which may differ by
/// this much although neither was set.
const TTL_SLACK_MS: u64 = 1_000;

/// Runs one claimed job to its end, with the sandbox that was reserved before the claim.
pub(crate) async fn run(
    shared: &Arc<Shared>,
    deployment: Arc<Deployment>,
    reservation: Reservation,
    job: ClaimedJob,
    place: impl Place,
) {
    let lease = job.lease;
    let began = shared.store.now();
    let waited_us = began.millis_since(job.queued_at).saturating_mul(1_000);
    deployment.incarnation.metrics().started(waited_us);
    let started = JobEventNotice::Started { attempt: job.attempt };
    shared.signals.notify_job_event(EndpointType::Queue, lease.job, started);
    if let Some(host) = reservation.host() {
        // With a stale lease the attempt is stopped at once.
        let _ = shared.store.note_host(lease, host).await;
    }
    let held = HeldJob {
        lease,
        worker: job.worker,
        owner: job.owner,
        number: job.attempt,
        began,
        waited_us,
        execution_timeout_ms: job.execution_timeout_ms,
        ttl_at: job.ttl_at,
        trace: job.trace,
        bytes_in: job.input.len() as u64,
        chunk_bytes: 0,
    };
    perform(shared, deployment, reservation, held, (job.input, job.s3_config), place).await;
}

/// Goes on with the attempt of another host to its end.
pub(crate) async fn go_on(
    shared: &Arc<Shared>,
    deployment: Arc<Deployment>,
    reservation: Reservation,
    left: LeftAttempt,
    place: impl Place,
) {
    let held = HeldJob {
        lease: left.lease,
        worker: left.worker,
        owner: left.owner,
        number: left.attempt,
        began: left.started_at,
        // The host before has counted it.
        waited_us: 0,
        execution_timeout_ms: left.execution_timeout_ms,
        ttl_at: left.ttl_at,
        trace: left.trace,
        bytes_in: left.input_bytes,
        chunk_bytes: left.chunk_bytes,
    };
    perform(shared, deployment, reservation, held, (Json::null(), None), place).await;
}

/// Gives the attempt of another host up: its endpoint cannot run.
pub(crate) async fn give_up(shared: &Shared, lease: Lease) {
    let _ = host_lost(shared, lease, HostLoss::Unreachable).await;
}

/// A claimed job.
struct HeldJob {
    lease: Lease,
    worker: WorkerId,
    owner: OwnerId,
    /// Which attempt this is.
    number: u32,
    /// When it was claimed.
    began: Timestamp,
    waited_us: u64,
    execution_timeout_ms: Option<u64>,
    ttl_at: Timestamp,
    trace: Option<TraceContext>,
    /// Bytes of the input.
    bytes_in: u64,
    /// Bytes of the chunks that the store has already.
    chunk_bytes: u64,
}

/// Runs the attempt, or continues it. A continued attempt has no input here.
async fn perform(
    shared: &Arc<Shared>,
    deployment: Arc<Deployment>,
    reservation: Reservation,
    job: HeldJob,
    (input, s3_config): (Json, Option<Arc<S3Config>>),
    place: impl Place,
) {
    let HeldJob { lease, number, began, waited_us, ttl_at, bytes_in, .. } = job;
    let endpoint = deployment.endpoint.id.clone();
    let template = deployment.endpoint.template.clone();
    let endpoint_rule = deployment.endpoint.settings.retry;
    let remaining_ms = ttl_at.millis_since(began);
    let timeout_ms =
        job.execution_timeout_ms.unwrap_or(deployment.endpoint.settings.execution_timeout_ms);
    let is_ttl_first = remaining_ms < timeout_ms;
    let timeout_ms = timeout_ms.min(remaining_ms);
    let spans = AttemptSpans::open(&shared.tracer, job.trace.as_ref());
    let trace = spans.as_ref().map(AttemptSpans::context).or(job.trace);
    let stop = CancellationToken::new();
    // Of an attempt that goes on, the other host knows the deadline, which is earlier.
    let deadline = Instant::now() + Duration::from_millis(timeout_ms);
    let caller = Caller {
        job: lease.job,
        owner: job.owner.clone(),
        deployment: deployment.clone(),
        trace: trace.clone(),
        deadline,
    };
    let sink = Arc::new(Sink::new(shared, lease, caller, place, job.chunk_bytes));
    let attempt = Attempt {
        key: AttemptKey { job: lease.job, claim: lease.claim, worker: job.worker.clone() },
        number,
        deployment,
        input,
        s3_config,
        trace,
        timeout_ms,
        deadline,
        stop: stop.clone(),
    };
    let performing = async {
        let (runtime, kind) = (&*shared.runtime, attempt.deployment.endpoint.kind);
        match kind {
            EndpointType::Queue => runtime.perform(reservation, attempt, sink.clone()).await,
            EndpointType::LoadBalancer => {
                deferred::perform(runtime, reservation, attempt, sink.clone()).await
            }
        }
    };
    let report = attend(shared, lease, &sink, &stop, performing).await;
    sink.incarnation().metrics().ended(report.usage.values());
    log_end(&endpoint, number, lease, &report);
    if let Some(spans) = spans {
        let ended = EndedAttempt { endpoint: &endpoint, lease, number, waited_us };
        spans.end(&ended, &job.worker, &report);
    }
    let ended = JobEventNotice::Ended(&report);
    shared.signals.notify_job_event(EndpointType::Queue, lease.job, ended);
    let ending = match report.end {
        AttemptEnd::Returned(output) => {
            Ending::Result(Outcome::Completed(output), FinishedAs::Completed, None)
        }
        AttemptEnd::Failed { reason, error } => Ending::Result(
            sink.failed(cut(error)),
            FinishedAs::Failed(reason),
            Some(FailureKind::from(reason)),
        ),
        // The ttl deletes the job; there is no result to store. If the clock was set back
        // meanwhile, the ttl lasts on.
        AttemptEnd::DeadlineReached
            if is_ttl_first && ttl_at.millis_since(shared.store.now()) <= TTL_SLACK_MS =>
        {
            Ending::Unwanted
        }
        AttemptEnd::DeadlineReached => {
            let kind = Some(FailureKind::Timeout);
            Ending::Result(Outcome::TimedOut, FinishedAs::TimedOut, kind)
        }
        AttemptEnd::Stopped => release(shared, lease, ReleaseCause::Stopped).await,
        AttemptEnd::NoMemory => release(shared, lease, ReleaseCause::NoMemory).await,
        AttemptEnd::HostLost(loss) => host_lost(shared, lease, loss).await,
        // The next active host goes on with it.
        AttemptEnd::Left => return,
    };
    let output_bytes = match &ending {
        Ending::Result(Outcome::Completed(output), ..) => output.len(),
        Ending::Result(outcome, ..) => outcome.partial_output().map_or(0, Json::len),
        Ending::Unwanted => 0,
        Ending::WaitsAgain => {
            sink.incarnation().metrics().requeued();
            sink.decided();
            return;
        }
    };
    let bytes_out = sink.chunk_bytes() + output_bytes as u64;
    let metered = report.usage.metered(template, bytes_in, bytes_out);
    let unwanted = match ending {
        Ending::Result(outcome, finished, failure) => {
            let failed = failure.map(|kind| FailedAttempt {
                kind,
                // The store keeps no more of it.
                error: PastAttempt::beginning(outcome.error().unwrap_or_default()).to_owned(),
                wish: report.wish,
                endpoint_rule,
                random: rand::random(),
            });
            match try_again(shared, lease, failed, &metered).await {
                TriedAgain::Queued => {
                    sink.incarnation().metrics().requeued();
                    None
                }
                TriedAgain::Stale => Some(metered),
                TriedAgain::Ends => {
                    let counted = || sink.incarnation().metrics().finished(finished);
                    store_result(shared, lease, outcome, metered, counted).await
                }
            }
        }
        Ending::Unwanted => Some(metered),
        Ending::WaitsAgain => None,
    };
    sink.decided();
    if let Some(metered) = unwanted {
        let wall_ms = shared.store.now().millis_since(began);
        let (template, used) = (metered.template.clone(), JobUsage::of(&metered, wall_ms));
        bill(shared, lease, Bill { endpoint, template, owner: job.owner, used }).await;
    }
}

/// The meaning of an attempt's end for its job.
enum Ending {
    /// It is the job's result, and counts so. After a failure of this kind the job may run again
    /// instead.
    Result(Outcome, FinishedAs, Option<FailureKind>),
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

/// Lets the job wait for another attempt, if this one failed and the rule of the job permits that.
async fn try_again(
    shared: &Shared,
    lease: Lease,
    failed: Option<FailedAttempt>,
    metered: &Metered,
) -> TriedAgain {
    let Some(failed) = failed else { return TriedAgain::Ends };
    let tried = shared.store.try_again(lease, &failed, metered).await;
    tried.unwrap_or_else(|error| {
        if error != StoreError::Closed {
            warn!(job.id = %lease.job, %error, "job cannot be queued again: {error}");
        }
        TriedAgain::Ends
    })
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
            () = sink.has_progress() => sink.store_progress().await,
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
        AttemptEnd::Left => "was left to another host",
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
