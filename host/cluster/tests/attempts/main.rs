//! An active host and its runners in one process, over the real protocol. Their runtimes do what
//! the input of an attempt says.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod adoption;
mod hosts;
mod scripted;
mod sink;
mod successors;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gristmill_core::catalog::{CatalogChange, CatalogKey};
use gristmill_core::deploy::endpoint::EndpointType;
use gristmill_core::id::{JobId, OwnerId, ShardId, SubmissionKind, VolumeId, WorkerId};
use gristmill_core::job::handler_call::CallError;
use gristmill_core::job::loss::HostLoss;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{Part, S3Config};
use gristmill_core::job::retry::RetryWish;
use gristmill_core::job::state::{Claim, JobStatus};
use gristmill_core::metrics::endpoint::RequestEnd;
use gristmill_core::runtime::{Attempt, AttemptEnd, AttemptKey, FailureReason, Runtime};
use gristmill_core::sharing::shares::Level;
use gristmill_core::store::StoreError;
use gristmill_core::trace::TraceContext;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::hosts::{Active, COMPONENT, Connected, endpoint};
use crate::scripted::text;
use crate::sink::Sink;

/// Longest time of anything that a test waits for.
const PATIENCE: Duration = Duration::from_secs(20);

const MIB: u64 = 1 << 20;

fn job_id() -> JobId {
    static ID: std::sync::OnceLock<JobId> = std::sync::OnceLock::new();
    *ID.get_or_init(|| JobId::generate(SubmissionKind::Async, ShardId(1)))
}

/// The key of another attempt at this job.
fn attempt_key() -> AttemptKey {
    static CLAIMS: AtomicU32 = AtomicU32::new(0);
    let claim = Claim(CLAIMS.fetch_add(1, Ordering::SeqCst));
    AttemptKey { job: job_id(), claim, worker: WorkerId::new("w1-v1").unwrap() }
}

async fn eventually(is_true: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < deadline, "it never happened");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn returned(end: AttemptEnd) -> Value {
    match end {
        AttemptEnd::Returned(output) => output.read().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_attempt_on_a_runner_has_everything_that_its_handler_needs() {
    let active = Active::new().await;
    let runner = active.connect("runner", 1).await;
    let _taken = active.occupy();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let attempt = Attempt {
        s3_config: Some(Arc::new(S3Config { bucket_name: "flour".into(), ..S3Config::default() })),
        trace: TraceContext::from_header(trace),
        ..active.attempt(&json!({ "do": "show" }))
    };
    let report = active.perform(attempt, Arc::default()).await;
    assert_eq!((report.usage.run_us, report.usage.fuel), (7, Some(9)));
    let shown = returned(report.end);
    let expected = json!({
        "job": job_id().to_string(), "number": 3, "image": "mill",
        "env": [["STONE", "granite"]], "component": COMPONENT, "bucket": "flour",
        "trace": [trace, null], "timeout": 60_000, "soon": true,
    });
    assert_eq!(shown, expected);
    let known = runner.source.components.lock().clone();
    assert_eq!(known.len(), 2, "of the greeting, and of the deployment");
    assert!(known.iter().all(|one| one.digest.to_string() == COMPONENT));
    let hosts = active.runners.hosts();
    assert_eq!((&*hosts[0].address, &*hosts[0].version, hosts[0].cores), ("192.0.2.1", "1.2.3", 4));
    assert_eq!(hosts[0].running, 0);
}

#[tokio::test]
async fn the_end_of_an_attempt_is_that_of_its_runner() {
    let active = Arc::new(Active::new().await);
    let runner = active.connect("runner", 2).await;
    let _taken = active.occupy();
    assert_eq!(returned(active.run(json!({ "do": "host" })).await), "runner");
    match active.run(json!({ "do": "fail" })).await {
        AttemptEnd::Failed { reason: FailureReason::Trap, error } => {
            assert_eq!(error, "ground down")
        }
        other => panic!("{other:?}"),
    }
    for (wish, expected) in [
        (json!(null), None),
        (json!(0), Some(RetryWish::After(0))),
        (json!(604_800_000), Some(RetryWish::After(604_800_000))),
        (json!("never"), Some(RetryWish::Never)),
    ] {
        let attempt = active.attempt(&json!({ "do": "fail", "wish": wish }));
        let report = active.perform(attempt, Arc::default()).await;
        assert_eq!(report.wish, expected);
    }
    // 20 MB in both directions.
    let value = "x".repeat(20_000_000);
    assert_eq!(returned(active.run(json!({ "do": "echo", "value": value })).await), value);
    let attempt = active.attempt(&json!({ "do": "wait" }));
    let stop = attempt.stop.clone();
    let task = active.begin(&runner, attempt).await;
    stop.cancel();
    let report = task.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::Stopped), "{report:?}");
    assert_eq!(report.usage.run_us, 7, "it was stopped by the runner, which knows its usage");
    // The sandboxes are free again.
    active.until_ready("e").await;
}

