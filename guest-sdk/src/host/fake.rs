//! The host of native tests: returns prepared answers, and records calls.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::testing::{Call, Chunk, RetryWish};
use crate::{CallError, EmitError, Level, S3Config, http};

/// The pieces of an answer's body, or the error after some of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pieces(pub(crate) VecDeque<Result<Vec<u8>, http::Error>>);

impl Pieces {
    /// The next piece; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, http::Error> {
        self.0.pop_front().transpose()
    }
}

pub(crate) type HttpResult = Result<http::Response<Pieces>, http::Error>;

pub(crate) type CallResult = Result<Value, CallError>;

/// Shared between a `Context` and the `TestContext` around it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Host(Arc<Mutex<State>>);

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) attempt: u32,
    pub(crate) endpoint: String,
    pub(crate) remaining: Duration,
    /// How many chunks are emitted before `cancelled` turns true; `None` for never.
    pub(crate) cancelled_after_chunks: Option<usize>,
    pub(crate) s3_config: Option<S3Config>,
    pub(crate) trace_parent: Option<String>,
    pub(crate) emit_limit_bytes: Option<u64>,
    pub(crate) emit_closed: bool,
    /// Answers by URL, in order; the last one repeats.
    pub(crate) responses: HashMap<String, VecDeque<HttpResult>>,
    /// Answers by endpoint, in the same way.
    pub(crate) call_results: HashMap<String, VecDeque<CallResult>>,

    pub(crate) chunks: Vec<Chunk>,
    pub(crate) chunk_bytes: u64,
    pub(crate) progress: Vec<Value>,
    pub(crate) logs: Vec<(Level, String)>,
    pub(crate) requests: Vec<http::Request>,
    pub(crate) calls: Vec<Call>,
    pub(crate) retired: bool,
    pub(crate) retry_wish: Option<RetryWish>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            attempt: 1,
            endpoint: "test-endpoint".to_owned(),
            remaining: Duration::from_secs(600),
            cancelled_after_chunks: None,
            s3_config: None,
            trace_parent: None,
            emit_limit_bytes: None,
            emit_closed: false,
            responses: HashMap::new(),
            call_results: HashMap::new(),
            chunks: Vec::new(),
            chunk_bytes: 0,
            progress: Vec::new(),
            logs: Vec::new(),
            requests: Vec::new(),
            calls: Vec::new(),
            retired: false,
            retry_wish: None,
        }
    }
}

impl Host {
    /// A test may still read the state after a handler panicked.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn attempt(&self) -> u32 {
        self.state().attempt
    }

    pub(crate) fn endpoint(&self) -> String {
        self.state().endpoint.clone()
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.state().remaining
    }

    pub(crate) fn cancelled(&self) -> bool {
        let state = self.state();
        state.cancelled_after_chunks.is_some_and(|chunks| state.chunks.len() >= chunks)
    }

    pub(crate) fn s3_config(&self) -> Option<S3Config> {
        self.state().s3_config.clone()
    }

    pub(crate) fn trace_parent(&self) -> Option<String> {
        self.state().trace_parent.clone()
    }

    pub(crate) fn retire(&self) {
        self.state().retired = true;
    }

    pub(crate) fn retry_after(&self, delay: Option<Duration>) {
        self.state().retry_wish = Some(delay.map_or(RetryWish::Never, RetryWish::After));
    }

    pub(crate) fn emit(&self, output: &str, metrics: Option<&str>) -> Result<(), EmitError> {
        let mut state = self.state();
        if state.emit_closed {
            return Err(EmitError::Closed);
        }
        if metrics.is_some_and(|metrics| !metrics.starts_with('{')) {
            return Err(EmitError::InvalidJson("metrics are not an object".to_owned()));
        }
        let bytes = (output.len() + metrics.map_or(0, str::len)) as u64;
        if let Some(limit_bytes) = state.emit_limit_bytes
            && state.chunk_bytes + bytes > limit_bytes
        {
            return Err(EmitError::QuotaExceeded { limit_bytes });
        }
        state.chunk_bytes += bytes;
        state.chunks.push(Chunk::new(output, metrics));
        Ok(())
    }

    pub(crate) fn progress(&self, value: &str) {
        let value = serde_json::from_str(value).expect("serde_json reads what it wrote");
        self.state().progress.push(value);
    }

    pub(crate) fn log(&self, level: Level, message: &str) {
        self.state().logs.push((level, message.to_owned()));
    }

    pub(crate) fn http_send(&self, request: http::Request) -> Result<http::Response, http::Error> {
        let answer = self.http_stream(request)?;
        let body = answer.body.0.iter().cloned().collect::<Result<Vec<_>, _>>()?.concat();
        Ok(answer.with_body(|_| body))
    }

    pub(crate) fn http_stream(&self, request: http::Request) -> HttpResult {
        let mut state = self.state();
        let answer = next(&mut state.responses, &request.url);
        let url = request.url.clone();
        state.requests.push(request);
        answer.unwrap_or(Err(http::Error::Denied(url)))
    }

    /// Uses up no answer: those are the results of `call`.
    pub(crate) fn submit(
        &self,
        endpoint: &str,
        input: &str,
        key: Option<&str>,
    ) -> Result<String, CallError> {
        let mut state = self.state();
        state.calls.push(Call::new(endpoint, input, key));
        match state.call_results.contains_key(endpoint) {
            true => Ok(format!("test-job-{}", state.calls.len())),
            false => Err(not_prepared(endpoint)),
        }
    }

    pub(crate) fn call(
        &self,
        endpoint: &str,
        input: &str,
        key: Option<&str>,
    ) -> Result<String, CallError> {
        let mut state = self.state();
        state.calls.push(Call::new(endpoint, input, key));
        let answer = next(&mut state.call_results, endpoint);
        answer.unwrap_or_else(|| Err(not_prepared(endpoint))).map(|output| output.to_string())
    }
}

/// The next answer of several in order; the last one repeats.
fn next<T: Clone>(answers: &mut HashMap<String, VecDeque<T>>, name: &str) -> Option<T> {
    match answers.get_mut(name) {
        Some(answers) if answers.len() > 1 => answers.pop_front(),
        Some(answers) => answers.front().cloned(),
        None => None,
    }
}

fn not_prepared(endpoint: &str) -> CallError {
    CallError::Denied(format!("endpoint `{endpoint}`: the test has no answer for it"))
}

/// Like the host for a handler's output: one JSON value, or the job fails.
pub(crate) fn is_json(text: &str) -> Result<(), serde_json::Error> {
    serde_json::from_str::<&RawValue>(text).map(drop)
}
