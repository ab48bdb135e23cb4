//! A case on a deployed endpoint.

use anyhow::Context as _;
use gristmill_core::id::EndpointId;
use gristmill_core::limits::EXECUTION_TIMEOUT_MS;
use gristmill_core::payload::Json;
use serde_json::value::RawValue;

use super::cases::Case;
use super::observed::Observed;
use crate::cli::stream::{Follower, StreamUpdate};
use crate::cli::submit::{Accepted, POLL_WAIT, Waiting};
use crate::client::{Client, JobDocument, Submission, SubmissionPolicy};

/// Submits a case's job and waits for its end.
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
    let policy = SubmissionPolicy { execution_timeout: timeout, ..SubmissionPolicy::default() };
    let answer = client.submit(endpoint, &Submission { input, webhook: None, policy }).await?;
    let id = answer.read::<Accepted>()?.id;
    let chunks = match case.expectation.chunks {
        Some(_) => Some(chunks(client, endpoint, &id).await?),
        None => None,
    };
    let waiting = Waiting { client, endpoint, id: &id, look: POLL_WAIT, deadline: None };
    let last = waiting.until_end(|_| {}).await?;
    let document: JobDocument<'_> = last.read()?;
    let output = document.output.map(|output| Json::parse(output.get().to_owned()));
    Ok(Observed {
        status: document.status,
        output: output.transpose().context("the output is not JSON")?,
        error: document.error,
        chunks,
        run_us: document.execution_time.saturating_mul(1_000),
        local: None,
    })
}

/// The outputs of all chunks, once the job has ended.
async fn chunks(client: &Client, endpoint: &EndpointId, id: &str) -> anyhow::Result<Vec<Json>> {
    let mut chunks = Vec::new();
    let follower = Follower::new(client.clone(), endpoint.clone(), id.to_owned(), Some(0));
    follower
        .follow_to_end(|update| {
            let chunk = match update {
                StreamUpdate::Chunk(chunk) => chunk,
                StreamUpdate::Restart => {
                    chunks.clear();
                    return Ok(());
                }
            };
            let output = chunk.output.get().to_owned();
            chunks.push(Json::parse(output).context("a chunk is not JSON")?);
            Ok(())
        })
        .await?;
    Ok(chunks)
}
