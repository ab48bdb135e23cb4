//! `gristmill logs`: the newest log lines of an endpoint's handlers, and optionally the following
//! ones.

use std::process::ExitCode;

use clap::Args;
use gristmill_client::LogQuery;
use gristmill_client::wire::bounds::LIST_LOGS;
use gristmill_client::wire::id::EndpointId;
use gristmill_client::wire::management::LogLine;

use crate::arguments::ConnectionArgs;
use crate::arguments::parse;
use crate::output;

/// Show the log of an endpoint's handlers.
///
/// The host keeps the newest lines of each endpoint on disk, 16 MiB unless its operator chooses
/// another bound.
#[derive(Debug, Args)]
pub struct LogsArgs {
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

pub(crate) async fn logs(args: LogsArgs) -> anyhow::Result<ExitCode> {
    let query = LogQuery { tail: Some(args.tail), job: args.job };
    let client = args.connection.client()?;
    if args.follow {
        let mut lines = client.follow_logs(&args.endpoint, &query);
        loop {
            show(lines.next().await?.text(), args.json)?;
        }
    }
    let answer = client.logs(&args.endpoint, &query).await?;
    for line in answer.read_as::<Vec<&serde_json::value::RawValue>>()? {
        show(line.get(), args.json)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(document: &str, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return output::result(output::one_line(document));
    }
    let LogLine { at, job_id, level, line, .. } = serde_json::from_str(document)?;
    output::result(format_args!("{at}  {level:<5}  {job_id}  {}", output::plain(&line)))
}
