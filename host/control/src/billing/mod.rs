//! Reports of usage: hours are combined to buckets, and rows to groups.

mod bucket;
mod report;
mod totals;

use std::ops::Range;
use std::sync::Arc;

use gristmill_core::access::key::{ApiKey, Scope};
use gristmill_core::billing::price::Prices;
use gristmill_core::billing::usage::{Hour, UsageFilter, UsageQuery, UsageRow, UsageStore};
use gristmill_core::store::StoreError;
use gristmill_core::time::Timestamp;

use crate::error::ControlError;
pub use bucket::Buckets;
pub use gristmill_wire::management::{BucketSize, Grouping};
pub use report::{Record, Report};
pub use totals::TemplateUsage;
use totals::Totals;

/// Hours in one query to the store: 31 days. The thread that answers it also serves readers of
/// payloads.
const SLICE_HOURS: u32 = 31 * 24;

/// Most rows of one answer.
const ROWS_MAX: usize = 1_000;

/// The service for reports of usage.
#[derive(Debug, Clone)]
pub struct Billing {
    usage: Arc<dyn UsageStore>,
    prices: Prices,
    totals: Arc<Totals>,
}

impl Billing {
    pub(crate) fn new(usage: Arc<dyn UsageStore>, prices: Prices) -> Self {
        Self { usage, prices, totals: Arc::default() }
    }

    /// The prices that convert usage to credits.
    pub fn prices(&self) -> &Prices {
        &self.prices
    }

    /// The records of a report from the bucket of `after` (the position of a record) on. Whole
    /// buckets are read until there are more than `count_max` records after `after`. A key with the
    /// scope `admin` sees all owners, another key only its own.
    ///
    /// # Errors
    /// [`ControlError::Invalid`] when the report is about another owner, and those of the store.
    pub async fn report(
        &self,
        caller: &ApiKey,
        mut report: Report,
        after: Option<&str>,
        count_max: usize,
    ) -> Result<Vec<Record>, ControlError> {
        if !caller.allows(Scope::Admin, None) {
            let own = &caller.owner;
            if report.filter.owner.as_ref().is_some_and(|asked| asked != own) {
                return Err(ControlError::invalid(format!(
                    "query `ownerId` must be `{own}`: this API key lacks the scope `admin`"
                )));
            }
            report.filter.owner = Some(own.clone());
        }
        Ok(report.records(&*self.usage, after, count_max).await?)
    }

    /// The usage of all templates until now.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn of_templates(&self, now: Timestamp) -> Result<TemplateUsage, ControlError> {
        Ok(self.totals.read(&self.usage, Hour::of(now)).await?)
    }
}

/// Passes the rows of these hours to `take`, in their order.
async fn read(
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
