//! The context of a handler: properties of its job, and functions for output before it returns.

use std::fmt::Display;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::host::Host;
use crate::{CallError, EmitError, Error, http};

/// The running attempt: its properties, and all calls from the handler to the host.
///
/// Calls are cheap and return at once, except [`emit`](Self::emit) and
/// [`emit_with_metrics`](Self::emit_with_metrics), which wait while the host's buffer is full,
/// [`http_send`](Self::http_send), [`http_stream`](Self::http_stream), [`submit`](Self::submit) and
/// [`call`](Self::call). Tests create a context with `testing::TestContext`.
///
/// ```
/// use gristmill_sdk::{Context, Error};
///
/// fn render(ctx: &Context, pages: u32) -> Result<u32, Error> {
///     for page in 0..pages {
///         ctx.check_cancelled()?;
///         ctx.emit(&format!("page {page}"))?;
///         ctx.progress(&(page + 1));
///     }
///     Ok(pages)
/// }
/// ```
#[derive(Debug)]
pub struct Context {
    job_id: String,
    host: Host,
}

impl Context {
    pub(crate) fn new(job_id: String, host: Host) -> Self {
        Self { job_id, host }
    }

    /// The job's id, as the client sees it.
    ///
    /// ```
    /// # let ctx = gristmill_sdk::testing::TestContext::new();
    /// assert_eq!(ctx.job_id(), "test-job");
    /// ```
    pub fn job_id(&self) -> &str {
        &self.job_id
    }

    /// The id of the endpoint that the job was submitted to.
    ///
    /// ```
    /// # let ctx = gristmill_sdk::testing::TestContext::new().with_endpoint("thumbnail");
    /// assert_eq!(ctx.endpoint(), "thumbnail");
    /// ```
    pub fn endpoint(&self) -> String {
        self.host.endpoint()
    }

    /// 1 for the first attempt; one more for each time the job was queued again.
    ///
    /// ```
    /// # let ctx = gristmill_sdk::testing::TestContext::new();
    /// if ctx.attempt() > 1 {
    ///     ctx.warn("an earlier attempt may have done half of the work");
    /// }
    /// ```
    pub fn attempt(&self) -> u32 {
        self.host.attempt()
    }

    /// The time until the host stops this attempt, in whole milliseconds; zero when it is over.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let ctx = gristmill_sdk::testing::TestContext::new();
    /// let worth_another_round = ctx.remaining() > Duration::from_secs(2);
    /// # assert!(worth_another_round);
    /// ```
    pub fn remaining(&self) -> Duration {
        self.host.remaining()
    }

    /// True once the job was cancelled or the host is shutting down. The host stops the attempt
    /// shortly after that; a handler that checks this value has time to clean up.
    ///
    /// ```
    /// # let ctx = gristmill_sdk::testing::TestContext::new();
    /// assert!(!ctx.cancelled());
    /// ```
    pub fn cancelled(&self) -> bool {
        self.host.cancelled()
    }

