//! The registries that may be called: those at public addresses over HTTPS, and those that the
//! operator has named.

use std::str::FromStr;

use gristmill_core::deploy::egress::{HostPattern, Permission};
use gristmill_core::deploy::image::RegistryHost;
use gristmill_egress::{AddressScope, Clients, Destination};
use serde::Deserialize;
use url::Url;

/// The host at which Docker Hub, which images name as [`RegistryHost::DEFAULT`], answers.
const DOCKER_HUB: &str = "registry-1.docker.io";

/// The end of a refusal.
pub(crate) const HOW_TO_ALLOW: &str =
    "only the operator can allow it, with `serve --registry-allow`";

/// One entry of `--registry-allow`: a host pattern whose addresses need not be public; with the
/// prefix `http://` its registries are called without TLS.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct RegistryPattern {
    host: HostPattern,
    is_plain: bool,
}

/// The error for a text that is not an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a registry: write `HOST`, `HOST:PORT` or `http://HOST:PORT`")]
pub struct InvalidRegistryPattern(String);

impl FromStr for RegistryPattern {
    type Err = InvalidRegistryPattern;

    fn from_str(text: &str) -> Result<Self, InvalidRegistryPattern> {
        let (host, is_plain) = match text.strip_prefix("http://") {
            Some(host) => (host, true),
            None => (text.strip_prefix("https://").unwrap_or(text), false),
        };
        let host = host.parse().map_err(|_| InvalidRegistryPattern(text.to_owned()))?;
        Ok(Self { host, is_plain })
    }
}

impl TryFrom<String> for RegistryPattern {
    type Error = InvalidRegistryPattern;
    fn try_from(text: String) -> Result<Self, InvalidRegistryPattern> {
        text.parse()
    }
}

/// The registries that the operator allows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistryHosts {
    secure: Vec<HostPattern>,
    plain: Vec<HostPattern>,
}

impl RegistryHosts {
    /// The rules of these entries.
    pub fn new(patterns: &[RegistryPattern]) -> Self {
        let plain = patterns.iter().filter(|pattern| pattern.is_plain);
        Self {
            secure: patterns.iter().map(|pattern| pattern.host.clone()).collect(),
            plain: plain.map(|pattern| pattern.host.clone()).collect(),
        }
    }

    /// The URL below which a registry has its images. Docker Hub has its images at another host;
    /// entries of `--registry-allow` must name that host.
    ///
    /// # Errors
    /// When the host is invalid.
    pub(crate) fn base(&self, registry: &str) -> Result<Url, String> {
        let is_docker_hub = registry.eq_ignore_ascii_case(RegistryHost::DEFAULT);
        let registry = if is_docker_hub { DOCKER_HUB } else { registry };
        let url = |scheme| {
            let text = format!("{scheme}://{registry}/v2/");
            Url::parse(&text).map_err(|error| format!("`{registry}` is no host: {error}"))
        };
        let plain = url("http")?;
        match self.is_named(&plain)? {
            true => Ok(plain),
            false => url("https"),
        }
    }

    /// The permitted addresses for a request of this URL, sent with these clients.
    ///
    /// # Errors
    /// One sentence that says why the request may not be sent at all.
    pub(crate) fn address_scope(
        &self,
        url: &Url,
        clients: &Clients,
    ) -> Result<AddressScope, String> {
        if !url.username().is_empty() || url.password().is_some() {
            return Err("it leads to a URL with a user name or a password".to_owned());
        }
        if self.is_named(url)? {
            return Ok(AddressScope::AnyAddress);
        }
        let destination = Destination::of(url).map_err(|error| error.to_string())?;
        let host = &destination.host;
        if url.scheme() == "http" {
            return Err(format!("`{host}` would be called without TLS; {HOW_TO_ALLOW}"));
        }
        clients.check(&destination).map_err(|error| format!("{error}; {HOW_TO_ALLOW}"))?;
        Ok(AddressScope::PublicAddresses)
    }

    /// Whether the operator has named the URL's host, with its scheme.
    fn is_named(&self, url: &Url) -> Result<bool, String> {
        let destination = Destination::of(url).map_err(|error| error.to_string())?;
        let list = if url.scheme() == "http" { &self.plain } else { &self.secure };
        // A named registry is permitted at any address.
        Ok(destination.permission(list) != Permission::Denied)
    }
}

#[cfg(test)]
mod tests {
    use gristmill_egress::AddressPolicy;

    use super::*;

    #[test]
    fn inner_addresses_and_plain_http_are_for_the_operator_to_allow() {
        let patterns =
            ["10.0.0.1:5000", "http://127.0.0.1:5000", "http://hub.lan", "https://b.lan"]
                .map(|text| text.parse().unwrap());
        let hosts = RegistryHosts::new(&patterns);
        let base = |registry: &str| hosts.base(registry).unwrap().to_string();
        assert_eq!(base("127.0.0.1:5000"), "http://127.0.0.1:5000/v2/");
        assert_eq!(base("hub.lan"), "http://hub.lan/v2/");
        assert_eq!(base("hub.lan:5000"), "https://hub.lan:5000/v2/");
        assert_eq!(base("10.0.0.1:5000"), "https://10.0.0.1:5000/v2/");
        assert_eq!(base("registry.example"), "https://registry.example/v2/");
        for hub in ["docker.io", "Docker.io", "registry-1.docker.io"] {
            assert_eq!(base(hub), "https://registry-1.docker.io/v2/");
        }

        let clients = Clients::new(AddressPolicy::default());
        let address_scope = |url: &str| hosts.address_scope(&Url::parse(url).unwrap(), &clients);
        for url in ["http://127.0.0.1:5000/v2/", "https://10.0.0.1:5000/", "https://b.lan/"] {
            assert_eq!(address_scope(url), Ok(AddressScope::AnyAddress), "{url}");
        }
        assert_eq!(address_scope("https://registry.example/"), Ok(AddressScope::PublicAddresses));
        for url in [
            "http://registry.example/",
            "http://10.0.0.1:5000/",
            "http://127.0.0.1/",
            "https://127.0.0.1/",
            "https://169.254.169.254/latest",
            "https://[::1]:5000/",
            "https://user:word@registry.example/",
            "ftp://registry.example/",
        ] {
            assert!(address_scope(url).is_err(), "{url}");
        }
        for text in ["", "http://", "ftp://x", "a b", "x/y"] {
            assert!(text.parse::<RegistryPattern>().is_err(), "{text}");
        }
    }
}
