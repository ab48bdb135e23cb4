//! The pattern of a schedule, such as `30 6 * * MON-FRI`: five sets of small numbers, and the next
//! local time that is in all of them. A search takes at most [`MONTHS_MAX`] steps.

use jiff::civil::{Date, DateTime, Time};
use jiff::{SignedDuration, ToSpan as _};

use crate::limits::CRON_BYTES_MAX;

/// Months after which a search ends: the rarest date, a 29 February on one day of the week, returns
/// after at most 40 years.
const MONTHS_MAX: u32 = 40 * 12 + 1;

/// The bit of the last day in the set of days, whose numbers begin with 1.
const LAST_DAY: u64 = 1;

/// A checked pattern. Bit `n` of a set stands for the number `n`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    /// 0 is Sunday.
    weekdays: u64,
    /// Whether a day needs only one of `days` and `weekdays`: when both are restricted.
    is_either_day: bool,
    /// Whether it fires by instants instead of by local time.
    pub(super) is_by_instants: bool,
}

/// A text that is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPattern {
    /// Too many bytes.
    #[error("`cron` is longer than {CRON_BYTES_MAX} bytes; shorten it, for example with ranges")]
    TooLong,
    /// Another number of fields.
    #[error("`cron` has {0} field(s); write five: minute, hour, day of month, month, day of week")]
    FieldCount(usize),
    /// A field for seconds.
    #[error(
        "`cron` has 6 fields, and no field of seconds is possible; write five, or use `everyMs`"
    )]
    Seconds,
    /// An unknown name of a pattern.
    #[error(
        "`cron` is `{0}`; the names of patterns are @hourly, @daily, @weekly, @monthly and @yearly"
    )]
    Name(String),
    /// A value that its field does not have.
    #[error("`cron` has `{value}` in the field of {field}; {allowed}")]
    Value {
        /// The value.
        value: String,
        /// The plural name of the field.
        field: &'static str,
        /// The values that it has.
        allowed: &'static str,
    },
    /// A range whose end is before its begin.
    #[error(
        "`cron` has `{range}` in the field of {field}, which ends before it begins; write two \
         ranges with a comma between them"
    )]
    Range {
        /// The range.
        range: String,
        /// The plural name of the field.
        field: &'static str,
    },
    /// A step of 0, beyond the field or without a range.
    #[error(
        "`cron` has `{step}` in the field of {field}; a step is 1 to {max}, after `*` or a range, \
         such as `*/2` (longer intervals: `everyMs`)"
    )]
    Step {
        /// The element of the field.
        step: String,
        /// The plural name of the field.
        field: &'static str,
        /// The greatest step.
        max: u8,
    },
    /// Dates that no calendar has.
    #[error("`cron` never fires: no month of the pattern has such a day; change the day or month")]
    NeverFires,
}

/// A field of a pattern.
struct Field {
    /// Its plural name.
    name: &'static str,
    min: u8,
    max: u8,
    /// The greatest value that may be written: 7 for Sunday, otherwise `max`.
    written_max: u8,
    /// Names of the values from `min`.
    names: &'static [&'static str],
    /// The sentence that lists the values.
    allowed: &'static str,
}

const MINUTES: Field = Field {
    name: "minutes",
    min: 0,
    max: 59,
    written_max: 59,
    names: &[],
    allowed: "a minute is 0 to 59, or `*` for each",
};
const HOURS: Field = Field {
    name: "hours",
    min: 0,
    max: 23,
    written_max: 23,
    names: &[],
    allowed: "an hour is 0 to 23, or `*` for each",
};
const DAYS: Field = Field {
    name: "days of the month",
    min: 1,
    max: 31,
    written_max: 31,
    names: &[],
    allowed: "a day is 1 to 31, `L` for the last day of the month, or `*` for each",
};
const MONTHS: Field = Field {
    name: "months",
    min: 1,
    max: 12,
    written_max: 12,
    names: &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
    allowed: "a month is 1 to 12, JAN to DEC, or `*` for each",
};
const WEEKDAYS: Field = Field {
    name: "days of the week",
    min: 0,
    max: 6,
    written_max: 7,
    names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
    allowed: "a day is 0 to 7 with Sunday as 0 and 7, SUN to SAT, or `*` for each",
};

