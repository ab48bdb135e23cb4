//! What the writer has to write, in the order in which it was decided, and by when.
//!
//! Some of it is waited for, and goes with the next transaction. The rest may linger for
//! [`LINGER`]: nobody is told of it before something else is on disk too, so that a transaction of
//! its own would only be a second fsync for the same job.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::asks::Write;
use crate::slab::JobKey;

/// How long a submission whose client waits for the result, or a claim, may stay off the disk.
/// Longer than most handlers run, and far below what a crash may cost anyway.
pub(crate) const LINGER: Duration = Duration::from_millis(2);

/// Whether somebody waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// It goes with the next transaction.
    Now,
    /// It may linger.
    Soon,
}

/// Writes for the writer. Bounded by one entry for each job and one for each caller.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    writes: VecDeque<Write>,
    due: Option<Due>,
}

/// When the writes are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Now,
    By(Instant),
}

impl Backlog {
    /// Adds one that goes with the next transaction.
    pub(crate) fn push(&mut self, write: Write) {
        self.writes.push_back(write);
        self.due = Some(Due::Now);
    }

    /// Adds the newest state of a job, if `is_new`; else it is here already.
    pub(crate) fn push_job(&mut self, key: JobKey, is_new: bool, urgency: Urgency) {
        if is_new {
            self.writes.push_back(Write::Job(key));
        }
        match urgency {
            Urgency::Now => self.due = Some(Due::Now),
            Urgency::Soon if self.due.is_none() => {
                self.due = Some(Due::By(Instant::now() + LINGER))
            }
            Urgency::Soon => {}
        }
    }

    /// Somebody waits for what is there.
    pub(crate) fn hurry(&mut self) {
        if !self.writes.is_empty() {
            self.due = Some(Due::Now);
        }
    }

    /// Takes the one that was decided first.
    pub(crate) fn pop(&mut self) -> Option<Write> {
        let write = self.writes.pop_front();
        if self.writes.is_empty() {
            self.due = None;
        }
        write
    }

    /// When the writes are due; `None` when there are none.
    pub(crate) fn due(&self) -> Option<Due> {
        self.due
    }

    pub(crate) fn len(&self) -> usize {
        self.writes.len()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;

    #[test]
    fn what_may_linger_waits_for_what_may_not() {
        let mut slab = Slab::new();
        let (first, second) = (slab.insert(1), slab.insert(2));
        let mut backlog = Backlog::default();
        assert_eq!(backlog.due(), None);
        backlog.push_job(first, true, Urgency::Soon);
        let due = backlog.due();
        assert!(matches!(due, Some(Due::By(_))));
        backlog.push_job(second, true, Urgency::Soon);
        assert_eq!(backlog.due(), due, "the first one counts");
        backlog.push_job(first, false, Urgency::Now);
        assert_eq!((backlog.due(), backlog.len()), (Some(Due::Now), 2));
        backlog.push_job(first, false, Urgency::Soon);
        assert_eq!(backlog.due(), Some(Due::Now));
        assert!(matches!(backlog.pop(), Some(Write::Job(job)) if job == first));
        assert_eq!(backlog.due(), Some(Due::Now));
        assert!(matches!(backlog.pop(), Some(Write::Job(job)) if job == second));
        assert_eq!(backlog.due(), None);
        backlog.hurry();
        assert_eq!(backlog.due(), None, "there is nothing to hurry for");
    }
}
