//! Decides which addresses a request to a public host may connect to: public addresses that are
//! neither this host's own, nor its neighbours', nor denied by the operator. The kernel delivers
//! packets for the host's own addresses by itself, past every firewall in front of the host.
//!
//! **Cost.** The interfaces are listed at most once in [`RECHECK_INTERVAL`], in some 50 us.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_core::deploy::egress::is_public;
use gristmill_core::deploy::network::Network;
use if_addrs::IfAddr;
use parking_lot::Mutex;

/// Time for which a list of the interfaces is used. A new address of the host is refused after at
/// most this time.
const RECHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The shortest prefixes of an interface that count as a network of neighbours. An interface with a
/// shorter one is a tunnel that claims large parts of the internet.
const ON_LINK_PREFIX_MIN_V4: u8 = 8;
const ON_LINK_PREFIX_MIN_V6: u8 = 16;

/// Lists the networks of this host's interfaces.
type List = dyn Fn() -> io::Result<Vec<Network>> + Send + Sync;

/// Decides about addresses. A clone shares the list of interfaces.
#[derive(Clone)]
pub struct AddressPolicy {
    denied: Arc<[Network]>,
    own: Arc<OwnNetworks>,
}

/// The host's own addresses and those of its neighbours, read again from time to time.
struct OwnNetworks {
    list: Box<List>,
    last: Mutex<Option<(Instant, Arc<[Network]>)>>,
}

/// Why an address is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// It is loopback, private, reserved, or the like.
    #[error("that is not public")]
    NotPublic,
    /// It belongs to an interface of this host, or to a neighbour on the same link.
    #[error("of this host or of its own network")]
    Own,
    /// The operator denies it.
    #[error("that the operator of this host denies")]
    Denied,
    /// The interfaces cannot be listed, so it may be the host's own.
    #[error("that may be this host's own: its network interfaces cannot be listed: {0}")]
    Unknown(String),
}

/// The host of a URL has an address that may not be connected to. One such address is enough: a
/// name with public and private addresses is probably an attack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{host}` has an address {reason}")]
pub struct AddressRefused {
    /// The name, or the address itself.
    pub host: String,
    /// Why the address is refused.
    pub reason: Reason,
}

impl AddressPolicy {
    /// A policy that also refuses the addresses in these networks.
    pub fn new(denied: &[Network]) -> Self {
        Self::with_list(denied, own_networks)
    }

    fn with_list(
        denied: &[Network],
        list: impl Fn() -> io::Result<Vec<Network>> + Send + Sync + 'static,
    ) -> Self {
        let own = OwnNetworks { list: Box::new(list), last: Mutex::new(None) };
        Self { denied: denied.into(), own: Arc::new(own) }
    }

    /// Whether a request to a public host may connect to an address.
    ///
    /// # Errors
    /// Why it may not.
    pub fn check(&self, address: IpAddr) -> Result<(), Reason> {
        if !is_public(address) {
            return Err(Reason::NotPublic);
        }
        if self.denied.iter().any(|network| network.contains(address)) {
            return Err(Reason::Denied);
        }
        let own =
            self.own.get(Instant::now()).map_err(|error| Reason::Unknown(error.to_string()))?;
        match own.iter().any(|network| network.contains(address)) {
            true => Err(Reason::Own),
            false => Ok(()),
        }
    }

    /// Lists the interfaces once, to find out early whether that is permitted.
    ///
    /// # Errors
    /// Those of the system; as long as it has them, every address is refused.
    pub fn look(&self) -> io::Result<()> {
        self.own.get(Instant::now()).map(drop)
    }
}

impl Default for AddressPolicy {
    /// Without networks that the operator denies.
    fn default() -> Self {
        Self::new(&[])
    }
}

impl fmt::Debug for AddressPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressPolicy").field("denied", &self.denied).finish_non_exhaustive()
    }
}

impl OwnNetworks {
    /// When listing fails, the last list still counts.
    fn get(&self, now: Instant) -> io::Result<Arc<[Network]>> {
        let mut last = self.last.lock();
        if let Some((at, networks)) = &*last
            && now.saturating_duration_since(*at) < RECHECK_INTERVAL
        {
            return Ok(networks.clone());
        }
        let networks: Arc<[Network]> = match ((self.list)(), &*last) {
            (Ok(networks), _) => networks.into(),
            (Err(_), Some((_, networks))) => networks.clone(),
            (Err(error), None) => return Err(error),
        };
        *last = Some((now, networks.clone()));
        Ok(networks)
    }
}

/// The addresses of all interfaces, and their networks.
fn own_networks() -> io::Result<Vec<Network>> {
    let interfaces = if_addrs::get_if_addrs()?;
    Ok(interfaces.iter().flat_map(|interface| networks_of(&interface.addr)).collect())
}

