//! An attempt on a runner, seen from the runner.

use std::sync::Arc;

use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::runtime::{Attempt, AttemptEnd, AttemptReport, FailureReason, Runtime, Usage};
use gristmill_core::sharing::shares::Level;
use hyper::body::Incoming;
use tracing::debug;

use super::connection::Connection;
use super::sink::ReportSink;
use crate::convert;
use crate::frames::{FrameReader, FrameSender};
use crate::messages::{FromRunner, Order, Report, Start, Stop, ToRunner};

/// Runs the attempt of a request to its end. Dropping the future stops the handler.
pub(super) async fn run(connection: Arc<Connection>, orders: Incoming, reports: FrameSender) {
    let mut orders = FrameReader::new(orders);
    let first = orders.next::<ToRunner>().await;
    let Ok(Some(ToRunner { order: Some(Order::Start(start)) })) = first else {
        debug!("an attempt has no beginning: {first:?}");
        return;
    };
    let known = connection.deployment(start.deployment);
    let (Some(deployment), Ok(runtime)) = (known, connection.runtime()) else {
        let not_begun = FromRunner { report: Some(Report::NotBegun(Stop {})) };
        // The active host may have left.
        let _ = reports.send(&not_begun);
        return;
    };
    let Start { several_owners, several_endpoints, calls, .. } = start;
    let tenancy = &connection.runner.settings.tenancy;
    tenancy.set_several_owners(several_owners);
    tenancy.set_several_endpoints(&deployment.endpoint.owner, several_endpoints);
    tenancy.set_calls(calls);
    let sink = Arc::new(ReportSink::new(reports));
    let report = attend(&connection, runtime, deployment, start, orders, &sink).await;
    if let Some(report) = report {
        sink.end(convert::end(report));
    }
}

/// Runs the handler, and passes messages on meanwhile. `None` when the active host is lost.
async fn attend(
    connection: &Connection,
    runtime: Arc<dyn Runtime>,
    deployment: Arc<Deployment>,
    start: Start,
    mut orders: FrameReader<Incoming>,
    sink: &Arc<ReportSink>,
) -> Option<AttemptReport> {
    let stop = connection.runner.stop.child_token();
    let level = Level::of_number(start.level);
    let attempt = match convert::attempt(start, deployment.clone(), stop.clone()) {
        Ok(attempt) => attempt,
        Err(error) => {
            let (reason, error) = (FailureReason::Host, error.to_string());
            return Some(ended(AttemptEnd::Failed { reason, error }));
        }
    };
    let performing = perform(&*runtime, deployment, level, attempt, sink.clone());
    let mut performing = std::pin::pin!(performing);
    loop {
        tokio::select! {
            biased;
            report = &mut performing => return Some(report),
            () = sink.has_progress() => sink.send_progress(),
            order = orders.next::<ToRunner>() => match order {
                Ok(Some(ToRunner { order: Some(Order::Stop(Stop {})) })) => stop.cancel(),
                Ok(Some(ToRunner { order: Some(Order::Answer(answer)) })) => sink.answered(answer),
                // A newer active host may send other messages.
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return None,
            },
        }
    }
}

/// Waits for the sandbox, which the attempt before is about to leave, and runs the handler in it.
async fn perform(
    runtime: &dyn Runtime,
    deployment: Arc<Deployment>,
    level: Level,
    attempt: Attempt,
    sink: Arc<ReportSink>,
) -> AttemptReport {
    let reservation = tokio::select! {
        reservation = runtime.reserve(&deployment, level) => reservation,
        () = attempt.stop.cancelled() => return ended(AttemptEnd::Stopped),
        () = tokio::time::sleep_until(attempt.deadline.into()) => {
            return ended(AttemptEnd::DeadlineReached);
        }
    };
    runtime.perform(reservation, attempt, sink).await
}

fn ended(end: AttemptEnd) -> AttemptReport {
    AttemptReport { end, usage: Usage::default() }
}
