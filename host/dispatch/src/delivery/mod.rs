//! Calls webhooks: takes what is due from the outbox, sends it, and records what came of it.
//!
//! One loop starts the attempts, each in a task of its own, so that a receiver that is slow or
//! dead holds up nobody but itself. Jobs are never affected: a delivery has a life of its own.
//!
//! **Bounds.** [`PER_TARGET_MAX`] attempts at one time to one host and port, [`ATTEMPTS_MAX`] in
//! all, and [`BODY_KIB_MAX`] of bodies in memory.

mod attempt;
mod http;
mod sender;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gristmill_core::catalog::Catalog;
use gristmill_core::delivery::{Delivery, DeliveryId, DeliveryStore};
use gristmill_core::signals::Signals;
use gristmill_core::store::StoreError;
use gristmill_core::time::Clock;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::{self, JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub use http::HttpSender;
pub use sender::{CallEnd, WebhookCall, WebhookSender};

/// Attempts at one time to one target.
const PER_TARGET_MAX: usize = 4;

/// Attempts at one time in all.
const ATTEMPTS_MAX: usize = 64;

/// Due deliveries that one look at the outbox brings. More than attempts: those of busy targets
/// are passed over.
const LOOK_MAX: usize = 1_024;

/// KiB of bodies that are in memory at one time. The four largest that can be are far below it.
const BODY_KIB_MAX: usize = 256 << 10;

/// How long attempts that are on their way may go on in a drain.
const DRAIN: Duration = Duration::from_secs(5);

/// Wait after an error of the store, in milliseconds.
const STORE_ERROR_PAUSE_MS: u64 = 250;

/// What a deliverer is made of.
#[derive(Debug)]
pub struct DeliveryParts {
    /// Where deliveries are.
    pub store: Arc<dyn DeliveryStore>,
    /// Has the secrets of the endpoints.
    pub catalog: Arc<Catalog>,
    /// The store's signals.
    pub signals: Arc<Signals>,
    /// The store's clock.
    pub clock: Arc<dyn Clock>,
    /// What makes the calls.
    pub sender: Arc<dyn WebhookSender>,
}

/// Delivers webhooks until it is drained.
#[derive(Debug)]
pub struct Deliverer {
    stop: CancellationToken,
    running: Mutex<Option<JoinHandle<()>>>,
}

impl Deliverer {
    /// Starts to deliver: what waits in the outbox now, and what comes.
    pub fn start(parts: DeliveryParts) -> Self {
        let stop = CancellationToken::new();
        let running = tokio::spawn(run(Arc::new(parts), stop.clone()));
        Self { stop, running: Mutex::new(Some(running)) }
    }

    /// Starts no more attempts, and waits a few seconds for those that are on their way. What is
    /// not delivered by then stays in the outbox.
    pub async fn drain(&self) {
        self.stop.cancel();
        let running = self.running.lock().take();
        if let Some(running) = running {
            // A panic was reported when it happened.
            let _ = running.await;
        }
    }
}

/// The attempts on their way, by the task that makes each.
#[derive(Debug, Default)]
struct InFlight(HashMap<task::Id, (DeliveryId, String)>);

impl InFlight {
    fn has(&self, id: DeliveryId) -> bool {
        self.0.values().any(|(current, _)| *current == id)
    }

    /// Which of the due deliveries to begin with: those of the targets with the least under way.
    fn choose(&self, due: Vec<Delivery>) -> Vec<(Delivery, String)> {
        let mut per_target = HashMap::<String, usize>::new();
        for (_, target) in self.0.values() {
            *per_target.entry(target.clone()).or_default() += 1;
        }
        let mut ranked = Vec::new();
        for delivery in due.into_iter().filter(|delivery| !self.has(delivery.id)) {
            let target = delivery.target();
            let rank = per_target.entry(target.clone()).or_default();
            if *rank < PER_TARGET_MAX {
                ranked.push((*rank, delivery, target));
                *rank += 1;
            }
        }
        ranked.sort_by_key(|(rank, ..)| *rank);
        let free = ATTEMPTS_MAX.saturating_sub(self.0.len());
        ranked.into_iter().take(free).map(|(_, delivery, target)| (delivery, target)).collect()
    }
}

async fn run(parts: Arc<DeliveryParts>, stop: CancellationToken) {
    let bodies = Arc::new(Semaphore::new(BODY_KIB_MAX));
    let mut in_flight = InFlight::default();
    let mut attempts = JoinSet::new();
    loop {
        let next = match parts.store.due_deliveries(PER_TARGET_MAX, LOOK_MAX).await {
            Ok(found) => {
                for (delivery, target) in in_flight.choose(found.due) {
                    let id = delivery.id;
                    let attempt = attempt::run(parts.clone(), delivery, bodies.clone());
                    in_flight.0.insert(attempts.spawn(attempt).id(), (id, target));
                }
                found.next
            }
            Err(StoreError::Closed) => return,
            Err(error) => {
                warn!(%error, "the outbox of webhooks cannot be read: {error}");
                parts.clock.now().plus_millis(STORE_ERROR_PAUSE_MS)
            }
        };
        tokio::select! {
            Some(ended) = attempts.join_next_with_id() => {
                let task = ended.map_or_else(|error| error.id(), |(task, ())| task);
                in_flight.0.remove(&task);
            }
            () = parts.signals.delivery_to_send() => {}
            () = parts.clock.sleep_until(next) => {}
            () = stop.cancelled() => break,
        }
    }
    // What has not ended by then is dropped with the set, and sent again after the next start.
    let _ = timeout(DRAIN, async { while attempts.join_next().await.is_some() {} }).await;
}
