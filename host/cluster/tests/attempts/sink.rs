//! The receiver of everything that an attempt sends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use gristmill_core::id::JobId;
use gristmill_core::job::handler_call::{CallError, HandlerCall};
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::Chunk;
use gristmill_core::job::state::JobStatus;
use gristmill_core::metrics::endpoint::RequestEnd;
use gristmill_core::runtime::{AttemptSink, HandlerHost, LogLevel, SinkClosed, StackCall};
use parking_lot::Mutex;

use crate::job_id;

/// Receives what an attempt sends.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    pub(crate) chunks: Mutex<Vec<Chunk>>,
    pub(crate) progress: Mutex<Vec<String>>,
    pub(crate) lines: Mutex<Vec<String>>,
    pub(crate) requests: Mutex<Vec<(RequestEnd, u64)>>,
    pub(crate) calls: Mutex<Vec<HandlerCall>>,
    /// Whether it takes no chunks.
    pub(crate) is_full: AtomicBool,
    /// Whether what it has taken is not on disk.
    pub(crate) is_behind: AtomicBool,
}

#[async_trait]
impl AttemptSink for Sink {
    async fn emit(&self, chunks: Vec<Chunk>) -> Result<(), SinkClosed> {
        if self.is_full.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.chunks.lock().extend(chunks);
        Ok(())
    }

    fn progress(&self, value: Json) {
        self.progress.lock().push(value.as_str().to_owned());
    }

    fn log(&self, level: LogLevel, line: &str) {
        self.lines.lock().push(format!("{} {line}", level.as_str()));
    }

    async fn requested(&self, end: RequestEnd, took_us: u64) {
        self.requests.lock().push((end, took_us));
    }

    fn trapped(&self, _: Vec<StackCall>) {}

    fn host(&self) -> Option<&dyn HandlerHost> {
        Some(self)
    }

    async fn stored(&self) -> Result<(), SinkClosed> {
        if self.is_behind.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn end_stored(&self) -> Result<(), SinkClosed> {
        self.stored().await
    }
}

#[async_trait]
impl HandlerHost for Sink {
    async fn submit(&self, call: HandlerCall) -> Result<JobId, CallError> {
        self.calls.lock().push(call);
        Ok(job_id())
    }

    async fn call(&self, call: HandlerCall) -> Result<Json, CallError> {
        self.calls.lock().push(call.clone());
        let sentence = || "why".to_owned();
        Err(match &*call.endpoint {
            "denied" => CallError::Denied(sentence()),
            "invalid" => CallError::InvalidRequest(sentence()),
            "full" => CallError::LimitReached(sentence()),
            "failed" => {
                CallError::Failed { id: job_id(), status: JobStatus::TimedOut, error: sentence() }
            }
            "late" => CallError::Timeout(sentence()),
            "other" => CallError::Other(sentence()),
            // The answer that is ready last.
            _ => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                return Ok(call.input);
            }
        })
    }
}
