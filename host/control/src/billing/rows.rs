//! The rows of many hours, in queries of bounded size.

use std::ops::Range;

use gristmill_core::billing::usage::{Hour, UsageFilter, UsageQuery, UsageRow, UsageStore};
use gristmill_core::store::StoreError;

/// Hours in one query to the store: 31 days. The thread that answers it also serves readers of
/// payloads.
pub(super) const SLICE_HOURS: u32 = 31 * 24;

/// Most rows of one answer.
const ROWS_MAX: usize = 1_000;

/// The first of these hours that has a row of any endpoint, template and owner. One query for one
/// row, whatever the number of hours is: stores keep rows in the order of their hours.
pub(super) async fn first_stored_hour(
    store: &dyn UsageStore,
    hours: Range<Hour>,
) -> Result<Option<Hour>, StoreError> {
    let filter = UsageFilter::default();
    let query = UsageQuery { hours, filter, after: None, rows_max: 1 };
    let rows = store.usage(&query).await?;
    Ok(rows.first().map(|row| row.key.hour))
}

/// Passes the rows of these hours to `take`, in their order.
pub(super) async fn read(
    store: &dyn UsageStore,
    hours: Range<Hour>,
    filter: &UsageFilter,
    mut take: impl FnMut(UsageRow),
) -> Result<(), StoreError> {
    let mut start = hours.start;
    while start < hours.end {
        let end = Hour(start.0.saturating_add(SLICE_HOURS)).min(hours.end);
        let filter = filter.clone();
        let mut query = UsageQuery { hours: start..end, filter, after: None, rows_max: ROWS_MAX };
        loop {
            let rows = store.usage(&query).await?;
            let is_last = rows.len() < ROWS_MAX;
            query.after = rows.last().map(|row| row.key.clone());
            rows.into_iter().for_each(&mut take);
            if is_last {
                break;
            }
        }
        start = end;
    }
    Ok(())
}
