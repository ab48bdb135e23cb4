//! The present values of all endpoints, for watchers: read once a second at most, by one task for
//! all of them, and not at all while there are none.
//!
//! **Promise.** A watcher sees the newest values, however slow it is: values are replaced, never queued.
//! **Cost.** A read takes some microseconds for each endpoint of the host. The task rests at least
//! [`REST_PART`] times as long as a read took, so that thousands of endpoints cost a twentieth of a core at
//! most. Nothing on the path of a job.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gristmill_core::deploy::endpoint::EndpointIncarnation;
use gristmill_core::id::EndpointId;
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

/// The values of all endpoints at one time, of all owners.
#[derive(Debug)]
pub struct LiveValues {
    /// The time.
    pub at: Timestamp,
    /// The values, and whose they are: the next endpoint with the same id is another one.
    pub endpoints: HashMap<EndpointId, (EndpointIncarnation, LiveEndpoint)>,
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
        let none = LiveValues { at: Timestamp::from_millis(0), endpoints: HashMap::new() };
        let newest = watch::Sender::new(Arc::new(none));
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
        let mut endpoints = HashMap::with_capacity(view.deployments.len());
        for (id, deployment) in &view.deployments {
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
            endpoints.insert(id.clone(), (incarnation, values));
        }
        debug_assert_eq!(FinishedAs::ALL.map(FinishedAs::status)[..2], ["completed", "timed_out"]);
        Ok(LiveValues { at: self.0.deployed.now(), endpoints })
    }

    /// Whether values are being read.
    #[cfg(test)]
    pub(crate) fn is_read(&self) -> bool {
        *self.0.reading.lock() != Reading::None
    }
}
