//! Shows events of jobs and HTTP requests at once: one line on standard output each.
//!
//! **Bounds.** [`LINES_MAX`] lines wait for a slow terminal; further lines are counted instead of
//! shown, and no job waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use anyhow::Context as _;
use gristmill_commands::output;
use gristmill_core::deploy::endpoint::EndpointType;
use gristmill_core::id::JobId;
use gristmill_core::job::record::TIMED_OUT_ERROR;
use gristmill_core::runtime::{AttemptEnd, AttemptReport};
use gristmill_core::signals::event_notice::{JobEventNotice, JobListener};

use crate::local::describe_stack;
use crate::run;

/// Most lines that wait to be shown.
const LINES_MAX: usize = 10_000;

/// Shows lines, on a separate thread.
pub(super) struct EventLog {
    listener: Arc<Listener>,
}

enum EventLine {
    Line(String),
    /// Answered when all earlier lines have been shown.
    End(Sender<()>),
}

struct Listener {
    lines: SyncSender<EventLine>,
    dropped: Arc<AtomicU64>,
}

impl EventLog {
    /// # Errors
    /// When no thread can be started.
    pub(super) fn start() -> anyhow::Result<Self> {
        let (lines, receiver) = sync_channel(LINES_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let listener = Arc::new(Listener { lines, dropped: dropped.clone() });
        let shown = thread::Builder::new().name("ticker".to_owned());
        shown
            .spawn(move || show(&receiver, &dropped))
            .context("cannot start the thread that shows jobs")?;
        Ok(Self { listener })
    }

    /// The listener for the host.
    pub(super) fn listener(&self) -> Arc<dyn JobListener> {
        self.listener.clone()
    }

    /// Waits until all lines are shown.
    pub(super) fn finish(self) {
        let (done, wait) = channel();
        if self.listener.lines.send(EventLine::End(done)).is_ok() {
            // The thread has ended if standard output was closed.
            let _ = wait.recv();
        }
    }
}

fn show(lines: &Receiver<EventLine>, dropped: &AtomicU64) {
    while let Ok(said) = lines.recv() {
        let shown = match said {
            EventLine::Line(line) => output::result(output::plain(&line)),
            EventLine::End(done) => {
                let _ = done.send(());
                return;
            }
        };
        let skipped = dropped.swap(0, Ordering::Relaxed);
        if skipped > 0 {
            output::note(format_args!("{skipped} lines were not shown: the terminal is too slow"));
        }
        if shown.is_err() {
            return;
        }
    }
}

impl JobListener for Listener {
    fn notify_job_event(&self, kind: EndpointType, id: JobId, notice: JobEventNotice<'_>) {
        let subject = match kind {
            EndpointType::Queue => "job",
            EndpointType::LoadBalancer => "request",
        };
        for line in describe(notice) {
            if self.lines.try_send(EventLine::Line(format!("{subject} {id} {line}"))).is_err() {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Describes an event in words.
fn describe(notice: JobEventNotice<'_>) -> Vec<String> {
    match notice {
        JobEventNotice::Queued => vec!["submitted".to_owned()],
        JobEventNotice::Started { attempt: 1 } => vec!["started".to_owned()],
        JobEventNotice::Started { attempt } => vec![format!("started, attempt {attempt}")],
        JobEventNotice::Logged { level, line } => vec![format!("{}: {line}", level.as_str())],
        JobEventNotice::Trapped(stack) => describe_stack(stack),
        JobEventNotice::Ended(AttemptReport { end, usage, .. }) => {
            let summary = run::summary(usage);
            let (status, error) = match end {
                AttemptEnd::Returned(_) => ("COMPLETED", None),
                AttemptEnd::Failed { error, .. } => ("FAILED", Some(error.as_str())),
                AttemptEnd::DeadlineReached => ("TIMED_OUT", Some(TIMED_OUT_ERROR)),
                AttemptEnd::Stopped
                | AttemptEnd::NoMemory
                | AttemptEnd::HostLost(_)
                | AttemptEnd::Left => ("stopped", None),
            };
            let error = error.map(|error| format!(": {error}")).unwrap_or_default();
            vec![format!("{status} ({summary}){error}")]
        }
    }
}

#[cfg(test)]
mod tests {
    use gristmill_core::job::payload::Json;
    use gristmill_core::runtime::{FailureReason, LogLevel, Usage};

    use super::*;

    #[test]
    fn each_event_is_a_line() {
        let usage = Usage { run_us: 1_203, fuel: Some(33_518), chunks: 6, ..Usage::default() };
        let ended = |end: AttemptEnd| {
            describe(JobEventNotice::Ended(&AttemptReport { usage, ..end.into() })).concat()
        };
        let completed = ended(AttemptEnd::Returned(Json::null()));
        assert!(completed.starts_with("COMPLETED (ran 1.203 ms"), "{completed}");
        assert!(completed.contains("fuel 33 518"), "{completed}");
        let failed = ended(AttemptEnd::Failed {
            reason: FailureReason::Handler,
            error: "no flour".to_owned(),
        });
        assert!(failed.ends_with("chunks 6): no flour"), "{failed}");
        assert!(ended(AttemptEnd::DeadlineReached).starts_with("TIMED_OUT ("));
        assert_eq!(describe(JobEventNotice::Queued), ["submitted"]);
        assert_eq!(describe(JobEventNotice::Started { attempt: 2 }), ["started, attempt 2"]);
        let line = JobEventNotice::Logged { level: LogLevel::Warn, line: "low" };
        assert_eq!(describe(line), ["warn: low"]);
    }
}
