//! Requests through `wasi:http`, whose answers are read as they arrive.
//!
//! The body of the request is sent before the answer is read. **Bounds** are those of the host: 16
//! MiB for each body, and 64 open requests for each job.

use std::io::Write as _;
use std::time::Duration;

use wasip2::http::outgoing_handler::handle;
use wasip2::http::types::{
    ErrorCode, Fields, FutureIncomingResponse, HeaderError, IncomingBody, Method, OutgoingBody,
    OutgoingRequest, RequestOptions, Scheme, http_error_code,
};
use wasip2::io::streams::{InputStream, StreamError};

use crate::http::{Error, Request, Response};

/// The most bytes of a body that one call of the host returns.
const PIECE_BYTES_MAX: u64 = 64 << 10;

/// The body of an answer. The host refuses to drop a body before its stream, hence the order.
#[derive(Debug)]
pub(crate) struct Pieces {
    stream: InputStream,
    _body: IncomingBody,
    origin: String,
}

impl Pieces {
    /// Waits for the next piece; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        match self.stream.blocking_read(PIECE_BYTES_MAX) {
            Ok(piece) => Ok(Some(piece)),
            Err(StreamError::Closed) => Ok(None),
            Err(StreamError::LastOperationFailed(error)) => Err(match http_error_code(&error) {
                Some(code) => lift(code, &self.origin),
                None => {
                    let text = error.to_debug_string();
                    // Further lines are the host's stack.
                    let text = text.lines().next().unwrap_or_default();
                    Error::Other(format!("the answer of {} broke off: {text}", self.origin))
                }
            }),
        }
    }
}

/// Sends a request, and waits for the head of its answer.
pub(crate) fn send(request: Request) -> Result<Response<Pieces>, Error> {
    let Request { method, url, headers, body, timeout } = request;
    let url = Url::of(&url)?;
    let outgoing = OutgoingRequest::new(fields(&headers, body.len())?);
    let malformed = |what| move |()| Error::InvalidRequest(format!("{what} is malformed"));
    let method = Method::Other(method.to_ascii_uppercase());
    outgoing.set_method(&method).map_err(malformed("the method"))?;
    outgoing.set_scheme(Some(&url.scheme)).map_err(malformed("the URL"))?;
    outgoing.set_authority(Some(url.authority)).map_err(malformed("the host in the URL"))?;
    outgoing.set_path_with_query(Some(&url.target)).map_err(malformed("the path of the URL"))?;
    // Without a body the request has no `content-length`.
    let outgoing_body = if body.is_empty() { None } else { outgoing.body().ok() };
    let answer = handle(outgoing, timeout.map(options)).map_err(|code| lift(code, &url.origin))?;
    if let Some(outgoing_body) = outgoing_body {
        write(outgoing_body, &body);
    }
    receive(&answer, url.origin)
}

/// Writes a whole body. A server may answer before it has read everything, so a failure is that of
/// the answer, if it has one.
fn write(body: OutgoingBody, bytes: &[u8]) {
    let Ok(mut stream) = body.write() else { return };
    let written = stream.write_all(bytes);
    drop(stream);
    if written.is_ok() {
        let _ = OutgoingBody::finish(body, None);
    }
}

fn receive(answer: &FutureIncomingResponse, origin: String) -> Result<Response<Pieces>, Error> {
    answer.subscribe().block();
    let gone = || Error::Other(format!("{origin}: the request has ended with an earlier job"));
    let answer = answer.get().and_then(Result::ok).ok_or_else(gone)?;
    let answer = answer.map_err(|code| lift(code, &origin))?;
    let status = answer.status();
    let headers = answer.headers().entries().into_iter();
    // The values are strings, as those of complete answers: others are dropped.
    let headers = headers.filter_map(|(name, value)| Some((name, String::from_utf8(value).ok()?)));
    let headers = headers.collect();
    let body = answer.consume().map_err(|()| gone())?;
    let stream = body.stream().map_err(|()| gone())?;
    Ok(Response { status, headers, body: Pieces { stream, _body: body, origin } })
}

