//! Why a request of a handler was not made or failed, and the bounds of requests.

use gristmill_core::id::{EndpointId, OwnerId};
use gristmill_core::metrics::endpoint::RequestEnd;
use gristmill_egress::{
    AddressRefused, Destination, LookupError, Reason, SendError, innermost_cause,
};

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
    let remedy = how_to_allow(host, port);
    format!(
        "endpoint `{endpoint}` does not allow requests to `{host}:{port}`; {remedy} (the option \
         replaces the list: name the other hosts too)"
    )
}

/// The ways to let an endpoint send requests to a host, at a port.
pub fn how_to_allow(host: &str, port: u16) -> String {
    listing("them", &entry_of(host, port))
}

/// The entry of the list of allowed hosts that permits requests to a host, at a port.
fn entry_of(host: &str, port: u16) -> String {
    // An entry without a port stands for that of the URL's scheme.
    match port {
        80 | 443 => host.to_owned(),
        port => format!("{host}:{port}"),
    }
}

/// The ways to add an entry to that list.
fn listing(what: &str, entry: &str) -> String {
    format!("allow {what} with --allow-host {entry}, or in `[network] allow` of gristmill.toml")
}

/// Why a request was not made, or failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EgressError {
    /// The host is not on the endpoint's list.
    #[error("{0}")]
    NotAllowed(String),
    /// The host is on the list, but has an address that is refused.
    #[error("{refused}{remedy}")]
    AddressRefused {
        /// The refusal.
        refused: AddressRefused,
        /// The remedy, if there is one.
        remedy: String,
    },
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
    /// The refusal of an address of this destination, for an owner's endpoint.
    pub(super) fn of_address(
        refused: AddressRefused,
        destination: &Destination,
        owner: &OwnerId,
    ) -> Self {
        let Destination { host, port, .. } = destination;
        let entry = entry_of(host, *port);
        let remedy = match refused.reason {
            Reason::NotPublic | Reason::Own if owner.is_operator() => {
                format!("; {}", listing("it", &format!("'{entry}!private'")))
            }
            Reason::NotPublic | Reason::Own => format!(
                "; only the operator can allow it, with `serve --handler-allow {entry}`, to \
                 endpoints that list `{entry}!private`"
            ),
            Reason::Denied | Reason::Unknown(_) => String::new(),
        };
        Self::AddressRefused { refused, remedy }
    }

    /// The failure of a request to this destination, for an owner's endpoint.
    pub(super) fn of_send(error: SendError, destination: &Destination, owner: &OwnerId) -> Self {
        match error {
            SendError::Refused(refused) => Self::of_address(refused, destination, owner),
            SendError::TimedOut => Self::Timeout,
            SendError::NotConnected(_) => Self::Connect(error.to_string()),
            SendError::Invalid(reason) => Self::Invalid(reason),
            SendError::Failed(reason) => Self::Other(format!("the request failed: {reason}")),
        }
    }

    pub(super) fn as_end(&self) -> RequestEnd {
        match self {
            Self::NotAllowed(_) | Self::AddressRefused { .. } => RequestEnd::Denied,
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
