//! The hosts of registries, as images and credentials name them.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::bounds::HOST_PATTERN_BYTES_MAX;

/// The host of a registry, with its port if one was given; in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RegistryHost(String);

/// The error for a text that is not a registry's host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a registry: write its host as images name it, `registry.example` or \
     `registry.example:5000`"
)]
pub struct InvalidRegistryHost(String);

impl RegistryHost {
    /// The registry of credentials that name none: Docker Hub, as in the documented service.
    pub const DEFAULT: &str = "docker.io";

    /// The registry as image references spell it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the text before the first slash of an image means a registry, by Docker's rule: it
    /// has a dot or a port, or is `localhost`.
    pub fn looks_like_one(text: &str) -> bool {
        text.contains(['.', ':']) || text == "localhost"
    }
}

impl FromStr for RegistryHost {
    type Err = InvalidRegistryHost;

    fn from_str(text: &str) -> Result<Self, InvalidRegistryHost> {
        // An image reference could not contain a longer host.
        let is_short = text.len() <= HOST_PATTERN_BYTES_MAX;
        match is_short && Self::looks_like_one(text) && is_host(text) {
            true => Ok(Self(text.to_ascii_lowercase())),
            false => Err(InvalidRegistryHost(text.to_owned())),
        }
    }
}

impl TryFrom<String> for RegistryHost {
    type Error = InvalidRegistryHost;
    fn try_from(text: String) -> Result<Self, InvalidRegistryHost> {
        text.parse()
    }
}

impl From<RegistryHost> for String {
    fn from(host: RegistryHost) -> Self {
        host.0
    }
}

impl fmt::Display for RegistryHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name or an address with or without a port, without any character that has another meaning in a
/// URL.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if host.ends_with(']') || !host.contains(':') => (host, Some(port)),
        _ => (text, None),
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    let is_name = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b".-".contains(&b))
    };
    let is_v6 = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .is_some_and(|host| host.parse::<Ipv6Addr>().is_ok());
    (is_name(host) || is_v6) && port.is_none_or(is_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_is_named_by_its_host() {
        for (text, host) in [
            ("GHCR.io", "ghcr.io"),
            ("registry.example:5000", "registry.example:5000"),
            ("localhost", "localhost"),
            ("[::1]:5000", "[::1]:5000"),
        ] {
            assert_eq!(text.parse::<RegistryHost>().unwrap().as_str(), host);
        }
        let long = format!("{}.example", "a".repeat(HOST_PATTERN_BYTES_MAX));
        for wrong in
            ["", "hub", "a b.c", "https://a.b", "a.b/c", "user@a.b", "a.b:0", "a.b:x", &long]
        {
            let refused = wrong.parse::<RegistryHost>().unwrap_err().to_string();
            assert!(refused.contains("registry.example"), "{refused}");
        }
    }
}
