//! Outgoing HTTP whose addresses are checked: what was looked at is what is connected to.
//!
//! A caller asks where a URL leads ([`Destination`]), decides what the request may reach
//! ([`AddressScope`]), finds the addresses ([`Clients::look_up`]), and sends it with the client for
//! that reach ([`Clients`]). Redirects are returned, never followed, so that each hop is checked;
//! there is no proxy, no cookie, and no connection that another request has used.

mod addresses;
mod clients;
mod destination;
mod resolver;

pub use addresses::{AddressPolicy, AddressRefused, Reason};
pub use clients::Clients;
pub use destination::{Destination, InvalidDestination};
pub use resolver::{Found, LookupError, LookupFn, refused_address};

/// What the host calls itself in its own requests.
pub const AGENT: &str = concat!("gristmill/", env!("CARGO_PKG_VERSION"));

/// The innermost cause of a failed request: what a person can act on, such as "connection refused".
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
