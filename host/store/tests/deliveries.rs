//! The contract of every store about webhooks: one delivery for each end of a job with a webhook,
//! and none for a job that is deleted before it ended.

use std::sync::Arc;
use std::time::Duration;

use crate::support;
use crate::support::postgres::Database;
use crate::support::{
    START, TTL_MS, chunk, endpoint, job, open_postgres, open_with, with_ttl, worker,
};
use gristmill_core::catalog::CatalogStore;
use gristmill_core::id::{JobId, ShardId};
use gristmill_core::job::record::{Lease, NewJob, Outcome};
use gristmill_core::job::state::JobStatus;
use gristmill_core::limits::CRASHES_MAX;
use gristmill_core::signals::Signals;
use gristmill_core::store::{JobStore, RetryAnswer};
use gristmill_core::time::{Clock, ManualClock};
use gristmill_core::trace::{TraceContext, TraceState};
use gristmill_core::webhook::delivery::{
    AfterAttempt, Delivery, DeliveryId, DeliveryOutcome, DeliveryState, DeliveryStore,
    DueDeliveries,
};
use gristmill_store::{Settings, Store};
use gristmill_test_support::EndAttempt as _;
use gristmill_test_support::ModelStore;
use serde_json::{Value, json};
use tempfile::TempDir;

const URL: &str = "https://hooks.example/x?token=1";

trait AnyStore: JobStore + DeliveryStore + CatalogStore {}
impl<T: JobStore + DeliveryStore + CatalogStore> AnyStore for T {}

enum Kind {
    Model(Arc<ModelStore>),
    Memory(Arc<Store>),
    Journal(Option<Arc<Store>>, TempDir, Settings),
    Postgres(Option<Arc<Store>>, Database),
}

/// A store that can end without being closed and be opened again, unless it is in memory.
struct Fixture {
    kind: Kind,
    clock: Arc<ManualClock>,
    signals: Arc<Signals>,
}

impl Fixture {
    fn model() -> Self {
        let (clock, signals) = (Arc::new(ManualClock::new(START)), Arc::new(Signals::default()));
        let store = ModelStore::new(ShardId(7), clock.clone(), signals.clone());
        Self { kind: Kind::Model(Arc::new(store)), clock, signals }
    }

    fn memory() -> Self {
        let (clock, signals) = (Arc::new(ManualClock::new(START)), Arc::new(Signals::default()));
        let settings = support::settings();
        let store = Store::in_memory(ShardId(7), clock.clone(), signals.clone(), settings).unwrap();
        Self { kind: Kind::Memory(Arc::new(store)), clock, signals }
    }

    fn postgres() -> Option<Self> {
        let (clock, signals) = (Arc::new(ManualClock::new(START)), Arc::new(Signals::default()));
        let database = Database::new()?;
        let store = open_postgres(support::without_caches(), &database, &clock, &signals);
        Some(Self { kind: Kind::Postgres(Some(Arc::new(store)), database), clock, signals })
    }

    fn journal() -> Self {
        Self::journal_with(support::settings())
    }

    fn with_small_segments() -> Self {
        Self::journal_with(support::with_small_segments())
    }

    fn journal_with(settings: Settings) -> Self {
        let (clock, signals) = (Arc::new(ManualClock::new(START)), Arc::new(Signals::default()));
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(open_with(settings.clone(), dir.path(), &clock, &signals).0);
        Self { kind: Kind::Journal(Some(store), dir, settings), clock, signals }
    }

    fn store(&self) -> Arc<dyn AnyStore> {
        match &self.kind {
            Kind::Model(store) => store.clone(),
            Kind::Memory(store) => store.clone(),
            Kind::Journal(store, ..) | Kind::Postgres(store, _) => store.clone().unwrap(),
        }
    }

    fn crash(&mut self) {
        match &mut self.kind {
            Kind::Model(store) => store.restart(),
            Kind::Memory(_) => panic!("a store in memory does not survive"),
            Kind::Postgres(store, database) => {
                *store = None;
                let settings = support::without_caches();
                *store =
                    Some(Arc::new(open_postgres(settings, database, &self.clock, &self.signals)));
            }
            Kind::Journal(store, dir, settings) => {
                *store = None;
                let settings = settings.clone();
                let opened = open_with(settings, dir.path(), &self.clock, &self.signals);
                *store = Some(Arc::new(opened.0));
            }
        }
    }

