//! The instants of one schedule.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::limits::EVERY_MS;
use crate::schedule::pattern::{InvalidPattern, Pattern};
use crate::schedule::zone::{InvalidZone, Period, Zone};
use crate::time::Timestamp;

/// Periods between changes of a clock that one search looks at. Four are enough: the search skips
/// those without a time of the pattern.
const PERIODS_MAX: u32 = 16;

/// A time longer than any change of a clock: the offsets of all zones lie within 26 hours.
const LONGER_THAN_CHANGES: SignedDuration = SignedDuration::from_hours(48);

/// The zone of a pattern that names none.
const DEFAULT_ZONE: &str = "UTC";

/// The instants of a schedule as clients write them: `cron`, or `everyMs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TicksDefinition {
    /// A pattern of five fields, or a name such as `@daily`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// An interval in milliseconds, 1,000 to those of 366 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
    /// The IANA name of the pattern's time zone; `None`: UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

/// The instants of a schedule. Its size is bounded by that of the pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticks(Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Cron { text: String, pattern: Pattern, zone: Zone },
    Every { every_ms: u64, anchor: Timestamp },
}

/// A definition that no schedule can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTicks {
    /// Both kinds or neither.
    #[error("a schedule has either `cron` or `everyMs`; give exactly one of them")]
    NotOne,
    /// An interval with a time zone.
    #[error("`timeZone` belongs to `cron`, and an interval has none; leave out `timeZone`")]
    ZoneOfInterval,
    /// An interval outside its bounds.
    #[error(
        "`everyMs` is {0}; it must be {min} to {max} ms",
        min = EVERY_MS.min,
        max = EVERY_MS.max
    )]
    EveryMs(u64),
    /// No pattern.
    #[error(transparent)]
    Pattern(#[from] InvalidPattern),
    /// No time zone.
    #[error(transparent)]
    Zone(#[from] InvalidZone),
}

impl TicksDefinition {
    /// The instants of this definition. `anchor` is the first one of an interval; a pattern does
    /// not need it.
    ///
    /// # Errors
    /// [`InvalidTicks`] names the field, its wrong value and what is allowed.
    pub fn resolve(&self, anchor: Timestamp) -> Result<Ticks, InvalidTicks> {
        match (&self.cron, self.every_ms, &self.time_zone) {
            (Some(cron), None, zone) => Ticks::cron(cron, zone.as_deref()),
            (None, Some(_), Some(_)) => Err(InvalidTicks::ZoneOfInterval),
            (None, Some(every_ms), None) => Ticks::every(every_ms, anchor),
            (Some(_), Some(_), _) | (None, None, _) => Err(InvalidTicks::NotOne),
        }
    }
}

impl Ticks {
    /// The local times of a pattern in a zone; `None`: UTC.
    ///
    /// # Errors
    /// As for [`TicksDefinition::resolve`].
    pub fn cron(text: &str, zone: Option<&str>) -> Result<Self, InvalidTicks> {
        let pattern = Pattern::parse(text)?;
        let zone = Zone::named(zone.unwrap_or(DEFAULT_ZONE))?;
        Ok(Self(Kind::Cron { text: text.to_owned(), pattern, zone }))
    }

    /// `anchor`, and then an instant every so many milliseconds.
    ///
    /// # Errors
    /// As for [`TicksDefinition::resolve`].
    pub fn every(every_ms: u64, anchor: Timestamp) -> Result<Self, InvalidTicks> {
        if EVERY_MS.contains(every_ms) {
            Ok(Self(Kind::Every { every_ms, anchor }))
        } else {
            Err(InvalidTicks::EveryMs(every_ms))
        }
    }

    /// The definition, with the zone of a pattern as the bundled data writes it.
    pub fn definition(&self) -> TicksDefinition {
        match &self.0 {
            Kind::Cron { text, zone, .. } => TicksDefinition {
                cron: Some(text.clone()),
                time_zone: Some(zone.name.to_owned()),
                every_ms: None,
            },
            Kind::Every { every_ms, .. } => {
                TicksDefinition { every_ms: Some(*every_ms), ..TicksDefinition::default() }
            }
        }
    }

    /// The first instant later than `after`. `None`: there is none before the end of the year 9999.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.0 {
            Kind::Cron { pattern, zone, .. } => next_of_pattern(pattern, zone, after),
            Kind::Every { every_ms, anchor } => next_of_interval(*every_ms, *anchor, after),
        }
    }

    /// How many times of an interval are later than `after` and not later than `until`, and the
    /// last of them. `None` without one, and for a pattern, whose times can only be counted one by
    /// one.
    pub fn passed(&self, after: Timestamp, until: Timestamp) -> Option<(u64, Timestamp)> {
        let Kind::Every { every_ms, .. } = self.0 else { return None };
        let first = self.next_after(after).filter(|first| *first <= until)?;
        let further = until.millis_since(first) / every_ms;
        Some((further + 1, first.plus_millis(further * every_ms)))
    }
}