/// The values of one field.
#[derive(Clone, Copy)]
struct Values {
    bits: u64,
    /// Whether the field begins with `*`.
    has_star: bool,
    has_step: bool,
}

impl Values {
    fn is_wildcard(self) -> bool {
        self.has_star || self.has_step
    }
}

impl Field {
    fn parse(&self, text: &str) -> Result<Values, InvalidPattern> {
        let mut values =
            Values { bits: 0, has_star: text.starts_with('*'), has_step: text.contains('/') };
        for element in text.split(',') {
            values.bits |= self.element(element)?;
        }
        if self.written_max > self.max {
            let sunday = values.bits >> self.written_max & 1;
            values.bits = (values.bits | sunday) & (u64::MAX >> (63 - self.max));
        }
        Ok(values)
    }

    fn element(&self, element: &str) -> Result<u64, InvalidPattern> {
        if self.name == DAYS.name && element.eq_ignore_ascii_case("L") {
            return Ok(LAST_DAY);
        }
        let (range, step) = match element.split_once('/') {
            Some((range, step)) => (range, self.step(element, range, step)?),
            None => (element, 1),
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (self.min, self.max),
            Some((first, last)) => (self.value(first)?, self.value(last)?),
            None => {
                let value = self.value(range)?;
                (value, value)
            }
        };
        // Sunday ends a week as well as it begins one: FRI-SUN.
        let is_sunday_last = self.written_max > self.max && last == self.min && first > last;
        let last = if is_sunday_last { self.written_max } else { last };
        if first > last {
            return Err(InvalidPattern::Range { range: range.to_owned(), field: self.name });
        }
        Ok((first..=last).step_by(step.into()).fold(0, |bits, value| bits | 1 << value))
    }

    fn value(&self, text: &str) -> Result<u8, InvalidPattern> {
        let by_name = || {
            let at = self.names.iter().position(|name| name.eq_ignore_ascii_case(text))?;
            Some(self.min + u8::try_from(at).ok()?)
        };
        number(text)
            .filter(|value| (self.min..=self.written_max).contains(value))
            .or_else(by_name)
            .ok_or_else(|| InvalidPattern::Value {
                value: text.to_owned(),
                field: self.name,
                allowed: self.allowed,
            })
    }

    fn step(&self, element: &str, range: &str, step: &str) -> Result<u8, InvalidPattern> {
        let max = self.max - self.min;
        number(step)
            .filter(|step| (1..=max).contains(step))
            .filter(|_| range == "*" || range.contains('-'))
            .ok_or_else(|| InvalidPattern::Step { step: element.to_owned(), field: self.name, max })
    }
}

