//! What was used in the current hour, as it is on disk, and what the next batch adds to it.
//!
//! A frame of the journal has the new sums of all rows that its results add to. They are absolute,
//! so the sums so far must be here: those of the current [`Period`]. A period never comes again. It
//! ends with its hour, with the process, or when the clock is set back to an earlier hour; the same
//! hour can have several of them, and its usage is the sum of theirs. So nothing has to be read back
//! when the store is opened, and no clock can make a row that exists begin from zero again.
//!
//! The database's thread takes the rows over ([`usage_rows`](crate::usage_rows)) when somebody asks
//! for usage, and at the latest when a period has ended, which takes its rows out of here.
//!
//! **Bounds.** A row, of about 250 bytes, for each endpoint, template and owner that had results in
//! this hour, and for a moment those of the last one.

use std::collections::BTreeMap;

use gristmill_core::id::{EndpointId, OwnerId, TemplateId};
use gristmill_core::time::Timestamp;
use gristmill_core::usage::{Hour, UsageSum};

/// An hour, or a part of one, in which one process has added to the same rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Period {
    pub(crate) hour: Hour,
    /// Grows with each start of the store, and whenever the clock is set back.
    pub(crate) run: u32,
}

/// Whose usage.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MeterKey {
    pub(crate) endpoint: EndpointId,
    pub(crate) template: TemplateId,
    pub(crate) owner: OwnerId,
}

/// A row as it will be, or is, on disk.
#[derive(Debug, Clone)]
pub(crate) struct UsageWrite {
    pub(crate) period: Period,
    pub(crate) key: MeterKey,
    pub(crate) sum: UsageSum,
}

#[derive(Debug)]
struct Meter {
    sum: UsageSum,
    /// Whether the table has it.
    is_stored: bool,
}

/// The rows of the current period, and those that the database has not taken over.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    /// That of the newest batch with usage.
    period: Period,
    rows: BTreeMap<(Period, MeterKey), Meter>,
    /// Whether the database was asked to take the rows over, and has not yet.
    is_asked: bool,
}

/// What of one job the next batch bills. Almost always that is one attempt.
#[derive(Debug, Default)]
pub(crate) struct Bills {
    last: Option<(TemplateId, UsageSum)>,
    /// Those of attempts before it that ran with other templates.
    earlier: Vec<(TemplateId, UsageSum)>,
}

impl Bills {
    pub(crate) fn add(&mut self, template: TemplateId, used: &UsageSum) {
        match &mut self.last {
            Some((last, sum)) if *last == template => sum.add(used),
            last => self.earlier.extend(last.replace((template, *used))),
        }
    }

    pub(crate) fn into_iter(self) -> impl Iterator<Item = (TemplateId, UsageSum)> {
        self.earlier.into_iter().chain(self.last)
    }
}

impl Meters {
    /// Begins behind the runs that are on disk.
    pub(crate) fn begin_after(&mut self, run: u32) {
        self.period.run = run.saturating_add(1);
    }

    /// The rows as they will be when a batch adds `used` to them now. There is one batch at a time.
    pub(crate) fn with(
        &mut self,
        used: BTreeMap<MeterKey, UsageSum>,
        now: Timestamp,
    ) -> Vec<UsageWrite> {
        if used.is_empty() {
            return Vec::new();
        }
        let hour = Hour::of(now);
        if hour < self.period.hour {
            self.period.run = self.period.run.saturating_add(1);
        }
        self.period.hour = hour;
        let period = self.period;
        let absolute = used.into_iter().map(|(key, mut sum)| {
            let place = (period, key);
            if let Some(before) = self.rows.get(&place) {
                sum.add(&before.sum);
            }
            UsageWrite { period, key: place.1, sum }
        });
        absolute.collect()
    }

    /// Takes in what a batch has brought to the disk. Answers whether the database is to be asked to
    /// take the rows over, because there are some of a period that is over.
    pub(crate) fn publish(&mut self, writes: Vec<UsageWrite>) -> bool {
        for UsageWrite { period, key, sum } in writes {
            self.rows.insert((period, key), Meter { sum, is_stored: false });
        }
        let ends = [self.rows.first_key_value(), self.rows.last_key_value()];
        let is_over = ends.into_iter().flatten().any(|((period, _), _)| *period != self.period);
        is_over && !std::mem::replace(&mut self.is_asked, true)
    }

    /// The rows that the table does not have as they are.
    pub(crate) fn unstored(&self) -> Vec<UsageWrite> {
        let rows = self.rows.iter().filter(|(_, meter)| !meter.is_stored);
        rows.map(|((period, key), meter)| UsageWrite {
            period: *period,
            key: key.clone(),
            sum: meter.sum,
        })
        .collect()
    }

    /// The table has these rows now. Those of periods that are over go: nothing is added to them
    /// any more.
    pub(crate) fn stored(&mut self, rows: Vec<UsageWrite>) {
        for UsageWrite { period, key, sum } in rows {
            let place = (period, key);
            if period != self.period {
                self.rows.remove(&place);
            } else if let Some(meter) = self.rows.get_mut(&place) {
                meter.is_stored = meter.sum == sum;
            }
        }
        let current = self.period;
        self.rows.retain(|(period, _), meter| *period == current || !meter.is_stored);
        self.is_asked = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> MeterKey {
        MeterKey {
            endpoint: EndpointId::new("e").unwrap(),
            template: TemplateId::new("t").unwrap(),
            owner: OwnerId::new("o").unwrap(),
        }
    }

    fn jobs(jobs: u64) -> UsageSum {
        UsageSum { jobs, ..UsageSum::default() }
    }

    fn batch(meters: &mut Meters, jobs: u64, hour: u32) -> (UsageWrite, bool) {
        let used = BTreeMap::from([(key(), self::jobs(jobs))]);
        let mut writes = meters.with(used, Hour(hour).start());
        let write = writes.pop().unwrap();
        let has_ended = meters.publish(vec![write.clone()]);
        (write, has_ended)
    }

    #[test]
    fn a_row_grows_within_its_period_and_no_period_comes_again() {
        let mut meters = Meters::default();
        meters.begin_after(4);
        let seen = [(1, 10), (2, 10), (3, 11), (4, 10), (5, 10)].map(|(jobs, hour)| {
            let (write, has_ended) = batch(&mut meters, jobs, hour);
            (write.period.hour.0, write.period.run, write.sum.jobs, has_ended)
        });
        let expected = [
            (10, 5, 1, false),
            (10, 5, 3, false),
            (11, 5, 3, true),
            (10, 6, 4, false),
            (10, 6, 9, false),
        ];
        assert_eq!(seen, expected);
        let unstored = meters.unstored();
        assert_eq!(unstored.iter().map(|row| row.sum.jobs).sum::<u64>(), 15);
        batch(&mut meters, 1, 10);
        meters.stored(unstored);
        assert_eq!(meters.unstored().len(), 1, "what came meanwhile is not there yet");
        assert_eq!(meters.rows.len(), 1, "of the current period alone");
        assert!(!batch(&mut meters, 1, 10).1);
    }

    #[test]
    fn two_attempts_of_one_job_are_billed_each_with_its_template() {
        let template = |name| TemplateId::new(name).unwrap();
        let mut bills = Bills::default();
        for name in ["a", "a", "b", "a"] {
            bills.add(template(name), &jobs(1));
        }
        let all: Vec<_> =
            bills.into_iter().map(|(name, sum)| (name.to_string(), sum.jobs)).collect();
        assert_eq!(all, [("a".to_owned(), 2), ("b".to_owned(), 1), ("a".to_owned(), 1)]);
    }
}
