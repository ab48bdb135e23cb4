//! A fake host, so that handlers run in a plain native `cargo test`.
//!
//! ```
//! use gristmill_sdk::testing::TestContext;
//! use gristmill_sdk::{Context, Error};
//! use serde_json::json;
//!
//! fn countdown(ctx: &Context, from: u32) -> Result<(), Error> {
//!     for i in (1..=from).rev() {
//!         ctx.check_cancelled()?;
//!         ctx.emit(&i)?;
//!     }
//!     Ok(())
//! }
//!
//! let ctx = TestContext::new();
//! countdown(&ctx, 3)?;
//! assert_eq!(ctx.outputs(), [json!(3), json!(2), json!(1)]);
//!
//! // Or with JSON text as input and output, as the host runs it.
//! assert_eq!(TestContext::new().run_json(countdown, "2")?, "null");
//! # Ok::<(), Error>(())
//! ```
//!
//! The fake has no timing: `emit` never waits, every progress value is kept, and nothing stops a
//! handler that does not return. This module exists only in native builds.

use std::ops::Deref;
use std::path::Path;
use std::time::Duration;
use std::{env, fs};

use serde_json::Value;

use crate::host::{Host, Pieces, is_json};
use crate::{CallError, Context, Error, Handler, Level, S3Config, http};

/// The environment variable with which [`assert_schema`] writes the file.
const UPDATE: &str = "UPDATE_SCHEMA";

/// Compares the JSON Schema of an input with a file of the project, which `input-schema` in
/// `gristmill.toml` names. A file that does not exist is written, and with the environment variable
/// `UPDATE_SCHEMA=1` also one that differs, so that each change of the schema is a change of a
/// file.
///
/// The schema usually comes from the crate `schemars`, a dev-dependency of the project:
///
/// ```ignore
/// #[derive(serde::Deserialize)]
/// #[cfg_attr(test, derive(schemars::JsonSchema))]
/// struct Input {
///     text: String,
/// }
///
/// #[test]
/// fn the_schema_is_that_of_the_input() {
///     gristmill_sdk::testing::assert_schema("schema.json", &schemars::schema_for!(Input));
/// }
/// ```
///
/// # Panics
/// When the file differs, or cannot be read or written.
#[expect(clippy::panic, reason = "a failed assertion")]
pub fn assert_schema(file: &str, schema: &impl serde::Serialize) {
    let project = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let path = Path::new(&project).join(file);
    let text = serde_json::to_string_pretty(schema).expect("a schema is JSON") + "\n";
    let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
    if path.exists() && env::var_os(UPDATE).is_none() {
        let found = fs::read_to_string(&path);
        let found = found.unwrap_or_else(|error| panic!("cannot read {file}: {error}"));
        assert!(
            parsed(&found) == parsed(&text),
            "{file} is not the schema of the input any more; write it with {UPDATE}=1 cargo test"
        );
    } else {
        fs::write(&path, text).unwrap_or_else(|error| panic!("cannot write {file}: {error}"));
    }
}

/// A [`Context`] with a fake host: prepare it with `with_…`, pass it to the handler as `&ctx`, then
/// inspect what the handler did.
///
/// By default it is attempt 1 of job `test-job` on endpoint `test-endpoint`, with 600 s
/// left, no `s3Config`, no limit on chunks, and no host or other endpoint that it may call.
///
/// ```
/// use std::time::Duration;
/// use gristmill_sdk::testing::TestContext;
///
/// let ctx = TestContext::new().with_attempt(2).with_remaining(Duration::from_secs(1));
/// assert_eq!(ctx.attempt(), 2);
/// assert_eq!(ctx.remaining(), Duration::from_secs(1));
/// ```
#[derive(Debug)]
pub struct TestContext {
    context: Context,
    host: Host,
}

impl Deref for TestContext {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

impl Default for TestContext {
    fn default() -> Self {
        Self::new()
    }
}

/// Setup.
impl TestContext {
    /// The default context, as described at the type.
    ///
    /// ```
    /// # use gristmill_sdk::testing::TestContext;
    /// assert_eq!(TestContext::new().attempt(), 1);
    /// ```
    pub fn new() -> Self {
        let host = Host::default();
        Self { context: Context::new("test-job".to_owned(), host.clone()), host }
    }

