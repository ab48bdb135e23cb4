//! Compiles uploads in a separate process with limits. Compiling takes seconds of processor time
//! and hundreds of MiB, a hostile component wants more, and the compiler parses every byte of the
//! component. The process opens its two files, gives up everything else ([`confine`]), and only
//! then reads the component.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use gristmill_core::deploy::endpoint::Metering;
use gristmill_core::limits::COMPONENT_BYTES_MAX;
use gristmill_core::metrics::instruments::{DurationTotals, Durations};
use gristmill_core::runtime::is_no_space;
use gristmill_core::sharing::cores::cores;
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tracing::warn;
use wasmtime::Engine;

use crate::compile::cache::{self, CompileCache};
use crate::compile::component::{ComponentInfo, RejectedComponent, inspect};
use crate::compile::confine::{Confinement, confine};
use crate::compile::order::{CompileTurn, CompileTurns};
use crate::engine::{Kind, compile_config};
use crate::files::blocking;
use crate::files::{self, Unfinished};

/// Processor time of one compile, in seconds. The largest known components take 20.
const CPU_SECONDS_MAX: u64 = 120;

/// Address space of one compile, in bytes (4 GiB). The largest known components need a tenth.
const ADDRESS_SPACE_BYTES_MAX: u64 = 4 << 30;

/// Largest compiled file, in bytes (1 GiB). The largest known files have 37 MB.
const ARTIFACT_BYTES_MAX: u64 = 1 << 30;

/// Open files of the compiling process.
const OPEN_FILES_MAX: u64 = 64;

/// Wall time of one compile: enough for the processor time beside jobs that keep every core busy.
const WALL_TIME_MAX: Duration = Duration::from_secs(600);

/// Most threads of the compiling process.
const THREADS_MAX: usize = 4;

/// The lower priority of a compile, as a nice value.
const NICE: i32 = 10;

/// The highest preference of the kernel for the process that it ends when memory runs out.
const OOM_SCORE_ADJ: &str = "1000";

/// The argument that makes the compiling process keep debug information for traps.
const EXPLAIN: &str = "explain";

/// The argument before the directory of the compiling process's cache.
const CACHE: &str = "cache";

/// Most bytes of the compiling process's report.
const REPORT_BYTES_MAX: u64 = 1 << 20;

/// A kernel that cannot confine the compiling process is logged once.
static UNCONFINED: Once = Once::new();

/// Compiles components, one at a time, in turns of their owners.
#[derive(Debug)]
pub struct Compiler {
    program: Option<(PathBuf, Vec<OsString>)>,
    cache: Option<PathBuf>,
    turns: CompileTurns,
    /// Times of the compiles that succeeded, without the wait for a turn.
    durations: Arc<Durations>,
}

/// Why nothing was compiled, although the component is not known to be faulty.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompileError {
    /// The component is refused.
    #[error(transparent)]
    Rejected(#[from] RejectedComponent),
    /// The compiler could not be started, or its files could not be read or written.
    #[error("cannot compile: {0}")]
    Io(#[from] std::io::Error),
    /// The output of the compiling process is not a report.
    #[error("the compiling process ended without a report: {0}")]
    NoReport(String),
}

/// The component to compile, the engine, and the path of the result.
#[derive(Debug, Clone)]
pub(crate) struct CompileTask {
    pub(crate) kind: Kind,
    pub(crate) component: PathBuf,
    pub(crate) artifact: PathBuf,
}

impl CompileTask {
    fn read(args: impl IntoIterator<Item = OsString>) -> Result<(Self, Option<PathBuf>), String> {
        let mut args = args.into_iter();
        let mut next = |what: &str| args.next().ok_or_else(|| format!("{what} is missing"));
        let (metering, component) = (next("the metering")?, next("the component's path")?);
        let artifact = next("the artifact's path")?;
        let metering = Metering::ALL.into_iter().find(|m| metering == m.as_str());
        let metering = metering.ok_or("the metering is `fuel` or `epoch`")?;
        let (mut explains_traps, mut cache) = (false, None);
        while let Ok(word) = next("a word") {
            match word.to_str() {
                Some(EXPLAIN) => explains_traps = true,
                Some(CACHE) => cache = Some(next("the cache's directory")?.into()),
                _ => return Err(format!("`{}` is not known", word.display())),
            }
        }
        let kind = Kind { metering, explains_traps };
        Ok((Self { kind, component: component.into(), artifact: artifact.into() }, cache))
    }
}

/// The result of a compile.
#[derive(Debug, Clone)]
pub(crate) struct Compiled {
    pub(crate) info: ComponentInfo,
    pub(crate) took: Duration,
}

/// A compile that has ended: the artifact is on stable storage, under a temporary name.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) compiled: Compiled,
    pub(crate) artifact: Unfinished,
}

