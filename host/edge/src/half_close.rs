//! Clients that end their side of a connection right after a request and wait for the answer, as
//! `nc -N` does. HTTP/1.1 permits that; such a client gets its answer.
//!
//! A client that disconnects looks the same: the end of its data arrives, and the host cannot know
//! more before it sends data. The time distinguishes the two. If the end arrives with a request, or
//! within [`GRACE`] of its last byte, the HTTP library does not see it until the call is over. A
//! later end means that the client has left, and its call ends; so does an end in the middle of a
//! body.
//!
//! **Bounds.** A client that leaves within [`GRACE`] is noticed when its answer cannot be sent.
//! Until then its call continues, within the usual bounds of calls.
//! **Cost.** A lock and a reading of the clock for each read of a connection that finds no bytes.

use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long after the last byte of a request its client may end its side.
const GRACE: Duration = Duration::from_millis(100);

/// The state of the client's side of a connection.
#[derive(Debug, Default)]
pub(super) struct ClientSide(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Calls that are under way.
    calls: usize,
    /// The connection speaks HTTP/2, on which a waiting client keeps its side open.
    is_multiplexed: bool,
    /// Since when no more bytes have arrived; `None` until a read has found none.
    silent_since: Option<Instant>,
    /// The end has arrived, and is kept from HTTP until the calls are over.
    is_kept_back: bool,
    /// The end was kept back in the middle of a body.
    is_cut: bool,
    /// The task to wake when HTTP may see the end.
    reader: Option<Waker>,
    /// The task to wake when the end is kept back: it may be in the middle of this body.
    body: Option<Waker>,
}

impl ClientSide {
    /// A call has begun.
    pub(super) fn call_began(&self, is_multiplexed: bool) {
        let mut state = self.0.lock();
        state.calls += 1;
        state.is_multiplexed = is_multiplexed;
    }

    /// A call is over.
    pub(super) fn call_ended(&self) {
        let mut state = self.0.lock();
        state.calls -= 1;
        if state.calls == 0 {
            state.wake_reader();
        }
    }

    /// A read has found bytes.
    pub(super) fn bytes_came(&self) {
        self.0.lock().silent_since = None;
    }

    /// A read has found nothing.
    pub(super) fn is_silent(&self) {
        self.0.lock().silent_since.get_or_insert_with(Instant::now);
    }

    /// A read has found the end. Returns whether it is kept from HTTP for now; the reader is woken
    /// when it is not any more.
    pub(super) fn keeps_end_back(&self, reader: &Waker) -> bool {
        let mut state = self.0.lock();
        if !state.is_kept_back {
            let is_late = state.silent_since.is_some_and(|since| since.elapsed() > GRACE);
            if is_late || state.is_multiplexed {
                return false;
            }
        }
        if state.calls == 0 || state.is_cut {
            return false;
        }
        state.is_kept_back = true;
        state.reader = Some(reader.clone());
        if let Some(body) = state.body.take() {
            body.wake();
        }
        true
    }

    /// A call waits for more of its body, which cannot arrive if the end was kept back.
    pub(super) fn waits_for_body(&self, body: &Waker) {
        let mut state = self.0.lock();
        if state.is_kept_back {
            state.is_cut = true;
            state.wake_reader();
        } else {
            state.body = Some(body.clone());
        }
    }
}

impl State {
    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn side(with_call: bool) -> ClientSide {
        let side = ClientSide::default();
        side.bytes_came();
        if with_call {
            side.call_began(false);
        }
        side
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_with_the_request_is_kept_back_and_a_later_one_is_not() {
        let waker = Waker::noop();
        let at_once = side(true);
        tokio::time::advance(GRACE * 10).await;
        assert!(at_once.keeps_end_back(waker), "no call has looked since the last byte");

        for (silent, is_kept_back) in [(GRACE, true), (GRACE + Duration::from_millis(1), false)] {
            let side = side(true);
            side.is_silent();
            tokio::time::advance(silent / 2).await;
            side.is_silent();
            tokio::time::advance(silent - silent / 2).await;
            assert_eq!(side.keeps_end_back(waker), is_kept_back, "{silent:?}");
            tokio::time::advance(GRACE * 10).await;
            assert_eq!(side.keeps_end_back(waker), is_kept_back, "it stays as it is");
        }
        assert!(!side(false).keeps_end_back(waker), "there is no call to go on with");
        let multiplexed = side(false);
        multiplexed.call_began(true);
        assert!(!multiplexed.keeps_end_back(waker));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_is_shown_when_the_call_is_over_or_its_body_is_cut() {
        let waker = Waker::noop();
        let over = side(true);
        assert!(over.keeps_end_back(waker));
        over.call_ended();
        assert!(!over.keeps_end_back(waker));

        for waits_before in [false, true] {
            let cut = side(true);
            if waits_before {
                cut.waits_for_body(waker);
            }
            assert!(cut.keeps_end_back(waker));
            // The body is polled again when the end has arrived.
            cut.waits_for_body(waker);
            assert!(!cut.keeps_end_back(waker), "an end in the middle of a body");
        }
    }
}
