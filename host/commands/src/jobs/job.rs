//! `gristmill status`, `cancel` and `retry`: commands about one job.

use std::process::ExitCode;

use clap::Args;
use gristmill_client::wire::JobStatus;
use gristmill_client::wire::id::EndpointId;
use gristmill_client::wire::queue::StatusDocument;

use crate::arguments::parse;
use crate::output;
use crate::resource::CallArgs;

/// Names one job.
#[derive(Debug, Args)]
pub struct JobArgs {
    /// The endpoint.
    pub(crate) endpoint: EndpointId,
    /// The job's id.
    #[arg(value_parser = parse::job_id)]
    pub(crate) job: String,
    #[command(flatten)]
    pub(crate) call: CallArgs,
}

pub(crate) async fn status(args: JobArgs) -> anyhow::Result<ExitCode> {
    let answer = args.call.connection.client()?.status(&args.endpoint, &args.job).await?;
    if args.call.json {
        output::result(answer.text())?;
        return Ok(ExitCode::SUCCESS);
    }
    for line in describe(&answer.read()?) {
        output::result(line)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The status document, line by line.
fn describe(document: &StatusDocument<'_>) -> Vec<String> {
    let line = |label: &str, value: &str| format!("{label:<9} {value}");
    let output = match document.status {
        JobStatus::InProgress => "progress",
        JobStatus::InQueue
        | JobStatus::Completed
        | JobStatus::Failed
        | JobStatus::Cancelled
        | JobStatus::TimedOut => "output",
    };
    let optional = [
        ("because", document.reason.as_deref().map(output::plain)),
        ("worker", document.worker_id.as_deref().map(output::plain)),
        ("retries", document.retries.map(|retries| retries.to_string())),
        ("error", document.error.as_deref().map(output::plain)),
        (output, document.output.as_deref().map(|raw| output::one_line(raw.get()))),
    ];
    let mut lines = vec![
        line("job", &output::plain(&document.id)),
        line("status", document.status.as_str()),
        line("waited", &format!("{} ms", document.delay_time)),
        line("ran", &format!("{} ms", document.execution_time)),
    ];
    lines.extend(optional.into_iter().filter_map(|(label, value)| Some(line(label, &value?))));
    lines
}

pub(crate) async fn cancel(args: JobArgs) -> anyhow::Result<ExitCode> {
    let answer = args.call.connection.client()?.cancel(&args.endpoint, &args.job).await?;
    let changed = answer.read()?;
    if args.call.json {
        output::result(answer.text())?;
    } else if changed.status == JobStatus::Cancelled {
        output::note(format_args!("job {} is cancelled", changed.id));
    } else {
        output::note(format_args!("job {} had already ended: {}", changed.id, changed.status));
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn retry(args: JobArgs) -> anyhow::Result<ExitCode> {
    let answer = args.call.connection.client()?.retry(&args.endpoint, &args.job).await?;
    if args.call.json {
        output::result(answer.text())?;
    } else {
        let id = answer.read()?.id;
        output::note(format_args!("job {id} waits again"));
        output::next(format_args!("gristmill status {} {id}", args.endpoint));
    }
    Ok(ExitCode::SUCCESS)
}

/// The exit code for a job that the command waited for; prints why it is not 0.
pub(crate) fn conclude(status: JobStatus, error: Option<&str>) -> ExitCode {
    match (status, error) {
        (JobStatus::Completed, _) => return ExitCode::SUCCESS,
        (JobStatus::InQueue | JobStatus::InProgress, _) => {}
        (JobStatus::Failed | JobStatus::TimedOut | JobStatus::Cancelled, Some(error)) => {
            output::error(format_args!("the job is {status}: {error}"));
        }
        (JobStatus::Failed | JobStatus::TimedOut | JobStatus::Cancelled, None) => {
            output::error(format_args!("the job is {status}"));
        }
    }
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(json: &str) -> Vec<String> {
        describe(&serde_json::from_str(json).unwrap())
    }

    #[test]
    fn a_status_shows_what_there_is() {
        let waiting = r#"{"id":"a-1","status":"IN_QUEUE","delayTime":5,"executionTime":0,"reason":"workersMax is 0"}"#;
        let expected = [
            "job       a-1",
            "status    IN_QUEUE",
            "waited    5 ms",
            "ran       0 ms",
            "because   workersMax is 0",
        ];
        assert_eq!(lines(waiting), expected);

        let running = r#"{"id":"a-1","status":"IN_PROGRESS","delayTime":5,"executionTime":9,"workerId":"w","retries":2,"output":{
            "at": 3}}"#;
        let lines = lines(running);
        assert_eq!(lines[4..6], ["worker    w", "retries   2"]);
        assert!(lines[6].starts_with("progress  {") && !lines[6].contains('\n'));
    }
}
