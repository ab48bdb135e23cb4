//! Calls webhooks: takes due deliveries from the outbox, sends them, and records the outcomes.
//!
//! One loop starts the attempts, each in a task of its own. The store chooses them: owners,
//! endpoints and receivers have shares of the attempts and take turns, so that receivers that are
//! slow or dead delay their own endpoint only. Jobs are never affected: a delivery is independent
//! of its job.
//!
//! **Bounds.** Those of
//! [`begin_attempts`](gristmill_core::webhook::delivery::DeliveryStore::begin_attempts), and
//! [`BODY_KIB_MAX`] of bodies in memory, in shares too.

mod attempt;
mod http;
mod parts;
mod sender;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gristmill_core::id::EndpointId;
use gristmill_core::sharing::permits::Permits;
use gristmill_core::store::StoreError;
use gristmill_core::webhook::delivery::{DeliveryId, DueDeliveries};
use parking_lot::Mutex;
use tokio::task::{self, JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::outage_log::OutageLog;

pub use http::HttpSender;
pub use parts::DeliveryParts;
pub use sender::{CallEnd, WebhookCall, WebhookSender};

/// KiB of bodies that are in memory at one time (256 MiB): an endpoint's quarter has room for the
/// largest body that can be.
const BODY_KIB_MAX: usize = 256 << 10;

/// Time that running attempts have in a drain.
const DRAIN: Duration = Duration::from_secs(5);

/// Wait after an error of the store.
const STORE_ERROR_PAUSE: Duration = Duration::from_millis(250);

/// Pause in which no attempt begins after the database of the jobs did not answer. Without it all
/// webhooks in the outbox would be tried, and put back, in turn.
const UNAVAILABLE_PAUSE: Duration = Duration::from_secs(5);

/// Delivers webhooks until it is drained.
#[derive(Debug)]
pub struct Deliverer {
    stop: CancellationToken,
    running: Mutex<Option<JoinHandle<()>>>,
}

impl Deliverer {
    /// Starts to deliver the webhooks in the outbox, and all future ones.
    pub fn start(parts: DeliveryParts) -> Self {
        let stop = CancellationToken::new();
        let running = tokio::spawn(run(Arc::new(parts), stop.clone()));
        Self { stop, running: Mutex::new(Some(running)) }
    }

    /// Starts no more attempts, and waits a few seconds for those that are running. Deliveries
    /// that have not ended by then stay in the outbox.
    pub async fn drain(&self) {
        self.stop.cancel();
        let running = self.running.lock().take();
        if let Some(running) = running {
            // A panic was reported when it happened.
            let _ = running.await;
        }
    }
}

/// Whether the database of the jobs cannot be reached, as attempts report it.
#[derive(Debug, Default)]
struct Outage {
    until: Option<Duration>,
    log: OutageLog,
}

impl Outage {
    /// The end of the pause, if there is one at `now`.
    fn pause(&self, now: Duration) -> Option<Duration> {
        self.until.filter(|until| *until > now)
    }

    /// Logs an error of an attempt, and begins a pause if the database cannot be reached.
    fn observe(&mut self, result: &Result<(), StoreError>, now: Duration) {
        match result {
            Ok(()) => *self = Self::default(),
            Err(StoreError::Closed) => {}
            Err(error) => {
                if self.log.is_news(error) {
                    warn!(%error, "an attempt of a webhook is repeated later: {error}");
                }
                if *error == StoreError::Unavailable {
                    self.until = Some(now + UNAVAILABLE_PAUSE);
                }
            }
        }
    }
}

async fn run(parts: Arc<DeliveryParts>, stop: CancellationToken) {
    let bodies = Permits::for_work(BODY_KIB_MAX);
    let mut attempts = JoinSet::new();
    let mut under_way = HashMap::<task::Id, DeliveryId>::new();
    // Attempts whose end the store does not know yet.
    let mut ended = Vec::new();
    let mut outage = Outage::default();
    loop {
        let begun = if let Some(until) = outage.pause(parts.clock.elapsed()) {
            Ok(DueDeliveries { due: Vec::new(), next_at: Some(until) })
        } else {
            // Dropped before the loop waits: a view keeps the components of all its deployments.
            let view = parts.catalog.view();
            let owner_of = |endpoint: &EndpointId| {
                view.deployments.get(endpoint).map(|deployment| deployment.endpoint.owner.clone())
            };
            let begun = parts.store.begin_attempts(&ended, &owner_of).await;
            if begun.is_ok() {
                ended.clear();
            }
            begun
        };
        let next_at = match begun {
            Ok(begun) => {
                for delivery in begun.due {
                    let id = delivery.id;
                    let attempt = attempt::run(parts.clone(), delivery, bodies.clone());
                    under_way.insert(attempts.spawn(attempt).id(), id);
                }
                begun.next_at.unwrap_or(Duration::MAX)
            }
            Err(StoreError::Closed) => return,
            Err(error) => {
                warn!(%error, "the outbox of webhooks cannot be read: {error}");
                parts.clock.elapsed() + STORE_ERROR_PAUSE
            }
        };
        tokio::select! {
            Some(task) = attempts.join_next_with_id() => {
                let task = match task {
                    Ok((task, result)) => {
                        outage.observe(&result, parts.clock.elapsed());
                        task
                    }
                    // A panic was reported when it happened.
                    Err(error) => error.id(),
                };
                ended.extend(under_way.remove(&task));
            }
            () = parts.signals.delivery_to_send() => {}
            () = parts.clock.sleep_until_elapsed(next_at) => {}
            () = stop.cancelled() => break,
        }
    }
    // Attempts that have not ended by then are dropped with the set, and repeated after the next
    // start.
    let _ = timeout(DRAIN, async { while attempts.join_next().await.is_some() {} }).await;
}