#[tokio::test]
async fn chunks_progress_and_lines_arrive_in_order() {
    let active = Active::new().await;
    let _runner = active.connect("runner", 1).await;
    let _taken = active.occupy();
    let sink = Arc::new(Sink::default());
    let attempt = active.attempt(&json!({ "do": "emit", "count": 300, "bytes": 10_000 }));
    let report = active.perform(attempt, sink.clone()).await;
    assert!(matches!(report.end, AttemptEnd::Returned(_)), "{report:?}");
    let chunks = sink.chunks.lock();
    assert_eq!(chunks.len(), 300);
    for (n, chunk) in chunks.iter().enumerate() {
        let value: Value = chunk.output.read().unwrap();
        assert_eq!(value[0], n);
    }
    assert_eq!((chunks[0].metrics.as_ref(), &chunks[0].part), (Some(&text("first")), &None));
    assert_eq!(
        (chunks[1].metrics.as_ref(), chunks[1].part),
        (None, Some(Part { index: 0, count: 2 }))
    );
    let lines: Vec<_> = (0..300).map(|n| format!("warn line {n}")).collect();
    assert_eq!(*sink.lines.lock(), lines);
    assert_eq!(sink.progress.lock().last().unwrap(), "299", "the last value is not lost");
    assert_eq!(*sink.requests.lock(), RequestEnd::ALL.map(|end| (end, 2)), "metrics count them");
}

#[tokio::test]
async fn a_handler_waits_while_its_chunks_are_not_taken_and_other_attempts_continue() {
    let active = Arc::new(Active::new().await);
    let runner = active.connect("runner", 2).await;
    let _taken = active.occupy();
    let sink = Arc::new(Sink::default());
    sink.is_full.store(true, Ordering::SeqCst);
    let attempt = active.attempt(&json!({ "do": "emit", "count": 1_000, "bytes": 100_000 }));
    let stop = attempt.stop.clone();
    let (other, theirs) = (active.clone(), sink.clone());
    let task = tokio::spawn(async move { other.perform(attempt, theirs).await });
    eventually(|| !sink.lines.lock().is_empty() || runner.runtime.running() == 1).await;
    let value = "x".repeat(3_000_000);
    for _ in 0..5 {
        assert_eq!(returned(active.run(json!({ "do": "echo", "value": value })).await), value);
    }
    assert!(!task.is_finished());
    assert!(sink.lines.lock().len() < 100, "100 MB are not in memory");
    stop.cancel();
    let report = task.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::Stopped), "{report:?}");
    eventually(|| runner.runtime.running() == 0).await;
}

/// HTTP/2 counts small frames that are not read against their connection.
#[tokio::test]
async fn many_small_chunks_that_are_not_taken_end_no_other_attempt() {
    const ATTEMPTS: usize = 7;
    let active = Arc::new(Active::new().await);
    let runner = active.connect("runner", ATTEMPTS + 1).await;
    let _taken = active.occupy();
    let sink = Arc::new(Sink::default());
    sink.is_full.store(true, Ordering::SeqCst);
    let begin = |_| {
        let attempt = active.attempt(&json!({ "do": "emit", "count": 1_000_000, "bytes": 1 }));
        let (stop, other, theirs) = (attempt.stop.clone(), active.clone(), sink.clone());
        (stop, tokio::spawn(async move { other.perform(attempt, theirs).await }))
    };
    let attempts: Vec<_> = (0..ATTEMPTS).map(begin).collect();
    eventually(|| runner.runtime.running() == ATTEMPTS).await;
    // The subject: the handlers wait, and nothing else happens.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(attempts.iter().all(|(_, task)| !task.is_finished()));
    assert_eq!(returned(active.run(json!({ "do": "echo", "value": 1 })).await), 1);
    attempts.iter().for_each(|(stop, _)| stop.cancel());
    for (_, task) in attempts {
        let report = task.await.unwrap();
        assert!(matches!(report.end, AttemptEnd::Stopped), "{report:?}");
    }
}

