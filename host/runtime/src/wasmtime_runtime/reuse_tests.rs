//! Instances that handle several jobs: which jobs share one, how long one waits, and what of a job
//! the next one sees.

use std::time::Duration;

use gristmill_core::id::EndpointId;
use gristmill_core::job::retry::RetryWish;
use gristmill_core::runtime::AttemptEnd;

use super::*;
use crate::testing::{Run, TestRuntime, guest, guest_that_uses, guest_with_init};

/// Counts in its memory, and returns the count as its output: 1 to 9.
const COUNT: &str = "(i32.store8 (i32.const 2000) (i32.add (i32.load8_u (i32.const 2000)) \
     (i32.const 1)))
     (i32.store8 (i32.const 2001) (i32.add (i32.load8_u (i32.const 2000)) (i32.const 48)))
     (call $ok (i32.const 2001) (i32.const 1))";

/// `ok` as the result of `init`.
const INIT_OK: &str = "(i32.store8 (i32.const 3000) (i32.const 0)) (i32.const 3000)";

/// Imports the function by which a handler wishes: whether there is a delay, and its milliseconds.
const IMPORT_WISH: &str = "(import \"gristmill:handler/context@0.1.0\" \"retry-after\" \
     (func $wish (param i32 i32)))";

/// A run of an endpoint whose instances run this many jobs.
async fn reusing(runtime: &TestRuntime, component: Vec<u8>, jobs_max: u32) -> Run {
    let mut run = Run::of(&runtime.add(component).await);
    run.endpoint.settings.reuse.max_jobs = jobs_max;
    run
}

/// The output, or the error, of the next job.
async fn next(runtime: &TestRuntime, run: &Run) -> String {
    match runtime.perform(run).await.end {
        AttemptEnd::Returned(output) => output.as_str().to_owned(),
        AttemptEnd::Failed { error, .. } => error,
        AttemptEnd::DeadlineReached => "deadline".to_owned(),
        AttemptEnd::NoMemory => "no memory".to_owned(),
        AttemptEnd::Stopped | AttemptEnd::HostLost(_) | AttemptEnd::Left => "stopped".to_owned(),
    }
}

#[tokio::test]
async fn an_instance_handles_as_many_jobs_as_it_may() {
    let runtime = TestRuntime::open();
    let run = reusing(&runtime, guest(COUNT), 3).await;
    for expected in ["1", "2", "3", "1", "2"] {
        assert_eq!(next(&runtime, &run).await, expected);
    }
    assert_eq!(runtime.runtime.load(), RuntimeLoad { running: 0, idle: 1, waiting: 0 });
}

#[tokio::test]
async fn only_jobs_of_the_same_version_and_endpoint_share_an_instance() {
    let runtime = TestRuntime::open();
    let mut run = reusing(&runtime, guest(COUNT), 9).await;
    assert_eq!(next(&runtime, &run).await, "1");
    run.endpoint.version += 1;
    assert_eq!(next(&runtime, &run).await, "1");
    run.endpoint.id = EndpointId::new("other").unwrap();
    assert_eq!(next(&runtime, &run).await, "1");
}

#[tokio::test]
async fn an_endpoint_that_is_deployed_again_shares_no_instance_with_the_one_before() {
    let runtime = TestRuntime::open();
    let run = reusing(&runtime, guest(COUNT), 9).await;
    let before = run.deployment();
    assert_eq!(next(&runtime, &run).await, "1");
    assert_eq!(next(&runtime, &run).await, "2");
    // With the same name, version, component and settings.
    run.deploy_again();
    let after = run.deployment();
    assert!(before.endpoint == after.endpoint && before.incarnation != after.incarnation);
    assert_eq!(next(&runtime, &run).await, "1");
    assert_eq!(runtime.runtime.load().idle, 2);
    runtime.runtime.retire(&EndpointId::new("other").unwrap(), None);
    assert_eq!(runtime.runtime.load().idle, 2, "of another endpoint");
    runtime.runtime.retire(&run.endpoint.id, Some(&after));
    assert_eq!(runtime.runtime.load().idle, 1, "the one of the old deployment has ended");
    assert_eq!(next(&runtime, &run).await, "2");
    runtime.runtime.retire(&run.endpoint.id, None);
    assert_eq!(runtime.runtime.load(), RuntimeLoad { running: 0, idle: 0, waiting: 0 });
}

