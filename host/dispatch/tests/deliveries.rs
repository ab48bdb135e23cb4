//! The deliverer with the in-memory store, and receivers whose host's name determines their answer.
//! Time is a manual clock for the store and tokio's paused clock for the receivers.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use gristmill_core::catalog::{Catalog, CatalogChange, CatalogEntry};
use gristmill_core::deploy::endpoint::Endpoint;
use gristmill_core::deploy::template::Template;
use gristmill_core::id::{EndpointId, JobId, OwnerId, ShardId, TemplateId, WorkerId};
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{NewJob, Outcome};
use gristmill_core::signals::Signals;
use gristmill_core::store::{JobStore, RetryAnswer, StoreError, SubmitAnswer};
use gristmill_core::time::{ManualClock, Timestamp};
use gristmill_core::trace::Tracer;
use gristmill_core::webhook::delivery::{
    AfterAttempt, Delivery, DeliveryId, DeliveryOutcome, DeliveryState, DeliveryStore,
    DueDeliveries, OwnerOf,
};
use gristmill_core::webhook::signature::WebhookSecrets;
use gristmill_dispatch::{
    CallEnd, Deliverer, DeliveryParts, HttpSender, WebhookCall, WebhookSender,
};
use gristmill_egress::{AddressPolicy, Clients};
use gristmill_test_support::ModelStore;
use gristmill_test_support::new_job;
use gristmill_test_support::{ClaimEach as _, EndAttempt as _};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// The receiver `ok` answers 200, `dead` sends no answer for 10 s, `down` answers 503, and `inner`
/// must not be called.
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
    store: Arc<ModelStore>,
    clock: Arc<ManualClock>,
    catalog: Arc<Catalog>,
    receivers: Arc<Receivers>,
    secrets: WebhookSecrets,
    deliverer: Deliverer,
}

impl Fixture {
    async fn start() -> Self {
        let receivers = Arc::new(Receivers::default());
        Self::start_with(receivers.clone(), receivers).await
    }

    /// A deliverer whose calls `sender` makes.
    async fn start_with(sender: Arc<dyn WebhookSender>, receivers: Arc<Receivers>) -> Self {
        let (clock, signals) =
            (Arc::new(ManualClock::new(Timestamp::from_millis(5_000))), Arc::default());
        let signals: Arc<Signals> = signals;
        let store = Arc::new(ModelStore::new(ShardId(0), clock.clone(), signals.clone()));
        let (catalog, secrets) = catalog(store.clone(), clock.clone()).await;
        let deliverer = Deliverer::start(DeliveryParts {
            store: store.clone(),
            catalog: catalog.clone(),
            signals,
            clock: clock.clone(),
            sender,
            tracer: Tracer::default(),
        });
        Self { store, clock, catalog, receivers, secrets, deliverer }
    }

    /// A job that ends at once.
    async fn job(&self, webhook: &str) {
        self.job_of(&endpoint(), webhook).await;
    }

    async fn job_of(&self, endpoint: &EndpointId, webhook: &str) -> JobId {
        let job = NewJob {
            webhook: Some(webhook.to_owned()),
            ..new_job(ShardId(0), OwnerId::new("o").unwrap(), endpoint.clone())
        };
        let id = job.id;
        assert_eq!(self.store.submit(job).await, Ok(SubmitAnswer::Queued));
        self.end_jobs(endpoint).await;
        id
    }

    async fn end_jobs(&self, endpoint: &EndpointId) {
        let worker = WorkerId::new("w").unwrap();
        let claimed = self.store.claim_each(endpoint, &[worker]).await.unwrap();
        for job in claimed {
            let _ = self.store.finish(job.lease, Outcome::TimedOut).await.unwrap();
        }
    }

    async fn log(&self) -> Vec<Delivery> {
        self.log_of(&endpoint()).await
    }

    async fn log_of(&self, endpoint: &EndpointId) -> Vec<Delivery> {
        // Lets the deliverer do all that it can do now.
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        self.store.deliveries(endpoint, 10_000).await.unwrap()
    }

