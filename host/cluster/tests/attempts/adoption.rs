//! Attempts whose connection is lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gristmill_core::job::loss::HostLoss;
use gristmill_core::metrics::endpoint::RequestEnd;
use gristmill_core::runtime::{Attempt, AttemptEnd, AttemptReport};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::hosts::Active;
use crate::sink::Sink;
use crate::{eventually, returned};

const LONG: Duration = Duration::from_secs(60);

fn perform(active: &Arc<Active>, attempt: Attempt, sink: &Arc<Sink>) -> JoinHandle<AttemptReport> {
    let (active, sink) = (active.clone(), sink.clone());
    tokio::spawn(async move { active.perform(attempt, sink).await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_attempt_goes_on_over_five_lost_connections() {
    const CUTS: usize = 5;
    const STEPS: usize = 60;
    let active = Arc::new(Active::adopting(LONG).await);
    let (mut runner, mut link) = active.connect_by_relay("runner", 1).await;
    let _taken = active.occupy();
    let sink = Arc::new(Sink::default());
    let attempt = active.attempt(&json!({ "do": "go on", "count": STEPS }));
    let task = perform(&active, attempt, &sink);
    for cut in 1..=CUTS {
        // The handler goes on while there is no connection, and is in the middle of a call.
        runner.runtime.paces.add_permits(5);
        let calls = 10 * (cut - 1) + 2;
        eventually(|| sink.calls.lock().len() >= calls).await;
        link.cut();
        runner.runtime.paces.add_permits(5);
        runner.reconnect(&active, &mut link).await;
        eventually(|| sink.chunks.lock().len() >= 10 * (cut - 1) + 8).await;
    }
    runner.runtime.paces.add_permits(STEPS);
    let report = task.await.unwrap();
    let sum = (0..STEPS as u64).sum::<u64>();
    assert_eq!(returned(report.end), json!(sum), "each call has its answer");
    let numbers = |of: Vec<Value>| of.iter().map(|one| one.as_u64().unwrap()).collect::<Vec<_>>();
    let all: Vec<_> = (0..STEPS as u64).collect();
    let chunks: Vec<Value> =
        sink.chunks.lock().iter().map(|one| one.output.read().unwrap()).collect();
    assert_eq!(numbers(chunks.into_iter().map(|one| one[0].clone()).collect()), all);
    let calls = sink.calls.lock().iter().map(|one| one.input.read().unwrap()).collect();
    assert_eq!(numbers(calls), all, "each call was made once");
    let lines: Vec<_> = (0..STEPS).map(|n| format!("warn line {n}")).collect();
    assert_eq!(*sink.lines.lock(), lines);
    let requests: Vec<_> = all.iter().map(|n| (RequestEnd::Denied, *n)).collect();
    assert_eq!(*sink.requests.lock(), requests);
    assert_eq!(sink.progress.lock().last().unwrap(), &(STEPS - 1).to_string());
    // Its sandbox is free again.
    active.until_ready("e").await;
}

#[tokio::test]
async fn an_end_without_a_connection_arrives_over_the_next_one() {
    let active = Arc::new(Active::adopting(LONG).await);
    let (mut runner, mut link) = active.connect_by_relay("runner", 1).await;
    let _taken = active.occupy();
    let sink = Arc::new(Sink::default());
    let task = perform(&active, active.attempt(&json!({ "do": "go on", "count": 1 })), &sink);
    eventually(|| runner.runtime.running() == 1).await;
    link.cut();
    eventually(|| active.runners.hosts().is_empty()).await;
    runner.runtime.paces.add_permits(1);
    // The handler waits for the answer to its call.
    runner.reconnect(&active, &mut link).await;
    assert_eq!(returned(task.await.unwrap().end), json!(0));
    assert_eq!(sink.calls.lock().len(), 1);

    // The handler ends.
    let task = perform(&active, active.attempt(&json!({ "do": "emit", "count": 3 })), &sink);
    let ended = task.await.unwrap();
    assert!(matches!(ended.end, AttemptEnd::Returned(_)), "{ended:?}");
    let waiting = active.attempt(&json!({ "do": "until told" }));
    let task = perform(&active, waiting, &sink);
    eventually(|| runner.runtime.running() == 1).await;
    link.cut();
    eventually(|| active.runners.hosts().is_empty()).await;
    runner.runtime.paces.add_permits(1);
    eventually(|| runner.runtime.running() == 0).await;
    runner.reconnect(&active, &mut link).await;
    assert_eq!(returned(task.await.unwrap().end), json!("told"));
}

/// The limits of an attempt hold without a connection.
#[tokio::test]
async fn a_stop_and_a_deadline_hold_without_a_connection() {
    let active = Arc::new(Active::adopting(LONG).await);
    let (mut runner, mut link) = active.connect_by_relay("runner", 2).await;
    let _taken = active.occupy();
    let sink = Arc::new(Sink::default());
    let attempt = active.attempt(&json!({ "do": "wait" }));
    let stop = attempt.stop.clone();
    let stopped = perform(&active, attempt, &sink);
    let attempt = Attempt {
        deadline: Instant::now() + Duration::from_millis(500),
        ..active.attempt(&json!({ "do": "until told" }))
    };
    let late = perform(&active, attempt, &sink);
    eventually(|| runner.runtime.running() == 2).await;
    link.cut();
    eventually(|| active.runners.hosts().is_empty()).await;
    stop.cancel();
    let report = stopped.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::Stopped), "{report:?}");
    assert_eq!(runner.runtime.running(), 2, "the runner has not heard of it");
    let report = late.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::DeadlineReached), "{report:?}");
    // The active host waits for neither, so that the runner stops both.
    runner.reconnect(&active, &mut link).await;
    eventually(|| runner.runtime.running() == 0).await;
    active.until_ready("e").await;
}

