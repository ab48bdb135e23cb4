//! What unauthenticated callers make the host keep: their connections and bytes, by address, so that
//! neither one address nor all of them together fill the memory.
//!
//! A connection counts for its address until one of its calls has had a valid key. It counts as
//! [`CONNECTION_BYTES`] at least, which cover a call, and else as the bytes of its calls without a
//! valid key and of its incomplete head. A call counts from its head until its answer has left the
//! host. Callers with keys are therefore never closed because of their neighbours, and a reverse
//! proxy keeps the connections that it uses. Calls without a key on a connection that has shown one
//! count too. An IPv6 address counts as its /64.
//!
//! Where something new would exceed a bound, the connection without a key that holds the most is
//! closed, the oldest of several: one of this address beyond the bounds of an address, and one of
//! the address that holds the most beyond the bound of all. Only if that is the caller's own
//! connection is its call refused. A new connection is never refused for its bytes, so that a caller
//! with a key gets in while others hold everything.
//!
//! **Bounds.** [`ADDRESS_BYTES_MAX`] for an address, [`Addresses::new`] has the bound of all; a
//! connection is an entry of about 200 bytes. The memory of a connection itself beyond
//! [`CONNECTION_BYTES`] (HTTP/2 and TLS have buffers of some 40 KiB) is bounded by the number of
//! connections alone: a larger charge would close connections that are about to show their key,
//! when a thousand clients behind one address connect at one time. **Cost.** A lock that all
//! connections share when one is opened or closed and when it shows its key, and two for a call
//! without a key; an atomic load for a call with a key. A charge beyond a bound looks at each
//! connection of one address.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gristmill_api::PeerAddress;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Most bytes of one address.
pub(crate) const ADDRESS_BYTES_MAX: usize = 8 << 20;

/// A connection counts as so many bytes at least. The default number of connections of an address (873
/// where the process may open 20,000 files) stays below [`ADDRESS_BYTES_MAX`].
pub(crate) const CONNECTION_BYTES: usize = 8 << 10;

/// Interval of the log's warnings about full addresses.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// The bounded addresses, and their bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddressBound {
    /// Most connections without a valid key from one address; at least 1.
    pub(crate) connections_max: u32,
    /// Whether loopback addresses are bounded too. A reverse proxy on this machine has such an
    /// address for all of its clients, and other local programs are trusted more than the network.
    /// The bound of all addresses together holds for them in any case.
    pub(crate) is_for_loopback: bool,
}

/// The connections of a listener, and what their calls without a valid key hold.
#[derive(Debug)]
pub(crate) struct Addresses {
    bound: AddressBound,
    bytes_max: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    next: u64,
    warned_at: Option<Instant>,
    /// The sum of all addresses.
    bytes: usize,
    by_address: HashMap<IpAddr, Address>,
    /// The same addresses by their bytes.
    by_bytes: BTreeSet<(usize, IpAddr)>,
}

/// An address that holds something.
#[derive(Debug, Default)]
struct Address {
    bytes: usize,
    /// Those that have not shown a key.
    connections: BTreeMap<u64, Connection>,
}

/// A connection without a valid key.
#[derive(Debug)]
struct Connection {
    /// The bytes of its charges and of its incomplete head.
    bytes: usize,
    head_bytes: usize,
    closing: CancellationToken,
}

impl Connection {
    fn counts_as(&self) -> usize {
        self.bytes.max(CONNECTION_BYTES)
    }
}

/// A connection, until it is dropped together with all of its [charges](Charge).
#[derive(Debug)]
pub(crate) struct Account {
    addresses: Arc<Addresses>,
    address: IpAddr,
    number: u64,
    /// A call has had a valid key. Changes while [`Addresses::held`] is locked.
    has_key: AtomicBool,
    /// The bytes of calls that have ended since the connection was [flushed](Self::flushed).
    unsent: AtomicUsize,
    /// Fires when the connection must be closed for others.
    pub(crate) closing: CancellationToken,
}

