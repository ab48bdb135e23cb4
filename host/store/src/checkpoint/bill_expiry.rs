//! How much of the bill may be deleted now, in a directory and in a database.
//!
//! **A wrong clock deletes no bill.** Rows expire by the wall clock, but at most
//! [`EXPIRED_EACH_HOUR`] hours of the bill expire in each hour that really passes. A clock that is
//! years ahead hides the old rows, and they are shown again once it is right.

use std::cell::Cell;
use std::time::Duration;

use gristmill_core::billing::usage::Hour;

/// Most hours of the bill that are deleted in each hour that passes. Two, so that the store catches
/// up after the host was down.
const EXPIRED_EACH_HOUR: u32 = 2;

/// When a part of the bill was deleted last, by the clock that never jumps.
#[derive(Debug, Default)]
pub(crate) struct BillExpiry {
    last: Cell<Option<Duration>>,
}

impl BillExpiry {
    /// The first hour that is kept, when rows begin with `oldest` and those before `first_kept` are
    /// too old.
    pub(crate) fn first_kept(&self, oldest: Hour, first_kept: Hour, elapsed: Duration) -> Hour {
        let hour = Duration::from_secs(3_600);
        let is_early = self.last.get().is_some_and(|last| elapsed.saturating_sub(last) < hour);
        let allowed = if is_early { 0 } else { EXPIRED_EACH_HOUR };
        first_kept.min(Hour(oldest.0.saturating_add(allowed)))
    }

    /// A part was deleted.
    pub(crate) fn record(&self, elapsed: Duration) {
        self.last.set(Some(elapsed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_of_the_bill_expire_only_while_hours_pass() {
        let expiry = BillExpiry::default();
        let first_kept = |oldest, too_old, passed_s| {
            expiry.first_kept(Hour(oldest), Hour(too_old), Duration::from_secs(passed_s)).0
        };
        assert_eq!(first_kept(1_000, 900, 0), 900, "nothing is too old");
        assert_eq!(first_kept(1_000, 1_001, 0), 1_001);
        // The clock has jumped, after a year and at the start.
        for passed_s in [365 * 86_400, 0] {
            assert_eq!(first_kept(1_000, 90_000, passed_s), 1_002);
        }
        expiry.record(Duration::from_secs(7));
        assert_eq!(first_kept(1_002, 90_000, 3_606), 1_002);
        assert_eq!(first_kept(1_002, 90_000, 3_607), 1_004);
        assert_eq!(first_kept(u32::MAX, u32::MAX, 9_999), u32::MAX);
    }
}
