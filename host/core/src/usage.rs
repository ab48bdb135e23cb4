//! What attempts have used, summed up for whoever pays: by endpoint, template, owner and hour.
//!
//! **What counts.** Each attempt that leaves a result, whatever that is: COMPLETED, FAILED or
//! TIMED_OUT. It counts in the hour in which the store takes the result in, and is on disk together
//! with it: after a crash the sums are those of the results that are there. An attempt whose job was
//! cancelled, or deleted, while it ran has no result and counts once it has been stopped; a crash
//! before that takes it off the bill. What a crash or a drain broke off runs again, and only that
//! counts.
//!
//! **Bounds.** Sums stop at the greatest number instead of running over. A row is kept for
//! [`KEPT_HOURS`], whatever becomes of its endpoint.

use std::ops::Range;

use async_trait::async_trait;

use crate::id::{EndpointId, OwnerId, TemplateId};
use crate::runtime::Usage;
use crate::store::StoreError;
use crate::time::Timestamp;

/// How many hours usage is kept: 400 days, so that a month can be compared with the one a year ago.
pub const KEPT_HOURS: u32 = 400 * 24;

const MS_PER_HOUR: u64 = 3_600_000;

/// An hour, counted from the Unix epoch: all of them begin at a full hour of UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hour(pub u32);

impl Hour {
    /// The hour that the time lies in; the last one for a time beyond all hours.
    pub fn of(at: Timestamp) -> Self {
        Self(u32::try_from(at.as_millis() / MS_PER_HOUR).unwrap_or(u32::MAX))
    }

    /// When it begins.
    pub fn start(self) -> Timestamp {
        Timestamp::from_millis(u64::from(self.0) * MS_PER_HOUR)
    }

    /// The first hour of which usage is still kept in this one.
    #[must_use]
    pub fn first_kept(self) -> Self {
        Self(self.0.saturating_sub(KEPT_HOURS))
    }
}

/// What is known of an attempt's usage when it has ended, but for its time, which the store knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metered {
    /// The template that it ran with.
    pub template: TemplateId,
    /// Microseconds in which the handler held a processor.
    pub cpu_us: u64,
    /// Fuel used; 0 without fuel metering.
    pub fuel: u64,
    /// Greatest sum of all its memories, in bytes.
    pub memory_bytes_peak: u64,
    /// Bytes of the input.
    pub bytes_in: u64,
    /// Bytes of the output and of the chunks.
    pub bytes_out: u64,
    /// Chunks emitted.
    pub chunks: u64,
}

impl Metered {
    /// What the sandbox reports, with the bytes that went in and out.
    pub fn new(template: TemplateId, usage: &Usage, bytes_in: u64, bytes_out: u64) -> Self {
        Self {
            template,
            cpu_us: usage.cpu_us,
            fuel: usage.fuel.unwrap_or(0),
            memory_bytes_peak: usage.memory_bytes_peak,
            bytes_in,
            bytes_out,
            chunks: usage.chunks,
        }
    }

    /// The sum that this one attempt makes, when it ran for `wall_ms`.
    pub fn over(&self, wall_ms: u64) -> UsageSum {
        let mib = self.memory_bytes_peak.div_ceil(1 << 20);
        UsageSum {
            jobs: 1,
            wall_ms,
            cpu_us: self.cpu_us,
            fuel: self.fuel,
            memory_bytes_peak: self.memory_bytes_peak,
            memory_mib_ms: mib.saturating_mul(wall_ms),
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            chunks: self.chunks,
        }
    }
}

/// An attempt that left no result: its job was cancelled, or deleted, while it ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bill {
    /// The job's endpoint.
    pub endpoint: EndpointId,
    /// Who submitted the job.
    pub owner: OwnerId,
    /// Milliseconds from the claim to the attempt's end.
    pub wall_ms: u64,
    /// What else it used.
    pub metered: Metered,
}

/// What some attempts used together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageSum {
    /// How many they are. A job that was retried counts with each of its attempts.
    pub jobs: u64,
    /// Their `executionTime`, in milliseconds.
    pub wall_ms: u64,
    /// Microseconds in which their handlers held a processor.
    pub cpu_us: u64,
    /// Fuel used.
    pub fuel: u64,
    /// The greatest memory of one of them, in bytes.
    pub memory_bytes_peak: u64,
    /// The sum, over the attempts, of greatest memory in whole MiB, rounded up, times time in
    /// milliseconds.
    pub memory_mib_ms: u64,
    /// Bytes of inputs.
    pub bytes_in: u64,
    /// Bytes of outputs and chunks.
    pub bytes_out: u64,
    /// Chunks emitted.
    pub chunks: u64,
}

