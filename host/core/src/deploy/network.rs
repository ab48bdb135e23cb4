//! Networks in CIDR notation, such as `10.0.0.0/8` or `2001:db8::/32`.
//!
//! **Invariant.** A network contains an address in all of its forms: an IPv6 address that embeds an
//! IPv4 address (mapped, 6to4, NAT64) is in the IPv4 address's network too.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::Deserialize;

/// A network: all addresses that share their first bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Network {
    /// The lowest address.
    first: IpAddr,
    /// Number of shared leading bits: at most 32 for IPv4, 128 for IPv6.
    prefix: u8,
}

/// The error for a text that is not a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a network: write `10.0.0.0/8`, `2001:db8::/32`, or an address")]
pub struct InvalidNetwork(String);

impl Network {
    /// The network of an address whose first `prefix` bits are shared. A longer prefix than the
    /// address has bits counts as all of its bits. A network of IPv4-mapped addresses is a network
    /// of IPv4.
    pub fn of(address: IpAddr, prefix: u8) -> Self {
        match address {
            IpAddr::V4(v4) => {
                let prefix = prefix.min(32);
                let first = Ipv4Addr::from_bits(v4.to_bits() & leading_bits_v4(prefix));
                Self { first: first.into(), prefix }
            }
            IpAddr::V6(v6) => {
                let prefix = prefix.min(128);
                if let (Some(v4), Some(prefix)) = (v6.to_ipv4_mapped(), prefix.checked_sub(96)) {
                    return Self::of(v4.into(), prefix);
                }
                let first = Ipv6Addr::from_bits(v6.to_bits() & leading_bits_v6(prefix));
                Self { first: first.into(), prefix }
            }
        }
    }

    /// The network that has this address only.
    pub fn host(address: IpAddr) -> Self {
        Self::of(address, u8::MAX)
    }

    /// Whether the address, or the IPv4 address that it embeds, is in this network.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.has(address) || embedded_v4(address).is_some_and(|v4| self.has(v4.into()))
    }

    fn has(&self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(v4)) => {
                v4.to_bits() & leading_bits_v4(self.prefix) == first.to_bits()
            }
            (IpAddr::V6(first), IpAddr::V6(v6)) => {
                v6.to_bits() & leading_bits_v6(self.prefix) == first.to_bits()
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// The IPv4 address that receives packets for an IPv6 address: through the kernel itself
/// (IPv4-mapped), a 6to4 relay, or a translator at NAT64's well-known prefix.
pub fn embedded_v4(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(v6) = address else { return None };
    let from_halves =
        |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] => from_halves(high, low),
        [0x2002, high, low, ..] => from_halves(high, low),
        [0x0064, 0xff9b, 0, 0, 0, 0, high, low] => from_halves(high, low),
        _ => None,
    }
}

fn leading_bits_v4(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

fn leading_bits_v6(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0)
}

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let invalid = || InvalidNetwork(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            // `u8::from_str` accepts a sign, which is not valid in a prefix.
            Some(prefix) if !prefix.starts_with('+') => prefix.parse().map_err(|_| invalid())?,
            Some(_) => return Err(invalid()),
            None => bits,
        };
        if prefix > bits {
            return Err(invalid());
        }
        Ok(Self::of(address, prefix))
    }
}

impl TryFrom<String> for Network {
    type Error = InvalidNetwork;
    fn try_from(text: String) -> Result<Self, InvalidNetwork> {
        text.parse()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