/// A refused request costs a handler nothing, so that it can make any number of them.
#[tokio::test]
async fn a_handler_waits_while_its_requests_are_not_counted() {
    const REQUESTS: usize = 1_000_000;
    let active = Arc::new(Active::new().await);
    let runner = active.connect("runner", 1).await;
    let _taken = active.occupy();
    let sink = Arc::new(Sink::default());
    sink.is_full.store(true, Ordering::SeqCst);
    let attempt = active.attempt(&json!({ "do": "request", "count": REQUESTS }));
    let stop = attempt.stop.clone();
    let (other, theirs) = (active.clone(), sink.clone());
    let task = tokio::spawn(async move { other.perform(attempt, theirs).await });
    let made = || runner.runtime.requests.load(Ordering::SeqCst);
    eventually(|| made() > 1_000).await;
    // The subject: no further request after a pause.
    let mut before = 0;
    while std::mem::replace(&mut before, made()) != made() {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(made() < REQUESTS / 2, "20 MB are not in memory: {}", made());
    stop.cancel();
    let report = task.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::Stopped), "{report:?}");
}

#[tokio::test]
async fn calls_of_a_handler_are_answered_by_the_active_host() {
    let active = Active::new().await;
    let _runner = active.connect("runner", 1).await;
    let _taken = active.occupy();
    let sink = Arc::new(Sink::default());
    let report = active.perform(active.attempt(&json!({ "do": "call" })), sink.clone()).await;
    let id = job_id();
    let failed = CallError::Failed { id, status: JobStatus::TimedOut, error: "why".to_owned() };
    let why = || "why".to_owned();
    let expected: [Result<Json, CallError>; 7] = [
        Ok(text("grain")),
        Err(CallError::Denied(why())),
        Err(CallError::InvalidRequest(why())),
        Err(CallError::LimitReached(why())),
        Err(failed),
        Err(CallError::Timeout(why())),
        Err(CallError::Other(why())),
    ];
    let expected: Vec<_> = expected.iter().map(|answer| format!("{answer:?}")).collect();
    assert_eq!(returned(report.end), json!([expected, id.to_string()]));
    let calls = sink.calls.lock();
    assert_eq!(
        (&*calls[0].endpoint, calls[0].idempotency_key.as_deref()),
        ("answers", Some("once"))
    );
}

/// What counts as a crash, and what does not.
#[tokio::test]
async fn an_attempt_whose_runner_is_lost_has_lost_its_host() {
    let active = Arc::new(Active::new().await);
    let runner = active.connect("runner", 2).await;
    let _taken = active.occupy();
    let attempt = active.attempt(&json!({ "do": "hang" }));
    let task = active.begin(&runner, attempt).await;
    let stopped = active.attempt(&json!({ "do": "hang" }));
    let stop = stopped.stop.clone();
    let stopping = active.begin(&runner, stopped).await;
    stop.cancel();
    tokio::task::yield_now().await;
    runner.serving.abort();
    let report = task.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::HostLost(HostLoss::Crash)), "{report:?}");
    let report = stopping.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::Stopped), "a stop was wanted: {report:?}");
    eventually(|| active.runners.hosts().is_empty()).await;
    eventually(|| runner.runtime.running() == 0).await;
    assert_eq!(runner.runtime.dropped.load(Ordering::SeqCst), 2, "the handlers have ended");
    // Without a runner, attempts wait for the host itself.
    let deployment = active.deployment("e");
    assert!(active.runtime.try_reserve(&deployment, Level::CLIENT).is_none());
}

#[tokio::test]
async fn a_host_that_gives_up_an_attempt_stops_its_handler() {
    let active = Arc::new(Active::new().await);
    let runner = active.connect("runner", 1).await;
    let _taken = active.occupy();
    let task = active.begin(&runner, active.attempt(&json!({ "do": "hang" }))).await;
    task.abort();
    eventually(|| runner.runtime.running() == 0).await;
    assert_eq!(runner.runtime.dropped.load(Ordering::SeqCst), 1);
    active.until_ready("e").await;
}

