//! HTTP requests through the dispatcher, with a runtime whose behaviour is in the path.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use gristmill_core::billing::usage::{UsageFilter, UsageStore as _, UsageSum};
use gristmill_core::catalog::{Catalog, CatalogChange, CatalogEntry, CatalogKey};
use gristmill_core::deploy::endpoint::{Deployment, Endpoint, EndpointType};
use gristmill_core::deploy::template::Template;
use gristmill_core::http_call::{HttpBody, HttpCall, NoResponse};
use gristmill_core::http_calls::{HttpCalls as _, NoAnswer, WantedAnswer};
use gristmill_core::http_requests::{NewestRequests, ObservedRequest, deferred};
use gristmill_core::id::{EndpointId, KeyId, OwnerId, ShardId, TemplateId};
use gristmill_core::job::record::{Demand, JobRecord, NewJob};
use gristmill_core::job::state::JobStatus;
use gristmill_core::limits::OUTPUT_BYTES_MAX;
use gristmill_core::runtime::{
    Attempt, AttemptEnd, AttemptReport, AttemptSink, CannotRun, FailureReason, Reservation,
    Runtime, RuntimeLoad,
};
use gristmill_core::sharing::shares::Level;
use gristmill_core::signals::{QueueListener as _, Signals};
use gristmill_core::store::{JobStore as _, StoreError, SubmitAnswer};
use gristmill_core::time::{ManualClock, Timestamp};
use gristmill_core::trace::Tracer;
use gristmill_core::workers::Workers as _;
use gristmill_dispatch::{Dispatcher, Parts};
use gristmill_test_support::{ModelStore, new_job, usage_of_all_hours};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

/// Behaves as the path says.
#[derive(Debug)]
struct Site {
    sandboxes: Arc<Semaphore>,
    is_broken: AtomicBool,
    /// Nothing can be prepared meanwhile.
    is_loading: AtomicBool,
    running: AtomicU64,
    running_max: AtomicU64,
    /// Requests that were stopped.
    stopped: AtomicU64,
}

#[async_trait]
impl Runtime for Site {
    async fn prepare(&self, _: &Deployment) -> Result<(), CannotRun> {
        while self.is_loading.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        match self.is_broken.load(Ordering::SeqCst) {
            true => Err(CannotRun("it is broken".to_owned())),
            false => Ok(()),
        }
    }

    fn try_reserve(&self, _: &Arc<Deployment>, _: Level) -> Option<Reservation> {
        self.sandboxes.clone().try_acquire_owned().ok().map(Reservation::new)
    }

    async fn reserve(&self, _: &Arc<Deployment>, _: Level) -> Reservation {
        Reservation::new(self.sandboxes.clone().acquire_owned().await.unwrap())
    }

    fn retire(&self, _: &EndpointId, _: Option<&Arc<Deployment>>) {}

    fn load(&self) -> RuntimeLoad {
        RuntimeLoad::default()
    }

    async fn perform(&self, _: Reservation, _: Attempt, _: Arc<dyn AttemptSink>) -> AttemptReport {
        panic!("a handler of HTTP runs no jobs");
    }

