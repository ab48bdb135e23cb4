//! Calls over the in-memory store: calls that end before their job does, the output of a first
//! emit, and a job that is deleted between two reads. Time is tokio's paused clock, so nothing
//! sleeps.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use gristmill_core::access::key::{ApiKey, NewKey, Scope};
use gristmill_core::deploy::endpoint::{Deployment, Endpoint};
use gristmill_core::deploy::template::Template;
use gristmill_core::id::{EndpointId, JobId, OwnerId, ShardId, TemplateId, WorkerId};
use gristmill_core::incarnation::EndpointIncarnation;
use gristmill_core::job::loss::HostLoss;
use gristmill_core::job::payload::Json;
use gristmill_core::job::policy::{PolicyRequest, Strictness};
use gristmill_core::job::record::{Chunk, Lease, Outcome, Part};
use gristmill_core::job::state::JobStatus;
use gristmill_core::jobs::operations::{Jobs, SubmitMode, SubmitRequest};
use gristmill_core::limits::WAIT_MS;
use gristmill_core::signals::Signals;
use gristmill_core::store::{Fenced, JobStore as _};
use gristmill_core::time::{ManualClock, Timestamp};
use gristmill_test_support::ModelStore;
use gristmill_test_support::NoWorkers;
use gristmill_test_support::{ClaimEach as _, EndAttempt as _};
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use super::job::{Client, OwnedJob};
use super::{answer, events};
use crate::answer::error::{ApiError, ErrorCode};
use crate::identity::auth::KeyCheck;
use crate::limits::checks::Pages;
use crate::limits::in_flight::InFlight;
use crate::queue::results::Memory;

struct Bench {
    store: Arc<ModelStore>,
    jobs: Arc<Jobs>,
    deployment: Arc<Deployment>,
}

impl Bench {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_000_000)));
        let signals = Arc::new(Signals::default());
        let store = Arc::new(ModelStore::new(ShardId(1), clock, signals.clone()));
        let jobs = Arc::new(Jobs::new(
            store.clone(),
            signals,
            Arc::new(NoWorkers),
            Strictness::Refuse,
            Arc::default(),
        ));
        let (owner, template) = (OwnerId::new("o").unwrap(), TemplateId::new("t").unwrap());
        let at = Timestamp::from_millis(0);
        let endpoint = EndpointId::new("e").unwrap();
        let deployment = Arc::new(Deployment {
            endpoint: Arc::new(Endpoint::new(endpoint, owner.clone(), template.clone(), at)),
            template: Arc::new(Template::new(template, owner, "i:latest")),
            component: None,
            input_schema: None,
            volume: None,
            incarnation: EndpointIncarnation::default(),
        });
        Self { store, jobs, deployment }
    }

    fn submit(&self) -> impl Future<Output = Result<OwnedJob, ApiError>> + use<> {
        let request = SubmitRequest {
            owner: OwnerId::new("o").unwrap(),
            input: Json::from_value(&serde_json::json!({ "openai_route": "/v1/models" })),
            policy: PolicyRequest::default(),
            webhook: None,
            s3_config: None,
            idempotency: None,
            mode: SubmitMode::Sync { kept_ms: 0 },
            tags: None,
            trace: None,
            note: None,
        };
        let (jobs, deployment) = (self.jobs.clone(), self.deployment.clone());
        let new = NewKey {
            name: String::new(),
            owner: request.owner.clone(),
            scopes: vec![Scope::Submit],
            endpoints: None,
            expires_at: None,
        };
        let key = ApiKey::generate(new, Timestamp::from_millis(0)).0;
        let client = Client {
            key: KeyCheck::none(),
            memory: Memory::new(&InFlight::of_results(), &key.id),
            pages: Pages::default().of(Arc::new(key)),
        };
        OwnedJob::submit(jobs, client, deployment, request)
    }

    async fn claim(&self) -> Lease {
        let worker = WorkerId::new("w").unwrap();
        let claimed = self.store.claim_each(&self.deployment.endpoint.id, &[worker]).await.unwrap();
        claimed.first().expect("a job waits").lease
    }

    async fn emit(&self, lease: Lease, output: &str) {
        let output = Json::parse(output.to_owned()).unwrap();
        let chunk = Chunk { output, metrics: None, part: None };
        assert_eq!(self.store.append_chunks(lease, vec![chunk]).await, Ok(Fenced::Applied));
    }

    async fn finish(&self, lease: Lease, returned: &str) {
        let outcome = Outcome::Completed(Json::parse(returned.to_owned()).unwrap());
        assert_eq!(self.store.finish(lease, outcome).await, Ok(Fenced::Applied));
    }

    async fn status(&self, id: JobId) -> Option<JobStatus> {
        let record = self.store.job(&self.deployment.endpoint.id, id).await.unwrap();
        record.map(|record| record.status)
    }

    /// Lets tasks run until the job is cancelled; fails after a second of paused time.
    async fn until_cancelled(&self, id: JobId) {
        for _ in 0..1_000 {
            if self.status(id).await == Some(JobStatus::Cancelled) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("the job is {:?}, not cancelled", self.status(id).await);
    }
}

