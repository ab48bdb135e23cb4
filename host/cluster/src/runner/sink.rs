//! The output of an attempt on its way to the active host.
//!
//! **Promise.** It is not bound to a connection: [`attach`](ReportSink::attach) sends over another
//! one what the former one has not delivered, and each report and each call takes effect once.
//!
//! **Bounds.** An emit, and the end of a request, waits while [`ATTEMPT_BYTES_MAX`] of reports are
//! not taken, or, without a connection, [`HOST_BYTES_MAX`] of all attempts. Without a connection an
//! end beyond this bound is given up, and its job runs again. A progress value replaces the one
//! before it. The runtime limits the log lines of an attempt, and the calls that wait for answers.
//!
//! [`ATTEMPT_BYTES_MAX`]: super::unconfirmed::ATTEMPT_BYTES_MAX

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use gristmill_core::id::JobId;
use gristmill_core::job::handler_call::{CallError, HandlerCall};
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::Chunk;
use gristmill_core::metrics::endpoint::RequestEnd;
use gristmill_core::runtime::{AttemptSink, HandlerHost, LogLevel, SinkClosed, StackCall};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::unconfirmed::Unconfirmed;
use crate::convert;
use crate::frames::FrameSender;
use crate::messages::{Answer, Answered, Call, End, FromRunner, Report};

/// Bytes of the reports of all attempts that may be kept without a connection.
const HOST_BYTES_MAX: usize = 64 << 20;

/// Bytes of the reports that all attempts of this host keep.
#[derive(Debug, Default)]
pub(super) struct KeptBytes(AtomicUsize);

/// Sends the output of an attempt.
pub(super) struct ReportSink {
    job: JobId,
    state: Mutex<State>,
    connection: watch::Sender<Attachment>,
    kept_bytes: Arc<KeptBytes>,
    has_progress: Notify,
    /// Some reports were taken, or there is a connection again.
    has_room: Notify,
}

#[derive(Default)]
struct State {
    reports: Unconfirmed,
    /// Chunks that were emitted.
    chunks: u64,
    /// `None` without a connection, and after the end.
    sender: Option<FrameSender>,
    /// How often there was a connection.
    attached: u64,
    /// The newest value, and whether it was sent over this connection.
    progress: Option<(Json, bool)>,
    calls: Calls,
    /// The number of the end, once there is one.
    end: Option<u64>,
    /// Whether nothing is sent any more: the end was taken, or the active host does not want it.
    is_over: bool,
}

/// The calls of other endpoints that wait for an answer.
#[derive(Default)]
struct Calls {
    made: u64,
    waiting: BTreeMap<u64, (Call, oneshot::Sender<Answered>)>,
}

/// Whether an attempt has a connection.
#[derive(Debug, Clone)]
enum Attachment {
    Attached,
    /// Its request has ended, and perhaps its connection, which `lost` shows.
    Detached {
        since: Instant,
        lost: CancellationToken,
    },
    /// The active host has left it to the next one, and ends before long.
    Left {
        lost: CancellationToken,
    },
    /// Nothing is sent any more.
    Over,
}

/// The use of a connection by an attempt. It ends when this is dropped.
pub(super) struct Attached {
    sink: Arc<ReportSink>,
    /// Counts the connections of the attempt, so that a former one does not end a later one.
    number: u64,
    lost: CancellationToken,
    is_left: bool,
}

impl Attached {
    /// The active host leaves the attempt to the next one.
    pub(super) fn leave(mut self) {
        self.is_left = true;
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut state = self.sink.state.lock();
        if state.attached == self.number && state.sender.take().is_some() {
            let lost = self.lost.clone();
            self.sink.connection.send_replace(match self.is_left {
                true => Attachment::Left { lost },
                false => Attachment::Detached { since: Instant::now(), lost },
            });
        }
    }
}

impl ReportSink {
    /// The output of an attempt at this job that is still to be attached.
    pub(super) fn new(job: JobId, kept_bytes: Arc<KeptBytes>) -> Arc<Self> {
        Arc::new(Self {
            job,
            state: Mutex::default(),
            connection: watch::Sender::new(Attachment::Attached),
            kept_bytes,
            has_progress: Notify::new(),
            has_room: Notify::new(),
        })
    }

    /// Sends the output over this connection from now on, beginning after the report with the
    /// number `received`. `lost` fires when the connection ends.
    pub(super) fn attach(
        self: &Arc<Self>,
        sender: FrameSender,
        received: u64,
        lost: CancellationToken,
    ) -> Attached {
        let mut state = self.state.lock();
        state.attached += 1;
        let number = state.attached;
        if !state.is_over {
            for (call, _) in state.calls.waiting.values() {
                send(&sender, Report::Call(call.clone()));
            }
            if let Some((value, is_sent)) = &mut state.progress {
                *is_sent = true;
                send(&sender, Report::Progress(value.as_bytes().clone()));
            }
            for message in state.reports.after(received) {
                let _ = sender.send(message);
            }
            state.sender = Some(sender);
            self.connection.send_replace(Attachment::Attached);
        }
        drop(state);
        self.has_room.notify_waiters();
        Attached { sink: self.clone(), number, lost, is_left: false }
    }

