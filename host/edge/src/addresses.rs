//! What unauthenticated callers make the host keep: their connections and bytes, by address, so
//! that neither one address nor all of them together fill the memory.
//!
//! A connection counts for its address until one of its calls has had a valid key: as
//! [`CONNECTION_BYTES`], which cover a call, or as the bytes of its calls and of its incomplete
//! head if these are more. A call without a valid key counts from its head until its answer has
//! left the host. Callers with keys are therefore never closed because of their neighbours, and a
//! reverse proxy keeps the connections that it uses. Calls without a key on a connection that has
//! shown one count too. An IPv6 address counts as its /64.
//!
//! Beyond the bounds of an address, its connection without a key that holds the most is closed, the
//! oldest of several. Beyond the bounds of all, one of the address that holds the most is, of
//! several addresses the one that is known longest. A caller who would hold more than that
//! connection, or that address, is refused instead. So connections grow to the same size at most,
//! and one with a single call never needs room: probes and first calls with a key are answered
//! while others hold everything. A new connection is never refused.
//!
//! Not the connection that is silent for longest makes room: a flood that opens as many as there
//! may be within a second would close an honest newcomer before its first byte had arrived. The
//! newcomer's address holds less than each address of such a flood. Only a flood that opens a
//! connection from each of so many addresses closes it.
//!
//! **Bounds.** [`ADDRESS_BYTES_MAX`] for an address; [`AllBound`] for all, of whose connections
//! those without a key have three quarters of what those with a key leave, so that there is room
//! for the next one. A connection is an entry of about 200 bytes. The buffers of a connection take
//! up to 22 KiB, and more with TLS, of which only [`CONNECTION_BYTES`] count: the number of
//! connections bounds the rest. A larger charge would close connections that are about to show
//! their keys, when a thousand clients behind one address connect at one time. **Cost.** A lock
//! that all connections share when one is opened or closed and when it shows its key, and two for a
//! call without a key; an atomic load for a call with a key. Ordered sets find the largest
//! connection and address.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gristmill_core::id::OwnerId;
use gristmill_core::sharing::shares::{Fit, SharedBound};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::call_origin::PeerAddress;
use crate::read_turns::{ReadTurn, ReadTurns};
use crate::thread_time::{Measured, OwnerTime, ThreadTimes};

/// Most bytes of one address.
pub(crate) const ADDRESS_BYTES_MAX: usize = 8 << 20;

/// A connection without a call counts as so many bytes. The default number of connections of an
/// address (873 where the process may open 20,000 files) stays below [`ADDRESS_BYTES_MAX`].
pub const CONNECTION_BYTES: usize = 8 << 10;

/// While closed connections still hold more than this, nothing grows beyond a bound: a busy host
/// needs some time to free them.
const CLOSING_BYTES_MAX: usize = 2 << 20;

/// Interval of the log's warnings about full addresses.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// The bounded addresses, and their bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressBound {
    /// Most connections without a valid key from one address; at least 1.
    pub connections_max: u32,
    /// Whether loopback addresses are bounded too. A reverse proxy on this machine has such an
    /// address for all of its clients, and other local programs are trusted more than the network.
    /// The bound of all addresses together holds for them in any case.
    pub is_for_loopback: bool,
}

/// The bounds of all addresses together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllBound {
    /// Most connections of the listener, with and without a valid key.
    pub connections_max: u32,
    /// Most bytes that callers without a valid key make the host keep.
    pub bytes_max: usize,
}

/// The connections of a listener, and what their calls without a valid key hold.
#[derive(Debug)]
pub struct Addresses {
    of_address: AddressBound,
    of_all: AllBound,
    held: Mutex<Held>,
    turns: ReadTurns,
    thread_times: Arc<ThreadTimes>,
}

#[derive(Debug, Default)]
struct Held {
    next: u64,
    warned_at: Option<Instant>,
    /// The sum of all addresses.
    bytes: usize,
    /// The connections of all addresses that have not shown a key.
    unknown: usize,
    /// Those that have shown one.
    known: usize,
    by_address: HashMap<IpAddr, Address>,
    /// The same addresses by their bytes, the one that is known longest of several last.
    by_bytes: BTreeSet<(usize, Reverse<u64>, IpAddr)>,
    /// The bytes of closed connections that are not dropped yet.
    closing: HashMap<u64, usize>,
    closing_bytes: usize,
}

