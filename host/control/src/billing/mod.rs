//! Reports of usage: hours are combined to buckets, and rows to groups.

mod bucket;
mod report;
mod rows;
mod totals;

use std::sync::Arc;

use gristmill_core::access::key::{ApiKey, Scope};
use gristmill_core::billing::price::Prices;
use gristmill_core::billing::usage::{Hour, UsageStore};
use gristmill_core::time::Timestamp;

use crate::error::ControlError;
pub use bucket::Buckets;
pub use gristmill_wire::management::{BucketSize, Grouping};
pub use report::{Record, ReportQuery};
pub use totals::TemplateUsage;
use totals::Totals;

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
        mut report: ReportQuery,
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
