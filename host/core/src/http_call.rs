//! Requests that go to a handler of HTTP without a queue.
//!
//! Bodies are streams in both directions. Their error says that the rest will not come: a body that
//! broke off is never shown as complete.

use std::fmt;
use std::io;
use std::str::FromStr;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty};
use tokio::sync::oneshot;

/// The body of a request or an answer.
///
/// The kind of an error of a request's body says what the handler sees:
/// [`FileTooLarge`](io::ErrorKind::FileTooLarge), [`TimedOut`](io::ErrorKind::TimedOut), or any
/// other for a client that has left.
pub type HttpBody = UnsyncBoxBody<Bytes, io::Error>;

/// The body without a byte.
pub fn no_body() -> HttpBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Whether an answer with this status has no body, whatever its head announces; `is_head`: it
/// answers HEAD.
pub fn is_bodiless(is_head: bool, status: StatusCode) -> bool {
    is_head || [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status)
}

/// A request, and the place of its answer.
#[derive(Debug)]
pub struct HttpCall {
    /// The request. Its URI has scheme and authority.
    pub request: Request<HttpBody>,
    /// The instance that the client asks for.
    pub affinity: Option<Affinity>,
    /// Receives the answer when its head is known, or why there is none. Dropped when the handler
    /// ended without an answer; the [report](crate::runtime::AttemptReport) then says why. An
    /// answer of an instance that may answer again has an [`InstanceName`] among its extensions.
    pub answer: oneshot::Sender<Result<Response<HttpBody>, NoResponse>>,
}

impl HttpCall {
    /// The call of a request, and its answer.
    pub fn new(
        request: Request<HttpBody>,
    ) -> (Self, oneshot::Receiver<Result<Response<HttpBody>, NoResponse>>) {
        let (answer, answered) = oneshot::channel();
        (Self { request, affinity: None, answer }, answered)
    }
}

/// Why there is no answer, if the attempt has not failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoResponse {
    /// The handler answered with an error of `wasi:http`, or with a head that no client may get.
    #[error("{0}")]
    Invalid(String),
    /// The instance that the client insists on has ended.
    #[error("the instance has ended; without `strict`, another one answers")]
    InstanceGone,
    /// The instance that the client insists on had no time.
    #[error("the instance is busy; without `strict`, another one answers")]
    InstanceBusy,
}

/// The instance that is to answer a request, on an endpoint that reuses instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Affinity {
    /// Its name, which an earlier answer had.
    pub instance: InstanceName,
    /// Whether no other instance may answer.
    pub is_strict: bool,
}

/// The name of an instance of a component: `i` and 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InstanceName(u64);

impl InstanceName {
    /// A name that no other instance has, almost surely.
    pub fn generate() -> Self {
        Self(rand::random())
    }
}

impl fmt::Display for InstanceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "i{:016x}", self.0)
    }
}

/// A text is no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the name of an instance is `i` and 16 hexadecimal digits")]
pub struct InvalidInstanceName;

impl FromStr for InstanceName {
    type Err = InvalidInstanceName;

    fn from_str(text: &str) -> Result<Self, InvalidInstanceName> {
        let digits = text.strip_prefix('i').filter(|digits| digits.len() == 16);
        let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        number.map(Self).ok_or(InvalidInstanceName)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_instance_survives_as_text() {
        for name in [InstanceName(0), InstanceName(u64::MAX), InstanceName::generate()] {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        for text in ["", "i", "i0", "0000000000000000", "i000000000000000g", "i00000000000000000"] {
            assert_eq!(text.parse::<InstanceName>(), Err(InvalidInstanceName), "{text}");
        }
    }
}