#[tokio::test]
async fn an_attempt_whose_runner_stays_away_ends_on_both_sides() {
    let active = Arc::new(Active::adopting(Duration::from_secs(1)).await);
    let (runner, link) = active.connect_by_relay("runner", 1).await;
    let _taken = active.occupy();
    let sink = Arc::new(Sink::default());
    let task = perform(&active, active.attempt(&json!({ "do": "hang" })), &sink);
    eventually(|| runner.runtime.running() == 1).await;
    let begun = Instant::now();
    link.cut();
    let report = task.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::HostLost(HostLoss::Crash)), "{report:?}");
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    eventually(|| runner.runtime.running() == 0).await;
    assert_eq!(runner.runtime.dropped.load(Ordering::SeqCst), 1);
}

/// A runner that comes back without the attempt, as after its restart, cannot go on with it.
#[tokio::test]
async fn an_attempt_that_its_runner_has_lost_ends_at_once() {
    let active = Arc::new(Active::adopting(LONG).await);
    let (mut runner, mut link) = active.connect_by_relay("runner", 1).await;
    let _taken = active.occupy();
    let sink = Arc::new(Sink::default());
    let attempt = active.attempt(&json!({ "do": "panic when told" }));
    let task = perform(&active, attempt, &sink);
    eventually(|| runner.runtime.running() == 1).await;
    link.cut();
    eventually(|| active.runners.hosts().is_empty()).await;
    runner.runtime.paces.add_permits(1);
    eventually(|| runner.runtime.running() == 0).await;
    runner.reconnect(&active, &mut link).await;
    let report = task.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::HostLost(HostLoss::Unreachable)), "{report:?}");
}

/// Another process in the data directory of the runner: the one with the attempt has ended.
#[tokio::test]
async fn an_attempt_whose_runner_was_started_again_has_lost_its_host_at_once() {
    let active = Arc::new(Active::adopting(LONG).await);
    let (runner, link) = active.connect_by_relay("runner", 1).await;
    let _taken = active.occupy();
    let sink = Arc::new(Sink::default());
    let task = perform(&active, active.attempt(&json!({ "do": "hang" })), &sink);
    eventually(|| runner.runtime.running() == 1).await;
    link.cut();
    eventually(|| active.runners.hosts().is_empty()).await;
    let (_other, _link) = active.connect_by_relay("another directory", 1).await;
    assert!(!task.is_finished());
    let (_next, _link) = active.connect_by_relay("runner", 1).await;
    let report = task.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::HostLost(HostLoss::Crash)), "{report:?}");
}

/// Without a connection an attempt keeps little.
#[tokio::test]
async fn a_handler_waits_with_its_chunks_while_there_is_no_connection() {
    let active = Arc::new(Active::adopting(LONG).await);
    let (mut runner, mut link) = active.connect_by_relay("runner", 1).await;
    let _taken = active.occupy();
    let sink = Arc::new(Sink::default());
    sink.is_full.store(true, Ordering::SeqCst);
    let attempt = active.attempt(&json!({ "do": "emit", "count": 200, "bytes": 100_000 }));
    let stop = attempt.stop.clone();
    let task = perform(&active, attempt, &sink);
    eventually(|| runner.runtime.running() == 1).await;
    link.cut();
    eventually(|| active.runners.hosts().is_empty()).await;
    // The subject: nothing moves.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(sink.lines.lock().len() < 20 && runner.runtime.running() == 1);
    runner.reconnect(&active, &mut link).await;
    stop.cancel();
    let report = task.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::Stopped), "{report:?}");
    eventually(|| runner.runtime.running() == 0).await;
}
