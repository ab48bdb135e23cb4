//! An attempt on a runner, seen from the active host.
//!
//! **Promise.** It ends shortly after its deadline or its stop, whatever the runner does. When the
//! connection to the runner is lost, the attempt waits [`Runners::adopt_within`] for the next one,
//! and goes on there: each chunk, log line, call and end of the handler takes effect once. So does
//! one that the runner has had since before this host was active. After that time, or when the
//! runner does not have it any more, it ends as [`AttemptEnd::HostLost`], as a crash if the process
//! of the runner is known to have ended. An attempt that no runner has begun ends as stopped, so
//! that its job waits again and no crash is counted.
//!
//! **Confirmations.** A report is confirmed once it is on disk, and the end of the attempt
//! likewise. So the runner still has what this host forgets when it ends.
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
use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::job::handler_call::CallError;
use gristmill_core::job::loss::HostLoss;
use gristmill_core::job::record::LeftAttempt;
use gristmill_core::runtime::{
    Attempt, AttemptEnd, AttemptKey, AttemptReport, AttemptSink, SinkClosed,
};
use gristmill_core::sharing::shares::Level;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use super::attempts::{Found, Listed};
use super::link::{Link, Reserved};
use super::request::{Lost, Request};
use super::runners::Runners;
use crate::convert::{self, Unusable};
use crate::messages::{Answer, Answered, Call, FromRunner, Order, Report, Resume, Stop};
use crate::transport::NOTICED_WITHIN;

/// Time after a deadline, or a stop, in which the runner ends the attempt and reports its usage.
const END_TIME_MAX: Duration = Duration::from_secs(3);

/// The room of an attempt on a runner.
#[derive(Debug)]
pub(crate) enum RemoteRoom {
    Reserved(Reserved),
    Expected(Expected),
}

/// An attempt that a runner has had since before this host was active.
#[derive(Debug)]
pub(crate) struct Expected {
    listed: Listed,
    /// Chunks that are on disk.
    chunks: u64,
}

impl Expected {
    /// Waits for the runner from now on.
    pub(crate) fn new(runners: &Runners, deployment: &Arc<Deployment>, left: &LeftAttempt) -> Self {
        let LeftAttempt { lease, ref worker, host, chunks, .. } = *left;
        let key = AttemptKey { job: lease.job, claim: lease.claim, worker: worker.clone() };
        // The runner has the sandbox in any case; the calls that wait for the job are not known.
        let (deployment, level) = (deployment.clone(), Level::CLIENT);
        Self { listed: runners.attempts().list(key, host, deployment, level), chunks }
    }
}