/// An address that holds something.
#[derive(Debug, Default)]
struct Address {
    /// Which connection was the next one when it became known.
    since: u64,
    bytes: usize,
    /// Those that have not shown a key.
    connections: HashMap<u64, Connection>,
    /// The same connections by what they count as, the oldest of several last.
    by_bytes: BTreeSet<(usize, Reverse<u64>)>,
}

impl Address {
    /// Counts a connection as it is now.
    fn put(&mut self, number: u64, connection: Connection) {
        self.take(number);
        let bytes = connection.counts_as();
        self.bytes += bytes;
        self.by_bytes.insert((bytes, Reverse(number)));
        self.connections.insert(number, connection);
    }

    /// Takes out a connection, which counts no more.
    fn take(&mut self, number: u64) -> Option<Connection> {
        let connection = self.connections.remove(&number)?;
        let bytes = connection.counts_as();
        self.bytes -= bytes;
        self.by_bytes.remove(&(bytes, Reverse(number)));
        Some(connection)
    }
}

/// A connection without a valid key.
#[derive(Debug, Clone)]
struct Connection {
    /// The bytes of its charges and of its incomplete head.
    bytes: usize,
    head_bytes: usize,
    buffer_bytes: usize,
    closing: CancellationToken,
}

impl Connection {
    fn counts_as(&self) -> usize {
        self.bytes.max(self.buffer_bytes)
    }
}

/// A connection, until it is dropped together with all of its [charges](Charge).
#[derive(Debug)]
pub struct Account {
    addresses: Arc<Addresses>,
    address: IpAddr,
    number: u64,
    /// A call has had a valid key. Changes while [`Addresses::held`] is locked.
    has_key: AtomicBool,
    /// The bytes of calls that have ended since the connection was [flushed](Self::flushed).
    unsent: AtomicUsize,
    /// The connection's turn among those of all.
    turn: ReadTurn,
    /// Counts for the owner whose key was shown last.
    time: Mutex<Option<Arc<OwnerTime>>>,
    /// Fires when the connection must be closed for others.
    pub closing: CancellationToken,
}

/// There is no room: the connection holds the most, or must be closed already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl Addresses {
    /// Counts the connections of a listener.
    pub fn new(of_address: AddressBound, of_all: AllBound) -> Arc<Self> {
        let (held, turns) = (Mutex::default(), ReadTurns::default());
        Arc::new(Self { of_address, of_all, held, turns, thread_times: ThreadTimes::new() })
    }

    /// Admits a connection; closes others if there are too many.
    pub fn admit(self: &Arc<Self>, peer: PeerAddress) -> Arc<Account> {
        let (closing, address) = (CancellationToken::new(), peer.known_as());
        let mut held = self.held.lock();
        let number = held.next;
        held.next += 1;
        let of_address = held.by_address.get(&address).map_or(0, |of| of.connections.len());
        let has_too_many = of_address >= self.of_address.connections_max as usize;
        if has_too_many
            && self.is_bounded(address)
            && let Some(Largest { number, .. }) = held.largest_of(address, None)
        {
            held.close(address, number);
        }
        while !self.has_room(&held)
            && let Some(Largest { address, number, .. }) = held.largest(None)
        {
            held.close(address, number);
        }
        // It is admitted even if all that is held cannot be closed.
        let newcomer = Growing { number: None, bytes: 0 };
        let _ = self.make_room(&mut held, address, CONNECTION_BYTES, newcomer);
        let (bytes, head_bytes, buffer_bytes) = (0, 0, CONNECTION_BYTES);
        let connection = Connection { bytes, head_bytes, buffer_bytes, closing: closing.clone() };
        held.change(address, |of| of.put(number, connection));
        let (has_key, unsent) = (AtomicBool::new(false), AtomicUsize::new(0));
        let (addresses, turn) = (self.clone(), self.turns.of_connection(address));
        let time = Mutex::default();
        Arc::new(Account { addresses, address, number, has_key, unsent, turn, time, closing })
    }

    /// Whether there is room for one more connection without a key. All of them together have the
    /// share of an owner.
    fn has_room(&self, held: &Held) -> bool {
        let bound = SharedBound::always(self.of_all.connections_max.into());
        let used = held.unknown + held.known;
        bound.fit(held.unknown as u64, used as u64, 1) == Fit::Fits
    }

    fn is_bounded(&self, address: IpAddr) -> bool {
        self.of_address.is_for_loopback || !address.is_loopback()
    }

    /// Closes connections until an address may hold so many more bytes.
    ///
    /// # Errors
    /// [`NoRoom`] if none is left to close that is as large as the one that grows.
    fn make_room(
        &self,
        held: &mut Held,
        address: IpAddr,
        more: usize,
        growing: Growing,
    ) -> Result<(), NoRoom> {
        let bytes_max = if self.is_bounded(address) { ADDRESS_BYTES_MAX } else { usize::MAX };
        loop {
            let of_address = held.by_address.get(&address).map_or(0, |of| of.bytes) + more;
            let largest = if of_address > bytes_max {
                held.largest_of(address, growing.number)
            } else if held.bytes + more > self.of_all.bytes_max {
                held.largest(growing.number)
            } else {
                return Ok(());
            };
            let Some(largest) = largest else { return Err(NoRoom) };
            let has_less = match largest.address == address {
                true => largest.bytes < growing.bytes,
                false => {
                    held.by_address.get(&largest.address).is_none_or(|of| of.bytes < of_address)
                }
            };
            if has_less || (growing.number.is_some() && held.closing_bytes > CLOSING_BYTES_MAX) {
                return Err(NoRoom);
            }
            held.close(largest.address, largest.number);
        }
    }
}

