//! `gristmill schedules`: jobs at certain times.

use std::process::ExitCode;

use clap::{ArgGroup, Args, Subcommand};
use gristmill_client::Client;
use gristmill_client::wire::bounds::{DELAY_MS, EVERY_MS, EXECUTION_TIMEOUT_MS, TTL_MS};
use gristmill_client::wire::id::{EndpointId, ScheduleId};
use gristmill_client::wire::management::{CatchUp, CatchUpInput, Overlap, Schedule, ScheduleInput};
use gristmill_client::wire::queue::Policy;

use crate::arguments::retry_options::RetryOptions;
use crate::arguments::{ConnectionArgs, InputSource, parse};
use crate::output;
use crate::resource::{self, CallArgs};

/// Create, list, show, change, pause and delete schedules: the host submits their jobs at certain
/// times.
#[derive(Debug, Args)]
pub struct SchedulesArgs {
    #[command(subcommand)]
    command: SchedulesCommand,
}

#[derive(Debug, Subcommand)]
enum SchedulesCommand {
    Create(CreateArgs),
    /// List all schedules.
    List(CallArgs),
    Get(OneArgs),
    Update(UpdateArgs),
    /// Submit no jobs until `resume`; the times until then are left out.
    Pause(OneArgs),
    /// End a pause.
    Resume(OneArgs),
    /// Submit a job of the schedule now, and print its id.
    Run(OneArgs),
    Delete(DeleteArgs),
}

/// Create a schedule and print its id.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("times").required(true).args(["cron", "every"]))]
struct CreateArgs {
    /// Its id.
    id: ScheduleId,
    /// The endpoint of its jobs.
    #[arg(long, value_name = "ID")]
    endpoint: EndpointId,
    #[command(flatten)]
    fields: FieldArgs,
    #[command(flatten)]
    call: CallArgs,
    #[command(flatten)]
    retry: RetryOptions,
}

/// Change a schedule. Other times count from now on.
#[derive(Debug, Args)]
struct UpdateArgs {
    /// The schedule's id.
    id: ScheduleId,
    /// The endpoint of its jobs.
    #[arg(long, value_name = "ID")]
    endpoint: Option<EndpointId>,
    #[command(flatten)]
    fields: FieldArgs,
    #[command(flatten)]
    call: CallArgs,
    #[command(flatten)]
    retry: RetryOptions,
}

/// The settings that are given.
#[derive(Debug, Args)]
struct FieldArgs {
    /// Its times: minute, hour, day of the month, month and day of the week, such as '0 4 * * MON';
    /// or @hourly, @daily, @weekly, @monthly, @yearly.
    #[arg(long, value_name = "PATTERN")]
    cron: Option<String>,
    /// Milliseconds between two times, in place of --cron.
    #[arg(long, value_name = "MS", value_parser = parse::bounded::<u64>(EVERY_MS), conflicts_with_all = ["cron", "time_zone"])]
    every: Option<u64>,
    /// The time zone of --cron, such as Europe/Berlin [default: UTC].
    #[arg(long, value_name = "ZONE")]
    time_zone: Option<String>,
    /// A display name [default: the id].
    #[arg(long)]
    name: Option<String>,
    /// The input of its jobs, a JSON object: as text, in a file (@FILE), or on stdin (-) [default:
    /// {}].
    #[arg(long, value_name = "JSON|@FILE|-")]
    input: Option<InputSource>,
    /// When a job is due and an earlier one has not ended: skip it, queue it until the earlier one
    /// has ended, or cancel the earlier one [default: skip].
    #[arg(long, value_parser = parse::overlap())]
    overlap: Option<Overlap>,
    /// Most times for which jobs are submitted if several have passed [default: 1].
    #[arg(long, value_name = "N", value_parser = parse::bounded::<u64>(CatchUp::MAX_TICKS))]
    catch_up: Option<u64>,
    /// Milliseconds after a time within which its job may still be submitted [default: 3600000].
    #[arg(long, value_name = "MS", value_parser = parse::bounded::<u64>(CatchUp::WINDOW_MS))]
    catch_up_window: Option<u64>,
    /// How long a job may run, in milliseconds [default: the endpoint's].
    #[arg(long, value_name = "MS", value_parser = parse::bounded::<u64>(EXECUTION_TIMEOUT_MS))]
    execution_timeout: Option<u64>,
    /// Lifetime of a job, in milliseconds [default: 86400000].
    #[arg(long, value_name = "MS", value_parser = parse::bounded::<u64>(TTL_MS))]
    ttl: Option<u64>,
    /// Milliseconds that a job waits after its time.
    #[arg(long, value_name = "MS", value_parser = parse::bounded::<u64>(DELAY_MS))]
    delay: Option<u64>,
}

