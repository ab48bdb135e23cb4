//! The usage of each template, over all stored hours.
//!
//! The sums of past hours are cached, about 150 bytes for each template and owner: the first query
//! reads all rows, and the first query of each hour reads one more hour. The newest hours come from
//! the store's memory, template by template. Usage that is deleted for its age stays in these sums
//! until the host starts again.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use gristmill_core::billing::price::{Credits, Prices};
use gristmill_core::billing::usage::{Hour, UsageFilter, UsageRow, UsageStore, UsageSum};
use gristmill_core::deploy::template::Template;
use gristmill_core::id::{OwnerId, TemplateId};
use gristmill_core::store::StoreError;

use super::rows::read;

type Sums = HashMap<TemplateId, HashMap<OwnerId, UsageSum>>;

/// The sums of past hours.
#[derive(Debug, Default)]
pub(super) struct Totals(tokio::sync::Mutex<Closed>);

#[derive(Debug, Default)]
struct Closed {
    until: Hour,
    sums: Arc<Sums>,
}

/// The usage of templates until now.
#[derive(Debug)]
pub struct TemplateUsage {
    closed: Arc<Sums>,
    /// The hours that are not in `closed`.
    newest: Range<Hour>,
    store: Arc<dyn UsageStore>,
}

impl Totals {
    /// Reads the usage of each template until now.
    pub(super) async fn read(
        &self,
        store: &Arc<dyn UsageStore>,
        now: Hour,
    ) -> Result<TemplateUsage, StoreError> {
        let mut closed = self.0.lock().await;
        // A result of the last hour may not be on disk yet.
        let until = Hour(now.0.saturating_sub(1));
        if until < closed.until {
            // The clock was set back, so past hours can still grow.
            *closed = Closed::default();
        }
        let mut sums = Sums::new();
        let from = closed.until.max(now.first_kept());
        read(&**store, from..until, &UsageFilter::default(), |row| add(&mut sums, row)).await?;
        // All sums or none: a call that is dropped in between leaves the old sums.
        if !sums.is_empty() {
            let before = closed.sums.clone();
            // Some hundred thousand entries take more time than a thread that serves calls has.
            let adding = tokio::task::spawn_blocking(move || with(&before, sums));
            closed.sums = adding.await.map_err(|_| StoreError::Closed)?;
        }
        closed.until = until;
        let newest = until..Hour(now.0.saturating_add(1));
        Ok(TemplateUsage { closed: closed.sums.clone(), newest, store: store.clone() })
    }
}

/// The sums of `before` and `newer`.
fn with(before: &Sums, newer: Sums) -> Arc<Sums> {
    let mut all = before.clone();
    for (template, owners) in newer {
        let all = all.entry(template).or_default();
        for (owner, sum) in owners {
            all.entry(owner).or_default().add(&sum);
        }
    }
    Arc::new(all)
}

fn add(sums: &mut Sums, row: UsageRow) {
    let owners = sums.entry(row.key.template).or_default();
    owners.entry(row.key.owner).or_default().add(&row.sum);
}

impl TemplateUsage {
    /// Whole minutes that jobs have run with the template.
    pub fn runtime_min(&self, template: &Template) -> u64 {
        let owners = self.owners(template);
        owners.iter().fold(0_u64, |ms, (_, sum)| ms.saturating_add(sum.wall_ms)) / 60_000
    }

    /// The usage of the template's jobs, by owner; an owner may come several times.
    fn owners(&self, template: &Template) -> Vec<(OwnerId, UsageSum)> {
        let closed = self.closed.get(&template.id).into_iter().flatten();
        let closed = closed.map(|(owner, sum)| (owner.clone(), *sum));
        closed.chain(self.store.newest_of_template(&template.id, &self.newest)).collect()
    }

    /// The credits of other owners' jobs with the template.
    pub fn earned(&self, template: &Template, prices: &Prices) -> Credits {
        let mut others = UsageSum::default();
        for (owner, sum) in self.owners(template) {
            if owner != template.owner {
                others.add(&sum);
            }
        }
        prices.amount(&others)
    }
}

#[cfg(test)]
mod tests {
    use gristmill_core::billing::usage::{Bill, JobUsage, KEPT_HOURS};
    use gristmill_core::id::{EndpointId, ShardId};
    use gristmill_core::signals::Signals;
    use gristmill_core::store::JobStore as _;
    use gristmill_core::time::{Clock as _, ManualClock};
    use gristmill_test_support::ModelStore;

    use super::*;

    #[tokio::test]
    async fn others_earn_for_the_owner_of_a_template() {
        let clock = Arc::new(ManualClock::new(Hour(500_000).start()));
        let store =
            Arc::new(ModelStore::new(ShardId(1), clock.clone(), Arc::new(Signals::default())));
        let usage: Arc<dyn UsageStore> = store.clone();
        let name = |text| TemplateId::new(text).unwrap();
        let owner = |text| OwnerId::new(text).unwrap();
        let template = Template::new(name("t"), owner("me"), "i:latest");
        let bill = async |who, with| {
            let billed = UsageSum { jobs: 1, wall_ms: 40_000, ..UsageSum::default() };
            let bill = Bill {
                endpoint: EndpointId::new("e").unwrap(),
                template: name(with),
                owner: owner(who),
                used: JobUsage { billed, egress_bytes: 0 },
            };
            store.bill_requests(vec![bill]).await.unwrap();
        };
        let prices = Prices { wall_second: "0.5".parse().unwrap(), ..Prices::default() };
        let totals = Totals::default();
        let shown = async || {
            let used = totals.read(&usage, Hour::of(clock.now())).await.unwrap();
            let earned = used.earned(&template, &prices).to_string();
            (used.runtime_min(&template), earned)
        };
        assert_eq!(shown().await, (0, "0".to_owned()));
        bill("me", "t").await;
        bill("other", "t").await;
        bill("other", "another").await;
        assert_eq!(shown().await, (1, "20".to_owned()));
        assert_eq!(shown().await, (1, "20".to_owned()), "nothing counts twice");
        for hours in [1, 1, 30, 1_000] {
            clock.advance(hours * 3_600_000);
            bill("other", "t").await;
            let _ = shown().await;
        }
        assert_eq!(shown().await, (4, "100".to_owned()));
        clock.advance(u64::from(KEPT_HOURS) * 3_600_000);
        assert_eq!(shown().await, (4, "100".to_owned()), "what was seen stays until the end");
        let anew = Totals::default().read(&usage, Hour::of(clock.now())).await.unwrap();
        assert_eq!(anew.runtime_min(&template), 0, "(40 s of the last hour that is kept)");
    }
}