    async fn submit(&self, webhook: Option<&str>) -> JobId {
        self.submit_job(NewJob { webhook: webhook.map(str::to_owned), ..job("a") }).await
    }

    async fn submit_job(&self, job: NewJob) -> JobId {
        support::submit(&*self.store(), job).await
    }

    async fn claim(&self) -> Lease {
        self.store().claim(&endpoint("a"), &worker("w")).await.unwrap().unwrap().lease
    }

    async fn finish(&self, outcome: Outcome) {
        let _ = self.store().finish(self.claim().await, outcome).await.unwrap();
    }

    async fn log(&self) -> Vec<Delivery> {
        self.store().deliveries(&endpoint("a"), 100).await.unwrap()
    }

    /// The attempts that start now.
    async fn due(&self) -> Vec<Delivery> {
        self.begin(&[]).await.due
    }

    async fn begin(&self, ended: &[DeliveryId]) -> DueDeliveries {
        self.store().begin_attempts(ended, &|_| None).await.unwrap()
    }

    async fn body(&self, delivery: &Delivery) -> Value {
        let body = self.store().delivery_body(delivery.id).await.unwrap().unwrap();
        assert_eq!(body.len() as u64, delivery.body_bytes);
        body.read().unwrap()
    }
}

/// Tests of functions that take a [`Fixture`]: with the model and each medium; those that crash the
/// store without the medium in memory.
macro_rules! contract {
    ($medium:ident: $($name:ident),* $(,)?) => {
        mod $medium {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(super::Fixture::$medium()).await })*
        }
    };
    (all: $all:tt, durable: $durable:tt) => {
        contract!(@over [model, journal, with_small_segments] $all $durable);
        contract!(@one memory $all);
        contract!(@postgres $all $durable);
    };
    (@over [$($medium:ident),*] $all:tt $durable:tt) => {
        $(contract!(@both $medium $all $durable);)*
    };
    (@both $medium:ident { $($all:ident,)* } { $($durable:ident,)* }) => {
        contract!($medium: $($all,)* $($durable,)*);
    };
    (@postgres { $($all:ident,)* } { $($durable:ident,)* }) => {
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $all() {
                if let Some(fixture) = super::Fixture::postgres() {
                    super::$all(fixture).await;
                }
            })*
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $durable() {
                if let Some(fixture) = super::Fixture::postgres() {
                    super::$durable(fixture).await;
                }
            })*
        }
    };
    (@one $medium:ident { $($name:ident,)* }) => {
        contract!($medium: $($name,)*);
    };
}

contract!(
    all: {
        each_end_has_a_delivery_with_the_document,
        the_streamed_chunks_are_the_output,
        a_job_without_a_webhook_has_no_delivery,
        a_retry_has_another_delivery_at_its_end,
        the_deliverer_is_notified,
    },
    durable: {
        a_job_deleted_before_its_end_has_no_delivery,
        attempts_are_counted_and_delivered_later,
        a_delivery_outlives_its_job_and_a_crash,
        a_delivery_has_the_trace_of_its_job,
        a_job_given_up_after_crashes_has_a_delivery,
        deleting_an_endpoint_deletes_its_deliveries,
        the_next_endpoint_of_a_name_sends_no_webhook_of_a_deleted_one,
    }
);

async fn each_end_has_a_delivery_with_the_document(t: Fixture) {
    let failed = Outcome::Failed("no".to_owned());
    let ends = [
        (Outcome::Completed(support::json("[9007199254740993]")), JobStatus::Completed),
        (failed, JobStatus::Failed),
        (Outcome::TimedOut, JobStatus::TimedOut),
    ];
    for (outcome, status) in ends {
        let id = t.submit(Some(URL)).await;
        let lease = t.claim().await;
        t.clock.advance(20);
        let _ = t.store().finish(lease, outcome).await.unwrap();
        let newest = t.log().await.remove(0);
        assert_eq!((newest.job, newest.job_status, newest.attempts), (id, status, 0));
        assert_eq!((newest.url.as_str(), newest.target().as_str()), (URL, "hooks.example:443"));
        let body = t.body(&newest).await;
        let fields: Vec<_> = body.as_object().unwrap().keys().map(String::as_str).collect();
        assert!(fields.contains(&"delayTime") && fields.contains(&"workerId"), "{body}");
        assert_eq!(body["id"], id.to_string());
        assert_eq!(body["status"], status.as_str());
        assert_eq!(body["executionTime"], 20);
        assert_eq!(body["input"], json!({ "n": 1 }));
        assert_eq!(body["webhook"], URL);
        assert_eq!(body.get("output").is_some(), status == JobStatus::Completed);
        assert_eq!(body.get("error").is_some(), status != JobStatus::Completed);
    }
    for is_running in [false, true] {
        let id = t.submit(Some(URL)).await;
        if is_running {
            t.claim().await;
        }
        t.store().cancel(&endpoint("a"), id).await.unwrap();
        // Cancelling again is no second end.
        t.store().cancel(&endpoint("a"), id).await.unwrap();
        assert_eq!(t.body(&t.log().await[0]).await["status"], "CANCELLED");
    }
    assert_eq!(t.log().await.len(), 5);
    assert_eq!(t.due().await.len(), 4, "one target");
}

