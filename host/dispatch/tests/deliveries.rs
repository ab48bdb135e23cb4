//! The deliverer with the in-memory store, and receivers whose host's name determines their answer.
//! Time is a manual clock for the store and tokio's paused clock for the receivers.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use gristmill_core::catalog::{Catalog, CatalogChange, CatalogEntry};
use gristmill_core::delivery::{Delivery, DeliveryState, DeliveryStore};
use gristmill_core::endpoint::{Endpoint, Life};
use gristmill_core::id::{EndpointId, JobId, NodeId, OwnerId, Submission, TemplateId, WorkerId};
use gristmill_core::payload::Json;
use gristmill_core::policy::Policy;
use gristmill_core::record::{NewJob, Outcome};
use gristmill_core::signals::Signals;
use gristmill_core::store::{JobStore, StoreError, SubmitAnswer};
use gristmill_core::template::Template;
use gristmill_core::time::{ManualClock, Timestamp};
use gristmill_core::webhook::WebhookSecrets;
use gristmill_dispatch::{CallEnd, Deliverer, DeliveryParts, WebhookCall, WebhookSender};
use gristmill_store::MemoryStore;
use parking_lot::Mutex;

/// `ok` answers 200, `dead` nothing for 10 s, `down` 503, `inner` must not be called.
#[derive(Debug, Default)]
struct Receivers {
    calls: Mutex<Vec<WebhookCall>>,
    open: Mutex<HashMap<String, usize>>,
    open_max: Mutex<HashMap<String, usize>>,
}

#[async_trait]
impl WebhookSender for Receivers {
    async fn send(&self, call: WebhookCall) -> CallEnd {
        let url = call.url.clone();
        self.calls.lock().push(call);
        let count = {
            let mut open = self.open.lock();
            let count = open.entry(url.clone()).or_default();
            *count += 1;
            *count
        };
        {
            let mut most = self.open_max.lock();
            let most = most.entry(url.clone()).or_default();
            *most = count.max(*most);
        }
        let end = if url.contains("ok") {
            CallEnd::Answered(200)
        } else if url.contains("dead") {
            tokio::time::sleep(Duration::from_secs(10)).await;
            CallEnd::Failed("no answer".into())
        } else if url.contains("inner") {
            CallEnd::Refused("not public".into())
        } else {
            CallEnd::Answered(503)
        };
        *self.open.lock().entry(url).or_default() -= 1;
        end
    }
}

struct Fixture {
    store: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
    receivers: Arc<Receivers>,
    secrets: WebhookSecrets,
    deliverer: Deliverer,
}

impl Fixture {
    async fn start() -> Self {
        let (clock, signals) =
            (Arc::new(ManualClock::new(Timestamp::from_millis(5_000))), Arc::default());
        let signals: Arc<Signals> = signals;
        let store = Arc::new(MemoryStore::new(NodeId(0), clock.clone(), signals.clone()));
        let (catalog, secrets) = catalog(store.clone(), clock.clone()).await;
        let receivers = Arc::new(Receivers::default());
        let deliverer = Deliverer::start(DeliveryParts {
            store: store.clone(),
            catalog,
            signals,
            clock: clock.clone(),
            sender: receivers.clone(),
        });
        Self { store, clock, receivers, secrets, deliverer }
    }

    /// A job that ends at once.
    async fn job(&self, webhook: &str) {
        let job = NewJob {
            id: JobId::generate(Submission::Async, NodeId(0)),
            endpoint: endpoint(),
            owner: OwnerId::new("o").unwrap(),
            input: Json::null(),
            policy: Policy { execution_timeout_ms: 1_000, ttl_ms: 86_400_000, low_priority: false },
            retention_ms: 60_000,
            webhook: Some(webhook.to_owned()),
            s3_config: None,
            may_linger: false,
            waiting_jobs_max: None,
            idempotency: None,
            life: Life::default(),
        };
        assert_eq!(self.store.submit(job).await, Ok(SubmitAnswer::Queued));
        let worker = WorkerId::new("w").unwrap();
        let claimed = self.store.claim(&endpoint(), &[worker]).await.unwrap();
        for job in claimed {
            let _ = self.store.finish(job.lease, Outcome::TimedOut).await.unwrap();
        }
    }

