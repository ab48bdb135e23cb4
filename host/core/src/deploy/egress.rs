//! The permitted destinations of handlers and webhooks. There are two checks, and both are needed:
//! the *name* must be on the endpoint's list, and *every address* that it resolves to must be
//! public, so that a listed name cannot be used to attack the host's own network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use gristmill_wire::{HostPattern, InvalidHostPattern};

use crate::deploy::network::embedded_v4;

/// The decision of a list about one destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Not on the list.
    Denied,
    /// Public addresses only.
    Public,
    /// Any address: the list names this destination explicitly.
    AnyAddress,
}

/// The decision of a list about a destination. `host` is a URL's host: a name, or an address with
/// or without brackets; `default_port` is that of the URL's scheme.
pub fn permission(allowed: &[HostPattern], host: &str, port: u16, default_port: u16) -> Permission {
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    let host = host.strip_suffix('.').unwrap_or(&host);
    let mut permission = Permission::Denied;
    for pattern in allowed.iter().filter(|p| p.matches(host, port, default_port)) {
        if pattern.allows_private() {
            return Permission::AnyAddress;
        }
        permission = Permission::Public;
    }
    permission
}

/// Whether an address is reachable from anywhere: not loopback, private, link-local, shared,
/// multicast, reserved, a cloud platform's own, nor a form of IPv6 that embeds such an IPv4
/// address.
pub fn is_public(address: IpAddr) -> bool {
    match (address, embedded_v4(address)) {
        (IpAddr::V4(v4), _) | (IpAddr::V6(_), Some(v4)) => is_public_v4(v4),
        (IpAddr::V6(v6), None) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, d] = address.octets();
    !(a == 0 // "this network"
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local() // includes the metadata service 169.254.169.254
        || address.is_documentation()
        || address.is_broadcast()
        || (a == 100 && (64..128).contains(&b)) // carrier-grade NAT
        || (a == 192 && b == 0 && c == 0) // protocol assignments
        || (a == 192 && b == 88 && c == 99) // relays of 6to4: whichever is near
        || (a == 198 && (b == 18 || b == 19)) // benchmarking
        || [a, b, c, d] == [168, 63, 129, 16] // Azure's platform, which answers its machines only
        || a >= 224) // multicast and reserved
}

/// For an address that embeds no IPv4 address.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [s0, s1, ..] = address.segments();
    match (s0, s1) {
        (0x2001, 0x0000..=0x01ff) => false, // Teredo and protocol assignments
        (0x2001, 0x0db8) | (0x3fff, _) => false, // documentation
        // Global unicast. Everything else is loopback, unspecified, IPv4-compatible, unique local,
        // link-local, site-local, multicast, a network's own NAT64, or unassigned.
        _ => (0x2000..=0x3fff).contains(&s0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_public() {
        let public = [
            "1.1.1.1",
            "93.184.216.34",
            "168.63.129.15",
            "192.88.98.255",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
        ];
        for address in public {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        let other = [
            "0.0.0.0",
            "10.1.2.3",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "100.64.0.1",
            "192.0.0.8",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.7",
            "203.0.113.9",
            "168.63.129.16",
            "192.88.99.1",
            "192.88.99.255",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b:1::808:808",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "64:ff9b::7f00:1",
            "::ffff:168.63.129.16",
            "2002:a83f:8110::1",
            "64:ff9b::168.63.129.16",
            "64:ff9b::192.88.99.1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "2001::1",
            "2001:db8::1",
            "3fff::1",
            "100::1",
        ];
        for address in other {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn patterns_match_names_ports_and_nothing_else() {
        let list = |patterns: &[&str]| -> Vec<HostPattern> {
            patterns.iter().map(|p| p.parse().unwrap()).collect()
        };
        let cases = [
            (vec![], "example.com", 443, Permission::Denied),
            (vec!["example.com"], "example.com", 443, Permission::Public),
            (vec!["example.com"], "EXAMPLE.com.", 443, Permission::Public),
            (vec!["example.com"], "example.com", 8443, Permission::Denied),
            (vec!["example.com:8443"], "example.com", 8443, Permission::Public),
            (vec!["example.com"], "www.example.com", 443, Permission::Denied),
            (vec!["example.com"], "example.com.evil.net", 443, Permission::Denied),
            (vec!["*.example.com"], "a.b.example.com", 443, Permission::Public),
            (vec!["*.example.com"], "example.com", 443, Permission::Denied),
            (vec!["*.example.com"], "evilexample.com", 443, Permission::Denied),
            (vec!["127.0.0.1:9000"], "127.0.0.1", 9000, Permission::AnyAddress),
            (vec!["127.0.0.1:9000"], "localhost", 9000, Permission::Denied),
            (vec!["[::1]:9000"], "[::1]", 9000, Permission::AnyAddress),
            (vec!["::1"], "[::1]", 443, Permission::AnyAddress),
            (vec!["hub.lan:80!private"], "hub.lan", 80, Permission::AnyAddress),
        ];
        for (patterns, host, port, expected) in cases {
            assert_eq!(
                permission(&list(&patterns), host, port, 443),
                expected,
                "{patterns:?} {host}"
            );
        }
        for wrong in ["", "*", "*.", "a b", "http://x", "x:port", "x:0", "*.127.0.0.1", ".x"] {
            assert!(wrong.parse::<HostPattern>().is_err(), "{wrong}");
        }
    }
}
