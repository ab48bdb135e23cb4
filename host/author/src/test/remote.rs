//! A case on a deployed endpoint.

use std::time::{Duration, Instant};

use gristmill_client::wire::queue::{Policy, Submission};
use gristmill_client::{Client, ClientError, HttpAnswer, StreamUpdate};
use gristmill_commands::calls::until_accepted;
use gristmill_commands::{POLL_WAIT, Waiting, output};
use gristmill_core::id::EndpointId;
use gristmill_core::job::payload::Json;
use gristmill_core::job::state::JobStatus;
use gristmill_core::limits::EXECUTION_TIMEOUT_MS;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::cases::{Case, CaseCall};
use super::observed::{Observed, ObservedChunks};
use crate::local::{GivenRequest, WholeAnswer};

/// How long an interrupted case waits for the answer to its submission: only the answer has the id
/// of the job.
const SUBMISSION_TIME_MAX: Duration = Duration::from_secs(1);

/// How long it waits for the answer to the cancel of its job.
const CANCEL_TIME_MAX: Duration = Duration::from_secs(1);

/// Runs a case at an endpoint; `None` if `stop` fires before its end.
///
/// # Errors
/// When the host refuses the job or the request, or cannot be reached.
pub(super) async fn run(
    client: &Client,
    endpoint: &EndpointId,
    case: &Case,
    stop: &CancellationToken,
) -> anyhow::Result<Option<Observed>> {
    if stop.is_cancelled() {
        return Ok(None);
    }
    match &case.call {
        CaseCall::Job(input) => perform(client, endpoint, case, input, stop).await,
        CaseCall::Request(given) => tokio::select! {
            seen = request(client, endpoint, given) => seen.map(Some),
            () = stop.cancelled() => Ok(None),
        },
    }
}

/// Has a request answered. It waits after refusals, as a submission does.
async fn request(
    client: &Client,
    endpoint: &EndpointId,
    given: &GivenRequest,
) -> anyhow::Result<Observed> {
    let GivenRequest { target, headers, body } = given;
    let send = async || {
        let sent = Instant::now();
        let path = target.path.as_str();
        let call = client.http(endpoint, &target.method, path, headers, body.clone());
        Ok((call.await?, sent.elapsed()))
    };
    let (answer, took) = until_accepted(send).await?;
    let run_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    Ok(match answer {
        HttpAnswer::Handler { status, headers, body } => {
            Observed::answered(WholeAnswer { status, headers, body }, run_us)
        }
        HttpAnswer::Failed { code, error } => {
            let is_late = code == "handler_timed_out";
            let status = if is_late { JobStatus::TimedOut } else { JobStatus::Failed };
            Observed::unanswered(status, error, run_us)
        }
    })
}

/// Submits a case's job and waits for its end; `None` if `stop` fires before. While the host
/// refuses the job for a reason that passes, such as its limits for calls, the case waits: a file
/// may have more cases than those admit. A job that is left before its end is cancelled, if the
/// host answers within a second.
///
/// # Errors
/// When the host refuses the job, or cannot be reached.
async fn perform(
    client: &Client,
    endpoint: &EndpointId,
    case: &Case,
    input: &Json,
    stop: &CancellationToken,
) -> anyhow::Result<Option<Observed>> {
    let input: &RawValue = input.read()?;
    // A timeout below the host's minimum is compared with the job's run time instead.
    let timeout = case.expectation.timeout_ms.map(|ms| EXECUTION_TIMEOUT_MS.clamp(ms));
    let policy = Policy { execution_timeout: timeout, ..Policy::default() };
    let job = Submission { policy: Some(policy), ..Submission::new(input) };
    // With a key of its own, so that a submission in doubt can be repeated.
    let key = format!("test-{:032x}", rand::random::<u128>());
    let submit = async || client.run(endpoint, &job, Some(&key)).await;
    let submitted = tokio::select! {
        submitted = until_accepted(submit) => submitted,
        () = stopped_for(stop, SUBMISSION_TIME_MAX) => return Ok(None),
    };
    let answer = match submitted {
        Ok(answer) => answer,
        Err(error) => return refused_input(&error).map(Some).ok_or_else(|| error.into()),
    };
    let id = answer.read()?.id;
    let ended = tokio::select! {
        ended = until_end(client, endpoint, case, &id) => ended.map(Some),
        () = stop.cancelled() => Ok(None),
    };
    if !matches!(ended, Ok(Some(_))) {
        cancel(client, endpoint, &id).await;
    }
    ended
}

/// Waits until `stop` has fired and this time has passed since.
async fn stopped_for(stop: &CancellationToken, time: Duration) {
    stop.cancelled().await;
    tokio::time::sleep(time).await;
}

/// Cancels a job whose result is not awaited any more.
async fn cancel(client: &Client, endpoint: &EndpointId, id: &str) {
    let why = match tokio::time::timeout(CANCEL_TIME_MAX, client.cancel(endpoint, id)).await {
        Ok(Ok(_)) => return,
        // The job or its endpoint was deleted.
        Ok(Err(error)) if error.is_not_found() => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the host does not answer".to_owned(),
    };
    output::note(format_args!(
        "job {id} is not cancelled: {why}; `gristmill cancel {endpoint} {id}` cancels it"
    ));
}

/// Waits for the end of a case's job.
///
/// # Errors
/// When the host cannot be reached, or does not have the job.
async fn until_end(
    client: &Client,
    endpoint: &EndpointId,
    case: &Case,
    id: &str,
) -> anyhow::Result<Observed> {
    let chunks = match case.expectation.chunks {
        Some(_) => Some(chunks(client, endpoint, id).await?),
        None => None,
    };
    let waiting = Waiting { client, endpoint, id, look: POLL_WAIT, deadline: None };
    let last = waiting.until_end(|_| {}).await?;
    let document = last.read()?;
    Ok(Observed {
        status: document.status,
        output: document.output.map(|output| Json::from_value(&output)),
        error: document.error.map(Into::into),
        chunks,
        run_us: document.execution_time.saturating_mul(1_000),
        head: None,
        local: None,
    })
}

/// The end of a case whose input does not fit the schema of the deployed handler: the same as here,
/// where a sandbox checks it.
fn refused_input(error: &ClientError) -> Option<Observed> {
    let refusal = error.refusal().filter(|refusal| refusal.status == 400)?;
    let sentence = refusal.message.clone().filter(|sentence| sentence.starts_with("`input"))?;
    Some(Observed {
        status: JobStatus::Failed,
        output: None,
        error: Some(sentence),
        chunks: Some(ObservedChunks::default()),
        run_us: 0,
        head: None,
        local: None,
    })
}

/// All chunks, once the job has ended.
async fn chunks(
    client: &Client,
    endpoint: &EndpointId,
    id: &str,
) -> anyhow::Result<ObservedChunks> {
    let mut chunks = ObservedChunks::default();
    let mut stream = client.stream(endpoint, id, Some(0));
    loop {
        match stream.next().await? {
            StreamUpdate::Chunk(chunk) => chunks.add(Json::from_value(&chunk.output()?)),
            StreamUpdate::Restart(_) => chunks = ObservedChunks::default(),
            StreamUpdate::End(_) => return Ok(chunks),
        }
    }
}
