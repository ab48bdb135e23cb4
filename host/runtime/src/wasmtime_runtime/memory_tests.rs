//! The memory of all sandboxes: estimates, growth that waits, and attempts that get none.

use std::sync::atomic::Ordering;
use std::time::Duration;

use gristmill_core::runtime::{AttemptEnd, AttemptReport, Runtime as _, RuntimeLoad};

use gristmill_core::sharing::shares::Level;

use super::tests::{ECHO, output};
use crate::testing::{Run, TestRuntime};

const MIB: u64 = 1 << 20;

/// Grows by 16 MiB, and waits in `emit` while the sink is full.
const GROW_AND_EMIT: &str = "(drop (memory.grow (i32.const 256)))
    (call $emit (local.get $input) (local.get $input_len) (i32.const 0) (i32.const 0) (i32.const 0)
        (i32.const 2048))
    (call $ok (local.get $input) (local.get $input_len))";

/// A run of an endpoint with this name, which grows by 16 of its 20 MiB.
async fn large(runtime: &TestRuntime, endpoint: &str) -> Run {
    let mut run = runtime.run(GROW_AND_EMIT).await;
    run.endpoint.id = endpoint.parse().unwrap();
    run.endpoint.settings.memory_mib = 20;
    run
}

/// Performs the run, until it waits in `emit`.
async fn occupy<'a>(
    runtime: &'a TestRuntime,
    run: &'a Run,
) -> impl Future<Output = AttemptReport> + 'a {
    run.sink.is_full.store(true, Ordering::SeqCst);
    let mut performing = Box::pin(runtime.perform(run));
    let waits = tokio::time::timeout(Duration::from_millis(500), performing.as_mut()).await;
    assert!(waits.is_err(), "it waits for the sink");
    performing
}

#[tokio::test]
async fn a_sandbox_is_admitted_by_what_earlier_attempts_needed() {
    let runtime = TestRuntime::with_memory(40 * MIB);
    let mut run = runtime.run(ECHO).await;
    let mut of = |mib: u64| {
        run.endpoint.settings.memory_mib = mib;
        run.deployment()
    };
    let [large, small, huge] = [256, 32, 41].map(&mut of);
    // 32.5 MiB, an eighth of its memoryMib and the base.
    let first = runtime.runtime.try_reserve(&small, Level::CLIENT).unwrap();
    let second = runtime.runtime.try_reserve(&small, Level::CLIENT).unwrap();
    assert!(runtime.runtime.try_reserve(&small, Level::CLIENT).is_none(), "there are two slots");
    drop(second);
    assert!(runtime.runtime.try_reserve(&large, Level::CLIENT).is_some(), "32.5 beside 4.5 MiB");
    let refused = runtime.runtime.prepare(&huge).await.unwrap_err().to_string();
    assert!(refused.contains("memoryMib of 41") && refused.contains("40 MiB"), "{refused}");
    drop(first);
    run.endpoint.settings.memory_mib = 40;
    assert_eq!(output(&runtime.perform(&run).await), "\"hello\"");
    let both = [(); 2].map(|()| runtime.runtime.try_reserve(&run.deployment(), Level::CLIENT));
    assert!(both.iter().all(Option::is_some), "0.6 MiB each");
}

#[tokio::test]
async fn the_environment_is_charged() {
    let runtime = TestRuntime::with_memory(30 * MIB);
    let mut run = runtime.run(ECHO).await;
    run.endpoint.settings.memory_mib = 20;
    run.endpoint.settings.env.insert("LARGE".to_owned(), "x".repeat(8 << 20));
    assert_eq!(output(&runtime.perform(&run).await), "\"hello\"");
    let _first = runtime.runtime.try_reserve(&run.deployment(), Level::CLIENT).unwrap();
    assert!(runtime.runtime.try_reserve(&run.deployment(), Level::CLIENT).is_none(), "16 MiB each");
}

#[tokio::test]
async fn an_idle_instance_has_its_memory_until_another_attempt_needs_it() {
    let runtime = TestRuntime::with_memory(20 * MIB);
    let mut idle = runtime.run(GROW_AND_EMIT).await;
    idle.endpoint.settings.reuse.max_jobs = 9;
    assert_eq!(output(&runtime.perform(&idle).await), "\"hello\"");
    assert_eq!(runtime.runtime.load(), RuntimeLoad { running: 0, idle: 1, waiting: 0 });
    let mut other = runtime.run(&format!("{GROW_AND_EMIT} (;;)")).await;
    other.endpoint.id = "other".parse().unwrap();
    other.endpoint.settings.memory_mib = 18;
    assert_eq!(output(&runtime.perform(&other).await), "\"hello\"", "it grows by 16 MiB");
    assert_eq!(runtime.runtime.load(), RuntimeLoad { running: 0, idle: 0, waiting: 0 });
}

#[tokio::test]
async fn an_attempt_that_grows_waits_for_memory_that_another_one_returns() {
    let runtime = TestRuntime::with_memory(24 * MIB);
    let (first, second) = (large(&runtime, "e").await, large(&runtime, "e").await);
    let held = occupy(&runtime, &first).await;
    let mut waiting = Box::pin(runtime.perform(&second));
    let wait = Duration::from_secs(1);
    assert!(tokio::time::timeout(wait, waiting.as_mut()).await.is_err());
    assert_eq!(runtime.runtime.load(), RuntimeLoad { running: 2, idle: 0, waiting: 1 });
    drop(held);
    assert_eq!(output(&waiting.await), "\"hello\"");
    assert_eq!(runtime.runtime.load(), RuntimeLoad { running: 0, idle: 0, waiting: 0 });
}

#[tokio::test]
async fn an_attempt_that_grows_gets_no_memory_while_others_keep_theirs() {
    let runtime = TestRuntime::with_memory(24 * MIB);
    let (first, second) = (large(&runtime, "e").await, large(&runtime, "e").await);
    let held = occupy(&runtime, &first).await;
    let mut held = Box::pin(held);
    let report = tokio::select! {
        report = runtime.perform(&second) => report,
        report = held.as_mut() => panic!("it waits for its sink: {report:?}"),
    };
    assert!(matches!(report.end, AttemptEnd::NoMemory), "{report:?}");
    // 20.5 MiB of 24 are now the estimate.
    assert!(runtime.runtime.try_reserve(&second.deployment(), Level::CLIENT).is_none());
    drop(held);
    let admitted = runtime.runtime.reserve(&second.deployment(), Level::CLIENT).await;
    assert!(
        runtime.runtime.try_reserve(&second.deployment(), Level::CLIENT).is_none(),
        "only one at a time"
    );
    drop(admitted);
    assert_eq!(runtime.runtime.load(), RuntimeLoad { running: 0, idle: 0, waiting: 0 });
}

#[tokio::test]
async fn an_attempt_that_waits_for_memory_is_stopped_and_reaches_its_deadline() {
    let runtime = TestRuntime::with_memory(24 * MIB);
    // Endpoints of their own, so that no estimate keeps them from their sandboxes.
    let first = large(&runtime, "first").await;
    let (mut late, stopped) = (large(&runtime, "late").await, large(&runtime, "stopped").await);
    let _held = occupy(&runtime, &first).await;
    late.timeout_ms = 300;
    let report = runtime.perform(&late).await;
    assert!(matches!(report.end, AttemptEnd::DeadlineReached), "{report:?}");
    let stop = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        stopped.stop.cancel();
    };
    let (report, ()) = tokio::join!(runtime.perform(&stopped), stop);
    assert!(matches!(report.end, AttemptEnd::Stopped), "{report:?}");
    assert_eq!(runtime.runtime.load().waiting, 0);
}
