//! Requests that go to a handler of HTTP without a queue.
//!
//! Bodies are streams in both directions. Their error says that the rest will not come: a body that
//! broke off is never shown as complete.

use std::io;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use tokio::sync::oneshot;

/// The body of a request or an answer.
///
/// The kind of an error of a request's body says what the handler sees:
/// [`FileTooLarge`](io::ErrorKind::FileTooLarge), [`TimedOut`](io::ErrorKind::TimedOut), or any
/// other for a client that has left.
pub type HttpBody = UnsyncBoxBody<Bytes, io::Error>;

/// A request, and the place of its answer.
#[derive(Debug)]
pub struct HttpCall {
    /// The request. Its URI has scheme and authority.
    pub request: Request<HttpBody>,
    /// Receives the answer when its head is known, or why there is none. Dropped when the handler
    /// ended without an answer; the [report](crate::runtime::AttemptReport) then says why.
    pub answer: oneshot::Sender<Result<Response<HttpBody>, InvalidAnswer>>,
}

/// The handler answered with an error of `wasi:http`, or with a head that no client may get.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidAnswer(pub String);
