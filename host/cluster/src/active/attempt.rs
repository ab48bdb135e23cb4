//! An attempt on a runner, seen from the active host.
//!
//! **Promise.** It ends shortly after its deadline or its stop, whatever the runner does. When the
//! connection to the runner is lost, the attempt waits [`Runners::adopt_within`] for the next one,
//! and goes on there: each chunk, log line, call and end of the handler takes effect once. After
//! that time, or when the runner does not have it any more, it ends as [`AttemptEnd::HostLost`], as
//! a crash if the process of the runner is known to have ended. An attempt that no runner has begun
//! ends as stopped, so that its job waits again and no crash is counted.
//!
//! **Bounds.** The answers that the runner has not confirmed are kept, one for each call of the
//! handler that waits.

use std::collections::BTreeMap;
use std::future;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use gristmill_core::job::handler_call::CallError;
use gristmill_core::job::loss::HostLoss;
use gristmill_core::runtime::{Attempt, AttemptEnd, AttemptReport, AttemptSink};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use super::attempts::Found;
use super::link::{Link, Reserved};
use super::request::{Lost, Request};
use super::runners::Runners;
use crate::convert::{self, Unusable};
use crate::messages::{Answer, Answered, Call, FromRunner, Order, Report, Resume, Stop};
use crate::transport::NOTICED_WITHIN;

/// Time after a deadline, or a stop, in which the runner ends the attempt and reports its usage.
const END_TIME_MAX: Duration = Duration::from_secs(3);

/// Runs an attempt in the sandbox of a runner.
pub(crate) async fn perform(
    runners: &Runners,
    reserved: Reserved,
    attempt: Attempt,
    sink: Arc<dyn AttemptSink>,
) -> AttemptReport {
    let Reserved { deployment, room } = reserved;
    let start = convert::start(deployment, &attempt, room.level, &runners.tenancy());
    let mut listed =
        runners.attempts().list(attempt.key.clone(), &room, attempt.deployment.clone());
    let mut place =
        Place::On(Box::new(Request::new(attempt.key.clone(), room, Order::Start(start))));
    let mut begun = Begun::new(sink);
    let mut until = Instant::from_std(attempt.deadline) + END_TIME_MAX;
    let mut is_stopped = false;
    loop {
        let reads = begun.emitting.is_none();
        let received = tokio::select! {
            biased;
            () = attempt.stop.cancelled(), if !is_stopped => {
                is_stopped = true;
                until = until.min(Instant::now() + END_TIME_MAX);
                match &place {
                    Place::On(request) if request.is_open() => request.send(Order::Stop(Stop {})),
                    // The runner ends it when it offers it, or with its time.
                    _ => return AttemptEnd::Stopped.into(),
                }
                continue;
            }
            () = sleep_until(until) => {
                let end = if is_stopped { AttemptEnd::Stopped } else { AttemptEnd::DeadlineReached };
                return end.into();
            }
            Some(found) = listed.found.recv() => {
                match found {
                    Found::Kept(room) => {
                        let name = Some(convert::attempt_name(&attempt.key));
                        let resume = Resume { attempt: name, received: begun.received };
                        let request =
                            Request::new(attempt.key.clone(), room, Order::Resume(resume));
                        if is_stopped {
                            request.send(Order::Stop(Stop {}));
                        }
                        place = Place::On(Box::new(request));
                    }
                    Found::Absent => return lost(is_stopped, HostLoss::Unreachable),
                    Found::Ended => return lost(is_stopped, HostLoss::Crash),
                }
                continue;
            }
            () = ready(&mut begun.emitting) => {
                begun.emitting = None;
                begun.taken = begun.received;
                continue;
            }
            Some(answer) = begun.calls.next() => {
                place.send(Order::Answer(answer.clone()));
                begun.answers.insert(answer.call, answer);
                continue;
            }
            // The next message waits until the store has taken the chunks, and so does the handler
            // then.
            received = place.next(runners.adopt_within(), reads) => received,
            // When no message waits, so that one confirmation is for many reports.
            () = future::ready(()), if begun.confirmed < begun.taken && place.is_open() => {
                begun.confirmed = begun.taken;
                place.send(Order::Taken(begun.taken));
                continue;
            }
        };
        let request = match &mut place {
            Place::On(request) => request,
            Place::Nowhere { link, .. } => return lost(is_stopped, link.loss()),
        };
        let FromRunner { report, number } = match received {
            Ok(message) => message,
            Err(Lost::NotBegun(reason)) => {
                debug!("the host {} takes no more attempts: {reason}", request.link().name());
                request.link().close();
                return AttemptEnd::Stopped.into();
            }
            Err(Lost::Connection(reason)) => {
                if is_stopped {
                    return AttemptEnd::Stopped.into();
                }
                debug!("an attempt on the host {} waits for it: {reason}", request.link().name());
                let link = request.link().clone();
                place = Place::Nowhere { since: Instant::now(), link };
                // Whatever was confirmed may not have arrived.
                begun.confirmed = 0;
                continue;
            }
        };
        // A newer runner may send other messages.
        let Some(report) = report else { continue };
        match begun.take(report, number).await {
            Ok(Taken::Continues) => {}
            Ok(Taken::Repeated(answer)) => request.send(Order::Answer(answer)),
            Ok(Taken::NotBegun) => {
                let Some(deployment) = request.started().filter(|_| begun.received == 0) else {
                    return lost(is_stopped, HostLoss::Unreachable);
                };
                request.link().forget(deployment);
                return AttemptEnd::Stopped.into();
            }
            Ok(Taken::Ended(report)) => {
                let link = request.link();
                link.ended(&attempt.deployment, &report);
                if !is_stopped && matches!(report.end, AttemptEnd::Stopped) {
                    // The runner is about to end, and would stop every further attempt: it has no
                    // others to run, so that it would be chosen again and again.
                    debug!("the host {} stops its attempts", link.name());
                    link.close();
                }
                if let Place::On(request) = place {
                    request.confirm_end(number);
                }
                return report;
            }
            Err(error) => {
                let link = request.link();
                warn!("the host {} runs no more jobs for this one: {error}", link.name());
                link.close();
                return AttemptEnd::HostLost(HostLoss::Unreachable).into();
            }
        }
    }
}