/// The one line that the compiling process prints.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    /// `None`: it failed before it read the component.
    confinement: Option<Confinement>,
    report: Report,
}

/// The outcome of a compile.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Report {
    Compiled(ComponentInfo),
    Rejected(RejectedComponent),
    Failed(String),
    /// The disk has no room for the artifact.
    NoSpace(String),
}

/// The hidden subcommand of a program whose [own](Compiler::of_this_program) processes compile; it
/// runs [`child_main`].
pub const COMPILE_COMMAND: &str = "compile-component";

impl Compiler {
    /// Compiles in child processes of the program that calls this, by its subcommand
    /// [`COMPILE_COMMAND`].
    ///
    /// # Errors
    /// When the program's own file cannot be found.
    pub fn of_this_program() -> std::io::Result<Self> {
        let program = std::env::current_exe().map_err(|error| {
            let sentence = format!("cannot find this program's own file: {error}");
            std::io::Error::new(error.kind(), sentence)
        })?;
        Ok(Self::child(program, vec![COMPILE_COMMAND.into()]))
    }

    /// Compiles in child processes: `program args… <metering> <component> <artifact>`, the word
    /// `explain` if traps will be explained, and `cache <directory>` if there is one. The program
    /// must call [`child_main`] with the arguments after `args`.
    pub fn child(program: PathBuf, args: Vec<OsString>) -> Self {
        Self {
            program: Some((program, args)),
            cache: None,
            turns: CompileTurns::default(),
            durations: Arc::default(),
        }
    }

    /// Compiles for a developer, who waits for the result: on up to four cores, and with a cache of
    /// earlier compiles in this directory, which several processes may share.
    ///
    /// # Errors
    /// When the directory cannot be created, or other users could have written to it.
    pub fn use_cache(&mut self, directory: PathBuf) -> std::io::Result<()> {
        cache::make_private(&directory)?;
        self.cache = Some(directory);
        Ok(())
    }

    /// Compiles in this process, without limits: for tests, and for trusted components.
    pub fn in_process() -> Self {
        Self {
            program: None,
            cache: None,
            turns: CompileTurns::default(),
            durations: Arc::default(),
        }
    }

    /// Times of the compiles that succeeded, without the wait for a turn.
    pub(crate) fn durations(&self) -> DurationTotals {
        self.durations.totals()
    }

    /// The order in which components wait to be compiled.
    pub(crate) fn turns(&self) -> &CompileTurns {
        &self.turns
    }

