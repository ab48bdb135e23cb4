//! The clients behind proxies: the address that a trusted proxy names counts as the caller's, for
//! limits, logs and handlers. The connection itself still counts for the proxy.
//!
//! Each proxy adds the address of its own peer at the end of `X-Forwarded-For`. So the list is read
//! from its end, as far as its addresses are those of trusted proxies: what stands before them is a
//! client's own claim.
//!
//! **Cost.** Two header lookups for a call; from a trusted proxy also a pass over its list.

use std::net::IpAddr;

use gristmill_core::deploy::network::Network;
use hyper::HeaderMap;
use hyper::header::HeaderName;

use crate::call_origin::PeerAddress;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The networks of trusted proxies.
#[derive(Debug, Default)]
pub struct TrustedProxies(Vec<Network>);

impl TrustedProxies {
    /// Trusts proxies in these networks.
    pub fn new(networks: Vec<Network>) -> Self {
        Self(networks)
    }

    /// The address of the client of a call that has come from `peer`. The headers that describe the
    /// client are removed, except for `X-Forwarded-Proto` of a trusted proxy.
    pub fn client(&self, peer: PeerAddress, headers: &mut HeaderMap) -> PeerAddress {
        if !self.trusts(peer.0) {
            headers.remove(FORWARDED_FOR);
            headers.remove(FORWARDED_PROTO);
            return peer;
        }
        let mut client = peer;
        let lists = headers.get_all(FORWARDED_FOR).iter().rev();
        let lists = lists.map(|list| list.to_str().unwrap_or_default());
        for text in lists.flat_map(|list| list.rsplit(',')) {
            let Some(address) = address(text.trim()) else { break };
            client = PeerAddress(address);
            if !self.trusts(address) {
                break;
            }
        }
        headers.remove(FORWARDED_FOR);
        client
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }
}

/// An address, with a port or without.
fn address(text: &str) -> Option<IpAddr> {
    let without_port = || text.parse::<std::net::SocketAddr>().ok().map(|at| at.ip());
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    bare.parse().ok().or_else(without_port).map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn only_trusted_proxies_name_a_client() {
        let networks = ["10.0.0.0/8", "2001:db8::/32"].map(|text| text.parse().unwrap());
        let proxies = TrustedProxies::new(networks.to_vec());
        for (peer, lists, expected) in [
            ("192.0.2.1", &["198.51.100.1"][..], "192.0.2.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["203.0.113.9, 198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["203.0.113.9, 198.51.100.1, 10.0.0.2"], "198.51.100.1"),
            ("10.0.0.1", &["203.0.113.9", "198.51.100.1,10.0.0.2"], "198.51.100.1"),
            ("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            ("10.0.0.1", &["198.51.100.1:4711"], "198.51.100.1"),
            ("10.0.0.1", &["::ffff:198.51.100.1"], "198.51.100.1"),
            ("2001:db8::1", &["[2001:db9::1]:4711"], "2001:db9::1"),
            ("10.0.0.1", &["198.51.100.1, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1, unknown, 10.0.0.2"], "10.0.0.2"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(FORWARDED_PROTO, HeaderValue::from_static("https"));
            for list in lists {
                headers.append(FORWARDED_FOR, HeaderValue::from_static(list));
            }
            let client = proxies.client(PeerAddress(peer.parse().unwrap()), &mut headers);
            assert_eq!(client.0, expected.parse::<IpAddr>().unwrap(), "{peer} {lists:?}");
            assert!(!headers.contains_key(FORWARDED_FOR));
            let is_trusted = peer != "192.0.2.1";
            assert_eq!(headers.contains_key(FORWARDED_PROTO), is_trusted, "{peer}");
        }
    }
}
