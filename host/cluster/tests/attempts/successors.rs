//! Attempts that outlive the active host that has begun them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gristmill_core::job::loss::HostLoss;
use gristmill_core::job::record::{HostProcess, Lease, LeftAttempt, StoreEpoch};
use gristmill_core::runtime::{Attempt, AttemptEnd, AttemptReport, Runtime as _};
use gristmill_core::sharing::shares::Level;
use gristmill_core::time::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::hosts::{Active, Connected, Relay};
use crate::sink::Sink;
use crate::{PATIENCE, eventually, returned};

const LONG: Duration = Duration::from_secs(60);

/// An active host whose only free sandbox is that of a runner.
struct Former {
    active: Arc<Active>,
    runner: Connected,
    link: Relay,
    process: HostProcess,
}

impl Former {
    async fn new() -> Self {
        let active = Arc::new(Active::adopting(LONG).await);
        let (runner, link) = active.connect_by_relay("runner", 1).await;
        let taken = active.occupy();
        let reservation = active.runtime.try_reserve(&active.deployment("e"), Level::CLIENT);
        let process = reservation.unwrap().host().unwrap();
        // Until its end.
        taken.forget();
        Self { active, runner, link, process }
    }

    fn perform(&self, attempt: &Attempt, sink: &Arc<Sink>) -> JoinHandle<AttemptReport> {
        let (active, attempt, sink) = (self.active.clone(), attempt.clone(), sink.clone());
        tokio::spawn(async move { active.perform(attempt, sink).await })
    }

    /// Ends it without a word to the runner, as a crash does.
    async fn crash(&self, task: JoinHandle<AttemptReport>) {
        self.link.cut();
        eventually(|| self.active.runners.hosts().is_empty()).await;
        task.abort();
        let _ = task.await;
    }

    /// What the next active host reads of an attempt.
    fn left(&self, attempt: &Attempt, chunks: u64) -> LeftAttempt {
        let (key, endpoint) = (&attempt.key, &attempt.deployment.endpoint);
        LeftAttempt {
            endpoint: endpoint.id.clone(),
            lease: Lease { job: key.job, claim: key.claim, epoch: StoreEpoch(2) },
            worker: key.worker.clone(),
            host: self.process,
            owner: endpoint.owner.clone(),
            attempt: attempt.number,
            started_at: Timestamp::from_millis(0),
            execution_timeout_ms: None,
            ttl_at: Timestamp::NEVER,
            trace: None,
            input_bytes: 0,
            chunks,
            chunk_bytes: 0,
        }
    }
}

/// Waits for the runner of an attempt from now on.
fn go_on(
    active: &Arc<Active>,
    left: &LeftAttempt,
    attempt: Attempt,
    sink: &Arc<Sink>,
) -> JoinHandle<AttemptReport> {
    let reservation = active.runtime.expect(&attempt.deployment, left).unwrap();
    let (active, sink) = (active.clone(), sink.clone());
    tokio::spawn(async move { active.runtime.perform(reservation, attempt, sink).await })
}

