//! Outgoing HTTP with checked addresses: a request connects only to the addresses that were
//! checked.
//!
//! A caller reads the host of a URL ([`Destination`]), decides which addresses the request may
//! reach ([`AddressScope`]), resolves the name ([`Clients::look_up`]), and sends the request
//! ([`Clients::send`]). Redirects are returned, never followed, so that each hop is checked; there
//! is no proxy, no cookie, no connection that another request has used, and none that outlives its
//! call.

mod addresses;
mod clients;
mod destination;
mod exchange;
mod resolver;

pub use addresses::{AddressPolicy, AddressRefused, Reason};
pub use clients::{Clients, NoClient};
pub use destination::{Destination, InvalidDestination};
pub use exchange::SendError;
pub use resolver::{Found, LookupError, LookupFn, refused_address};

/// The `User-Agent` of the host's own requests.
pub const AGENT: &str = concat!("gristmill/", env!("CARGO_PKG_VERSION"));

/// The innermost cause of a failed request, which is the most helpful one, such as "connection
/// refused".
pub fn innermost_cause(error: &reqwest::Error) -> String {
    let first = std::error::Error::source(error);
    let last = std::iter::successors(first, |cause| cause.source()).last();
    last.map_or_else(|| error.to_string(), ToString::to_string)
}

/// Which addresses a request may connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressScope {
    /// Only if the [`AddressPolicy`] permits all addresses of the name.
    PublicAddresses,
    /// Any: the operator named this destination.
    AnyAddress,
}
