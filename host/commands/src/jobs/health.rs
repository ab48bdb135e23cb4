//! `gristmill health`, about a host or one of its endpoints, and `purge`.

use std::process::ExitCode;

use clap::Args;
use gristmill_client::wire::id::EndpointId;
use gristmill_client::wire::queue::{HealthReport, Purged};

use crate::output;
use crate::resource::{CallArgs, print};

/// Names one endpoint.
#[derive(Debug, Args)]
pub struct EndpointArgs {
    /// The endpoint.
    endpoint: EndpointId,
    #[command(flatten)]
    call: CallArgs,
}

/// Names one endpoint, or none.
#[derive(Debug, Args)]
pub struct HealthArgs {
    /// The endpoint. Without it, the command succeeds when the host itself is ready.
    endpoint: Option<EndpointId>,
    #[command(flatten)]
    call: CallArgs,
}

pub(crate) async fn health(args: HealthArgs) -> anyhow::Result<ExitCode> {
    let client = args.call.connection.client()?;
    let Some(endpoint) = args.endpoint else {
        output::result(client.readiness().await?.text().trim_end())?;
        return Ok(ExitCode::SUCCESS);
    };
    let answer = client.health(&endpoint).await?;
    print(&answer, args.call.json, |report| describe(&report).into())?;
    Ok(ExitCode::SUCCESS)
}

fn describe(HealthReport { jobs, workers }: &HealthReport) -> [String; 3] {
    let troubles = [
        (workers.initializing, "initializing"),
        (workers.throttled, "throttled"),
        (workers.unhealthy, "unhealthy"),
    ];
    let troubles: String = troubles
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!(", {count} {what}"))
        .collect();
    [
        format!("now      {} waiting, {} running", jobs.in_queue, jobs.in_progress),
        format!(
            "ever     {} completed, {} failed, {} retried",
            jobs.completed, jobs.failed, jobs.retried
        ),
        format!("workers  {} idle, {} running{troubles}", workers.idle, workers.running),
    ]
}

pub(crate) async fn purge(args: EndpointArgs) -> anyhow::Result<ExitCode> {
    let answer = args.call.connection.client()?.purge(&args.endpoint).await?;
    if args.call.json {
        output::result(answer.text())?;
    } else {
        let Purged { removed, .. } = answer.read()?;
        let jobs = if removed == 1 { "job" } else { "jobs" };
        output::note(format_args!("removed {removed} waiting {jobs}"));
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_mentions_trouble_only_when_there_is_some() {
        let report = |more: &str| {
            let text = format!(
                r#"{{"jobs":{{"completed":4,"failed":3,"inProgress":2,"inQueue":1,"retried":0}},"workers":{{"idle":1,"ready":1,"running":2,"initializing":0{more}}}}}"#
            );
            describe(&serde_json::from_str(&text).unwrap())
        };
        let expected = [
            "now      1 waiting, 2 running",
            "ever     4 completed, 3 failed, 0 retried",
            "workers  1 idle, 2 running",
        ];
        assert_eq!(report(r#","throttled":0,"unhealthy":0"#), expected);
        let troubled = report(r#","throttled":7,"unhealthy":0"#);
        assert_eq!(troubled[2], "workers  1 idle, 2 running, 7 throttled");
    }
}
