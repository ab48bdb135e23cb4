//! Bounds the large answers that clients have not read yet, on all connections together.
//!
//! An answer is in memory until its client has read it. When another one would exceed
//! [`BYTES_MAX`], the connection of the client that has read nothing for the longest time is
//! closed, and so on until there is room. Clients that have read something within [`GRACE`] are
//! never disconnected. If only those remain, a complete answer is refused; the next piece of a
//! stream (at most 8 MiB) may exceed the bound.
//!
//! While the host has several owners, the complete answers of one owner have [a share](fair_share) of
//! the bound: 192 MiB when no other owner reads. Beyond its share, the answers of this owner alone
//! are closed or refused. The first answer of an owner needs only room. Answers without a known
//! owner, such as pieces of streams and lists, share as if they were of one owner.
//! **Cost.** An answer that is counted looks at all others: 4,096 at most.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gristmill_core::fair_share;
use gristmill_core::id::OwnerId;
use gristmill_core::tenancy::Tenancy;
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
pub(crate) struct ResponseBudget {
    answers: Mutex<UnreadAnswers>,
    tenancy: Tenancy,
}

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
    /// `None`: unknown.
    owner: Option<OwnerId>,
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
    /// The budget of a host with these owners.
    pub(crate) fn new(tenancy: Tenancy) -> Self {
        Self { answers: Mutex::default(), tenancy }
    }

    /// Counts a complete answer to a client of this owner, if it is large. `connection` is cancelled
    /// when it must be closed.
    ///
    /// # Errors
    /// When there is no room for it, or its owner has its share.
    pub(crate) fn reserve_whole(
        self: &Arc<Self>,
        bytes: u64,
        owner: Option<OwnerId>,
        connection: &CancellationToken,
    ) -> Result<Option<BudgetPermit>, OverBudget> {
        let bytes = usize::try_from(bytes).map_err(|_| OverBudget)?;
        if bytes <= SMALL_BYTES {
            return Ok(None);
        }
        let mut waiting = self.answers.lock();
        if self.tenancy.has_several_owners() {
            waiting.make_room_in_share(owner.as_ref(), bytes)?;
        }
        waiting.make_room(bytes);
        if waiting.bytes + bytes > BYTES_MAX {
            return Err(OverBudget);
        }
        let position = waiting.add(bytes, owner, connection);
        Ok(Some(BudgetPermit { all: self.clone(), position }))
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
        let mut waiting = self.answers.lock();
        waiting.make_room(bytes);
        let position = waiting.add(bytes, None, connection);
        Some(BudgetPermit { all: self.clone(), position })
    }
}

impl UnreadAnswers {
    fn add(
        &mut self,
        bytes: usize,
        owner: Option<OwnerId>,
        connection: &CancellationToken,
    ) -> AnswerPosition {
        let position = AnswerPosition { since: Instant::now(), number: self.next_number };
        self.next_number += 1;
        self.bytes += bytes;
        self.answers.insert(position, Answer { bytes, owner, connection: connection.clone() });
        position
    }

    /// Closes the connections of the slowest clients until there is room, or only clients remain that
    /// read.
    fn make_room(&mut self, bytes: usize) {
        while self.bytes + bytes > BYTES_MAX
            && let Some((slowest, _)) = self.answers.first_key_value()
            && slowest.since.elapsed() >= GRACE
        {
            let slowest = *slowest;
            self.close(slowest);
        }
    }

    /// The same among the clients of one owner, until the owner may have so many more bytes.
    ///
    /// # Errors
    /// When this owner's clients that remain have its share.
    fn make_room_in_share(
        &mut self,
        owner: Option<&OwnerId>,
        bytes: usize,
    ) -> Result<(), OverBudget> {
        while !self.is_in_share(owner, bytes) {
            let slowest = self.answers.iter().find(|(_, answer)| answer.owner.as_ref() == owner);
            match slowest.map(|(position, _)| *position) {
                Some(slowest) if slowest.since.elapsed() >= GRACE => self.close(slowest),
                Some(_) | None => return Err(OverBudget),
            }
        }
        Ok(())
    }

    /// Whether the owner may have so many more bytes, as far as its share goes.
    fn is_in_share(&self, owner: Option<&OwnerId>, bytes: usize) -> bool {
        let own = self.answers.values().filter(|answer| answer.owner.as_ref() == owner);
        let held: usize = own.map(|answer| answer.bytes).sum();
        let free = BYTES_MAX.saturating_sub(self.bytes + bytes);
        held == 0 || fair_share::admits((held + bytes) as u64, free as u64)
    }

