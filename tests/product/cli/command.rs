//! Runs one command and examines its results.

use std::ffi::OsStr;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use gristmill_tests::{PATIENCE, TestHost, binary, command};
use serde_json::Value;

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    pub(crate) fn succeeded(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// Asserts that the command failed with this code and a readable reason, and printed no result.
    pub(crate) fn failed(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        let said = self.stderr.to_lowercase();
        assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {self:?}");
        self
    }

    /// The same where both 1 and 2 are correct: the mistake may be detected before the command
    /// starts.
    pub(crate) fn failed_with_any_code(self, words: &[&str]) -> Self {
        let code = self.code;
        assert!(matches!(code, 1 | 2), "{self:?}");
        self.failed(code, words)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(self.stdout.trim()).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn line(&self) -> &str {
        let mut lines = self.stdout.lines();
        let line = lines.next().unwrap_or_else(|| panic!("no line: {self:?}"));
        assert_eq!(lines.next(), None, "{self:?}");
        line
    }
}

/// A command that calls this host with its admin key.
pub(crate) fn on(host: &TestHost) -> Command {
    let mut command = command();
    command.env("GRISTMILL_URL", host.url()).env("GRISTMILL_API_KEY", host.admin_key());
    command
}

/// Runs a command with words divided by blanks.
pub(crate) fn run(command: Command, words: &str) -> Finished {
    run_args(command, words.split_whitespace(), "")
}

/// Runs a command with these arguments and this standard input.
pub(crate) fn run_args<A: AsRef<OsStr>>(
    command: Command,
    arguments: impl IntoIterator<Item = A>,
    stdin: &str,
) -> Finished {
    run_within(PATIENCE, command, arguments, stdin)
}

/// The same for one that may take longer.
pub(crate) fn run_within<A: AsRef<OsStr>>(
    patience: Duration,
    mut command: Command,
    arguments: impl IntoIterator<Item = A>,
    stdin: &str,
) -> Finished {
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        command.spawn().unwrap_or_else(|error| panic!("{}: {error}", binary().display()));
    // The command may end before it has read anything.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    end_within(patience, child)
}

/// Waits for the end of a command that was started with pipes for its output.
pub(crate) fn end(child: Child) -> Finished {
    end_within(PATIENCE, child)
}

fn end_within(patience: Duration, child: Child) -> Finished {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || send.send(child.wait_with_output()));
    let output = receive.recv_timeout(patience).expect("the command ends").unwrap();
    Finished {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
