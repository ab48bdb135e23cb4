//! `gristmill test`: runs the cases of a file and compares them with their expectations.
//!
//! The component is compiled once, and each case has its own sandbox; cases run concurrently. With
//! `--endpoint` the same cases become jobs of a deployed endpoint.

mod cases;
mod diff;
mod expect;
mod junit;
mod local;
mod observed;
mod record;
mod remote;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use futures::StreamExt as _;
use gristmill_client::Client;
use gristmill_commands::arguments::ConnectionArgs;
use gristmill_commands::arguments::parse;
use gristmill_commands::output;
use gristmill_core::id::EndpointId;
use gristmill_core::limits::Bounds;
use gristmill_core::sharing::cores::cores;
use tokio_util::sync::CancellationToken;

use super::fresh_component::{self, FreshnessOptions};
use super::local::{Bench, ComponentSource, LocalOptions, kind_of, stop_on_signal};
use cases::{Case, CaseFile};
use report::{Failure, Outcome, Sum, Verdict};

/// How many cases run at one time.
const JOBS: Bounds = Bounds { min: 1, default: 1, max: 256 };

/// Run a handler's test cases.
///
/// The file of cases has {"tests":[{"name","input","expected_output","timeout"}]}, with "request"
/// in place of "input" for a handler of HTTP; docs/guides/test-and-dev.md lists all expectations.
/// Each case runs in its own sandbox, like a job of `gristmill run`; a case without expectations
/// passes when its job completes. Exits with 1 when a case failed.
#[derive(Debug, Args)]
pub struct TestArgs {
    /// The handler: a WebAssembly component, or a directory with a gristmill.toml [default: the
    /// project of the current directory].
    #[arg(value_name = "FILE.wasm|DIR")]
    handler: Option<PathBuf>,
    /// The file of cases [default: tests.json, in the project's or the current directory].
    #[arg(long, value_name = "FILE")]
    cases: Option<PathBuf>,
    /// Only the cases whose name contains this text.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// How many cases run at one time [default: as many as there are processors].
    #[arg(long, short, value_name = "N", value_parser = parse::bounded::<u32>(JOBS))]
    jobs: Option<u32>,
    #[command(flatten)]
    results: ResultOptions,
    /// Send the cases to this endpoint of a host, instead of running them here.
    #[arg(long, value_name = "ID", conflicts_with_all = LocalOptions::IDS)]
    endpoint: Option<EndpointId>,
    #[command(flatten)]
    freshness: FreshnessOptions,
    #[command(flatten)]
    options: LocalOptions,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// The places of the results.
#[derive(Debug, Args)]
struct ResultOptions {
    /// Also write the results as JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Print one JSON document instead.
    #[arg(long)]
    json: bool,
    /// Write the output of each completed case without an expectation into the file of cases.
    #[arg(long)]
    record: bool,
}

/// The cases of a file, and the place where they run.
struct Suite {
    file: CaseFile,
    /// The handler or the endpoint.
    name: String,
    target: TestTarget,
}

/// The place where cases run.
enum TestTarget {
    Bench(Box<Bench>),
    Endpoint(Client, EndpointId),
}

/// The cases that have a result.
struct Performed<'a> {
    /// In the order of the file.
    outcomes: Vec<Outcome<'a>>,
    /// The reason why the cases behind them have none.
    failure: Option<Failure<'a>>,
}

/// Carries out `gristmill test`.
///
/// # Errors
/// Those of the project, its build and its cases, and a component that cannot run.
pub fn test(args: TestArgs) -> anyhow::Result<ExitCode> {
    let processors = cores();
    let jobs = args.jobs.map_or(processors, |jobs| jobs as usize);
    // One thread more, for timeouts while all handlers compute.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(jobs.min(processors) + 1)
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    runtime.block_on(run(args, jobs))
}

async fn run(args: TestArgs, jobs: usize) -> anyhow::Result<ExitCode> {
    let TestArgs {
        handler, cases, filter, results, endpoint, freshness, options, connection, ..
    } = args;
    let stop = CancellationToken::new();
    let began = Instant::now();
    let suite = match endpoint {
        Some(endpoint) => Suite::on_endpoint(handler, cases, endpoint, connection)?,
        None => {
            let chosen = ComponentSource::new(handler.as_deref())?;
            let file = CaseFile::read(cases, &chosen.dir)?;
            // Until the component is built, a signal ends the process at once.
            let component = fresh_component::read(&chosen, freshness).await?;
            let _signals = tokio::spawn(stop_on_signal(stop.clone()));
            let name = chosen.name();
            let kind = kind_of(&component, Some(file.has_requests()))?;
            let settings = options.over(chosen.project);
            let jobs_max = u32::try_from(jobs).unwrap_or(u32::MAX);
            let bench = Bench::open(component, kind, settings, jobs_max, &stop).await?;
            Suite { file, name, target: TestTarget::Bench(Box::new(bench)) }
        }
    };
    if matches!(suite.target, TestTarget::Endpoint(..)) {
        let _signals = tokio::spawn(stop_on_signal(stop.clone()));
    }
    let Suite { file, target, .. } = &suite;
    let filter = filter.unwrap_or_default();
    let chosen: Vec<_> =
        file.cases.iter().enumerate().filter(|(_, case)| case.name.contains(&filter)).collect();
    ensure!(!chosen.is_empty(), "no case of {} has `{filter}` in its name", file.path.display());
    report_skipped_config(file, target);
    let performed = perform_all(target, &chosen, jobs, results.json, &stop).await;
    conclude(&suite, &chosen, performed, &results, began.elapsed())
}

