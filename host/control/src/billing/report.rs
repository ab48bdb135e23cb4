//! A report: the usage of each group in each bucket.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use gristmill_core::billing::usage::{Hour, UsageFilter, UsageKey, UsageStore, UsageSum};
use gristmill_core::id::TemplateId;
use gristmill_core::store::StoreError;
use gristmill_wire::management::{BucketSize, Grouping};

use super::bucket::Buckets as _;
use super::rows::{SLICE_HOURS, first_stored_hour, read};

/// A query for a report.
#[derive(Debug)]
pub struct ReportQuery {
    /// The hours that count, each as a whole.
    pub hours: Range<Hour>,
    /// The length of a bucket.
    pub size: BucketSize,
    /// The property by which usage is grouped.
    pub grouping: Grouping,
    /// The usage that counts.
    pub filter: UsageFilter,
    /// Only usage of these templates; `None`: of all.
    pub templates: Option<HashSet<TemplateId>>,
}

/// The usage of one group in one bucket.
#[derive(Debug, PartialEq, Eq)]
pub struct Record {
    /// The bucket's first hour, even if the report begins later in it.
    pub bucket: Hour,
    /// The group.
    pub id: String,
    /// The usage.
    pub sum: UsageSum,
}

impl Record {
    /// The record's position in the report; it is unique.
    pub fn cursor_position(&self) -> String {
        format!("{:010} {}", self.bucket.0, self.id)
    }
}

impl ReportQuery {
    /// The records of all buckets, from the bucket of `after` (the position of a record) on. Whole
    /// buckets are read until there are more than `count_max` records after `after`. Takes memory
    /// for these records, and time for the stored hours between them: two queries for a month with
    /// usage, up to 13 for a bucket of a year, and one for each further 1,000 rows. Months without
    /// any usage cost no query, however many the report has.
    pub(super) async fn records(
        &self,
        store: &dyn UsageStore,
        after: Option<&str>,
        count_max: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let mut records: Vec<Record> = vec![];
        let first = self.hours.start.max(bucket_of(after));
        let mut at = self.size.start(first);
        while at < self.hours.end && records.len() <= count_max {
            let left = at.max(self.hours.start)..self.hours.end;
            let Some(stored) = first_stored_hour(store, left).await? else { break };
            // Several buckets in one query, but no more than can be needed.
            let end = self.read_end(self.size.start(stored));
            let mut sums: BTreeMap<(Hour, String), UsageSum> = BTreeMap::new();
            read(store, stored..end.min(self.hours.end), &self.filter, |row| {
                if self.templates.as_ref().is_some_and(|only| !only.contains(&row.key.template)) {
                    return;
                }
                let key =
                    (self.size.start(row.key.hour), group(self.grouping, &row.key).to_owned());
                sums.entry(key).or_default().add(&row.sum);
            })
            .await?;
            let found = sums.into_iter().map(|((bucket, id), sum)| Record { bucket, id, sum });
            records.extend(
                found.filter(|record| after.is_none_or(|after| *record.cursor_position() > *after)),
            );
            at = end;
        }
        Ok(records)
    }

    /// The end of the buckets that one query reads: about a month's.
    fn read_end(&self, start: Hour) -> Hour {
        let enough = start.0.saturating_add(SLICE_HOURS);
        let mut end = self.size.next(start);
        while end < self.hours.end && self.size.next(end).0 <= enough {
            end = self.size.next(end);
        }
        end
    }
}

/// The bucket of a position; the first one if the text is not a position.
fn bucket_of(cursor_position: Option<&str>) -> Hour {
    let bucket =
        cursor_position.and_then(|cursor_position| cursor_position.split_once(' ')?.0.parse().ok());
    Hour(bucket.unwrap_or(0))
}

/// The group that a row belongs to.
fn group(grouping: Grouping, key: &UsageKey) -> &str {
    match grouping {
        Grouping::Endpoint => key.endpoint.as_str(),
        Grouping::Template => key.template.as_str(),
        Grouping::Owner => key.owner.as_str(),
        Grouping::Pod | Grouping::Gpu => "",
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
