//! One run of the real binary: started on a free port, read until it is ready, always ended.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::built::binary;

/// A start compiles nothing and reads a small store.
const READY_WAIT: Duration = Duration::from_secs(60);

/// Moving a clock takes no time; a host without a manual clock never answers.
const CLOCK_WAIT: Duration = Duration::from_secs(60);

/// A command of the binary, without settings inherited from this process, and with the tests' own
/// cache.
pub fn command() -> Command {
    command_of(&binary())
}

fn command_of(program: &Path) -> Command {
    let binary = binary();
    let target = binary.ancestors().nth(2).unwrap();
    let mut command = Command::new(program);
    command.env("XDG_CACHE_HOME", target.join("tmp/cache"));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("GRISTMILL_")) {
            command.env_remove(&name);
        }
    }
    command
}

/// How a host is started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start<'a> {
    pub(crate) program: &'a Path,
    /// Further variables of its environment.
    pub(crate) environment: &'a [(&'a str, &'a OsStr)],
    pub(crate) data_dir: &'a Path,
    /// The file to which its standard error is appended.
    pub(crate) log: &'a Path,
    pub(crate) arguments: &'a [String],
}

/// The running binary. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct HostProcess {
    child: Child,
    /// The value of `ready` in the binary's ready line.
    pub(crate) ready: Value,
    /// The values of its further ready lines.
    further_ready: Mutex<mpsc::Receiver<Value>>,
    /// Moves the clock of a host that was started with `--manual-clock`.
    clock: Mutex<ClockPipes>,
    /// A message to the guard process ends it; if the pipe closes without a message, it kills the
    /// host.
    guard: ChildStdin,
}

/// The pipes of the host's clock.
#[derive(Debug)]
struct ClockPipes {
    moves: ChildStdin,
    times: mpsc::Receiver<u64>,
}

impl HostProcess {
    /// Starts the binary.
    pub(crate) fn start(start: Start<'_>) -> Self {
        Self::try_start(start).unwrap_or_else(|status| {
            let log = std::fs::read_to_string(start.log).unwrap_or_default();
            panic!("the host printed no ready line and ended with {status}; it said:\n{log}")
        })
    }

    /// The same; a host that does not get ready is ended, and its exit status returned.
    pub(crate) fn try_start(start: Start<'_>) -> Result<Self, ExitStatus> {
        let mut child = spawn(start);
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut guard = guard(child.id(), start.data_dir.parent().unwrap());
        let moves = child.stdin.take().unwrap();
        let (send, receive) = mpsc::channel();
        let (send_time, times) = mpsc::channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let line: Value = serde_json::from_str(&line).unwrap_or_default();
                // Read on even after the test has given up, so that the pipe never fills.
                if let Some(ready) = line.get("ready") {
                    let _ = send.send(ready.clone());
                }
                if let Some(time) = line["clock"].as_u64() {
                    let _ = send_time.send(time);
                }
            }
        });
        let Ok(ready) = receive.recv_timeout(READY_WAIT) else {
            // Without effect on an ended process.
            let _ = child.kill();
            let _ = guard.write_all(b"done\n");
            return Err(child.wait().unwrap());
        };
        let clock = Mutex::new(ClockPipes { moves, times });
        Ok(Self { child, ready, further_ready: Mutex::new(receive), clock, guard })
    }

    /// Waits for the next ready line: a host that stood by prints one when it has taken over.
    pub(crate) fn next_ready(&self) -> Value {
        let further = self.further_ready.lock().unwrap();
        further.recv_timeout(READY_WAIT).expect("the host prints a further ready line")
    }

    /// Moves the host's clock, and returns its new time, in milliseconds since the epoch.
    pub(crate) fn advance(&self, ms: u64) -> u64 {
        let mut clock = self.clock.lock().unwrap();
        writeln!(clock.moves, "{ms}").unwrap();
        clock.times.recv_timeout(CLOCK_WAIT).expect("a host with --manual-clock answers")
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it like a power cut.
    pub(crate) fn kill9(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end (SIGTERM).
    pub(crate) fn ask_to_end(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self, patience: Duration) -> ExitStatus {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the host did not end within {patience:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Settings of every host whose arguments have no `--config`.
const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/host.toml");

/// Starts the binary without waiting.
pub(crate) fn spawn(start: Start<'_>) -> Child {
    let Start { program, environment, data_dir, log, arguments } = start;
    let log_file = File::options().create(true).append(true).open(log).unwrap();
    command_of(program)
        .args(["serve", "--listen", "127.0.0.1:0", "--json", "--data-dir"])
        .arg(data_dir)
        .args(arguments)
        .env("GRISTMILL_CONFIG", CONFIG)
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log_file)
        .spawn()
        .unwrap()
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        self.kill9();
        let _ = self.guard.write_all(b"done\n");
    }
}

/// A process that kills the host and removes its folder when this process ends without dropping it:
/// statics are never dropped, and a test run may be interrupted.
fn guard(host: u32, folder: &Path) -> ChildStdin {
    let mut guard = Command::new("sh")
        .args(["-c", "read -r done || { kill -9 \"$0\"; sleep 1; rm -rf -- \"$1\"; }"])
        .arg(host.to_string())
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pipe = guard.stdin.take().unwrap();
    thread::spawn(move || guard.wait());
    pipe
}