impl Suite {
    fn on_endpoint(
        handler: Option<PathBuf>,
        cases: Option<PathBuf>,
        endpoint: EndpointId,
        connection: ConnectionArgs,
    ) -> anyhow::Result<Self> {
        let dir = match handler {
            Some(path) if !path.is_dir() => bail!(
                "with --endpoint nothing runs here: leave {} out, or name a directory",
                path.display()
            ),
            dir => dir.unwrap_or_default(),
        };
        let file = CaseFile::read(cases, &dir)?;
        let name = endpoint.to_string();
        Ok(Self { file, name, target: TestTarget::Endpoint(connection.client()?, endpoint) })
    }
}

/// Runs the cases, and shows each result in the order of the file. Ends at the first case that
/// cannot run; then `stop` fires, and cases on an endpoint cancel their jobs.
async fn perform_all<'a>(
    target: &TestTarget,
    chosen: &[(usize, &'a Case)],
    jobs: usize,
    as_json: bool,
    stop: &CancellationToken,
) -> Performed<'a> {
    let mut outcomes = Vec::with_capacity(chosen.len());
    let mut running =
        futures::stream::iter(chosen).map(|(_, case)| perform(target, case, stop)).buffered(jobs);
    while let Some(performed) = running.next().await {
        let shown = match performed {
            Ok(outcome) => {
                let shown = if as_json { Ok(()) } else { outcome.show() };
                outcomes.push(outcome);
                shown.map_err(|error| Failure { case: None, error })
            }
            Err(error) => {
                let case = chosen.get(outcomes.len()).map(|(_, case)| *case);
                Err(Failure { case, error })
            }
        };
        if let Err(failure) = shown {
            stop.cancel();
            if matches!(target, TestTarget::Endpoint(..)) {
                while running.next().await.is_some() {}
            }
            return Performed { outcomes, failure: Some(failure) };
        }
    }
    Performed { outcomes, failure: None }
}

/// Writes and prints the results, also when the run ended early: the results so far may have taken
/// long.
///
/// # Errors
/// The failure of the run, and else the first of the results that could not be written.
fn conclude(
    suite: &Suite,
    chosen: &[(usize, &Case)],
    performed: Performed<'_>,
    options: &ResultOptions,
    took: Duration,
) -> anyhow::Result<ExitCode> {
    let Performed { outcomes, failure } = performed;
    let recorded = match options.record {
        true => record(&suite.file, chosen.iter().map(|(index, _)| *index).zip(&outcomes)),
        false => Ok(()),
    };
    let written = match &options.junit {
        Some(path) => junit::write(path, &suite.name, &outcomes, failure.as_ref(), took),
        None => Ok(()),
    };
    let without_result = chosen.len() - outcomes.len();
    let sum = Sum { without_result, ..Sum::of(&outcomes) };
    let shown = match options.json {
        true => report::document(&outcomes, failure.as_ref(), took).and_then(output::result),
        false => output::result(sum.describe(took)),
    };
    let failure = failure.map(|failure| failure.error);
    let mut errors = [failure, recorded.err(), written.err(), shown.err()].into_iter().flatten();
    let Some(first) = errors.next() else {
        return Ok(if sum.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    };
    for error in errors.filter(|error| !output::is_broken_pipe(error)) {
        output::error(format_args!("{error:#}"));
    }
    Err(first)
}

fn report_skipped_config(file: &CaseFile, target: &TestTarget) {
    let name = file.path.display();
    if file.has_config {
        output::note(format_args!(
            "note: `config` of {name} describes a hosted service's machines and is ignored"
        ));
    }
    let has_fuel = file.cases.iter().any(|case| case.expectation.max_fuel.is_some());
    let why = match target {
        TestTarget::Endpoint(..) => "an endpoint does not report the fuel of a job",
        TestTarget::Bench(bench) if !bench.counts_fuel() => "fuel is not metered",
        TestTarget::Bench(_) => return,
    };
    if has_fuel {
        output::note(format_args!("note: `max_fuel` of {name} is not checked: {why}"));
    }
}

/// Runs one case to its end.
async fn perform<'a>(
    target: &TestTarget,
    case: &'a Case,
    stop: &CancellationToken,
) -> anyhow::Result<Outcome<'a>> {
    let seen = match target {
        TestTarget::Bench(bench) => local::run(bench, case, stop.clone()).await,
        TestTarget::Endpoint(..) if !case.env.is_empty() => {
            return Ok(Outcome::skipped(case, "an endpoint has its own env"));
        }
        TestTarget::Endpoint(client, endpoint) => {
            let seen = remote::run(client, endpoint, case, stop).await;
            seen.with_context(|| format!("case `{}`", case.name))?
        }
    };
    Ok(Outcome::of(case, seen.context("interrupted")?))
}

fn record<'a>(
    file: &CaseFile,
    outcomes: impl Iterator<Item = (usize, &'a Outcome<'a>)>,
) -> anyhow::Result<()> {
    let mut outputs = Vec::new();
    for (index, outcome) in outcomes {
        let case = outcome.case;
        let is_new = !case.expectation.is_about_result();
        if !is_new || !matches!(outcome.verdict, Verdict::Passed) {
            continue;
        }
        let Some(value) = outcome.seen.as_ref().and_then(|seen| seen.output.clone()) else {
            continue;
        };
        match record::check(&value) {
            Ok(()) => outputs.push((index, value)),
            Err(why) => output::note(format_args!(
                "note: the output of case `{}` is not recorded, since a file of cases cannot have it: \
                 {why}",
                case.name
            )),
        }
    }
    record::record(file, &outputs)?;
    let name = file.path.display();
    match outputs.len() {
        0 => output::note(format_args!("there is no output to record in {name}")),
        count => output::note(format_args!("recorded the outputs of {count} cases in {name}")),
    }
    Ok(())
}