    /// Resolves when the attempt has had no connection for `within`. A request that ends while its
    /// connection goes on was given up by the active host, unless that has left the attempt; the
    /// end of the connection is seen within `noticed`.
    pub(super) async fn given_up(&self, within: Duration, noticed: Duration) {
        let mut connection = self.connection.subscribe();
        loop {
            let now = connection.borrow_and_update().clone();
            let wait = async {
                match now {
                    Attachment::Attached => std::future::pending().await,
                    Attachment::Detached { since, lost } => {
                        tokio::select! {
                            () = lost.cancelled() => {}
                            () = sleep_until(since + noticed.min(within)) => return,
                        }
                        sleep_until(since + within).await;
                    }
                    Attachment::Left { lost } => {
                        lost.cancelled().await;
                        sleep(within).await;
                    }
                    Attachment::Over => {}
                }
            };
            tokio::select! {
                () = wait => return,
                changed = connection.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Ends it: the active host does not want it, or the attempt is over.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        state.sender = None;
        let bytes = state.reports.take(u64::MAX);
        self.kept_bytes.0.fetch_sub(bytes, Ordering::Relaxed);
        self.connection.send_replace(Attachment::Over);
        drop(state);
        self.has_room.notify_waiters();
    }

    /// Resolves when there is a progress value to send.
    pub(super) async fn has_progress(&self) {
        self.has_progress.notified().await;
    }

    pub(super) fn send_progress(&self) {
        self.state.lock().send_progress();
    }

    /// Hands the answer to the call that waits for it.
    pub(super) fn answered(&self, answer: Answer) {
        let mut state = self.state.lock();
        let waiting = state.calls.waiting.remove(&answer.call);
        state.send(Report::AnswerTaken(answer.call));
        if let (Some((_, waiting)), Some(answered)) = (waiting, answer.answered) {
            // The handler may have ended.
            let _ = waiting.send(answered);
        }
    }

    /// The active host has taken the reports up to this number. After the end, the attempt is over.
    pub(super) fn taken(&self, through: u64) {
        let mut state = self.state.lock();
        let bytes = state.reports.take(through);
        self.kept_bytes.0.fetch_sub(bytes, Ordering::Relaxed);
        let is_over = state.end.is_some_and(|end| end <= through);
        drop(state);
        self.has_room.notify_waiters();
        if is_over {
            self.close();
        }
    }

    /// Sends the end of the attempt, and nothing more. Gives it up when it may not be kept.
    pub(super) fn end(&self, end: End) {
        let report = Report::End(end);
        let mut state = self.state.lock();
        if state.is_over {
            return;
        }
        state.send_progress();
        state.calls.waiting.clear();
        let bytes = Unconfirmed::bytes_of(&report);
        if state.sender.is_none()
            && self.kept_bytes.0.load(Ordering::Relaxed) + bytes > HOST_BYTES_MAX
        {
            drop(state);
            self.close();
            return;
        }
        self.keep(&mut state, report);
        state.end = Some(state.reports.last());
    }

    fn keep(&self, state: &mut State, mut report: Report) {
        if let Report::Chunks(chunks) = &mut report {
            chunks.first = state.chunks;
            state.chunks += chunks.chunks.len() as u64;
        }
        let before = state.reports.bytes();
        let message = state.reports.keep(report);
        self.kept_bytes.0.fetch_add(state.reports.bytes() - before, Ordering::Relaxed);
        if let Some(sender) = &state.sender {
            let _ = sender.send(&message);
        }
    }

    /// Keeps and sends a report once there is room for it.
    async fn keep_in_room(&self, report: Report) -> Result<(), SinkClosed> {
        loop {
            let has_room = self.has_room.notified();
            {
                let mut state = self.state.lock();
                if state.has_ended() {
                    return Err(SinkClosed);
                }
                let host = || self.kept_bytes.0.load(Ordering::Relaxed) < HOST_BYTES_MAX;
                if state.reports.has_room() && (state.sender.is_some() || host()) {
                    self.keep(&mut state, report);
                    return Ok(());
                }
            }
            has_room.await;
        }
    }

    async fn ask(&self, mut call: HandlerCall, waits: bool) -> Result<Answered, CallError> {
        let (answer, answered) = oneshot::channel();
        call.job = self.job.of_call();
        {
            let mut state = self.state.lock();
            state.calls.made += 1;
            let number = state.calls.made;
            let call = convert::call(number, call, waits);
            state.send(Report::Call(call.clone()));
            state.calls.waiting.insert(number, (call, answer));
        }
        match answered.await {
            Ok(Answered::Error(refusal)) => Err(convert::call_error(refusal)),
            Ok(answered) => Ok(answered),
            Err(_) => Err(CallError::Other("the attempt is over".to_owned())),
        }
    }
}

impl State {
    fn has_ended(&self) -> bool {
        self.is_over || self.end.is_some()
    }

    fn send(&self, report: Report) {
        if let Some(sender) = &self.sender {
            send(sender, report);
        }
    }

    fn send_progress(&mut self) {
        if let (Some(sender), Some((value, is_sent @ false))) = (&self.sender, &mut self.progress) {
            *is_sent = true;
            send(sender, Report::Progress(value.as_bytes().clone()));
        }
    }
}

/// Sends a report without a number. A connection that is lost takes none.
fn send(sender: &FrameSender, report: Report) {
    let _ = sender.send(&FromRunner { report: Some(report), number: 0 });
}

fn unexpected() -> CallError {
    CallError::Other("the active host has sent an answer of another kind".to_owned())
}

#[async_trait]
impl AttemptSink for ReportSink {
    async fn emit(&self, chunks: Vec<Chunk>) -> Result<(), SinkClosed> {
        self.keep_in_room(Report::Chunks(convert::chunks(chunks))).await
    }

    fn progress(&self, value: Json) {
        self.state.lock().progress = Some((value, false));
        self.has_progress.notify_one();
    }

    fn log(&self, level: LogLevel, line: &str) {
        let mut state = self.state.lock();
        if !state.has_ended() {
            self.keep(&mut state, Report::Log(convert::log_line(level, line)));
        }
    }

    async fn requested(&self, end: RequestEnd, took_us: u64) {
        let report = Report::Requested(convert::requested(end, took_us));
        // It is not counted after the end of the attempt.
        let _ = self.keep_in_room(report).await;
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
