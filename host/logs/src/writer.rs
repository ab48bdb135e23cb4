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
            match appended {
                Ok(()) => logs.confirm(endpoint),
                Err(refused) => refusal = worse(refusal, Some(refused)),
            }
        }
        if work.is_last {
            return;
        }
        if work.is_round {
            round_at = Instant::now() + pause(refusal.as_ref(), begun.elapsed());
        }
        reports.report(directory, refusal, work.is_round, logs.lost_lines());
    }
}

/// The pause after a round that took so long. An owner without room costs no operation of the disk,
/// and must not delay the lines of others.
fn pause(refusal: Option<&Refusal>, took: Duration) -> Duration {
    match refusal {
        Some(Refusal::Io(_)) => ROUND_MAX,
        Some(Refusal::NoRoom) | None => (took * REST).clamp(ROUND, ROUND_MAX),
    }
}

/// The refusal to report: a failure of the disk concerns all owners.
fn worse(refusal: Option<Refusal>, next: Option<Refusal>) -> Option<Refusal> {
    match (refusal, next) {
        (Some(Refusal::Io(error)), _) => Some(Refusal::Io(error)),
        (refusal, next) => next.or(refusal),
    }
}

/// Reports when lines cannot be written, and when they can again.
#[derive(Debug, Default)]
struct Reports {
    failure: Option<Failure>,
}

/// A failure that was reported, and has not ended.
#[derive(Debug, Clone, Copy)]
struct Failure {
    /// The lines that were lost before it.
    lost_before: u64,
    /// Whether the disk failed, beside having no room.
    is_of_disk: bool,
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
                let is_of_disk = matches!(refusal, Refusal::Io(_));
                if self.failure.is_some_and(|known| known.is_of_disk || !is_of_disk) {
                    return;
                }
                let lost_before = self.failure.map_or(lost, |known| known.lost_before);
                self.failure = Some(Failure { lost_before, is_of_disk });
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
                if let Some(failure) = self.failure.take() {
                    let lost = lost - failure.lost_before;
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

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn only_a_failure_of_the_disk_slows_the_rounds_down_and_it_is_the_one_to_report() {
        let io = || Some(Refusal::Io(io::ErrorKind::Other.into()));
        let no_room = || Some(Refusal::NoRoom);
        for (first, second, is_of_disk) in [
            (None, None, false),
            (no_room(), None, false),
            (None, no_room(), false),
            (no_room(), io(), true),
            (io(), no_room(), true),
            (io(), None, true),
        ] {
            let has_any = first.is_some() || second.is_some();
            let refusal = worse(first, second);
            assert_eq!(refusal.is_some(), has_any);
            assert_eq!(matches!(refusal, Some(Refusal::Io(_))), is_of_disk);
            let expected = if is_of_disk { ROUND_MAX } else { ROUND };
            assert_eq!(pause(refusal.as_ref(), Duration::ZERO), expected);
        }
    }
}