/// A number in decimal digits without a sign.
fn number(text: &str) -> Option<u8> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl Pattern {
    /// Reads a pattern of five fields or one of the names.
    pub(super) fn parse(text: &str) -> Result<Self, InvalidPattern> {
        if text.len() > CRON_BYTES_MAX {
            return Err(InvalidPattern::TooLong);
        }
        let text = text.trim_ascii();
        let text = if text.starts_with('@') { named(text)? } else { text };
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let &[minutes, hours, days, months, weekdays] = fields.as_slice() else {
            return Err(match fields.len() {
                6 => InvalidPattern::Seconds,
                count => InvalidPattern::FieldCount(count),
            });
        };
        let (minutes, hours) = (MINUTES.parse(minutes)?, HOURS.parse(hours)?);
        let (days, months) = (DAYS.parse(days)?, MONTHS.parse(months)?);
        let weekdays = WEEKDAYS.parse(weekdays)?;
        let is_every_hour = hours.bits.count_ones() == 24;
        let has_wildcards = minutes.is_wildcard() && hours.is_wildcard();
        let pattern = Self {
            minutes: minutes.bits,
            hours: hours.bits,
            days: days.bits,
            months: months.bits,
            weekdays: weekdays.bits,
            is_either_day: !days.has_star && !weekdays.has_star,
            // A pattern with a single hour would lose its whole day in a gap.
            is_by_instants: is_every_hour || (has_wildcards && hours.bits.count_ones() > 1),
        };
        // Any year that is no leap year is a start that finds every date.
        match pattern.next(DateTime::constant(1970, 1, 1, 0, 0, 0, 0)) {
            Some(_) => Ok(pattern),
            None => Err(InvalidPattern::NeverFires),
        }
    }

    /// The first time of the pattern at `from` or later, by a clock that is never changed. `None`:
    /// after the end of the calendar.
    pub(super) fn next(&self, from: DateTime) -> Option<DateTime> {
        let from = whole_minute(from)?;
        let mut month = from.date().first_of_month();
        let days = self.days_of(month);
        if days >> from.day() & 1 == 1
            && let Some(time) = self.time_from(from.time())
        {
            return Some(from.date().to_datetime(time));
        }
        let mut later_days = days & u64::MAX << (from.day() + 1);
        for _ in 0..MONTHS_MAX {
            if later_days != 0 {
                let day = i8::try_from(later_days.trailing_zeros()).ok()?;
                let date = Date::new(month.year(), month.month(), day).ok()?;
                return Some(date.to_datetime(self.time_from(Time::midnight())?));
            }
            month = month.checked_add(1.month()).ok()?;
            later_days = self.days_of(month);
        }
        None
    }

    /// The days of the pattern in the month that begins with this date.
    fn days_of(&self, first: Date) -> u64 {
        if self.months >> first.month() & 1 == 0 {
            return 0;
        }
        let length = first.days_in_month();
        let last_day = if self.days & LAST_DAY == 0 { 0 } else { 1 << length };
        let by_date = self.days & !LAST_DAY | last_day;
        // The week six times in a row, shifted so that bit 1 is the weekday of the first day.
        let weeks = (0..6).fold(0, |bits, week| bits | self.weekdays << (week * 7));
        let by_week = weeks >> first.weekday().to_sunday_zero_offset() << 1;
        let days = if self.is_either_day { by_date | by_week } else { by_date & by_week };
        days & ((1 << (length + 1)) - 1) & !LAST_DAY
    }

    /// The first time of a day at `from` or later.
    fn time_from(&self, from: Time) -> Option<Time> {
        let hour = from.hour();
        let in_hour = self.minutes & u64::MAX << from.minute();
        let (hour, minutes) = if self.hours >> hour & 1 == 1 && in_hour != 0 {
            (u32::try_from(hour).ok()?, in_hour)
        } else {
            let later = self.hours & u64::MAX << (hour + 1);
            ((later != 0).then_some(later.trailing_zeros())?, self.minutes)
        };
        let minute = i8::try_from(minutes.trailing_zeros()).ok()?;
        Time::new(i8::try_from(hour).ok()?, minute, 0, 0).ok()
    }
}

/// The pattern with this name.
fn named(name: &str) -> Result<&'static str, InvalidPattern> {
    Ok(match name.to_ascii_lowercase().as_str() {
        "@hourly" => "0 * * * *",
        "@daily" => "0 0 * * *",
        "@weekly" => "0 0 * * SUN",
        "@monthly" => "0 0 1 * *",
        "@yearly" => "0 0 1 JAN *",
        _ => return Err(InvalidPattern::Name(name.to_owned())),
    })
}

/// The first whole minute at `from` or later.
fn whole_minute(from: DateTime) -> Option<DateTime> {
    let time = from.time();
    let minute = from.date().to_datetime(Time::new(time.hour(), time.minute(), 0, 0).ok()?);
    if minute == from { Some(from) } else { minute.checked_add(SignedDuration::from_mins(1)).ok() }
}

#[cfg(test)]
#[path = "pattern_tests.rs"]
mod tests;
