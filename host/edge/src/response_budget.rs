//! Bounds the answers that clients have not read yet, on all connections together: large ones, and
//! the small ones of an HTTP/2 connection that has several at one time.
//!
//! An answer is in memory until its client has read it. When another one would exceed
//! [`BYTES_MAX`], the connection of the client that has read nothing for the longest time is
//! closed, and so on until there is room. Clients that have read something within [`GRACE`] keep
//! their connections. If there is no room without these, a complete answer is refused and no
//! connection is closed; the next piece of a stream (9 MiB at most) may exceed the bound.
//!
//! While the host has several owners, the answers that clients of one owner read have [a
//! share](SharedBound) of the bound: 192 MiB when no other owner reads. Beyond its share, a
//! complete answer replaces answers of this owner alone, or is refused. The next piece of a stream,
//! which cannot be refused, closes the slowest connections of this owner, even those that have read
//! something within [`GRACE`]: some 32 steady readers would otherwise take all 256 MiB. The first
//! answer of an owner needs only room. Answers to clients without a key, such as the OpenAPI
//! document, always have one share together; their small answers count [for their
//! addresses](super::addresses) instead.
//!
//! **Cost.** An answer that is counted counts as 64 KiB at least, and looks at all others once:
//! 4,096 at most. Small answers cost nothing, and on HTTP/2 a lock of their connection.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use gristmill_core::id::OwnerId;
use gristmill_core::sharing::shares::{Fit, SharedBound};
use gristmill_core::sharing::tenancy::Tenancy;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Most bytes of answers that wait for their clients (256 MiB).
const BYTES_MAX: usize = 256 << 20;

/// A client that has read something within this time keeps its connection, unless the streams of
/// its owner exceed the owner's share.
const GRACE: Duration = Duration::from_secs(1);

/// The host does not count an answer of at most this size, or several of this size together on one
/// HTTP/2 connection: a connection's own buffers are of the same order.
pub const SMALL_ANSWER_BYTES: usize = 64 << 10;

/// Whether an answer, or a piece of one, of so many bytes is always counted.
pub(super) fn is_large(bytes: u64) -> bool {
    bytes > SMALL_ANSWER_BYTES as u64
}

/// The owner of the calling key, among the extensions of an answer that is large, of unknown size
/// or on HTTP/2. An answer to a caller without a valid key has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerOwner(pub OwnerId);

/// All large answers that wait for their clients.
#[derive(Debug, Default)]
pub struct ResponseBudget {
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
    /// `None`: the call had no valid key.
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
    pub fn new(tenancy: Tenancy) -> Self {
        Self { answers: Mutex::default(), tenancy }
    }

    /// Counts a complete answer to a client of this owner, if it is large. `connection` is
    /// cancelled when it must be closed.
    ///
    /// # Errors
    /// When there is no room for it, or its owner has its share. No connection is closed then.
    pub(crate) fn reserve_whole(
        self: &Arc<Self>,
        bytes: u64,
        owner: Option<&OwnerId>,
        connection: &CancellationToken,
    ) -> Result<Option<BudgetPermit>, OverBudget> {
        let bytes = usize::try_from(bytes).map_err(|_| OverBudget)?;
        if bytes <= SMALL_ANSWER_BYTES {
            return Ok(None);
        }
        let mut waiting = self.answers.lock();
        let mut chosen = self.beyond_share(&waiting, bytes, owner);
        // They are in the order in which their clients have read.
        if chosen.positions.last().is_some_and(|last| !last.is_slow()) {
            return Err(OverBudget);
        }
        waiting.choose_slow(bytes, &mut chosen);
        if waiting.bytes - chosen.bytes + bytes > BYTES_MAX {
            return Err(OverBudget);
        }
        waiting.close(chosen);
        let position = waiting.add(bytes, owner, connection);
        Ok(Some(BudgetPermit { all: self.clone(), position }))
    }

