//! HTTP requests, for [`Context::http_send`](crate::Context::http_send), which returns whole
//! answers, and [`Context::http_stream`](crate::Context::http_stream), whose answers are read as
//! they arrive.

use std::fmt;
use std::io::{self, BufRead, Cursor, Read};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::host::Pieces;

/// A request to send.
///
/// ```
/// use std::time::Duration;
/// use gristmill_sdk::http::Request;
///
/// let request = Request::post("https://api.example.com/v1/items", "name=flour")
///     .with_header("content-type", "application/x-www-form-urlencoded")
///     .with_timeout(Duration::from_secs(5));
/// assert_eq!(request.method, "POST");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// `GET`, `POST`, …
    pub method: String,
    /// An absolute `http` or `https` URL.
    pub url: String,
    /// Names and values, in the order in which they are sent.
    pub headers: Vec<(String, String)>,
    /// The body; empty for none.
    pub body: Vec<u8>,
    /// The longest wait for the whole answer, in whole milliseconds, rounded up; for a streamed
    /// answer, the longest wait for its head, and then for each piece of its body. The remaining
    /// time of the attempt limits it, and is the default.
    pub timeout: Option<Duration>,
}

impl Request {
    /// A request without headers and body.
    ///
    /// ```
    /// # use gristmill_sdk::http::Request;
    /// assert_eq!(Request::new("DELETE", "https://example.com/1").method, "DELETE");
    /// ```
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        let (method, url) = (method.into(), url.into());
        Self { method, url, headers: Vec::new(), body: Vec::new(), timeout: None }
    }

    /// A `GET`.
    ///
    /// ```
    /// # use gristmill_sdk::http::Request;
    /// assert_eq!(Request::get("https://example.com/").method, "GET");
    /// ```
    pub fn get(url: impl Into<String>) -> Self {
        Self::new("GET", url)
    }

    /// A `POST` of these bytes. It has no `content-type` yet.
    ///
    /// ```
    /// # use gristmill_sdk::http::Request;
    /// assert_eq!(Request::post("https://example.com/", "hello").body, b"hello");
    /// ```
    pub fn post(url: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..Self::new("POST", url) }
    }

    /// Adds a header. Headers of the same name are all sent.
    ///
    /// ```
    /// # use gristmill_sdk::http::Request;
    /// let request = Request::get("https://example.com/").with_header("accept", "text/plain");
    /// assert_eq!(request.headers, [("accept".to_owned(), "text/plain".to_owned())]);
    /// ```
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Makes `value` the body, as JSON, and adds `content-type: application/json`.
    ///
    /// # Errors
    /// When `value` has no JSON form.
    ///
    /// ```
    /// # use gristmill_sdk::http::Request;
    /// let request = Request::new("PUT", "https://example.com/").with_json(&[1, 2])?;
    /// assert_eq!(request.body, b"[1,2]");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn with_json(mut self, value: &impl Serialize) -> Result<Self, serde_json::Error> {
        self.body = serde_json::to_vec(value)?;
        Ok(self.with_header("content-type", "application/json"))
    }

    /// Sets [`timeout`](Self::timeout).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use gristmill_sdk::http::Request;
    /// let request = Request::get("https://example.com/").with_timeout(Duration::from_secs(2));
    /// assert_eq!(request.timeout, Some(Duration::from_secs(2)));
    /// ```
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

/// An answer, with any status: complete, or with a [`Body`] that is read as it arrives.
///
/// ```
/// use gristmill_sdk::http::Response;
///
/// let response = Response::new(200, "[1,2]").with_header("Content-Type", "application/json");
/// assert_eq!(response.header("content-type"), Some("application/json"));
/// assert_eq!(response.json::<Vec<u8>>()?, [1, 2]);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Response<B = Vec<u8>> {
    /// The status code.
    pub status: u16,
    /// Names and values, in the order in which they came.
    pub headers: Vec<(String, String)>,
    /// The body; empty when there is none.
    pub body: B,
}

/// Every answer.
impl<B> Response<B> {
    /// The first header of that name, in any case.
    ///
    /// ```
    /// # use gristmill_sdk::http::Response;
    /// let response = Response::new(200, "").with_header("ETag", "\"1\"");
    /// assert_eq!(response.header("etag"), Some("\"1\""));
    /// ```
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn with_body<To>(self, body: impl FnOnce(B) -> To) -> Response<To> {
        let Self { status, headers, body: from } = self;
        Response { status, headers, body: body(from) }
    }
}

/// Complete answers.
impl Response {
    /// A response without headers. Tests create responses; handlers receive them from the host.
    ///
    /// ```
    /// # use gristmill_sdk::http::Response;
    /// assert_eq!(Response::new(404, "no such page").status, 404);
    /// ```
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    /// Adds a header.
    ///
    /// ```
    /// # use gristmill_sdk::http::Response;
    /// let response = Response::new(302, "").with_header("location", "/new");
    /// assert_eq!(response.headers.len(), 1);
    /// ```
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The body as text.
    ///
    /// # Errors
    /// When it is not UTF-8.
    ///
    /// ```
    /// # use gristmill_sdk::http::Response;
    /// assert_eq!(Response::new(200, "flour").text(), Ok("flour"));
    /// assert!(Response::new(200, [0xff]).text().is_err());
    /// ```
    pub fn text(&self) -> Result<&str, std::str::Utf8Error> {
        std::str::from_utf8(&self.body)
    }

