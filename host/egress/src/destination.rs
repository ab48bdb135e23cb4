//! The host and port of a URL, before the name is resolved.

use std::net::IpAddr;

use gristmill_core::deploy::egress::{HostPattern, Permission, permission};
use url::{Host, Url};

/// The host and port that a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// A name, or an address; a v6 address has its brackets.
    pub host: String,
    /// The port, given or the scheme's default.
    pub port: u16,
    default_port: u16,
    /// The host, when it is an address: it is never resolved.
    pub(crate) address: Option<IpAddr>,
}

/// A URL that no request can be sent to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDestination {
    /// A scheme that is not supported.
    #[error("`{0}` is not http or https")]
    Scheme(String),
    /// There is no host in it.
    #[error("the URL has no host")]
    NoHost,
}

impl Destination {
    /// The destination of the URL.
    ///
    /// # Errors
    /// [`InvalidDestination`] when it has none.
    pub fn of(url: &Url) -> Result<Self, InvalidDestination> {
        let default_port = match url.scheme() {
            "http" => 80,
            "https" => 443,
            other => return Err(InvalidDestination::Scheme(other.to_owned())),
        };
        let host = url.host().ok_or(InvalidDestination::NoHost)?;
        let address = match host {
            Host::Ipv4(address) => Some(address.into()),
            Host::Ipv6(address) => Some(address.into()),
            Host::Domain(_) => None,
        };
        let port = url.port().unwrap_or(default_port);
        Ok(Self { host: host.to_string(), port, default_port, address })
    }

    /// Whether its name is one of this machine on every network (RFC 6761, 6.3).
    pub(crate) fn is_this_machine(&self) -> bool {
        let name = self.host.strip_suffix('.').unwrap_or(&self.host);
        name == "localhost" || name.ends_with(".localhost")
    }

    /// The list's decision about it.
    pub fn permission(&self, allowed: &[HostPattern]) -> Permission {
        permission(allowed, &self.host, self.port, self.default_port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AddressPolicy, Clients};

    #[test]
    fn an_inner_address_is_seen_in_every_spelling() {
        let clients = Clients::new(AddressPolicy::default());
        let inner = [
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://[::1]/",
            "http://LOCALHOST/",
            "http://localhost./",
            "http://app.localhost:9000/",
        ];
        for url in inner {
            let destination = Destination::of(&Url::parse(url).unwrap()).unwrap();
            assert!(clients.check(&destination).is_err(), "{url}");
        }
        for url in ["https://1.1.1.1/", "http://localhost.example.com/", "http://mylocalhost/"] {
            let destination = Destination::of(&Url::parse(url).unwrap()).unwrap();
            assert_eq!(clients.check(&destination), Ok(()), "{url}");
        }
        let file = Destination::of(&Url::parse("file:///etc/passwd").unwrap());
        assert_eq!(file, Err(InvalidDestination::Scheme("file".to_owned())));
    }
}