async fn the_streamed_chunks_are_the_output(t: Fixture) {
    t.submit(Some(URL)).await;
    let lease = t.claim().await;
    let _ = t.store().append_chunks(lease, vec![chunk("1"), chunk("\"b\"")]).await.unwrap();
    t.store().shorten_ttl(&endpoint("a"), lease.job, TTL_MS).await.unwrap();
    let _ = t.store().append_chunks(lease, vec![chunk("3")]).await.unwrap();
    let _ = t.store().finish(lease, Outcome::Completed(support::json("null"))).await.unwrap();
    assert_eq!(t.body(&t.log().await[0]).await["output"], json!([1, "b", 3]));
}

async fn a_job_without_a_webhook_has_no_delivery(t: Fixture) {
    t.submit(None).await;
    t.finish(Outcome::TimedOut).await;
    assert!(t.log().await.is_empty());
}

async fn a_job_deleted_before_its_end_has_no_delivery(mut t: Fixture) {
    t.submit(Some(URL)).await;
    t.store().purge(&endpoint("a")).await.unwrap();
    let hook = Some(URL.to_owned());
    t.submit_job(with_ttl(NewJob { webhook: hook.clone(), ..job("a") }, 10_000)).await;
    t.claim().await;
    t.submit_job(with_ttl(NewJob { webhook: hook, ..job("a") }, 10_000)).await;
    t.clock.advance(10_000);
    t.store().expire().await.unwrap();
    assert!(t.log().await.is_empty());
    t.crash();
    assert!(t.log().await.is_empty());
}

async fn a_retry_has_another_delivery_at_its_end(t: Fixture) {
    let id = t.submit(Some(URL)).await;
    t.finish(Outcome::Failed("no".to_owned())).await;
    let first = t.log().await.remove(0);
    assert_eq!(t.store().retry(&endpoint("a"), id, None).await.unwrap(), RetryAnswer::Queued);
    assert_eq!(t.log().await.len(), 1, "not before its new end");
    t.finish(Outcome::Completed(support::json("1"))).await;
    let log = t.log().await;
    assert_eq!(log.len(), 2);
    assert_ne!(log[0].webhook_id(), log[1].webhook_id());
    assert_eq!(t.body(&log[0]).await["status"], "COMPLETED");
    assert_eq!(t.body(&first).await["status"], "FAILED", "what is told is what was");
}

async fn attempts_are_counted_and_delivered_later(mut t: Fixture) {
    t.submit(Some(URL)).await;
    t.finish(Outcome::TimedOut).await;
    let first = t.due().await.remove(0);
    let body = t.body(&first).await;
    let report = DeliveryOutcome { status: Some(500), error: Some("answered 500".to_owned()) };
    let again = AfterAttempt::TryAgain { after_ms: 10_000 };
    t.store().record_attempt(first.id, report.clone(), again).await.unwrap();
    for wait_ms in [10_000, 9_000, 8_000] {
        let begun = t.begin(&[first.id]).await;
        assert!(begun.due.is_empty());
        let wait = begun.next_at.map(|at| at.saturating_sub(t.clock.elapsed()));
        assert_eq!(wait, Some(Duration::from_millis(wait_ms)));
        t.clock.advance(1_000);
        t.crash();
    }
    t.clock.advance(7_000);
    let second = t.due().await.remove(0);
    assert_eq!((second.attempts, &second.last), (1, &report));
    assert_eq!(second.webhook_id(), first.webhook_id());
    assert_eq!(t.body(&second).await, body);
    let report = DeliveryOutcome { status: Some(204), error: None };
    t.store().record_attempt(first.id, report.clone(), AfterAttempt::Delivered).await.unwrap();
    t.crash();
    assert!(t.due().await.is_empty());
    assert_eq!(t.begin(&[]).await.next_at, None);
    let ended = t.log().await.remove(0);
    assert_eq!((ended.attempts, ended.last), (2, report));
    assert_eq!(ended.state, DeliveryState::Delivered { at: START.plus_millis(10_000) });
    assert_eq!(t.store().delivery_body(first.id).await.unwrap(), None);
    t.submit(Some(URL)).await;
    t.finish(Outcome::TimedOut).await;
    assert_ne!(t.due().await[0].id, first.id);
}

