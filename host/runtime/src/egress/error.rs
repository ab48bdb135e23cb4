//! Why a request of a handler was not made or failed, and the bounds of requests.

use gristmill_core::id::EndpointId;
use gristmill_core::metrics::endpoint::RequestEnd;
use gristmill_egress::{AddressRefused, LookupError, SendError, innermost_cause};

/// Largest body of a request or a response, in bytes (16 MiB). A larger one fails the request.
pub(crate) const HTTP_BODY_BYTES_MAX: usize = 16 << 20;

/// Largest head of a request, in bytes (32 KiB): method, URL and headers. A larger one is refused
/// before it is read. In `wasi:http`, where a handler sets these parts one by one, the bound
/// applies to each. The headers of an answer have the same bound, since the host keeps them for as
/// long as the handler keeps the answer; larger ones fail the request.
pub(crate) const HTTP_HEAD_BYTES_MAX: usize = 32 << 10;

/// Open requests of one job, until their answers are read or dropped. More are refused, since a
/// handler that holds them all would wait for itself.
pub(super) const REQUESTS_PER_JOB_MAX: usize = 64;

/// Makes the sentence for a request to a host, at a port, that an endpoint does not allow.
pub type RequestRefusal = fn(&EndpointId, &str, u16) -> String;

/// The sentence of a host.
pub(crate) fn not_allowed(endpoint: &EndpointId, host: &str, port: u16) -> String {
    format!("endpoint `{endpoint}` does not allow requests to `{host}:{port}`")
}

/// Why a request was not made, or failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EgressError {
    /// The host is not on the endpoint's list.
    #[error("{0}")]
    NotAllowed(String),
    /// The host is on the list, but has an address that is refused.
    #[error(transparent)]
    AddressRefused(#[from] AddressRefused),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The job has too many open requests.
    #[error("the job has {REQUESTS_PER_JOB_MAX} open requests, which is the limit")]
    TooMany,
    /// There was no answer in time.
    #[error("the request timed out")]
    Timeout,
    /// There was no connection.
    #[error("{0}")]
    Connect(String),
    /// The head of the answer is too large.
    #[error("the answer has {bytes} bytes of headers, limit: {HTTP_HEAD_BYTES_MAX} bytes")]
    HeadTooLarge { bytes: usize },
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl EgressError {
    pub(super) fn as_end(&self) -> RequestEnd {
        match self {
            Self::NotAllowed(_) | Self::AddressRefused(_) => RequestEnd::Denied,
            Self::Timeout => RequestEnd::TimedOut,
            Self::Connect(_) => RequestEnd::NotConnected,
            Self::Invalid(_) | Self::TooMany | Self::HeadTooLarge { .. } | Self::Other(_) => {
                RequestEnd::Failed
            }
        }
    }
}

impl From<LookupError> for EgressError {
    fn from(error: LookupError) -> Self {
        Self::Connect(format!("cannot connect: {error}"))
    }
}

impl From<SendError> for EgressError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Refused(refused) => refused.into(),
            SendError::TimedOut => Self::Timeout,
            SendError::NotConnected(_) => Self::Connect(error.to_string()),
            SendError::Invalid(reason) => Self::Invalid(reason),
            SendError::Failed(reason) => Self::Other(format!("the request failed: {reason}")),
        }
    }
}

/// A request that cannot be built, or a body that cannot be read.
impl From<reqwest::Error> for EgressError {
    fn from(error: reqwest::Error) -> Self {
        let cause = innermost_cause(&error);
        if error.is_timeout() {
            Self::Timeout
        } else if error.is_builder() {
            Self::Invalid(cause)
        } else {
            Self::Other(format!("the request failed: {cause}"))
        }
    }
}
