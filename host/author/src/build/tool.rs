//! Runs the tools of a language. Their output is shown at once.

use std::fmt;
use std::io::ErrorKind;
use std::os::fd::AsFd as _;
use std::process::{ExitStatus, Output, Stdio};

use anyhow::{Context as _, bail};
use tokio::process::{Child, Command};

/// A tool for a build is not installed.
#[derive(Debug)]
pub(crate) struct Missing {
    /// The missing tool, in one sentence.
    pub(super) what: String,
    /// The command that installs it.
    pub(super) command: String,
}

impl std::error::Error for Missing {}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; run\n  {}", self.what, self.command)
    }
}

impl Missing {
    pub(super) fn new(what: impl Into<String>, command: impl Into<String>) -> Self {
        Self { what: what.into(), command: command.into() }
    }
}

/// A tool without input, whose results go to standard error like its notes, since standard output
/// is for our own results. It is killed when its future is dropped.
pub(super) fn command(program: impl AsRef<std::ffi::OsStr>) -> anyhow::Result<Command> {
    let to_notes = std::io::stderr().as_fd().try_clone_to_owned().context("no standard error")?;
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(to_notes).kill_on_drop(true);
    Ok(command)
}

/// Starts a tool, or returns the missing one.
pub(super) fn start(mut command: Command, missing: impl Fn() -> Missing) -> anyhow::Result<Child> {
    match command.spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(missing().into()),
        child => {
            let program = command.as_std().get_program().to_string_lossy().into_owned();
            child.with_context(|| format!("cannot start {program}"))
        }
    }
}

/// Runs a tool to its end.
pub(super) async fn run(command: Command, missing: impl Fn() -> Missing) -> anyhow::Result<()> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    let status = start(command, missing)?.wait().await?;
    check(&name, status)
}

/// Runs a tool and captures its output. `None` when it is not installed.
pub(super) async fn ask(mut command: Command) -> anyhow::Result<Option<Output>> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    match command.output().await {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        output => Ok(Some(output.context("cannot run a tool")?)),
    }
}

/// Whether a tool is installed: it prints its version.
pub(super) async fn is_there(program: &str) -> anyhow::Result<bool> {
    let mut version = command(program)?;
    version.arg("--version");
    Ok(ask(version).await?.is_some_and(|output| output.status.success()))
}

pub(super) fn check(name: &str, status: ExitStatus) -> anyhow::Result<()> {
    if !status.success() {
        bail!("the build failed: {name} ended with {status}");
    }
    Ok(())
}
