//! Positions in queues, ascending in the order of submission; a priority is a head start.
//!
//! **Promises.** A job with a priority waits as if it had been submitted so many minutes earlier.
//! So a job is passed only by jobs that are submitted at most nine minutes after it. Jobs with the
//! same priority keep their order, up to [`STEP`] jobs of one second.
//!
//! **Bounds.** An entry for each second of the last nine minutes in which a job was submitted:
//! 13 KiB. **Cost.** A comparison for each job, and a binary search for one with a priority.

use std::collections::VecDeque;

use gristmill_core::limits::PRIORITY;
use gristmill_core::time::Timestamp;

/// The head start of one unit of priority, in seconds.
const HEAD_START_S: u64 = 60;

/// Seconds that are remembered.
const SECONDS_MAX: usize = (PRIORITY.max * HEAD_START_S) as usize + 1;

/// The distance between two positions, so that jobs with priorities fit between them.
const STEP: u64 = 1 << 16;

/// The next positions.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    last: u64,
    /// The newest seconds in which jobs were submitted, in order.
    seconds: VecDeque<Second>,
}

#[derive(Debug, Clone, Copy)]
struct Second {
    /// Its number since 1970.
    number: u64,
    /// The last position before it.
    before: u64,
    /// Jobs that were put right behind that one.
    put: u64,
}

impl Positions {
    /// The greatest position so far.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// The position of a job that is submitted now.
    pub(crate) fn next(&mut self, priority: u8, now: Timestamp) -> u64 {
        let number = second(now);
        if self.seconds.back().is_none_or(|newest| newest.number < number) {
            // Each second has positions of its own for the jobs that are put right behind `before`.
            if self.seconds.back().is_some_and(|newest| newest.before == self.last) {
                self.last += STEP;
            }
            self.add(Second { number, before: self.last, put: 0 });
        }
        if priority > 0 {
            let from = number.saturating_sub(u64::from(priority) * HEAD_START_S);
            let at = self.seconds.partition_point(|second| second.number < from);
            if let Some(second) = self.seconds.get_mut(at) {
                second.put = (second.put + 1).min(STEP - 1);
                return second.before + second.put;
            }
        }
        self.last += STEP;
        self.last
    }

    /// A job with this position exists, which was submitted then. Jobs come in the order of their
    /// submission, or nearly so.
    pub(crate) fn restore(&mut self, position: u64, priority: u8, submitted_at: Timestamp) {
        let (number, before) = (second(submitted_at), position.saturating_sub(1));
        if priority == 0 {
            match self.seconds.back_mut() {
                Some(newest) if newest.number >= number => {
                    newest.before = newest.before.min(before)
                }
                _ => self.add(Second { number, before: before.max(self.last), put: 0 }),
            }
        }
        self.last = self.last.max(position);
    }

    fn add(&mut self, second: Second) {
        if self.seconds.len() == SECONDS_MAX {
            self.seconds.pop_front();
        }
        self.seconds.push_back(second);
    }
}

fn second(at: Timestamp) -> u64 {
    at.as_millis() / 1_000
}

#[cfg(test)]
#[path = "positions_tests.rs"]
mod tests;
