//! Bounds the connections of each address that have not carried a valid key, so that one address
//! cannot take all connections.
//!
//! At the bound, a new connection replaces the address's oldest connection without a key, which is
//! closed. A connection on which one call had a valid key does not count any more. Callers with
//! keys are therefore never closed because of their neighbours, and a reverse proxy keeps the
//! connections that it uses. An IPv6 address counts as its /64.
//!
//! **Bounds.** At most one entry of about 200 bytes for each connection. **Cost.** A lock for each
//! connection that is opened or closed; none for a call.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_api::{ConnectionAuth, PeerAddress};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Interval of the log's warnings about full addresses.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// The bounded addresses, and their bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddressBound {
    /// Most connections without a valid key from one address; at least 1.
    pub(crate) connections_max: u32,
    /// Whether loopback addresses are bounded too. A reverse proxy on this machine has such an
    /// address for all of its clients, and other local programs are trusted more than the network.
    pub(crate) is_for_loopback: bool,
}

/// The connections without a valid key.
#[derive(Debug)]
pub(crate) struct Addresses {
    bound: AddressBound,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    next: u64,
    warned_at: Option<Instant>,
    by_address: HashMap<IpAddr, BTreeMap<u64, Entry>>,
}

#[derive(Debug)]
struct Entry {
    connection_auth: Arc<ConnectionAuth>,
    closing: CancellationToken,
}

/// A connection's entry among those of its address, which is removed on drop.
#[derive(Debug)]
pub(crate) struct Admitted {
    addresses: Arc<Addresses>,
    /// `None`: its address has no bound.
    entry_key: Option<(IpAddr, u64)>,
    /// Fires when the connection must be closed for another one.
    pub(crate) closing: CancellationToken,
}

impl Addresses {
    pub(crate) fn new(bound: AddressBound) -> Arc<Self> {
        Arc::new(Self { bound, known: Mutex::default() })
    }

    /// Admits a connection; closes another one of its address if there are too many.
    pub(crate) fn admit(
        self: &Arc<Self>,
        peer: PeerAddress,
        connection_auth: Arc<ConnectionAuth>,
    ) -> Admitted {
        let closing = CancellationToken::new();
        let address = peer.known_as();
        let is_bounded = self.bound.is_for_loopback || !address.is_loopback();
        let entry_key = is_bounded.then(|| {
            let entry = Entry { connection_auth, closing: closing.clone() };
            (address, self.add(address, entry))
        });
        Admitted { addresses: self.clone(), entry_key, closing }
    }

    fn add(&self, address: IpAddr, entry: Entry) -> u64 {
        let mut known = self.known.lock();
        let (number, mut is_full) = (known.next, false);
        known.next += 1;
        let entries = known.by_address.entry(address).or_default();
        if entries.len() >= self.bound.connections_max as usize {
            entries.retain(|_, entry| !entry.connection_auth.has_key());
        }
        if entries.len() >= self.bound.connections_max as usize
            && let Some((_, oldest)) = entries.pop_first()
        {
            oldest.closing.cancel();
            is_full = true;
        }
        entries.insert(number, entry);
        if is_full && known.warned_at.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
            known.warned_at = Some(Instant::now());
            warn!(%address, "{address} has too many connections without a valid key; the oldest ones are closed");
        }
        number
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let Some((address, number)) = self.entry_key else { return };
        let mut known = self.addresses.known.lock();
        if let Some(entries) = known.by_address.get_mut(&address) {
            entries.remove(&number);
            if entries.is_empty() {
                known.by_address.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gristmill_core::id::{KeyId, OwnerId};

    use super::*;

    fn from(address: &str) -> PeerAddress {
        PeerAddress(address.parse().unwrap())
    }

    fn admit(addresses: &Arc<Addresses>, address: &str) -> Admitted {
        addresses.admit(from(address), Arc::default())
    }

    fn bounded(connections_max: u32, is_for_loopback: bool) -> Arc<Addresses> {
        Addresses::new(AddressBound { connections_max, is_for_loopback })
    }

    #[test]
    fn one_address_takes_its_bound_and_closes_its_own_oldest_beyond_it() {
        let addresses = bounded(3, false);
        let neighbour = admit(&addresses, "192.0.2.9");
        let mut held: Vec<_> = (0..3).map(|_| admit(&addresses, "192.0.2.1")).collect();
        assert!(held.iter().all(|one| !one.closing.is_cancelled()));
        for oldest in 0..1_000 {
            held.push(admit(&addresses, "192.0.2.1"));
            assert!(held[oldest].closing.is_cancelled());
            let open = held.iter().filter(|one| !one.closing.is_cancelled()).count();
            assert_eq!(open, 3);
        }
        assert!(!neighbour.closing.is_cancelled());
        drop((held, neighbour));
        assert!(addresses.known.lock().by_address.is_empty());
    }

    #[test]
    fn connections_that_have_shown_a_key_do_not_count_and_are_not_closed() {
        let addresses = bounded(2, false);
        let (operator, key) = (OwnerId::operator(), KeyId::new("k").unwrap());
        let keyed = || {
            let connection = Arc::<ConnectionAuth>::default();
            connection.record_key(&operator, &key).unwrap();
            addresses.admit(from("192.0.2.1"), connection)
        };
        let held: Vec<_> = (0..100).map(|_| keyed()).collect();
        let silent: Vec<_> = (0..5).map(|_| admit(&addresses, "192.0.2.1")).collect();
        assert!(held.iter().all(|one| !one.closing.is_cancelled()));
        let open = silent.iter().filter(|one| !one.closing.is_cancelled()).count();
        assert_eq!(open, 2);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address_and_loopback_has_no_bound_by_itself() {
        let cases = [
            ("2001:db8::1", "2001:db8::2", false, true),
            ("2001:db8::1", "2001:db8:0:1::1", false, false),
            ("192.0.2.1", "::ffff:192.0.2.1", false, true),
            ("127.0.0.1", "127.0.0.1", false, false),
            ("::1", "::1", false, false),
            ("127.0.0.1", "127.0.0.1", true, true),
            ("::1", "::1", true, true),
        ];
        for (first, second, is_for_loopback, expected) in cases {
            let addresses = bounded(1, is_for_loopback);
            let first = admit(&addresses, first);
            let _second = admit(&addresses, second);
            assert_eq!(first.closing.is_cancelled(), expected, "{second}, {is_for_loopback}");
        }
    }
}
