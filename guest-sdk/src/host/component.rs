//! The real host, behind the component's imports and its one export.
//!
//! [`Host`] is a unit struct and every call is direct, so a component imports only the interfaces
//! that its handler uses.

mod streams;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::bindings::handler::exports::gristmill::handler::run::{self, Job};
use crate::bindings::handler::gristmill::handler::{
    context, endpoints, http as wit_http, log, output, types,
};
use crate::{
    CallError, Context, EmitError, Error, FailedJob, Failure, Handler, Level, S3Config, http,
};

pub(crate) use streams::Pieces;

/// Runs one job: the body of the export that [`handler!`](crate::handler) writes.
pub fn handle<Shape>(handler: &impl Handler<Shape>, job: Job) -> Result<String, run::Error> {
    begin();
    let ctx = Context::new(job.id, Host);
    handler.handle(&ctx, job.input).map_err(|error| match error {
        Error::InvalidInput(failure) => run::Error::InvalidInput(lower_failure(failure)),
        Error::Failed(failure) => run::Error::Failed(lower_failure(failure)),
        Error::Cancelled => run::Error::Cancelled,
    })
}

/// Initialises the instance: the body of the export that [`handler!`](crate::handler) writes for
/// its `init`. Memory shows whether the component was initialised when it was built.
pub fn init(init: fn() -> Result<(), Error>) -> Result<(), String> {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if !IS_DONE.load(Ordering::Relaxed) {
        begin();
        init().map_err(|error| error.to_string())?;
        IS_DONE.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Prepares the instance before the first line of the handler's own code runs.
fn begin() {
    #[cfg(any(feature = "log", feature = "tracing"))]
    crate::logging::install();
}

fn lower_failure(failure: Failure) -> types::Failure {
    let details = failure.details.map(|details| Box::<str>::from(details).into());
    types::Failure { message: failure.message, details }
}

#[derive(Debug)]
pub(crate) struct Host;

impl Host {
    pub(crate) fn attempt(&self) -> u32 {
        context::attempt()
    }

    pub(crate) fn endpoint(&self) -> String {
        context::endpoint()
    }

    pub(crate) fn remaining(&self) -> Duration {
        Duration::from_millis(context::remaining_ms())
    }

    pub(crate) fn cancelled(&self) -> bool {
        context::cancelled()
    }

    pub(crate) fn s3_config(&self) -> Option<S3Config> {
        let context::S3Config { access_id, access_secret, bucket_name, endpoint_url } =
            context::s3()?;
        Some(S3Config { access_id, access_secret, bucket_name, endpoint_url })
    }

    pub(crate) fn trace_parent(&self) -> Option<String> {
        context::trace_parent()
    }

    pub(crate) fn retire(&self) {
        context::retire();
    }

    pub(crate) fn retry_after(&self, delay: Option<Duration>) {
        context::retry_after(delay.map(millis));
    }

    pub(crate) fn emit(&self, chunk: &str, metrics: Option<&str>) -> Result<(), EmitError> {
        output::emit(chunk, metrics).map_err(|error| match error {
            output::EmitError::Closed => EmitError::Closed,
            output::EmitError::InvalidJson(why) => EmitError::InvalidJson(why),
            output::EmitError::QuotaExceeded(limit_bytes) => {
                EmitError::QuotaExceeded { limit_bytes }
            }
        })
    }

    pub(crate) fn progress(&self, value: &str) {
        output::progress(value);
    }

    pub(crate) fn log(&self, level: Level, message: &str) {
        let level = match level {
            Level::Trace => log::Level::Trace,
            Level::Debug => log::Level::Debug,
            Level::Info => log::Level::Info,
            Level::Warn => log::Level::Warn,
            Level::Error => log::Level::Error,
        };
        log::write(level, message);
    }

    pub(crate) fn http_send(&self, request: http::Request) -> Result<http::Response, http::Error> {
        let http::Request { method, url, headers, body, timeout } = request;
        let timeout_ms = timeout.map(millis);
        match wit_http::send(&wit_http::Request { method, url, headers, body, timeout_ms }) {
            Ok(wit_http::Response { status, headers, body }) => {
                Ok(http::Response { status, headers, body })
            }
            Err(error) => Err(match error {
                wit_http::HttpError::Denied(what) => http::Error::Denied(what),
                wit_http::HttpError::InvalidRequest(what) => http::Error::InvalidRequest(what),
                wit_http::HttpError::Timeout => http::Error::Timeout,
                wit_http::HttpError::TooLarge(limit_bytes) => http::Error::TooLarge { limit_bytes },
                wit_http::HttpError::Connect(what) => http::Error::Connect(what),
                wit_http::HttpError::Other(what) => http::Error::Other(what),
            }),
        }
    }

    pub(crate) fn http_stream(
        &self,
        request: http::Request,
    ) -> Result<http::Response<Pieces>, http::Error> {
        streams::send(request)
    }

    pub(crate) fn submit(
        &self,
        endpoint: &str,
        input: &str,
        key: Option<&str>,
    ) -> Result<String, CallError> {
        endpoints::submit(endpoint, input, key).map_err(lift_call_error)
    }

    pub(crate) fn call(
        &self,
        endpoint: &str,
        input: &str,
        key: Option<&str>,
    ) -> Result<String, CallError> {
        endpoints::call(endpoint, input, key).map_err(lift_call_error)
    }
}

/// Whole milliseconds, rounded up; at most 2^32 - 1.
fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}

fn lift_call_error(error: endpoints::CallError) -> CallError {
    match error {
        endpoints::CallError::Denied(why) => CallError::Denied(why),
        endpoints::CallError::InvalidRequest(why) => CallError::InvalidRequest(why),
        endpoints::CallError::LimitReached(why) => CallError::LimitReached(why),
        endpoints::CallError::Failed(endpoints::FailedJob { id, status, error }) => {
            CallError::Failed(FailedJob { id, status, error })
        }
        endpoints::CallError::Timeout(why) => CallError::Timeout(why),
        endpoints::CallError::Other(why) => CallError::Other(why),
    }
}