/// The end of an attempt that its runner does not have any more.
fn lost(is_stopped: bool, loss: HostLoss) -> AttemptReport {
    let end = if is_stopped { AttemptEnd::Stopped } else { AttemptEnd::HostLost(loss) };
    end.into()
}

/// Where an attempt is.
enum Place {
    /// On a runner.
    On(Box<Request>),
    /// Its request has ended at this time, and perhaps the connection, which the link shows.
    Nowhere { since: Instant, link: Arc<Link> },
}

impl Place {
    fn send(&self, order: Order) {
        if let Self::On(request) = self {
            request.send(order);
        }
    }

    fn is_open(&self) -> bool {
        matches!(self, Self::On(request) if request.is_open())
    }

    /// The next message; with `reads` false, only an error of a request that is not answered.
    /// Without a connection it resolves to any error when the runner has had time to connect again.
    async fn next(&mut self, adopt_within: Duration, reads: bool) -> Result<FromRunner, Lost> {
        match self {
            Self::On(request) if reads => request.next().await,
            Self::On(request) => {
                request.open().await?;
                future::pending().await
            }
            Self::Nowhere { since, link } => {
                tokio::select! {
                    () = link.lost.cancelled() => sleep_until(*since + adopt_within).await,
                    () = sleep_until(*since + NOTICED_WITHIN) => {}
                }
                Err(Lost::Connection("it has not connected again".to_owned()))
            }
        }
    }
}

/// An attempt that a runner has begun, with its side work on this host.
struct Begun {
    sink: Arc<dyn AttemptSink>,
    /// Gives the last chunks to the store.
    emitting: Option<BoxFuture<'static, ()>>,
    /// The number of the last report that has arrived.
    received: u64,
    /// The number of the last report that was carried out.
    taken: u64,
    /// The number that was confirmed to the runner last.
    confirmed: u64,
    /// The handler's calls of other endpoints.
    calls: FuturesUnordered<BoxFuture<'static, Answer>>,
    /// The number of the last call that has arrived.
    called: u64,
    /// Answers that the runner has not confirmed.
    answers: BTreeMap<u64, Answer>,
}

/// The attempt after a message of its runner.
enum Taken {
    Continues,
    /// The runner asks again for an answer that it has not received.
    Repeated(Answer),
    NotBegun,
    Ended(AttemptReport),
}

impl Begun {
    fn new(sink: Arc<dyn AttemptSink>) -> Self {
        Self {
            sink,
            emitting: None,
            received: 0,
            taken: 0,
            confirmed: 0,
            calls: FuturesUnordered::new(),
            called: 0,
            answers: BTreeMap::new(),
        }
    }

    /// Carries out a message of the runner, or begins to; not again if it was received before.
    ///
    /// # Errors
    /// When the message has an invalid part.
    async fn take(&mut self, report: Report, number: u64) -> Result<Taken, Unusable> {
        if number > 0 {
            if number <= self.received {
                return Ok(Taken::Continues);
            }
            self.received = number;
        }
        match report {
            Report::Chunks(chunks) => {
                let (chunks, sink) = (convert::chunks_of(chunks)?, self.sink.clone());
                self.emitting = Some(Box::pin(async move {
                    // Whether the attempt still counts is seen by its stop.
                    let _ = sink.emit(chunks).await;
                }));
                return Ok(Taken::Continues);
            }
            Report::Progress(value) => self.sink.progress(convert::progress(value)?),
            Report::Log(line) => self.sink.log(convert::level(&line), &line.line),
            Report::Requested(requested) => {
                let (end, took_us) = convert::request_end(&requested);
                self.sink.requested(end, took_us).await;
            }
            Report::Call(call) if call.number > self.called => {
                self.called = call.number;
                self.calls.push(Box::pin(answer_call(self.sink.clone(), call)));
            }
            Report::Call(Call { number, .. }) => {
                if let Some(answer) = self.answers.get(&number) {
                    return Ok(Taken::Repeated(answer.clone()));
                }
            }
            Report::AnswerTaken(call) => {
                self.answers.remove(&call);
            }
            Report::NotBegun(Stop {}) => return Ok(Taken::NotBegun),
            Report::End(end) => return Ok(Taken::Ended(convert::report(end)?)),
        }
        self.taken = self.received;
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