#[tokio::test]
async fn an_instance_that_was_reserved_for_no_job_waits_on() {
    let runtime = TestRuntime::open();
    let run = reusing(&runtime, guest(COUNT), 9).await;
    assert_eq!(next(&runtime, &run).await, "1");
    let reservation = runtime.runtime.try_reserve(&run.deployment(), Level::CLIENT).unwrap();
    assert_eq!(runtime.runtime.load(), RuntimeLoad { running: 1, idle: 0, waiting: 0 });
    drop(reservation);
    assert_eq!(runtime.runtime.load(), RuntimeLoad { running: 0, idle: 1, waiting: 0 });
    assert_eq!(next(&runtime, &run).await, "2");
}

/// A worker may hold an instance while its endpoint is changed, and find no job.
#[tokio::test]
async fn an_instance_that_was_reserved_while_its_deployment_was_replaced_ends() {
    let runtime = TestRuntime::open();
    let run = reusing(&runtime, guest(COUNT), 9).await;
    for is_deleted in [false, true] {
        assert_eq!(next(&runtime, &run).await, "1");
        let reserved = runtime.runtime.try_reserve(&run.deployment(), Level::CLIENT).unwrap();
        let of_other = EndpointId::new("other").unwrap();
        runtime.runtime.retire(&of_other, None);
        runtime.runtime.retire(&run.endpoint.id, Some(&run.deployment()));
        drop(reserved);
        assert_eq!(runtime.runtime.load().idle, 1, "it was not retired");
        let reserved = runtime.runtime.try_reserve(&run.deployment(), Level::CLIENT).unwrap();
        run.deploy_again();
        let current = run.deployment();
        runtime.runtime.retire(&run.endpoint.id, (!is_deleted).then_some(&current));
        drop(reserved);
        let nothing = RuntimeLoad { running: 0, idle: 0, waiting: 0 };
        assert_eq!(runtime.runtime.load(), nothing, "deleted: {is_deleted}");
    }
}

#[tokio::test]
async fn the_wish_of_one_job_is_not_that_of_the_next() {
    let runtime = TestRuntime::open();
    // The wish of each job is by the length of its input: 3 bytes and more call the function twice.
    let body = "(if (i32.ge_u (local.get $input_len) (i32.const 2))
           (then (call $wish (i32.const 1) (i32.const -1))))
         (if (i32.ge_u (local.get $input_len) (i32.const 3))
           (then (call $wish (i32.const 0) (i32.const 0))))
         (call $ok (local.get $input) (local.get $input_len))";
    let mut run = reusing(&runtime, guest_that_uses(IMPORT_WISH, "", body), 9).await;
    for (input, wish) in [
        ("1", None),
        ("12", Some(RetryWish::After(u64::from(u32::MAX)))),
        ("1", None),
        ("123", Some(RetryWish::Never)),
        ("1", None),
    ] {
        run.input = input.to_owned();
        assert_eq!(runtime.perform(&run).await.wish, wish, "{input}");
    }
    assert_eq!(runtime.runtime.load().idle, 1, "one instance ran all of them");
}

/// The wish is for failures of every kind.
#[tokio::test]
async fn a_handler_that_traps_has_its_wish() {
    let runtime = TestRuntime::open();
    let body = "(call $wish (i32.const 1) (i32.const 7)) unreachable";
    let run = Run::of(&runtime.add(guest_that_uses(IMPORT_WISH, "", body)).await);
    let report = runtime.perform(&run).await;
    assert!(matches!(report.end, AttemptEnd::Failed { .. }), "{report:?}");
    assert_eq!(report.wish, Some(RetryWish::After(7)));
}

#[tokio::test]
async fn usage_of_one_job_is_not_counted_for_the_next() {
    let runtime = TestRuntime::open();
    let emits =
        "(call $emit (local.get $input) (local.get $input_len) (i32.const 0) (i32.const 0) \
         (i32.const 0) (i32.const 2048))
         (call $ok (local.get $input) (local.get $input_len))";
    let mut run = reusing(&runtime, guest(emits), 9).await;
    let first = runtime.perform(&run).await;
    let first_sink = std::mem::take(&mut run.sink);
    let second = runtime.perform(&run).await;
    for sink in [&first_sink, &run.sink] {
        assert_eq!(sink.chunks().len(), 1);
    }
    assert_eq!((first.usage.chunks, second.usage.chunks), (1, 1));
    // The first job's fuel includes a little for the start.
    let [first_fuel, second_fuel] = [&first, &second].map(|report| report.usage.fuel.unwrap());
    assert!(second_fuel <= first_fuel && first_fuel < second_fuel * 2);
    assert_eq!(first.usage.memory_bytes_peak, second.usage.memory_bytes_peak);
    // No other object has the sink of a job that has ended.
    assert_eq!(Arc::strong_count(&first_sink), 1);
}

