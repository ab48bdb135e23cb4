//! Why a request of a handler was not made or failed, and the bounds of requests.

use gristmill_core::metrics::endpoint::RequestEnd;
use gristmill_egress::{AddressRefused, LookupError, innermost_cause, refused_address};

/// Largest body of a request or a response, in bytes (16 MiB). A larger one fails the request.
pub(crate) const HTTP_BODY_BYTES_MAX: usize = 16 << 20;

/// Largest head of a request, in bytes (32 KiB): method, URL and headers. A larger one is refused
/// before it is read. In `wasi:http`, where a handler sets these parts one by one, the bound
/// applies to each.
pub(crate) const HTTP_HEAD_BYTES_MAX: usize = 32 << 10;

/// Open requests of one job, until their answers are read or dropped. More are refused, since a
/// handler that holds them all would wait for itself.
pub(super) const REQUESTS_PER_JOB_MAX: usize = 64;

/// Why a request was not made, or failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EgressError {
    /// The host is not on the endpoint's list.
    #[error("endpoint `{endpoint}` does not allow requests to `{host}:{port}`")]
    NotAllowed { endpoint: String, host: String, port: u16 },
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
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl EgressError {
    /// Whether bytes of the request may have left the host.
    pub(crate) fn may_have_sent(&self) -> bool {
        match self {
            Self::Timeout | Self::Other(_) => true,
            Self::NotAllowed { .. }
            | Self::AddressRefused(_)
            | Self::Invalid(_)
            | Self::TooMany
            | Self::Connect(_) => false,
        }
    }

    pub(super) fn as_end(&self) -> RequestEnd {
        match self {
            Self::NotAllowed { .. } | Self::AddressRefused(_) => RequestEnd::Denied,
            Self::Timeout => RequestEnd::TimedOut,
            Self::Connect(_) => RequestEnd::NotConnected,
            Self::Invalid(_) | Self::TooMany | Self::Other(_) => RequestEnd::Failed,
        }
    }
}

impl From<LookupError> for EgressError {
    fn from(error: LookupError) -> Self {
        Self::Connect(format!("cannot connect: {error}"))
    }
}

impl From<reqwest::Error> for EgressError {
    fn from(error: reqwest::Error) -> Self {
        if let Some(refused) = refused_address(&error) {
            return refused.clone().into();
        }
        let cause = innermost_cause(&error);
        if error.is_timeout() {
            Self::Timeout
        } else if error.is_connect() {
            Self::Connect(format!("cannot connect: {cause}"))
        } else if error.is_builder() {
            Self::Invalid(cause)
        } else {
            Self::Other(format!("the request failed: {cause}"))
        }
    }
}
