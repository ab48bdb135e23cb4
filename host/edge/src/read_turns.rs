//! The turns in which connections without a valid key, and those of [greedy](crate::thread_time)
//! owners, are read.
//!
//! A call of 13 bytes takes a thread for some 15 µs, and the beginning of a connection some 100 µs,
//! so a thousand connections would take all threads for seconds. A turn bounds the time of one
//! connection, and their number in one round of the threads' queues bounds that of all of them. So
//! a probe, and a caller whose key is still to be read, wait for some of these turns and not for
//! all connections.
//!
//! **Promise.** Addresses take turns, or owners, and the connections of each have them in the order
//! of their requests. Connections that begin wait for each other and for no other connection.
//! **Bounds.** [`TURNS`] at one time of [`TURN_BYTES`]: 20 calls, 0.3 ms. While a connection
//! begins, up to [`FIRST_CALLS`] and [`FIRST_BYTES`], it has one of [`FIRST_TURNS`] of
//! [`FIRST_TURN_BYTES`]. Greedy owners have [`TURNS`] more, of as many bytes as take about
//! [`TURN_TIME`]: large ones of a body, small ones of calls. One address or owner has at most three
//! quarters of the turns.
//! **Cost.** Some locks for each turn, and none while the connection needs no turns.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use gristmill_core::id::OwnerId;
use gristmill_core::sharing::permits::{Permit, PermitShare, Permits, Sharer};
use gristmill_core::sharing::shares::Level;
use parking_lot::Mutex;

/// Most bytes that are read in one turn.
pub(crate) const TURN_BYTES: usize = 256;

/// Most turns at one time.
const TURNS: usize = 4;

/// Most turns at one time of connections that begin.
const FIRST_TURNS: usize = 8;

/// Bytes up to which a connection begins.
pub(crate) const FIRST_BYTES: usize = 4 << 10;

/// Most of them that are read in one turn: the beginning of HTTP/2 and two calls.
pub(crate) const FIRST_TURN_BYTES: usize = 64;

/// Calls up to which a connection begins.
const FIRST_CALLS: u64 = 2;

/// About the longest turn of a greedy owner's connection.
const TURN_TIME: Duration = Duration::from_micros(200);

/// What a call is counted as, since HTTP/2 passes it to a task that runs after the turn.
const CALL_TIME: Duration = Duration::from_micros(15);

/// Most bytes of an owner's turn.
const OWNER_TURN_BYTES_MAX: usize = 64 << 10;

/// The turns of all connections.
#[derive(Debug)]
pub(crate) struct ReadTurns {
    first: Permits<Turner>,
    later: Permits<Turner>,
    of_owners: Permits<Turner>,
}

impl Default for ReadTurns {
    fn default() -> Self {
        let [first, later, of_owners] = [FIRST_TURNS, TURNS, TURNS].map(Permits::for_work);
        Self { first, later, of_owners }
    }
}

/// Who takes turns with others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Turner {
    Address(IpAddr),
    Owner(OwnerId),
}

impl Sharer for Turner {}

/// The turn of one connection, which is dropped with the connection.
#[derive(Debug)]
pub(crate) struct ReadTurn {
    state: Mutex<State>,
    is_needed: AtomicBool,
}

struct State {
    first: PermitShare<Turner>,
    later: PermitShare<Turner>,
    /// Those of the owner whose key was shown last.
    of_owner: Option<PermitShare<Turner>>,
    /// The place among those that wait, with the connection's waker.
    queued: Option<Queued>,
    /// The connection has asked for a turn since the end of the last one.
    has_asked: bool,
    held: Option<Permit<Turner>>,
    /// The connection has got its bytes of this turn. HTTP/2 reads again after each call that it
    /// begins.
    is_used: bool,
    /// The bytes that were read so far.
    bytes: usize,
    /// The bytes of the owner's next turn.
    owner_turn_bytes: usize,
    /// The calls at the begin of this turn, and whether all of its bytes were there.
    begun: (u64, bool),
}

/// A place among those that wait for turns of one kind.
struct Queued {
    is_first: bool,
    permit: BoxFuture<'static, Permit<Turner>>,
    waker: Waker,
}

impl ReadTurns {
    /// The turn of a new connection of an address.
    pub(crate) fn of_connection(&self, address: IpAddr) -> ReadTurn {
        let address = Turner::Address(address);
        let (first, later) = (self.first.owner_share(&address), self.later.owner_share(&address));
        let (of_owner, has_asked, is_used) = (None, false, false);
        let (queued, held, bytes, begun) = (None, None, 0, (0, false));
        let owner_turn_bytes = TURN_BYTES;
        let state = State {
            first,
            later,
            of_owner,
            queued,
            has_asked,
            held,
            is_used,
            bytes,
            owner_turn_bytes,
            begun,
        };
        ReadTurn { state: Mutex::new(state), is_needed: AtomicBool::new(true) }
    }

    /// From now on the connection takes its turns with other owners, if it needs any.
    pub(crate) fn pass_to(&self, turn: &ReadTurn, owner: &OwnerId) {
        turn.state.lock().of_owner =
            Some(self.of_owners.owner_share(&Turner::Owner(owner.clone())));
        turn.is_needed.store(false, Ordering::Relaxed);
        turn.leave();
    }
}

