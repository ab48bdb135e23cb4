//! The progress of the search for jobs that leave memory, and when the next one is due.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::format::archived::ArchivedJob;
use crate::medium::SegmentId;

/// The longest time between two sweeps.
const PACE_MAX: Duration = Duration::from_secs(60);

/// The shortest time between two sweeps, unless jobs leave memory at once. It is longer than the
/// time without work after which the thread gives back unused space.
const PACE_MIN: Duration = Duration::from_secs(2);

/// Jobs that may wait only for the checkpoint of a segment: some 30 MB of memory.
const BLOCKED_JOBS_MAX: u64 = 65_536;

/// The search for jobs that leave memory.
#[derive(Debug)]
pub(crate) struct Sweep {
    pub(super) after_ms: u64,
    /// The slot at which the running sweep continues.
    pub(super) next: Option<usize>,
    pub(super) begun_at: Instant,
    /// The number of published batches, and the last checkpointed segment, when it began.
    pub(super) seen: Option<(u64, SegmentId)>,
    /// Whether it has met jobs that may be archived later.
    pub(super) has_later: bool,
    /// The jobs that it has met and that wait for a checkpoint, by segment.
    pub(super) blocked: BTreeMap<SegmentId, u64>,
    /// Segments up to this one are checkpointed early.
    pub(super) checkpoint_until: SegmentId,
    /// Jobs whose marks must be removed: they have changed while they were archived.
    pub(super) changed: Vec<ArchivedJob>,
}

impl Sweep {
    pub(crate) fn new(after_ms: u64) -> Self {
        Self {
            after_ms,
            next: None,
            begun_at: Instant::now(),
            seen: None,
            has_later: false,
            blocked: BTreeMap::new(),
            checkpoint_until: SegmentId(0),
            changed: Vec::new(),
        }
    }

    /// The time between two sweeps: a quarter of the time that jobs stay in memory.
    fn pace(&self) -> Duration {
        if self.after_ms == 0 {
            return Duration::ZERO;
        }
        Duration::from_millis(self.after_ms / 4).clamp(PACE_MIN, PACE_MAX)
    }

    /// When the next sweep is due; `None` when it would find nothing new.
    pub(super) fn due_in(&self, now: (u64, SegmentId)) -> Option<Duration> {
        if self.next.is_some() {
            return Some(Duration::ZERO);
        }
        let has_news = self.seen != Some(now) || (self.has_later && self.after_ms > 0);
        has_news.then(|| self.pace().saturating_sub(self.begun_at.elapsed()))
    }

    /// Segments that must be checkpointed so that not too many jobs wait for that.
    pub(super) fn end(&mut self) {
        let mut waiting = 0;
        let newest_first = self.blocked.iter().rev();
        let first = newest_first.map(|(segment, jobs)| (*segment, *jobs)).find(|(_, jobs)| {
            waiting += jobs;
            waiting > BLOCKED_JOBS_MAX
        });
        self.checkpoint_until = first.map_or(SegmentId(0), |(segment, _)| segment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_leave_time_to_give_back_space() {
        for after_ms in [1, 1_000, 4_000, 60_000, u64::MAX] {
            let pace = Sweep::new(after_ms).pace();
            assert!((PACE_MIN..=PACE_MAX).contains(&pace), "{after_ms}: {pace:?}");
        }
        assert_eq!(Sweep::new(0).pace(), Duration::ZERO);
    }
}
