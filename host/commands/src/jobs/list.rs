//! `gristmill jobs`: lists and changes the jobs of all endpoints, by status, tag, time, id and
//! error.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use gristmill_client::wire::bounds::LIST_JOBS;
use gristmill_client::wire::management::{JobActionKind, JobList, JobSummary};

use super::actions::{self, AbortArgs, ActionArgs};
use crate::arguments::ConnectionArgs;
use crate::arguments::job_filter::{self, FilterArgs};
use crate::arguments::parse;
use crate::output;
use crate::resource;

/// List jobs of all endpoints, and cancel, retry or delete many of them.
#[derive(Debug, Args)]
pub struct JobsArgs {
    #[command(subcommand)]
    command: JobsCommand,
}

#[derive(Debug, Subcommand)]
enum JobsCommand {
    List(ListArgs),
    /// Cancel all matching jobs that wait or run, in the background.
    Cancel(ActionArgs),
    /// Queue all matching jobs that are FAILED or TIMED_OUT again, in the background.
    Retry(ActionArgs),
    /// Delete all matching jobs that have ended, with their results, in the background.
    Delete(ActionArgs),
    /// List the actions that cancel, retry or delete begins, the newest first.
    Actions(resource::CallArgs),
    /// Show an action, with its progress.
    Action(resource::OneArgs),
    /// Abort an action. Jobs that it has changed stay changed.
    Abort(AbortArgs),
}

/// List jobs, the newest submission first.
#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Only jobs whose ids contain this text. The host reads all jobs for it, page by page.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    id_part: Option<String>,
    /// Most jobs to list.
    #[arg(long, value_name = "N", value_parser = parse::bounded::<u64>(LIST_JOBS))]
    limit: Option<u64>,
    /// Continue after an earlier list: the cursor at its end.
    #[arg(long)]
    cursor: Option<String>,
    /// Print the host's answer as it is: one page, which may be short although there are more jobs.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) async fn jobs(args: JobsArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        JobsCommand::List(args) => list(args).await,
        JobsCommand::Cancel(args) => actions::begin(JobActionKind::Cancel, args).await,
        JobsCommand::Retry(args) => actions::begin(JobActionKind::Retry, args).await,
        JobsCommand::Delete(args) => actions::begin(JobActionKind::Delete, args).await,
        JobsCommand::Actions(args) => actions::list(args).await,
        JobsCommand::Action(args) => actions::show(args).await,
        JobsCommand::Abort(args) => actions::abort(args).await,
    }
}

async fn list(args: ListArgs) -> anyhow::Result<ExitCode> {
    let client = args.connection.client()?;
    let filter = args.filter.of_list(args.id_part);
    if args.json {
        let answer = client.jobs(&filter, args.limit, args.cursor.as_deref()).await;
        let answer = answer.map_err(job_filter::refused)?;
        output::result(answer.text())?;
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = usize::try_from(args.limit.unwrap_or(LIST_JOBS.default)).unwrap_or(usize::MAX);
    let (mut found, mut cursor) = (Vec::new(), args.cursor);
    loop {
        let limit = Some((wanted - found.len()) as u64);
        let answer = client.jobs(&filter, limit, cursor.as_deref()).await;
        let JobList { jobs, cursor: next } = answer.map_err(job_filter::refused)?.read()?;
        found.extend(jobs);
        cursor = next;
        // A page may be short, or empty, and have a next one.
        if found.len() >= wanted || cursor.is_none() {
            break;
        }
    }
    for line in table(&found) {
        output::result(line)?;
    }
    if let Some(cursor) = cursor {
        output::note(format_args!("there are more: --cursor {cursor}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn table(jobs: &[JobSummary]) -> Vec<String> {
    let headings = ["ID", "ENDPOINT", "STATUS", "CREATED", "RAN", "TAGS", "ERROR"];
    let rows = jobs.iter().map(|job| {
        let tags = job.tags.iter().flatten().map(|(key, value)| format!("{key}={value}"));
        [
            job.id.clone(),
            job.endpoint_id.to_string(),
            job.status.as_str().to_owned(),
            job.created_at.clone(),
            format!("{} ms", job.execution_time),
            output::plain(&tags.collect::<Vec<_>>().join(" ")),
            job.error.as_deref().map(output::plain).unwrap_or_default(),
        ]
    });
    output::table(headings, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_stand_in_columns() {
        let list = r#"{"jobs":[{"id":"b-1","endpointId":"mill","status":"FAILED","createdAt":"2026-01-01T00:00:01Z",
            "delayTime":12,"executionTime":5,"error":"no\u001b[31m grain","tags":{"env":"prod","n":"1"}},
            {"id":"a-1","endpointId":"e","status":"COMPLETED","createdAt":"2026-01-01T00:00:00Z",
            "delayTime":1,"executionTime":2000,"workerId":"w"}]}"#;
        let list: JobList = serde_json::from_str(list).unwrap();
        let lines = table(&list.jobs);
        assert_eq!(
            lines[0],
            "ID   ENDPOINT  STATUS     CREATED               RAN      TAGS          ERROR"
        );
        assert!(lines[1].starts_with(
            "b-1  mill      FAILED     2026-01-01T00:00:01Z  5 ms     env=prod n=1  no"
        ));
        assert!(!lines[1].contains('\u{1b}'), "{}", lines[1]);
        assert_eq!(lines[2].trim_end(), "a-1  e         COMPLETED  2026-01-01T00:00:00Z  2000 ms");
    }
}
