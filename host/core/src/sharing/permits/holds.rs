//! Holds: the times in which a worker that waits for memory may hold up other workers.
//!
//! Without holds, a stream of small sandboxes would always take the memory before a large one. With
//! holds alone, one large sandbox that waits for a job of seven days would stop the host for seven
//! days, with most of its memory free. So a hold lasts for [`HOLD`], and then all other workers are
//! served for [`PASS`], however many large sandboxes wait. In a hold, all returned permits are for
//! the workers that wait for memory, so jobs that take less time than [`HOLD`] starve no large
//! sandbox.

use std::time::Duration;

use tokio::time::Instant;

/// Length of a hold.
pub(super) const HOLD: Duration = Duration::from_secs(10);

/// Time after a hold in which all others are served.
pub(super) const PASS: Duration = Duration::from_secs(30);

/// Longest delay before the end of a hold is noticed.
pub(super) const STEP: Duration = Duration::from_secs(1);

/// The holds of all permits, one after the other.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// The begin of the newest hold.
    begun: Option<Instant>,
}

impl Holds {
    /// Whether a worker that waits for memory holds up others now. The next hold begins with the
    /// first call of this after [`PASS`].
    pub(super) fn may_hold(&mut self) -> bool {
        let now = Instant::now();
        let is_over = |begun: Instant| now.duration_since(begun) >= HOLD + PASS;
        if self.begun.is_none_or(is_over) {
            self.begun = Some(now);
        }
        self.begun.is_some_and(|begun| now.duration_since(begun) < HOLD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn others_are_held_up_for_a_quarter_of_the_time_at_most() {
        let mut holds = Holds::default();
        let mut answers = vec![];
        for _ in 0..120 {
            answers.push(holds.may_hold());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let expected: Vec<_> = (0..120).map(|second| second % 40 < 10).collect();
        assert_eq!(answers, expected);
        tokio::time::advance(PASS).await;
        assert!(holds.may_hold(), "the next hold begins when it is needed");
    }
}