async fn a_delivery_outlives_its_job_and_a_crash(mut t: Fixture) {
    let id = t.submit(Some(URL)).await;
    t.finish(Outcome::Completed(support::json("\"out\""))).await;
    t.clock.advance(TTL_MS);
    t.store().expire().await.unwrap();
    t.crash();
    assert!(t.store().job(&endpoint("a"), id).await.unwrap().is_none());
    let body = t.body(&t.due().await[0]).await;
    assert_eq!((&body["output"], &body["input"]), (&json!("out"), &json!({ "n": 1 })));
}

async fn a_delivery_has_the_trace_of_its_job(mut t: Fixture) {
    let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let state = TraceState::from_headers(["congo=t61rcWkgMzE"]);
    let trace = TraceContext::from_header(header).map(|context| TraceContext { state, ..context });
    let (webhook, kept) = (Some(URL.to_owned()), trace.clone());
    let id = t.submit_job(NewJob { webhook, trace: kept, ..job("a") }).await;
    t.crash();
    assert_eq!(t.store().job(&endpoint("a"), id).await.unwrap().unwrap().trace, trace);
    t.finish(Outcome::Completed(support::json("1"))).await;
    assert_eq!(t.log().await[0].trace, trace);
    t.crash();
    assert_eq!(t.due().await[0].trace, trace);
}

async fn a_job_given_up_after_crashes_has_a_delivery(mut t: Fixture) {
    t.submit(Some(URL)).await;
    for _ in 0..CRASHES_MAX {
        t.claim().await;
        t.store().purge(&endpoint("none")).await.unwrap(); // the claim is on disk
        assert!(t.log().await.is_empty());
        t.crash();
    }
    let body = t.body(&t.log().await[0]).await;
    assert_eq!(body["status"], "FAILED");
    assert!(body["error"].as_str().unwrap().contains("host died"), "{body}");
}

async fn deleting_an_endpoint_deletes_its_deliveries(mut t: Fixture) {
    t.submit(Some(URL)).await;
    t.finish(Outcome::TimedOut).await;
    let id = t.due().await[0].id;
    t.store().delete_endpoint(&endpoint("a")).await.unwrap();
    for _ in 0..2 {
        assert!(t.log().await.is_empty() && t.due().await.is_empty());
        assert_eq!(t.store().delivery_body(id).await.unwrap(), None);
        t.crash();
    }
    t.store().record_attempt(id, DeliveryOutcome::default(), AfterAttempt::GiveUp).await.unwrap();
}

async fn the_next_endpoint_of_a_name_sends_no_webhook_of_a_deleted_one(mut t: Fixture) {
    let a = endpoint("a");
    for _ in 0..3 {
        t.submit(Some(URL)).await;
    }
    t.finish(Outcome::TimedOut).await;
    let running = t.claim().await;
    let ended = t.due().await[0].id;
    t.store().forget_endpoints(std::slice::from_ref(&a));
    assert_eq!(t.store().delivery_body(ended).await.unwrap(), None);
    // An attempt that ends during the deletion has no webhook either, and the next endpoint has its
    // own.
    let _ = t.store().finish(running, Outcome::TimedOut).await.unwrap();
    t.submit(Some(URL)).await;
    t.finish(Outcome::Completed(support::json("1"))).await;
    for _ in 0..2 {
        t.store().await_deletion(&a).await.unwrap();
        let log = t.log().await;
        assert_eq!((log.len(), log[0].job_status), (1, JobStatus::Completed), "{log:?}");
        assert_eq!(t.due().await.len(), 1);
        t.crash();
    }
}

async fn the_deliverer_is_notified(t: Fixture) {
    t.submit(Some(URL)).await;
    t.finish(Outcome::TimedOut).await;
    t.signals.delivery_to_send().await;
    assert_eq!(t.due().await.len(), 1);
}
