//! `gristmill stream`: follows a job's stream until the job has ended.

use std::process::ExitCode;

use clap::Args;
use gristmill_client::StreamUpdate;
use gristmill_client::wire::id::EndpointId;

use super::job;
use crate::arguments::ConnectionArgs;
use crate::arguments::parse;
use crate::output;

/// Follow a job's stream.
///
/// Prints the output of each chunk as one line of JSON, from the first chunk that was not delivered
/// yet to the last. Ends with the job: exits with 0 when the job is COMPLETED, else prints the
/// reason and exits with 1. If the job starts again meanwhile, the command prints a note, and then
/// the chunks of the new attempt from the first one on.
#[derive(Debug, Args)]
pub struct StreamArgs {
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

pub(crate) async fn stream(args: StreamArgs) -> anyhow::Result<ExitCode> {
    let client = args.connection.client()?;
    let mut stream = client.stream(&args.endpoint, &args.job, args.from);
    loop {
        match stream.next().await? {
            StreamUpdate::Chunk(chunk) => {
                let shown = if args.json { chunk.text() } else { chunk.output()?.get() };
                output::result(output::one_line(shown))?;
            }
            StreamUpdate::Restart(_) => {
                output::note("the job was started again: its stream begins anew");
            }
            StreamUpdate::End(end) => return Ok(job::conclude(end.status, end.error.as_deref())),
        }
    }
}
