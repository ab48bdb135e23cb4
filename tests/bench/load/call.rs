//! The repeated work of one connection: a job from its submission to its result.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use crate::connection::{Answer, Connection, find, request};

/// Pause between two calls of `/status`, for an impatient client.
const POLL_PAUSE: Duration = Duration::from_millis(2);

/// One job of a workload.
#[derive(Clone)]
pub(crate) enum Call {
    /// The answer has the result; its body must contain `expected`. Requests are sent in turn.
    Once { requests: Arc<[Vec<u8>]>, expected: Arc<str> },
    /// Submitted with `submit`, then polled with `/status` until it is COMPLETED.
    Polled { submit: Arc<[u8]>, job: JobPaths },
    /// Submitted with `submit`, then read with `/stream` to its end, which has this many chunks.
    Streamed { submit: Arc<[u8]>, job: JobPaths, is_sse: bool, chunks: usize },
    /// One of these, in turn.
    Mixed(Arc<[Call]>),
}

/// The requests about one endpoint's jobs.
#[derive(Clone)]
pub(crate) struct JobPaths {
    pub(crate) endpoint: String,
    pub(crate) headers: String,
}

impl JobPaths {
    fn request(&self, operation: &str, id: &str, more_headers: &str) -> Vec<u8> {
        let Self { endpoint, headers } = self;
        let path = format!("/v2/{endpoint}/{operation}/{id}");
        request("GET", &path, &format!("{headers}{more_headers}"), "")
    }
}

impl Call {
    /// A call that is always the same.
    pub(crate) fn once(request: Vec<u8>, expected: &str) -> Self {
        Self::Once { requests: [request].into(), expected: expected.into() }
    }

    /// Runs one job; `turn` counts the connection's jobs.
    pub(crate) async fn perform(
        &self,
        connection: &mut Connection,
        turn: usize,
    ) -> anyhow::Result<()> {
        match self {
            Self::Once { requests, expected } => {
                let request = &requests[turn % requests.len()];
                let answer = accepted(connection.call(request).await?)?;
                ensure!(has(answer.body, expected), "{}", text(&answer));
            }
            Self::Polled { submit, job } => {
                let id = submitted(connection, submit).await?;
                let status = job.request("status", &id, "");
                loop {
                    let answer = accepted(connection.call(&status).await?)?;
                    if has(answer.body, "\"COMPLETED\"") {
                        break;
                    }
                    ensure!(has(answer.body, "\"IN_"), "{}", text(&answer));
                    tokio::time::sleep(POLL_PAUSE).await;
                }
            }
            Self::Streamed { submit, job, is_sse: true, chunks } => {
                let id = submitted(connection, submit).await?;
                let stream = job.request("stream", &id, "Accept: text/event-stream\r\n");
                let answer = accepted(connection.call(&stream).await?)?;
                ensure!(has(answer.body, "event: end"), "{}", text(&answer));
                ensure!(count(&answer) == *chunks, "{} of {chunks} chunks", count(&answer));
            }
            Self::Streamed { submit, job, is_sse: false, chunks } => {
                let id = submitted(connection, submit).await?;
                let stream = job.request("stream", &id, "");
                let mut read = 0;
                loop {
                    let answer = accepted(connection.call(&stream).await?)?;
                    read += count(&answer);
                    match answer.header("x-job-status") {
                        Some("COMPLETED") => break,
                        Some("IN_QUEUE" | "IN_PROGRESS") => {}
                        other => bail!("X-Job-Status: {other:?}"),
                    }
                }
                ensure!(read == *chunks, "{read} of {chunks} chunks");
            }
            Self::Mixed(calls) => {
                Box::pin(calls[turn % calls.len()].perform(connection, turn)).await?;
            }
        }
        Ok(())
    }
}

async fn submitted(connection: &mut Connection, submit: &[u8]) -> anyhow::Result<String> {
    let answer = accepted(connection.call(submit).await?)?;
    let job: Value = serde_json::from_slice(answer.body)?;
    Ok(job["id"].as_str().with_context(|| format!("an id in {job}"))?.to_owned())
}

fn accepted(answer: Answer<'_>) -> anyhow::Result<Answer<'_>> {
    ensure!(answer.status == 200, "{}", text(&answer));
    Ok(answer)
}

/// The chunks of an answer of `/stream`.
fn count(answer: &Answer<'_>) -> usize {
    let what = b"\"stream_index\"";
    answer.body.windows(what.len()).filter(|window| window == what).count()
}

fn has(body: &[u8], what: &str) -> bool {
    find(body, what.as_bytes()).is_some()
}

/// For messages.
fn text(answer: &Answer<'_>) -> String {
    let body = &answer.body[..answer.body.len().min(500)];
    format!("{}: {}", answer.status, String::from_utf8_lossy(body))
}