    /// Sets [`Context::job_id`].
    ///
    /// ```
    /// # use gristmill_sdk::testing::TestContext;
    /// assert_eq!(TestContext::new().with_job_id("j1").job_id(), "j1");
    /// ```
    #[must_use]
    pub fn with_job_id(mut self, job_id: impl Into<String>) -> Self {
        self.context = Context::new(job_id.into(), self.host.clone());
        self
    }

    /// Sets [`Context::attempt`].
    ///
    /// ```
    /// # use gristmill_sdk::testing::TestContext;
    /// assert_eq!(TestContext::new().with_attempt(3).attempt(), 3);
    /// ```
    #[must_use]
    pub fn with_attempt(self, attempt: u32) -> Self {
        self.host.state().attempt = attempt;
        self
    }

    /// Sets [`Context::endpoint`].
    ///
    /// ```
    /// # use gristmill_sdk::testing::TestContext;
    /// assert_eq!(TestContext::new().with_endpoint("resize").endpoint(), "resize");
    /// ```
    #[must_use]
    pub fn with_endpoint(self, endpoint: impl Into<String>) -> Self {
        self.host.state().endpoint = endpoint.into();
        self
    }

    /// Sets [`Context::remaining`]. The value does not decrease.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use gristmill_sdk::testing::TestContext;
    /// assert!(TestContext::new().with_remaining(Duration::ZERO).remaining().is_zero());
    /// ```
    #[must_use]
    pub fn with_remaining(self, remaining: Duration) -> Self {
        self.host.state().remaining = remaining;
        self
    }

    /// Makes [`Context::cancelled`] true from the start.
    ///
    /// ```
    /// # use gristmill_sdk::testing::TestContext;
    /// assert!(TestContext::new().with_cancelled().cancelled());
    /// ```
    #[must_use]
    pub fn with_cancelled(self) -> Self {
        self.with_cancelled_after(0)
    }

    /// Makes [`Context::cancelled`] true once this many chunks were emitted.
    ///
    /// ```
    /// # use gristmill_sdk::testing::TestContext;
    /// let ctx = TestContext::new().with_cancelled_after(1);
    /// assert!(!ctx.cancelled());
    /// ctx.emit("one")?;
    /// assert!(ctx.cancelled());
    /// # Ok::<(), gristmill_sdk::EmitError>(())
    /// ```
    #[must_use]
    pub fn with_cancelled_after(self, chunks: usize) -> Self {
        self.host.state().cancelled_after_chunks = Some(chunks);
        self
    }

    /// Sets [`Context::trace_parent`].
    ///
    /// ```
    /// # use gristmill_sdk::testing::TestContext;
    /// let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    /// assert_eq!(TestContext::new().with_trace_parent(header).trace_parent().unwrap(), header);
    /// ```
    #[must_use]
    pub fn with_trace_parent(self, header: impl Into<String>) -> Self {
        self.host.state().trace_parent = Some(header.into());
        self
    }

    /// Sets [`Context::s3_config`].
    ///
    /// ```
    /// # use gristmill_sdk::{S3Config, testing::TestContext};
    /// assert!(TestContext::new().with_s3_config(S3Config::default()).s3_config().is_some());
    /// ```
    #[must_use]
    pub fn with_s3_config(self, config: S3Config) -> Self {
        self.host.state().s3_config = Some(config);
        self
    }

    /// Limits what may be emitted, in bytes of JSON text, outputs and metrics together.
    ///
    /// ```
    /// # use gristmill_sdk::testing::TestContext;
    /// assert!(TestContext::new().with_emit_quota(4).emit("12345").is_err());
    /// ```
    #[must_use]
    pub fn with_emit_quota(self, bytes: u64) -> Self {
        self.host.state().emit_limit_bytes = Some(bytes);
        self
    }

    /// Makes every emit fail with [`EmitError::Closed`](crate::EmitError::Closed).
    ///
    /// ```
    /// # use gristmill_sdk::{EmitError, testing::TestContext};
    /// assert_eq!(TestContext::new().with_emit_closed().emit("x"), Err(EmitError::Closed));
    /// ```
    #[must_use]
    pub fn with_emit_closed(self) -> Self {
        self.host.state().emit_closed = true;
        self
    }