    async fn serve(
        &self,
        reservation: Reservation,
        attempt: Attempt<HttpCall>,
        _: Arc<dyn AttemptSink>,
    ) -> AttemptReport<()> {
        let _room = reservation.downcast::<OwnedSemaphorePermit>().unwrap();
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.running_max.fetch_max(running, Ordering::SeqCst);
        let (HttpCall { request, answer, .. }, attempt) = attempt.split();
        let end = match request.uri().path() {
            "/" | "/ping" => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let _ = answer.send(Ok(Response::new(pieces(&["hello"], None))));
                AttemptEnd::Returned(())
            }
            "/wait" => self.wait(&attempt.stop).await,
            "/stream" => {
                let ended = attempt.stop.clone();
                let _ = answer.send(Ok(Response::new(pieces(&["a", "b"], Some(ended)))));
                self.wait(&attempt.stop).await
            }
            "/of-length" => {
                let body = pieces(&["a", "b"], Some(attempt.stop.clone()));
                let answered = Response::builder().header("content-length", "2").body(body);
                let _ = answer.send(Ok(answered.unwrap()));
                tokio::select! {
                    end = self.wait(&attempt.stop) => end,
                    () = tokio::time::sleep(Duration::from_secs(5)) => AttemptEnd::Returned(()),
                }
            }
            "/bare" => {
                let body = pieces(&["a"], Some(attempt.stop.clone()));
                let answered = Response::builder().status(204).body(body).unwrap();
                let _ = answer.send(Ok(answered));
                tokio::select! {
                    end = self.wait(&attempt.stop) => end,
                    () = tokio::time::sleep(Duration::from_secs(5)) => AttemptEnd::Returned(()),
                }
            }
            "/nothing" => AttemptEnd::Returned(()),
            "/invalid" => {
                let _ = answer.send(Err(NoResponse::Invalid("no".to_owned())));
                AttemptEnd::Returned(())
            }
            "/broken" => {
                let pieces = futures::stream::iter([
                    Ok(Frame::data(Bytes::from("a"))),
                    Err(std::io::Error::other("no more")),
                ]);
                let body = StreamBody::new(pieces).boxed_unsync();
                let _ = answer.send(Ok(Response::new(body)));
                AttemptEnd::Returned(())
            }
            "/large" => {
                let body = Full::new(vec![b'a'; OUTPUT_BYTES_MAX + 1].into());
                let body = body.map_err(|never| match never {}).boxed_unsync();
                let _ = answer.send(Ok(Response::new(body)));
                self.wait(&attempt.stop).await
            }
            "/fail" => AttemptEnd::Failed { reason: FailureReason::Trap, error: "no".to_owned() },
            "/late" => AttemptEnd::DeadlineReached,
            path => panic!("{path}?"),
        };
        self.running.fetch_sub(1, Ordering::SeqCst);
        end.into()
    }
}

impl Site {
    async fn wait(&self, stop: &CancellationToken) -> AttemptEnd<()> {
        stop.cancelled().await;
        self.stopped.fetch_add(1, Ordering::SeqCst);
        AttemptEnd::Stopped
    }
}

/// A body of these pieces, which ends when the token fires.
fn pieces(pieces: &[&'static str], ends: Option<CancellationToken>) -> HttpBody {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    for piece in pieces {
        sender.send(Ok::<_, Infallible>(Frame::data(Bytes::from(*piece)))).unwrap();
    }
    tokio::spawn(async move {
        if let Some(ends) = ends {
            ends.cancelled().await;
        }
        drop(sender);
    });
    let frames = futures::stream::poll_fn(move |context| receiver.poll_recv(context));
    StreamBody::new(frames).map_err(|never| match never {}).boxed_unsync()
}

struct Bench {
    site: Arc<Site>,
    dispatcher: Arc<Dispatcher>,
    catalog: Arc<Catalog>,
    store: Arc<ModelStore>,
    newest: Arc<NewestRequests>,
}

