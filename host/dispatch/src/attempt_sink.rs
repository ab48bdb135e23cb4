//! The receiver of everything that an attempt sends: chunks and progress go to the store, lines to
//! the logs, and calls of other endpoints to their queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use gristmill_core::deploy::endpoint::Endpoint;
use gristmill_core::id::JobId;
use gristmill_core::incarnation::EndpointIncarnation;
use gristmill_core::job::handler_call::{CallError, HandlerCall};
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{Chunk, Lease, Outcome};
use gristmill_core::jobs::handler_calls::Caller;
use gristmill_core::metrics::endpoint::RequestEnd;
use gristmill_core::runtime::{AttemptSink, HandlerHost, LogLevel, SinkClosed, StackCall};
use gristmill_core::signals::event_notice::JobEventNotice;
use gristmill_core::store::Fenced;
use gristmill_core::trace::TraceId;
use parking_lot::Mutex;
use tokio::sync::{Notify, SetOnce};

use crate::shared::Shared;

/// The place of the attempt's worker among the `workersMax` of its endpoint.
pub(crate) trait Place: Send + Sync + 'static {
    /// Lends the place to a job that a call waits for.
    fn lend(&self);

    /// Waits until the worker has a place again.
    fn take_again(&self) -> impl Future<Output = ()> + Send;
}

/// Most calls of a stack in the log: the innermost ones.
const STACK_CALLS_MAX: usize = 32;

/// The stack of a trap as log lines, the innermost call first; none for a component without names.
fn stack_lines(stack: &[StackCall]) -> Vec<String> {
    let named = stack.iter().filter_map(|call| {
        let function = call.source_name()?;
        Some(match &call.location {
            Some(location) => format!("trap: at {function} ({location})"),
            None => format!("trap: at {function}"),
        })
    });
    named.take(STACK_CALLS_MAX).collect()
}

/// Receives chunks, progress and log lines of the sandbox during the attempt.
pub(crate) struct Sink<P> {
    shared: Arc<Shared>,
    lease: Lease,
    /// The attempt, as its handler's calls of other endpoints show it.
    caller: Caller,
    /// The worker's place, which it lends during such a call.
    place: P,
    /// The trace of the job, for its log lines.
    trace: Option<TraceId>,
    progress: Mutex<Progress>,
    has_progress: Notify,
    /// Bytes of the chunks that the store has accepted.
    chunk_bytes: AtomicU64,
    /// Whether the store knows the end of the attempt.
    is_decided: SetOnce<()>,
}

/// The newest progress value; a newer one replaces it.
#[derive(Default)]
struct Progress {
    value: Option<Json>,
    is_stored: bool,
}

impl<P> Sink<P> {
    /// The receiver of the attempt with this lease. The store has `chunk_bytes` of its chunks
    /// already.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        lease: Lease,
        caller: Caller,
        place: P,
        chunk_bytes: u64,
    ) -> Self {
        Self {
            shared: shared.clone(),
            lease,
            trace: caller.trace.as_ref().map(|trace| trace.trace),
            caller,
            place,
            progress: Mutex::default(),
            has_progress: Notify::new(),
            chunk_bytes: AtomicU64::new(chunk_bytes),
            is_decided: SetOnce::new(),
        }
    }

    fn endpoint(&self) -> &Endpoint {
        &self.caller.deployment.endpoint
    }

    pub(crate) fn incarnation(&self) -> &EndpointIncarnation {
        &self.caller.deployment.incarnation
    }

    /// The end of a failed attempt, with its partial output.
    pub(crate) fn failed(&self, error: String) -> Outcome {
        match self.progress.lock().value.take() {
            Some(output) => Outcome::FailedWith { error, output },
            None => Outcome::Failed(error),
        }
    }

    /// The store knows the end of the attempt.
    pub(crate) fn decided(&self) {
        // It ends once.
        let _ = self.is_decided.set(());
    }

    /// Bytes of the chunks that the store has accepted.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes.load(Ordering::Relaxed)
    }

    /// Resolves when there is a progress value to store.
    pub(crate) async fn has_progress(&self) {
        self.has_progress.notified().await;
    }

    pub(crate) async fn store_progress(&self) {
        let value = {
            let mut progress = self.progress.lock();
            let is_stored = std::mem::replace(&mut progress.is_stored, true);
            progress.value.clone().filter(|_| !is_stored)
        };
        let Some(value) = value else { return };
        // With a stale lease, no client can ask for the value any more.
        let _ = self.shared.store.set_progress(self.lease, value).await;
    }
}

