//! `gristmill run`: one job, here and now, without a host, in the sandbox that a host would use.

mod deployment;
mod document;
mod sink;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use clap::Args;
use gristmill_core::egress::HostPattern;
use gristmill_core::endpoint::{Deployment, Metering, SandboxLimits};
use gristmill_core::id::{JobId, NodeId, Submission};
use gristmill_core::limits::{Bounds, EXECUTION_TIMEOUT_MS};
use gristmill_core::payload::Json;
use gristmill_core::record::TIMED_OUT_ERROR;
use gristmill_core::runtime::{Attempt, AttemptEnd, AttemptReport, Runtime as _, Usage};
use gristmill_runtime::{Compiler, MemoryRecords, Sandbox, SandboxSettings};
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::input::InputSource;
use super::{COMPILE_COMMAND, component_file, output, parse, progress};
use document::RunDocument;
use sink::TerminalSink;

/// How long the job may run, in milliseconds. Shorter than a host allows, too: to try out what a
/// timeout does.
const TIMEOUT_MS: Bounds =
    Bounds { min: 1, default: EXECUTION_TIMEOUT_MS.default, max: EXECUTION_TIMEOUT_MS.max };

/// Threads of this process: one for the handler, one that sees the clock when it computes.
const THREADS: usize = 2;

