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
#[path = "egress_tests.rs"]
mod tests;