fn networks_of(address: &IfAddr) -> impl Iterator<Item = Network> + use<> {
    let (ip, prefix, prefix_min): (IpAddr, _, _) = match address {
        IfAddr::V4(v4) => (v4.ip.into(), v4.prefixlen, ON_LINK_PREFIX_MIN_V4),
        IfAddr::V6(v6) => (v6.ip.into(), v6.prefixlen, ON_LINK_PREFIX_MIN_V6),
    };
    let on_link = (prefix >= prefix_min).then(|| Network::of(ip, prefix));
    std::iter::once(Network::host(ip)).chain(on_link)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use if_addrs::{Ifv4Addr, Ifv6Addr};

    use super::*;

    fn networks(texts: &[&str]) -> Vec<Network> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn own_addresses_neighbours_and_what_is_denied_are_refused_in_every_spelling() {
        let own = networks(&["93.184.216.34", "45.33.32.0/24", "2606:4700:1:2::/64"]);
        let policy = AddressPolicy::with_list(&networks(&["104.16.0.0/12", "2620:4f::/32"]), {
            move || Ok(own.clone())
        });
        let cases = [
            ("93.184.216.35", Ok(())),
            ("45.33.33.1", Ok(())),
            ("2606:4700:1:3::1", Ok(())),
            ("10.0.0.1", Err(Reason::NotPublic)),
            ("168.63.129.16", Err(Reason::NotPublic)),
            ("93.184.216.34", Err(Reason::Own)),
            ("45.33.32.255", Err(Reason::Own)),
            ("2606:4700:1:2:abcd::1", Err(Reason::Own)),
            ("::ffff:93.184.216.34", Err(Reason::Own)),
            ("64:ff9b::45.33.32.7", Err(Reason::Own)),
            ("2002:5db8:d822::7", Err(Reason::Own)),
            ("104.31.255.255", Err(Reason::Denied)),
            ("::ffff:104.16.0.1", Err(Reason::Denied)),
            ("2002:6810:1::", Err(Reason::Denied)),
            ("64:ff9b::104.16.0.1", Err(Reason::Denied)),
            ("2620:4f:8000::1", Err(Reason::Denied)),
        ];
        for (address, expected) in cases {
            assert_eq!(policy.check(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn interfaces_are_listed_again_and_the_last_list_outlives_a_failure() {
        static LISTED: AtomicUsize = AtomicUsize::new(0);
        let policy =
            AddressPolicy::with_list(&[], || match LISTED.fetch_add(1, Ordering::Relaxed) {
                0 => Err(io::ErrorKind::PermissionDenied.into()),
                1 => Ok(vec![]),
                2 => Ok(networks(&["93.184.216.34"])),
                _ => Err(io::ErrorKind::OutOfMemory.into()),
            });
        let address = "93.184.216.34".parse().unwrap();
        let unknown = Reason::Unknown("permission denied".to_owned());
        assert_eq!(
            policy.check(address),
            Err(unknown),
            "without any list every address is refused"
        );
        let start = Instant::now();
        let is_own = |seconds| {
            let own = policy.own.get(start + Duration::from_secs(seconds)).unwrap();
            own.iter().any(|network| network.contains(address))
        };
        let seen = [0, 1, 3, 4, 60, 61].map(is_own);
        assert_eq!(seen, [false, false, true, true, true, true]);
        assert_eq!(LISTED.load(Ordering::Relaxed), 4, "once in two seconds");
    }

    #[test]
    fn an_interface_has_its_address_and_its_neighbours() {
        let v4 = |ip: Ipv4Addr, prefixlen| {
            let netmask = Ipv4Addr::UNSPECIFIED;
            IfAddr::V4(Ifv4Addr { ip, netmask, prefixlen, broadcast: None })
        };
        let v6 = |ip: Ipv6Addr, prefixlen| {
            let netmask = Ipv6Addr::UNSPECIFIED;
            IfAddr::V6(Ifv6Addr { ip, netmask, prefixlen, broadcast: None })
        };
        let cases = [
            (v4("93.184.216.34".parse().unwrap(), 24), vec!["93.184.216.34", "93.184.216.0/24"]),
            (v4("93.184.216.34".parse().unwrap(), 32), vec!["93.184.216.34", "93.184.216.34"]),
            (v6("2606:4700::7".parse().unwrap(), 64), vec!["2606:4700::7", "2606:4700::/64"]),
            // A tunnel that takes everything has no neighbours.
            (v4("93.184.216.34".parse().unwrap(), 0), vec!["93.184.216.34"]),
            (v6("2606:4700::7".parse().unwrap(), 3), vec!["2606:4700::7"]),
        ];
        for (address, expected) in cases {
            let found: Vec<_> = networks_of(&address).collect();
            assert_eq!(found, networks(&expected), "{address:?}");
        }
        let here = own_networks().unwrap();
        assert!(here.iter().any(|network| network.contains(Ipv4Addr::LOCALHOST.into())));
    }
}