/// A runner that does not end an attempt cannot keep its job.
#[tokio::test]
async fn an_attempt_ends_although_its_runner_does_not_end_it() {
    let active = Arc::new(Active::new().await);
    let runner = active.connect("runner", 2).await;
    let _taken = active.occupy();
    let attempt = Attempt {
        deadline: Instant::now() + Duration::from_millis(50),
        ..active.attempt(&json!({ "do": "hang" }))
    };
    let task = active.begin(&runner, attempt).await;
    let stopped = active.attempt(&json!({ "do": "hang" }));
    let stop = stopped.stop.clone();
    let stopping = active.begin(&runner, stopped).await;
    stop.cancel();
    let report = task.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::DeadlineReached), "{report:?}");
    let report = stopping.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::Stopped), "{report:?}");
    eventually(|| runner.runtime.running() == 0).await;
}

#[tokio::test]
async fn a_drained_runner_ends_its_attempts_and_takes_no_more() {
    let active = Arc::new(Active::new().await);
    let runner = active.connect("runner", 4).await;
    let _taken = active.occupy();
    let waiting = active.begin(&runner, active.attempt(&json!({ "do": "wait" }))).await;
    runner.drain.cancel();
    // Until the active host has noticed it, attempts are refused without a crash.
    let deployment = active.deployment("e");
    while let Some(reservation) = active.runtime.try_reserve(&deployment, Level::CLIENT) {
        let attempt = active.attempt(&json!({ "do": "host" }));
        let report = active.runtime.perform(reservation, attempt, Arc::new(Sink::default())).await;
        // An attempt that was sent before the drain returns.
        let is_expected = matches!(report.end, AttemptEnd::Stopped | AttemptEnd::Returned(_));
        assert!(is_expected, "{report:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!waiting.is_finished() && !runner.serving.is_finished());
    runner.runner.stop();
    let report = waiting.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::Stopped), "{report:?}");
    assert_eq!(report.usage.run_us, 7);
    timeout(PATIENCE, runner.serving).await.unwrap().unwrap();
    eventually(|| active.runners.hosts().is_empty()).await;
}

/// The reports of its memory do not keep the connection open.
#[tokio::test]
async fn a_drained_runner_ends_its_connection_after_its_last_attempt() {
    let active = Arc::new(Active::new().await);
    let runner = active.connect("runner", 4).await;
    assert!(matches!(active.run(json!({ "do": "host" })).await, AttemptEnd::Returned(_)));
    runner.drain.cancel();
    timeout(PATIENCE, runner.serving).await.unwrap().unwrap();
    eventually(|| active.runners.hosts().is_empty()).await;
}

/// Its job would be started there again and again, as fast as the store can.
#[tokio::test]
async fn a_runner_that_stops_an_attempt_gets_no_further_one() {
    let active = Arc::new(Active::new().await);
    let runner = active.connect("runner", 4).await;
    let _taken = active.occupy();
    runner.runner.stop();
    let end = active.run(json!({ "do": "wait" })).await;
    assert!(matches!(end, AttemptEnd::Stopped), "{end:?}");
    assert!(active.runtime.try_reserve(&active.deployment("e"), Level::CLIENT).is_none());
}

/// The shares of owners and endpoints are the same there.
#[tokio::test]
async fn a_runner_knows_between_whom_the_hosts_are_shared() {
    let active = Active::new().await;
    let runner = active.connect("runner", 4).await;
    let taken = active.occupy();
    let e = endpoint("e");
    let run = async |level| {
        let attempt = active.attempt(&json!({ "do": "host" }));
        let reservation = active.runtime.reserve(&attempt.deployment, level).await;
        active.runtime.perform(reservation, attempt, Arc::new(Sink::default())).await;
        let Connected { tenancy, runtime, .. } = &runner;
        let several = tenancy.has_several_endpoints(&e.owner);
        (tenancy.has_several_owners(), several, tenancy.has_calls(), *runtime.level.lock())
    };
    assert_eq!(run(Level::CLIENT).await, (false, false, false, Some(Level::CLIENT)));
    let mut calling = endpoint("f");
    calling.settings.call_endpoints = vec![e.id.clone()];
    active.change(calling).await;
    assert_eq!(run(Level::CALLED).await, (false, true, true, Some(Level::CALLED)));
    let mut of_another = endpoint("g");
    of_another.owner = OwnerId::new("another").unwrap();
    active.change(of_another).await;
    assert_eq!(run(Level::CLIENT).await, (true, true, true, Some(Level::CLIENT)));
    drop(taken);
}