async fn next_text(body: &mut Body) -> String {
    let frame = body.frame().await.expect("the body goes on").unwrap();
    String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
}

fn refusal(answer: Result<Response, ApiError>) -> ErrorCode {
    answer.expect_err("nobody answered").code()
}

#[tokio::test(start_paused = true)]
async fn a_call_that_has_waited_long_enough_cancels_its_job() {
    let bench = Bench::new();
    for is_stream in [false, true] {
        let begun = Instant::now();
        let job = bench.submit().await.unwrap();
        let id = job.id();
        bench.claim().await;
        let answer = if is_stream { events::answer(job).await } else { answer::answer(job).await };
        assert_eq!(refusal(answer), ErrorCode::WaitOver);
        assert_eq!(begun.elapsed().as_millis(), u128::from(WAIT_MS.max));
        assert_eq!(bench.status(id).await, Some(JobStatus::Cancelled));
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_by_another_caller_ends_the_call() {
    let bench = Bench::new();
    for is_stream in [false, true] {
        let job = bench.submit().await.unwrap();
        bench.jobs.cancel(&bench.deployment.endpoint.id, job.id()).await.unwrap();
        let answer = if is_stream { events::answer(job).await } else { answer::answer(job).await };
        assert_eq!(refusal(answer), ErrorCode::JobCancelled);
    }
}

#[tokio::test(start_paused = true)]
async fn a_closing_host_answers_at_once_and_leaves_no_job() {
    let bench = Bench::new();
    let (waiting, streaming) = (bench.submit().await.unwrap(), bench.submit().await.unwrap());
    let ids = [waiting.id(), streaming.id()];
    let (_, lease) = (bench.claim().await, bench.claim().await);
    bench.emit(lease, "1").await;
    let mut body = events::answer(streaming).await.unwrap().into_body();
    assert_eq!(next_text(&mut body).await, "data: 1\n\n");

    bench.jobs.stop_waiting();
    assert_eq!(refusal(answer::answer(waiting).await), ErrorCode::Unavailable);
    let rest = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    assert!(rest.starts_with("data: {\"error\":{") && !rest.contains("[DONE]"), "{rest}");
    for id in ids {
        assert_eq!(bench.status(id).await, Some(JobStatus::Cancelled));
    }
}

/// Clients of this interface cannot discard the text that they have received.
#[tokio::test(start_paused = true)]
async fn a_stream_whose_job_begins_again_ends_with_an_error_event() {
    let bench = Bench::new();
    let job = bench.submit().await.unwrap();
    let id = job.id();
    let lost = bench.claim().await;
    bench.emit(lost, "1").await;
    let mut body = events::answer(job).await.unwrap().into_body();
    assert_eq!(next_text(&mut body).await, "data: 1\n\n");

    assert_eq!(bench.store.host_lost(lost, HostLoss::Crash).await, Ok(Fenced::Applied));
    let next = bench.claim().await;
    bench.emit(next, "1").await;
    let rest = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    assert!(rest.starts_with("data: {\"error\":{") && !rest.contains("[DONE]"), "{rest}");
    assert!(rest.contains("the job was started again"), "{rest}");
    bench.until_cancelled(id).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_disconnects_while_its_job_is_stored_leaves_no_job() {
    let bench = Bench::new();
    let mut submitting = Box::pin(bench.submit());
    assert!(futures::poll!(&mut submitting).is_pending());
    drop(submitting);
    // The submission continues, as a store's would, and ends in a cancel.
    for _ in 0..1_000 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        if bench.store.stats().operations >= 2 {
            break;
        }
    }
    assert_eq!(bench.store.stats().jobs, 1);
    let counts = bench.store.counts(&bench.deployment.endpoint.id).await.unwrap();
    assert_eq!((counts.in_queue, counts.in_progress), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_cancels_its_job_and_one_that_ended_does_not() {
    let bench = Bench::new();
    let job = bench.submit().await.unwrap();
    let id = job.id();
    let lease = bench.claim().await;
    bench.emit(lease, "1").await;
    let response = events::answer(job).await.unwrap();
    assert_eq!(bench.status(id).await, Some(JobStatus::InProgress));
    drop(response);
    bench.until_cancelled(id).await;

    let job = bench.submit().await.unwrap();
    let lease = bench.claim().await;
    bench.finish(lease, "7").await;
    let operations = bench.store.stats().operations;
    drop(answer::answer(job).await.unwrap());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.store.stats().operations, operations, "there was nothing to cancel");
}

#[tokio::test(start_paused = true)]
async fn the_chunks_of_the_first_emit_are_one_output() {
    let bench = Bench::new();
    let chunk = |text: &str, part| {
        let output = Json::parse(text.to_owned()).unwrap();
        Chunk { output, metrics: None, part }
    };
    let part = |index, count| Some(Part { index, count });
    let cases = [
        (vec![chunk(r#""a""#, None)], r#""a""#),
        (vec![chunk(r#""a""#, None), chunk(r#""b""#, None), chunk(r#""c""#, part(1, 0))], r#""a""#),
        (
            vec![
                chunk(r#""a\n""#, None),
                chunk(r#""é""#, part(1, 0)),
                chunk(r#""\tz""#, part(2, 0)),
                chunk("7", None),
            ],
            r#""a\né\tz""#,
        ),
        (
            vec![
                chunk(r#""[1,""#, part(0, 2)),
                chunk(r#""2]""#, part(1, 2)),
                chunk(r#""x""#, None),
            ],
            "[1,2]",
        ),
    ];
    for (chunks, expected) in cases {
        let job = bench.submit().await.unwrap();
        let lease = bench.claim().await;
        assert_eq!(bench.store.append_chunks(lease, chunks).await, Ok(Fenced::Applied));
        bench.finish(lease, "null").await;
        let answer = answer::answer(job).await.unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_deleted_between_two_reads_has_no_document() {
    let bench = Bench::new();
    let endpoint = &bench.deployment.endpoint.id;
    let job = bench.submit().await.unwrap();
    let lease = bench.claim().await;
    bench.finish(lease, "7").await;
    let record = bench.jobs.record(endpoint, job.id()).await.unwrap().unwrap();
    let document = bench.jobs.document(record.clone()).await.unwrap().unwrap();
    assert_eq!(document.output.unwrap().as_str(), "7");
    bench.jobs.shorten_ttl(endpoint, job.id(), 0).await.unwrap();
    assert!(bench.jobs.document(record).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_gets_comments() {
    let bench = Bench::new();
    let job = bench.submit().await.unwrap();
    let lease = bench.claim().await;
    bench.emit(lease, "1").await;
    let mut body = events::answer(job).await.unwrap().into_body();
    assert_eq!(next_text(&mut body).await, "data: 1\n\n");
    assert_eq!(next_text(&mut body).await, ": wait\n\n");
    bench.emit(lease, "2").await;
    bench.finish(lease, "null").await;
    let rest = body.collect().await.unwrap().to_bytes();
    assert!(rest.ends_with(b"data: 2\n\ndata: [DONE]\n\n"), "{rest:?}");
}
