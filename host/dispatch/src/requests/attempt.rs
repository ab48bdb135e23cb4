//! The attempt at a request: it runs the handler, and reports its end to the call that waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_core::billing::usage::JobUsage;
use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::id::WorkerId;
use gristmill_core::job::record::{Lease, StoreEpoch};
use gristmill_core::job::state::Claim;
use gristmill_core::jobs::handler_calls::Caller;
use gristmill_core::runtime::{
    Attempt, AttemptEnd, AttemptKey, AttemptSink as _, LogLevel, Reservation,
};
use tracing::debug;

use super::line::WaitingRequest;
use crate::attempt_sink::{Place, Sink};
use crate::shared::Shared;

/// There is no job, so no store gives the claim a number.
const CLAIM: Claim = Claim(0);

/// Answers a request.
pub(crate) async fn answer(
    shared: &Arc<Shared>,
    deployment: Arc<Deployment>,
    reservation: Reservation,
    request: WaitingRequest,
    worker: WorkerId,
    place: impl Place,
) {
    let WaitingRequest { observed, call, trace, since, stop, ended, .. } = request;
    let (id, began) = (observed.id(), shared.clock.elapsed());
    observed.started(worker.clone(), deployment.endpoint.version);
    let (endpoint, metrics) = (&deployment.endpoint, deployment.incarnation.metrics());
    metrics.started(shared.clock.now().millis_since(since).saturating_mul(1_000));
    let timeout_ms = endpoint.settings.execution_timeout_ms;
    let deadline = Instant::now() + Duration::from_millis(timeout_ms);
    let caller = Caller {
        job: id,
        owner: endpoint.owner.clone(),
        deployment: deployment.clone(),
        trace: trace.clone(),
        deadline,
    };
    let lease = Lease { job: id, claim: CLAIM, epoch: StoreEpoch(0) };
    let sink = Arc::new(Sink::new(shared, lease, caller, place, 0));
    let attempt = Attempt {
        key: AttemptKey { job: id, claim: CLAIM, worker },
        number: 1,
        deployment: deployment.clone(),
        input: call,
        s3_config: None,
        trace,
        timeout_ms,
        deadline,
        stop: stop.clone(),
    };
    let mut serving = std::pin::pin!(shared.runtime.serve(reservation, attempt, sink.clone()));
    let report = tokio::select! {
        biased;
        report = &mut serving => report,
        () = shared.stop_attempts.cancelled() => {
            stop.cancel();
            serving.await
        }
    };
    metrics.ended(report.usage.values());
    let wall_ms = whole_ms(shared.clock.elapsed()).saturating_sub(whole_ms(began));
    observed.ended(Duration::from_millis(wall_ms), failure_code(&report.end));
    if is_billed(&report.end, shared.stop_attempts.is_cancelled()) {
        let (template, bytes_in) = (endpoint.template.clone(), observed.bytes_in());
        let metered = report.usage.metered(template, bytes_in, observed.take_unbilled_out());
        shared.request_bills.add(endpoint, &JobUsage::of(&metered, wall_ms));
    }
    debug!(
        request.id = %id,
        endpoint.id = %endpoint.id,
        run_us = report.usage.run_us,
        cpu_us = report.usage.cpu_us,
        "request `{id}` ended: {:?}", report.end
    );
    let failure = match &report.end {
        AttemptEnd::Failed { error, .. } => Some(&**error),
        AttemptEnd::DeadlineReached => Some("the time of the request is over (executionTimeoutMs)"),
        _ => None,
    };
    // After the head of its answer a client gets no reason.
    if let Some(failure) = failure {
        sink.log(LogLevel::Error, failure);
    }
    // Nobody waits for it if the handler has answered.
    let _ = ended.send(report);
}

/// The milliseconds of a time of the clock. The difference of two of them is right on average, also
/// for requests that take a part of a millisecond.
fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Whether an attempt counts for the bill: as that of a job, unless the host has ended it.
fn is_billed(end: &AttemptEnd<()>, stopped_by_host: bool) -> bool {
    match end {
        AttemptEnd::Returned(()) | AttemptEnd::Failed { .. } | AttemptEnd::DeadlineReached => true,
        AttemptEnd::Stopped => !stopped_by_host,
        AttemptEnd::NoMemory | AttemptEnd::HostLost(_) | AttemptEnd::Left => false,
    }
}

/// Why an answer has broken off, if the handler or the host is the reason. Before the head of the
/// answer the refusal has a code of its own.
fn failure_code(end: &AttemptEnd<()>) -> Option<&'static str> {
    match end {
        AttemptEnd::Failed { .. } => Some("handler_failed"),
        AttemptEnd::DeadlineReached => Some("handler_timed_out"),
        AttemptEnd::Returned(()) | AttemptEnd::Stopped => None,
        AttemptEnd::NoMemory | AttemptEnd::HostLost(_) | AttemptEnd::Left => Some("unavailable"),
    }
}
