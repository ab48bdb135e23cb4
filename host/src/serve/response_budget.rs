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
pub(crate) struct ResponseBudget(Mutex<UnreadAnswers>);

#[derive(Debug, Default)]
struct UnreadAnswers {
    bytes: usize,
    next_number: u64,
    answers: BTreeMap<AnswerPosition, Answer>,
}

/// An answer's position among all: the one that has waited longest is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct AnswerPosition {
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
pub(crate) struct BudgetPermit {
    all: Arc<ResponseBudget>,
    position: AnswerPosition,
}

/// There is no room for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OverBudget;

impl ResponseBudget {
    /// Counts a complete answer, if it is large. `connection` is cancelled when it must be closed.
    ///
    /// # Errors
    /// When there is no room for it.
    pub(crate) fn reserve_whole(
        self: &Arc<Self>,
        bytes: u64,
        connection: &CancellationToken,
    ) -> Result<Option<BudgetPermit>, OverBudget> {
        let bytes = usize::try_from(bytes).map_err(|_| OverBudget)?;
        if bytes <= SMALL_BYTES {
            return Ok(None);
        }
        let mut waiting = self.0.lock();
        waiting.make_room(bytes);
        if waiting.bytes + bytes > BYTES_MAX {
            return Err(OverBudget);
        }
        Ok(Some(BudgetPermit { all: self.clone(), position: waiting.add(bytes, connection) }))
    }

    /// The same for a piece of a longer answer, which is never refused.
    pub(crate) fn reserve_piece(
        self: &Arc<Self>,
        bytes: usize,
        connection: &CancellationToken,
    ) -> Option<BudgetPermit> {
        if bytes <= SMALL_BYTES {
            return None;
        }
        let mut waiting = self.0.lock();
        waiting.make_room(bytes);
        Some(BudgetPermit { all: self.clone(), position: waiting.add(bytes, connection) })
    }
}

impl UnreadAnswers {
    fn add(&mut self, bytes: usize, connection: &CancellationToken) -> AnswerPosition {
        let position = AnswerPosition { since: Instant::now(), number: self.next_number };
        self.next_number += 1;
        self.bytes += bytes;
        self.answers.insert(position, Answer { bytes, connection: connection.clone() });
        position
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

impl BudgetPermit {
    /// The client has read a part of it.
    pub(crate) fn record_progress(&mut self) {
        let mut waiting = self.all.0.lock();
        if let Some(answer) = waiting.answers.remove(&self.position) {
            self.position.since = Instant::now();
            waiting.answers.insert(self.position, answer);
        }
    }
}

impl Drop for BudgetPermit {
    fn drop(&mut self) {
        let mut waiting = self.all.0.lock();
        if let Some(answer) = waiting.answers.remove(&self.position) {
            waiting.bytes -= answer.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_slowest_client_is_disconnected_beyond_the_budget() {
        const HALF: usize = BYTES_MAX / 2;
        let all = Arc::new(ResponseBudget::default());
        let connections: [_; 3] = std::array::from_fn(|_| CancellationToken::new());
        let has_gone = || connections.each_ref().map(CancellationToken::is_cancelled);
        let mut quick = all.reserve_whole(HALF as u64, &connections[0]).unwrap().unwrap();
        tokio::time::advance(GRACE / 2).await;
        let slow = all.reserve_piece(HALF, &connections[1]).unwrap();
        tokio::time::advance(GRACE).await;
        quick.record_progress();
        let third = all.reserve_whole(HALF as u64, &connections[2]).unwrap().unwrap();
        assert_eq!(has_gone(), [false, true, false]);
        let another = CancellationToken::new();
        let refused = all.reserve_whole(HALF as u64, &another);
        assert_eq!(refused.err(), Some(OverBudget), "the others have taken something");
        let piece = all.reserve_piece(HALF, &another).unwrap();
        assert_eq!(has_gone(), [false, true, false]);
        drop((slow, quick, third, piece));
        let waiting = all.0.lock();
        assert_eq!((waiting.bytes, waiting.answers.len()), (0, 0));
    }

    #[test]
    fn small_answers_are_not_counted() {
        let all = Arc::new(ResponseBudget::default());
        let connection = CancellationToken::new();
        assert!(all.reserve_whole(SMALL_BYTES as u64, &connection).unwrap().is_none());
        assert!(all.reserve_whole(SMALL_BYTES as u64 + 1, &connection).unwrap().is_some());
        assert!(all.reserve_piece(SMALL_BYTES, &connection).is_none());
    }
}