    async fn log(&self) -> Vec<Delivery> {
        // Runs the deliverer until it waits.
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        self.store.deliveries(&endpoint(), 1_000).await.unwrap()
    }

    async fn delivered(&self) -> usize {
        let is_delivered = |d: &&Delivery| matches!(d.state, DeliveryState::Delivered { .. });
        self.log().await.iter().filter(is_delivered).count()
    }
}

fn endpoint() -> EndpointId {
    EndpointId::new("e").unwrap()
}

async fn catalog(
    store: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
) -> (Arc<Catalog>, WebhookSecrets) {
    let template =
        Template::new(TemplateId::new("t").unwrap(), OwnerId::new("o").unwrap(), "t:latest");
    let secrets = WebhookSecrets::generate();
    let endpoint = Endpoint {
        webhook_secrets: secrets.clone(),
        ..Endpoint::new(
            endpoint(),
            OwnerId::new("o").unwrap(),
            template.id.clone(),
            Timestamp::from_millis(0),
        )
    };
    let catalog = Arc::new(Catalog::open(store, clock).await.unwrap());
    let changes = [CatalogEntry::Template(template), CatalogEntry::Endpoint(endpoint)];
    catalog
        .change(|_| Ok::<_, StoreError>((changes.map(CatalogChange::Put).into(), ())))
        .await
        .unwrap();
    (catalog, secrets)
}

#[tokio::test(start_paused = true)]
async fn a_webhook_is_delivered_once_and_signed() {
    let t = Fixture::start().await;
    t.job("http://ok/").await;
    assert_eq!(t.delivered().await, 1);
    t.clock.advance(60_000);
    t.log().await;
    let calls = t.receivers.calls.lock();
    assert_eq!(calls.len(), 1);
    let call = calls.first().unwrap();
    assert_eq!(call.timestamp_s, 5);
    assert_eq!(call.signature, t.secrets.current().sign(&call.id, 5, &call.body));
}

#[tokio::test(start_paused = true)]
async fn three_attempts_ten_seconds_apart_then_no_more() {
    let t = Fixture::start().await;
    t.job("http://down/").await;
    for attempts in 1..=3 {
        assert_eq!(t.log().await.first().unwrap().attempts, attempts);
        t.clock.advance(9_999);
        assert_eq!(t.log().await.first().unwrap().attempts, attempts);
        t.clock.advance(1);
    }
    let given_up = t.log().await.remove(0);
    assert!(matches!(given_up.state, DeliveryState::GivenUp { .. }), "{given_up:?}");
    assert_eq!(given_up.last.error.as_deref(), Some("answered 503"));
    let calls = t.receivers.calls.lock();
    assert_eq!(calls.len(), 3);
    let first = calls.first().unwrap();
    assert!(calls.iter().all(|call| call.id == first.id && call.body == first.body));
}

#[tokio::test(start_paused = true)]
async fn what_must_not_be_called_is_given_up_at_once() {
    let t = Fixture::start().await;
    t.job("http://inner/").await;
    let given_up = t.log().await.remove(0);
    assert!(matches!(given_up.state, DeliveryState::GivenUp { .. }), "{given_up:?}");
    assert_eq!(given_up.attempts, 1);
}

#[tokio::test(start_paused = true)]
async fn dead_receivers_hold_up_nobody_else() {
    let t = Fixture::start().await;
    for i in 0..15 {
        for _ in 0..20 {
            t.job(&format!("http://dead-{i}/")).await;
        }
    }
    for i in 0..100 {
        t.job(&format!("http://ok-{}/", i % 3)).await;
    }
    assert_eq!(t.delivered().await, 100);
    assert_eq!(t.receivers.open_max.lock().get("http://dead-0/"), Some(&4));
    assert_eq!(t.receivers.open.lock().values().sum::<usize>(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_drain_leaves_the_rest_in_the_outbox() {
    let t = Fixture::start().await;
    for _ in 0..6 {
        t.job("http://dead/").await;
    }
    t.log().await;
    let begun = tokio::time::Instant::now();
    t.deliverer.drain().await;
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    let log = t.log().await;
    assert_eq!(log.len(), 6);
    assert!(log.iter().all(|delivery| delivery.attempts == 0), "{log:?}");
    assert_eq!(t.receivers.calls.lock().len(), 4);
}
