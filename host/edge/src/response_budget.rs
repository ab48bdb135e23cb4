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
#[path = "response_budget_tests.rs"]
mod tests;