impl FieldArgs {
    fn document(self, retry: RetryOptions) -> anyhow::Result<ScheduleInput> {
        let policy = Policy {
            execution_timeout: self.execution_timeout,
            ttl: self.ttl,
            delay: self.delay,
            retry: retry.document(),
            ..Policy::default()
        };
        let catch_up = CatchUpInput { max_ticks: self.catch_up, window_ms: self.catch_up_window };
        Ok(ScheduleInput {
            name: self.name,
            cron: self.cron,
            every_ms: self.every,
            time_zone: self.time_zone,
            input: self.input.map(|input| input.read()).transpose()?,
            policy: (policy != Policy::default()).then_some(policy),
            overlap: self.overlap,
            catch_up: (catch_up != CatchUpInput::default()).then_some(catch_up),
            ..ScheduleInput::default()
        })
    }
}

/// Show a schedule: its next times, and what became of the last ones.
#[derive(Debug, Args)]
struct OneArgs {
    /// The schedule's id.
    id: ScheduleId,
    #[command(flatten)]
    call: CallArgs,
}

/// Delete a schedule. Its jobs stay.
#[derive(Debug, Args)]
struct DeleteArgs {
    /// The schedule's id.
    id: ScheduleId,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) async fn schedules(args: SchedulesArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        SchedulesCommand::Create(args) => create(args).await?,
        SchedulesCommand::List(args) => {
            args.print(async |client| client.schedules().await, |all| table(&all)).await?;
        }
        SchedulesCommand::Get(OneArgs { id, call }) => {
            let get = async |client: &Client| client.schedule(id.as_str()).await;
            call.print(get, |one| shown(&one)).await?;
        }
        SchedulesCommand::Update(UpdateArgs { id, endpoint, fields, call, retry }) => {
            let fields = ScheduleInput { endpoint_id: endpoint, ..fields.document(retry)? };
            update(id, fields, call).await?;
        }
        SchedulesCommand::Pause(OneArgs { id, call }) => update(id, paused(true), call).await?,
        SchedulesCommand::Resume(OneArgs { id, call }) => update(id, paused(false), call).await?,
        SchedulesCommand::Run(args) => run(args).await?,
        SchedulesCommand::Delete(DeleteArgs { id, connection }) => {
            let call = async |client: &Client| client.delete_schedule(id.as_str()).await;
            resource::delete(connection, format_args!("schedule `{id}`"), call).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn create(args: CreateArgs) -> anyhow::Result<()> {
    let CreateArgs { id, endpoint, fields, call, retry } = args;
    let new =
        ScheduleInput { id: Some(id), endpoint_id: Some(endpoint), ..fields.document(retry)? };
    let answer = call.connection.client()?.create_schedule(&new).await?;
    if call.json {
        return output::result(answer.text());
    }
    let schedule = answer.read()?;
    if let Some(next) = schedule.next.first() {
        output::note(format_args!("the next time is {next}"));
    }
    output::result(&schedule.id)?;
    output::next(format_args!(
        "gristmill schedules get {0}, or gristmill schedules run {0}",
        schedule.id
    ));
    Ok(())
}

fn paused(paused: bool) -> ScheduleInput {
    ScheduleInput { paused: Some(paused), ..ScheduleInput::default() }
}

async fn update(id: ScheduleId, mut fields: ScheduleInput, call: CallArgs) -> anyhow::Result<()> {
    let update = async |client: &Client| {
        if let Some(given) = fields.policy.take() {
            // A change replaces the whole policy, and the options name a part of it.
            let now = client.schedule(id.as_str()).await?.read()?.policy;
            fields.policy = Some(Policy {
                execution_timeout: given.execution_timeout.or(now.execution_timeout),
                ttl: given.ttl.or(now.ttl),
                delay: given.delay.or(now.delay),
                retry: given.retry.or(now.retry),
                ..now
            });
        }
        client.update_schedule(id.as_str(), &fields).await
    };
    call.print(update, |one| shown(&one)).await
}

async fn run(OneArgs { id, call }: OneArgs) -> anyhow::Result<()> {
    let client = call.connection.client()?;
    let answer = client.run_schedule(id.as_str()).await?;
    if call.json {
        return output::result(answer.text());
    }
    output::result(answer.read()?.id)
}

/// The times in words.
fn times(schedule: &Schedule) -> String {
    match (&schedule.cron, schedule.every_ms) {
        (Some(cron), _) => {
            let zone = schedule.time_zone.as_deref().unwrap_or_default();
            output::plain(&format!("{cron} {zone}"))
        }
        (None, ms) => format!("every {} ms", ms.unwrap_or_default()),
    }
}

fn table(schedules: &[Schedule]) -> Vec<String> {
    let rows = schedules.iter().map(|schedule| {
        let next = match schedule.paused {
            true => "paused".to_owned(),
            false => schedule.next.first().cloned().unwrap_or_default(),
        };
        [
            schedule.id.to_string(),
            schedule.endpoint_id.to_string(),
            times(schedule),
            next,
            format!("{}/{}/{}", schedule.jobs, schedule.skipped, schedule.missed),
        ]
    });
    output::table(["ID", "ENDPOINT", "TIMES", "NEXT", "JOBS/SKIPPED/MISSED"], rows)
}

/// A schedule with its times.
fn shown(schedule: &Schedule) -> Vec<String> {
    let mut lines = table(std::slice::from_ref(schedule));
    let ticks = schedule.ticks.iter().map(|tick| {
        let detail = tick.job_id.as_ref().or(tick.reason.as_ref()).cloned().unwrap_or_default();
        [tick.at.clone(), tick.outcome.as_str().to_owned(), output::plain(&detail)]
    });
    let next = schedule.next.iter().map(|at| [at.clone(), "next".to_owned(), String::new()]);
    lines.push(String::new());
    lines.extend(output::table(["AT", "OUTCOME", "JOB OR REASON"], ticks.rev().chain(next)));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_shown_with_its_times() {
        let schedule = r#"{"id":"nightly","userId":"me","name":"Nightly","endpointId":"mill",
            "cron":"0 4 * * *","timeZone":"Europe/Berlin","input":{},"policy":{},"overlap":"skip",
            "catchUp":{"maxTicks":1,"windowMs":3600000},"paused":false,
            "createdAt":"2026-01-01T00:00:00Z","next":["2026-01-03T03:00:00Z"],
            "jobs":1,"skipped":1,"missed":0,"ticks":[
            {"at":"2026-01-02T03:00:00Z","outcome":"skipped","reason":"busy"},
            {"at":"2026-01-01T03:00:00Z","outcome":"job","jobId":"j"}]}"#;
        let expected = [
            "ID       ENDPOINT  TIMES                    NEXT                  JOBS/SKIPPED/MISSED",
            "nightly  mill      0 4 * * * Europe/Berlin  2026-01-03T03:00:00Z  1/1/0",
            "",
            "AT                    OUTCOME  JOB OR REASON",
            "2026-01-01T03:00:00Z  job      j",
            "2026-01-02T03:00:00Z  skipped  busy",
            "2026-01-03T03:00:00Z  next     ",
        ];
        let schedule: Schedule = serde_json::from_str(schedule).unwrap();
        let lines: Vec<_> =
            shown(&schedule).iter().map(|line| line.trim_end().to_owned()).collect();
        assert_eq!(lines, expected.map(str::trim_end));
    }
}