fn numbers(sink: &Sink) -> Vec<u64> {
    let chunks = sink.chunks.lock();
    let number = |output: Value| output[0].as_u64().unwrap();
    chunks.iter().map(|chunk| number(chunk.output.read().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_next_active_host_goes_on_with_an_attempt() {
    const STEPS: u64 = 30;
    const ON_DISK: u64 = 8;
    let mut former = Former::new().await;
    let sink = Arc::new(Sink::default());
    let attempt = former.active.attempt(&json!({ "do": "go on", "count": STEPS }));
    let task = former.perform(&attempt, &sink);
    former.runner.runtime.paces.add_permits(5);
    eventually(|| sink.progress.lock().len() == 5).await;
    sink.is_behind.store(true, Ordering::SeqCst);
    former.runner.runtime.paces.add_permits(6);
    // The last one waits for its answer.
    eventually(|| sink.calls.lock().len() == 11).await;
    former.crash(task).await;

    let next = Arc::new(Active::adopting(LONG).await);
    let later = Arc::new(Sink::default());
    let task = go_on(&next, &former.left(&attempt, ON_DISK), attempt, &later);
    former.runner.reconnect(&next, &mut former.link).await;
    former.runner.runtime.paces.add_permits(usize::try_from(STEPS).unwrap());
    let report = task.await.unwrap();
    assert_eq!(returned(report.end), json!((0..STEPS).sum::<u64>()), "each call has its answer");
    assert_eq!(numbers(&later), (ON_DISK..STEPS).collect::<Vec<_>>());
    next.until_ready("e").await;
    let (calls, later) = (sink.calls.lock(), later.calls.lock());
    assert_eq!(later.len() as u64, STEPS - 10);
    assert_eq!(later[0].job, calls[10].job, "the call that was sent again is for the same job");
    assert!(calls.iter().chain(&later[1..]).all(|call| call.job.is_some()));
}

/// The runner keeps the end until it is on the disk of an active host.
#[tokio::test]
async fn an_end_that_is_not_on_disk_is_sent_to_the_next_active_host() {
    let mut former = Former::new().await;
    let sink = Arc::new(Sink::default());
    sink.is_behind.store(true, Ordering::SeqCst);
    let attempt = former.active.attempt(&json!({ "do": "echo", "value": 7 }));
    let task = former.perform(&attempt, &sink);
    assert_eq!(returned(task.await.unwrap().end), json!(7));
    former.link.cut();
    eventually(|| former.active.runners.hosts().is_empty()).await;

    let next = Arc::new(Active::adopting(LONG).await);
    let later = Arc::new(Sink::default());
    let task = go_on(&next, &former.left(&attempt, 0), attempt, &later);
    former.runner.reconnect(&next, &mut former.link).await;
    assert_eq!(returned(task.await.unwrap().end), json!(7));
}

/// The former active host had stopped it, and ended before that was on disk.
#[tokio::test]
async fn a_runner_whose_attempt_was_stopped_earlier_runs_further_ones() {
    let mut former = Former::new().await;
    let sink = Arc::new(Sink::default());
    sink.is_behind.store(true, Ordering::SeqCst);
    let attempt = former.active.attempt(&json!({ "do": "wait" }));
    let task = former.perform(&attempt, &sink);
    eventually(|| former.runner.runtime.running() == 1).await;
    attempt.stop.cancel();
    assert!(matches!(task.await.unwrap().end, AttemptEnd::Stopped));
    former.link.cut();
    eventually(|| former.active.runners.hosts().is_empty()).await;

    let next = Arc::new(Active::adopting(LONG).await);
    let attempt = Attempt { stop: CancellationToken::new(), ..attempt };
    let task = go_on(&next, &former.left(&attempt, 0), attempt, &Arc::new(Sink::default()));
    former.runner.reconnect(&next, &mut former.link).await;
    assert!(matches!(task.await.unwrap().end, AttemptEnd::Stopped));
    next.until_ready("e").await;
}

#[tokio::test]
async fn an_active_host_that_ends_in_order_leaves_its_attempts_to_the_next_one() {
    let mut former = Former::new().await;
    let sink = Arc::new(Sink::default());
    let attempt = former.active.attempt(&json!({ "do": "until told" }));
    let task = former.perform(&attempt, &sink);
    eventually(|| former.runner.runtime.running() == 1).await;
    former.active.runtime.leave();
    let report = task.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::Left), "{report:?}");
    // It ends no attempt that it does not know any more.
    former.runner.reconnect(&former.active, &mut former.link).await;
    eventually(|| former.active.runners.hosts().len() == 1).await;

    let next = Arc::new(Active::adopting(LONG).await);
    let task = go_on(&next, &former.left(&attempt, 0), attempt, &sink);
    former.runner.reconnect(&next, &mut former.link).await;
    next.until_ready("e").await;
    assert_eq!(former.runner.runtime.running(), 1);
    former.runner.runtime.paces.add_permits(1);
    assert_eq!(returned(task.await.unwrap().end), json!("told"));
}

/// The database has lost chunks that the runner need not keep any more.
#[tokio::test]
async fn an_attempt_whose_chunks_are_lost_begins_again() {
    let mut former = Former::new().await;
    let sink = Arc::new(Sink::default());
    let attempt = former.active.attempt(&json!({ "do": "go on", "count": 50 }));
    let task = former.perform(&attempt, &sink);
    former.runner.runtime.paces.add_permits(10);
    eventually(|| sink.progress.lock().len() == 10).await;
    former.crash(task).await;
    let next = Arc::new(Active::adopting(LONG).await);
    let later = Arc::new(Sink::default());
    let task = go_on(&next, &former.left(&attempt, 3), attempt, &later);
    former.runner.reconnect(&next, &mut former.link).await;
    former.runner.runtime.paces.add_permits(10);
    let report = task.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::HostLost(HostLoss::Unreachable)), "{report:?}");
    assert!(later.chunks.lock().is_empty());
    eventually(|| former.runner.runtime.running() == 0).await;
}

