//! The turns in which TLS handshakes are computed.
//!
//! The answer to a client's first message takes a thread for 0.09 ms with a key on P-256 and for
//! 0.32 ms with RSA of 2,048 bits, and costs the client nothing: a recorded message will do. So one
//! address could take all threads with handshakes.
//!
//! **Promise.** Addresses take turns, and the handshakes of an address have them in the order of
//! their messages. A turn covers one step of the computation, and no wait for the client.
//! **Bounds.** As many steps at one time as half of the cores; a turn ends after the tasks that
//! were ready during its step, so that these wait for one step of each turn, and not for all
//! handshakes. **Cost.** An allocation for each handshake, and a few locks for each of its steps,
//! of which there are two or three.

use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use gristmill_core::sharing::permits::Permits;
use tokio::sync::Notify;
use tokio::task::yield_now;

/// The turns of all handshakes of a listener.
pub(crate) struct HandshakeTurns(Permits<IpAddr>);

impl Default for HandshakeTurns {
    fn default() -> Self {
        Self(Permits::half_of_cores())
    }
}

/// The client has sent more, or has taken what was sent to it.
#[derive(Default)]
struct ClientActed(Notify);

impl Wake for ClientActed {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl HandshakeTurns {
    /// Carries out a handshake with a client at this address, each poll in a turn.
    pub(crate) async fn run<F: Future>(&self, address: IpAddr, handshake: F) -> F::Output {
        let mut handshake = pin!(handshake);
        let turns_of_address = self.0.owner_share(&address);
        // The task is also woken for its turn, and must not take that for a message.
        let client_acted = Arc::new(ClientActed::default());
        let waker = Waker::from(client_acted.clone());
        loop {
            let turn = turns_of_address.acquire().await;
            let step = handshake.as_mut().poll(&mut Context::from_waker(&waker));
            yield_now().await;
            drop(turn);
            match step {
                Poll::Ready(outcome) => return outcome,
                Poll::Pending => client_acted.0.notified().await,
            }
        }
    }
}

#[cfg(test)]
#[path = "handshake_turns_tests.rs"]
mod tests;