/// Runs an attempt on a runner to its end, over all connections.
pub(crate) async fn perform(
    runners: &Runners,
    room: RemoteRoom,
    attempt: Attempt,
    sink: Arc<dyn AttemptSink>,
) -> AttemptReport {
    let (mut listed, mut place, mut until, chunks) = match room {
        RemoteRoom::Reserved(reserved) => {
            let process = reserved.process();
            let Reserved { deployment, room } = reserved;
            let start = convert::start(deployment, &attempt, room.level, &runners.tenancy());
            let (key, of, level) = (attempt.key.clone(), attempt.deployment.clone(), room.level);
            let listed = runners.attempts().list(key, process, of, level);
            let request = Request::new(attempt.key.clone(), room, Order::Start(start));
            let until = Instant::from_std(attempt.deadline) + END_TIME_MAX;
            (listed, Place::On(Box::new(request)), Some(until), 0)
        }
        // Until its runner connects, only the runner knows its deadline.
        RemoteRoom::Expected(Expected { listed, chunks }) => {
            (listed, Place::Nowhere { since: Instant::now(), link: None }, None, chunks)
        }
    };
    let mut begun = Begun::new(sink, chunks);
    let mut is_stopped = false;
    loop {
        let reads = begun.emitting.is_none();
        let received = tokio::select! {
            biased;
            () = attempt.stop.cancelled(), if !is_stopped => {
                is_stopped = true;
                let stopped_at = Instant::now() + END_TIME_MAX;
                until = Some(until.map_or(stopped_at, |until| until.min(stopped_at)));
                match &place {
                    Place::On(request) if request.is_open() => request.send(Order::Stop(Stop {})),
                    // The runner ends it when it offers it, or with its time.
                    _ => return AttemptEnd::Stopped.into(),
                }
                continue;
            }
            () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {
                let end = if is_stopped { AttemptEnd::Stopped } else { AttemptEnd::DeadlineReached };
                return end.into();
            }
            Some(found) = listed.found.recv() => {
                match found {
                    Found::Kept(room, deadline) => {
                        let deadline = Instant::from_std(deadline) + END_TIME_MAX;
                        until = until.filter(|_| is_stopped).or(Some(deadline));
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
            () = runners.attempts().leaving(), if !place.is_own() => return place.leave(),
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
            number = ready(&mut begun.storing) => {
                begun.storing = None;
                match number {
                    Ok(number) => {
                        begun.confirmed = number;
                        place.send(Order::Taken(number));
                    }
                    // The runner keeps them until it is asked for the next ones.
                    Err(SinkClosed) => begun.confirmed = begun.taken,
                }
                continue;
            }
            // When no message waits, so that one confirmation is for many reports.
            () = future::ready(()), if begun.is_to_store() && place.is_open() => {
                begun.store();
                continue;
            }
        };
        let request = match &mut place {
            Place::On(request) => request,
            Place::Nowhere { link, .. } => {
                let loss = link.as_ref().map_or(HostLoss::Unreachable, |link| link.loss());
                return lost(is_stopped, loss);
            }
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
                let link = Some(request.link().clone());
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
            Ok(Taken::Missed) => {
                debug!("an attempt has chunks that are lost: the database has lost commits");
                return lost(is_stopped, HostLoss::Unreachable);
            }
            Ok(Taken::Ended(report)) => {
                let link = request.link();
                link.ended(&attempt.deployment, &report);
                let is_new = request.started().is_some();
                if is_new && !is_stopped && matches!(report.end, AttemptEnd::Stopped) {
                    // The runner is about to end, and would stop every further attempt: it has no
                    // others to run, so that it would be chosen again and again.
                    debug!("the host {} stops its attempts", link.name());
                    link.close();
                }
                if let Place::On(request) = place {
                    request.confirm_end(number, begun.sink);
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
    /// Its request has ended at this time, and perhaps the connection, which the link shows. No
    /// link: it has had none in this process.
    Nowhere { since: Instant, link: Option<Arc<Link>> },
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

    /// Whether it is in this process.
    fn is_own(&self) -> bool {
        matches!(self, Self::On(request) if request.link().is_own())
    }

    /// Leaves the attempt to the next active host, unless it may not have begun.
    fn leave(self) -> AttemptReport {
        match self {
            Self::On(request) if !request.is_open() => return AttemptEnd::Stopped.into(),
            Self::On(request) => request.leave(),
            Self::Nowhere { .. } => {}
        }
        AttemptEnd::Left.into()
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
                let end = sleep_until(*since + adopt_within);
                match link {
                    None => end.await,
                    Some(link) => tokio::select! {
                        () = link.lost.cancelled() => end.await,
                        () = sleep_until(*since + NOTICED_WITHIN) => {}
                    },
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
    /// Waits until that, and those before it, are on disk, and resolves to its number.
    storing: Option<BoxFuture<'static, Result<u64, SinkClosed>>>,
    /// The number that was confirmed to the runner last.
    confirmed: u64,
    /// Chunks that the store has.
    chunks: u64,
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
    /// Some chunks before these are lost.
    Missed,
    Ended(AttemptReport),
}

impl Begun {
    fn new(sink: Arc<dyn AttemptSink>, chunks: u64) -> Self {
        Self {
            sink,
            emitting: None,
            received: 0,
            taken: 0,
            storing: None,
            confirmed: 0,
            chunks,
            calls: FuturesUnordered::new(),
            called: 0,
            answers: BTreeMap::new(),
        }
    }

    /// Whether some reports are carried out, and not known to be on disk.
    fn is_to_store(&self) -> bool {
        self.confirmed < self.taken && self.storing.is_none()
    }

    fn store(&mut self) {
        let (number, sink) = (self.taken, self.sink.clone());
        self.storing = Some(Box::pin(async move { sink.stored().await.map(|()| number) }));
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
                let first = chunks.first;
                let mut chunks = convert::chunks_of(chunks)?;
                // Some may be on disk since before this host was active.
                let Some(known) = self.chunks.checked_sub(first) else { return Ok(Taken::Missed) };
                let known = usize::try_from(known).unwrap_or(usize::MAX).min(chunks.len());
                chunks.drain(..known);
                self.chunks += chunks.len() as u64;
                let sink = self.sink.clone();
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

/// The result of the work; never without work.
async fn ready<T>(work: &mut Option<BoxFuture<'_, T>>) -> T {
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