#[tokio::test]
async fn an_instance_with_a_failed_job_is_not_reused() {
    // Traps, or spins, depending on the length of the input.
    let body = format!(
        "(if (i32.eq (local.get $input_len) (i32.const 2)) (then unreachable))
         (if (i32.eq (local.get $input_len) (i32.const 3)) (then (loop $again (br $again))))
         {COUNT}"
    );
    let runtime = TestRuntime::open();
    let mut run = reusing(&runtime, guest(&body), 9).await;
    for (input, timeout_ms, breaks) in [("10", 60_000, "abort"), ("100", 100, "deadline")] {
        run.input = "0".to_owned();
        run.timeout_ms = 60_000;
        assert_eq!(next(&runtime, &run).await, "1");
        assert_eq!(next(&runtime, &run).await, "2");
        (run.input, run.timeout_ms) = (input.to_owned(), timeout_ms);
        let end = next(&runtime, &run).await;
        assert!(end.contains(breaks), "{end}");
        assert_eq!(runtime.runtime.load().idle, 0);
    }
}

#[tokio::test]
async fn an_instance_that_has_grown_handles_nothing_more() {
    let runtime = TestRuntime::open();
    // Six more pages than the first one.
    let body = format!("(drop (memory.grow (i32.const 6))) {COUNT}");
    let mut run = reusing(&runtime, guest(&body), 9).await;
    run.endpoint.settings.memory_mib = 1;
    for expected in ["1", "2", "1"] {
        assert_eq!(next(&runtime, &run).await, expected);
    }
}

#[tokio::test]
async fn an_instance_does_not_wait_longer_than_it_may() {
    let runtime = TestRuntime::open();
    let mut run = reusing(&runtime, guest(COUNT), 9).await;
    run.endpoint.settings.reuse.max_idle = 1;
    assert_eq!(next(&runtime, &run).await, "1");
    while runtime.runtime.load().idle > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(next(&runtime, &run).await, "1");
}

#[tokio::test]
async fn a_job_without_a_permit_gets_that_of_an_idle_instance() {
    let runtime = TestRuntime::open();
    let mut runs = vec![];
    for name in ["a", "b", "c"] {
        let mut run = reusing(&runtime, guest(COUNT), 9).await;
        run.endpoint.id = EndpointId::new(name).unwrap();
        runs.push(run);
    }
    // The sandbox has two permits.
    for run in &runs {
        assert_eq!(next(&runtime, run).await, "1");
    }
    assert_eq!(runtime.runtime.load(), RuntimeLoad { running: 0, idle: 2, waiting: 0 });
    assert_eq!(next(&runtime, &runs[2]).await, "2", "the newest waits on");
    assert_eq!(next(&runtime, &runs[0]).await, "1", "the oldest was ended");
}

#[tokio::test]
async fn an_instance_is_initialized_once() {
    let runtime = TestRuntime::open();
    // Counts from 5 on.
    let init = format!("(i32.store8 (i32.const 2000) (i32.const 4)) {INIT_OK}");
    let run = reusing(&runtime, guest_with_init(&init, COUNT), 2).await;
    for expected in ["5", "6", "5"] {
        assert_eq!(next(&runtime, &run).await, expected);
    }
}

#[tokio::test]
async fn an_init_that_fails_or_never_ends_is_the_jobs_failure() {
    let runtime = TestRuntime::open();
    let fails = "(i64.store (i32.const 3100) (i64.const 0x6c65646f6d206f6e)) ;; \"no model\"
         (i32.store8 (i32.const 3000) (i32.const 1))
         (i32.store (i32.const 3004) (i32.const 3100))
         (i32.store (i32.const 3008) (i32.const 8))
         (i32.const 3000)";
    let mut run = reusing(&runtime, guest_with_init(fails, COUNT), 9).await;
    for _ in 0..2 {
        let error = next(&runtime, &run).await;
        assert_eq!(error, "the handler could not be initialized: no model");
    }
    let spins = "(loop $again (br $again)) unreachable";
    run = reusing(&runtime, guest_with_init(spins, COUNT), 9).await;
    run.timeout_ms = 100;
    assert_eq!(next(&runtime, &run).await, "deadline");
}