    /// Compiles one component, in the caller's turn.
    ///
    /// # Errors
    /// [`CompileError`]; there is no artifact then.
    pub(crate) async fn compile(
        &self,
        task: CompileTask,
        _turn: &CompileTurn,
    ) -> Result<Finished, CompileError> {
        let started = Instant::now();
        let artifact = Unfinished::at(&task.artifact);
        let task = CompileTask { artifact: artifact.temporary().to_owned(), ..task };
        let report = match &self.program {
            Some((program, args)) => {
                let answer = run_child(program, args, &task, self.cache.as_deref()).await?;
                log_missing(answer.confinement.unwrap_or_default());
                answer.report
            }
            None => blocking(move || Ok(compile_here(&task))).await?,
        };
        match report {
            Report::Compiled(info) => {
                let took = started.elapsed();
                self.durations.record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
                let compiled = Compiled { info, took };
                Ok(Finished { compiled, artifact })
            }
            Report::Rejected(reason) => Err(reason.into()),
            Report::Failed(error) => Err(std::io::Error::other(error).into()),
            Report::NoSpace(error) => {
                Err(std::io::Error::new(std::io::ErrorKind::StorageFull, error).into())
            }
        }
    }
}

/// Logs the missing kernel features, once.
fn log_missing(confinement: Confinement) {
    let Confinement { missing } = confinement;
    if !missing.is_empty() {
        let missing = missing.join("; ");
        UNCONFINED.call_once(|| {
            warn!("the processes that compile components are less confined than they should be: {missing}");
        });
    }
}

async fn run_child(
    program: &Path,
    args: &[OsString],
    task: &CompileTask,
    cache: Option<&Path>,
) -> Result<Answer, CompileError> {
    let cores = cores();
    // Half of the cores, beside jobs, so that a waking thread finds a free core. With two threads
    // on two cores one call in ten waited for the scheduler's next tick of 4 ms, whatever their
    // priorities.
    let threads = if cache.is_some() { cores } else { cores.div_ceil(2) };
    let mut child = Command::new(program)
        .args(args)
        .arg(task.kind.metering.as_str())
        .arg(&task.component)
        .arg(&task.artifact)
        .args(task.kind.explains_traps.then_some(EXPLAIN))
        .args(cache.map(|path| [CACHE.as_ref(), path.as_os_str()]).into_iter().flatten())
        // The child inherits none of the host's settings and secrets.
        .env_clear()
        .env("RAYON_NUM_THREADS", threads.min(THREADS_MAX).to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let finished = tokio::time::timeout(WALL_TIME_MAX, async {
        let (stdout, stderr) = tokio::join!(read_pipe(stdout), read_pipe(stderr));
        Ok::<_, std::io::Error>((stdout?, stderr?, child.wait().await?))
    });
    let Ok(finished) = finished.await else {
        let limit = format!("it took more than {} seconds", WALL_TIME_MAX.as_secs());
        return Err(RejectedComponent::TooExpensive(limit).into());
    };
    let (stdout, stderr, status) = finished?;
    let report = stdout.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty());
    match serde_json::from_slice(report.unwrap_or_default()) {
        Ok(answer) => Ok(answer),
        Err(_) => Err(without_report(status, &stderr)),
    }
}

async fn read_pipe(pipe: Option<impl tokio::io::AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let mut pipe = pipe.take(REPORT_BYTES_MAX);
        pipe.read_to_end(&mut bytes).await?;
        // Output beyond the bound is read too, so that the child does not wait for ever.
        tokio::io::copy(&mut pipe.into_inner(), &mut tokio::io::sink()).await?;
    }
    Ok(bytes)
}

/// The error of a child without a report. A killed child has reached one of its limits, so the
/// component is faulty; any other end is a fault of the host.
fn without_report(status: ExitStatus, stderr: &[u8]) -> CompileError {
    const SIGXCPU: i32 = 24;
    let stderr = String::from_utf8_lossy(stderr);
    // Rust's hint on backtraces is not a reason.
    let is_reason = |line: &&str| !line.trim().is_empty() && !line.starts_with("note: ");
    let last_line = stderr.lines().rfind(is_reason).unwrap_or("no message");
    let reason = match status.signal() {
        Some(SIGXCPU) => format!("it took more than {CPU_SECONDS_MAX} seconds of processor time"),
        Some(signal) => {
            let gib = ADDRESS_SPACE_BYTES_MAX >> 30;
            format!("signal {signal}, perhaps for want of memory ({gib} GiB at most): {last_line}")
        }
        None => return CompileError::NoReport(format!("{status}: {last_line}")),
    };
    RejectedComponent::TooExpensive(reason).into()
}