/// There is no room: the connection holds the most, or must be closed already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl Addresses {
    /// Counts the connections of a listener, which may hold `bytes_max` without a valid key.
    pub(crate) fn new(bound: AddressBound, bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { bound, bytes_max, held: Mutex::default() })
    }

    /// Admits a connection; closes others if there are too many.
    pub(crate) fn admit(self: &Arc<Self>, peer: PeerAddress) -> Arc<Account> {
        let (closing, address) = (CancellationToken::new(), peer.known_as());
        let mut held = self.held.lock();
        let number = held.next;
        held.next += 1;
        let of_address = held.by_address.get(&address).map_or(0, |of| of.connections.len());
        let has_too_many = of_address >= self.bound.connections_max as usize;
        if has_too_many && self.is_bounded(address) {
            held.close_largest_of(address);
        }
        // If others hold the rest with keys, it is one too many.
        let _ = self.make_room(&mut held, address, CONNECTION_BYTES, None);
        let connection = Connection { bytes: 0, head_bytes: 0, closing: closing.clone() };
        held.change(address, |of| {
            of.connections.insert(number, connection);
            of.bytes += CONNECTION_BYTES;
        });
        let (has_key, unsent) = (AtomicBool::new(false), AtomicUsize::new(0));
        Arc::new(Account { addresses: self.clone(), address, number, has_key, unsent, closing })
    }

    fn is_bounded(&self, address: IpAddr) -> bool {
        self.bound.is_for_loopback || !address.is_loopback()
    }

    /// Closes connections until an address may hold so many more bytes.
    ///
    /// # Errors
    /// [`NoRoom`] if only `own` is left to close, which stays open.
    fn make_room(
        &self,
        held: &mut Held,
        address: IpAddr,
        more: usize,
        own: Option<u64>,
    ) -> Result<(), NoRoom> {
        let bytes_max = if self.is_bounded(address) { ADDRESS_BYTES_MAX } else { usize::MAX };
        loop {
            let of_address = held.by_address.get(&address).map_or(0, |of| of.bytes);
            let largest = if of_address + more > bytes_max {
                held.largest_of(address, own)
            } else if held.bytes + more > self.bytes_max {
                let mut addresses = held.by_bytes.iter().rev();
                addresses.find_map(|(_, address)| held.largest_of(*address, own))
            } else {
                return Ok(());
            };
            let Some((address, number)) = largest.filter(|(_, number)| Some(*number) != own) else {
                return Err(NoRoom);
            };
            held.close(address, number);
        }
    }
}

impl Held {
    /// Changes what an address holds, which is forgotten once it is nothing.
    fn change(&mut self, address: IpAddr, change: impl FnOnce(&mut Address)) {
        let of = self.by_address.entry(address).or_default();
        let before = of.bytes;
        change(of);
        let now = of.bytes;
        if now == 0 && of.connections.is_empty() {
            self.by_address.remove(&address);
        }
        self.bytes = self.bytes - before + now;
        self.by_bytes.remove(&(before, address));
        if now > 0 {
            self.by_bytes.insert((now, address));
        }
    }

    /// The connection of an address that holds the most, the oldest of several; `own` is the last of these.
    fn largest_of(&self, address: IpAddr, own: Option<u64>) -> Option<(IpAddr, u64)> {
        let connections = self.by_address.get(&address)?.connections.iter();
        let (number, _) = connections.max_by_key(|(number, connection)| {
            (connection.counts_as(), Some(**number) != own, Reverse(**number))
        })?;
        Some((address, *number))
    }

    fn close_largest_of(&mut self, address: IpAddr) {
        if let Some((address, number)) = self.largest_of(address, None) {
            self.close(address, number);
        }
    }

