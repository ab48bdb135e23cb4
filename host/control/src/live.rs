//! The present values of all endpoints, for watchers: read once a second at most, by one task for
//! all of them, and not at all while there are none.
//!
//! **Promise.** A watcher sees the newest values, however slow it is: values are replaced, never
//! queued. Each value has the version of the values in which it has changed, so that all watchers
//! that have seen the same version miss the same changes. **Bounds.** A deleted endpoint is known
//! for [`DELETED_VERSIONS`] versions. **Cost.** A read takes some microseconds for each endpoint of
//! the host, and lets other calls be served after each [`READ_PART`]. The task rests at least
//! [`REST_PART`] times as long as a read took, so that thousands of endpoints cost a twentieth of a
//! core at most. Nothing on the path of a job.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gristmill_core::id::{EndpointId, OwnerId};
use gristmill_core::incarnation::EndpointIncarnation;
use gristmill_core::metrics::endpoint::FinishedAs;
use gristmill_core::store::StoreError;
use gristmill_core::time::Timestamp;
use gristmill_wire::management::LiveEndpoint;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::deployed::Deployed;

/// Shortest time between two reads.
const INTERVAL: Duration = Duration::from_secs(1);

const REST_PART: u32 = 20;

/// Endpoints that are read at one time: less than half a millisecond.
const READ_PART: usize = 100;

/// For so many versions a deleted endpoint is known, which takes a minute at least.
pub const DELETED_VERSIONS: u64 = 64;

/// The values of all endpoints at one time.
#[derive(Debug)]
pub struct LiveValues {
    /// The time.
    pub at: Timestamp,
    /// The number of these values: one more than that of the values before. The first is 1; 0:
    /// there are no values yet.
    pub version: u64,
    /// The values of each owner who has or had endpoints.
    pub owners: HashMap<OwnerId, OwnerValues>,
}

/// The values of the endpoints of an owner.
#[derive(Debug, Default)]
pub struct OwnerValues {
    /// Those that exist.
    pub endpoints: HashMap<EndpointId, LiveValue>,
    /// Those that do not exist any more, with the version in which they were missing first.
    pub deleted: HashMap<EndpointId, u64>,
}

/// The values of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveValue {
    /// Whose they are: the next endpoint with the same id is another one.
    pub incarnation: EndpointIncarnation,
    /// The values.
    pub values: LiveEndpoint,
    /// The version in which they have changed last.
    pub changed: u64,
}

impl LiveValues {
    /// No values.
    pub fn none() -> Self {
        Self { at: Timestamp::from_millis(0), version: 0, owners: HashMap::new() }
    }

    /// The values after these.
    #[must_use]
    pub fn next(
        &self,
        at: Timestamp,
        read: impl IntoIterator<Item = (EndpointId, EndpointIncarnation, LiveEndpoint)>,
    ) -> Self {
        let mut next = Self { at, version: self.version + 1, owners: HashMap::new() };
        for (id, incarnation, values) in read {
            let before = self.of(incarnation.owner(), &id);
            let unchanged = before.filter(|before| before.values == values);
            let changed = unchanged.map_or(next.version, |before| before.changed);
            let owner = next.owners.entry(incarnation.owner().clone()).or_default();
            owner.endpoints.insert(id, LiveValue { incarnation, values, changed });
        }
        for (name, before) in &self.owners {
            let missing = before.endpoints.keys().map(|id| (id, next.version));
            let known = before.deleted.iter().map(|(id, version)| (id, *version));
            let is_known = |version: u64| next.version - version < DELETED_VERSIONS;
            let known = known.filter(|(_, version)| is_known(*version));
            let now = next.owners.get(name);
            let exists = |id: &EndpointId| now.is_some_and(|now| now.endpoints.contains_key(id));
            let deleted = missing.chain(known).filter(|(id, _)| !exists(id));
            let deleted: HashMap<_, _> = deleted.map(|(id, at)| (id.clone(), at)).collect();
            if !deleted.is_empty() {
                next.owners.entry(name.clone()).or_default().deleted = deleted;
            }
        }
        next
    }

