//! Buckets of time: parts of the calendar, in UTC. A week begins on Monday.

use gristmill_core::billing::usage::Hour;
use gristmill_wire::management::BucketSize;
use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};

/// The buckets of one size.
pub trait Buckets: Copy {
    /// The first hour of the bucket that contains `hour`.
    fn start(self, hour: Hour) -> Hour;

    /// The first hour of the next bucket.
    fn next(self, hour: Hour) -> Hour;

    /// Number of buckets with hours from `start` to before `end`, or slightly more; the count stops
    /// soon after `max`.
    fn count(self, start: Hour, end: Hour, max: u32) -> u32 {
        let (mut at, mut count) = (start, 0);
        while at < end && count <= max {
            at = self.next(at);
            count += 1;
        }
        count
    }
}

impl Buckets for BucketSize {
    fn start(self, hour: Hour) -> Hour {
        let Some(date) = date(hour).filter(|_| self != Self::Hour) else { return hour };
        first_day(self, date).and_then(first_hour).unwrap_or(hour)
    }

    fn next(self, hour: Hour) -> Hour {
        let after = || Hour(hour.0.saturating_add(1));
        let Some(date) = date(hour).filter(|_| self != Self::Hour) else { return after() };
        let span = match self {
            Self::Hour | Self::Day => 1.day(),
            Self::Week => 1.week(),
            Self::Month => 1.month(),
            Self::Year => 1.year(),
        };
        let next = first_day(self, date).and_then(|first| first.checked_add(span).ok());
        next.and_then(first_hour).unwrap_or_else(after)
    }
}

fn first_day(size: BucketSize, date: Date) -> Option<Date> {
    match size {
        BucketSize::Hour | BucketSize::Day => Some(date),
        BucketSize::Week => {
            let days = date.weekday().since(Weekday::Monday);
            date.checked_sub(i64::from(days).days()).ok()
        }
        BucketSize::Month => Some(date.first_of_month()),
        BucketSize::Year => Some(date.first_of_year()),
    }
}

/// The day of an hour, unless the calendar ends before it.
fn date(hour: Hour) -> Option<Date> {
    let at = Timestamp::from_second(i64::from(hour.0) * 3_600).ok()?;
    Some(at.to_zoned(TimeZone::UTC).date())
}

fn first_hour(date: Date) -> Option<Hour> {
    let at = date.to_zoned(TimeZone::UTC).ok()?.timestamp();
    u32::try_from(at.as_second() / 3_600).ok().map(Hour)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hour(text: &str) -> Hour {
        let at: Timestamp = text.parse().unwrap();
        Hour(u32::try_from(at.as_second() / 3_600).unwrap())
    }

    #[test]
    fn buckets_follow_the_calendar() {
        let cases = [
            ("2028-02-29T13:00Z", BucketSize::Hour, "2028-02-29T13:00Z", "2028-02-29T14:00Z"),
            ("2028-02-29T13:00Z", BucketSize::Day, "2028-02-29T00:00Z", "2028-03-01T00:00Z"),
            ("2028-02-29T13:00Z", BucketSize::Week, "2028-02-28T00:00Z", "2028-03-06T00:00Z"),
            ("2028-02-29T13:00Z", BucketSize::Month, "2028-02-01T00:00Z", "2028-03-01T00:00Z"),
            ("2028-02-29T13:00Z", BucketSize::Year, "2028-01-01T00:00Z", "2029-01-01T00:00Z"),
            ("2027-01-03T23:00Z", BucketSize::Week, "2026-12-28T00:00Z", "2027-01-04T00:00Z"),
            ("2027-01-04T00:00Z", BucketSize::Week, "2027-01-04T00:00Z", "2027-01-11T00:00Z"),
        ];
        for (at, size, start, next) in cases {
            let found = (size.start(hour(at)), size.next(hour(at)));
            assert_eq!(found, (hour(start), hour(next)), "{at} {size:?}");
        }
        // The calendar does not reach that far, nor before 1970.
        for size in BucketSize::ALL {
            let last = Hour(u32::MAX);
            assert_eq!((size.start(last), size.next(last)), (last, last));
            assert!(size.start(Hour(0)) <= Hour(0) && size.next(Hour(0)) > Hour(0));
        }
    }

    #[test]
    fn buckets_are_counted_as_far_as_needed() {
        let count = |size: BucketSize, from, to| size.count(hour(from), hour(to), 100);
        assert_eq!(count(BucketSize::Day, "2026-01-01T23:00Z", "2026-01-03T01:00Z"), 3);
        assert_eq!(count(BucketSize::Month, "2026-01-31T23:00Z", "2026-02-01T00:00Z"), 1);
        assert_eq!(count(BucketSize::Year, "2025-12-31T23:00Z", "2026-01-01T01:00Z"), 2);
        assert_eq!(count(BucketSize::Hour, "1970-01-01T00:00Z", "2026-01-01T00:00Z"), 101);
    }
}