/// A connection for which there must be room.
#[derive(Debug, Clone, Copy)]
struct Growing {
    number: Option<u64>,
    /// The bytes that it would hold.
    bytes: usize,
}

/// The connection without a key that holds the most of an address.
#[derive(Debug, Clone, Copy)]
struct Largest {
    address: IpAddr,
    number: u64,
    bytes: usize,
}

impl Held {
    /// Changes what an address holds, which is forgotten once it is nothing.
    fn change(&mut self, address: IpAddr, change: impl FnOnce(&mut Address)) {
        let new = || Address { since: self.next, ..Address::default() };
        let of = self.by_address.entry(address).or_insert_with(new);
        let (since, before, connections_before) = (of.since, of.bytes, of.connections.len());
        change(of);
        let (now, connections_now) = (of.bytes, of.connections.len());
        if now == 0 && connections_now == 0 {
            self.by_address.remove(&address);
        }
        self.bytes = self.bytes - before + now;
        self.unknown = self.unknown - connections_before + connections_now;
        self.by_bytes.remove(&(before, Reverse(since), address));
        if now > 0 {
            self.by_bytes.insert((now, Reverse(since), address));
        }
    }

    /// The connection that holds the most of the address that holds the most, beside one.
    fn largest(&self, beside: Option<u64>) -> Option<Largest> {
        let mut addresses = self.by_bytes.iter().rev();
        addresses.find_map(|(.., address)| self.largest_of(*address, beside))
    }

    /// The connection of an address that holds the most, the oldest of several, beside one.
    fn largest_of(&self, address: IpAddr, beside: Option<u64>) -> Option<Largest> {
        let mut largest_first = self.by_address.get(&address)?.by_bytes.iter().rev();
        let largest = largest_first.find(|(_, Reverse(number))| Some(*number) != beside);
        largest.map(|&(bytes, Reverse(number))| Largest { address, number, bytes })
    }

    /// Closes a connection, which does not count for its address any more.
    fn close(&mut self, address: IpAddr, number: u64) {
        let mut bytes = 0;
        self.change(address, |of| {
            if let Some(closed) = of.take(number) {
                bytes = closed.counts_as();
                closed.closing.cancel();
            }
        });
        self.closing.insert(number, bytes);
        self.closing_bytes += bytes;
        if self.warned_at.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
            self.warned_at = Some(Instant::now());
            warn!(
                %address,
                "callers at {address} without a valid key have too many connections or calls; the \
                 connections that hold the most, or the oldest ones, are closed"
            );
        }
    }

    /// A closed connection is not in memory any more, or stays open.
    fn forget_closed(&mut self, number: u64) {
        self.closing_bytes -= self.closing.remove(&number).unwrap_or_default();
    }

    /// A connection that has not shown a key, unless it was closed.
    fn connection(&mut self, of: &Account) -> Option<&mut Connection> {
        self.by_address.get_mut(&of.address)?.connections.get_mut(&of.number)
    }
}

impl Account {
    /// The turn in which the connection is read.
    pub(crate) fn turn(&self) -> &ReadTurn {
        &self.turn
    }