#[tokio::test]
async fn an_attempt_waits_for_a_sandbox_of_any_host() {
    let active = Arc::new(Active::new().await);
    let taken = active.occupy();
    let waits = |active: Arc<Active>| {
        tokio::spawn(async move { returned(active.run(json!({ "do": "host" })).await) })
    };
    // A runner that connects later.
    let waiting = waits(active.clone());
    tokio::time::sleep(Duration::from_millis(20)).await;
    let runner = active.connect_unprepared("runner", 1, 1 << 30).await;
    assert_eq!(timeout(PATIENCE, waiting).await.unwrap().unwrap(), "runner");
    active.until_ready("e").await;
    // The sandbox of the runner, when its attempt ends.
    let attempt = active.attempt(&json!({ "do": "wait" }));
    let stop = attempt.stop.clone();
    let running = active.begin(&runner, attempt).await;
    let waiting = waits(active.clone());
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!waiting.is_finished());
    stop.cancel();
    assert_eq!(timeout(PATIENCE, waiting).await.unwrap().unwrap(), "runner");
    running.await.unwrap();
    // The sandbox of the host itself.
    let attempt = active.attempt(&json!({ "do": "hang" }));
    let running = active.begin(&runner, attempt).await;
    let waiting = waits(active.clone());
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(taken);
    assert_eq!(timeout(PATIENCE, waiting).await.unwrap().unwrap(), "active");
    running.abort();
}

