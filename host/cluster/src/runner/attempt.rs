//! The request of an attempt: it begins the attempt or goes on with one that was kept, and passes
//! the messages of the active host on to it.

use std::sync::Arc;

use gristmill_core::runtime::{AttemptEnd, FailureReason};
use gristmill_core::sharing::shares::Level;
use hyper::body::Incoming;
use tracing::debug;

use super::attempts::{Begun, Known};
use super::connection::Connection;
use crate::convert;
use crate::frames::{FrameReader, FrameSender};
use crate::messages::{FromRunner, Order, Report, Resume, Start, Stop, ToRunner};

/// Serves a request until it ends, or the attempt is over. The attempt goes on without it.
pub(super) async fn serve(connection: Arc<Connection>, orders: Incoming, reports: FrameSender) {
    let mut orders = FrameReader::new(orders);
    let first = orders.next::<ToRunner>().await;
    let Ok(Some(ToRunner { order: Some(order) })) = first else {
        debug!("an attempt has no beginning: {first:?}");
        return;
    };
    let found = match order {
        Order::Start(start) => begin(&connection, start, &reports).map(|known| (known, 0)),
        Order::Resume(resume) => find(&connection, resume),
        other => {
            debug!("an attempt has no beginning: {other:?}");
            return;
        }
    };
    let Some((Known { sink, stop, .. }, received)) = found else {
        // The active host may have left.
        let _ = reports.send(&message(Report::NotBegun(Stop {})));
        return;
    };
    let attached = sink.attach(reports, received, connection.lost.clone());
    while let Ok(Some(ToRunner { order })) = orders.next::<ToRunner>().await {
        match order {
            Some(Order::Stop(Stop {})) => stop.cancel(),
            Some(Order::Answer(answer)) => sink.answered(answer),
            Some(Order::Taken(number)) => sink.taken(number),
            Some(Order::Leave(Stop {})) => return attached.leave(),
            // A newer active host may send other messages.
            Some(Order::Start(_) | Order::Resume(_)) | None => {}
        }
    }
}

/// Begins an attempt; `None` when its deployment is unknown.
fn begin(connection: &Connection, start: Start, reports: &FrameSender) -> Option<Known> {
    let deployment = connection.deployment(start.deployment)?;
    let runtime = connection.runtime().ok()?;
    let runner = &connection.runner;
    let Start { several_owners, several_endpoints, calls, .. } = start;
    let tenancy = &runner.settings.tenancy;
    tenancy.set_several_owners(several_owners);
    tenancy.set_several_endpoints(&deployment.endpoint.owner, several_endpoints);
    tenancy.set_calls(calls);
    let level = Level::of_number(start.level);
    match convert::attempt(start, deployment.clone(), runner.stop.child_token()) {
        Ok(attempt) => {
            let (known, running) =
                runner.attempts.add(Begun { runtime, deployment, level, attempt });
            runner.settings.guests.spawn(running);
            Some(known)
        }
        Err(error) => {
            let (reason, error) = (FailureReason::Host, error.to_string());
            let end = convert::end(AttemptEnd::Failed { reason, error }.into());
            let _ = reports.send(&message(Report::End(end)));
            None
        }
    }
}

/// An attempt that was kept, and the number of its last report that has arrived.
fn find(connection: &Connection, Resume { attempt, received }: Resume) -> Option<(Known, u64)> {
    let key = convert::attempt_key(attempt?).ok()?;
    Some((connection.runner.attempts.find(&key)?, received))
}

fn message(report: Report) -> FromRunner {
    FromRunner { report: Some(report), number: 0 }
}