    /// The same for a piece of a longer answer and for a small answer, which are never refused. A
    /// smaller piece counts as [`SMALL_ANSWER_BYTES`], which bounds the number of pieces.
    pub(crate) fn reserve_piece(
        self: &Arc<Self>,
        bytes: usize,
        owner: Option<&OwnerId>,
        connection: &CancellationToken,
    ) -> BudgetPermit {
        let bytes = bytes.max(SMALL_ANSWER_BYTES);
        let mut waiting = self.answers.lock();
        let mut chosen = self.beyond_share(&waiting, bytes, owner);
        waiting.choose_slow(bytes, &mut chosen);
        waiting.close(chosen);
        let position = waiting.add(bytes, owner, connection);
        BudgetPermit { all: self.clone(), position }
    }

    /// The owner's answers that must end before it may have so many more bytes. Clients without a
    /// key are never the host's only owner, so that they always leave room.
    fn beyond_share(
        &self,
        waiting: &UnreadAnswers,
        bytes: usize,
        owner: Option<&OwnerId>,
    ) -> Chosen {
        if owner.is_none() || self.tenancy.has_several_owners() {
            waiting.choose_beyond_share(bytes, owner)
        } else {
            Chosen::default()
        }
    }
}

impl AnswerPosition {
    /// Whether the client has read nothing for [`GRACE`].
    fn is_slow(self) -> bool {
        self.since.elapsed() >= GRACE
    }
}

/// Answers whose connections are to be closed for another answer.
#[derive(Debug, Default)]
struct Chosen {
    positions: BTreeSet<AnswerPosition>,
    /// The sum of their bytes.
    bytes: usize,
}

impl Chosen {
    fn add(&mut self, position: AnswerPosition, bytes: usize) {
        if self.positions.insert(position) {
            self.bytes += bytes;
        }
    }
}

impl UnreadAnswers {
    fn add(
        &mut self,
        bytes: usize,
        owner: Option<&OwnerId>,
        connection: &CancellationToken,
    ) -> AnswerPosition {
        let position = AnswerPosition { since: Instant::now(), number: self.next_number };
        self.next_number += 1;
        self.bytes += bytes;
        let answer = Answer { bytes, owner: owner.cloned(), connection: connection.clone() };
        self.answers.insert(position, answer);
        position
    }

    /// Chooses the answers of an owner, the slowest first, without which it may have so many more
    /// bytes as far as its share goes. All of them suffice in any case.
    fn choose_beyond_share(&self, bytes: usize, owner: Option<&OwnerId>) -> Chosen {
        let own = || self.answers.iter().filter(move |(_, answer)| answer.owner.as_ref() == owner);
        let mut held: usize = own().map(|(_, answer)| answer.bytes).sum();
        let (bound, mut chosen) = (SharedBound::always(BYTES_MAX as u64), Chosen::default());
        for (position, answer) in own() {
            let all = self.bytes - chosen.bytes;
            if bound.fit(held as u64, all as u64, bytes as u64) == Fit::Fits {
                break;
            }
            held -= answer.bytes;
            chosen.add(*position, answer.bytes);
        }
        chosen
    }

    /// Chooses answers of any owner, the slowest first, until there is room or only clients remain
    /// that read.
    fn choose_slow(&self, bytes: usize, chosen: &mut Chosen) {
        for (position, answer) in &self.answers {
            if self.bytes - chosen.bytes + bytes <= BYTES_MAX || !position.is_slow() {
                break;
            }
            chosen.add(*position, answer.bytes);
        }
    }

