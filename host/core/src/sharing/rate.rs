//! Rate limits as pure logic: at most *N* calls in *any* ten seconds, never 2*N* − 1.
//!
//! A window counts calls in slices of a quarter of a second. A slice that has only partly left the
//! ten seconds still counts in full, so the limit is never exceeded; an empty window admits exactly
//! *N* calls. Each call passes the limit, so a limit that changes with the number of workers needs
//! no change of state.
//!
//! Cost: 172 bytes for each (owner, endpoint, operation) that was called within the last ten
//! seconds.

use std::time::Duration;

/// The time over which calls are counted.
pub const WINDOW: Duration = Duration::from_secs(10);

const SLICE_MS: u64 = 250;
/// Forty whole slices, and the one that has partly left the window.
const SLICES: usize = 41;
const SLICES_U64: u64 = SLICES as u64;

/// The calls of the last ten seconds.
#[derive(Debug, Clone)]
pub struct RateWindow {
    /// Number of the slice that the newest count belongs to.
    newest: u64,
    /// Counts by slice number modulo [`SLICES`].
    counts: [u32; SLICES],
}

impl Default for RateWindow {
    fn default() -> Self {
        Self { newest: 0, counts: [0; SLICES] }
    }
}

/// The decision about one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateVerdict {
    /// The call is counted and admitted.
    Admitted {
        /// How many further calls would be admitted now.
        remaining: u32,
    },
    /// The call is refused and does not count.
    Refused {
        /// After this time a call is admitted, if no other call comes before it.
        retry_after: Duration,
    },
}

impl RateWindow {
    /// Counts a call at `now_ms`, unless `limit` calls were counted in the last ten seconds.
    /// `now_ms` is of any monotonic clock.
    pub fn admit(&mut self, now_ms: u64, limit: u32) -> RateVerdict {
        self.advance(now_ms / SLICE_MS);
        let used: u32 = self.counts.iter().sum();
        if used < limit {
            *self.count_mut(self.newest) += 1;
            return RateVerdict::Admitted { remaining: limit - used - 1 };
        }
        RateVerdict::Refused { retry_after: self.retry_after(now_ms, used, limit) }
    }

    /// Whether no call counts any more at `now_ms`, so that the window can be dropped.
    pub fn is_idle(&self, now_ms: u64) -> bool {
        now_ms / SLICE_MS >= self.newest + SLICES_U64
    }

    /// Drops the slices that have left the window.
    fn advance(&mut self, slice: u64) {
        if slice <= self.newest {
            return; // a caller that read its clock a little earlier
        }
        if slice >= self.newest + SLICES_U64 {
            self.counts = [0; SLICES];
        } else {
            for left in self.newest + 1..=slice {
                *self.count_mut(left) = 0;
            }
        }
        self.newest = slice;
    }

    fn count_mut(&mut self, slice: u64) -> &mut u32 {
        let index = usize::try_from(slice % SLICES_U64).unwrap_or_default();
        #[expect(clippy::indexing_slicing, reason = "the remainder is below SLICES")]
        &mut self.counts[index]
    }

    /// The time until so many slices have left that fewer than `limit` calls count.
    fn retry_after(&mut self, now_ms: u64, mut used: u32, limit: u32) -> Duration {
        // From the oldest slice to the newest: each leaves the window SLICES slices after it began.
        for slice in (self.newest + 1).saturating_sub(SLICES_U64)..=self.newest {
            used -= *self.count_mut(slice);
            if used < limit {
                let leaves_ms = (slice + SLICES_U64) * SLICE_MS;
                return Duration::from_millis(leaves_ms.saturating_sub(now_ms).max(1));
            }
        }
        WINDOW // a limit of 0 admits nothing, ever
    }
}

/// The limits of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct OperationLimit {
    /// Calls in any ten seconds, for each key owner and endpoint.
    pub calls_per_10s: u32,
    /// Calls at one time, for each key owner and endpoint; `None`: no bound.
    pub concurrent: Option<u32>,
    /// Calls in ten seconds for each running worker of the endpoint; the limit is the greater of
    /// this and `calls_per_10s`.
    pub calls_per_worker: u32,
}

impl OperationLimit {
    /// The limit with `running_workers` running workers.
    pub fn effective(&self, running_workers: u64) -> u32 {
        let dynamic = running_workers.saturating_mul(self.calls_per_worker.into());
        self.calls_per_10s.max(u32::try_from(dynamic).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn admitted(verdict: RateVerdict) -> bool {
        matches!(verdict, RateVerdict::Admitted { .. })
    }

    #[test]
    fn from_cold_exactly_the_limit_is_admitted() {
        let mut window = RateWindow::default();
        let count = (0..2_001).filter(|_| admitted(window.admit(1_000_000, 2_000))).count();
        assert_eq!(count, 2_000);
    }

    #[test]
    fn a_higher_limit_counts_at_once() {
        let mut window = RateWindow::default();
        assert!(admitted(window.admit(0, 1)));
        assert!(!admitted(window.admit(0, 1)));
        assert_eq!(window.admit(0, 3), RateVerdict::Admitted { remaining: 1 });
        assert!(!admitted(window.admit(0, 1)), "and a lower one too");
    }

    #[test]
    fn a_window_is_forgotten_when_nothing_counts() {
        let mut window = RateWindow::default();
        window.admit(5_000, 1);
        assert!(!window.is_idle(15_000));
        assert!(window.is_idle(15_250));
    }

    #[test]
    fn the_higher_of_base_and_workers_is_the_limit() {
        let limit =
            OperationLimit { calls_per_10s: 1_000, concurrent: Some(200), calls_per_worker: 200 };
        assert_eq!([0, 5, 6].map(|workers| limit.effective(workers)), [1_000, 1_000, 1_200]);
        assert_eq!(limit.effective(u64::MAX), u32::MAX);
    }

    proptest! {
        /// For any pattern of calls: never more than the limit in any ten seconds, and a caller
        /// that waits for `retry_after` is admitted.
        #[test]
        fn never_too_many_and_the_wait_is_true(
            gaps in prop::collection::vec(0_u64..1_500, 1..300),
            limit in 1_u32..40,
        ) {
            let mut window = RateWindow::default();
            let mut now = 0;
            let mut times: Vec<u64> = Vec::new();
            for gap in gaps {
                now += gap;
                match window.admit(now, limit) {
                    RateVerdict::Admitted { .. } => times.push(now),
                    RateVerdict::Refused { retry_after } => {
                        let later = now + u64::try_from(retry_after.as_millis()).unwrap();
                        prop_assert!(admitted(window.clone().admit(later, limit)));
                        prop_assert!(retry_after <= WINDOW + Duration::from_millis(SLICE_MS));
                    }
                }
            }
            for (i, start) in times.iter().enumerate() {
                let inside = times[i..].iter().take_while(|t| **t - start < 10_000).count();
                prop_assert!(inside <= limit as usize);
            }
        }
    }
}
