//! The thread that writes lines to the files.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use gristmill_core::logs::Logs;
use tracing::{info, warn};

use crate::directory::{LogDirectory, Refusal};

/// How long lines wait in memory, unless their endpoint has many.
pub(crate) const ROUND: Duration = Duration::from_millis(100);

/// The wait after a round, as a multiple of its time: thousands of endpoints that log all the time
/// take a fifth of one core.
const REST: u32 = 4;

/// The longest wait after a round, and the wait after a failed one.
const ROUND_MAX: Duration = Duration::from_secs(1);

/// The thread. It ends with the process, or with [`close`](Self::close).
#[derive(Debug)]
pub struct LogWriter {
    logs: Arc<Logs>,
    ended: Receiver<()>,
}

impl LogWriter {
    /// Starts the thread, which writes the lines of `logs` to their archive, `directory`.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(logs: Arc<Logs>, directory: Arc<LogDirectory>) -> io::Result<Self> {
        let (end, ended) = channel();
        let source = logs.clone();
        thread::Builder::new().name("log-files".to_owned()).spawn(move || {
            run(&source, &directory);
            // The closer may have stopped waiting.
            let _ = end.send(());
        })?;
        Ok(Self { logs, ended })
    }

    /// Writes the last lines, and waits for that, no longer than `patience`.
    pub fn close(self, patience: Duration) {
        self.logs.close();
        let _ = self.ended.recv_timeout(patience);
    }
}

fn run(logs: &Logs, directory: &LogDirectory) {
    let mut round_at = Instant::now();
    let mut reports = Reports::default();
    loop {
        let work = logs.await_archive_work(round_at);
        for endpoint in &work.deleted {
            directory.remove(endpoint);
        }
        let begun = Instant::now();
        let mut refusal = None;
        for endpoint in &work.endpoints {
            let put_back = |batch: &_, written_to| logs.put_back(endpoint, batch, written_to);
            let appended = directory.append(endpoint, || logs.take_unarchived(endpoint), put_back);
            refusal = appended.err().or(refusal);
        }
        if work.is_last {
            return;
        }
        let wait = match (&refusal, work.is_round) {
            (Some(_), _) => Some(ROUND_MAX),
            (None, true) => Some((begun.elapsed() * REST).clamp(ROUND, ROUND_MAX)),
            (None, false) => None,
        };
        round_at = wait.map_or(round_at, |wait| Instant::now() + wait);
        reports.report(directory, refusal, work.is_round, logs.lost_lines());
    }
}

/// Reports when lines cannot be written, and when they can again.
#[derive(Debug, Default)]
struct Reports {
    /// The lines that were lost before the present failure.
    failing_since: Option<u64>,
}

impl Reports {
    fn report(
        &mut self,
        directory: &LogDirectory,
        refusal: Option<Refusal>,
        is_round: bool,
        lost: u64,
    ) {
        let dir = directory.path().display();
        match refusal {
            Some(refusal) => {
                if self.failing_since.is_some() {
                    return;
                }
                self.failing_since = Some(lost);
                let meanwhile = "the newest lines are kept in memory";
                match refusal {
                    Refusal::NoRoom => warn!(
                        "handlers' log lines are not written to {dir}: the disk, or an owner's share \
                         of it, has no room; {meanwhile}"
                    ),
                    Refusal::Io(error) => warn!(
                        %error,
                        "handlers' log lines cannot be written to {dir}: {error}; {meanwhile}"
                    ),
                }
            }
            None if is_round => {
                if let Some(before) = self.failing_since.take() {
                    let lost = lost - before;
                    info!(
                        lost,
                        "handlers' log lines are written to {dir} again; {lost} lines are missing"
                    );
                }
            }
            None => {}
        }
    }
}