    /// Advances both clocks by so many seconds, second by second.
    async fn pass(&self, seconds: u64) {
        for _ in 0..seconds {
            self.log().await;
            self.clock.advance(1_000);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        self.log().await;
    }

    async fn delivered(&self) -> usize {
        let is_delivered = |d: &&Delivery| matches!(d.state, DeliveryState::Delivered { .. });
        self.log().await.iter().filter(is_delivered).count()
    }
}

fn endpoint() -> EndpointId {
    EndpointId::new("e").unwrap()
}

/// An endpoint of another owner.
fn other() -> EndpointId {
    EndpointId::new("other").unwrap()
}

async fn catalog(
    store: Arc<ModelStore>,
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
    let another = OwnerId::new("another").unwrap();
    let theirs = Template::new(TemplateId::new("theirs").unwrap(), another.clone(), "t:latest");
    let other = Endpoint::new(other(), another, theirs.id.clone(), Timestamp::from_millis(0));
    let changes = [
        CatalogEntry::Template(template),
        CatalogEntry::Endpoint(endpoint),
        CatalogEntry::Template(theirs),
        CatalogEntry::Endpoint(other),
    ];
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
async fn a_forbidden_receiver_is_given_up_at_once() {
    let t = Fixture::start().await;
    t.job("http://inner/").await;
    let given_up = t.log().await.remove(0);
    assert!(matches!(given_up.state, DeliveryState::GivenUp { .. }), "{given_up:?}");
    assert_eq!(given_up.attempts, 1);
}

#[tokio::test(start_paused = true)]
async fn dead_receivers_delay_no_other_endpoint() {
    let t = Fixture::start().await;
    for i in 0..15 {
        for _ in 0..20 {
            t.job(&format!("http://dead-{i}/")).await;
        }
    }
    for i in 0..100 {
        t.job(&format!("http://ok-{}/", i % 3)).await;
    }
    t.pass(40).await;
    assert_eq!(t.delivered().await, 100);
    let most = t.receivers.open_max.lock();
    assert!(most.values().all(|open| *open <= 4), "{most:?}");
    assert_eq!(t.receivers.open.lock().values().sum::<usize>(), 16, "the endpoint's share");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_dead_receivers_of_an_endpoint_do_not_delay_another_endpoint() {
    let t = Fixture::start().await;
    for i in 0..1_000 {
        t.job(&format!("http://dead-{i}/")).await;
    }
    t.pass(35).await;
    t.job_of(&other(), "http://ok/").await;
    let delivery = t.log_of(&other()).await.remove(0);
    assert!(matches!(delivery.state, DeliveryState::Delivered { .. }), "{delivery:?}");
    assert_eq!(t.receivers.open.lock().values().sum::<usize>(), 16);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_answers_is_served_before_failed_ones() {
    let t = Fixture::start().await;
    for i in 0..100 {
        t.job(&format!("http://dead-{i}/")).await;
    }
    // Each of them has failed once, and some of them twice.
    t.pass(80).await;
    t.job("http://ok/").await;
    t.pass(10).await;
    assert_eq!(t.delivered().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_during_a_call_ends_the_calls_of_the_endpoint() {
    // The catalog's change alone removes the webhooks: the next endpoint would sign them.
    let t = Fixture::start().await;
    for _ in 0..20 {
        t.job("http://dead/").await;
    }
    t.log().await;
    assert_eq!(t.receivers.calls.lock().len(), 4);
    // Deleted, and created again under the same name.
    let view = t.catalog.view();
    let old = view.deployments.get(&endpoint()).unwrap().endpoint.clone();
    let new = Endpoint { webhook_secrets: WebhookSecrets::generate(), ..(*old).clone() };
    let delete = CatalogChange::Delete(CatalogEntry::Endpoint((*old).clone()).key());
    for change in [delete, CatalogChange::Put(CatalogEntry::Endpoint(new))] {
        t.catalog.change(|_| Ok::<_, StoreError>((vec![change], ()))).await.unwrap();
    }
    t.pass(40).await;
    assert_eq!(t.receivers.calls.lock().len(), 4, "no attempt for what was deleted");
    assert!(t.log().await.is_empty());
    let next = t.catalog.deployment(&endpoint()).unwrap();
    assert_eq!(next.incarnation.metrics().totals().webhooks, [0; 3], "nor any in its counters");
    // The shares of the calls that were under way are back.
    for _ in 0..20 {
        t.job("http://dead/").await;
    }
    t.log().await;
    assert_eq!(t.receivers.open.lock().values().sum::<usize>(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_retried_during_its_call_has_two_calls() {
    let t = Fixture::start().await;
    let job = t.job_of(&endpoint(), "http://dead/").await;
    t.log().await;
    assert_eq!(t.store.retry(&endpoint(), job, None).await, Ok(RetryAnswer::Queued));
    t.end_jobs(&endpoint()).await;
    t.pass(70).await;
    let log = t.log().await;
    assert!(log.len() == 2 && log.iter().all(|delivery| delivery.attempts == 3), "{log:?}");
    let mut ids: Vec<_> = t.receivers.calls.lock().iter().map(|call| call.id.clone()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids, [format!("msg_{job}_0"), format!("msg_{job}_1")]);
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_jumps_neither_delays_nor_hastens_an_attempt() {
    for jump_ms in [-3_600_000, 3_600_000] {
        let t = Fixture::start().await;
        t.clock.advance(10_000_000);
        t.job("http://down/").await;
        assert_eq!(t.log().await.first().unwrap().attempts, 1);
        t.clock.jump(jump_ms);
        for (ms, attempts) in [(9_999, 1), (1, 2), (9_999, 2), (1, 3)] {
            t.clock.advance(ms);
            assert_eq!(t.log().await.first().unwrap().attempts, attempts, "{jump_ms}");
        }
    }
}

/// Set by the test, so that hanging lookups of names end.
static IS_OVER: AtomicBool = AtomicBool::new(false);

fn ask(host: &str) -> io::Result<Vec<SocketAddr>> {
    while host.starts_with("hangs") && !IS_OVER.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(vec![SocketAddr::from(([127, 0, 0, 1], 0))])
}

/// Runs in real time, since lookups take threads.
#[tokio::test]
async fn names_that_hang_take_no_attempt_from_a_receiver_that_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.read(&mut [0; 4_096]).await;
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        }
    });
    let allowed = vec![format!("answers.test:{port}").parse().unwrap()];
    let clients = Clients::with_names(AddressPolicy::default(), ask);
    let sender = HttpSender::with_clients(allowed, clients);
    let t = Fixture::start_with(Arc::new(sender), Arc::default()).await;
    for n in 0..100 {
        t.job(&format!("http://hangs-{n}.test/")).await;
    }
    t.log().await;
    for _ in 0..10 {
        t.job_of(&other(), &format!("http://answers.test:{port}/")).await;
    }
    // A second less than the 10 s that an attempt may take.
    let delivered = async {
        let is_delivered = |d: &Delivery| matches!(d.state, DeliveryState::Delivered { .. });
        while !t.log_of(&other()).await.iter().all(is_delivered) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(9), delivered).await;
    IS_OVER.store(true, Ordering::Relaxed);
    in_time.unwrap();
    let log = t.log_of(&other()).await;
    assert!(log.len() == 10 && log.iter().all(|delivery| delivery.attempts == 1), "{log:?}");
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

/// The store in memory, whose database is away for a time.
#[derive(Debug)]
struct AwayStore {
    store: Arc<ModelStore>,
    is_away: AtomicBool,
    bodies_read: AtomicUsize,
}

#[async_trait]
impl DeliveryStore for AwayStore {
    async fn begin_attempts(
        &self,
        ended: &[DeliveryId],
        owner_of: OwnerOf<'_>,
    ) -> Result<DueDeliveries, StoreError> {
        self.store.begin_attempts(ended, owner_of).await
    }

    async fn delivery_body(&self, id: DeliveryId) -> Result<Option<Json>, StoreError> {
        self.bodies_read.fetch_add(1, Ordering::SeqCst);
        if self.is_away.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable);
        }
        self.store.delivery_body(id).await
    }

    async fn record_attempt(
        &self,
        id: DeliveryId,
        report: DeliveryOutcome,
        next: AfterAttempt,
    ) -> Result<(), StoreError> {
        self.store.record_attempt(id, report, next).await
    }

    async fn deliveries(
        &self,
        endpoint: &EndpointId,
        count_max: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.store.deliveries(endpoint, count_max).await
    }

    async fn deliveries_of(
        &self,
        endpoint: &EndpointId,
        job: JobId,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.store.deliveries_of(endpoint, job).await
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_database_is_not_tried_with_each_webhook_in_turn() {
    let mut t = Fixture::start().await;
    t.deliverer.drain().await;
    let is_away = AtomicBool::new(true);
    let store =
        Arc::new(AwayStore { store: t.store.clone(), is_away, bodies_read: AtomicUsize::new(0) });
    t.deliverer = Deliverer::start(DeliveryParts {
        store: store.clone(),
        catalog: t.catalog.clone(),
        signals: Arc::default(),
        clock: t.clock.clone(),
        sender: t.receivers.clone(),
        tracer: Tracer::default(),
    });
    for _ in 0..200 {
        t.job("http://ok/").await;
    }
    t.pass(60).await;
    let read = store.bodies_read.load(Ordering::SeqCst);
    assert!((1..=13 * 4).contains(&read), "an endpoint's 4 attempts each 5 s: {read}");
    store.is_away.store(false, Ordering::SeqCst);
    t.pass(20).await;
    assert_eq!(t.delivered().await, 200);
}