    /// Adds an answer to requests for exactly this URL. Answers to the same URL are given in the
    /// order of these calls, and the last one repeats. Any other URL is
    /// [denied](http::Error::Denied). [`Context::http_stream`] gets the body in one piece.
    ///
    /// ```
    /// use gristmill_sdk::http::{Error, Request, Response};
    /// use gristmill_sdk::testing::TestContext;
    ///
    /// let ctx = TestContext::new()
    ///     .with_http("https://example.com/", Err(Error::Timeout))
    ///     .with_http("https://example.com/", Ok(Response::new(200, "hello")));
    /// assert_eq!(ctx.http_send(Request::get("https://example.com/")), Err(Error::Timeout));
    /// assert_eq!(ctx.http_send(Request::get("https://example.com/"))?.status, 200);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn with_http(
        self,
        url: impl Into<String>,
        answer: Result<http::Response, http::Error>,
    ) -> Self {
        let in_one_piece = |body| Pieces([Ok(body)].into());
        let answer = answer.map(|answer| answer.with_body(in_one_piece));
        self.host.state().responses.entry(url.into()).or_default().push_back(answer);
        self
    }

    /// Adds an answer in the way of [`with_http`](Self::with_http) whose body comes in pieces, and
    /// may break off with an error. A body of `head` is the first piece. [`Context::http_send`]
    /// gets the pieces joined, or the error.
    ///
    /// ```
    /// use std::io::BufRead;
    /// use gristmill_sdk::http::{Error, Request, Response};
    /// use gristmill_sdk::testing::TestContext;
    ///
    /// let pieces = [Ok("data: one\nda"), Ok("ta: two\n"), Err(Error::Timeout)];
    /// let ctx = TestContext::new()
    ///     .with_http_stream("https://example.com/", Response::new(200, ""), pieces);
    /// let answer = ctx.http_stream(Request::get("https://example.com/"))?;
    /// let lines: Vec<_> = answer.body.lines().take(3).collect();
    /// assert_eq!(lines[1].as_ref().unwrap(), "data: two");
    /// assert_eq!(lines[2].as_ref().unwrap_err().to_string(), "HTTP request timed out");
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn with_http_stream(
        self,
        url: impl Into<String>,
        head: http::Response,
        pieces: impl IntoIterator<Item = Result<impl Into<Vec<u8>>, http::Error>>,
    ) -> Self {
        let pieces = pieces.into_iter().map(|piece| piece.map(Into::into));
        let answer =
            head.with_body(|first| Pieces([Ok(first)].into_iter().chain(pieces).collect()));
        self.host.state().responses.entry(url.into()).or_default().push_back(Ok(answer));
        self
    }

    /// Adds a result of [`Context::call`] of this endpoint. Results of the same endpoint are given
    /// in the order of these calls, and the last one repeats. [`Context::submit`] uses up none. Any
    /// other endpoint is [denied](CallError::Denied).
    ///
    /// ```
    /// # use gristmill_sdk::CallError;
    /// # use gristmill_sdk::testing::TestContext;
    /// # use serde_json::json;
    /// let ctx = TestContext::new()
    ///     .with_call("count", Err(CallError::LimitReached("the queue is full".to_owned())))
    ///     .with_call("count", Ok(json!(6)));
    /// assert!(ctx.call::<u32>("count", &json!({})).is_err());
    /// assert_eq!(ctx.call::<u32>("count", &json!({}))?, 6);
    /// assert!(matches!(ctx.submit("other", &json!({})), Err(CallError::Denied(_))));
    /// # Ok::<(), CallError>(())
    /// ```
    #[must_use]
    pub fn with_call(self, endpoint: impl Into<String>, result: Result<Value, CallError>) -> Self {
        self.host.state().call_results.entry(endpoint.into()).or_default().push_back(result);
        self
    }
}