    /// Counts something that the connection makes the host keep for a caller without a valid key.
    ///
    /// # Errors
    /// [`NoRoom`]: the caller must be refused.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Result<Charge, NoRoom> {
        let mut charge = Charge { account: self.clone(), bytes: 0 };
        charge.resize(bytes)?;
        Ok(charge)
    }

    /// Begins a piece of work for the connection; `None` while it has shown no key, or while only
    /// one owner has called.
    pub(crate) fn measure(&self) -> Option<Measured> {
        self.addresses
            .thread_times
            .are_several()
            .then(|| self.time.lock().clone())?
            .map(OwnerTime::measure)
    }

    /// Measures the next poll of the connection, which reads in turns if its owner is greedy.
    pub(crate) fn begin_poll(&self) -> Option<Measured> {
        let measured = self.measure();
        if self.has_key() {
            self.turn.set_needed(measured.as_ref().is_some_and(Measured::is_of_greedy));
        }
        measured
    }

    /// A call has had a valid key of this owner: the connection counts for no address any more.
    pub(crate) fn show_key(&self, owner: &OwnerId) {
        let mut time = self.time.lock();
        if time.as_ref().is_none_or(|time| !time.is_of(owner)) {
            *time = Some(self.addresses.thread_times.of_owner(owner));
            self.addresses.turns.pass_to(&self.turn, owner);
        }
        drop(time);
        if self.has_key() {
            return;
        }
        let mut held = self.addresses.held.lock();
        // A connection that was to be closed meanwhile stays open, and is no longer counted.
        held.forget_closed(self.number);
        let mut is_known = false;
        held.change(self.address, |of| {
            if let Some(connection) = of.take(self.number) {
                of.bytes += connection.bytes - connection.head_bytes;
                is_known = true;
            }
        });
        if is_known {
            held.known += 1;
            self.has_key.store(true, Ordering::Relaxed);
        }
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

    /// Counts an incomplete head and the connection's buffers as so many bytes, in place of the
    /// previous ones, until the connection has shown a key.
    ///
    /// # Errors
    /// [`NoRoom`]: the connection must be closed.
    pub(crate) fn set_buffers(&self, head: usize, buffers: usize) -> Result<(), NoRoom> {
        let mut held = self.addresses.held.lock();
        self.change(&mut held, |connection| {
            connection.bytes = connection.bytes - connection.head_bytes + head;
            (connection.head_bytes, connection.buffer_bytes) = (head, buffers);
        })
    }

    /// Changes what a connection without a key holds, if there is room for it. A connection that
    /// has a key or was closed stays as it is.
    fn change(&self, held: &mut Held, change: impl FnOnce(&mut Connection)) -> Result<(), NoRoom> {
        let Some(connection) = held.connection(self) else { return Ok(()) };
        let mut changed = connection.clone();
        change(&mut changed);
        let (before, now) = (connection.counts_as(), changed.counts_as());
        if now > before {
            let growing = Growing { number: Some(self.number), bytes: now };
            self.addresses.make_room(held, self.address, now - before, growing)?;
        }
        held.change(self.address, |of| of.put(self.number, changed));
        Ok(())
    }

    /// Counts `now` bytes in place of `before`.
    fn recharge(&self, held: &mut Held, before: usize, now: usize) -> Result<(), NoRoom> {
        if held.connection(self).is_some() {
            return self.change(held, |connection| {
                connection.bytes = connection.bytes - before + now;
            });
        }
        if !self.has_key() {
            return Err(NoRoom);
        }
        let more = now.saturating_sub(before);
        if more > 0 {
            // Its neighbours are closed only for connections of their kind.
            let growing = Growing { number: Some(self.number), bytes: usize::MAX };
            self.addresses.make_room(held, self.address, more, growing)?;
        }
        held.change(self.address, |of| of.bytes = of.bytes - before + now);
        Ok(())
    }

    fn release(&self, bytes: usize) {
        // Less has room, and a connection that was closed holds nothing any more.
        let _ = self.recharge(&mut self.addresses.held.lock(), bytes, 0);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let unsent = *self.unsent.get_mut();
        let mut held = self.addresses.held.lock();
        held.forget_closed(self.number);
        let is_known = *self.has_key.get_mut();
        held.known -= usize::from(is_known);
        held.change(self.address, |of| {
            if of.take(self.number).is_none() && is_known {
                of.bytes -= unsent;
            }
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
#[path = "addresses_tests.rs"]
mod tests;
