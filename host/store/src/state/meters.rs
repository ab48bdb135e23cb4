//! The usage of the current hour, as it is on disk, and the usage that the next batch adds to it.
//!
//! A frame of the journal has the new sums of all rows that its results add to. They are absolute,
//! so the sums so far must be in memory: those of the current [`Period`]. A period never repeats.
//! It ends with its hour, with the process, or when the clock is set back to an earlier hour. The
//! same hour can have several periods, and its usage is the sum of theirs. Opening the store
//! therefore reads no sums back, and no change of the clock can restart an existing row at zero.
//!
//! The database's thread writes the rows to the table ([`usage_rows`](crate::tables::usage)) when a
//! caller reads the usage, and at the latest when a period has ended; the rows of an ended period
//! are then removed from here.
//!
//! **Bounds.** A row, of about 250 bytes, for each endpoint, template and owner that had results in
//! this hour, and for a short time those of the previous one. An owner has at most two times
//! [`OWNER_ROWS_MAX`] rows and one more in a period: the usage of further endpoints counts under
//! [`OTHERS`].

use std::collections::{BTreeMap, HashMap};

use gristmill_core::billing::usage::{Hour, OWNER_ROWS_MAX, UsageSum};
use gristmill_core::id::{EndpointId, OTHERS, OwnerId, TemplateId};
use gristmill_core::time::Timestamp;

use crate::format::image::UsageImage;
use crate::state::newest_usage::NewestUsage;

/// An hour, or a part of it, in which one process has added to the same rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Period {
    pub(crate) hour: Hour,
    /// Grows with each start of the store, and whenever the clock is set back.
    pub(crate) run: u32,
}

/// The key of a row of usage.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MeterKey {
    pub(crate) endpoint: EndpointId,
    pub(crate) template: TemplateId,
    pub(crate) owner: OwnerId,
}

/// The new state of a row on disk.
#[derive(Debug, Clone)]
pub(crate) struct UsageWrite {
    pub(crate) period: Period,
    pub(crate) key: MeterKey,
    pub(crate) sum: UsageSum,
    /// The part of the sum that this write adds to the row.
    added: UsageSum,
}

#[derive(Debug)]
struct Meter {
    sum: UsageSum,
    /// Whether the table has this state.
    is_stored: bool,
}

/// The rows of the current period, and those that are not in the table yet.
#[derive(Debug)]
pub(crate) struct Meters {
    /// The period of the newest batch with usage.
    period: Period,
    rows: BTreeMap<(Period, MeterKey), Meter>,
    /// The number of each owner's rows in the period.
    owner_rows: HashMap<OwnerId, usize>,
    /// For each owner, with the endpoints' own ids.
    owner_rows_max: usize,
    /// The usage of the newest hours by template.
    pub(crate) newest: NewestUsage,
    /// Whether the database's thread has been asked to write the rows, and has not done so yet.
    is_asked: bool,
}

/// The usage of one job that the next batch bills. Almost always that is one attempt.
#[derive(Debug, Default)]
pub(crate) struct Bills {
    last: Option<(TemplateId, UsageSum)>,
    /// The usage of earlier attempts that ran with other templates.
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

impl Default for Meters {
    fn default() -> Self {
        Self {
            period: Period::default(),
            rows: BTreeMap::new(),
            owner_rows: HashMap::new(),
            owner_rows_max: OWNER_ROWS_MAX,
            newest: NewestUsage::default(),
            is_asked: false,
        }
    }
}

impl Meters {
    /// Continues after the runs that are on disk.
    pub(crate) fn begin_after(&mut self, run: u32) {
        self.period.run = run.saturating_add(1);
    }

    /// The new rows, if a batch adds `used` to them now. There is one batch at a time.
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
        if hour != self.period.hour {
            self.owner_rows.clear();
        }
        self.period.hour = hour;
        let period = self.period;
        let mut bounded = BTreeMap::<MeterKey, UsageSum>::new();
        for (key, sum) in used {
            let key = self.row_of(key, &bounded);
            bounded.entry(key).or_default().add(&sum);
        }
        let absolute = bounded.into_iter().map(|(key, added)| {
            let (meter_key, mut sum) = ((period, key), added);
            if let Some(before) = self.rows.get(&meter_key) {
                sum.add(&before.sum);
            }
            UsageWrite { period, key: meter_key.1, sum, added }
        });
        absolute.collect()
    }

    /// The row of the present period in which usage counts, beside the `new` rows of this batch:
    /// its own row, or a common one when its owner has too many. A new row is counted.
    fn row_of(&mut self, mut key: MeterKey, new: &BTreeMap<MeterKey, UsageSum>) -> MeterKey {
        loop {
            let meter_key = (self.period, key);
            let is_known = new.contains_key(&meter_key.1) || self.rows.contains_key(&meter_key);
            key = meter_key.1;
            if is_known {
                return key;
            }
            let is_common = key.endpoint.as_str() == OTHERS;
            let rows_max = self.owner_rows_max * if is_common { 2 } else { 1 };
            let rows = self.owner_rows.entry(key.owner.clone()).or_default();
            if *rows < rows_max {
                *rows += 1;
                return key;
            }
            if is_common {
                return MeterKey { template: TemplateId::others(), ..key };
            }
            key.endpoint = EndpointId::others();
        }
    }

    /// Adds the usage that a batch has written. Returns whether the database's thread must write
    /// rows, because some belong to an ended period.
    pub(crate) fn publish(&mut self, writes: Vec<UsageWrite>) -> bool {
        for UsageWrite { period, key, sum, added } in writes {
            self.newest.add(period.hour, &key.template, &key.owner, &added);
            self.rows.insert((period, key), Meter { sum, is_stored: false });
        }
        let ends = [self.rows.first_key_value(), self.rows.last_key_value()];
        let is_over = ends.into_iter().flatten().any(|((period, _), _)| *period != self.period);
        is_over && !std::mem::replace(&mut self.is_asked, true)
    }

    /// The rows whose present state is not in the table.
    pub(crate) fn unstored(&self) -> Vec<UsageWrite> {
        let rows = self.rows.iter().filter(|(_, meter)| !meter.is_stored);
        rows.map(|((period, key), meter)| UsageWrite {
            period: *period,
            key: key.clone(),
            sum: meter.sum,
            added: UsageSum::default(),
        })
        .collect()
    }

    /// Marks these rows as written to the table. Rows of ended periods are removed, since nothing
    /// is added to them any more.
    pub(crate) fn stored(&mut self, rows: Vec<UsageWrite>) {
        for UsageWrite { period, key, sum, .. } in rows {
            let meter_key = (period, key);
            // A batch that was composed in the period before may have been published during the
            // write.
            if let Some(meter) = self.rows.get_mut(&meter_key) {
                meter.is_stored = meter.sum == sum;
            }
        }
        let current = self.period;
        self.rows.retain(|(period, _), meter| *period == current || !meter.is_stored);
        self.is_asked = false;
    }
}

impl UsageWrite {
    /// The row as it is written.
    pub(crate) fn image(&self) -> UsageImage<'_> {
        let Self { period, key, sum, .. } = self;
        UsageImage {
            endpoint: key.endpoint.as_str(),
            template: key.template.as_str(),
            owner: key.owner.as_str(),
            hour: period.hour.0,
            run: period.run,
            sum: sum.to_numbers(),
        }
    }
}

#[cfg(test)]
#[path = "meters_tests.rs"]
mod tests;