impl UsageSum {
    /// Adds what others used.
    pub fn add(&mut self, more: &Self) {
        let sum = |a: &mut u64, b: u64| *a = a.saturating_add(b);
        sum(&mut self.jobs, more.jobs);
        sum(&mut self.wall_ms, more.wall_ms);
        sum(&mut self.cpu_us, more.cpu_us);
        sum(&mut self.fuel, more.fuel);
        self.memory_bytes_peak = self.memory_bytes_peak.max(more.memory_bytes_peak);
        sum(&mut self.memory_mib_ms, more.memory_mib_ms);
        sum(&mut self.bytes_in, more.bytes_in);
        sum(&mut self.bytes_out, more.bytes_out);
        sum(&mut self.chunks, more.chunks);
    }
}

/// Whose usage, and when. The order is that in which rows are read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsageKey {
    /// When.
    pub hour: Hour,
    /// On which endpoint.
    pub endpoint: EndpointId,
    /// With which template.
    pub template: TemplateId,
    /// Who submitted the jobs.
    pub owner: OwnerId,
}

/// What was used in one hour on one endpoint with one template for one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRow {
    /// Whose and when.
    pub key: UsageKey,
    /// How much.
    pub sum: UsageSum,
}

/// Whose rows; by default everybody's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageFilter {
    /// Only those of one endpoint.
    pub endpoint: Option<EndpointId>,
    /// Only those of one template.
    pub template: Option<TemplateId>,
    /// Only those of one owner.
    pub owner: Option<OwnerId>,
}

/// Which rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageQuery {
    /// Those of these hours.
    pub hours: Range<Hour>,
    /// Whose.
    pub filter: UsageFilter,
    /// Only those after this one.
    pub after: Option<UsageKey>,
    /// At most so many.
    pub rows_max: usize,
}

impl UsageQuery {
    /// The first `rows_max` rows of all hours.
    pub fn of_all_hours(filter: UsageFilter, rows_max: usize) -> Self {
        Self { hours: Hour::default()..Hour(u32::MAX), filter, after: None, rows_max }
    }

    /// Whether the query wants a row.
    pub fn wants(&self, key: &UsageKey) -> bool {
        let UsageFilter { endpoint, template, owner } = &self.filter;
        self.hours.contains(&key.hour)
            && endpoint.as_ref().is_none_or(|endpoint| *endpoint == key.endpoint)
            && template.as_ref().is_none_or(|template| *template == key.template)
            && owner.as_ref().is_none_or(|owner| *owner == key.owner)
            && self.after.as_ref().is_none_or(|after| after < key)
    }
}

/// Keeps what was used.
#[async_trait]
pub trait UsageStore: Send + Sync + std::fmt::Debug {
    /// The rows, in their order. What they say is on disk. Rows beyond [`KEPT_HOURS`] are not shown.
    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageRow>, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_add_up_and_the_peak_is_the_greatest() {
        let metered = Metered {
            template: TemplateId::new("t").unwrap(),
            cpu_us: 7,
            fuel: 100,
            memory_bytes_peak: (2 << 20) + 1,
            bytes_in: 3,
            bytes_out: 4,
            chunks: 1,
        };
        let mut sum = metered.over(10);
        assert_eq!(sum.memory_mib_ms, 30, "a part of a MiB counts as one");
        let smaller = Metered { memory_bytes_peak: 1 << 20, ..metered };
        sum.add(&smaller.over(5));
        let expected = UsageSum {
            jobs: 2,
            wall_ms: 15,
            cpu_us: 14,
            fuel: 200,
            memory_bytes_peak: (2 << 20) + 1,
            memory_mib_ms: 35,
            bytes_in: 6,
            bytes_out: 8,
            chunks: 2,
        };
        assert_eq!(sum, expected);
        sum.add(&UsageSum { fuel: u64::MAX, ..UsageSum::default() });
        assert_eq!(sum.fuel, u64::MAX);
    }

    #[test]
    fn hours_begin_at_full_hours() {
        let hour = Hour::of(Timestamp::from_millis(1_700_000_000_000));
        assert_eq!(hour, Hour(472_222));
        assert_eq!(hour.start().as_millis() % MS_PER_HOUR, 0);
        assert_eq!(Hour::of(hour.start()), hour);
        assert_eq!(Hour::of(Timestamp::from_millis(hour.start().as_millis() - 1)), Hour(472_221));
        assert_eq!(Hour::of(Timestamp::NEVER), Hour(u32::MAX));
    }
}
