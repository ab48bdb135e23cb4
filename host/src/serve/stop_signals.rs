//! The signals that ask the host to end.

use std::io::{self, IsTerminal as _};

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

/// SIGTERM and SIGINT: the first asks to stop in order, the second to stop at once. SIGHUP asks for
/// the TLS files to be read again; without TLS it changes nothing, but the end of the terminal that
/// the host uses stops it in order.
pub(super) struct StopSignals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    /// Without a listener SIGHUP would end the process at once.
    hang_up: tokio::signal::unix::Signal,
    on_hang_up: OnHangUp,
}

/// The effect of SIGHUP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnHangUp {
    /// None here: the TLS files are read again elsewhere, or the host stops already. The end of a
    /// terminal may send the signal twice.
    Ignore,
    /// The host stops: its terminal has been closed.
    Stop,
    /// A line in the log: a service manager asks for a reload, and there is nothing to read again.
    Log,
}

impl StopSignals {
    pub(super) fn new(has_tls: bool) -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        let on_hang_up = match has_tls {
            true => OnHangUp::Ignore,
            false if has_terminal() && !is_hang_up_ignored() => OnHangUp::Stop,
            false => OnHangUp::Log,
        };
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
            on_hang_up,
        })
    }

    pub(super) async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hang_up.recv() => match self.on_hang_up {
                    OnHangUp::Ignore => {}
                    OnHangUp::Stop => {
                        self.on_hang_up = OnHangUp::Ignore;
                        return;
                    }
                    OnHangUp::Log => {
                        info!("SIGHUP changes nothing: there is no TLS certificate to read again");
                    }
                },
            }
        }
    }
}

fn has_terminal() -> bool {
    io::stdin().is_terminal() || io::stdout().is_terminal() || io::stderr().is_terminal()
}

/// Whether the process was started with SIGHUP ignored, as by `nohup`. Must be called before a
/// listener exists.
fn is_hang_up_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The lowest bit is the signal with the number 1, which is SIGHUP.
    ignored.is_some_and(|mask| mask & 1 == 1)
}
