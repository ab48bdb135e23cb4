//! `gristmill stream`: follows a job's stream until the job has ended.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use gristmill_core::id::EndpointId;
use gristmill_core::job::JobStatus;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::connection::ConnectionArgs;
use super::{job, output, parse};
use crate::client::{self, Client, ClientError};

/// Most reconnections in a row, and the pause before each.
const RECONNECTS_MAX: u32 = 10;
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// Follow a job's stream.
///
/// Prints the output of each chunk as one line of JSON, from the first chunk that was not delivered
/// yet to the last. Ends with the job: exits with 0 when the job is COMPLETED, else prints the
/// reason and exits with 1. If the job starts again meanwhile, the command prints a note, and then
/// the chunks of the new attempt from the first one on.
#[derive(Debug, Args)]
pub(crate) struct StreamArgs {
    /// The endpoint.
    endpoint: EndpointId,
    /// The job's id.
    #[arg(value_parser = parse::job_id)]
    job: String,
    /// Start with this chunk, delivered or not; the first is 0.
    #[arg(long, value_name = "N")]
    from: Option<u64>,
    /// Print each chunk as the host sends it: output and metrics.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// One chunk.
#[derive(Debug, Deserialize)]
pub(super) struct Chunk<'a> {
    /// The emitted value.
    #[serde(borrow)]
    pub(super) output: &'a RawValue,
    /// The whole chunk, as the host sent it.
    #[serde(skip)]
    whole: &'a str,
}

/// An event before the last one.
pub(super) enum StreamUpdate<'a> {
    /// A chunk.
    Chunk(Chunk<'a>),
    /// The job has another attempt: all chunks so far are invalid, and its stream starts again.
    Restart,
}

/// The last event.
#[derive(Debug, Deserialize, PartialEq, Eq)]
pub(super) struct End {
    #[serde(deserialize_with = "client::status")]
    status: JobStatus,
    error: Option<String>,
}

pub(crate) async fn stream(args: StreamArgs) -> anyhow::Result<ExitCode> {
    let client = args.connection.client()?;
    let follower = Follower::new(client, args.endpoint, args.job, args.from);
    let end = follower.follow_to_end(|update| {
        let chunk = match update {
            StreamUpdate::Chunk(chunk) => chunk,
            StreamUpdate::Restart => {
                output::note("the job was started again: its stream begins anew");
                return Ok(());
            }
        };
        let shown = if args.json { chunk.whole } else { chunk.output.get() };
        output::result(output::one_line(shown))
    });
    let end = end.await?;
    Ok(job::conclude(end.status, end.error.as_deref()))
}

/// Follows one job's stream, over as many connections as needed.
pub(super) struct Follower {
    client: Client,
    endpoint: EndpointId,
    job: String,
    /// The chunk to begin with, if one was named.
    from: Option<u64>,
    /// The id of the last event that had one.
    last_event: Option<String>,
}

/// The end of one connection.
enum Followed {
    /// The job has ended.
    End(End),
    /// The connection ended; the stream continues with another one.
    Broken(Option<ClientError>),
}

impl Follower {
    /// Begins with chunk `from`, or with the first that was not delivered yet.
    pub(super) fn new(
        client: Client,
        endpoint: EndpointId,
        job: String,
        from: Option<u64>,
    ) -> Self {
        Self { client, endpoint, job, from, last_event: None }
    }

    /// Passes all updates on until the job has ended.
    ///
    /// # Errors
    /// Those of `on_update`, and repeated failures to reach the host.
    pub(super) async fn follow_to_end(
        mut self,
        mut on_update: impl FnMut(StreamUpdate<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<End> {
        let mut failed = 0;
        loop {
            let last_event = self.last_event.clone();
            let cause = match self.follow(&mut on_update).await? {
                Followed::End(end) => return Ok(end),
                Followed::Broken(cause) => cause,
            };
            failed = if self.last_event == last_event { failed + 1 } else { 1 };
            if failed > RECONNECTS_MAX {
                match cause {
                    Some(cause) => return Err(cause.into()),
                    None => bail!("the host repeatedly ended the stream before the job's end"),
                }
            }
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
    }

    /// Passes the chunks of one connection on.
    async fn follow(
        &mut self,
        on_update: &mut impl FnMut(StreamUpdate<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Followed> {
        let after = self.last_event.as_deref();
        let opened = self.client.stream(&self.endpoint, &self.job, self.from, after).await;
        let mut events = match opened {
            Ok(events) => events,
            Err(error) if error.is_passing() => return Ok(Followed::Broken(Some(error))),
            Err(error) => return Err(error.into()),
        };
        loop {
            let event = match events.next().await {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(Followed::Broken(None)),
                Err(error) if error.is_passing() => return Ok(Followed::Broken(Some(error))),
                Err(error) => return Err(error.into()),
            };
            match event.kind.as_str() {
                "end" => return Ok(Followed::End(read(&event.data)?)),
                "message" => on_update(StreamUpdate::Chunk(Chunk::read(&event.data)?))?,
                "restart" => on_update(StreamUpdate::Restart)?,
                // Kinds of a later version.
                _ => continue,
            }
            self.last_event = event.id.or_else(|| self.last_event.take());
        }
    }
}

impl<'a> Chunk<'a> {
    fn read(data: &'a str) -> Result<Self, ClientError> {
        Ok(Self { whole: data, ..read(data)? })
    }
}

fn read<'a, T: Deserialize<'a>>(data: &'a str) -> Result<T, ClientError> {
    serde_json::from_str(data).map_err(|error| {
        ClientError::Garbled(format!("the stream has an event that is none: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_keeps_its_text() {
        let data = r#"{"output":{"n": 9007199254740993},"metrics":{"stream_index":0}}"#;
        let chunk = Chunk::read(data).unwrap();
        assert_eq!((chunk.output.get(), chunk.whole), (r#"{"n": 9007199254740993}"#, data));
        assert!(Chunk::read("{}").is_err());
    }

    #[test]
    fn the_end_says_how_the_job_ended() {
        let end: End = read(r#"{"id":"a","status":"FAILED","error":"boom"}"#).unwrap();
        assert_eq!(end, End { status: JobStatus::Failed, error: Some("boom".into()) });
        let end: End = read(r#"{"id":"a","status":"COMPLETED"}"#).unwrap();
        assert_eq!(end, End { status: JobStatus::Completed, error: None });
    }
}