#[async_trait]
impl<P: Place> AttemptSink for Sink<P> {
    async fn emit(&self, chunks: Vec<Chunk>) -> Result<(), SinkClosed> {
        let bytes: usize = chunks.iter().map(Chunk::len).sum();
        match self.shared.store.append_chunks(self.lease, chunks).await {
            Ok(Fenced::Applied) => {
                self.chunk_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                Ok(())
            }
            Ok(Fenced::Stale) | Err(_) => Err(SinkClosed),
        }
    }

    fn progress(&self, value: Json) {
        *self.progress.lock() = Progress { value: Some(value), is_stored: false };
        self.has_progress.notify_one();
    }

    fn log(&self, level: LogLevel, line: &str) {
        let Shared { logs, clock, signals, .. } = &*self.shared;
        logs.add(self.incarnation(), clock.now(), self.lease.job, level, line);
        let logged = JobEventNotice::Logged { level, line };
        signals.notify_job_event(self.endpoint().kind, self.lease.job, logged);
        macro_rules! write {
            ($level:ident) => {
                tracing::$level!(
                    target: "handler",
                    {
                        job.id = %self.lease.job,
                        endpoint.id = %self.endpoint().id,
                        trace.id = self.trace.map(tracing::field::display),
                    },
                    "{line}"
                )
            };
        }
        match level {
            LogLevel::Trace => write!(trace),
            LogLevel::Debug => write!(debug),
            LogLevel::Info => write!(info),
            LogLevel::Warn => write!(warn),
            LogLevel::Error => write!(error),
        }
    }

    async fn requested(&self, end: RequestEnd, took_us: u64) {
        self.incarnation().metrics().request_ended(end, took_us);
    }

    fn trapped(&self, stack: Vec<StackCall>) {
        let Self { shared, lease, .. } = self;
        // Beside the job's error, which has one sentence: the console shows the lines of a job.
        for line in stack_lines(&stack) {
            let now = shared.clock.now();
            shared.logs.add(self.incarnation(), now, lease.job, LogLevel::Error, &line);
        }
        let trapped = JobEventNotice::Trapped(&stack);
        shared.signals.notify_job_event(self.endpoint().kind, lease.job, trapped);
    }

    fn host(&self) -> Option<&dyn HandlerHost> {
        Some(self)
    }

    async fn stored(&self) -> Result<(), SinkClosed> {
        self.shared.store.durable(self.lease.job).await.map_err(|_| SinkClosed)
    }

    async fn end_stored(&self) -> Result<(), SinkClosed> {
        self.is_decided.wait().await;
        self.stored().await
    }
}

#[async_trait]
impl<P: Place> HandlerHost for Sink<P> {
    async fn submit(&self, call: HandlerCall) -> Result<JobId, CallError> {
        self.shared.handler_calls.submit(&self.caller, call).await
    }

    async fn call(&self, call: HandlerCall) -> Result<Json, CallError> {
        let called = self.shared.handler_calls.begin(&self.caller, call).await?;
        self.place.lend();
        let output = called.output().await;
        self.place.take_again().await;
        output
    }
}

#[cfg(test)]
mod tests {
    use gristmill_core::runtime::SourceLocation;

    use super::*;

    #[test]
    fn a_stack_has_a_line_for_each_call_with_a_name() {
        let call = |function: Option<&str>, location: Option<(&str, Option<u32>)>| StackCall {
            function: function.map(str::to_owned),
            location: location.map(|(file, line)| SourceLocation { file: file.to_owned(), line }),
        };
        let stack = [
            call(Some("core::panicking::panic"), None),
            call(None, Some(("src/lib.rs", Some(3)))),
            call(Some("count"), Some(("src/lib.rs", Some(7)))),
            call(Some("main"), Some(("src/main.rs", None))),
            call(Some("gristmill:handler/run@0.1.0#handle"), None),
        ];
        let expected = [
            "trap: at core::panicking::panic",
            "trap: at count (src/lib.rs:7)",
            "trap: at main (src/main.rs)",
        ];
        assert_eq!(stack_lines(&stack), expected);
        assert_eq!(stack_lines(&vec![stack[0].clone(); 900]).len(), STACK_CALLS_MAX);
    }
}