/// Run one job locally, without a host.
///
/// The handler runs in the sandbox of `gristmill serve`, with the same limits. Prints each chunk
/// that it emits as one line of JSON, then its output, unless that is null after chunks. What it
/// logs, its progress and what it used go to standard error. Exits with 1 when the job fails.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The handler: a WebAssembly component.
    file: PathBuf,
    /// The handler's input, a JSON object: as text, in a file (@FILE), or on stdin (-).
    #[arg(long, value_name = "JSON|@FILE|-")]
    input: InputSource,
    /// An environment variable of the handler; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse::env_var)]
    env: Vec<parse::EnvVar>,
    /// An argument of the handler; may be repeated.
    #[arg(long = "arg", value_name = "ARG", allow_hyphen_values = true)]
    args: Vec<String>,
    /// A host that the handler may call, such as example.com or *.example.com:8443; may be
    /// repeated.
    #[arg(long = "allow-host", value_name = "HOST")]
    allowed_hosts: Vec<HostPattern>,
    /// Scratch space of the job, at /tmp, in gigabytes; 0: none.
    #[arg(long, value_name = "GB", default_value_t = 0)]
    scratch_gb: u32,
    /// Memory of the job, in MiB.
    #[arg(
        long,
        value_name = "N",
        default_value_t = SandboxLimits::MEMORY_MIB.default,
        value_parser = parse::bounded::<u64>(SandboxLimits::MEMORY_MIB)
    )]
    memory_mib: u64,
    /// How long the job may run, in milliseconds.
    #[arg(
        long,
        value_name = "MS",
        default_value_t = TIMEOUT_MS.default,
        value_parser = parse::bounded::<u64>(TIMEOUT_MS)
    )]
    timeout_ms: u64,
    /// Fuel of the job [default: derived from its timeout].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_fuel: Option<u64>,
    /// How computing is metered.
    #[arg(long, default_value = Metering::Fuel.as_str(), value_parser = parse::metering())]
    metering: Metering,
    /// Print one JSON document with status, output, chunks and usage instead.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let component = component_file::read(&args.file)?;
    let input = args.input.read()?;
    let timeout = Duration::from_millis(args.timeout_ms);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    runtime.block_on(async {
        let stop = CancellationToken::new();
        let _signals = tokio::spawn(stop_on_signal(stop.clone()));
        let as_json = args.json;
        let bench = Bench::open(component, args, &stop).await?;
        let sink =
            Arc::new(if as_json { TerminalSink::keeping() } else { TerminalSink::default() });
        let report = bench.perform(input, timeout, sink.clone(), stop).await;
        // A reader that left is told as such, whatever became of the handler.
        sink.written()?;
        if as_json {
            let document = RunDocument::new(&report, &sink.kept(), timeout);
            output::result(serde_json::to_string(&document)?)?;
            let is_completed = matches!(report.end, AttemptEnd::Returned(_));
            return Ok(if is_completed { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        conclude(&report, timeout)
    })
}

/// A sandbox with one component in it, in a directory that goes away with it.
struct Bench {
    sandbox: Sandbox,
    deployment: Arc<Deployment>,
    _dir: TempDir,
}

impl Bench {
    /// Compiles the component, unless `stop` fires before that is done.
    async fn open(
        component: Bytes,
        args: RunArgs,
        stop: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let dir = private_dir().context("cannot make a directory for the compiled component")?;
        let records = MemoryRecords::new();
        let sandbox = Sandbox::open(settings(dir.path())?, records.clone())?;
        let spinner = progress::spinner("compiling");
        let compiled = async {
            let record = sandbox.add_component(component).await?.component;
            let deployment = Arc::new(deployment::local(args, record.digest));
            records.put(record);
            sandbox.prepare(&deployment).await.map_err(|error| anyhow!(error))?;
            anyhow::Ok(deployment)
        };
        let deployment = tokio::select! {
            compiled = compiled => compiled,
            () = stop.cancelled() => Err(anyhow!("interrupted")),
        };
        spinner.finish_and_clear();
        Ok(Self { deployment: deployment?, sandbox, _dir: dir })
    }

    async fn perform(
        &self,
        input: Json,
        timeout: Duration,
        sink: Arc<TerminalSink>,
        stop: CancellationToken,
    ) -> AttemptReport {
        let attempt = Attempt {
            job: JobId::generate(Submission::Async, NodeId(0)),
            number: 1,
            deployment: self.deployment.clone(),
            input,
            s3_config: None,
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            deadline: Instant::now() + timeout,
            stop,
        };
        self.sandbox.perform(attempt, sink).await
    }
}

fn private_dir() -> std::io::Result<TempDir> {
    use std::os::unix::fs::PermissionsExt as _;
    tempfile::Builder::new()
        .prefix("gristmill-run-")
        .permissions(std::fs::Permissions::from_mode(0o700))
        .tempdir()
}

fn settings(dir: &Path) -> anyhow::Result<SandboxSettings> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let compiler = Compiler::child(program, vec![COMPILE_COMMAND.into()]);
    let mut settings = SandboxSettings::new(dir.to_owned(), compiler);
    settings.running_jobs_max = 1;
    Ok(settings)
}

/// Fires `stop` on SIGINT or SIGTERM.
async fn stop_on_signal(stop: CancellationToken) {
    let listeners = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    // Without listeners a signal ends the process as it is.
    let (Ok(mut interrupt), Ok(mut terminate)) = listeners else { return };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    stop.cancel();
}

/// Shows how the job ended and what it used.
fn conclude(report: &AttemptReport, timeout: Duration) -> anyhow::Result<ExitCode> {
    let usage = &report.usage;
    match &report.end {
        AttemptEnd::Returned(value) if value.is_null() && usage.chunks > 0 => {}
        AttemptEnd::Returned(value) => output::result(output::one_line(value.as_str()))?,
        AttemptEnd::Failed(_) | AttemptEnd::DeadlineReached | AttemptEnd::Stopped => {}
    }
    output::note(summary(usage));
    match &report.end {
        AttemptEnd::Returned(_) => Ok(ExitCode::SUCCESS),
        AttemptEnd::Failed(error) => bail!("the job is FAILED: {error}"),
        AttemptEnd::DeadlineReached => {
            bail!("the job is TIMED_OUT: {TIMED_OUT_ERROR} after {} ms", timeout.as_millis())
        }
        AttemptEnd::Stopped => bail!("interrupted"),
    }
}

/// What the job used, on one line.
fn summary(usage: &Usage) -> String {
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
    fn the_summary_says_what_was_used() {
        let usage = Usage {
            instantiate_us: 90,
            run_us: 12_345,
            cpu_us: 1_000,
            fuel: Some(1_234_567),
            memory_bytes_peak: 3 << 19,
            chunks: 2,
            log_lines_dropped: 0,
        };
        let expected = "ran 12.3 ms, cpu 1.000 ms, start 0.090 ms, fuel 1 234 567, \
                        peak memory 1.5 MiB, chunks 2";
        assert_eq!(summary(&usage), expected);
        let unmetered = summary(&Usage { fuel: None, log_lines_dropped: 3, ..usage });
        assert!(!unmetered.contains("fuel") && unmetered.ends_with("log lines dropped 3"));
    }
}
