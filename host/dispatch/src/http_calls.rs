//! The call of a client: it waits for its place in the line, for a worker and for the head of the
//! answer, and stops the handler when the client leaves.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use gristmill_core::billing::usage::{JobUsage, UsageSum};
use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::http_call::{HttpBody, HttpCall, NoResponse, is_bodiless, no_body};
use gristmill_core::http_calls::{NoAnswer, WantedAnswer};
use gristmill_core::http_requests::ObservedRequest;
use gristmill_core::metrics::failure_reason::FailureReason;
use gristmill_core::runtime::{AttemptEnd, LogLevel};
use http::{HeaderMap, Method, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::requests::RETURNED;
use crate::requests::line::{Number, WaitingRequest};
use crate::shared::Shared;
use crate::workers::{EndpointWorkers, Event, Starter};

/// The path by which clients ask whether a handler is ready.
const PING: &str = "/ping";

/// The time after which such a request is answered although the component is still being loaded or
/// compiled.
const PING_WAIT: Duration = Duration::from_secs(1);

/// The interval at which a call looks whether its request has returned to the line.
const RETURNED_LOOK: Duration = Duration::from_secs(1);

/// The code of an answer whose body the handler has not finished.
const BROKE_OFF: &str = "invalid_answer";

/// Has a request answered by the workers of its endpoint, whose present deployment is `now`.
pub(crate) async fn call(
    starter: &Starter,
    workers: &Arc<EndpointWorkers>,
    now: Arc<Deployment>,
    wanted: WantedAnswer,
) -> Result<Response<HttpBody>, NoAnswer> {
    let WantedAnswer { caller, request, affinity, trace, observed, .. } = wanted;
    let of_request = observed.clone();
    let request = request.map(|body| counted(body, move |bytes| of_request.took(bytes)));
    let is_head = request.method() == Method::HEAD;
    let mut is_ping = request.method() == Method::GET && request.uri().path() == PING;
    let (call, mut answered) = HttpCall::new(request);
    let (ended, report) = oneshot::channel();
    let stop = workers.requests().stop();
    let waiting = WaitingRequest {
        observed: observed.clone(),
        caller,
        call: HttpCall { affinity, ..call },
        trace,
        since: starter.shared.clock.now(),
        stop: stop.clone(),
        ended,
    };
    let (number, demand) = workers.requests().push(waiting)?;
    let mut client = Client { starter, workers, number, observed, stop: Some(stop) };
    workers.apply(starter, &now, Event::Demand(demand));
    let settings = &now.endpoint.settings;
    let queue_timeout = Duration::from_millis(settings.http.queue_timeout_ms);
    let mut wait = if is_ping { PING_WAIT } else { queue_timeout };
    let answer = loop {
        tokio::select! {
            biased;
            answer = &mut answered => break answer,
            () = tokio::time::sleep(wait) => {
                let was_ping = std::mem::take(&mut is_ping);
                let initializing = || workers.counts(now.endpoint.scaling()).initializing;
                let is_loading = was_ping && initializing() > 0;
                if was_ping && !is_loading {
                    wait = queue_timeout;
                    continue;
                }
                if client.leave_line() {
                    if is_loading {
                        return Ok(loading());
                    }
                    return Err(workers.fault().map_or(NoAnswer::Busy, NoAnswer::CannotRun));
                }
                // A worker has it, and may yet put it back.
                wait = RETURNED_LOOK;
            }
        }
    };
    match answer {
        Ok(Ok(answer)) => Ok(client.streamed(answer, is_head, now)),
        Ok(Err(none)) => {
            if let NoResponse::Invalid(why) = &none {
                client.log(&now, why);
            }
            Err(none.into())
        }
        Err(_) => {
            let Ok(report) = report.await else { return Err(NoAnswer::Stopped) };
            client.stop = None;
            // The attempt has logged every other end.
            if let AttemptEnd::Returned(()) = report.end {
                client.log(&now, RETURNED);
            }
            Err(no_answer(report.end, settings.execution_timeout_ms))
        }
    }
}

/// The answer to a ping while there is no handler yet.
fn loading() -> Response<HttpBody> {
    let mut answer = Response::new(no_body());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    answer
}

/// Why the handler has not answered.
fn no_answer(end: AttemptEnd<()>, timeout_ms: u64) -> NoAnswer {
    match end {
        AttemptEnd::Returned(()) => {
            NoAnswer::Failed { reason: FailureReason::InvalidOutput, error: RETURNED.to_owned() }
        }
        AttemptEnd::Failed { reason, error } => NoAnswer::Failed { reason, error },
        AttemptEnd::DeadlineReached => NoAnswer::TimedOut(timeout_ms),
        AttemptEnd::NoMemory => NoAnswer::NoMemory,
        AttemptEnd::Stopped | AttemptEnd::HostLost(_) | AttemptEnd::Left => NoAnswer::Stopped,
    }
}

/// A client that waits for the head of its answer. When this is dropped, the client has left.
struct Client<'a> {
    starter: &'a Starter,
    workers: &'a Arc<EndpointWorkers>,
    number: Number,
    observed: Arc<ObservedRequest>,
    /// Stops the handler; `None` when there is nothing to stop.
    stop: Option<CancellationToken>,
}