    /// Closes a connection, which counts no more.
    fn close(&mut self, address: IpAddr, number: u64) {
        self.change(address, |of| {
            if let Some(closed) = of.connections.remove(&number) {
                of.bytes -= closed.counts_as();
                closed.closing.cancel();
            }
        });
        if self.warned_at.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
            self.warned_at = Some(Instant::now());
            warn!(
                %address,
                "callers at {address} without a valid key have too many connections or calls; the \
                 connections that hold the most, or the oldest ones, are closed"
            );
        }
    }

    /// A connection that has not shown a key, unless it was closed.
    fn connection(&mut self, of: &Account) -> Option<&mut Connection> {
        self.by_address.get_mut(&of.address)?.connections.get_mut(&of.number)
    }

    /// Changes what a connection holds.
    fn add(&mut self, account: &Account, has_key: bool, plus: usize, minus: usize) {
        self.change(account.address, |of| match of.connections.get_mut(&account.number) {
            Some(connection) => {
                let before = connection.counts_as();
                connection.bytes = connection.bytes + plus - minus;
                of.bytes = of.bytes - before + connection.counts_as();
            }
            None if has_key => of.bytes = of.bytes + plus - minus,
            // It was closed, and counts no more.
            None => {}
        });
    }
}

impl Account {
    /// Counts something that the connection makes the host keep for a caller without a valid key.
    ///
    /// # Errors
    /// [`NoRoom`]: the caller must be refused.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Result<Charge, NoRoom> {
        let mut charge = Charge { account: self.clone(), bytes: 0 };
        charge.resize(bytes)?;
        Ok(charge)
    }

    /// A call has had a valid key: the connection counts no more.
    pub(crate) fn show_key(&self) {
        if self.has_key() {
            return;
        }
        let mut held = self.addresses.held.lock();
        held.change(self.address, |of| {
            // One that was closed meanwhile holds nothing already.
            if let Some(connection) = of.connections.remove(&self.number) {
                let by_calls = connection.bytes - connection.head_bytes;
                of.bytes = of.bytes - connection.counts_as() + by_calls;
                self.has_key.store(true, Ordering::Relaxed);
            }
        });
    }

    /// Whether a call has had a valid key.
    pub(crate) fn has_key(&self) -> bool {
        self.has_key.load(Ordering::Relaxed)
    }

    /// HTTP has passed all to the system: ended calls hold nothing any more.
    pub(crate) fn flushed(&self) {
        if self.unsent.load(Ordering::Relaxed) > 0 {
            self.release(self.unsent.swap(0, Ordering::Relaxed));
        }
    }

    /// Counts so many bytes of an incomplete head, in place of the previous ones, until the connection has
    /// shown a key.
    ///
    /// # Errors
    /// [`NoRoom`]: the connection must be closed.
    pub(crate) fn set_head(&self, bytes: usize) -> Result<(), NoRoom> {
        let mut held = self.addresses.held.lock();
        let Some(connection) = held.connection(self) else { return Ok(()) };
        let before = connection.head_bytes;
        self.recharge(&mut held, before, bytes)?;
        if let Some(connection) = held.connection(self) {
            connection.head_bytes = bytes;
        }
        Ok(())
    }

    fn recharge(&self, held: &mut Held, before: usize, now: usize) -> Result<(), NoRoom> {
        let has_key = self.has_key();
        let more = match held.connection(self) {
            Some(connection) => {
                let larger = (connection.bytes - before + now).max(CONNECTION_BYTES);
                larger.saturating_sub(connection.counts_as())
            }
            None if has_key => now.saturating_sub(before),
            None => return Err(NoRoom),
        };
        if more > 0 {
            self.addresses.make_room(held, self.address, more, Some(self.number))?;
        }
        held.add(self, has_key, now, before);
        Ok(())
    }

    fn release(&self, bytes: usize) {
        let mut held = self.addresses.held.lock();
        held.add(self, self.has_key(), 0, bytes);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let unsent = *self.unsent.get_mut();
        let mut held = self.addresses.held.lock();
        held.change(self.address, |of| match of.connections.remove(&self.number) {
            Some(connection) => of.bytes -= connection.counts_as(),
            None if *self.has_key.get_mut() => of.bytes -= unsent,
            None => {}
        });
    }
}