/// The compiling process, which the host's hidden subcommand runs. `args` are those of
/// [`Compiler::child`]. It limits and confines itself before it reads a byte of the component, and
/// prints one line of JSON.
pub fn child_main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let answer = confined_compile(args)
        .unwrap_or_else(|error| Answer { confinement: None, report: Report::Failed(error) });
    let written = serde_json::to_vec(&answer)
        .map_err(std::io::Error::from)
        .and_then(|line| std::io::stdout().lock().write_all(&[&line, b"\n".as_slice()].concat()));
    // Without a report the parent uses the exit code.
    if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn confined_compile(args: impl IntoIterator<Item = OsString>) -> Result<Answer, String> {
    limit_this_process().map_err(|error| format!("cannot limit the compiling process: {error}"))?;
    let (task, cache) = CompileTask::read(args)?;
    let files = OpenFiles::open(&task).map_err(|error| error.to_string())?;
    let confinement = confine(cache.as_deref());
    Ok(Answer { confinement: Some(confinement), report: compile(files, cache.as_deref()) })
}

fn compile_here(task: &CompileTask) -> Report {
    match OpenFiles::open(task) {
        Ok(files) => compile(files, None),
        Err(error) => Report::Failed(error.to_string()),
    }
}

/// The files of a compile, opened before the process is confined.
struct OpenFiles {
    kind: Kind,
    component: Vec<u8>,
    artifact: File,
}

impl OpenFiles {
    fn open(task: &CompileTask) -> std::io::Result<Self> {
        let component = files::read_capped(&task.component, COMPONENT_BYTES_MAX)?;
        let artifact = files::create_private(&task.artifact)?;
        Ok(Self { kind: task.kind, component, artifact })
    }
}

fn limit_this_process() -> std::io::Result<()> {
    let limits = [
        (Resource::Cpu, CPU_SECONDS_MAX),
        (Resource::As, ADDRESS_SPACE_BYTES_MAX),
        (Resource::Nofile, OPEN_FILES_MAX),
        (Resource::Fsize, ARTIFACT_BYTES_MAX),
        (Resource::Core, 0),
    ];
    for (resource, max) in limits {
        let maximum = if resource == Resource::Cpu { max + 5 } else { max };
        setrlimit(resource, Rlimit { current: Some(max), maximum: Some(maximum) })?;
    }
    rustix::process::nice(NICE)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // When memory runs out, the kernel ends this process, and not the host with all of its jobs.
    std::fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ)
}

/// Checks, compiles and writes, in the present process. The artifact is on stable storage when this
/// reports success.
fn compile(files: OpenFiles, cache: Option<&Path>) -> Report {
    let OpenFiles { kind, component, mut artifact } = files;
    let mut compile = || {
        // An unusable cache is not an error, since it only saves time.
        let cache = cache.and_then(|path| CompileCache::open(path, kind.metering).ok());
        let mut config = compile_config(kind);
        if let Some(cache) = &cache {
            cache.serve(&mut config)?;
        }
        let engine = Engine::new(&config)?;
        let (compiled, info) = match inspect(&engine, &component) {
            Ok(inspected) => inspected,
            Err(reason) => return Ok(Report::Rejected(reason)),
        };
        artifact.write_all(&compiled.serialize()?)?;
        artifact.sync_all()?;
        if let Some(cache) = cache {
            let _ = cache.save();
        }
        Ok(Report::Compiled(info))
    };
    let compiled: wasmtime::Result<Report> = compile();
    compiled.unwrap_or_else(|error| {
        let causes = crate::compile::component::causes(&error);
        match error.downcast_ref::<std::io::Error>() {
            Some(error) if is_no_space(error) => Report::NoSpace(causes),
            _ => Report::Failed(causes),
        }
    })
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
