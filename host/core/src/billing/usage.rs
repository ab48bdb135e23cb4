//! The usage of attempts, summed for billing: by endpoint, template, owner and hour.
//!
//! **What counts.** Each attempt with a result counts: COMPLETED, FAILED or TIMED_OUT. It counts in
//! the hour in which the store accepts the result, and is on disk together with it, so after a
//! crash the sums match the stored results. An attempt whose job was cancelled or deleted while it
//! ran has no result, and counts once it has been stopped; it does not count if the host crashes
//! before that. An attempt that a crash or a drain interrupted does not count; the job's next
//! attempt does.
//!
//! An attempt at an HTTP request counts like one with a result, also when its client has left, for
//! the owner of the endpoint. It has no record on the disk: sums are written each second, count in
//! the hour of their write, and are lost when the host crashes before that.
//!
//! **Bounds.** Sums saturate at the greatest number. A row is kept for [`KEPT_HOURS`], even if its
//! endpoint is deleted. An owner has [`OWNER_ROWS_MAX`] rows for an hour. Further endpoints count
//! together as endpoint [`OTHERS`](crate::id::OTHERS), by template while there are as many rows
//! again, and then as template [`OTHERS`](crate::id::OTHERS) too.

use std::ops::Range;

use async_trait::async_trait;

use crate::id::{EndpointId, OwnerId, TemplateId};
use crate::store_error::StoreError;
use crate::time::Timestamp;

/// How many hours usage is kept: 400 days, so that a month can be compared with the same month a
/// year ago.
pub const KEPT_HOURS: u32 = 400 * 24;

/// Most rows of one owner for an hour with the ids of endpoints. After as many further rows of the
/// endpoint [`OTHERS`](crate::id::OTHERS), one row has the rest.
pub const OWNER_ROWS_MAX: usize = 10_000;

/// Hours before the present one whose usage [`UsageStore::newest_of_template`] has.
pub const NEWEST_HOURS: u32 = 2;

const MS_PER_HOUR: u64 = 3_600_000;

/// An hour, counted from the Unix epoch; each begins at a full hour of UTC.
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

    /// The oldest hour whose usage is still kept in this hour.
    #[must_use]
    pub fn first_kept(self) -> Self {
        Self(self.0.saturating_sub(KEPT_HOURS))
    }
}

/// The usage of an attempt at its end, except its time, which the store knows.
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
    /// Bytes of the bodies of its requests and of their answers.
    pub egress_bytes: u64,
}

impl Metered {
    /// The sum of this one attempt, if it ran for `wall_ms`.
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

/// The usage of one job: the sum of its attempts with a result, and of the attempt that a cancel
/// stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobUsage {
    /// The quantities that have a price.
    pub billed: UsageSum,
    /// Bytes of the bodies of its requests and of their answers.
    pub egress_bytes: u64,
}

impl JobUsage {
    /// The usage of one attempt that ran for `wall_ms`.
    pub fn of(metered: &Metered, wall_ms: u64) -> Self {
        Self { billed: metered.over(wall_ms), egress_bytes: metered.egress_bytes }
    }

    /// Adds that of a further attempt.
    pub fn add(&mut self, more: &Self) {
        self.billed.add(&more.billed);
        self.egress_bytes = self.egress_bytes.saturating_add(more.egress_bytes);
    }
}

/// Usage that no result brings to the store: that of an attempt whose job was cancelled or deleted
/// while it ran, or a sum over HTTP requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bill {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The template.
    pub template: TemplateId,
    /// The owner who is billed.
    pub owner: OwnerId,
    /// The usage.
    pub used: JobUsage,
}

/// The summed usage of some attempts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageSum {
    /// Number of attempts. A retried job counts with each of its attempts.
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
    /// Its numbers in the order of the fields, as stores write them.
    pub fn to_numbers(&self) -> [u64; 9] {
        let Self { jobs, wall_ms, cpu_us, fuel, memory_bytes_peak, memory_mib_ms, .. } = *self;
        let Self { bytes_in, bytes_out, chunks, .. } = *self;
        let memory = [memory_bytes_peak, memory_mib_ms];
        [jobs, wall_ms, cpu_us, fuel, memory[0], memory[1], bytes_in, bytes_out, chunks]
    }

    /// The inverse of [`to_numbers`](Self::to_numbers).
    pub fn from_numbers(
        [
            jobs,
            wall_ms,
            cpu_us,
            fuel,
            memory_bytes_peak,
            memory_mib_ms,
            bytes_in,
            bytes_out,
            chunks,
        ]: [u64; 9],
    ) -> Self {
        Self {
            jobs,
            wall_ms,
            cpu_us,
            fuel,
            memory_bytes_peak,
            memory_mib_ms,
            bytes_in,
            bytes_out,
            chunks,
        }
    }

    /// Adds another sum.
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

/// The key of a row. The order is that of reading.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsageKey {
    /// The hour.
    pub hour: Hour,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The template.
    pub template: TemplateId,
    /// The owner of the keys that submitted the jobs.
    pub owner: OwnerId,
}

/// The usage of one hour, endpoint, template and owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRow {
    /// The key.
    pub key: UsageKey,
    /// The sum.
    pub sum: UsageSum,
}

/// Selects rows; by default all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageFilter {
    /// Only rows of this endpoint.
    pub endpoint: Option<EndpointId>,
    /// Only rows of this template.
    pub template: Option<TemplateId>,
    /// Only rows of this owner.
    pub owner: Option<OwnerId>,
}

/// A query for rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageQuery {
    /// Only rows of these hours.
    pub hours: Range<Hour>,
    /// The filter.
    pub filter: UsageFilter,
    /// Only rows after this one.
    pub after: Option<UsageKey>,
    /// At most this many.
    pub rows_max: usize,
}

impl UsageQuery {
    /// Whether a row matches the query.
    pub fn matches(&self, key: &UsageKey) -> bool {
        let UsageFilter { endpoint, template, owner } = &self.filter;
        self.hours.contains(&key.hour)
            && endpoint.as_ref().is_none_or(|endpoint| *endpoint == key.endpoint)
            && template.as_ref().is_none_or(|template| *template == key.template)
            && owner.as_ref().is_none_or(|owner| *owner == key.owner)
            && self.after.as_ref().is_none_or(|after| after < key)
    }
}

/// Keeps usage.
#[async_trait]
pub trait UsageStore: Send + Sync + std::fmt::Debug {
    /// The rows, in their order. Their values are on disk. Rows older than [`KEPT_HOURS`] are not
    /// shown.
    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageRow>, StoreError>;

    /// The usage of a template in these hours, by owner; an owner may come several times. Its
    /// values are on disk. It is read from memory, which has the present hour and [`NEWEST_HOURS`]
    /// before it. Empty when the store is closed.
    fn newest_of_template(
        &self,
        template: &TemplateId,
        hours: &Range<Hour>,
    ) -> Vec<(OwnerId, UsageSum)>;
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
            egress_bytes: 5,
        };
        let mut of_job = JobUsage::of(&metered, 10);
        of_job.add(&JobUsage::of(&metered, 1));
        assert_eq!((of_job.billed.wall_ms, of_job.egress_bytes), (11, 10));
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
        let numbers = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        assert_eq!(UsageSum::from_numbers(numbers).to_numbers(), numbers);
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
