//! The usage of HTTP requests, which is summed in memory and written each second.
//!
//! A write for each request would cost an fsync for work that is often shorter. A sum is written
//! with the other changes of its moment, and counts in the hour of that write.
//!
//! **Promises.** A crash loses the sums of a second, or of as long as the store took none. A drain
//! writes all of them. **Bounds.** [`SUMS_MAX`] sums of endpoints; those of further endpoints add
//! up in one for each owner, as [others](OTHERS). **Cost.** A lock and a look-up for each request.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use gristmill_core::billing::usage::{Bill, JobUsage};
use gristmill_core::deploy::endpoint::Endpoint;
use gristmill_core::id::{EndpointId, OwnerId, TemplateId};
use gristmill_core::store::{JobStore, StoreError};
use gristmill_core::time::Clock;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tracing::warn;

use crate::outage_log::OutageLog;

#[cfg(doc)]
use gristmill_core::id::OTHERS;

/// The pause between two writes.
const PAUSE: Duration = Duration::from_secs(1);

/// Most sums with the ids of their endpoints.
const SUMS_MAX: usize = 10_000;

/// What a sum is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    endpoint: EndpointId,
    template: TemplateId,
    owner: OwnerId,
}

/// The sums that are not written yet.
#[derive(Debug, Default)]
pub(crate) struct RequestBills {
    sums: Mutex<HashMap<Key, JobUsage>>,
    /// Held during a write, so that the next one begins when all earlier sums are in the store.
    writing: tokio::sync::Mutex<()>,
}

impl RequestBills {
    /// Adds the usage of a request to an endpoint.
    pub(crate) fn add(&self, endpoint: &Endpoint, used: &JobUsage) {
        let Endpoint { id, template, owner, .. } = endpoint;
        let key = Key { endpoint: id.clone(), template: template.clone(), owner: owner.clone() };
        self.add_to(key, used);
    }

    fn add_to(&self, mut key: Key, used: &JobUsage) {
        let mut sums = self.sums.lock();
        if sums.len() >= SUMS_MAX && !sums.contains_key(&key) {
            (key.endpoint, key.template) = (EndpointId::others(), TemplateId::others());
        }
        sums.entry(key).or_default().add(used);
    }

    /// Gives all sums to the store, which writes them with its next batch. Sums that it does not
    /// take are kept.
    pub(crate) async fn write(&self, store: &dyn JobStore) -> Result<(), StoreError> {
        let _turn = self.writing.lock().await;
        let sums = mem::take(&mut *self.sums.lock());
        let bills = sums.into_iter().map(|(key, used)| {
            let Key { endpoint, template, owner } = key;
            Bill { endpoint, template, owner, used }
        });
        let bills: Vec<_> = bills.collect();
        let written = store.bill_requests(bills.clone()).await;
        if written.is_err() {
            for Bill { endpoint, template, owner, used } in bills {
                self.add_to(Key { endpoint, template, owner }, &used);
            }
        }
        written
    }
}

/// Writes the sums until the store is closed.
pub(crate) async fn run(bills: Arc<RequestBills>, store: Arc<dyn JobStore>, clock: Arc<dyn Clock>) {
    let mut outage = OutageLog::default();
    loop {
        match bills.write(&*store).await {
            Ok(()) => outage.end(),
            Err(StoreError::Closed) => return,
            Err(error) => {
                if outage.is_news(&error) {
                    warn!(%error, "the usage of HTTP requests cannot be written: {error}");
                }
            }
        }
        clock.sleep_until_elapsed(clock.elapsed() + PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_core::billing::usage::UsageSum;

    #[test]
    fn sums_of_many_endpoints_are_bounded_and_lose_nothing() {
        let bills = RequestBills::default();
        let used = JobUsage {
            billed: UsageSum { jobs: 1, wall_ms: 2, ..UsageSum::default() },
            egress_bytes: 0,
        };
        let key = |number: usize, owner: &str| Key {
            endpoint: EndpointId::new(&format!("e{number}")).unwrap(),
            template: TemplateId::new("t").unwrap(),
            owner: OwnerId::new(owner).unwrap(),
        };
        for number in 0..SUMS_MAX + 500 {
            bills.add_to(key(number, "a"), &used);
        }
        bills.add_to(key(0, "a"), &used);
        bills.add_to(key(0, "b"), &used);
        let sums = bills.sums.lock();
        assert_eq!(sums.len(), SUMS_MAX + 2, "one more for each owner");
        assert_eq!(sums.values().map(|sum| sum.billed.jobs).sum::<u64>(), SUMS_MAX as u64 + 502);
        assert_eq!(sums[&key(0, "a")].billed.wall_ms, 4);
        let others = Key {
            endpoint: EndpointId::others(),
            template: TemplateId::others(),
            owner: OwnerId::new("b").unwrap(),
        };
        assert_eq!(sums[&others].billed.jobs, 1);
    }
}
