//! `gristmill logs`: the newest log lines of an endpoint's handlers, and optionally the following
//! ones.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use gristmill_core::id::EndpointId;
use gristmill_core::limits::LIST_LOGS;
use serde::Deserialize;

use super::connection::ConnectionArgs;
use super::{output, parse};
use crate::client::{Client, ClientError};

/// Pause before the client connects again.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// Most attempts in a row.
const RECONNECTS_MAX: u32 = 10;

/// Show the log of an endpoint's handlers.
///
/// The host keeps the newest lines of each endpoint on disk, 16 MiB unless its operator chooses
/// another bound.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The endpoint.
    endpoint: EndpointId,
    /// Only the lines of this job.
    #[arg(long, value_name = "ID", value_parser = parse::job_id)]
    job: Option<String>,
    /// Number of lines to show, the newest ones.
    #[arg(
        long,
        value_name = "N",
        default_value_t = LIST_LOGS.default,
        value_parser = parse::bounded::<u64>(LIST_LOGS)
    )]
    tail: u64,
    /// Continue to print new lines until this command is interrupted.
    #[arg(long, short)]
    follow: bool,
    /// Print each line as one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    at: String,
    job_id: String,
    level: String,
    line: String,
}

pub(crate) async fn logs(args: LogsArgs) -> anyhow::Result<ExitCode> {
    let mut query = vec![("tail", args.tail.to_string())];
    query.extend(args.job.map(|job| ("job", job)));
    let client = args.connection.client()?;
    if !args.follow {
        let answer = client.logs(&args.endpoint, &query).await?;
        for line in answer.read::<Vec<&serde_json::value::RawValue>>()? {
            show(line.get(), args.json)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut after = None;
    let mut failed = 0;
    loop {
        let before = after.clone();
        let broken = follow(&client, &args.endpoint, &query, &mut after, args.json).await?;
        failed = if after == before { failed + 1 } else { 1 };
        if failed > RECONNECTS_MAX {
            anyhow::bail!(broken.map_or_else(
                || "the host ends the lines again and again".to_owned(),
                |error| error.to_string()
            ));
        }
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

/// Shows the lines of one connection; returns why it broke, if that is known.
async fn follow(
    client: &Client,
    endpoint: &EndpointId,
    query: &[(&str, String)],
    after: &mut Option<String>,
    as_json: bool,
) -> anyhow::Result<Option<ClientError>> {
    let mut events = match client.follow_logs(endpoint, query, after.as_deref()).await {
        Ok(events) => events,
        Err(error) if error.is_passing() => return Ok(Some(error)),
        Err(error) => return Err(error.into()),
    };
    loop {
        match events.next().await {
            Ok(Some(event)) => {
                show(&event.data, as_json)?;
                *after = event.id.or_else(|| after.take());
            }
            Ok(None) => return Ok(None),
            Err(error) if error.is_passing() => return Ok(Some(error)),
            Err(error) => return Err(error.into()),
        }
    }
}

fn show(document: &str, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return output::result(output::one_line(document));
    }
    let line: Line = serde_json::from_str(document)?;
    let Line { at, job_id, level, line } = line;
    output::result(format_args!("{at}  {level:<5}  {job_id}  {}", output::plain(&line)))
}
