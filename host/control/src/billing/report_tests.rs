//! Reports over a store that counts queries, compared with one pass over all rows.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use gristmill_core::billing::usage::{KEPT_HOURS, UsageQuery, UsageRow};
use gristmill_core::id::{EndpointId, OwnerId};

use super::*;

/// 2027-01-15.
const NOW: Hour = Hour(500_000);

/// The hours from 1970 to the year 9998.
const ALL_HOURS: Range<Hour> = Hour(0)..Hour(70_370_000);

/// Rows in memory; counts the queries for them.
#[derive(Debug, Default)]
struct CountingStore {
    rows: BTreeMap<UsageKey, UsageSum>,
    queries: AtomicUsize,
}

#[async_trait]
impl UsageStore for CountingStore {
    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageRow>, StoreError> {
        self.queries.fetch_add(1, Ordering::Relaxed);
        let rows = self.rows.iter().filter(|(key, _)| query.matches(key));
        let rows = rows.map(|(key, sum)| UsageRow { key: key.clone(), sum: *sum });
        Ok(rows.take(query.rows_max).collect())
    }

    fn newest_of_template(&self, _: &TemplateId, _: &Range<Hour>) -> Vec<(OwnerId, UsageSum)> {
        vec![]
    }
}

impl CountingStore {
    /// Usage in all the time that is kept, and some of a time when the clock was ahead.
    fn full() -> Self {
        let mut store = Self::default();
        let kept = (NOW.first_kept().0..=NOW.0).step_by(50);
        for (jobs, hour) in (1..).zip(kept.chain([NOW.0 + KEPT_HOURS / 2])) {
            let key = UsageKey {
                hour: Hour(hour),
                endpoint: EndpointId::new(&format!("e{}", hour % 3)).unwrap(),
                template: TemplateId::new("t").unwrap(),
                owner: OwnerId::new("a").unwrap(),
            };
            store.rows.insert(key, UsageSum { jobs, ..UsageSum::default() });
        }
        store
    }

    /// The report as one pass over all rows makes it.
    fn expected(&self, report: &ReportQuery) -> Vec<Record> {
        let mut sums: BTreeMap<(Hour, String), UsageSum> = BTreeMap::new();
        for (key, sum) in &self.rows {
            if report.hours.contains(&key.hour) {
                let bucket = report.size.start(key.hour);
                sums.entry((bucket, key.endpoint.to_string())).or_default().add(sum);
            }
        }
        sums.into_iter().map(|((bucket, id), sum)| Record { bucket, id, sum }).collect()
    }

    fn take_queries(&self) -> usize {
        self.queries.swap(0, Ordering::Relaxed)
    }
}

fn report(hours: Range<Hour>, size: BucketSize, owner: Option<&str>) -> ReportQuery {
    let owner = owner.map(|owner| OwnerId::new(owner).unwrap());
    let filter = UsageFilter { owner, ..UsageFilter::default() };
    ReportQuery { hours, size, grouping: Grouping::Endpoint, filter, templates: None }
}

#[tokio::test]
async fn months_without_usage_cost_no_queries_however_many_there_are() {
    const QUERIES_MAX: usize = 50;
    let store = CountingStore::full();
    for size in BucketSize::ALL {
        let all = report(ALL_HOURS, size, None);
        let records = all.records(&store, None, usize::MAX).await.unwrap();
        assert_eq!(records, store.expected(&all), "{size:?}");
        let queries = store.take_queries();
        assert!(queries <= QUERIES_MAX, "{size:?}: {queries}");

        let of_nobody = report(ALL_HOURS, size, Some("nobody"));
        let records = of_nobody.records(&store, None, usize::MAX).await.unwrap();
        assert!(records.is_empty(), "{records:?}");
        let queries = store.take_queries();
        assert!(queries <= QUERIES_MAX, "{size:?}: {queries}");

        let empty = CountingStore::default();
        let records = all.records(&empty, None, usize::MAX).await.unwrap();
        assert!(records.is_empty(), "{records:?}");
        assert_eq!(empty.take_queries(), 1, "{size:?}");
    }
}

#[tokio::test]
async fn a_report_has_the_hours_of_its_range_page_by_page() {
    const PAGE: usize = 7;
    let store = CountingStore::full();
    let first = NOW.first_kept();
    let ranges = [
        ALL_HOURS,
        Hour(first.0 + 60)..Hour(NOW.0 - 60),
        Hour(NOW.0 - 720)..Hour(NOW.0 + 1),
        Hour(NOW.0 + 1)..Hour(NOW.0 + KEPT_HOURS),
        Hour(0)..first,
    ];
    for size in BucketSize::ALL {
        for hours in ranges.clone() {
            let report = report(hours, size, None);
            let (mut found, mut after) = (vec![], None::<String>);
            loop {
                let records = report.records(&store, after.as_deref(), PAGE).await.unwrap();
                found.extend(records.into_iter().take(PAGE));
                let last = found.last().map(Record::cursor_position);
                if last == after {
                    break;
                }
                after = last;
            }
            assert_eq!(found, store.expected(&report), "{size:?} {:?}", report.hours);
        }
    }
}