impl Client<'_> {
    /// Adds a line to the log of the endpoint, whose owner may not be the client.
    fn log(&self, now: &Deployment, line: &str) {
        let Shared { logs, clock, .. } = &*self.starter.shared;
        logs.add(&now.incarnation, clock.now(), self.observed.id(), LogLevel::Error, line);
    }

    /// Removes the request from the line. Returns whether it was there.
    fn leave_line(&mut self) -> bool {
        let Some(demand) = self.workers.requests().remove(self.number) else { return false };
        if let Some(now) = self.workers.deployment(&self.starter.shared) {
            self.workers.apply(self.starter, &now, Event::Demand(demand));
        }
        true
    }

    /// The answer. The handler is stopped when its body is dropped before its end.
    fn streamed(
        mut self,
        answer: Response<HttpBody>,
        is_head: bool,
        now: Arc<Deployment>,
    ) -> Response<HttpBody> {
        let stop = self.stop.take();
        let (head, mut body) = answer.into_parts();
        let left = announced(&head.headers);
        if is_bodiless(is_head, head.status) || left == Some(0) || body.is_end_stream() {
            // The client gets no body. The host reads it nevertheless, since a handler whose body
            // is not read fails.
            if !body.is_end_stream() {
                tokio::spawn(async move { while let Some(Ok(_)) = body.frame().await {} });
            }
            return Response::from_parts(head, no_body());
        }
        let (shared, observed) = (self.starter.shared.clone(), self.observed.clone());
        let body = AnswerOfClient { body, left, stop, observed, shared, deployment: now };
        Response::from_parts(head, body.boxed_unsync())
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // First, so that a worker that puts the request back drops it.
            stop.cancel();
            self.leave_line();
        }
    }
}

/// A body whose bytes are counted as they are taken.
fn counted(body: HttpBody, count: impl Fn(u64) + Send + 'static) -> HttpBody {
    body.map_frame(move |frame| {
        count(frame.data_ref().map_or(0, Bytes::len) as u64);
        frame
    })
    .boxed_unsync()
}

fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The body of an answer that a client reads.
struct AnswerOfClient {
    body: HttpBody,
    /// Bytes that are still to come, if the head has announced them. Nobody asks for more then.
    left: Option<u64>,
    /// Stops the handler; `None` when the client has all of the body.
    stop: Option<CancellationToken>,
    observed: Arc<ObservedRequest>,
    shared: Arc<Shared>,
    deployment: Arc<Deployment>,
}

impl Body for AnswerOfClient {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                self.observed.gave(bytes);
                if let Some(left) = &mut self.left {
                    *left = left.saturating_sub(bytes);
                }
                if self.left == Some(0) || frame.is_trailers() {
                    self.stop = None;
                }
            }
            None => self.stop = None,
            Some(Err(_)) => {
                self.stop = None;
                self.observed.broke_off(BROKE_OFF);
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for AnswerOfClient {
    fn drop(&mut self) {
        if let Some(stop) = &self.stop {
            self.observed.client_left();
            stop.cancel();
        }
        // The attempt may have ended, and was billed, before the client had all bytes.
        let billed =
            UsageSum { bytes_out: self.observed.take_unbilled_out(), ..UsageSum::default() };
        if billed.bytes_out > 0 {
            let used = JobUsage { billed, egress_bytes: 0 };
            self.shared.request_bills.add(&self.deployment.endpoint, &used);
        }
    }
}