impl Bench {
    async fn new(workers_max: u32, sandboxes: usize) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_000_000)));
        let signals = Arc::new(Signals::default());
        let store = Arc::new(ModelStore::new(ShardId(1), clock.clone(), signals.clone()));
        let catalog = Arc::new(Catalog::open(store.clone(), clock.clone()).await.unwrap());
        create(&catalog, workers_max).await;
        let site = Arc::new(Site {
            sandboxes: Arc::new(Semaphore::new(sandboxes)),
            is_broken: AtomicBool::default(),
            is_loading: AtomicBool::default(),
            running: AtomicU64::default(),
            running_max: AtomicU64::default(),
            stopped: AtomicU64::default(),
        });
        let dispatcher = Dispatcher::start(Parts {
            store: store.clone(),
            catalog: catalog.clone(),
            runtime: site.clone(),
            signals,
            clock,
            logs: Arc::default(),
            tracer: Tracer::default(),
            guests: tokio::runtime::Handle::current(),
        });
        Self { site, dispatcher, catalog, store, newest: Arc::default() }
    }

    /// Creates the endpoint again.
    async fn create(&self, workers_max: u32) {
        create(&self.catalog, workers_max).await;
        self.dispatcher.refresh(&endpoint());
    }

    fn call(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Response<HttpBody>, NoAnswer>> + use<> {
        let deployment = self.catalog.deployment(&endpoint()).unwrap();
        let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
        let uri = format!("http://site{path}");
        let request = Request::get(uri).body(body).unwrap();
        let dispatcher = self.dispatcher.clone();
        let (newest, at) = (self.newest.clone(), Timestamp::from_millis(0));
        let incarnation = deployment.incarnation.clone();
        let observed = ObservedRequest::begin(newest, incarnation, at, "GET", path);
        let caller = KeyId::new("k").unwrap();
        let wanted =
            WantedAnswer { deployment, caller, request, affinity: None, trace: None, observed };
        async move { dispatcher.call(wanted).await }
    }

    /// Has the request answered later, and returns the record of its job at the end.
    async fn deferred(&self, path: &str) -> JobRecord {
        let incarnation = self.catalog.deployment(&endpoint()).unwrap().incarnation.clone();
        let request = Request::get(format!("http://site{path}")).body(Bytes::new()).unwrap();
        let job = NewJob {
            input: deferred::input(&request),
            incarnation,
            ..new_job(ShardId(1), OwnerId::new("o").unwrap(), endpoint())
        };
        let id = job.id;
        assert_eq!(self.store.submit(job).await.unwrap(), SubmitAnswer::Queued);
        loop {
            let record = self.store.job(&endpoint(), id).await.unwrap().unwrap();
            if record.status.is_final() {
                return *record;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The usage in the store.
    async fn billed(&self) -> UsageSum {
        let all = usage_of_all_hours(UsageFilter::default(), 9);
        let mut sum = UsageSum::default();
        for row in self.store.usage(&all).await.unwrap() {
            assert_eq!((row.key.endpoint, row.key.owner.as_str()), (endpoint(), "o"));
            sum.add(&row.sum);
        }
        sum
    }

    /// Waits until so many requests were stopped, and none runs.
    async fn until_stopped(&self, count: u64) {
        let wait = async {
            while self.site.stopped.load(Ordering::SeqCst) != count
                || self.site.running.load(Ordering::SeqCst) != 0
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), wait).await.expect("they are not stopped");
    }
}

fn endpoint() -> EndpointId {
    EndpointId::new("site").unwrap()
}

async fn create(catalog: &Catalog, workers_max: u32) {
    let owner = OwnerId::new("o").unwrap();
    let template = Template::new(TemplateId::new("t").unwrap(), owner.clone(), "i:latest");
    let at = Timestamp::from_millis(0);
    let mut endpoint = Endpoint::new(endpoint(), owner, template.id.clone(), at);
    endpoint.kind = EndpointType::LoadBalancer;
    endpoint.settings.workers_max = workers_max;
    endpoint.settings.http.queue_timeout_ms = 1_000;
    let entries = [CatalogEntry::Template(template), CatalogEntry::Endpoint(endpoint)];
    put(catalog, entries.map(CatalogChange::Put).into()).await;
}

async fn put(catalog: &Catalog, changes: Vec<CatalogChange>) {
    catalog.change(|_| Ok::<_, StoreError>((changes, ()))).await.unwrap();
}

async fn text(answer: Response<HttpBody>) -> Bytes {
    answer.into_body().collect().await.unwrap().to_bytes()
}

#[tokio::test(start_paused = true)]
async fn requests_are_answered_by_as_many_workers_as_the_endpoint_has() {
    let bench = Bench::new(4, 100).await;
    let answers = futures::future::join_all((0..32).map(|_| bench.call("/"))).await;
    for answer in answers {
        assert_eq!(text(answer.unwrap()).await, "hello");
    }
    assert_eq!(bench.site.running_max.load(Ordering::SeqCst), 4);
    assert_eq!(bench.dispatcher.counts(&endpoint()).running, 0);
}

#[tokio::test(start_paused = true)]
async fn each_end_without_an_answer_has_its_reason() {
    let bench = Bench::new(4, 100).await;
    let failed = |reason, error: &str| NoAnswer::Failed { reason, error: error.to_owned() };
    for (path, expected) in [
        ("/fail", failed(FailureReason::Trap, "no")),
        (
            "/nothing",
            failed(FailureReason::InvalidOutput, "the handler returned without an answer"),
        ),
        ("/invalid", NoResponse::Invalid("no".to_owned()).into()),
        ("/late", NoAnswer::TimedOut(600_000)),
    ] {
        assert_eq!(bench.call(path).await.unwrap_err(), expected, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_its_time_and_no_longer() {
    let bench = Bench::new(1, 100).await;
    let first = tokio::spawn(bench.call("/wait"));
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(bench.call("/").await.unwrap_err(), NoAnswer::Busy);
    first.abort();
    bench.until_stopped(1).await;
    assert_eq!(text(bench.call("/").await.unwrap()).await, "hello");
    // The same without a sandbox.
    let bench = Bench::new(4, 0).await;
    assert_eq!(bench.call("/").await.unwrap_err(), NoAnswer::Busy);
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(bench.dispatcher.counts(&endpoint()).throttled, 0, "nobody waits any more");
}

#[tokio::test(start_paused = true)]
async fn a_request_for_a_broken_component_waits_until_it_is_mended() {
    let bench = Bench::new(4, 100).await;
    bench.site.is_broken.store(true, Ordering::SeqCst);
    let refused = bench.call("/").await.unwrap_err();
    assert_eq!(refused, NoAnswer::CannotRun("it is broken".to_owned()));
    bench.site.is_broken.store(false, Ordering::SeqCst);
    // The component is tried again after some seconds, and each request asks for it.
    let mended = async {
        while bench.call("/").await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), mended).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_ping_is_answered_by_the_host_while_the_component_is_loaded() {
    let bench = Bench::new(1, 100).await;
    bench.site.is_loading.store(true, Ordering::SeqCst);
    assert_eq!(bench.call("/ping").await.unwrap().status(), 204);
    let other = tokio::spawn(bench.call("/"));
    tokio::time::sleep(Duration::from_millis(500)).await;
    bench.site.is_loading.store(false, Ordering::SeqCst);
    assert_eq!(other.await.unwrap().unwrap().status(), 200);
    assert_eq!(text(bench.call("/ping").await.unwrap()).await, "hello");
    // A busy worker is no reason.
    let busy = tokio::spawn(bench.call("/wait"));
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(bench.call("/ping").await.unwrap_err(), NoAnswer::Busy);
    busy.abort();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_ends_its_request() {
    let bench = Bench::new(1, 100).await;
    // While it waits for the head, while it reads, and while it waits for a worker.
    let waiting = tokio::spawn(bench.call("/wait"));
    tokio::time::sleep(Duration::from_millis(10)).await;
    let behind = tokio::spawn(bench.call("/wait"));
    tokio::time::sleep(Duration::from_millis(10)).await;
    behind.abort();
    waiting.abort();
    bench.until_stopped(1).await;
    let mut body = bench.call("/stream").await.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "a");
    drop(body);
    bench.until_stopped(2).await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_go_on_when_its_client_has_everything() {
    let bench = Bench::new(1, 100).await;
    let mut body = bench.call("/of-length").await.unwrap().into_body();
    for piece in ["a", "b"] {
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), piece);
    }
    drop(body);
    tokio::time::sleep(Duration::from_secs(6)).await;
    // The body of such an answer is not asked for at all.
    drop(bench.call("/bare").await.unwrap());
    tokio::time::sleep(Duration::from_secs(6)).await;
    bench.until_stopped(0).await;
}

#[tokio::test(start_paused = true)]
async fn the_line_of_an_endpoint_is_bounded() {
    let bench = Bench::new(1, 0).await;
    let waiting: Vec<_> = (0..1_001).map(|_| tokio::spawn(bench.call("/"))).collect();
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(waiting.iter().filter(|call| call.is_finished()).count(), 1);
    for call in waiting {
        assert_eq!(call.await.unwrap().unwrap_err(), NoAnswer::Busy);
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_are_requests_that_are_answered_later() {
    let bench = Bench::new(1, 100).await;
    for (path, status, error) in [
        ("/", JobStatus::Completed, None),
        ("/fail", JobStatus::Failed, Some("no")),
        ("/nothing", JobStatus::Failed, Some("the handler returned without an answer")),
        ("/invalid", JobStatus::Failed, Some("no")),
        ("/broken", JobStatus::Failed, Some("the answer broke off: no more")),
        ("/large", JobStatus::Failed, Some("the answer is larger than 20971520 bytes")),
        ("/late", JobStatus::TimedOut, None),
    ] {
        let record = bench.deferred(path).await;
        assert_eq!(record.status, status, "{path}: {record:?}");
        let begins = error.is_none_or(|error| record.error.as_ref().unwrap().starts_with(error));
        assert!(begins, "{path}: {record:?}");
    }
    bench.until_stopped(1).await;
    let record = bench.deferred("/").await;
    let output = bench.store.output(record.id).await.unwrap().unwrap();
    assert_eq!(deferred::answer(&output).unwrap().into_body(), "hello");
}

#[tokio::test(start_paused = true)]
async fn jobs_and_requests_share_the_workers() {
    let bench = Bench::new(2, 100).await;
    let later = futures::future::join_all((0..8).map(|_| bench.deferred("/")));
    let now = futures::future::join_all((0..8).map(|_| bench.call("/")));
    let (later, now) = tokio::join!(later, now);
    assert!(later.iter().all(|record| record.status == JobStatus::Completed));
    assert!(now.iter().all(Result::is_ok));
    assert_eq!(bench.site.running_max.load(Ordering::SeqCst), 2);
}

/// The database may be away, or the disk full: then jobs wait that no worker can claim.
#[tokio::test(start_paused = true)]
async fn jobs_that_cannot_be_claimed_keep_no_request_waiting() {
    let bench = Bench::new(1, 100).await;
    let of_jobs = Demand { version: 1_000, jobs: 5, claimable: 5, ..Demand::default() };
    bench.dispatcher.demand_changed(&endpoint(), of_jobs);
    for _ in 0..5 {
        assert_eq!(text(bench.call("/").await.unwrap()).await, "hello");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_endpoint_answers_nothing() {
    let bench = Bench::new(1, 100).await;
    let late = bench.call("/");
    let running = tokio::spawn(bench.call("/"));
    tokio::time::sleep(Duration::from_millis(10)).await;
    let behind = tokio::spawn(bench.call("/"));
    tokio::time::sleep(Duration::from_millis(10)).await;
    put(&bench.catalog, vec![CatalogChange::Delete(CatalogKey::Endpoint(endpoint()))]).await;
    bench.dispatcher.refresh(&endpoint());
    assert_eq!(behind.await.unwrap().unwrap_err(), NoAnswer::Stopped);
    assert_eq!(text(running.await.unwrap().unwrap()).await, "hello");
    // Nor does the next endpoint with its id, which may be another owner's.
    bench.create(1).await;
    assert_eq!(late.await.unwrap_err(), NoAnswer::Stopped);
    assert_eq!(text(bench.call("/").await.unwrap()).await, "hello");
}

#[tokio::test(start_paused = true)]
async fn each_attempt_is_billed_once_with_its_bytes() {
    let bench = Bench::new(1, 100).await;
    assert_eq!(text(bench.call("/").await.unwrap()).await, "hello");
    for path in ["/fail", "/late", "/nothing"] {
        bench.call(path).await.unwrap_err();
    }
    let mut body = bench.call("/stream").await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    // No worker begins this one.
    assert_eq!(bench.call("/").await.unwrap_err(), NoAnswer::Busy);
    drop(body);
    bench.until_stopped(1).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(bench.billed().await.jobs, 0, "the sums wait");
    bench.dispatcher.settle().await;
    let billed = bench.billed().await;
    assert_eq!((billed.jobs, billed.bytes_out), (5, 6));
    bench.dispatcher.settle().await;
    assert_eq!(bench.billed().await, billed);
    let incarnation = bench.catalog.deployment(&endpoint()).unwrap().incarnation.clone();
    let shown = bench.newest.read(&incarnation, 9, |_| true);
    let codes: Vec<_> =
        shown.iter().rev().map(|one| (one.worker.is_some(), one.bytes_out)).collect();
    let expected = [(true, 5), (true, 0), (true, 0), (true, 0), (false, 0), (true, 1)];
    assert_eq!(codes, expected);
}

#[tokio::test(start_paused = true)]
async fn sums_outlive_their_endpoint_and_a_drain_bills_no_stopped_request() {
    let bench = Bench::new(2, 100).await;
    text(bench.call("/").await.unwrap()).await;
    bench
        .catalog
        .change(|_| {
            let deleted = CatalogChange::Delete(CatalogKey::Endpoint(endpoint()));
            Ok::<_, StoreError>((vec![deleted], ()))
        })
        .await
        .unwrap();
    bench.dispatcher.refresh(&endpoint());
    bench.dispatcher.settle().await;
    assert_eq!(bench.billed().await.jobs, 1);
    bench.create(2).await;
    let stopped = tokio::spawn(bench.call("/wait"));
    tokio::time::sleep(Duration::from_millis(10)).await;
    bench.dispatcher.drain(Duration::ZERO).await;
    assert_eq!(stopped.await.unwrap().unwrap_err(), NoAnswer::Stopped);
    bench.dispatcher.settle().await;
    assert_eq!(bench.billed().await.jobs, 1);
}
