//! The attempt at a request that is answered later: its job has the request as input, and the
//! answer as output.
//!
//! **Bounds.** The answer has as many bytes as an output may have, in JSON.

use std::sync::Arc;

use gristmill_core::http_call::{HttpBody, HttpCall, NoResponse, is_bodiless, no_body};
use gristmill_core::http_requests::deferred;
use gristmill_core::job::payload::Json;
use gristmill_core::limits::OUTPUT_BYTES_MAX;
use gristmill_core::runtime::{
    Attempt, AttemptEnd, AttemptReport, AttemptSink, FailureReason, Reservation, Runtime,
};
use http::{Method, Response};
use http_body_util::{BodyExt as _, Limited};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::RETURNED;

/// Why there is no complete answer.
enum NoOutput {
    /// The end of the handler says it.
    Unanswered,
    /// The answer is wrong.
    Invalid(String),
}

/// Runs the handler of HTTP for a job.
pub(crate) async fn perform(
    runtime: &dyn Runtime,
    reservation: Reservation,
    attempt: Attempt,
    sink: Arc<dyn AttemptSink>,
) -> AttemptReport {
    let (input, attempt) = attempt.split();
    let request = match apart(move || deferred::request(&input)).await {
        Some(Ok(request)) => request,
        Some(Err(unreadable)) => return invalid(unreadable.to_string()).into(),
        None => return AttemptEnd::Stopped.into(),
    };
    let (is_head, path) = (request.method() == Method::HEAD, deferred::path_of_client(&request));
    let (call, answered) = HttpCall::new(request);
    let stop = attempt.stop.clone();
    let ((), attempt) = attempt.replace(call);
    let serving = runtime.serve(reservation, attempt, sink);
    let (report, output) = tokio::join!(serving, collected(answered, (is_head, &path), &stop));
    let AttemptReport { end, usage, wish } = report;
    let end = match (output, end) {
        // What the handler does after its answer changes nothing for a client.
        (Ok(output), _) => AttemptEnd::Returned(output),
        (Err(NoOutput::Invalid(why)), AttemptEnd::Returned(()) | AttemptEnd::Stopped) => {
            invalid(why)
        }
        (Err(NoOutput::Unanswered), AttemptEnd::Returned(())) => invalid(RETURNED.to_owned()),
        (Err(_), AttemptEnd::Failed { reason, error }) => AttemptEnd::Failed { reason, error },
        (Err(_), AttemptEnd::DeadlineReached) => AttemptEnd::DeadlineReached,
        (Err(_), AttemptEnd::Stopped) => AttemptEnd::Stopped,
        (Err(_), AttemptEnd::NoMemory) => AttemptEnd::NoMemory,
        (Err(_), AttemptEnd::HostLost(loss)) => AttemptEnd::HostLost(loss),
        (Err(_), AttemptEnd::Left) => AttemptEnd::Left,
    };
    AttemptReport { end, usage, wish }
}

fn invalid(error: String) -> AttemptEnd {
    AttemptEnd::Failed { reason: FailureReason::InvalidOutput, error }
}

/// The complete answer. A handler whose answer is too large is stopped.
async fn collected(
    answered: oneshot::Receiver<Result<Response<HttpBody>, NoResponse>>,
    (is_head, path): (bool, &str),
    stop: &CancellationToken,
) -> Result<Json, NoOutput> {
    let answer = match answered.await {
        Ok(Ok(answer)) => answer,
        Ok(Err(none)) => return Err(NoOutput::Invalid(none.to_string())),
        Err(_) => return Err(NoOutput::Unanswered),
    };
    let too_large = || {
        stop.cancel();
        NoOutput::Invalid(format!(
            "the answer is larger than {OUTPUT_BYTES_MAX} bytes, the most of a request that is \
             answered later; bytes that are no text count a third more"
        ))
    };
    let (mut head, mut body) = answer.into_parts();
    deferred::fix_location(&mut head.headers, path);
    if is_bodiless(is_head, head.status) {
        // A handler whose body is not read fails.
        while let Some(Ok(_)) = body.frame().await {}
        body = no_body();
    }
    let body = match Limited::new(body, OUTPUT_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => return Err(too_large()),
        Err(error) => return Err(NoOutput::Invalid(format!("the answer broke off: {error}"))),
    };
    let answer = Response::from_parts(head, body);
    let output = apart(move || deferred::output(&answer)).await.ok_or(NoOutput::Unanswered)?;
    if output.len() > OUTPUT_BYTES_MAX { Err(too_large()) } else { Ok(output) }
}

/// Runs `work` on a thread that may compute for some hundred milliseconds. `None` when the host
/// ends.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}
