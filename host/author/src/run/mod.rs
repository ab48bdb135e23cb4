//! `gristmill run`: one job on this machine, without a host, in the same sandbox that a host uses.

mod document;
mod trace;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use gristmill_commands::arguments::InputSource;
use gristmill_commands::output;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::TIMED_OUT_ERROR;
use gristmill_core::runtime::{AttemptEnd, AttemptReport, Usage};
use tokio_util::sync::CancellationToken;

use super::fresh_component::{self, FreshnessOptions};
use super::local::{Bench, ComponentSource, LocalJob, LocalOptions, TerminalSink, stop_on_signal};
use super::test_input;
use document::RunDocument;

/// Threads of this process: one for the handler, and one for its timeout while it computes.
const THREADS: usize = 2;

/// Run one job locally, without a host.
///
/// The handler runs in the sandbox of `gristmill serve`, with the same limits. Prints each emitted
/// chunk as one line of JSON, then the output, unless that is null after chunks. Log lines,
/// progress, usage and the stack of a trap are written to standard error. Exits with 1 when the job
/// fails.
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
    /// Print one JSON document with status, output, chunks and usage instead.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    freshness: FreshnessOptions,
    #[command(flatten)]
    options: LocalOptions,
}

/// Carries out `gristmill run`.
///
/// # Errors
/// Those of the project and its build, and a component that cannot run.
pub fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let chosen = ComponentSource::new(args.handler.as_deref())?;
    let input = match &args.input {
        Some(source) => Json::from_value(&source.read()?),
        None => test_input::beside(&chosen.dir)?,
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
        let settings = args.options.over(chosen.project);
        let timeout = Duration::from_millis(settings.timeout_ms());
        let stop = CancellationToken::new();
        let _signals = tokio::spawn(stop_on_signal(stop.clone()));
        let bench = Bench::open(component, settings, 1, &stop).await?;
        let sink = if args.json { TerminalSink::keeping() } else { TerminalSink::default() };
        let sink = Arc::new(sink);
        let job = LocalJob { input, env: BTreeMap::new(), timeout_ms: None };
        let report = bench.perform(job, sink.clone(), stop).await;
        // A closed output is reported, whatever the handler's end.
        sink.written()?;
        if args.json {
            let document = RunDocument::new(&report, &sink.kept(), sink.stack(), timeout);
            output::result(serde_json::to_string(&document)?)?;
            let is_completed = matches!(report.end, AttemptEnd::Returned(_));
            return Ok(if is_completed { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        conclude(&report, timeout)
    })
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

/// The job's usage, on one line.
pub(crate) fn summary(usage: &Usage) -> String {
    let mut parts = vec![
        format!("ran {}", output::millis(usage.run_us)),
        format!("cpu {}", output::millis(usage.cpu_us)),
        format!("start {}", output::millis(usage.instantiate_us)),
    ];
    parts.extend(usage.fuel.map(|fuel| format!("fuel {}", output::grouped(fuel))));
    parts.push(format!("peak memory {}", output::size(usage.memory_bytes_peak)));
    parts.push(format!("chunks {}", usage.chunks));
    if usage.log_lines_dropped > 0 {
        parts.push(format!("log lines dropped {}", usage.log_lines_dropped));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_shows_the_usage() {
        let usage = Usage {
            instantiate_us: 90,
            run_us: 12_345,
            cpu_us: 1_000,
            fuel: Some(1_234_567),
            memory_bytes_peak: 3 << 19,
            chunks: 2,
            ..Usage::default()
        };
        let expected = "ran 12.3 ms, cpu 1.000 ms, start 0.090 ms, fuel 1 234 567, \
                        peak memory 1.5 MiB, chunks 2";
        assert_eq!(summary(&usage), expected);
        let unmetered = summary(&Usage { fuel: None, log_lines_dropped: 3, ..usage });
        assert!(!unmetered.contains("fuel") && unmetered.ends_with("log lines dropped 3"));
    }
}
