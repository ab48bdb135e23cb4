//! Where a URL leads, before anything is resolved.

use gristmill_core::egress::{AllowedHosts, Permission, is_public};
use url::{Host, Url};

use crate::resolver::NotPublic;

/// The host and port that a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// A name, or an address; a v6 address has its brackets.
    pub host: String,
    /// The port, given or the scheme's default.
    pub port: u16,
    default_port: u16,
    is_inner_address: bool,
}

/// A URL that no request can be sent to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDestination {
    /// Not a scheme that is spoken here.
    #[error("`{0}` is not http or https")]
    Scheme(String),
    /// There is no host in it.
    #[error("the URL has no host")]
    NoHost,
}

impl Destination {
    /// Where the URL leads.
    ///
    /// # Errors
    /// [`InvalidDestination`] when that is nowhere.
    pub fn of(url: &Url) -> Result<Self, InvalidDestination> {
        let default_port = match url.scheme() {
            "http" => 80,
            "https" => 443,
            other => return Err(InvalidDestination::Scheme(other.to_owned())),
        };
        let host = url.host().ok_or(InvalidDestination::NoHost)?;
        // An address in the URL is never resolved, so it is looked at here.
        let is_inner_address = match host {
            Host::Ipv4(address) => !is_public(address.into()),
            Host::Ipv6(address) => !is_public(address.into()),
            Host::Domain(_) => false,
        };
        let port = url.port().unwrap_or(default_port);
        Ok(Self { host: host.to_string(), port, default_port, is_inner_address })
    }

    /// What the list says about it.
    pub fn permission(&self, allowed: &AllowedHosts) -> Permission {
        allowed.permission(&self.host, self.port, self.default_port)
    }

    /// Refuses an address that is not public. Names are checked when they are resolved.
    ///
    /// # Errors
    /// [`NotPublic`] when the host is such an address.
    pub fn require_public(&self) -> Result<(), NotPublic> {
        if self.is_inner_address {
            return Err(NotPublic { host: self.host.clone() });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inner_address_is_seen_in_every_spelling() {
        let inner = ["http://127.0.0.1/", "http://2130706433/", "http://0x7f.1/", "http://[::1]/"];
        for url in inner {
            let destination = Destination::of(&Url::parse(url).unwrap()).unwrap();
            assert!(destination.require_public().is_err(), "{url}");
        }
        for url in ["https://1.1.1.1/", "http://localhost/"] {
            let destination = Destination::of(&Url::parse(url).unwrap()).unwrap();
            assert!(destination.require_public().is_ok(), "{url}");
        }
        let file = Destination::of(&Url::parse("file:///etc/passwd").unwrap());
        assert_eq!(file, Err(InvalidDestination::Scheme("file".to_owned())));
    }
}