/// A standby becomes the active host.
#[tokio::test]
async fn a_runner_that_becomes_active_goes_on_with_its_own_attempts() {
    let former = Former::new().await;
    let sink = Arc::new(Sink::default());
    let attempt = former.active.attempt(&json!({ "do": "until told" }));
    // It was never begun: the process is the right one, and does not have it.
    let unknown = former.active.attempt(&json!({ "do": "wait" }));
    let task = former.perform(&attempt, &sink);
    eventually(|| former.runner.runtime.running() == 1).await;
    former.crash(task).await;

    let next = Arc::new(Active::adopting(LONG).await);
    let task = go_on(&next, &former.left(&attempt, 0), attempt, &sink);
    let absent = go_on(&next, &former.left(&unknown, 0), unknown, &sink);
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (runners, runner) = (next.runners.clone(), former.runner.runner.clone());
    tokio::spawn(async move { runners.serve_own(ours, "192.0.2.1:7".parse().unwrap()).await });
    tokio::spawn(async move { runner.serve(theirs, CancellationToken::new()).await.is_ok() });
    let report = absent.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::HostLost(HostLoss::Unreachable)), "{report:?}");
    assert!(next.runners.hosts().is_empty(), "it is no other host");
    // It cannot go on without this process.
    next.runtime.leave();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!task.is_finished());
    former.runner.runtime.paces.add_permits(1);
    assert_eq!(returned(task.await.unwrap().end), json!("told"));
}

#[tokio::test]
async fn an_attempt_whose_host_does_not_come_is_given_up() {
    let former = Former::new().await;
    let sink = Arc::new(Sink::default());
    let attempt = former.active.attempt(&json!({ "do": "hang" }));
    let task = former.perform(&attempt, &sink);
    eventually(|| former.runner.runtime.running() == 1).await;
    former.crash(task).await;
    let next = Arc::new(Active::adopting(Duration::from_secs(1)).await);
    let begun = Instant::now();
    let report = go_on(&next, &former.left(&attempt, 0), attempt.clone(), &sink).await.unwrap();
    assert!(matches!(report.end, AttemptEnd::HostLost(HostLoss::Unreachable)), "{report:?}");
    assert!(begun.elapsed() >= Duration::from_secs(1) && begun.elapsed() < PATIENCE);

    // The next process in its directory shows that it has ended.
    let next = Arc::new(Active::adopting(LONG).await);
    let task = go_on(&next, &former.left(&attempt, 0), attempt, &sink);
    let (_other, _link) = next.connect_by_relay("runner", 1).await;
    let report = task.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::HostLost(HostLoss::Crash)), "{report:?}");
}
