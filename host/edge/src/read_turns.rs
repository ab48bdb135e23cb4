//! The turns in which connections without a valid key are read.
//!
//! A call of 13 bytes takes a thread for some 15 µs, so a thousand connections with 250 calls each
//! would take all threads for seconds: a turn bounds the time of one connection, and their number
//! in one round of the threads' queues bounds that of all of them. So a probe, and a caller whose
//! key is still to be read, wait for some of these turns and not for all connections.
//!
//! **Bounds.** [`TURN_BYTES`] in a turn: 20 calls, 0.3 ms. [`TURNS`] at one time; they are taken in
//! the order of the requests. A connection waits for no other one during its first [`FREE_CALLS`]
//! and [`FREE_BYTES`], which are read in pieces of [`FREE_TURN_BYTES`]: a thousand connections may
//! begin at one time. **Cost.** Some locks for each turn, which no other thread takes, and none
//! once the connection has shown a key.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::PollSemaphore;

/// Most bytes that are read in one turn.
pub(crate) const TURN_BYTES: usize = 256;

/// Most turns at one time.
const TURNS: usize = 4;

/// Bytes of a connection that are read without a wait for other connections.
pub(crate) const FREE_BYTES: usize = 4 << 10;

/// Most of them that are read at once: the beginning of HTTP/2 and two calls.
pub(crate) const FREE_TURN_BYTES: usize = 64;

/// Calls of a connection up to which its bytes are read so.
const FREE_CALLS: u64 = 2;

/// The turns of all connections.
#[derive(Debug, Clone)]
pub(crate) struct ReadTurns(Arc<Semaphore>);

impl Default for ReadTurns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(TURNS)))
    }
}

/// The turn of one connection, which is dropped with the connection.
#[derive(Debug)]
pub(crate) struct ReadTurn(Mutex<State>);

#[derive(Debug)]
struct State {
    all: PollSemaphore,
    held: Option<OwnedSemaphorePermit>,
    /// The bytes that were read so far.
    bytes: usize,
}

impl ReadTurns {
    /// The turn of a new connection.
    pub(crate) fn of_connection(&self) -> ReadTurn {
        let all = PollSemaphore::new(self.0.clone());
        ReadTurn(Mutex::new(State { all, held: None, bytes: 0 }))
    }
}

impl ReadTurn {
    /// Waits for the turn of a connection that has begun so many calls. Returns the most bytes to
    /// read in it.
    pub(crate) fn poll_begin(&self, calls: u64, context: &mut Context<'_>) -> Poll<usize> {
        let mut state = self.0.lock();
        let State { all, held, bytes } = &mut *state;
        if *bytes < FREE_BYTES && calls <= FREE_CALLS {
            return Poll::Ready(FREE_TURN_BYTES);
        }
        if held.is_none() {
            *held = ready!(all.poll_acquire(context));
        }
        Poll::Ready(TURN_BYTES)
    }

    /// So many bytes were read in the turn. Without any, it is another connection's turn.
    pub(crate) fn read(&self, bytes: usize) {
        let mut state = self.0.lock();
        state.bytes += bytes;
        if bytes == 0 {
            state.held = None;
        }
    }

    /// Ends the turn, after all tasks that were ready during it.
    pub(crate) fn end(&self) {
        self.0.lock().held = None;
    }

    /// Asks for the poll that [ends](Self::end) the turn.
    pub(crate) fn ends_later(&self, context: &Context<'_>) {
        if self.0.lock().held.is_some() {
            context.waker().wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn few_connections_have_a_turn_at_one_time_and_new_ones_do_not_wait() {
        let turns = ReadTurns::default();
        let context = &mut Context::from_waker(Waker::noop());
        let busy: Vec<_> = (0..=TURNS).map(|_| turns.of_connection()).collect();
        let begun: Vec<_> =
            busy.iter().map(|turn| turn.poll_begin(FREE_CALLS + 1, context).is_ready()).collect();
        assert_eq!(begun.iter().filter(|begun| **begun).count(), TURNS);
        let new = turns.of_connection();
        assert!(new.poll_begin(FREE_CALLS, context).is_ready());
        new.read(FREE_BYTES);
        assert!(new.poll_begin(FREE_CALLS, context).is_pending(), "its free bytes are used up");
        busy[0].end();
        assert!(busy[TURNS].poll_begin(FREE_CALLS + 1, context).is_ready(), "it came first");
        assert!(new.poll_begin(FREE_CALLS, context).is_pending());
        busy[1].read(0);
        assert!(new.poll_begin(FREE_CALLS, context).is_ready());
        drop((busy, new));
        assert_eq!(turns.0.available_permits(), TURNS);
    }
}
