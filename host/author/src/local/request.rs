//! An HTTP request to a handler on this machine, and its end.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bytes::{Bytes, BytesMut};
use gristmill_core::deploy::handler_kind::HandlerKind;
use gristmill_core::http_call::{HttpBody, NoResponse};
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::TIMED_OUT_ERROR;
use gristmill_core::job::state::JobStatus;
use gristmill_core::limits::OUTPUT_BYTES_MAX;
use gristmill_core::runtime::{AttemptEnd, AttemptReport};
use gristmill_runtime::compile::handler_kinds::handler_kinds;
use http::uri::PathAndQuery;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header,
};
use http_body_util::{BodyExt as _, Full};

/// The host that a local request names.
const AUTHORITY: &str = "localhost";

/// The method and the target of a request, written as `GET /path?query`; a path alone is a `GET`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestTarget {
    pub(crate) method: Method,
    pub(crate) path: PathAndQuery,
}

impl Default for RequestTarget {
    fn default() -> Self {
        Self { method: Method::GET, path: PathAndQuery::from_static("/") }
    }
}

impl FromStr for RequestTarget {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (method, path) = match text.split_once(' ') {
            Some((method, path)) => (method, path),
            None => ("GET", text),
        };
        let of = || format!("`{text}` is not a request such as `GET /path?query`");
        ensure!(path.starts_with('/'), "{}: its path must begin with `/`", of());
        let method = Method::from_str(method).with_context(of)?;
        ensure!(
            method != Method::CONNECT && method != Method::TRACE,
            "{}: a host refuses the method {method}",
            of()
        );
        Ok(Self { method, path: PathAndQuery::from_str(path).with_context(of)? })
    }
}

/// A request as its author wrote it.
#[derive(Debug, Clone, Default)]
pub(crate) struct GivenRequest {
    pub(crate) target: RequestTarget,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A header.
///
/// # Errors
/// When the texts are none.
pub(crate) fn parse_header(name: &str, value: &str) -> anyhow::Result<(HeaderName, HeaderValue)> {
    let name = HeaderName::from_str(name)
        .with_context(|| format!("`{name}` is not the name of a header"))?;
    let value = HeaderValue::from_str(value)
        .with_context(|| format!("the header `{name}` has a character that is not allowed"))?;
    Ok((name, value))
}

impl GivenRequest {
    /// The request for a handler. A body has its length, as clients send it.
    pub(crate) fn build(&self) -> Request<HttpBody> {
        let body = Full::new(self.body.clone()).map_err(|never| match never {});
        let mut request = Request::new(body.boxed_unsync());
        *request.method_mut() = self.target.method.clone();
        let uri = Uri::builder().scheme("http").authority(AUTHORITY);
        *request.uri_mut() =
            uri.path_and_query(self.target.path.clone()).build().unwrap_or_default();
        *request.headers_mut() = self.headers.clone();
        if !self.body.is_empty() {
            request.headers_mut().insert(header::CONTENT_LENGTH, self.body.len().into());
        }
        request
    }
}

/// A request for a bench.
#[derive(Debug)]
pub(crate) struct LocalRequest {
    pub(crate) request: Request<HttpBody>,
    /// Environment of this request only, in addition to the common one.
    pub(crate) env: BTreeMap<String, String>,
    /// Its time limit in milliseconds, if it differs from the common one.
    pub(crate) timeout_ms: Option<u64>,
}

/// The end of a request: what its client made of the answer, and the report of the sandbox.
#[derive(Debug)]
pub(crate) struct Served<T> {
    /// `None`: the handler has not answered.
    pub(crate) answer: Option<Result<T, NoResponse>>,
    pub(crate) report: AttemptReport<()>,
    pub(crate) timeout: Duration,
}

/// An answer that was read to its end.
#[derive(Debug, Clone)]
pub(crate) struct WholeAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl WholeAnswer {
    /// Reads an answer of at most [`OUTPUT_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// When its body breaks off, or is larger.
    pub(crate) async fn read(answer: Response<HttpBody>) -> io::Result<Self> {
        let (head, mut rest) = answer.into_parts();
        let mut body = BytesMut::new();
        while let Some(frame) = rest.frame().await {
            let Ok(piece) = frame?.into_data() else { continue };
            if body.len() + piece.len() > OUTPUT_BYTES_MAX {
                let error = format!("it is larger than {} MiB", OUTPUT_BYTES_MAX >> 20);
                return Err(io::Error::other(error));
            }
            body.extend_from_slice(&piece);
        }
        Ok(Self { status: head.status, headers: head.headers, body: body.freeze() })
    }

    /// The body as JSON: itself if its type says so, and else its text as a string.
    pub(crate) fn json(&self) -> Json {
        let text = String::from_utf8_lossy(&self.body);
        let is_json = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let is_json = is_json.is_some_and(|value| {
            let media_type = value.split(';').next().unwrap_or_default().trim();
            media_type == "application/json" || media_type.ends_with("+json")
        });
        let json = is_json.then(|| Json::parse(text.clone().into_owned()).ok()).flatten();
        json.unwrap_or_else(|| Json::from_value(&text))
    }
}

/// Why a request has no whole answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The handler failed: the status that a job would have, and the reason.
    Failed(JobStatus, String),
    /// The request was interrupted.
    Interrupted,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(_, error) => f.write_str(error),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl<T> Served<io::Result<T>> {
    /// The whole answer.
    ///
    /// # Errors
    /// When there is none, or its body broke off.
    pub(crate) fn whole(self) -> Result<T, NoAnswer> {
        let failed = |error: String| NoAnswer::Failed(JobStatus::Failed, error);
        let broken = match self.answer {
            Some(Ok(Ok(answer))) => return Ok(answer),
            Some(Err(invalid)) => return Err(failed(invalid.to_string())),
            Some(Ok(Err(error))) => Some(error),
            None => None,
        };
        Err(match (self.report.end, broken) {
            (AttemptEnd::Failed { error, .. }, _) => failed(error),
            (AttemptEnd::DeadlineReached, _) => {
                let error = format!("{TIMED_OUT_ERROR} after {} ms", self.timeout.as_millis());
                NoAnswer::Failed(JobStatus::TimedOut, error)
            }
            (AttemptEnd::Returned(()), Some(error)) => {
                failed(format!("the body of the answer broke off: {error}"))
            }
            (AttemptEnd::Returned(()), None) => {
                failed("the handler returned without an answer".to_owned())
            }
            (
                AttemptEnd::Stopped
                | AttemptEnd::NoMemory
                | AttemptEnd::HostLost(_)
                | AttemptEnd::Left,
                _,
            ) => NoAnswer::Interrupted,
        })
    }
}

/// The kind of handler that a command calls: for a request, or for a job. `wants_http` is `None`
/// when the user gave neither an input nor a request.
///
/// # Errors
/// When the component has no handler of this kind.
pub(crate) fn kind_of(component: &[u8], wants_http: Option<bool>) -> anyhow::Result<HandlerKind> {
    let kinds = handler_kinds(component);
    let is_http_only = kinds == [HandlerKind::Http];
    match wants_http {
        Some(false) if is_http_only => {
            bail!(
                "the component answers HTTP requests, and takes no job: it has requests, no input"
            )
        }
        Some(true) if kinds == [HandlerKind::Jobs] => {
            bail!(
                "the component takes jobs, and answers no HTTP request: it has an input, no request"
            )
        }
        Some(true) => Ok(HandlerKind::Http),
        None if is_http_only => Ok(HandlerKind::Http),
        // Without any handler, the runtime explains what is missing.
        Some(false) | None => Ok(HandlerKind::Jobs),
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
