//! A case on a deployed endpoint.

use gristmill_client::wire::queue::{Policy, Submission};
use gristmill_client::{Client, ClientError, StreamUpdate};
use gristmill_commands::calls::until_accepted;
use gristmill_commands::{POLL_WAIT, Waiting};
use gristmill_core::id::EndpointId;
use gristmill_core::job::payload::Json;
use gristmill_core::job::state::JobStatus;
use gristmill_core::limits::EXECUTION_TIMEOUT_MS;
use serde_json::value::RawValue;

use super::cases::Case;
use super::observed::Observed;

/// Submits a case's job and waits for its end. While the host refuses the job for a reason that passes, such as
/// its limits for calls, the case waits: a file may have more cases than those admit.
///
/// # Errors
/// When the host refuses the job, or cannot be reached.
pub(super) async fn run(
    client: &Client,
    endpoint: &EndpointId,
    case: &Case,
) -> anyhow::Result<Observed> {
    let input: &RawValue = case.input.read()?;
    // A timeout below the host's minimum is compared with the job's run time instead.
    let timeout = case.expectation.timeout_ms.map(|ms| EXECUTION_TIMEOUT_MS.clamp(ms));
    let policy = Policy { execution_timeout: timeout, ..Policy::default() };
    let job = Submission { policy: Some(policy), ..Submission::new(input) };
    // With a key of its own, so that a submission in doubt can be repeated.
    let key = format!("test-{:032x}", rand::random::<u128>());
    let submit = async || client.run(endpoint, &job, Some(&key)).await;
    let answer = match until_accepted(submit).await {
        Ok(answer) => answer,
        Err(error) => return refused_input(&error).ok_or_else(|| error.into()),
    };
    let id = answer.read()?.id;
    let chunks = match case.expectation.chunks {
        Some(_) => Some(chunks(client, endpoint, &id).await?),
        None => None,
    };
    let waiting = Waiting { client, endpoint, id: &id, look: POLL_WAIT, deadline: None };
    let last = waiting.until_end(|_| {}).await?;
    let document = last.read()?;
    Ok(Observed {
        status: document.status,
        output: document.output.map(|output| Json::from_value(&output)),
        error: document.error.map(Into::into),
        chunks,
        run_us: document.execution_time.saturating_mul(1_000),
        local: None,
    })
}

/// The end of a case whose input does not fit the schema of the deployed handler: the same as here, where a
/// sandbox checks it.
fn refused_input(error: &ClientError) -> Option<Observed> {
    let refusal = error.refusal().filter(|refusal| refusal.status == 400)?;
    let sentence = refusal.message.clone().filter(|sentence| sentence.starts_with("`input"))?;
    Some(Observed {
        status: JobStatus::Failed,
        output: None,
        error: Some(sentence),
        chunks: Some(Vec::new()),
        run_us: 0,
        local: None,
    })
}

/// The outputs of all chunks, once the job has ended.
async fn chunks(client: &Client, endpoint: &EndpointId, id: &str) -> anyhow::Result<Vec<Json>> {
    let mut chunks = Vec::new();
    let mut stream = client.stream(endpoint, id, Some(0));
    loop {
        match stream.next().await? {
            StreamUpdate::Chunk(chunk) => chunks.push(Json::from_value(&chunk.output()?)),
            StreamUpdate::Restart(_) => chunks.clear(),
            StreamUpdate::End(_) => return Ok(chunks),
        }
    }
}
