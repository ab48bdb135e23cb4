//! `gristmill run`: one job or one HTTP request on this machine, without a host, in the same
//! sandbox that a host uses.

mod document;
mod request;
mod trace;
mod usage;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use gristmill_commands::arguments::InputSource;
use gristmill_commands::output;
use gristmill_core::deploy::handler_kind::HandlerKind;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::TIMED_OUT_ERROR;
use gristmill_core::runtime::{AttemptEnd, AttemptReport};
use tokio_util::sync::CancellationToken;

use super::fresh_component::{self, FreshnessOptions};
use super::local::{
    Bench, ComponentSource, LocalJob, LocalOptions, TerminalSink, kind_of, stop_on_signal,
};
use super::test_input;
use document::RunDocument;
use request::RequestOptions;

pub(crate) use usage::summary;

/// Threads of this process: one for the handler, and one for its timeout while it computes.
const THREADS: usize = 2;

/// Run one job, or one HTTP request, locally, without a host.
///
/// The handler runs in the sandbox of `gristmill serve`, with the same limits. Prints each emitted
/// chunk as one line of JSON, then the output, unless that is null after chunks. Of a handler of
/// HTTP it prints the body of the answer. The status and the headers of the answer, log lines,
/// progress, usage and the stack of a trap are written to standard error. Exits with 1 when the job
/// fails, or the answer is not complete.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The handler: a WebAssembly component, or a directory with a gristmill.toml [default: the
    /// project of the current directory].
    #[arg(value_name = "FILE.wasm|DIR")]
    handler: Option<PathBuf>,
    /// The handler's input, a JSON object: as text, in a file (@FILE), or on stdin (-) [default:
    /// the `input` in test_input.json, in the project's or the current directory].
    #[arg(long, value_name = "JSON|@FILE|-")]
    input: Option<InputSource>,
    /// Show each call of the handler to the host on standard error: its arguments, its result, and
    /// its duration.
    #[arg(long)]
    trace: bool,
    /// Print one JSON document with status, output or answer, chunks and usage instead.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    freshness: FreshnessOptions,
    #[command(flatten)]
    request: RequestOptions,
    #[command(flatten)]
    options: LocalOptions,
}

/// Carries out `gristmill run`.
///
/// # Errors
/// Those of the project and its build, and a component that cannot run.
pub fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let chosen = ComponentSource::new(args.handler.as_deref())?;
    let input = args.input.as_ref().map(|source| source.read()).transpose()?;
    let input = input.map(|input| Json::from_value(&input));
    let given = args.request.read()?;
    let wants_http = match (&input, &given) {
        (Some(_), _) => Some(false),
        (None, Some(_)) => Some(true),
        (None, None) => None,
    };
    if args.trace {
        trace::start()?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    runtime.block_on(async {
        let component = fresh_component::read(&chosen, args.freshness).await?;
        let kind = kind_of(&component, wants_http)?;
        let input = match (kind, input) {
            (HandlerKind::Jobs, None) => Some(test_input::beside(&chosen.dir)?),
            (_, input) => input,
        };
        let settings = args.options.over(chosen.project);
        let stop = CancellationToken::new();
        let _signals = tokio::spawn(stop_on_signal(stop.clone()));
        let bench = Bench::open(component, kind, settings, 1, &stop).await?;
        let sink = if args.json { TerminalSink::keeping() } else { TerminalSink::default() };
        let sink = Arc::new(sink);
        match input {
            Some(input) => perform(&bench, input, sink, args.json, stop).await,
            None => request::perform(&bench, given, sink, args.json, stop).await,
        }
    })
}

/// Runs a job, and shows its end.
async fn perform(
    bench: &Bench,
    input: Json,
    sink: Arc<TerminalSink>,
    as_json: bool,
    stop: CancellationToken,
) -> anyhow::Result<ExitCode> {
    let job = LocalJob { input, env: BTreeMap::new(), timeout_ms: None };
    let timeout = bench.timeout(&job);
    let report = bench.perform(job, sink.clone(), stop).await;
    // A closed output is reported, whatever the handler's end.
    sink.written()?;
    if as_json {
        let document = RunDocument::new(&report, &sink.kept(), sink.stack(), timeout);
        output::result(serde_json::to_string(&document)?)?;
        let is_completed = matches!(report.end, AttemptEnd::Returned(_));
        return Ok(if is_completed { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    conclude(&report, timeout)
}

/// Shows the job's end and its usage.
fn conclude(report: &AttemptReport, timeout: Duration) -> anyhow::Result<ExitCode> {
    let usage = &report.usage;
    match &report.end {
        AttemptEnd::Returned(value) if value.is_null() && usage.chunks > 0 => {}
        AttemptEnd::Returned(value) => output::result(output::one_line(value.as_str()))?,
        AttemptEnd::Failed { .. }
        | AttemptEnd::DeadlineReached
        | AttemptEnd::Stopped
        | AttemptEnd::NoMemory
        | AttemptEnd::HostLost(_)
        | AttemptEnd::Left => {}
    }
    output::note(summary(usage));
    match &report.end {
        AttemptEnd::Returned(_) => Ok(ExitCode::SUCCESS),
        AttemptEnd::Failed { error, .. } => bail!("the job is FAILED: {error}"),
        AttemptEnd::DeadlineReached => {
            bail!("the job is TIMED_OUT: {TIMED_OUT_ERROR} after {} ms", timeout.as_millis())
        }
        AttemptEnd::Stopped | AttemptEnd::NoMemory | AttemptEnd::HostLost(_) | AttemptEnd::Left => {
            bail!("interrupted")
        }
    }
}
