//! The changes that the writer has to write: those that a caller waits for, in the order in which
//! they were decided, and those that may linger.
//!
//! An urgent change is written with the next batch. Another change may stay here for [`LINGER`]. No
//! caller sees it before a later change is on disk too, so writing it at once would only cost a
//! second fsync for the same job, or a second entry and a second wake-up. It is written when its
//! job has an urgent change, when its time is over, or before an entry that must come after
//! everything ([`push_last`](Backlog::push_last)).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use gristmill_core::billing::usage::Bill;
use gristmill_core::webhook::delivery::Delivery;
use tokio::sync::oneshot;

use crate::format::EndpointKey;
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
    Delivery(Box<Delivery>, usize, Ack),
    /// The usage of an attempt without a result, with the bytes that this occupies.
    Bill(Box<Bill>, usize),
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

/// The writes. Bounded by two entries for each job and one for each caller.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    now: VecDeque<Write>,
    /// Lingering jobs with their deadlines. An entry is stale when its job is not queued as
    /// [`Urgency::Deferred`] any more.
    deferred: VecDeque<(Instant, JobKey)>,
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

    /// Takes the next entry that is due; with `takes_all` the next one of all.
    pub(crate) fn pop(&mut self, takes_all: bool, now: Instant) -> Option<Write> {
        self.now.pop_front().or_else(|| {
            let due = self.deferred.pop_front_if(|(until, _)| takes_all || *until <= now);
            due.map(|(_, key)| Write::Job(key))
        })
    }

    /// Removes stale entries at the head of the lingering jobs.
    pub(crate) fn drop_stale(&mut self, lingers: impl Fn(JobKey) -> bool) {
        while self.deferred.pop_front_if(|(_, key)| !lingers(*key)).is_some() {}
    }

    /// When the writes are due; `None` when there are none.
    pub(crate) fn due(&self) -> Option<Due> {
        if self.now.is_empty() {
            self.deferred.front().map(|(until, _)| Due::By(*until))
        } else {
            Some(Due::Now)
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.now.len() + self.deferred.len()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::slab::Slab;

    fn keys() -> [JobKey; 3] {
        let mut slab = Slab::new();
        [slab.insert(1), slab.insert(2), slab.insert(3)]
    }

    fn pop(backlog: &mut Backlog, now: Instant) -> Option<JobKey> {
        match backlog.pop(false, now) {
            Some(Write::Job(key)) => Some(key),
            _ => None,
        }
    }

    #[test]
    fn a_lingering_change_is_not_written_with_an_urgent_one() {
        let [first, second, third] = keys();
        let mut backlog = Backlog::default();
        assert_eq!(backlog.due(), None);
        let begin = Instant::now();
        let (mut queued_first, mut queued_second, mut queued_third) = (None, None, None);
        backlog.push_job(first, &mut queued_first, Urgency::Deferred);
        backlog.push_job(second, &mut queued_second, Urgency::Deferred);
        backlog.push_job(third, &mut queued_third, Urgency::Now);
        // The second job has an urgent change, and keeps its position behind the third.
        backlog.push_job(second, &mut queued_second, Urgency::Now);
        backlog.push_job(second, &mut queued_second, Urgency::Deferred);
        assert_eq!(queued_second, Some(Urgency::Now));
        assert_eq!(backlog.due(), Some(Due::Now));
        assert_eq!(pop(&mut backlog, begin), Some(third));
        assert_eq!(pop(&mut backlog, begin), Some(second));
        assert_eq!(pop(&mut backlog, begin), None);
        assert!(matches!(backlog.due(), Some(Due::By(until)) if until >= begin + LINGER));
        assert_eq!(pop(&mut backlog, Instant::now() + LINGER), Some(first));
        backlog.drop_stale(|_| false);
        assert_eq!(backlog.due(), None);
    }

    #[test]
    fn a_change_pushed_last_is_written_after_lingering_ones() {
        let [first, ..] = keys();
        let mut backlog = Backlog::default();
        backlog.push_job(first, &mut None, Urgency::Deferred);
        backlog.push_last(Write::Break);
        assert_eq!(pop(&mut backlog, Instant::now()), Some(first));
        assert!(matches!(backlog.pop(false, Instant::now()), Some(Write::Break)));
        backlog.push_job(first, &mut None, Urgency::Deferred);
        assert!(backlog.pop(true, Instant::now()).is_some());
    }
}