/// Running handlers, and reading the results.
impl TestContext {
    /// Runs a handler with JSON text as input and output, exactly as its component would.
    ///
    /// # Errors
    /// The handler's own errors; [`Error::InvalidInput`] when `input` does not fit its input type;
    /// [`Error::Failed`] when a [`RawJson`](crate::RawJson) that it returns is not JSON.
    ///
    /// # Panics
    /// When `input` is not JSON: the host refuses such a submission.
    ///
    /// ```
    /// use gristmill_sdk::{Context, Error, testing::TestContext};
    ///
    /// fn sum(_ctx: &Context, input: Vec<i64>) -> Result<i64, Error> {
    ///     Ok(input.iter().sum())
    /// }
    ///
    /// assert_eq!(TestContext::new().run_json(sum, "[1,2,3]")?, "6");
    /// # Ok::<(), Error>(())
    /// ```
    #[expect(clippy::needless_pass_by_value, reason = "handlers are functions, and those are Copy")]
    pub fn run_json<Shape>(
        &self,
        handler: impl Handler<Shape>,
        input: &str,
    ) -> Result<String, Error> {
        is_json(input).expect("the input of a job is JSON");
        let output = handler.handle(&self.context, input.to_owned())?;
        is_json(&output)
            .map_err(|error| Error::failed(format_args!("output is not JSON: {error}")))?;
        Ok(output)
    }

    /// The chunks, in order.
    ///
    /// ```
    /// # let ctx = gristmill_sdk::testing::TestContext::new();
    /// ctx.emit("one")?;
    /// assert_eq!(ctx.chunks()[0].text(), "\"one\"");
    /// # Ok::<(), gristmill_sdk::EmitError>(())
    /// ```
    pub fn chunks(&self) -> Vec<Chunk> {
        self.host.state().chunks.clone()
    }

    /// The outputs of the chunks, in order, without their metrics.
    ///
    /// ```
    /// # let ctx = gristmill_sdk::testing::TestContext::new();
    /// ctx.emit(&1)?;
    /// assert_eq!(ctx.outputs(), [serde_json::json!(1)]);
    /// # Ok::<(), gristmill_sdk::EmitError>(())
    /// ```
    pub fn outputs(&self) -> Vec<Value> {
        self.host.state().chunks.iter().map(Chunk::output).collect()
    }

    /// Every progress value, in order.
    ///
    /// ```
    /// # let ctx = gristmill_sdk::testing::TestContext::new();
    /// ctx.progress(&50);
    /// assert_eq!(ctx.progress_values(), [serde_json::json!(50)]);
    /// ```
    pub fn progress_values(&self) -> Vec<Value> {
        self.host.state().progress.clone()
    }

    /// The lines of the log, in order; without what went to standard output or standard error.
    ///
    /// ```
    /// # use gristmill_sdk::{Level, testing::TestContext};
    /// let ctx = TestContext::new();
    /// ctx.warn("low on flour");
    /// assert_eq!(ctx.logs(), [(Level::Warn, "low on flour".to_owned())]);
    /// ```
    pub fn logs(&self) -> Vec<(Level, String)> {
        self.host.state().logs.clone()
    }

    /// Whether the handler called [`Context::retire`].
    ///
    /// ```
    /// # use gristmill_sdk::testing::TestContext;
    /// assert!(!TestContext::new().retired());
    /// ```
    pub fn retired(&self) -> bool {
        self.host.state().retired
    }

    /// What the handler wishes for its job if the attempt fails: its last call of
    /// [`Context::retry_after`] or [`Context::never_retry`]. `None` without a call.
    ///
    /// ```
    /// # use gristmill_sdk::testing::{RetryWish, TestContext};
    /// let ctx = TestContext::new();
    /// assert_eq!(ctx.retry_wish(), None);
    /// ctx.never_retry();
    /// assert_eq!(ctx.retry_wish(), Some(RetryWish::Never));
    /// ```
    pub fn retry_wish(&self) -> Option<RetryWish> {
        self.host.state().retry_wish
    }

    /// The HTTP requests, in order, refused ones included.
    ///
    /// ```
    /// # use gristmill_sdk::{http::Request, testing::TestContext};
    /// let ctx = TestContext::new();
    /// assert!(ctx.http_send(Request::get("https://example.com/")).is_err());
    /// assert_eq!(ctx.requests()[0].url, "https://example.com/");
    /// ```
    pub fn requests(&self) -> Vec<http::Request> {
        self.host.state().requests.clone()
    }

