//! One attempt at one job: run it, listen for its cancellation, store its result.

use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use gristmill_core::endpoint::Deployment;
use gristmill_core::id::EndpointId;
use gristmill_core::limits::ERROR_BYTES_MAX;
use gristmill_core::payload::Json;
use gristmill_core::record::{Chunk, ClaimedJob, Lease, Outcome};
use gristmill_core::runtime::{
    Attempt, AttemptEnd, AttemptReport, AttemptSink, LogLevel, SinkClosed,
};
use gristmill_core::store::{Fenced, StoreError};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::shared::Shared;

/// Runs one claimed job to its end.
pub(crate) async fn run(shared: &Arc<Shared>, deployment: Arc<Deployment>, job: ClaimedJob) {
    let lease = job.lease;
    let endpoint = deployment.endpoint.id.clone();
    let remaining_ms = job.ttl_at.millis_since(shared.store.now());
    let is_ttl_first = remaining_ms < job.execution_timeout_ms;
    let timeout_ms = job.execution_timeout_ms.min(remaining_ms);
    let stop = CancellationToken::new();
    let sink = Arc::new(Sink {
        shared: shared.clone(),
        lease,
        endpoint: endpoint.clone(),
        progress: Mutex::new(None),
        has_progress: Notify::new(),
    });
    let attempt = Attempt {
        job: lease.job,
        number: job.attempt,
        deployment,
        input: job.input,
        s3_config: job.s3_config,
        timeout_ms,
        deadline: Instant::now() + Duration::from_millis(timeout_ms),
        stop: stop.clone(),
    };
    let performing = shared.runtime.perform(attempt, sink.clone());
    let report = attend(shared, lease, &sink, &stop, performing).await;
    log_end(&endpoint, job.attempt, lease, &report);
    match report.end {
        AttemptEnd::Returned(output) => {
            store_result(shared, lease, Outcome::Completed(output)).await
        }
        AttemptEnd::Failed(error) => {
            store_result(shared, lease, Outcome::Failed(cut(error))).await;
        }
        // The ttl deletes the job; there is no result to store.
        AttemptEnd::DeadlineReached if is_ttl_first => {}
        AttemptEnd::DeadlineReached => store_result(shared, lease, Outcome::TimedOut).await,
        // Drained: the job waits again. Cancelled or deleted: the lease is stale, nothing happens.
        AttemptEnd::Stopped => match shared.store.release(lease).await {
            Ok(Fenced::Applied | Fenced::Stale) | Err(StoreError::Closed) => {}
            Err(error) => warn!(job.id = %lease.job, %error, "job cannot be released: {error}"),
        },
    }
}

/// Waits for the attempt's end; meanwhile hands progress on, and stops the attempt once its job
/// was cancelled or deleted, or a drain's patience is over.
async fn attend(
    shared: &Shared,
    lease: Lease,
    sink: &Sink,
    stop: &CancellationToken,
    performing: impl Future<Output = AttemptReport>,
) -> AttemptReport {
    let mut performing = std::pin::pin!(performing);
    // A handler that waits for nothing ends here, before anybody listens to its job.
    if let Poll::Ready(report) = futures::poll!(performing.as_mut()) {
        return report;
    }
    let mut stopped = std::pin::pin!(shared.stop_attempts.cancelled());
    let watch = shared.signals.watch(lease.job);
    loop {
        let changed = watch.changed();
        // Not what clients see of the job, which may not even show its submission yet.
        let is_over = matches!(shared.store.holds(lease).await, Ok(false));
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

/// Stores the result without waiting for the disk.
async fn store_result(shared: &Shared, lease: Lease, outcome: Outcome) {
    match shared.store.finish_soon(lease, outcome).await {
        Ok(Fenced::Applied) => {}
        Ok(Fenced::Stale) => {
            debug!(job.id = %lease.job, "late result of job `{}` was dropped", lease.job);
        }
        Err(error) => {
            warn!(job.id = %lease.job, %error, "result of job `{}` is lost: {error}", lease.job);
        }
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
        AttemptEnd::Failed(_) => "failed",
        AttemptEnd::DeadlineReached => "ran out of time",
        AttemptEnd::Stopped => "was stopped",
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

/// What the sandbox hands out while the attempt runs.
struct Sink {
    shared: Arc<Shared>,
    lease: Lease,
    endpoint: EndpointId,
    /// The newest value that is not stored yet; a newer one replaces it.
    progress: Mutex<Option<Json>>,
    has_progress: Notify,
}

impl Sink {
    async fn store_progress(&self) {
        let Some(value) = self.progress.lock().take() else { return };
        // A stale lease means that nobody will ask for the value any more.
        let _ = self.shared.store.set_progress(self.lease, value).await;
    }
}

#[async_trait]
impl AttemptSink for Sink {
    async fn emit(&self, chunks: Vec<Chunk>) -> Result<(), SinkClosed> {
        match self.shared.store.append_chunks(self.lease, chunks).await {
            Ok(Fenced::Applied) => Ok(()),
            Ok(Fenced::Stale) | Err(_) => Err(SinkClosed),
        }
    }

    fn progress(&self, value: Json) {
        *self.progress.lock() = Some(value);
        self.has_progress.notify_one();
    }

    fn log(&self, level: LogLevel, line: &str) {
        let Shared { logs, clock, .. } = &*self.shared;
        logs.add(&self.endpoint, clock.now(), self.lease.job, level, line);
        macro_rules! write {
            ($level:ident) => {
                tracing::$level!(
                    target: "handler",
                    { job.id = %self.lease.job, endpoint.id = %self.endpoint },
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
}