    fn close(&mut self, position: AnswerPosition) {
        if let Some(answer) = self.answers.remove(&position) {
            self.bytes -= answer.bytes;
            answer.connection.cancel();
        }
    }
}

impl BudgetPermit {
    /// The client has read a part of it.
    pub(crate) fn record_progress(&mut self) {
        let mut waiting = self.all.answers.lock();
        if let Some(answer) = waiting.answers.remove(&self.position) {
            self.position.since = Instant::now();
            waiting.answers.insert(self.position, answer);
        }
    }
}

impl Drop for BudgetPermit {
    fn drop(&mut self) {
        let mut waiting = self.all.answers.lock();
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
        let mut quick = all.reserve_whole(HALF as u64, None, &connections[0]).unwrap().unwrap();
        tokio::time::advance(GRACE / 2).await;
        let slow = all.reserve_piece(HALF, &connections[1]).unwrap();
        tokio::time::advance(GRACE).await;
        quick.record_progress();
        let third = all.reserve_whole(HALF as u64, None, &connections[2]).unwrap().unwrap();
        assert_eq!(has_gone(), [false, true, false]);
        let another = CancellationToken::new();
        let refused = all.reserve_whole(HALF as u64, None, &another);
        assert_eq!(refused.err(), Some(OverBudget), "the others have taken something");
        let piece = all.reserve_piece(HALF, &another).unwrap();
        assert_eq!(has_gone(), [false, true, false]);
        drop((slow, quick, third, piece));
        let waiting = all.answers.lock();
        assert_eq!((waiting.bytes, waiting.answers.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_whose_clients_read_slowly_leaves_room_to_others() {
        const ANSWER: u64 = 10 << 20;
        let tenancy = Tenancy::default();
        tenancy.set_several_owners(true);
        let all = Arc::new(ResponseBudget::new(tenancy.clone()));
        let [busy, other] = ["busy", "other"].map(|name| Some(OwnerId::new(name).unwrap()));
        let first = CancellationToken::new();
        let reserve = |owner: &Option<OwnerId>, connection: &CancellationToken| {
            all.reserve_whole(ANSWER, owner.clone(), connection).ok().flatten()
        };
        let mut slow: Vec<_> = reserve(&busy, &first).into_iter().collect();
        slow.extend(std::iter::from_fn(|| reserve(&busy, &CancellationToken::new())));
        assert_eq!(slow.len(), 19, "three quarters of the budget");
        for _ in 0..3 {
            let answer = reserve(&other, &CancellationToken::new());
            assert!(answer.is_some(), "another owner has room");
        }
        // The busy owner's own slowest client gives way to its next one.
        tokio::time::advance(GRACE).await;
        slow.iter_mut().skip(1).for_each(BudgetPermit::record_progress);
        let next = reserve(&busy, &CancellationToken::new());
        assert!(next.is_some() && first.is_cancelled());
        assert!(reserve(&busy, &CancellationToken::new()).is_none(), "all others read");
        tenancy.set_several_owners(false);
        assert!(reserve(&busy, &CancellationToken::new()).is_some(), "of the only owner");
    }

    /// Streams may exceed the budget, and the first answer of an owner only needs room.
    #[test]
    fn the_first_answer_of_an_owner_needs_only_room() {
        let tenancy = Tenancy::default();
        tenancy.set_several_owners(true);
        let all = Arc::new(ResponseBudget::new(tenancy));
        let connection = CancellationToken::new();
        let _pieces = all.reserve_piece(BYTES_MAX - (20 << 20), &connection);
        let owner = |name| Some(OwnerId::new(name).unwrap());
        let whole = |name, mib: u64| {
            all.reserve_whole(mib << 20, owner(name), &connection).map(|held| held.is_some())
        };
        assert_eq!(whole("a", 20), Ok(true));
        let _held = all.reserve_whole(12 << 20, owner("a"), &connection).unwrap();
        assert_eq!(whole("a", 8), Err(OverBudget), "its second one");
        assert_eq!(whole("b", 8), Ok(true));
        let _more = all.reserve_piece(BYTES_MAX, &connection);
        assert_eq!(whole("b", 1), Err(OverBudget), "no room");
    }

    #[test]
    fn small_answers_are_not_counted() {
        let all = Arc::new(ResponseBudget::default());
        let connection = CancellationToken::new();
        assert!(all.reserve_whole(SMALL_BYTES as u64, None, &connection).unwrap().is_none());
        assert!(all.reserve_whole(SMALL_BYTES as u64 + 1, None, &connection).unwrap().is_some());
        assert!(all.reserve_piece(SMALL_BYTES, &connection).is_none());
    }
}
