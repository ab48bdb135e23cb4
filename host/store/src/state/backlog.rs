//! The changes that the writer has to write: those that a caller waits for, in the order in which
//! they were decided, and those that may linger.
//!
//! Small and [large](super::room) changes take turns. While small changes are due, a batch leaves
//! the large ones, and the next batch begins with those. So a small change waits for one batch of
//! large ones, however many large ones are due, and each batch of large ones waits for one batch of
//! small ones. The changes of each kind keep their order.
//!
//! An urgent change is written with the next batch. Another change may stay here for [`LINGER`]. No
//! caller sees it before a later change is on disk too, so writing it at once would only cost a
//! second fsync for the same job, or a second entry and a second wake-up. It is written when its
//! job has an urgent change, when its time is over, or before an entry that must come after
//! everything ([`push_last`](Backlog::push_last)).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use gristmill_core::billing::usage::Bill;
use gristmill_core::job::note::ScheduleNumber;
use gristmill_core::webhook::delivery::Delivery;
use tokio::sync::oneshot;

use crate::format::EndpointKey;
use crate::state::room::Room;
use crate::state::slab::JobKey;

/// Resolves when the change that it belongs to is on disk and visible.
pub(crate) type Ack = oneshot::Sender<()>;

/// A write, in the order of the decisions.
#[derive(Debug)]
pub(crate) enum Write {
    /// The newest state of a job.
    Job(JobKey),
    /// Writes nothing; resolves when all earlier writes are on disk and visible.
    Barrier(Ack),
    /// A delivery after an attempt.
    Delivery(Box<Delivery>, Room, Ack),
    /// Usage that no result brings, in one batch, with the room that this occupies.
    Bills(Vec<Bill>, Room),
    /// Changed notes of schedules; `None`: the note is removed.
    Notes(Vec<(ScheduleNumber, Option<String>)>, Ack),
    /// Removes the row of an endpoint whose jobs are all removed.
    Forget(EndpointKey),
    /// Test only: makes the next transaction fail.
    #[cfg(test)]
    Break,
    /// Test only: stops the writer until the sender is dropped.
    #[cfg(test)]
    Hold(std::sync::mpsc::Receiver<()>),
}

/// Longest delay of a claim, or of a submission whose client waits for the result. Most handlers
/// end within it, so that their result is written together with the submission.
pub(crate) const LINGER: Duration = Duration::from_millis(2);

/// Whether a caller waits for the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// The change is written with the next batch.
    Now,
    /// The change may linger.
    Deferred,
}

impl Write {
    /// Whether it is written after all earlier writes.
    fn is_last(&self) -> bool {
        matches!(self, Self::Barrier(_) | Self::Forget(_))
    }
}

/// The writes. Bounded by two entries for each job and one for each caller.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    now: VecDeque<Write>,
    /// The large changes that batches have left, and the writes that must follow these.
    large: VecDeque<Write>,
    /// Whether the next batch begins with them.
    is_turn_of_large: bool,
    /// Lingering jobs with their deadlines. An entry is stale when its job is not queued as
    /// [`Urgency::Deferred`] any more.
    deferred: VecDeque<(Instant, JobKey)>,
}

/// The batch that is being taken.
#[derive(Debug)]
pub(crate) struct Round {
    takes_all: bool,
    now: Instant,
    takes_large: bool,
    is_empty: bool,
}

/// When the writes are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Now,
    By(Instant),
}

impl Backlog {
    /// Adds an entry for the next batch.
    pub(crate) fn push(&mut self, write: Write) {
        self.now.push_back(write);
    }

    /// Adds an entry for the next batch that is written after all present entries.
    pub(crate) fn push_last(&mut self, write: Write) {
        self.now.extend(self.deferred.drain(..).map(|(_, key)| Write::Job(key)));
        self.now.push_back(write);
    }

    /// Adds the newest state of a job, unless `queued` shows that the state is here already and at
    /// least as urgent.
    pub(crate) fn push_job(&mut self, key: JobKey, queued: &mut Option<Urgency>, urgency: Urgency) {
        match (*queued, urgency) {
            (Some(Urgency::Now), _) | (Some(Urgency::Deferred), Urgency::Deferred) => return,
            (None | Some(Urgency::Deferred), Urgency::Now) => self.now.push_back(Write::Job(key)),
            (None, Urgency::Deferred) => self.deferred.push_back((Instant::now() + LINGER, key)),
        }
        *queued = Some(urgency);
    }

    /// Begins a batch of the entries that are due at `now`; with `takes_all` of all entries,
    /// without turns.
    pub(crate) fn begin_round(&mut self, takes_all: bool, now: Instant) -> Round {
        let takes_large = takes_all || self.is_turn_of_large && !self.large.is_empty();
        self.is_turn_of_large = !takes_large;
        Round { takes_all, now, takes_large, is_empty: true }
    }

    /// Takes the next entry of a batch.
    pub(crate) fn pop(
        &mut self,
        round: &mut Round,
        is_large: impl Fn(JobKey) -> bool,
    ) -> Option<Write> {
        loop {
            let left = if round.takes_large { self.large.pop_front() } else { None };
            let next = left.or_else(|| self.pop_due(round));
            if let Some(write) = next {
                let is_left = match &write {
                    _ if round.takes_large => false,
                    Write::Job(key) => is_large(*key),
                    write => write.is_last() && !self.large.is_empty(),
                };
                if !is_left {
                    round.is_empty = false;
                    return Some(write);
                }
                self.large.push_back(write);
            } else if round.is_empty && !self.large.is_empty() {
                // No small entry is due.
                (round.takes_large, self.is_turn_of_large) = (true, false);
            } else {
                return None;
            }
        }
    }

    fn pop_due(&mut self, round: &Round) -> Option<Write> {
        self.now.pop_front().or_else(|| {
            let is_due = |until: Instant| round.takes_all || until <= round.now;
            let due = self.deferred.pop_front_if(|(until, _)| is_due(*until));
            due.map(|(_, key)| Write::Job(key))
        })
    }

    /// Removes stale entries at the head of the lingering jobs.
    pub(crate) fn drop_stale(&mut self, lingers: impl Fn(JobKey) -> bool) {
        while self.deferred.pop_front_if(|(_, key)| !lingers(*key)).is_some() {}
    }

    /// When the writes are due; `None` when there are none.
    pub(crate) fn due(&self) -> Option<Due> {
        if self.now.is_empty() && self.large.is_empty() {
            self.deferred.front().map(|(until, _)| Due::By(*until))
        } else {
            Some(Due::Now)
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.now.len() + self.large.len() + self.deferred.len()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
#[path = "backlog_tests.rs"]
mod tests;
