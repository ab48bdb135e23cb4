//! Hosts that an endpoint's handlers may call.

use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::bounds::HOST_PATTERN_BYTES_MAX;

/// One entry: `example.com`, `*.example.com`, `example.com:8443`, or an address such as
/// `127.0.0.1:9000`. Without a port it means the scheme's default port. An entry that *is* an
/// address, or ends in `!private`, also permits addresses that are not public.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPattern {
    text: String,
    /// Lower case; without the leading `*.`.
    host: String,
    is_wildcard: bool,
    port: Option<u16>,
    allows_private: bool,
}

/// The error for a text that is not a host pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a host pattern: write `example.com`, `*.example.com`, `example.com:8443`, an \
     address, or one of these with `!private` at its end to permit private addresses; \
     {HOST_PATTERN_BYTES_MAX} bytes at most"
)]
pub struct InvalidHostPattern(String);

impl FromStr for HostPattern {
    type Err = InvalidHostPattern;

    fn from_str(text: &str) -> Result<Self, InvalidHostPattern> {
        let invalid = || InvalidHostPattern(text.to_owned());
        if text.len() > HOST_PATTERN_BYTES_MAX {
            let start = text.floor_char_boundary(HOST_PATTERN_BYTES_MAX);
            let start = text.get(..start).unwrap_or_default();
            return Err(InvalidHostPattern(format!("{start}…")));
        }
        let (rest, is_marked) = match text.strip_suffix("!private") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let (rest, is_wildcard) = match rest.strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        // `[v6]`, `[v6]:port`, `name`, `name:port`; a bare v6 address has several colons.
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if host.ends_with(']') || !host.contains(':') => {
                (host, Some(port.parse().map_err(|_| invalid())?))
            }
            _ => (rest, None),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let is_address = host.parse::<IpAddr>().is_ok();
        let is_name = !host.is_empty()
            && !host.starts_with('.')
            && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        if !(is_name || is_address) || (is_wildcard && is_address) || port == Some(0) {
            return Err(invalid());
        }
        Ok(Self {
            text: text.to_owned(),
            host,
            is_wildcard,
            port,
            allows_private: is_marked || is_address,
        })
    }
}

impl TryFrom<String> for HostPattern {
    type Error = InvalidHostPattern;
    fn try_from(text: String) -> Result<Self, InvalidHostPattern> {
        text.parse()
    }
}

impl From<HostPattern> for String {
    fn from(pattern: HostPattern) -> Self {
        pattern.text
    }
}

impl HostPattern {
    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it permits addresses that are not public.
    pub fn allows_private(&self) -> bool {
        self.allows_private
    }

    /// Whether the pattern names this host, in lower case and without brackets, and this port.
    /// `default_port` is that of the URL's scheme.
    pub fn matches(&self, host: &str, port: u16, default_port: u16) -> bool {
        let name_matches = if self.is_wildcard {
            host.strip_suffix(&self.host).is_some_and(|sub| sub.len() > 1 && sub.ends_with('.'))
        } else {
            host == self.host
        };
        name_matches && port == self.port.unwrap_or(default_port)
    }
}
