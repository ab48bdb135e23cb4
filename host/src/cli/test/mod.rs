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
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use futures::StreamExt as _;
use gristmill_client::Client;
use gristmill_core::id::EndpointId;
use gristmill_core::limits::Bounds;
use gristmill_core::sharing::cores::cores;
use tokio_util::sync::CancellationToken;

use super::client::ConnectionArgs;
use super::fresh_component::{self, FreshnessOptions};
use super::local::{Bench, ComponentSource, LocalOptions, stop_on_signal};
use super::{output, parse};
use cases::{Case, CaseFile};
use report::{Outcome, Sum, Verdict};

/// How many cases run at one time.
const JOBS: Bounds = Bounds { min: 1, default: 1, max: 256 };

/// Run a handler's test cases.
///
/// The file of cases has {"tests":[{"name","input","expected_output","timeout"}]}; docs/HANDLERS.md
/// lists all expectations. Each case runs in its own sandbox, like a job of `gristmill run`; a case
/// without expectations passes when its job completes. Exits with 1 when a case failed.
#[derive(Debug, Args)]
pub(crate) struct TestArgs {
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
    /// Also write the results as JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Print one JSON document instead.
    #[arg(long)]
    json: bool,
    /// Write the output of each completed case without an expectation into the file of cases.
    #[arg(long)]
    record: bool,
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

/// The place where cases run.
enum TestTarget {
    Bench(Box<Bench>),
    Endpoint(Client, EndpointId),
}

pub(crate) fn test(args: TestArgs) -> anyhow::Result<ExitCode> {
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
    let stop = CancellationToken::new();
    let _signals = tokio::spawn(stop_on_signal(stop.clone()));
    let began = Instant::now();
    let (file, suite, target) = match args.endpoint {
        Some(endpoint) => {
            let dir = match args.handler {
                Some(path) if !path.is_dir() => bail!(
                    "with --endpoint nothing runs here: leave {} out, or name a directory",
                    path.display()
                ),
                dir => dir.unwrap_or_default(),
            };
            let file = CaseFile::read(args.cases, &dir)?;
            let suite = endpoint.to_string();
            (file, suite, TestTarget::Endpoint(args.connection.client()?, endpoint))
        }
        None => {
            let chosen = ComponentSource::new(args.handler.as_deref())?;
            let file = CaseFile::read(args.cases, &chosen.dir)?;
            let component = fresh_component::read(&chosen, args.freshness).await?;
            let suite = chosen.name();
            let settings = args.options.over(chosen.project);
            let jobs_max = u32::try_from(jobs).unwrap_or(u32::MAX);
            let bench = Bench::open(component, settings, jobs_max, &stop).await?;
            (file, suite, TestTarget::Bench(Box::new(bench)))
        }
    };
    let filter = args.filter.as_deref().unwrap_or_default();
    let chosen: Vec<_> =
        file.cases.iter().enumerate().filter(|(_, case)| case.name.contains(filter)).collect();
    ensure!(!chosen.is_empty(), "no case of {} has `{filter}` in its name", file.path.display());
    report_skipped_config(&file, &target);

    let mut outcomes = Vec::with_capacity(chosen.len());
    let mut running = futures::stream::iter(&chosen)
        .map(|(_, case)| perform(&target, case, &stop))
        .buffered(jobs);
    while let Some(outcome) = running.next().await {
        let outcome = outcome?;
        if !args.json {
            outcome.show()?;
        }
        outcomes.push(outcome);
    }
    drop(running);
    let took = began.elapsed();
    if args.record {
        let indices = chosen.iter().map(|(index, _)| *index);
        record(&file, indices.zip(&outcomes))?;
    }
    if let Some(path) = &args.junit {
        junit::write(path, &suite, &outcomes, took)?;
    }
    let sum = Sum::of(&outcomes);
    if args.json {
        output::result(report::document(&outcomes, took)?)?;
    } else {
        output::result(sum.describe(took))?;
    }
    Ok(if sum.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
        TestTarget::Endpoint(client, endpoint) => tokio::select! {
            seen = remote::run(client, endpoint, case) => {
                Some(seen.with_context(|| format!("case `{}`", case.name))?)
            }
            () = stop.cancelled() => None,
        },
    };
    Ok(Outcome::of(case, seen.context("interrupted")?))
}

fn record<'a>(
    file: &CaseFile,
    outcomes: impl Iterator<Item = (usize, &'a Outcome<'a>)>,
) -> anyhow::Result<()> {
    let outputs: Vec<_> = outcomes
        .filter(|(_, outcome)| {
            let is_new = !outcome.case.expectation.is_about_result();
            is_new && matches!(outcome.verdict, Verdict::Passed)
        })
        .filter_map(|(index, outcome)| Some((index, outcome.seen.as_ref()?.output.clone()?)))
        .collect();
    record::record(file, &outputs)?;
    let count = outputs.len();
    output::note(format_args!("recorded the outputs of {count} cases in {}", file.path.display()));
    Ok(())
}
