//! An attempt on a runner, seen from the active host.
//!
//! **Promise.** It ends shortly after its deadline or its stop, whatever the runner does. An
//! attempt whose runner is lost ends as [`AttemptEnd::HostLost`]; an attempt that no runner has
//! begun ends as stopped, so that its job waits again and no crash is counted.

use std::future;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use gristmill_core::job::handler_call::CallError;
use gristmill_core::runtime::{Attempt, AttemptEnd, AttemptReport, AttemptSink, Usage};
use gristmill_core::sharing::tenancy::Tenancy;
use hyper::StatusCode;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, warn};

use super::link::Room;
use crate::convert::{self, Unusable};
use crate::frames::{self, FrameReader};
use crate::messages::{Answer, Answered, Call, FromRunner, Order, Report, Stop, ToRunner};

/// Time after a deadline, or a stop, in which the runner ends the attempt and reports its usage.
const END_TIME_MAX: Duration = Duration::from_secs(3);

/// Time for the end of the answer after its last message: without it the connection would have to
/// reset the request.
const LAST_BYTES: Duration = Duration::from_millis(100);

/// Runs an attempt in the sandbox of a runner.
pub(crate) async fn perform(
    room: Room,
    attempt: Attempt,
    sink: Arc<dyn AttemptSink>,
    tenancy: &Tenancy,
) -> AttemptReport {
    let Room { link, deployment, level, permit } = room;
    let _returned_at_end = permit;
    let (orders, body) = frames::channel();
    let start = Order::Start(convert::start(deployment, &attempt, level, tenancy));
    // The body exists.
    let _ = orders.send(&ToRunner { order: Some(start) });
    let mut until = Instant::from_std(attempt.deadline) + END_TIME_MAX;
    let answer = tokio::select! {
        biased;
        answer = link.send("/attempt", body) => answer,
        () = attempt.stop.cancelled() => return ended(AttemptEnd::Stopped),
        () = sleep_until(until) => return ended(AttemptEnd::DeadlineReached),
    };
    let answer = match answer {
        Ok(answer) if answer.status() == StatusCode::OK => answer,
        other => {
            debug!("the host {} takes no more attempts: {other:?}", link.name());
            link.close();
            return ended(AttemptEnd::Stopped);
        }
    };

    let mut reports = FrameReader::new(answer.into_body());
    let mut begun = Begun { sink, emitting: None, calls: FuturesUnordered::new() };
    let mut is_stopped = false;
    loop {
        let received = tokio::select! {
            biased;
            () = attempt.stop.cancelled(), if !is_stopped => {
                is_stopped = true;
                until = until.min(Instant::now() + END_TIME_MAX);
                let _ = orders.send(&ToRunner { order: Some(Order::Stop(Stop {})) });
                continue;
            }
            () = sleep_until(until) => {
                let end = if is_stopped { AttemptEnd::Stopped } else { AttemptEnd::DeadlineReached };
                return ended(end);
            }
            () = ready(&mut begun.emitting) => {
                begun.emitting = None;
                continue;
            }
            Some(answer) = begun.calls.next() => {
                let _ = orders.send(&ToRunner { order: Some(Order::Answer(answer)) });
                continue;
            }
            // The next message waits until the store has taken the chunks, and so does the handler
            // then.
            received = reports.next::<FromRunner>(), if begun.emitting.is_none() => received,
        };
        let report = match received {
            Ok(Some(FromRunner { report })) => report,
            _ if is_stopped => return ended(AttemptEnd::Stopped),
            Ok(None) => return ended(AttemptEnd::HostLost),
            Err(error) => {
                debug!("an attempt on the host {} is lost: {error}", link.name());
                return ended(AttemptEnd::HostLost);
            }
        };
        // A newer runner may send other messages.
        let Some(report) = report else { continue };
        match begun.take(report).await {
            Ok(Taken::Continues) => {}
            Ok(Taken::NotBegun) => {
                link.forget(deployment);
                return ended(AttemptEnd::Stopped);
            }
            Ok(Taken::Ended(report)) => {
                link.ended(&attempt.deployment, &report);
                if !is_stopped && matches!(report.end, AttemptEnd::Stopped) {
                    // The runner is about to end, and would stop every further attempt: it has no
                    // others to run, so that it would be chosen again and again.
                    debug!("the host {} stops its attempts", link.name());
                    link.close();
                }
                let _ = timeout(LAST_BYTES, reports.next::<FromRunner>()).await;
                return report;
            }
            Err(error) => {
                warn!("the host {} runs no more jobs for this one: {error}", link.name());
                link.close();
                return ended(AttemptEnd::HostLost);
            }
        }
    }
}

/// An attempt that a runner has begun, with its side work on this host.
struct Begun {
    sink: Arc<dyn AttemptSink>,
    /// Gives the last chunks to the store.
    emitting: Option<BoxFuture<'static, ()>>,
    /// The handler's calls of other endpoints.
    calls: FuturesUnordered<BoxFuture<'static, Answer>>,
}

/// The attempt after a message of its runner.
enum Taken {
    Continues,
    NotBegun,
    Ended(AttemptReport),
}

impl Begun {
    /// Carries out a message of the runner, or begins to.
    ///
    /// # Errors
    /// When the message has an invalid part.
    async fn take(&mut self, report: Report) -> Result<Taken, Unusable> {
        match report {
            Report::Chunks(chunks) => {
                let (chunks, sink) = (convert::chunks_of(chunks)?, self.sink.clone());
                self.emitting = Some(Box::pin(async move {
                    // Whether the attempt still counts is seen by its stop.
                    let _ = sink.emit(chunks).await;
                }));
            }
            Report::Progress(value) => self.sink.progress(convert::progress(value)?),
            Report::Log(line) => self.sink.log(convert::level(&line), &line.line),
            Report::Requested(request) => {
                let (end, took_us) = convert::request_end(&request);
                self.sink.requested(end, took_us).await;
            }
            Report::Call(call) => self.calls.push(Box::pin(answer_call(self.sink.clone(), call))),
            Report::NotBegun(Stop {}) => return Ok(Taken::NotBegun),
            Report::End(end) => return Ok(Taken::Ended(convert::report(end)?)),
        }
        Ok(Taken::Continues)
    }
}

/// Resolves when the work is done; never without work.
async fn ready(work: &mut Option<BoxFuture<'_, ()>>) {
    match work {
        Some(work) => work.await,
        None => future::pending().await,
    }
}

async fn answer_call(sink: Arc<dyn AttemptSink>, call: Call) -> Answer {
    let Call { number, waits, .. } = call;
    let call = match convert::handler_call(call) {
        Ok(call) => call,
        Err(error) => return convert::answer(number, Err(error.into())),
    };
    let host = sink.host().ok_or_else(|| CallError::Other("the job has no host".to_owned()));
    let answered = match (host, waits) {
        (Ok(host), true) => {
            host.call(call).await.map(|output| Answered::Output(output.as_bytes().clone()))
        }
        (Ok(host), false) => host.submit(call).await.map(|job| Answered::Job(job.to_string())),
        (Err(error), _) => Err(error),
    };
    convert::answer(number, answered)
}

fn ended(end: AttemptEnd) -> AttemptReport {
    AttemptReport { end, usage: Usage::default() }
}