fn next_of_interval(every_ms: u64, anchor: Timestamp, after: Timestamp) -> Option<Timestamp> {
    let next_ms = if after < anchor {
        anchor.as_millis()
    } else {
        let count = after.millis_since(anchor) / every_ms + 1;
        anchor.as_millis().checked_add(count.checked_mul(every_ms)?)?
    };
    instant(i64::try_from(next_ms).ok()?.checked_div(1_000)?)?;
    Some(Timestamp::from_millis(next_ms))
}

fn next_of_pattern(pattern: &Pattern, zone: &Zone, after: Timestamp) -> Option<Timestamp> {
    let mut from = instant(i64::try_from(after.as_millis() / 1_000).ok()?.checked_add(1)?)?;
    for _ in 0..PERIODS_MAX {
        let period = zone.period(from);
        // The earliest instant if the clock is not changed again.
        let found = next_in_period(pattern, &period, from)?;
        let Some(end) = period.end.filter(|end| found >= *end) else {
            return u64::try_from(found.as_millisecond()).ok().map(Timestamp::from_millis);
        };
        // The clock may show its times before `from` once more after a change that is near. Later
        // ones show none of the pattern until shortly before `found`.
        let is_change_near = end.duration_since(from) < LONGER_THAN_CHANGES;
        let skipped = found.checked_sub(LONGER_THAN_CHANGES).ok().filter(|_| !is_change_near);
        from = skipped.map_or(end, |skipped| skipped.max(end));
    }
    None
}

/// The first instant of the pattern at `from` or later, as if the period had no end.
fn next_in_period(
    pattern: &Pattern,
    period: &Period,
    from: jiff::Timestamp,
) -> Option<jiff::Timestamp> {
    let Period { begin, offset, offset_before, .. } = *period;
    let by_clock = |offset: jiff::tz::Offset, from| {
        pattern.next(offset.to_datetime(from)).and_then(|time| offset.to_timestamp(time).ok())
    };
    let change = SignedDuration::from_secs((offset.seconds() - offset_before.seconds()).into());
    if pattern.is_by_instants || change.is_zero() {
        return by_clock(offset, from);
    }
    // While this time lasts, the clock was put back and repeats, or it was put forward and the
    // times that it has skipped are due.
    let change_end = begin.checked_add(change.abs()).ok()?;
    if change.is_negative() {
        return by_clock(offset, from.max(change_end));
    }
    let due_late = by_clock(offset_before, from).filter(|at| *at < change_end);
    due_late.into_iter().chain(by_clock(offset, from)).min()
}

/// The instant so many seconds after the Unix epoch; `None`: beyond the year 9999.
fn instant(seconds: i64) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_second(seconds).ok()
}

#[cfg(test)]
#[path = "ticks_tests.rs"]
mod tests;
