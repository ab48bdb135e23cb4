//! `gristmill jobs cancel`, `retry` and `delete`, for many jobs at one time, and the actions that
//! they begin.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use gristmill_client::wire::management::{JobAction, JobActionKind, JobActionState, NewJobAction};
use gristmill_client::{Answer, Client};

use crate::arguments::ConnectionArgs;
use crate::arguments::job_filter::{self, FilterArgs};
use crate::output::{self, progress};
use crate::resource::{self, CallArgs, OneArgs};

/// The interval at which the progress of an action is read.
const POLL_PAUSE: Duration = Duration::from_millis(500);

/// Most failures in a row for a temporary reason.
const FAILED_POLLS_MAX: u32 = 20;

/// Arguments of a command that changes many jobs.
#[derive(Debug, Args)]
pub(crate) struct ActionArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Show the progress until the action has ended; else print its id. The action continues when
    /// this command is interrupted.
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    call: CallArgs,
}

/// Begins an action.
pub(crate) async fn begin(kind: JobActionKind, args: ActionArgs) -> anyhow::Result<ExitCode> {
    let new = NewJobAction { action: kind, filter: args.filter.of_action()? };
    let client = args.call.connection.client()?;
    let mut answer = client.begin_job_action(&new).await.map_err(job_filter::refused)?;
    let begun = answer.read()?;
    if !args.wait {
        if args.call.json {
            output::result(answer.text())?;
        } else {
            output::result(&begun.id)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    output::note(format_args!("job action {}", begun.id));
    let ended = end(&client, &mut answer).await?;
    if args.call.json {
        output::result(answer.text())?;
    } else {
        output::result(describe(&ended))?;
    }
    Ok(match ended.state {
        JobActionState::Completed => ExitCode::SUCCESS,
        JobActionState::Running | JobActionState::Aborted | JobActionState::Failed => {
            ExitCode::FAILURE
        }
    })
}

/// Waits until the action has ended; `answer` is the newest one then.
async fn end(client: &Client, answer: &mut Answer<JobAction>) -> anyhow::Result<JobAction> {
    let spinner = progress::spinner("begun");
    let mut failed = 0;
    loop {
        let action = answer.read()?;
        if action.state != JobActionState::Running {
            spinner.finish_and_clear();
            return Ok(action);
        }
        spinner.set_message(describe(&action));
        tokio::time::sleep(POLL_PAUSE).await;
        match client.job_action(action.id.as_str()).await {
            Ok(newer) => (*answer, failed) = (newer, 0),
            Err(error) if error.is_passing() && failed < FAILED_POLLS_MAX => failed += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

fn describe(action: &JobAction) -> String {
    let changed = match action.action {
        JobActionKind::Cancel => "cancelled",
        JobActionKind::Retry => "queued again",
        JobActionKind::Delete => "deleted",
    };
    let reason = action.reason.as_deref().map(|reason| format!(": {}", output::plain(reason)));
    format!(
        "{}: {} matched, {} {changed}, {} skipped{}",
        action.state.as_str(),
        action.matched,
        action.changed,
        action.skipped,
        reason.unwrap_or_default()
    )
}

/// Prints the actions.
pub(crate) async fn list(args: CallArgs) -> anyhow::Result<ExitCode> {
    args.print(async |client| client.job_actions().await, |all| table(&all)).await?;
    Ok(ExitCode::SUCCESS)
}

/// Prints an action.
pub(crate) async fn show(args: OneArgs) -> anyhow::Result<ExitCode> {
    let OneArgs { id, call } = args;
    resource::show(&call.connection.client()?.job_action(&id).await?, call.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Arguments of `abort`.
#[derive(Debug, Args)]
pub(crate) struct AbortArgs {
    /// The action's id.
    id: String,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Aborts an action.
pub(crate) async fn abort(args: AbortArgs) -> anyhow::Result<ExitCode> {
    args.connection.client()?.abort_job_action(&args.id).await?;
    output::note(format_args!("aborted job action `{}`", args.id));
    Ok(ExitCode::SUCCESS)
}

fn table(actions: &[JobAction]) -> Vec<String> {
    let headings = ["ID", "ACTION", "STATE", "MATCHED", "CHANGED", "SKIPPED", "CREATED", "REASON"];
    let rows = actions.iter().map(|action| {
        [
            action.id.to_string(),
            action.action.as_str().to_owned(),
            action.state.as_str().to_owned(),
            action.matched.to_string(),
            action.changed.to_string(),
            action.skipped.to_string(),
            action.created_at.clone(),
            action.reason.as_deref().map(output::plain).unwrap_or_default(),
        ]
    });
    output::table(headings, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_stand_in_columns() {
        let actions = r#"[{"id":"a1","action":"retry","filter":{"statuses":["FAILED"]},"state":"RUNNING",
            "matched":300,"changed":250,"skipped":0,"createdAt":"2026-01-01T00:00:00.000Z",
            "reason":"the queue\u001b[31m is full"},
            {"id":"b","action":"delete","filter":{},"state":"COMPLETED","matched":1,"changed":0,"skipped":1,
            "createdAt":"2026-01-01T00:00:00.000Z","endedAt":"2026-01-01T00:00:01.000Z"}]"#;
        let actions: Vec<JobAction> = serde_json::from_str(actions).unwrap();
        let lines = table(&actions);
        assert!(lines[1].starts_with("a1  retry   RUNNING    300"), "{}", lines[1]);
        assert!(lines[1].ends_with("the queue[31m is full"), "{}", lines[1]);
        assert_eq!(describe(&actions[1]), "COMPLETED: 1 matched, 0 deleted, 1 skipped");
    }
}