    fn close(&mut self, chosen: Chosen) {
        for position in chosen.positions {
            if let Some(answer) = self.answers.remove(&position) {
                self.bytes -= answer.bytes;
                answer.connection.cancel();
            }
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

    /// The budget of a host with several owners, and its tenancy.
    fn of_several_owners() -> (Arc<ResponseBudget>, Tenancy) {
        let tenancy = Tenancy::default();
        tenancy.set_several_owners(true);
        (Arc::new(ResponseBudget::new(tenancy.clone())), tenancy)
    }

    fn owner(name: &str) -> Option<OwnerId> {
        Some(OwnerId::new(name).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn the_slowest_client_is_disconnected_beyond_the_budget() {
        const HALF: usize = BYTES_MAX / 2;
        let all = Arc::new(ResponseBudget::default());
        let only = owner("only");
        let whole = |connection: &CancellationToken| {
            all.reserve_whole(HALF as u64, only.as_ref(), connection)
        };
        let connections: [_; 3] = std::array::from_fn(|_| CancellationToken::new());
        let has_gone = || connections.each_ref().map(CancellationToken::is_cancelled);
        let mut quick = whole(&connections[0]).unwrap().unwrap();
        tokio::time::advance(GRACE / 2).await;
        let slow = all.reserve_piece(HALF, only.as_ref(), &connections[1]);
        tokio::time::advance(GRACE).await;
        quick.record_progress();
        let third = whole(&connections[2]).unwrap().unwrap();
        assert_eq!(has_gone(), [false, true, false]);
        let another = CancellationToken::new();
        let refused = whole(&another);
        assert_eq!(refused.err(), Some(OverBudget), "the others have taken something");
        let piece = all.reserve_piece(HALF, only.as_ref(), &another);
        assert_eq!(has_gone(), [false, true, false]);
        drop((slow, quick, third, piece));
        let waiting = all.answers.lock();
        assert_eq!((waiting.bytes, waiting.answers.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_whose_clients_read_slowly_leaves_room_to_others() {
        const ANSWER: u64 = 10 << 20;
        let (all, tenancy) = of_several_owners();
        let [busy, other] = ["busy", "other"].map(owner);
        let first = CancellationToken::new();
        let reserve = |owner: &Option<OwnerId>, connection: &CancellationToken| {
            all.reserve_whole(ANSWER, owner.as_ref(), connection).ok().flatten()
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

    /// Pieces cannot be refused, so that the owner's own slowest client gives way to the next
    /// piece.
    #[tokio::test(start_paused = true)]
    async fn an_owner_whose_streams_are_read_steadily_leaves_room_to_others() {
        const PAGE: usize = 9 << 20;
        let (all, tenancy) = of_several_owners();
        let [busy, other] = ["busy", "other"].map(owner);
        let readers: [_; 32] = std::array::from_fn(|_| CancellationToken::new());
        let gone = || -> Vec<_> {
            let numbered = readers.iter().enumerate();
            numbered.filter(|(_, reader)| reader.is_cancelled()).map(|(number, _)| number).collect()
        };
        let read = |reader: &CancellationToken| all.reserve_piece(PAGE, busy.as_ref(), reader);
        let mut pages: Vec<_> = readers[..21].iter().map(read).collect();
        assert!(gone().is_empty(), "189 MiB are within the share");
        tokio::time::advance(GRACE / 2).await;
        for (number, page) in pages.iter_mut().enumerate() {
            if number != 5 {
                page.record_progress();
            }
        }
        pages.push(read(&readers[21]));
        assert_eq!(gone(), [5], "the slowest");
        pages.extend(readers[22..].iter().map(read));
        assert_eq!(gone(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        let connection = CancellationToken::new();
        let whole = || all.reserve_whole(20 << 20, other.as_ref(), &connection);
        assert!(whole().is_ok_and(|held| held.is_some()), "another owner has room");
        drop(pages);
        tenancy.set_several_owners(false);
        let alone: [_; 32] = std::array::from_fn(|_| CancellationToken::new());
        let pages: Vec<_> = alone.iter().map(read).collect();
        assert!(!alone.iter().any(CancellationToken::is_cancelled), "of the only owner");
        assert_eq!(pages.len(), alone.len());
    }

    #[tokio::test(start_paused = true)]
    async fn no_connection_is_closed_for_an_answer_that_is_refused() {
        let (all, tenancy) = of_several_owners();
        let [busy, other] = ["busy", "other"].map(owner);
        let (slow, quick) = (CancellationToken::new(), CancellationToken::new());
        let whole = |owner: &Option<OwnerId>, mib: u64, connection: &CancellationToken| {
            all.reserve_whole(mib << 20, owner.as_ref(), connection).map(Option::unwrap)
        };
        let _slow = whole(&busy, 10, &slow).unwrap();
        tokio::time::advance(GRACE).await;
        let _quick = whole(&busy, 170, &quick).unwrap();
        // One connection is not enough for the share, and then for the room.
        assert_eq!(whole(&busy, 30, &quick).err(), Some(OverBudget));
        assert_eq!(whole(&other, 90, &quick).err(), Some(OverBudget));
        tenancy.set_several_owners(false);
        assert_eq!(whole(&busy, 90, &quick).err(), Some(OverBudget));
        assert!(!slow.is_cancelled());
        tenancy.set_several_owners(true);
        let next = whole(&busy, 15, &quick);
        assert!(next.is_ok() && slow.is_cancelled(), "here it is enough");
        assert!(!quick.is_cancelled());
    }

    /// Streams may exceed the budget, and the first answer of an owner only needs room.
    #[test]
    fn the_first_answer_of_an_owner_needs_only_room() {
        let (all, _) = of_several_owners();
        let connection = CancellationToken::new();
        let stream = owner("stream");
        let piece = |bytes| all.reserve_piece(bytes, stream.as_ref(), &connection);
        let _pieces = piece(BYTES_MAX - (20 << 20));
        let whole = |name, mib: u64| {
            let held = all.reserve_whole(mib << 20, owner(name).as_ref(), &connection);
            held.map(|held| held.is_some())
        };
        assert_eq!(whole("a", 20), Ok(true));
        let _held = all.reserve_whole(12 << 20, owner("a").as_ref(), &connection).unwrap();
        assert_eq!(whole("a", 8), Err(OverBudget), "its second one");
        assert_eq!(whole("b", 8), Ok(true));
        let _more = piece(BYTES_MAX);
        assert_eq!(whole("b", 1), Err(OverBudget), "no room");
    }

    #[test]
    fn clients_without_a_key_leave_room_to_the_only_owner() {
        const ANSWER: u64 = 10 << 20;
        let all = Arc::new(ResponseBudget::default());
        let connection = CancellationToken::new();
        let reserve =
            |owner: Option<&OwnerId>| all.reserve_whole(ANSWER, owner, &connection).ok().flatten();
        let unauthenticated: Vec<_> = std::iter::from_fn(|| reserve(None)).collect();
        assert_eq!(unauthenticated.len(), 19, "three quarters of the budget");
        let only = owner("only");
        let own: Vec<_> = std::iter::from_fn(|| reserve(only.as_ref())).collect();
        assert_eq!(own.len(), 6, "all the rest");
    }

    #[test]
    fn small_answers_are_not_counted() {
        let all = Arc::new(ResponseBudget::default());
        let connection = CancellationToken::new();
        assert!(all.reserve_whole(SMALL_ANSWER_BYTES as u64, None, &connection).unwrap().is_none());
        assert!(
            all.reserve_whole(SMALL_ANSWER_BYTES as u64 + 1, None, &connection).unwrap().is_some()
        );
    }

    /// Each look at all answers takes time for each of them.
    #[test]
    fn small_pieces_count_as_64_kib() {
        let all = Arc::new(ResponseBudget::default());
        let connection = CancellationToken::new();
        let piece = all.reserve_piece(1, None, &connection);
        assert_eq!(all.answers.lock().bytes, SMALL_ANSWER_BYTES);
        drop(piece);
        assert_eq!(all.answers.lock().bytes, 0);
    }
}