impl ReadTurn {
    /// Whether bytes are read in turns now.
    pub(crate) fn is_needed(&self) -> bool {
        self.is_needed.load(Ordering::Relaxed)
    }

    /// Whether the owner of the connection needs turns.
    pub(crate) fn set_needed(&self, is_needed: bool) {
        if self.is_needed() != is_needed {
            self.is_needed.store(is_needed, Ordering::Relaxed);
            self.leave();
        }
    }

    /// Leaves the turn and the place among those that wait, for others. A connection that waits is
    /// woken, since it may read without a turn now.
    pub(crate) fn leave(&self) {
        let mut state = self.state.lock();
        let (held, queued) = (state.held.take(), state.queued.take());
        state.is_used = false;
        drop(state);
        drop(held);
        if let Some(Queued { waker, .. }) = queued {
            waker.wake();
        }
    }

    /// Waits for the turn of a connection that has begun so many calls. Returns the most bytes to
    /// read in it. After a read, the next turn begins after the [end](Self::end) of this one.
    pub(crate) fn poll_begin(&self, calls: u64, context: &mut Context<'_>) -> Poll<usize> {
        let mut state = self.state.lock();
        if state.is_used {
            wake_after_others(context);
            return Poll::Pending;
        }
        let is_new = state.bytes < FIRST_BYTES && calls <= FIRST_CALLS;
        let is_first = is_new && state.of_owner.is_none();
        if state.held.is_none() {
            state.held = Some(ready!(state.poll_permit(is_first, context)));
        }
        state.begun = (calls, false);
        Poll::Ready(match is_first {
            true => FIRST_TURN_BYTES,
            false if state.of_owner.is_some() => state.owner_turn_bytes,
            false => TURN_BYTES,
        })
    }

    /// So many bytes were read in the turn. Without any, it is another connection's turn.
    pub(crate) fn read(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.bytes += bytes;
        state.is_used = bytes > 0;
        state.begun.1 = bytes >= state.owner_turn_bytes;
        if bytes == 0 {
            state.held = None;
        }
    }

    /// After a poll of a greedy owner's connection, which has begun so many calls by now: a long
    /// turn makes the next ones smaller.
    pub(crate) fn took(&self, time: Duration, calls: u64) {
        let mut state = self.state.lock();
        let (calls_before, was_full) = state.begun;
        let calls = u32::try_from(calls.saturating_sub(calls_before)).unwrap_or(u32::MAX);
        let time = time.saturating_add(CALL_TIME.saturating_mul(calls));
        if state.held.is_none() || !state.is_used {
            return;
        }
        if time > TURN_TIME {
            state.owner_turn_bytes = (state.owner_turn_bytes / 4).max(TURN_BYTES);
        } else if was_full && time < TURN_TIME / 2 {
            state.owner_turn_bytes = (state.owner_turn_bytes * 2).min(OWNER_TURN_BYTES_MAX);
        }
    }

    /// Ends the turn, after all tasks that were ready during it.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        (state.held, state.is_used, state.has_asked) = (None, false, false);
    }

    /// After a poll of the connection: asks for the poll that [ends](Self::end) the turn. A
    /// connection that waits for a turn and has not asked in this poll does not read: its client
    /// may be slow to take an answer. It leaves its place to others.
    pub(crate) fn ends_later(&self, context: &mut Context<'_>) {
        let mut state = self.state.lock();
        if !state.has_asked {
            state.queued = None;
        }
        if state.held.is_some() {
            wake_after_others(context);
        }
    }
}

/// Wakes the task when its thread has polled all tasks that are ready, and has looked for calls
/// that have arrived on other connections. A task that wakes itself would keep the thread from
/// looking for up to 61 polls: one connection made calls on others wait for 2 ms.
fn wake_after_others(context: &mut Context<'_>) {
    let yielding = pin!(tokio::task::yield_now());
    // It has passed the waker to the thread.
    let _ = yielding.poll(context);
}

impl State {
    fn poll_permit(&mut self, is_first: bool, context: &mut Context<'_>) -> Poll<Permit<Turner>> {
        self.has_asked = true;
        let before = self.queued.take().filter(|queued| queued.is_first == is_first);
        let mut queued = match before {
            Some(queued) => queued,
            None => {
                let later = self.of_owner.as_ref().unwrap_or(&self.later);
                let share = if is_first { &self.first } else { later };
                if let Some(permit) = share.try_take(0, Level::CLIENT) {
                    return Poll::Ready(permit);
                }
                let permit = share.queue(0, Level::CLIENT).boxed();
                Queued { is_first, permit, waker: context.waker().clone() }
            }
        };
        match queued.permit.poll_unpin(context) {
            Poll::Ready(permit) => Poll::Ready(permit),
            Poll::Pending => {
                queued.waker.clone_from(context.waker());
                self.queued = Some(queued);
                Poll::Pending
            }
        }
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("held", &self.held).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "read_turns_tests.rs"]
mod tests;
