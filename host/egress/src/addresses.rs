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
#[path = "addresses_tests.rs"]
mod tests;