    /// The values of an endpoint of an owner.
    pub fn of(&self, owner: &OwnerId, id: &EndpointId) -> Option<&LiveValue> {
        self.owners.get(owner)?.endpoints.get(id)
    }
}

/// The service for live values.
#[derive(Debug, Clone)]
pub struct Live(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    deployed: Arc<Deployed>,
    newest: watch::Sender<Arc<LiveValues>>,
    reading: Mutex<Reading>,
}

/// The state of the task that reads the values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Reading {
    /// There is no task.
    #[default]
    None,
    /// The task has not read the values yet: the newest ones are old, or there are none.
    Begun,
    /// The newest values are a moment old at most.
    HasValues,
}

impl Live {
    pub(crate) fn new(deployed: Arc<Deployed>) -> Self {
        let newest = watch::Sender::new(Arc::new(LiveValues::none()));
        Self(Arc::new(Parts { deployed, newest, reading: Mutex::default() }))
    }

    /// Watches the values until the receiver is dropped. It changes soon after this call, and again
    /// with each read.
    pub fn watch(&self) -> watch::Receiver<Arc<LiveValues>> {
        let mut reading = self.0.reading.lock();
        let mut watcher = self.0.newest.subscribe();
        match *reading {
            Reading::HasValues => watcher.mark_changed(),
            Reading::Begun => {}
            Reading::None => {
                *reading = Reading::Begun;
                tokio::spawn(self.clone().read_while_watched());
            }
        }
        watcher
    }

    async fn read_while_watched(self) {
        let Parts { newest, reading, .. } = &*self.0;
        loop {
            let begun = Instant::now();
            let Ok(values) = self.read().await else {
                *reading.lock() = Reading::None;
                return;
            };
            {
                let mut reading = reading.lock();
                newest.send_replace(Arc::new(values));
                *reading = Reading::HasValues;
            }
            let rest = begun.elapsed().saturating_mul(REST_PART);
            tokio::time::sleep_until(begun + INTERVAL.max(rest)).await;
            let mut reading = reading.lock();
            if newest.receiver_count() == 0 {
                *reading = Reading::None;
                return;
            }
        }
    }

    /// The present values.
    async fn read(&self) -> Result<LiveValues, StoreError> {
        let Deployed { store, workers, .. } = &*self.0.deployed;
        let view = self.0.deployed.view();
        let mut read = Vec::with_capacity(view.deployments.len());
        for (count, (id, deployment)) in view.deployments.iter().enumerate() {
            if count % READ_PART == READ_PART - 1 {
                tokio::task::yield_now().await;
            }
            let counts = store.counts(id).await?;
            let workers = workers.counts(id);
            let incarnation = deployment.incarnation.clone();
            let totals = incarnation.metrics().totals();
            let [completed, timed_out, failed @ ..] = totals.finished;
            let values = LiveEndpoint {
                waiting: counts.in_queue,
                running: counts.in_progress,
                workers: workers.idle
                    + workers.initializing
                    + workers.running
                    + workers.throttled
                    + workers.unhealthy,
                submitted: totals.submitted.iter().sum(),
                completed,
                failed: failed.iter().sum(),
                cancelled: totals.cancelled,
                timed_out,
                version: deployment.endpoint.version,
            };
            read.push((id.clone(), incarnation, values));
        }
        debug_assert_eq!(FinishedAs::ALL.map(FinishedAs::status)[..2], ["completed", "timed_out"]);
        let (at, before) = (self.0.deployed.now(), self.0.newest.borrow().clone());
        // 10,000 endpoints take several milliseconds.
        let next = tokio::task::spawn_blocking(move || before.next(at, read)).await;
        next.map_err(|_| StoreError::Closed)
    }

    /// Whether values are being read.
    #[cfg(test)]
    pub(crate) fn is_read(&self) -> bool {
        *self.0.reading.lock() != Reading::None
    }
}