/// The headers of a request whose body has this length. Those that concern the connection alone are
/// dropped, as for complete answers.
fn fields(headers: &[(String, String)], body_bytes: usize) -> Result<Fields, Error> {
    let fields = Fields::new();
    let append = |name: &str, value: &str| match fields.append(name, value.as_bytes()) {
        Ok(()) | Err(HeaderError::Forbidden) => Ok(()),
        Err(HeaderError::InvalidSyntax) => {
            Err(Error::InvalidRequest(format!("header `{name}` is malformed")))
        }
        Err(_) => Err(Error::InvalidRequest(format!("header `{name}` makes the head too large"))),
    };
    let is_length = |name: &str| name.eq_ignore_ascii_case("content-length");
    for (name, value) in headers.iter().filter(|(name, _)| !is_length(name)) {
        append(name, value)?;
    }
    if body_bytes > 0 {
        append("content-length", &body_bytes.to_string())?;
    }
    Ok(fields)
}

fn options(timeout: Duration) -> RequestOptions {
    let options = RequestOptions::new();
    let ns = timeout.as_nanos().div_ceil(1_000_000).saturating_mul(1_000_000);
    let ns = u64::try_from(ns).unwrap_or(u64::MAX);
    // The host has both options.
    let _ = options.set_first_byte_timeout(Some(ns));
    let _ = options.set_between_bytes_timeout(Some(ns));
    options
}

/// An absolute URL in the parts that `wasi:http` takes.
struct Url<'a> {
    scheme: Scheme,
    authority: &'a str,
    /// Path and query.
    target: String,
    /// Scheme and host, for errors: the other parts may contain secrets.
    origin: String,
}

impl<'a> Url<'a> {
    fn of(url: &'a str) -> Result<Self, Error> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let name = scheme.to_ascii_lowercase();
        let scheme = match name.as_str() {
            "https" => Scheme::Https,
            "http" => Scheme::Http,
            _ => {
                let why = "is no absolute URL that begins with `http://` or `https://`";
                return Err(Error::InvalidRequest(format!("`{url}` {why}")));
            }
        };
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let slash = if target.starts_with('/') { "" } else { "/" };
        let target = format!("{slash}{}", encoded(target));
        let host = authority.rsplit('@').next().unwrap_or_default();
        let origin = format!("{name}://{host}");
        Ok(Self { scheme, authority, target, origin })
    }
}

/// A target in which the characters that no URL has are encoded, as for complete answers.
fn encoded(target: &str) -> String {
    let mut encoded = String::new();
    for character in target.chars() {
        match character {
            '\0'..=' ' | '"' | '<' | '>' | '`' | '\x7f' => {
                encoded += &format!("%{:02X}", u32::from(character));
            }
            other => encoded.push(other),
        }
    }
    encoded
}

/// The host's error for a request to `to`. Its codes have no texts, so the texts are here.
fn lift(code: ErrorCode, to: &str) -> Error {
    match code {
        ErrorCode::HttpRequestDenied => Error::Denied(format!(
            "the endpoint does not allow requests to {to}; allow them with --allow-host, or in \
             `[network] allow` of gristmill.toml"
        )),
        ErrorCode::DestinationIpProhibited => Error::Denied(format!(
            "the address of {to} is not public; `!private` at the end of its entry in the list of \
             allowed hosts permits it, and for owners other than the operator `serve \
             --handler-allow` too"
        )),
        ErrorCode::HttpRequestUriInvalid => Error::InvalidRequest(format!("bad URL: {to}")),
        ErrorCode::HttpRequestBodySize(limit) => Error::InvalidRequest(match limit {
            Some(limit) => format!("the body is too large, limit: {limit} bytes"),
            None => "the body is too large".to_owned(),
        }),
        ErrorCode::HttpResponseTimeout
        | ErrorCode::ConnectionTimeout
        | ErrorCode::ConnectionReadTimeout => Error::Timeout,
        ErrorCode::HttpResponseBodySize(Some(limit_bytes)) => Error::TooLarge { limit_bytes },
        ErrorCode::ConnectionRefused => Error::Connect(format!("cannot connect to {to}")),
        ErrorCode::ConnectionLimitReached => {
            Error::Other(format!("{to}: the job has too many open requests"))
        }
        ErrorCode::InternalError(Some(text)) => Error::Other(format!("{to}: {text}")),
        other => {
            let name = format!("{other:?}");
            Error::Other(format!("{to}: {}", name.trim_start_matches("ErrorCode::")))
        }
    }
}