    /// [`cancelled`](Self::cancelled) for use with `?`.
    ///
    /// # Errors
    /// [`Error::Cancelled`] once [`cancelled`](Self::cancelled) is true.
    ///
    /// ```
    /// # use gristmill_sdk::{Error, testing::TestContext};
    /// let ctx = TestContext::new().with_cancelled();
    /// assert!(matches!(ctx.check_cancelled(), Err(Error::Cancelled)));
    /// ```
    pub fn check_cancelled(&self) -> Result<(), Error> {
        if self.cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Where the handler may store files: the submission's `s3Config`, if it has one.
    ///
    /// ```
    /// # let ctx = gristmill_sdk::testing::TestContext::new();
    /// assert!(ctx.s3_config().is_none());
    /// ```
    pub fn s3_config(&self) -> Option<S3Config> {
        self.host.s3_config()
    }

    /// The position of this attempt in a distributed trace, as the `traceparent` header of W3C
    /// Trace Context. `None` when the submission had none and the host does not trace the job.
    ///
    /// ```
    /// # let ctx = gristmill_sdk::testing::TestContext::new();
    /// assert!(ctx.trace_parent().is_none());
    /// ```
    pub fn trace_parent(&self) -> Option<String> {
        self.host.trace_parent()
    }

    /// Asks the host to give this instance no further job, for example after an error that may have
    /// left a `static` in a wrong state. It has no effect on an endpoint without `reuse`.
    ///
    /// ```
    /// # use gristmill_sdk::testing::TestContext;
    /// let ctx = TestContext::new();
    /// ctx.retire();
    /// assert!(ctx.retired());
    /// ```
    pub fn retire(&self) {
        self.host.retire();
    }

    /// If this attempt fails, its job runs again after `delay`, if the rule of its retries permits
    /// another attempt. The delay has whole milliseconds, rounded up, and is at most 7 days; a
    /// longer one counts as 7 days. The last call of this function or of
    /// [`never_retry`](Self::never_retry) counts. It has no effect on an attempt that does not
    /// fail.
    ///
    /// ```
    /// # use gristmill_sdk::testing::{RetryWish, TestContext};
    /// use std::time::Duration;
    ///
    /// let ctx = TestContext::new();
    /// ctx.retry_after(Duration::from_secs(30));
    /// assert_eq!(ctx.retry_wish(), Some(RetryWish::After(Duration::from_secs(30))));
    /// ```
    pub fn retry_after(&self, delay: Duration) {
        self.host.retry_after(Some(delay));
    }

    /// If this attempt fails, its job does not run again, whatever the rule of its retries is. The
    /// last call of this function or of [`retry_after`](Self::retry_after) counts.
    ///
    /// ```
    /// # use gristmill_sdk::testing::{RetryWish, TestContext};
    /// let ctx = TestContext::new();
    /// ctx.never_retry();
    /// assert_eq!(ctx.retry_wish(), Some(RetryWish::Never));
    /// ```
    pub fn never_retry(&self) {
        self.host.retry_after(None);
    }

    /// Appends one chunk to the job's stream. Waits while the host's buffer for this job is full.
    ///
    /// # Errors
    /// See [`EmitError`].
    ///
    /// ```
    /// # use serde_json::json;
    /// # let ctx = gristmill_sdk::testing::TestContext::new();
    /// ctx.emit(&"Hello")?;
    /// ctx.emit(&json!({ "token": ", world" }))?;
    /// # assert_eq!(ctx.outputs(), [json!("Hello"), json!({ "token": ", world" })]);
    /// # Ok::<(), gristmill_sdk::EmitError>(())
    /// ```
    pub fn emit(&self, output: &(impl Serialize + ?Sized)) -> Result<(), EmitError> {
        self.host.emit(&encode(output)?, None)
    }

    /// Appends one chunk; the client receives `metrics` together with it. They must serialize to a
    /// JSON object.
    ///
    /// # Errors
    /// See [`EmitError`].
    ///
    /// ```
    /// # use serde_json::json;
    /// # let ctx = gristmill_sdk::testing::TestContext::new();
    /// ctx.emit_with_metrics(&"Hello", &json!({ "output_tokens": 1 }))?;
    /// # assert_eq!(ctx.chunks()[0].metrics(), Some(json!({ "output_tokens": 1 })));
    /// # Ok::<(), gristmill_sdk::EmitError>(())
    /// ```
    pub fn emit_with_metrics(
        &self,
        output: &(impl Serialize + ?Sized),
        metrics: &impl Serialize,
    ) -> Result<(), EmitError> {
        self.host.emit(&encode(output)?, Some(&encode(metrics)?))
    }

    /// Replaces the value that the job's status shows while it runs. Never waits. If values follow
    /// each other quickly, clients may see only the last one. A value that has no JSON form is
    /// dropped with a line in the job's log. When the handler fails, the last value stays as the
    /// job's `output`, beside its `error`, unless it has more than 8 KiB.
    ///
    /// ```
    /// # use serde_json::json;
    /// # let ctx = gristmill_sdk::testing::TestContext::new();
    /// ctx.progress(&json!({ "percent": 40 }));
    /// # assert_eq!(ctx.progress_values(), [json!({ "percent": 40 })]);
    /// ```
    pub fn progress(&self, value: &(impl Serialize + ?Sized)) {
        match serde_json::to_string(value) {
            Ok(value) => self.host.progress(&value),
            Err(error) => self.warn(format_args!("progress value has no JSON form: {error}")),
        }
    }

    /// Writes one line to the job's log, for the people who run the endpoint. The log is capped;
    /// the host counts the lines beyond its cap. Standard output and standard error go to the same
    /// log.
    ///
    /// ```
    /// # use gristmill_sdk::Level;
    /// # let ctx = gristmill_sdk::testing::TestContext::new();
    /// ctx.log(Level::Info, format_args!("read {} pages", 12));
    /// # assert_eq!(ctx.logs(), [(Level::Info, "read 12 pages".to_owned())]);
    /// ```
    pub fn log(&self, level: Level, message: impl Display) {
        self.host.log(level, &message.to_string());
    }

    /// [`log`](Self::log) at [`Level::Trace`].
    pub fn trace(&self, message: impl Display) {
        self.log(Level::Trace, message);
    }

    /// [`log`](Self::log) at [`Level::Debug`].
    pub fn debug(&self, message: impl Display) {
        self.log(Level::Debug, message);
    }

    /// [`log`](Self::log) at [`Level::Info`].
    pub fn info(&self, message: impl Display) {
        self.log(Level::Info, message);
    }

    /// [`log`](Self::log) at [`Level::Warn`].
    pub fn warn(&self, message: impl Display) {
        self.log(Level::Warn, message);
    }

    /// [`log`](Self::log) at [`Level::Error`]. The job continues; return an [`Error`] to end it.
    pub fn error(&self, message: impl Display) {
        self.log(Level::Error, message);
    }

    /// Sends one HTTP request and waits for the whole answer. A handler can call only the hosts in
    /// its endpoint's `allowedHosts`; redirects are returned, not followed. A status such as 404 is
    /// an answer, not an error.
    ///
    /// # Errors
    /// See [`http::Error`].
    ///
    /// ```
    /// use gristmill_sdk::{Context, Error, http::Request};
    ///
    /// fn greeting(ctx: &Context, url: String) -> Result<String, Error> {
    ///     let response = ctx.http_send(Request::get(url).with_header("accept", "text/plain"))?;
    ///     Ok(response.text()?.to_owned())
    /// }
    /// ```
    pub fn http_send(&self, request: http::Request) -> Result<http::Response, http::Error> {
        self.host.http_send(request)
    }

    /// Sends one HTTP request and waits for the head of its answer, whose body is then read as it
    /// arrives. The rules are those of [`http_send`](Self::http_send).
    ///
    /// # Errors
    /// See [`http::Error`].
    ///
    /// ```
    /// use std::io::BufRead;
    /// use gristmill_sdk::{Context, Error, http::Request};
    ///
    /// fn follow(ctx: &Context, url: String) -> Result<(), Error> {
    ///     let answer = ctx.http_stream(Request::get(url))?;
    ///     for line in answer.body.lines() {
    ///         ctx.emit(&line?)?;
    ///     }
    ///     Ok(())
    /// }
    /// # let url = "https://example.com/log";
    /// # let head = gristmill_sdk::http::Response::new(200, "");
    /// # let ctx = gristmill_sdk::testing::TestContext::new()
    /// #     .with_http_stream(url, head, [Ok("one\n"), Ok("two\n")]);
    /// # follow(&ctx, url.to_owned()).unwrap();
    /// # assert_eq!(ctx.outputs(), ["one", "two"]);
    /// ```
    pub fn http_stream(
        &self,
        request: http::Request,
    ) -> Result<http::Response<http::Body>, http::Error> {
        Ok(self.host.http_stream(request)?.with_body(http::Body::new))
    }

    /// Submits a job to another endpoint of the same owner, and returns its id. The job is on
    /// stable storage then. A handler can call only the endpoints in its endpoint's
    /// `callEndpoints`.
    ///
    /// If the host crashes, this attempt runs again and submits again: give a key with
    /// [`submit_with_key`](Self::submit_with_key) to get the job of the first attempt.
    ///
    /// # Errors
    /// See [`CallError`].
    ///
    /// ```
    /// # use gristmill_sdk::{CallError, testing::TestContext};
    /// # use serde_json::json;
    /// # let ctx = TestContext::new().with_call("resize", Ok(json!(null)));
    /// let id = ctx.submit("resize", &json!({ "width": 80 }))?;
    /// # assert_eq!(ctx.calls()[0].input, json!({ "width": 80 }));
    /// # Ok::<(), CallError>(())
    /// ```
    pub fn submit(
        &self,
        endpoint: &str,
        input: &(impl Serialize + ?Sized),
    ) -> Result<String, CallError> {
        self.host.submit(endpoint, &encode_input(input)?, None)
    }

    /// [`submit`](Self::submit) with an idempotency key: for 24 hours, a call with the same key and
    /// input refers to the job of the first one.
    ///
    /// # Errors
    /// See [`CallError`].
    ///
    /// ```
    /// # use gristmill_sdk::{CallError, testing::TestContext};
    /// # use serde_json::json;
    /// # let ctx = TestContext::new().with_call("resize", Ok(json!(null)));
    /// for width in [80, 160] {
    ///     let key = format!("{}-{width}", ctx.job_id());
    ///     ctx.submit_with_key("resize", &json!({ "width": width }), &key)?;
    /// }
    /// # assert_eq!(ctx.calls()[1].idempotency_key.as_deref(), Some("test-job-160"));
    /// # Ok::<(), CallError>(())
    /// ```
    pub fn submit_with_key(
        &self,
        endpoint: &str,
        input: &(impl Serialize + ?Sized),
        idempotency_key: &str,
    ) -> Result<String, CallError> {
        self.host.submit(endpoint, &encode_input(input)?, Some(idempotency_key))
    }

    /// Submits a job to another endpoint and waits for its output, until shortly before the end of
    /// this attempt. The attempt keeps its sandbox meanwhile.
    ///
    /// # Errors
    /// See [`CallError`].
    ///
    /// ```
    /// use gristmill_sdk::{Context, Error};
    /// use serde_json::json;
    ///
    /// fn words(ctx: &Context, text: String) -> Result<u64, Error> {
    ///     let counted: serde_json::Value = ctx.call("count", &json!({ "text": text }))?;
    ///     counted["words"].as_u64().ok_or_else(|| Error::failed("`count` returned no number"))
    /// }
    /// # let ctx = gristmill_sdk::testing::TestContext::new()
    /// #     .with_call("count", Ok(json!({ "words": 6 })));
    /// # assert_eq!(words(&ctx, "to be or not to be".to_owned()).unwrap(), 6);
    /// ```
    pub fn call<Output: DeserializeOwned>(
        &self,
        endpoint: &str,
        input: &(impl Serialize + ?Sized),
    ) -> Result<Output, CallError> {
        decode_output(&self.host.call(endpoint, &encode_input(input)?, None)?)
    }

    /// [`call`](Self::call) with an idempotency key. After a
    /// [`submit_with_key`](Self::submit_with_key) with the same key and input it waits for that
    /// job, so that several jobs can run at once.
    ///
    /// # Errors
    /// See [`CallError`].
    ///
    /// ```
    /// # use gristmill_sdk::{CallError, testing::TestContext};
    /// # use serde_json::json;
    /// # let ctx = TestContext::new().with_call("count", Ok(json!(6)));
    /// let parts = [("a", json!({ "text": "to be" })), ("b", json!({ "text": "or not" }))];
    /// for (key, input) in &parts {
    ///     ctx.submit_with_key("count", input, key)?;
    /// }
    /// let mut words = 0;
    /// for (key, input) in &parts {
    ///     words += ctx.call_with_key::<u64>("count", input, key)?;
    /// }
    /// # assert_eq!(words, 12);
    /// # Ok::<(), CallError>(())
    /// ```
    pub fn call_with_key<Output: DeserializeOwned>(
        &self,
        endpoint: &str,
        input: &(impl Serialize + ?Sized),
        idempotency_key: &str,
    ) -> Result<Output, CallError> {
        decode_output(&self.host.call(endpoint, &encode_input(input)?, Some(idempotency_key))?)
    }
}

fn encode_input(input: &(impl Serialize + ?Sized)) -> Result<String, CallError> {
    serde_json::to_string(input)
        .map_err(|error| CallError::InvalidRequest(format!("the input has no JSON form: {error}")))
}

fn decode_output<Output: DeserializeOwned>(text: &str) -> Result<Output, CallError> {
    serde_json::from_str(text).map_err(|error| CallError::InvalidOutput(error.to_string()))
}

fn encode(value: &(impl Serialize + ?Sized)) -> Result<String, EmitError> {
    serde_json::to_string(value).map_err(|error| EmitError::InvalidJson(error.to_string()))
}

/// The severity of a line in the job's log.
///
/// ```
/// use gristmill_sdk::Level;
/// assert!(Level::Error > Level::Trace);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The most detailed messages.
    Trace,
    /// Messages for the handler's author.
    Debug,
    /// Normal messages for readers of the log.
    Info,
    /// A possible problem; the job continues.
    Warn,
    /// A failure: work or data is lost.
    Error,
}

