//! `gristmill submit`: submits a job, and with `--wait` waits for its result.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use gristmill_client::wire::JobStatus;
use gristmill_client::wire::bounds::{
    DEBOUNCE_MS, DELAY_MS, EXECUTION_TIMEOUT_MS, PRIORITY, TTL_MS, WAIT_MS,
};
use gristmill_client::wire::id::EndpointId;
use gristmill_client::wire::queue::{Policy, StatusDocument, Submission};
use gristmill_client::{Answer, Client};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::job;
use crate::arguments::InputSource;
use crate::arguments::job_filter::tags_once;
use crate::arguments::parse;
use crate::arguments::retry_options::RetryOptions;
use crate::output::{self, progress};
use crate::resource::CallArgs;

/// Duration of one waiting call.
pub const POLL_WAIT: Duration = Duration::from_secs(30);

/// The same while a spinner is shown.
const POLL_WAIT_INTERACTIVE: Duration = Duration::from_secs(2);

/// Most failures in a row for a temporary reason, and the pause before the next call.
const FAILED_POLLS_MAX: u32 = 10;
const POLL_PAUSE: Duration = Duration::from_secs(1);

/// A waiting call that ends earlier, without the job's end, is followed by a pause. Its shortest
/// wait is 1 s.
const EARLY: Duration = Duration::from_millis(500);

/// Submit a job.
///
/// Prints the job's id. With --wait: waits for the job and prints its output; if the job does not
/// end COMPLETED, prints the reason and exits with 1.
#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// The endpoint.
    endpoint: EndpointId,
    /// The handler's input, a JSON object: as text, in a file (@FILE), or on stdin (-).
    #[arg(long, value_name = "JSON|@FILE|-")]
    input: InputSource,
    /// Wait for the result.
    #[arg(long)]
    wait: bool,
    /// Wait no longer than this, in milliseconds; the job continues.
    // Other commands have `--timeout-ms` for the time that a job may run.
    #[arg(long, alias = "timeout-ms", value_name = "MS", requires = "wait")]
    wait_timeout_ms: Option<u64>,
    /// The URL to call when the job ends.
    #[arg(long, value_name = "URL")]
    webhook: Option<String>,
    /// How long the job may run, in milliseconds [default: the endpoint's].
    #[arg(long, value_name = "MS", value_parser = parse::bounded::<u64>(EXECUTION_TIMEOUT_MS))]
    execution_timeout: Option<u64>,
    /// Milliseconds that the job waits before it may start, up to 7 days.
    #[arg(long, value_name = "MS", value_parser = parse::bounded::<u64>(DELAY_MS), conflicts_with = "run_at")]
    delay: Option<u64>,
    /// The time before which the job does not start, such as 2026-01-31T08:00:00Z, at most 7 days
    /// away.
    #[arg(long, value_name = "TIME")]
    run_at: Option<String>,
    /// Lifetime of the job from its submission or its time, in milliseconds [default: 86400000].
    #[arg(long, value_name = "MS", value_parser = parse::bounded::<u64>(TTL_MS))]
    ttl: Option<u64>,
    /// Run other jobs first, and start no worker for this job.
    #[arg(long)]
    low_priority: bool,
    /// What the job has in common with others that have turns together, such as a customer, in 1 to
    /// 64 bytes: jobs with one key do not hold up those with another one.
    #[arg(long, value_name = "TEXT")]
    key: Option<String>,
    /// A head start of so many minutes among the waiting jobs with its key, or of the endpoint
    /// without a key [default: 0].
    #[arg(long, value_name = "0-9", value_parser = parse::bounded::<u64>(PRIORITY))]
    priority: Option<u64>,
    /// Wait for so many milliseconds; until then a later submission with --debounce and the same
    /// key replaces this job.
    #[arg(long, value_name = "MS", value_parser = parse::bounded::<u64>(DEBOUNCE_MS), requires = "key", conflicts_with_all = ["delay", "run_at"])]
    debounce: Option<u64>,
    /// Most milliseconds for which jobs that replace each other wait together [default: ten times
    /// --debounce].
    #[arg(long, value_name = "MS", value_parser = parse::bounded::<u64>(DEBOUNCE_MS), requires = "debounce")]
    debounce_max: Option<u64>,
    /// A tag of the job; may be repeated. `gristmill jobs list --tag` finds the job by it.
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = parse::tag)]
    tags: Vec<(String, String)>,
    /// A key of your choice, at most 255 printable ASCII characters: all submissions to the
    /// endpoint with this key within 24 hours make one job, whose id is printed again.
    #[arg(long, value_name = "KEY", value_parser = parse::idempotency_key)]
    idempotency_key: Option<String>,
    #[command(flatten)]
    call: CallArgs,
    #[command(flatten)]
    retry: RetryOptions,
}

