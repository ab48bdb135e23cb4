//! Bounds the large answers that clients have not read yet, on all connections together.
//!
//! An answer is in memory until its client has read it. When another one would exceed
//! [`BYTES_MAX`], the connection of the client that has read nothing for the longest time is
//! closed, and so on until there is room. Clients that have read something within [`GRACE`] are
//! never disconnected. If only those remain, a complete answer is refused; the next piece of a
//! stream (at most 8 MiB) may exceed the bound.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Most bytes of answers that wait for their clients (256 MiB).
const BYTES_MAX: usize = 256 << 20;

/// Answers of at most this size are not counted: a connection's own buffers are of the same order.
const SMALL_BYTES: usize = 64 << 10;

/// A client that has read something within this time keeps its connection.
const GRACE: Duration = Duration::from_secs(1);

/// All large answers that wait for their clients.
#[derive(Debug, Default)]
pub(crate) struct Untaken(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    bytes: usize,
    next_number: u64,
    answers: BTreeMap<Place, Answer>,
}

/// An answer's position among all: the one that has waited longest is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    since: Instant,
    number: u64,
}

#[derive(Debug)]
struct Answer {
    bytes: usize,
    connection: CancellationToken,
}

/// An answer that waits, until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    all: Arc<Untaken>,
    place: Place,
}

/// There is no room for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl Untaken {
    /// Counts a complete answer, if it is large. `connection` is cancelled when it must be closed.
    ///
    /// # Errors
    /// When there is no room for it.
    pub(crate) fn hold_whole(
        self: &Arc<Self>,
        bytes: u64,
        connection: &CancellationToken,
    ) -> Result<Option<Held>, NoRoom> {
        let bytes = usize::try_from(bytes).map_err(|_| NoRoom)?;
        if bytes <= SMALL_BYTES {
            return Ok(None);
        }
        let mut waiting = self.0.lock();
        waiting.make_room(bytes);
        if waiting.bytes + bytes > BYTES_MAX {
            return Err(NoRoom);
        }
        Ok(Some(Held { all: self.clone(), place: waiting.add(bytes, connection) }))
    }

    /// The same for a piece of a longer answer, which is never refused.
    pub(crate) fn hold_piece(
        self: &Arc<Self>,
        bytes: usize,
        connection: &CancellationToken,
    ) -> Option<Held> {
        if bytes <= SMALL_BYTES {
            return None;
        }
        let mut waiting = self.0.lock();
        waiting.make_room(bytes);
        Some(Held { all: self.clone(), place: waiting.add(bytes, connection) })
    }
}

impl Waiting {
    fn add(&mut self, bytes: usize, connection: &CancellationToken) -> Place {
        let place = Place { since: Instant::now(), number: self.next_number };
        self.next_number += 1;
        self.bytes += bytes;
        self.answers.insert(place, Answer { bytes, connection: connection.clone() });
        place
    }

    fn make_room(&mut self, bytes: usize) {
        while self.bytes + bytes > BYTES_MAX
            && let Some(slowest) = self.answers.first_entry()
            && slowest.key().since.elapsed() >= GRACE
        {
            let slowest = slowest.remove();
            self.bytes -= slowest.bytes;
            slowest.connection.cancel();
        }
    }
}

impl Held {
    /// The client has read a part of it.
    pub(crate) fn was_taken(&mut self) {
        let mut waiting = self.all.0.lock();
        if let Some(answer) = waiting.answers.remove(&self.place) {
            self.place.since = Instant::now();
            waiting.answers.insert(self.place, answer);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut waiting = self.all.0.lock();
        if let Some(answer) = waiting.answers.remove(&self.place) {
            waiting.bytes -= answer.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_slowest_goes_when_there_is_no_room() {
        const HALF: usize = BYTES_MAX / 2;
        let all = Arc::new(Untaken::default());
        let connections: [_; 3] = std::array::from_fn(|_| CancellationToken::new());
        let has_gone = || connections.each_ref().map(CancellationToken::is_cancelled);
        let mut quick = all.hold_whole(HALF as u64, &connections[0]).unwrap().unwrap();
        tokio::time::advance(GRACE / 2).await;
        let slow = all.hold_piece(HALF, &connections[1]).unwrap();
        tokio::time::advance(GRACE).await;
        quick.was_taken();
        let third = all.hold_whole(HALF as u64, &connections[2]).unwrap().unwrap();
        assert_eq!(has_gone(), [false, true, false]);
        let another = CancellationToken::new();
        let refused = all.hold_whole(HALF as u64, &another);
        assert_eq!(refused.err(), Some(NoRoom), "the others have taken something");
        let piece = all.hold_piece(HALF, &another).unwrap();
        assert_eq!(has_gone(), [false, true, false]);
        drop((slow, quick, third, piece));
        let waiting = all.0.lock();
        assert_eq!((waiting.bytes, waiting.answers.len()), (0, 0));
    }

    #[test]
    fn small_answers_are_not_counted() {
        let all = Arc::new(Untaken::default());
        let connection = CancellationToken::new();
        assert!(all.hold_whole(SMALL_BYTES as u64, &connection).unwrap().is_none());
        assert!(all.hold_whole(SMALL_BYTES as u64 + 1, &connection).unwrap().is_some());
        assert!(all.hold_piece(SMALL_BYTES, &connection).is_none());
    }
}