    /// The calls of other endpoints, in order, refused ones included.
    ///
    /// ```
    /// # use gristmill_sdk::testing::TestContext;
    /// # use serde_json::json;
    /// let ctx = TestContext::new();
    /// assert!(ctx.submit("count", &json!({ "text": "rye" })).is_err());
    /// assert_eq!(ctx.calls()[0].endpoint, "count");
    /// assert_eq!(ctx.calls()[0].input, json!({ "text": "rye" }));
    /// ```
    pub fn calls(&self) -> Vec<Call> {
        self.host.state().calls.clone()
    }
}

/// A call of another endpoint, by `submit` or `call`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The endpoint's id.
    pub endpoint: String,
    /// The job's input.
    pub input: Value,
    /// The key that the handler gave.
    pub idempotency_key: Option<String>,
}

impl Call {
    pub(crate) fn new(endpoint: &str, input: &str, key: Option<&str>) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            input: parse(input),
            idempotency_key: key.map(str::to_owned),
        }
    }
}

/// What a handler wishes for its job if the attempt fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryWish {
    /// It does not run again.
    Never,
    /// It runs again after this time, if the rule of its retries permits another attempt.
    After(Duration),
}

/// One chunk of a job's stream.
///
/// ```
/// # use serde_json::json;
/// # let ctx = gristmill_sdk::testing::TestContext::new();
/// ctx.emit_with_metrics("one", &json!({ "output_tokens": 1 }))?;
/// let chunk = &ctx.chunks()[0];
/// assert_eq!(chunk.output(), json!("one"));
/// assert_eq!(chunk.metrics(), Some(json!({ "output_tokens": 1 })));
/// # Ok::<(), gristmill_sdk::EmitError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    output: String,
    metrics: Option<String>,
}

impl Chunk {
    pub(crate) fn new(output: &str, metrics: Option<&str>) -> Self {
        Self { output: output.to_owned(), metrics: metrics.map(str::to_owned) }
    }

    /// The output as the JSON text that the handler emitted.
    pub fn text(&self) -> &str {
        &self.output
    }

    /// The output.
    pub fn output(&self) -> Value {
        parse(&self.output)
    }

    /// The metrics, if the chunk has any.
    pub fn metrics(&self) -> Option<Value> {
        self.metrics.as_deref().map(parse)
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("serde_json reads what it wrote")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{EmitError, RawJson};

    #[test]
    fn output_that_is_not_json_fails_the_job() {
        fn broken(_ctx: &Context, _input: RawJson) -> Result<RawJson, Error> {
            Ok(RawJson::new("{\"a\":"))
        }
        let error = TestContext::new().run_json(broken, "1").unwrap_err();
        assert!(error.message().starts_with("output is not JSON: EOF"), "{error}");
    }

    #[test]
    fn a_schema_is_written_once_and_compared_afterwards() {
        let name = format!("gristmill-sdk-schema-{}.json", std::process::id());
        let path = env::temp_dir().join(name);
        let file = path.to_str().unwrap();
        let compared = |schema: Value| {
            std::panic::catch_unwind(|| assert_schema(file, &schema))
                .map_err(|panicked| panicked.downcast_ref::<String>().cloned().unwrap_or_default())
        };
        assert_eq!(compared(json!({"a": 1, "b": 2})), Ok(()));
        fs::write(&path, r#"{"b":2,"a":1}"#).unwrap();
        assert_eq!(compared(json!({"a": 1, "b": 2})), Ok(()));
        let refused = compared(json!({"a": 1})).unwrap_err();
        assert!(refused.contains("UPDATE_SCHEMA=1 cargo test"), "{refused}");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn metrics_must_be_an_object() {
        let ctx = TestContext::new();
        assert!(matches!(ctx.emit_with_metrics("x", &1), Err(EmitError::InvalidJson(_))));
        assert!(ctx.chunks().is_empty());
    }

    #[test]
    fn quota_counts_all_chunks_and_their_metrics() {
        let ctx = TestContext::new().with_emit_quota(10);
        ctx.emit_with_metrics(&1, &json!({ "n": 2 })).unwrap();
        ctx.emit(&345).unwrap_err();
        ctx.emit(&34).unwrap();
        assert_eq!(ctx.outputs(), [json!(1), json!(34)]);
    }
}