    /// The body, read as JSON.
    ///
    /// # Errors
    /// When it is not JSON, or not a `T`.
    ///
    /// ```
    /// # use gristmill_sdk::http::Response;
    /// assert_eq!(Response::new(200, "7").json::<u8>()?, 7);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }
}

/// The body of an answer, in pieces as they arrive: [`read`](Read::read) and the other methods wait
/// for the next one. Dropping it ends the request.
///
/// The errors of these methods contain an [`Error`], and they repeat: a body that broke off never
/// looks like one that ended. It breaks off, among other causes, when it is larger than the host's
/// limit of 16 MiB, or when [`Request::timeout`] passes without a piece.
///
/// ```
/// use std::io::BufRead;
/// use gristmill_sdk::http::{Body, Response};
///
/// /// The data of server-sent events, of one line each.
/// fn events(answer: Response<Body>) -> impl Iterator<Item = std::io::Result<String>> {
///     answer.body.lines().filter_map(|line| match line {
///         Ok(line) => line.strip_prefix("data: ").map(|data| Ok(data.to_owned())),
///         Err(error) => Some(Err(error)),
///     })
/// }
/// ```
#[derive(Debug)]
pub struct Body {
    pieces: Pieces,
    /// The part of the last piece that is not yet read.
    piece: Cursor<Vec<u8>>,
    end: Option<Result<(), Error>>,
}

impl Body {
    pub(crate) fn new(pieces: Pieces) -> Self {
        Self { pieces, piece: Cursor::default(), end: None }
    }
}

impl BufRead for Body {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.piece.fill_buf()?.is_empty() {
            match &self.end {
                Some(Ok(())) => break,
                Some(Err(error)) => return Err(error.clone().into()),
                None => match self.pieces.next() {
                    Ok(Some(piece)) => self.piece = Cursor::new(piece),
                    Ok(None) => self.end = Some(Ok(())),
                    Err(error) => self.end = Some(Err(error)),
                },
            }
        }
        self.piece.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.piece.consume(bytes);
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.fill_buf()?;
        self.piece.read(buffer)
    }
}

/// Why there is no answer, or not all of it.
///
/// ```
/// use gristmill_sdk::http::Error;
/// assert_eq!(Error::Timeout.to_string(), "HTTP request timed out");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The endpoint does not allow this host, or the host has an address that is not public.
    Denied(String),
    /// The method, URL or a header is malformed.
    InvalidRequest(String),
    /// The answer was not complete in time.
    Timeout,
    /// The body of the answer is too large.
    TooLarge {
        /// The host's limit, in bytes.
        limit_bytes: u64,
    },
    /// No connection could be made.
    Connect(String),
    /// Another failure; the text describes it.
    Other(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(what) => write!(f, "HTTP request is not allowed: {what}"),
            Self::InvalidRequest(what) => write!(f, "HTTP request is malformed: {what}"),
            Self::Timeout => f.write_str("HTTP request timed out"),
            Self::TooLarge { limit_bytes } => {
                write!(f, "HTTP response exceeds the limit: {limit_bytes} bytes")
            }
            Self::Connect(what) => write!(f, "HTTP connection failed: {what}"),
            Self::Other(what) => write!(f, "HTTP request failed: {what}"),
        }
    }
}

impl std::error::Error for Error {}

/// The errors of a [`Body`].
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Denied(_) => io::ErrorKind::PermissionDenied,
            Error::InvalidRequest(_) => io::ErrorKind::InvalidInput,
            Error::Timeout => io::ErrorKind::TimedOut,
            Error::TooLarge { .. } => io::ErrorKind::FileTooLarge,
            Error::Connect(_) => io::ErrorKind::NotConnected,
            Error::Other(_) => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestContext;

    #[test]
    fn json_body_says_that_it_is_json() {
        let request = Request::post("https://example.com/", "").with_json(&"x").unwrap();
        assert_eq!(request.body, b"\"x\"");
        let header = ("content-type".to_owned(), "application/json".to_owned());
        assert_eq!(request.headers, [header]);
    }

    #[test]
    fn first_of_repeated_headers_is_found() {
        let response = Response::new(200, "").with_header("Vary", "a").with_header("vary", "b");
        assert_eq!(response.header("VARY"), Some("a"));
        assert_eq!(response.header("age"), None);
    }

    fn streamed(pieces: &[Result<&str, Error>]) -> Body {
        let url = "https://example.com/";
        let head = Response::new(200, "");
        let ctx = TestContext::new().with_http_stream(url, head, pieces.iter().cloned());
        ctx.http_stream(Request::get(url)).unwrap().body
    }

    #[test]
    fn lines_do_not_depend_on_the_pieces() {
        let body = streamed(&[Ok("o"), Ok(""), Ok("ne\r"), Ok("\ntwo\nth"), Ok("ree")]);
        let lines: Vec<_> = body.lines().map(Result::unwrap).collect();
        assert_eq!(lines, ["one", "two", "three"]);
    }

    #[test]
    fn a_body_that_broke_off_never_looks_complete() {
        let mut body = streamed(&[Ok("a part"), Err(Error::Timeout)]);
        let mut part = [0; 6];
        body.read_exact(&mut part).unwrap();
        for _ in 0..2 {
            let error = body.read(&mut part).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert_eq!(error.downcast::<Error>().unwrap(), Error::Timeout);
        }
    }
}