/// Bytes that a connection keeps in memory. After the drop they count until the connection is
/// [flushed](Account::flushed): HTTP may still hold them.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

impl Charge {
    /// Counts this many bytes instead.
    ///
    /// # Errors
    /// [`NoRoom`]: it counts as before, and the caller must be refused.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let mut held = self.account.addresses.held.lock();
        self.account.recharge(&mut held, self.bytes, bytes)?;
        self.bytes = bytes;
        Ok(())
    }

    /// Counts nothing from now on: the caller has shown a key.
    pub(crate) fn cancel(mut self) {
        self.account.release(std::mem::take(&mut self.bytes));
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.unsent.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: usize = 1 << 20;

    fn from(address: &str) -> PeerAddress {
        PeerAddress(address.parse().unwrap())
    }

    fn admit(addresses: &Arc<Addresses>, address: &str) -> Arc<Account> {
        addresses.admit(from(address))
    }

    fn bounded(connections_max: u32, is_for_loopback: bool) -> Arc<Addresses> {
        Addresses::new(AddressBound { connections_max, is_for_loopback }, 256 * MIB)
    }

    fn is_open(account: &Arc<Account>) -> bool {
        !account.closing.is_cancelled()
    }

    fn is_empty(addresses: &Addresses) -> bool {
        let held = addresses.held.lock();
        held.bytes == 0 && held.by_address.is_empty() && held.by_bytes.is_empty()
    }

    #[test]
    fn one_address_takes_its_bound_and_closes_its_own_oldest_beyond_it() {
        let addresses = bounded(3, false);
        let neighbour = admit(&addresses, "192.0.2.9");
        let mut held: Vec<_> = (0..3).map(|_| admit(&addresses, "192.0.2.1")).collect();
        assert!(held.iter().all(is_open));
        for oldest in 0..1_000 {
            held.push(admit(&addresses, "192.0.2.1"));
            assert!(!is_open(&held[oldest]));
            assert_eq!(held.iter().filter(|one| is_open(one)).count(), 3);
        }
        assert!(is_open(&neighbour));
        drop((held, neighbour));
        assert!(is_empty(&addresses));
    }

    #[test]
    fn connections_that_have_shown_a_key_do_not_count_and_are_not_closed() {
        let addresses = bounded(2, false);
        let keyed = || {
            let connection = admit(&addresses, "192.0.2.1");
            connection.show_key();
            connection
        };
        let held: Vec<_> = (0..100).map(|_| keyed()).collect();
        let silent: Vec<_> = (0..5).map(|_| admit(&addresses, "192.0.2.1")).collect();
        assert!(held.iter().all(is_open));
        assert_eq!(silent.iter().filter(|one| is_open(one)).count(), 2);
        drop((held, silent));
        assert!(is_empty(&addresses));
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
            // By the number of connections, and by their bytes.
            for connections_max in [1, 2] {
                let addresses = bounded(connections_max, is_for_loopback);
                let first = admit(&addresses, first);
                let _most = first.charge(ADDRESS_BYTES_MAX - CONNECTION_BYTES).unwrap();
                let second_one = admit(&addresses, second);
                let _more = second_one.charge(CONNECTION_BYTES + 1);
                assert_eq!(!is_open(&first), expected, "{second}, {is_for_loopback}");
            }
        }
    }

    #[test]
    fn calls_of_an_address_close_its_largest_connection_and_no_small_one() {
        let addresses = bounded(1_000, false);
        let [small, large, larger] = [(); 3].map(|()| admit(&addresses, "192.0.2.1"));
        let neighbour = admit(&addresses, "192.0.2.9");
        let call = |account: &Arc<Account>, mib: usize| account.charge(mib * MIB);
        let held = [call(&large, 3).unwrap(), call(&larger, 4).unwrap()];
        let _small = small.charge(CONNECTION_BYTES).expect("a call is a part of its connection");
        let next = call(&small, 1);
        assert!(next.is_ok() && !is_open(&larger) && is_open(&large));
        assert_eq!(call(&larger, 1).err(), Some(NoRoom), "it must be closed");
        assert!(call(&large, 4).is_err() && is_open(&large), "it is the largest itself");
        assert!(call(&small, 5).is_ok() && !is_open(&large));
        assert!(is_open(&small) && is_open(&neighbour));
        drop((held, next));
    }

    /// The bound of all holds for each address, also one without a bound of its own.
    #[test]
    fn a_newcomer_gets_in_while_others_hold_everything() {
        let addresses = bounded(100, false);
        let proxy: Vec<_> = (0..31).map(|_| admit(&addresses, "127.0.0.1")).collect();
        let strangers: Vec<_> =
            (0..31).map(|one| admit(&addresses, &format!("192.0.2.{one}"))).collect();
        let all: Vec<_> =
            proxy.iter().chain(&strangers).map(|one| one.charge(4 * MIB).unwrap()).collect();
        let newcomer = admit(&addresses, "198.51.100.1");
        assert!(newcomer.charge(CONNECTION_BYTES).is_ok());
        let _filled = newcomer.charge(7 * MIB).unwrap();
        assert!(newcomer.charge(MIB).is_ok());
        assert!(!is_open(&proxy[0]) && proxy[1..].iter().all(is_open), "its address holds most");
        assert!(strangers.iter().chain([&newcomer]).all(is_open));
        let keyed = admit(&addresses, "198.51.100.2");
        keyed.show_key();
        drop(all);
    }

    #[test]
    fn calls_without_a_key_count_on_a_connection_with_one_which_stays_open() {
        let addresses = bounded(100, false);
        let keyed = admit(&addresses, "192.0.2.1");
        let before = keyed.charge(MIB).unwrap();
        keyed.show_key();
        let more = keyed.charge(7 * MIB).unwrap();
        assert_eq!(keyed.charge(1).err(), Some(NoRoom));
        let _silent = admit(&addresses, "192.0.2.1");
        assert!(is_open(&keyed));
        more.cancel();
        assert!(keyed.charge(7 * MIB - CONNECTION_BYTES).is_ok());
        drop(before);
        assert!(keyed.charge(7 * MIB).is_err(), "HTTP may hold the ended calls");
        keyed.flushed();
        assert!(keyed.charge(7 * MIB).is_ok());
    }

    #[test]
    fn an_incomplete_head_counts_until_it_is_a_call_or_the_connection_has_a_key() {
        let addresses = bounded(100, false);
        let [one, other] = [(); 2].map(|()| admit(&addresses, "192.0.2.1"));
        one.set_head(5 * MIB).unwrap();
        other.set_head(4 * MIB).unwrap();
        assert!(!is_open(&one) && is_open(&other));
        assert_eq!(other.set_head(9 * MIB), Err(NoRoom), "no other connection is left to close");
        other.set_head(0).unwrap();
        let third = admit(&addresses, "192.0.2.1");
        third.set_head(8 * MIB - CONNECTION_BYTES).unwrap();
        third.show_key();
        assert!(is_open(&other) && other.set_head(8 * MIB - 1).is_ok(), "a key frees the head");
        drop((one, other, third));
        assert!(is_empty(&addresses));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Admit(u8),
        Charge(usize, usize),
        Resize(usize, usize),
        DropCharge(usize),
        CancelCharge(usize),
        Head(usize, usize),
        ShowKey(usize),
        Flush(usize),
        DropConnection(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (which, bytes) = (0..64_usize, 0..3 * MIB);
        prop_oneof![
            (0..4_u8).prop_map(Step::Admit),
            (which.clone(), bytes.clone()).prop_map(|(at, bytes)| Step::Charge(at, bytes)),
            (which.clone(), bytes.clone()).prop_map(|(at, bytes)| Step::Resize(at, bytes)),
            (which.clone(), bytes).prop_map(|(at, bytes)| Step::Head(at, bytes)),
            which.clone().prop_map(Step::DropCharge),
            which.clone().prop_map(Step::CancelCharge),
            which.clone().prop_map(Step::ShowKey),
            which.clone().prop_map(Step::Flush),
            which.prop_map(Step::DropConnection),
        ]
    }

    proptest! {
        /// The sums are those of the connections and charges that live, within the bounds.
        #[test]
        fn whatever_happens_the_sums_are_what_is_held(steps in prop::collection::vec(step(), 1..200)) {
            let all_max = 20 * MIB;
            let bound = AddressBound { connections_max: 5, is_for_loopback: false };
            let addresses = Addresses::new(bound, all_max);
            let (mut accounts, mut charges): (Vec<Arc<Account>>, Vec<Charge>) = (vec![], vec![]);
            for step in steps {
                let (of, at) = (accounts.len().max(1), charges.len().max(1));
                match step {
                    Step::Admit(0) => accounts.push(admit(&addresses, "127.0.0.1")),
                    Step::Admit(one) => {
                        accounts.push(admit(&addresses, &format!("192.0.2.{one}")));
                    }
                    Step::Charge(which, bytes) => {
                        let charge = accounts.get(which % of).map(|account| account.charge(bytes));
                        charges.extend(charge.and_then(Result::ok));
                    }
                    Step::Resize(which, bytes) => {
                        let _ = charges.get_mut(which % at).map(|charge| charge.resize(bytes));
                    }
                    Step::DropCharge(which) if which < charges.len() => {
                        drop(charges.swap_remove(which));
                    }
                    Step::CancelCharge(which) if which < charges.len() => {
                        charges.swap_remove(which).cancel();
                    }
                    Step::Head(which, bytes) => {
                        let _ = accounts.get(which % of).map(|account| account.set_head(bytes));
                    }
                    Step::ShowKey(which) => {
                        let _ = accounts.get(which % of).map(|account| account.show_key());
                    }
                    Step::Flush(which) => {
                        let _ = accounts.get(which % of).map(|account| account.flushed());
                    }
                    Step::DropConnection(which) if which < accounts.len() => {
                        drop(accounts.swap_remove(which));
                    }
                    Step::DropCharge(_) | Step::CancelCharge(_) | Step::DropConnection(_) => {}
                }
                let mut live: BTreeMap<u64, (Arc<Account>, usize)> = BTreeMap::new();
                let known = accounts.iter().chain(charges.iter().map(|charge| &charge.account));
                for account in known {
                    let unsent = account.unsent.load(Ordering::Relaxed);
                    let head = addresses.held.lock().connection(account).map_or(0, |of| of.head_bytes);
                    live.entry(account.number).or_insert_with(|| (account.clone(), unsent + head));
                }
                for charge in &charges {
                    live.get_mut(&charge.account.number).unwrap().1 += charge.bytes;
                }
                let counted = |(account, bytes): &(Arc<Account>, usize)| match account.has_key() {
                    true => *bytes,
                    false if is_open(account) => (*bytes).max(CONNECTION_BYTES),
                    false => 0,
                };
                let held = addresses.held.lock();
                prop_assert_eq!(held.bytes, live.values().map(counted).sum::<usize>());
                prop_assert_eq!(held.bytes, held.by_bytes.iter().map(|(bytes, _)| bytes).sum::<usize>());
                // A new connection is admitted in any case.
                prop_assert!(held.bytes <= all_max + live.len() * CONNECTION_BYTES);
                for (address, of) in &held.by_address {
                    let most = ADDRESS_BYTES_MAX + of.connections.len() * CONNECTION_BYTES;
                    prop_assert!(address.is_loopback() || of.bytes <= most);
                    prop_assert!(address.is_loopback() || of.connections.len() <= 5);
                }
                drop(held);
            }
            drop((accounts, charges));
            prop_assert!(is_empty(&addresses));
        }
    }
}