#[tokio::test]
async fn a_changed_endpoint_runs_its_new_deployment_on_runners() {
    let active = Active::new().await;
    let runner = active.connect("runner", 1).await;
    let old = active.deployment("e");
    let mut changed = endpoint("e");
    changed.settings.env.insert("STONE".to_owned(), "basalt".to_owned());
    active.change(changed).await;
    let new = active.deployment("e");
    active.runtime.retire(&new.endpoint.id, Some(&new));
    eventually(|| !runner.runtime.retired.lock().is_empty()).await;
    active.until_ready("e").await;
    let _taken = active.occupy();
    let shown = returned(active.run(json!({ "do": "show" })).await);
    assert_eq!(shown["env"], json!([["STONE", "basalt"]]));
    // A reservation for the former deployment is refused without a crash.
    active.runtime.retire(&old.endpoint.id, None);
    let deleted = vec![CatalogChange::Delete(CatalogKey::Endpoint(old.endpoint.id.clone()))];
    active.catalog.change(|_| Ok::<_, StoreError>((deleted, ()))).await.unwrap();
    eventually(|| runner.runtime.retired.lock().len() > 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_endpoint_that_changes_often_runs_its_newest_deployment() {
    let active = Active::new().await;
    let _runner = active.connect("runner", 1).await;
    let _taken = active.occupy();
    for n in 0..200 {
        let mut changed = endpoint("e");
        changed.settings.env.insert("STONE".to_owned(), n.to_string());
        active.change(changed).await;
        let new = active.deployment("e");
        active.runtime.retire(&new.endpoint.id, Some(&new));
        let deadline = Instant::now() + PATIENCE;
        let shown = loop {
            match active.run(json!({ "do": "show" })).await {
                AttemptEnd::Stopped => assert!(Instant::now() < deadline, "it never begins"),
                end => break returned(end),
            }
        };
        assert_eq!(shown["env"], json!([["STONE", n.to_string()]]));
    }
}

/// Whether no runner takes an attempt of the endpoint. The first calls of a new deployment only
/// prepare it, so they are repeated for much longer than that takes here.
async fn is_never_reserved(active: &Active, endpoint: &str) -> bool {
    for _ in 0..40 {
        if active.runtime.try_reserve(&active.deployment(endpoint), Level::CLIENT).is_some() {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    true
}

/// Sandboxes grow after they have begun.
#[tokio::test]
async fn no_attempt_begins_where_the_memory_is_used() {
    let active = Active::new().await;
    let runner = active.connect_unprepared("runner", 2, 1024 * MIB).await;
    active.until_ready("e").await;
    let _taken = active.occupy();
    let memory = |bytes| runner.runtime.memory_bytes.store(bytes, Ordering::SeqCst);
    let reported = || active.runners.hosts()[0].memory_bytes;
    let deployment = active.deployment("e");
    let reserve = || active.runtime.try_reserve(&deployment, Level::CLIENT);
    memory(1024 * MIB);
    eventually(|| reported() == 1024 * MIB).await;
    assert!(reserve().is_none());
    memory(100 * MIB);
    eventually(|| reported() == 100 * MIB).await;
    let first = reserve().unwrap();
    // What it takes there by and by is counted once.
    memory(164 * MIB);
    eventually(|| reported() == 164 * MIB).await;
    assert!(reserve().is_some());
    drop(first);
    assert_eq!(active.runners.hosts()[0].memory_bytes_max, 1024 * MIB);
}

#[tokio::test]
async fn some_deployments_run_on_the_active_host_only() {
    let active = Active::new().await;
    let small = active.connect_unprepared("small", 1, 32 * MIB).await;
    let taken = active.occupy();
    // More memory than all sandboxes of the runner have.
    assert!(is_never_reserved(&active, "e").await);
    small.serving.abort();
    eventually(|| active.runners.hosts().is_empty()).await;
    drop(taken);

    // A network volume, whose files are on the active host.
    let runner = active.connect("runner", 1).await;
    let mut with_volume = endpoint("e");
    with_volume.network_volume = Some(VolumeId::new("v").unwrap());
    active.change(with_volume).await;
    let taken = active.occupy();
    assert!(is_never_reserved(&active, "e").await);

    // HTTP requests, which are not repeated when a host is lost.
    let mut of_http = endpoint("h");
    of_http.kind = EndpointType::LoadBalancer;
    active.change(of_http).await;
    assert!(is_never_reserved(&active, "h").await);

    // A component that the runner cannot run: the active host continues.
    runner.runtime.cannot_run.store(true, Ordering::SeqCst);
    active.change(endpoint("f")).await;
    assert!(is_never_reserved(&active, "f").await);
    drop(taken);
    assert!(active.runtime.try_reserve(&active.deployment("f"), Level::CLIENT).is_some());
}

/// A silent program at the other side is no runner.
#[tokio::test(start_paused = true)]
async fn a_connection_without_an_answer_ends() {
    let active = Active::new().await;
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let peer: SocketAddr = "192.0.2.1:7".parse().unwrap();
    timeout(Duration::from_secs(60), active.runners.serve(ours, peer)).await.unwrap();
    drop(theirs);
    assert!(active.runners.hosts().is_empty());
}

/// A runner that is paused answers no ping.
#[tokio::test]
async fn a_silent_runner_is_lost() {
    let active = Arc::new(Active::new().await);
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (relay, of_runner) = tokio::io::duplex(1 << 16);
    let cut = CancellationToken::new();
    let is_cut = cut.clone();
    tokio::spawn(async move {
        let (mut left, mut right) = (theirs, relay);
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut left, &mut right) => {}
            () = is_cut.cancelled() => {}
        }
        // Both connections stay open.
        std::future::pending::<()>().await;
        drop((left, right));
    });
    let runner = Connected::over(of_runner, "runner", 1, 1 << 30, Duration::ZERO);
    let runners = active.runners.clone();
    let peer: SocketAddr = "192.0.2.1:7".parse().unwrap();
    tokio::spawn(async move { runners.serve(ours, peer).await });
    eventually(|| !active.runners.hosts().is_empty()).await;
    active.until_ready("e").await;
    let _taken = active.occupy();
    let task = active.begin(&runner, active.attempt(&json!({ "do": "hang" }))).await;
    cut.cancel();
    let report = timeout(PATIENCE, task).await.unwrap().unwrap();
    assert!(matches!(report.end, AttemptEnd::HostLost(HostLoss::Unreachable)), "{report:?}");
    // The runner has noticed it too, and the handler has ended.
    eventually(|| runner.runtime.running() == 0 && runner.serving.is_finished()).await;
}
