//! What was used with each template, over all the time of which usage is kept.
//!
//! The first question reads all rows, further ones those since then: the sums of hours that are over
//! are remembered, about 150 bytes for each template and owner. What grows older than usage is kept
//! stays in the sums until the host starts again.

use std::collections::HashMap;

use gristmill_core::id::{OwnerId, TemplateId};
use gristmill_core::price::{Credits, Prices};
use gristmill_core::store::StoreError;
use gristmill_core::template::Template;
use gristmill_core::usage::{Hour, UsageRow, UsageStore, UsageSum};

use super::{Filter, read};

type Sums = HashMap<TemplateId, HashMap<OwnerId, UsageSum>>;

/// The sums of hours that are over.
#[derive(Debug, Default)]
pub(crate) struct Totals(tokio::sync::Mutex<Closed>);

#[derive(Debug, Default)]
struct Closed {
    until: Hour,
    sums: Sums,
}

/// What was used with templates until now.
#[derive(Debug, Default)]
pub(crate) struct TemplateUsage(Sums);

impl Totals {
    /// What was used with each template until now.
    pub(crate) async fn read(
        &self,
        store: &dyn UsageStore,
        now: Hour,
    ) -> Result<TemplateUsage, StoreError> {
        let mut closed = self.0.lock().await;
        // A result of the last hour may still be on its way to the disk.
        let until = Hour(now.0.saturating_sub(1));
        if until < closed.until {
            // The clock was set back: hours that were over can get more.
            *closed = Closed::default();
        }
        let mut sums = Sums::new();
        let from = closed.until.max(now.first_kept());
        read(store, from..until, &Filter::default(), |row| add(&mut sums, row)).await?;
        // All of it or nothing: whoever gives up in between leaves what was here.
        for (template, owners) in sums {
            let closed = closed.sums.entry(template).or_default();
            for (owner, sum) in owners {
                closed.entry(owner).or_default().add(&sum);
            }
        }
        closed.until = until;
        let mut all = closed.sums.clone();
        drop(closed);
        let newest = until..Hour(now.0.saturating_add(1));
        read(store, newest, &Filter::default(), |row| add(&mut all, row)).await?;
        Ok(TemplateUsage(all))
    }
}

fn add(sums: &mut Sums, row: UsageRow) {
    let owners = sums.entry(row.key.template).or_default();
    owners.entry(row.key.owner).or_default().add(&row.sum);
}

impl TemplateUsage {
    /// Whole minutes that jobs have run with the template.
    pub(crate) fn runtime_min(&self, template: &Template) -> u64 {
        let owners = self.0.get(&template.id).into_iter().flatten();
        owners.fold(0_u64, |ms, (_, sum)| ms.saturating_add(sum.wall_ms)) / 60_000
    }

    /// What others than its owner pay for their jobs with the template.
    pub(crate) fn earned(&self, template: &Template, prices: &Prices) -> Credits {
        let mut others = UsageSum::default();
        for (owner, sum) in self.0.get(&template.id).into_iter().flatten() {
            if *owner != template.owner {
                others.add(sum);
            }
        }
        prices.amount(&others)
    }
}