/// A place for files, and the credentials for it. A field that the submission left out is empty.
///
/// Its `Debug` form hides the secret.
///
/// ```
/// use gristmill_sdk::{S3Config, testing::TestContext};
///
/// let config = S3Config { bucket_name: "results".into(), ..S3Config::default() };
/// let ctx = TestContext::new().with_s3_config(config);
/// assert_eq!(ctx.s3_config().unwrap().bucket_name, "results");
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct S3Config {
    /// The id of the access key.
    pub access_id: String,
    /// The secret of the access key.
    pub access_secret: String,
    /// The bucket to write to.
    pub bucket_name: String,
    /// The URL of the service.
    pub endpoint_url: String,
}

impl std::fmt::Debug for S3Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("S3Config")
            .field("access_id", &self.access_id)
            .field("access_secret", &"…")
            .field("bucket_name", &self.bucket_name)
            .field("endpoint_url", &self.endpoint_url)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestContext;

    #[test]
    fn progress_without_a_json_form_is_logged_and_dropped() {
        let ctx = TestContext::new();
        ctx.progress(&std::collections::BTreeMap::from([(vec![1], 2)]));
        assert!(ctx.progress_values().is_empty());
        let line = "progress value has no JSON form: key must be a string".to_owned();
        assert_eq!(ctx.logs(), [(Level::Warn, line)]);
    }

    #[test]
    fn each_level_has_its_method() {
        let ctx = TestContext::new();
        ctx.trace(1);
        ctx.debug(2);
        ctx.info(3);
        ctx.warn(4);
        ctx.error(5);
        let levels: Vec<Level> = ctx.logs().iter().map(|(level, _)| *level).collect();
        assert_eq!(levels, [Level::Trace, Level::Debug, Level::Info, Level::Warn, Level::Error]);
    }

    #[test]
    fn debug_hides_the_secret() {
        let config = S3Config { access_secret: "hunter2".into(), ..S3Config::default() };
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
