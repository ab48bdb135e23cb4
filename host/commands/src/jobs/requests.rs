//! `gristmill requests`: the jobs of an endpoint, newest first.

use std::process::ExitCode;

use clap::Args;
use gristmill_client::RequestFilter;
use gristmill_client::wire::JobStatus;
use gristmill_client::wire::bounds::LIST_JOBS;
use gristmill_client::wire::id::EndpointId;
use gristmill_client::wire::queue::{RequestList, RequestSummary};

use crate::arguments::parse;
use crate::output;
use crate::resource::CallArgs;

/// List an endpoint's jobs, newest first.
#[derive(Debug, Args)]
pub struct RequestsArgs {
    /// The endpoint.
    endpoint: EndpointId,
    /// Only jobs with this status, such as IN_QUEUE.
    #[arg(long, value_parser = parse::status)]
    status: Option<JobStatus>,
    /// Most jobs to list.
    #[arg(long, value_name = "N", value_parser = parse::bounded::<u64>(LIST_JOBS))]
    limit: Option<u64>,
    /// Continue after an earlier list: the cursor at its end.
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    call: CallArgs,
}

pub(crate) async fn requests(args: RequestsArgs) -> anyhow::Result<ExitCode> {
    let client = args.call.connection.client()?;
    let filter = RequestFilter { status: args.status, limit: args.limit, cursor: args.cursor };
    let answer = client.requests(&args.endpoint, &filter).await?;
    if args.call.json {
        output::result(answer.text())?;
        return Ok(ExitCode::SUCCESS);
    }
    let RequestList { requests, cursor } = answer.read()?;
    for line in table(&requests) {
        output::result(line)?;
    }
    if let Some(cursor) = cursor {
        output::note(format_args!("there are more: --cursor {cursor}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn table(requests: &[RequestSummary]) -> Vec<String> {
    let headings = ["ID", "STATUS", "CREATED", "WAITED", "RAN", "WORKER"];
    let rows = requests.iter().map(|job| {
        [
            job.id.clone(),
            job.status.as_str().to_owned(),
            job.created_at.clone(),
            format!("{} ms", job.delay_time),
            format!("{} ms", job.execution_time),
            job.worker_id.as_ref().map(ToString::to_string).unwrap_or_default(),
        ]
    });
    output::table(headings, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_stand_in_columns() {
        let list = r#"{"requests":[{"id":"b-1","status":"IN_QUEUE","createdAt":"2026-01-01T00:00:01Z","delayTime":12,
            "executionTime":0},{"id":"a-1","status":"COMPLETED","createdAt":"2026-01-01T00:00:00Z",
            "delayTime":1,"executionTime":2000,"workerId":"w"}]}"#;
        let expected = [
            "ID   STATUS     CREATED               WAITED  RAN      WORKER",
            "b-1  IN_QUEUE   2026-01-01T00:00:01Z  12 ms   0 ms",
            "a-1  COMPLETED  2026-01-01T00:00:00Z  1 ms    2000 ms  w",
        ];
        let list: RequestList = serde_json::from_str(list).unwrap();
        assert_eq!(table(&list.requests), expected);
    }
}
