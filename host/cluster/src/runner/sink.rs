//! The output of an attempt on its way to the active host.
//!
//! **Bounds.** An emit, and the end of a request, waits while a MiB of these waits for the
//! connection. A progress value replaces the one that was not sent yet. The runtime limits the log
//! lines of an attempt.

use std::collections::HashMap;

use async_trait::async_trait;
use gristmill_core::id::JobId;
use gristmill_core::job::handler_call::{CallError, HandlerCall};
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::Chunk;
use gristmill_core::metrics::endpoint::RequestEnd;
use gristmill_core::runtime::{AttemptSink, HandlerHost, LogLevel, SinkClosed, StackCall};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::convert;
use crate::frames::FrameSender;
use crate::messages::{Answer, Answered, End, FromRunner, Report};

/// Sends the output of an attempt.
pub(super) struct ReportSink {
    /// `None` after the end of the attempt.
    reports: Mutex<Option<FrameSender>>,
    progress: Mutex<Option<Json>>,
    has_progress: Notify,
    calls: Mutex<Calls>,
}

/// The calls of other endpoints that wait for an answer.
#[derive(Default)]
struct Calls {
    made: u64,
    waiting: HashMap<u64, oneshot::Sender<Answered>>,
}

impl ReportSink {
    pub(super) fn new(reports: FrameSender) -> Self {
        Self {
            reports: Mutex::new(Some(reports)),
            progress: Mutex::default(),
            has_progress: Notify::new(),
            calls: Mutex::default(),
        }
    }

    /// Resolves when there is a progress value to send.
    pub(super) async fn has_progress(&self) {
        self.has_progress.notified().await;
    }

    pub(super) fn send_progress(&self) {
        let value = self.progress.lock().take();
        if let Some(value) = value {
            self.send(Report::Progress(value.as_bytes().clone()));
        }
    }

    /// Hands the answer to the call that waits for it.
    pub(super) fn answered(&self, answer: Answer) {
        let waiting = self.calls.lock().waiting.remove(&answer.call);
        if let (Some(waiting), Some(answered)) = (waiting, answer.answered) {
            // The handler may have ended.
            let _ = waiting.send(answered);
        }
    }

    /// Sends the end of the attempt, and nothing more.
    pub(super) fn end(&self, end: End) {
        self.send_progress();
        self.send(Report::End(end));
        self.reports.lock().take();
    }

    /// The active host may have left: then this attempt is about to be dropped.
    fn send(&self, report: Report) {
        if let Some(reports) = &*self.reports.lock() {
            let _ = reports.send(&FromRunner { report: Some(report) });
        }
    }

    /// Sends a report when the earlier ones that wait for the connection leave room for it.
    async fn send_in_window(&self, report: Report) -> Result<(), SinkClosed> {
        let reports = self.reports.lock().clone().ok_or(SinkClosed)?;
        reports.send_in_window(&FromRunner { report: Some(report) }).await.map_err(|_| SinkClosed)
    }

    async fn ask(&self, call: HandlerCall, waits: bool) -> Result<Answered, CallError> {
        let (answer, answered) = oneshot::channel();
        let number = {
            let mut calls = self.calls.lock();
            calls.made += 1;
            let number = calls.made;
            calls.waiting.insert(number, answer);
            number
        };
        self.send(Report::Call(convert::call(number, call, waits)));
        match answered.await {
            Ok(Answered::Error(refusal)) => Err(convert::call_error(refusal)),
            Ok(answered) => Ok(answered),
            Err(_) => Err(CallError::Other("the attempt is over".to_owned())),
        }
    }
}

fn unexpected() -> CallError {
    CallError::Other("the active host has sent an answer of another kind".to_owned())
}

#[async_trait]
impl AttemptSink for ReportSink {
    async fn emit(&self, chunks: Vec<Chunk>) -> Result<(), SinkClosed> {
        self.send_in_window(Report::Chunks(convert::chunks(chunks))).await
    }

    fn progress(&self, value: Json) {
        *self.progress.lock() = Some(value);
        self.has_progress.notify_one();
    }

    fn log(&self, level: LogLevel, line: &str) {
        self.send(Report::Log(convert::log_line(level, line)));
    }

    async fn requested(&self, end: RequestEnd, took_us: u64) {
        let report = Report::Requested(convert::requested(end, took_us));
        // It is not counted after the end of the attempt.
        let _ = self.send_in_window(report).await;
    }

    // Only `gristmill dev` explains traps, and has no runners.
    fn trapped(&self, _: Vec<StackCall>) {}

    fn host(&self) -> Option<&dyn HandlerHost> {
        Some(self)
    }
}

#[async_trait]
impl HandlerHost for ReportSink {
    async fn submit(&self, call: HandlerCall) -> Result<JobId, CallError> {
        match self.ask(call, false).await? {
            Answered::Job(id) => id.parse().map_err(|_| unexpected()),
            _ => Err(unexpected()),
        }
    }

    async fn call(&self, call: HandlerCall) -> Result<Json, CallError> {
        match self.ask(call, true).await? {
            Answered::Output(output) => Json::parse(output).map_err(|_| unexpected()),
            _ => Err(unexpected()),
        }
    }
}