pub(crate) async fn submit(args: SubmitArgs) -> anyhow::Result<ExitCode> {
    let input = args.input.read()?;
    let client = args.call.connection.client()?;
    let tags = tags_once(args.tags)?;
    let submission = Submission {
        tags: (!tags.is_empty()).then_some(tags),
        webhook: args.webhook.as_deref(),
        policy: Some(Policy {
            execution_timeout: args.execution_timeout,
            ttl: args.ttl,
            low_priority: args.low_priority.then_some(true),
            key: args.key,
            priority: args.priority,
            debounce_ms: args.debounce,
            debounce_max_ms: args.debounce_max,
            delay: args.delay,
            run_at: args.run_at,
            retry: args.retry.document(),
            strict: None,
            retention: None,
        }),
        ..Submission::new(&input)
    };
    let answer = client.run(&args.endpoint, &submission, args.idempotency_key.as_deref()).await?;
    let id = answer.read()?.id;
    if let Some(names) = answer.ignored_policy() {
        let line = format_args!("the host does not know `policy.{names}`, and ignores it");
        output::note_labelled("warning", "33", line);
    }
    if !args.wait {
        if args.call.json {
            output::result(answer.text())?;
        } else {
            output::result(&id)?;
            let endpoint = &args.endpoint;
            output::next(format_args!(
                "gristmill status {endpoint} {id}, or gristmill stream {endpoint} {id}"
            ));
        }
        return Ok(ExitCode::SUCCESS);
    }
    output::note(format_args!("job {id}"));
    let timeout = args.wait_timeout_ms.map(Duration::from_millis);
    let last = wait(&client, &args.endpoint, &id, timeout).await?;
    let document = last.read()?;
    if args.call.json {
        output::result(last.text())?;
    } else if document.status == JobStatus::Completed {
        output::result(output::one_line(document.output.as_deref().map_or("null", RawValue::get)))?;
    }
    if !document.status.is_final() {
        let why = document.reason.as_deref().map(|why| format!(", because {}", output::plain(why)));
        output::error(format_args!(
            "the job is still {}{}; check it again with `gristmill status {} {id}`",
            document.status,
            why.unwrap_or_default(),
            args.endpoint
        ));
    }
    Ok(job::conclude(document.status, document.error.as_deref()))
}

/// Waits until the job has ended or `timeout` is over; returns its last status document.
async fn wait(
    client: &Client,
    endpoint: &EndpointId,
    id: &str,
    timeout: Option<Duration>,
) -> anyhow::Result<Answer<StatusDocument<'static>>> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let look = if output::is_terminal() { POLL_WAIT_INTERACTIVE } else { POLL_WAIT };
    let spinner = progress::spinner("submitted");
    let waiting = Waiting { client, endpoint, id, look, deadline };
    let mut shown = None;
    let on_look = |document: &StatusDocument<'_>| {
        spinner.set_message(describe(document));
        // The user would otherwise see only the id.
        let reason = document.reason.as_deref().map(output::plain);
        if !output::is_terminal() && reason.is_some() && reason != shown {
            shown = reason;
            output::note(format_args!("the job waits: {}", shown.as_deref().unwrap_or_default()));
        }
    };
    let last = waiting.until_end(on_look).await;
    spinner.finish_and_clear();
    last
}

/// A job whose end is awaited.
#[derive(Debug)]
pub struct Waiting<'a> {
    /// The host.
    pub client: &'a Client,
    /// The job's endpoint.
    pub endpoint: &'a EndpointId,
    /// The job's id.
    pub id: &'a str,
    /// Duration of one call. The first is shorter, so that a job that cannot run is noticed early.
    pub look: Duration,
    /// The time of the last call, whether the job has ended or not.
    pub deadline: Option<Instant>,
}

impl Waiting<'_> {
    /// Waits for the job's end or the deadline, and returns its last status document; earlier
    /// documents are passed to `on_look`.
    ///
    /// # Errors
    /// Repeated failures to reach the host.
    pub async fn until_end(
        self,
        mut on_look: impl FnMut(&StatusDocument<'_>),
    ) -> anyhow::Result<Answer<StatusDocument<'static>>> {
        let Self { client, endpoint, id, look, deadline } = self;
        let mut failed = 0;
        let mut next_look = look.min(POLL_WAIT_INTERACTIVE);
        loop {
            let look = std::mem::replace(&mut next_look, look);
            let asked_at = Instant::now();
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let answer = match left {
                // The waiting call would wait for at least its lower bound.
                Some(left) if left.as_millis() < u128::from(WAIT_MS.min) => {
                    tokio::time::sleep(left).await;
                    client.status(endpoint, id).await
                }
                Some(left) => client.wait(endpoint, id, look.min(left)).await,
                None => client.wait(endpoint, id, look).await,
            };
            let answer = match answer {
                Ok(answer) => answer,
                Err(error) if error.is_passing() && failed < FAILED_POLLS_MAX => {
                    failed += 1;
                    tokio::time::sleep(POLL_PAUSE).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            failed = 0;
            let document = answer.read()?;
            let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if document.status.is_final() || is_over {
                return Ok(answer);
            }
            on_look(&document);
            // A host that stops answers at once, and so may any other server.
            if asked_at.elapsed() < EARLY {
                tokio::time::sleep(POLL_PAUSE).await;
            }
        }
    }
}

/// The spinner's text for a job that has not ended.
fn describe(document: &StatusDocument<'_>) -> String {
    let detail = match &document.output {
        Some(progress) => Some(progress.get()),
        None => document.reason.as_deref(),
    };
    match detail {
        Some(detail) => format!("{}: {}", document.status, output::plain(detail)),
        None => document.status.to_string(),
    }
}
