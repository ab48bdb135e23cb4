//! Attempts in real sandboxes: outputs, limits, deadlines, permits, and the handlers' usage.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use gristmill_core::deploy::endpoint::Metering;
use gristmill_core::limits::CHUNK_BYTES_MAX;
use gristmill_core::runtime::AttemptEnd;
use gristmill_core::time::Timestamp;

use super::*;
use crate::testing::{Run, TestRuntime, core_module, guest, guest_that_imports, guest_with};

pub(super) const ECHO: &str = "(call $ok (local.get $input) (local.get $input_len))";
const SPIN: &str = "(loop $again (br $again)) unreachable";
const EMIT_INPUT: &str = "(call $emit (local.get $input) (local.get $input_len) (i32.const 0) \
    (i32.const 0) (i32.const 0) (i32.const 2048))
    (call $ok (local.get $input) (local.get $input_len))";

fn error(report: &AttemptReport) -> &str {
    match &report.end {
        AttemptEnd::Failed { error, .. } => error,
        end => panic!("not failed: {end:?}"),
    }
}

pub(super) fn output(report: &AttemptReport) -> &str {
    match &report.end {
        AttemptEnd::Returned(output) => output.as_str(),
        end => panic!("not returned: {end:?}"),
    }
}

async fn fails(body: &str) -> String {
    let runtime = TestRuntime::open();
    let run = runtime.run(body).await;
    error(&runtime.perform(&run).await).to_owned()
}

#[tokio::test]
async fn a_handler_returns_its_output_and_its_usage() {
    let runtime = TestRuntime::open();
    let mut run = runtime.run(ECHO).await;
    for metering in [Metering::Fuel, Metering::Epoch] {
        run.endpoint.settings.metering = metering;
        let report = runtime.perform(&run).await;
        assert_eq!(output(&report), "\"hello\"");
        assert_eq!(report.usage.memory_bytes_peak, 64 << 10);
        match metering {
            Metering::Fuel => assert!((1..1_000).contains(&report.usage.fuel.unwrap())),
            Metering::Epoch => assert_eq!(report.usage.fuel, None),
        }
    }
    assert_eq!(runtime.runtime.load(), RuntimeLoad { running: 0, idle: 0, waiting: 0 });
}

#[tokio::test]
async fn every_job_has_an_instance_of_its_own() {
    // Counts in its memory, and returns the count as its output.
    let count = "(i32.store8 (i32.const 2000) (i32.add (i32.load8_u (i32.const 2000)) \
         (i32.const 1)))
         (i32.store8 (i32.const 2001) (i32.add (i32.load8_u (i32.const 2000)) (i32.const 48)))
         (call $ok (i32.const 2001) (i32.const 1))";
    let runtime = TestRuntime::open();
    let run = runtime.run(count).await;
    for _ in 0..5 {
        assert_eq!(output(&runtime.perform(&run).await), "1");
    }
}

/// Each call needs at least two words of stack, so a hundred thousand calls do not fit.
#[tokio::test]
async fn the_stack_ends_at_the_documented_size() {
    let deep = "(func $deep (param i32) (result i32)
        (if (result i32) (local.get 0)
          (then (i32.add (i32.const 1) (call $deep (i32.sub (local.get 0) (i32.const 1)))))
          (else (i32.const 0))))";
    let runtime = TestRuntime::open();
    for (calls, fits) in [(4_000, true), (100_000, false)] {
        let body = format!(
            "(drop (call $deep (i32.const {calls})))
             (call $ok (local.get $input) (local.get $input_len))"
        );
        let run = Run::of(&runtime.add(guest_with(deep, &body)).await);
        match runtime.perform(&run).await.end {
            AttemptEnd::Returned(_) => assert!(fits, "{calls} calls"),
            AttemptEnd::Failed { error, .. } => {
                assert!(!fits && error.starts_with("stack overflow: "), "{calls} calls: {error}");
            }
            end => panic!("{calls} calls: {end:?}"),
        }
    }
}

#[tokio::test]
async fn limits_and_traps_are_reported_in_a_sentence() {
    let grow = "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) \
         unreachable";
    let huge_output = |bytes: u32| {
        format!(
            "(drop (memory.grow (i32.const 512))) (call $ok (i32.const 65536) (i32.const {bytes}))"
        )
    };
    let cases = [
        (grow, "memory limit of 256 MiB exceeded"),
        ("(call $recurse (i32.const 0))", "stack overflow: handler used more than 1 MiB of stack"),
        ("unreachable", "handler aborted (`unreachable` executed)"),
        ("(i32.div_u (i32.const 1) (i32.const 0))", "handler trapped: integer divide by zero"),
        ("(i32.load (i32.const -4))", "handler trapped: out of bounds memory access"),
        (
            "(call $ok (i32.const 0) (i32.const 3))",
            "handler returned invalid JSON: expected value at line 1 column 1",
        ),
        (&huge_output(21 << 20), "output is 22020096 bytes, limit: 20971520 bytes"),
        (
            &huge_output(25 << 20),
            "handler passed more than 24 MiB to the host at once; an output may have 20 MiB",
        ),
    ];
    for (body, expected) in cases {
        let error = fails(body).await;
        assert!(error.starts_with(expected), "{body}: {error}");
        assert!(!error.contains('\n') && error.len() < 200, "{error}");
    }
}

#[tokio::test]
async fn the_memory_limit_is_the_endpoints() {
    let runtime = TestRuntime::open();
    let mut run = runtime.run("(drop (memory.grow (i32.const 31))) unreachable").await;
    run.endpoint.settings.memory_mib = 1;
    let report = runtime.perform(&run).await;
    assert_eq!(error(&report), "memory limit of 1 MiB exceeded");
    run.endpoint.settings.memory_mib = 2;
    let report = runtime.perform(&run).await;
    assert_eq!(report.usage.memory_bytes_peak, 2 << 20);
    assert!(error(&report).starts_with("handler aborted"));
}

#[tokio::test]
async fn a_fuel_budget_ends_the_job() {
    let runtime = TestRuntime::open();
    let mut run = runtime.run(SPIN).await;
    run.endpoint.settings.max_fuel = Some(100_000);
    let report = runtime.perform(&run).await;
    assert_eq!(error(&report), "fuel limit of 100000 exceeded");
    assert_eq!(report.usage.fuel, Some(100_000));
}

/// The time between `at` and the end of a run, and its end.
async fn ends_after(runtime: &TestRuntime, run: &Run, at: Duration) -> (AttemptReport, Duration) {
    let started = Instant::now();
    let stop = run.stop.clone();
    let stopping = async move {
        // The subject: the time of the stop.
        tokio::time::sleep(at).await;
        stop.cancel();
    };
    let (report, ()) = tokio::join!(runtime.perform(run), stopping);
    (report, started.elapsed().saturating_sub(at))
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlasts_a_stop_or_a_deadline() {
    let runtime = TestRuntime::open();
    for (what, body, metering) in [
        ("spinning with fuel", SPIN, Metering::Fuel),
        ("spinning without", SPIN, Metering::Epoch),
        ("parked in a host call", EMIT_INPUT, Metering::Fuel),
    ] {
        let mut run = runtime.run(body).await;
        run.endpoint.settings.metering = metering;
        run.sink.is_full.store(true, Ordering::Relaxed);
        // The plain engine's file is compiled at its first use, and not in the time of the run.
        runtime.runtime.prepare(&run.deployment()).await.unwrap();
        // A tenth of this time must be left for computing on a loaded machine.
        let at = Duration::from_millis(500);
        let (report, late) = ends_after(&runtime, &run, at).await;
        println!("{what}: gone {late:?} after a stop");
        assert!(matches!(report.end, AttemptEnd::Stopped), "{what}: {:?}", report.end);
        // This only excludes a hang, since the test's machine may be busy.
        assert!(late < Duration::from_secs(30), "{what}: {late:?}");
        let cpu_ms_min = if body == SPIN { 50 } else { 0 };
        assert!(report.usage.cpu_us >= cpu_ms_min * 1_000, "{what}: {:?}", report.usage);

        run.stop = Default::default();
        run.timeout_ms = 100;
        let started = Instant::now();
        let report = runtime.perform(&run).await;
        let late = started.elapsed().saturating_sub(Duration::from_millis(run.timeout_ms));
        println!("{what}: gone {late:?} after its deadline");
        assert!(matches!(report.end, AttemptEnd::DeadlineReached), "{what}: {:?}", report.end);
        // This only excludes a hang, since the test's machine may be busy.
        assert!(late < Duration::from_secs(30), "{what}: {late:?}");
    }
    assert_eq!(runtime.runtime.load().running, 0);
}

/// The engine counts in a register while a loop calls nothing, and stores the sum at calls.
#[tokio::test]
async fn the_fuel_of_a_job_that_is_ended_is_counted_however_it_ends() {
    let runtime = TestRuntime::open();
    // Counts down from 30 million without a call.
    let compute = "(local $n i32) (local.set $n (i32.const 30000000))
         (loop $again (br_if $again (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))";
    let traps = format!("{compute} (drop (i32.div_u (i32.const 1) (local.get $n))) unreachable");
    let faults =
        format!("{compute} (drop (i32.load (i32.sub (local.get $n) (i32.const 4)))) unreachable");
    let aborts = format!("{compute} unreachable");
    for (what, body) in [("trap", &traps), ("fault", &faults), ("abort", &aborts)] {
        let report = runtime.perform(&runtime.run(body).await).await;
        assert!(matches!(report.end, AttemptEnd::Failed { .. }), "{what}: {:?}", report.end);
        assert!(report.usage.fuel >= Some(100_000_000), "{what}: {:?}", report.usage);
    }
    for what in ["deadline", "stop"] {
        let mut run = runtime.run(SPIN).await;
        let at = Duration::from_millis(500);
        let report = match what {
            "stop" => ends_after(&runtime, &run, at).await.0,
            _ => {
                run.timeout_ms = 500;
                runtime.perform(&run).await
            }
        };
        println!("{what}: {:?}", report.usage);
        // A loop is interrupted each time it has burned this much, in some milliseconds. A
        // loaded machine burned 80 million in 200 ms; a host that does not interrupt counts
        // 309,451.
        assert!(report.usage.fuel >= Some(20_000_000), "{what}: {:?}", report.usage);
    }
}

#[tokio::test]
async fn a_deadline_does_not_run_while_its_job_waits_for_a_sandbox() {
    let runtime = TestRuntime::open();
    let (busy, mut waiting) = (runtime.run(SPIN).await, runtime.run(ECHO).await);
    waiting.timeout_ms = 500;
    let hold = async {
        let (first, second) = tokio::join!(runtime.perform(&busy), runtime.perform(&busy));
        assert!(matches!((first.end, second.end), (AttemptEnd::Stopped, AttemptEnd::Stopped)));
    };
    let wait = async {
        while runtime.runtime.load().running < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(runtime.runtime.try_reserve(&waiting.deployment(), Level::CLIENT).is_none());
        let stop = async {
            // Twice the deadline.
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(runtime.runtime.load(), RuntimeLoad { running: 2, idle: 0, waiting: 1 });
            busy.stop.cancel();
        };
        let (report, ()) = tokio::join!(runtime.perform(&waiting), stop);
        assert_eq!(output(&report), "\"hello\"");
    };
    tokio::join!(hold, wait);
    assert_eq!(runtime.runtime.load(), RuntimeLoad { running: 0, idle: 0, waiting: 0 });
}

#[tokio::test]
async fn an_abandoned_wait_for_a_sandbox_leaves_nothing() {
    let runtime = TestRuntime::open();
    let run = runtime.run(ECHO).await;
    let deployment = run.deployment();
    let held = [(); 2].map(|()| runtime.runtime.try_reserve(&deployment, Level::CLIENT).unwrap());
    let limit = Duration::from_millis(10);
    assert!(
        tokio::time::timeout(limit, runtime.runtime.reserve(&deployment, Level::CLIENT))
            .await
            .is_err()
    );
    assert_eq!(runtime.runtime.load().waiting, 0);
    drop(held);
    assert_eq!(runtime.runtime.load().running, 0);
    assert_eq!(output(&runtime.perform(&run).await), "\"hello\"");
}

#[tokio::test]
async fn a_dropped_attempt_returns_its_permit() {
    let runtime = TestRuntime::open();
    let run = runtime.run(SPIN).await;
    let limit = Duration::from_millis(50);
    assert!(tokio::time::timeout(limit, runtime.perform(&run)).await.is_err());
    let started = Instant::now();
    while runtime.runtime.load().running > 0 {
        assert!(started.elapsed() < Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn large_emits_are_split() {
    let runtime = TestRuntime::open();
    let mut run = runtime.run(EMIT_INPUT).await;
    run.input = format!("[\"{}\"]", "x".repeat(2 * CHUNK_BYTES_MAX));
    let report = runtime.perform(&run).await;
    assert_eq!(output(&report), run.input);
    let chunks = run.sink.chunks();
    assert_eq!((report.usage.chunks, chunks.len()), (3, 3));
    assert!(chunks.iter().all(|chunk| chunk.len() <= CHUNK_BYTES_MAX && chunk.part.is_some()));
}

#[tokio::test]
async fn a_component_that_cannot_run_here_is_refused() {
    let runtime = TestRuntime::open();
    let cases = [
        (Bytes::from_static(b"hello"), "the file is not WebAssembly"),
        (Bytes::new(), "the file is empty"),
        (core_module(), "the file is a core WebAssembly module, not a component"),
        (
            guest_that_imports("acme:gpu@1.0.0", "tensor", "multiply").into(),
            "component imports `acme:gpu/tensor@1.0.0`, which this host does not provide",
        ),
        (
            guest_that_imports("wasi:keyvalue@0.2.0", "store", "open").into(),
            "component imports `wasi:keyvalue/store@0.2.0`, which this host does not provide",
        ),
        (
            guest_that_imports("wasi:random@0.2.0", "random", "roll-dice").into(),
            "component imports `wasi:random/random@0.2.0`, which this host provides differently: \
             instance export `roll-dice` has the wrong type: function implementation is missing",
        ),
        (
            wat::parse_str("(component)").unwrap().into(),
            "component exports neither `gristmill:handler/run@0.1` nor \
             `wasi:http/incoming-handler@0.2`, so it is not a handler; its exports: none. \
             `gristmill new` writes a project with a handler",
        ),
        (
            wat::parse_str(
                r#"(component (instance $empty) (export "gristmill:handler/run@0.1.0"
                (instance $empty)))"#,
            )
            .unwrap()
            .into(),
            "component exports `gristmill:handler/run` with another type",
        ),
        (
            guest_that_imports("wasi:http@0.3.0", "types", "f").into(),
            "component imports `wasi:http/types@0.3.0`, which this host does not provide: build it \
             for WASI 0.2",
        ),
        (
            wat::parse_str(r#"(component (import "wasi:io/poll@0.2.0-rc-2023-11-10" (instance)))"#)
                .unwrap()
                .into(),
            "component imports `wasi:io/poll@0.2.0-rc-2023-11-10`, which this host does not \
             provide: it is of a draft of WASI 0.2, so build it with newer tools",
        ),
        (Bytes::from_static(b"\0asm\x0d\0\x01\0\x09\xff"), "not a valid component: "),
    ];
    for (bytes, expected) in cases {
        let refused = runtime.runtime.add_component(bytes).await.unwrap_err();
        let AddComponentError::Rejected(reason) = refused else { panic!("{refused:?}") };
        assert!(reason.starts_with(expected), "{reason}");
        assert!(!reason.contains('\n'), "{reason}");
    }
    runtime.until_files(0).await;
}

#[tokio::test]
async fn an_upload_that_is_abandoned_during_its_compile_leaves_no_file() {
    let endless = Compiler::child("/bin/sh".into(), vec!["-c".into(), "exec sleep 600".into()]);
    let runtime = TestRuntime::with_compiler(endless);
    let component = Bytes::from(guest(ECHO));
    // Two uploads of the same bytes; the first is abandoned before the second.
    for patience in [50, 500].map(Duration::from_millis) {
        let [first, second] = [patience, 2 * patience].map(|patience| {
            tokio::time::timeout(patience, runtime.runtime.add_component(component.clone()))
        });
        let (first, second) = tokio::join!(first, second);
        assert!(first.is_err() && second.is_err(), "no compile ends");
        runtime.until_files(0).await;
    }
}

/// Several loads at one time would add up in the memory of the host.
#[tokio::test]
async fn an_upload_keeps_its_turn_to_compile_until_it_is_loaded() {
    for _ in 0..50 {
        let runtime = TestRuntime::open();
        let artifacts = runtime.directory.path().join("artifacts");
        // The compiled file has its name before it is loaded.
        let is_compiled = || {
            let engines = std::fs::read_dir(&artifacts).unwrap();
            engines.flat_map(|engine| std::fs::read_dir(engine.unwrap().path()).unwrap()).any(
                |file| file.unwrap().path().extension().is_some_and(|suffix| suffix == "cwasm"),
            )
        };
        let mut adding = Box::pin(runtime.runtime.add_component(guest(ECHO).into()));
        while (&mut adding).now_or_never().is_none() {
            if is_compiled() && runtime.runtime.artifacts.compile_turns().is_taken() {
                return;
            }
            tokio::task::yield_now().await;
        }
        assert!(!runtime.runtime.artifacts.compile_turns().is_taken());
    }
    panic!("the turn ended before the load");
}

#[tokio::test]
async fn a_component_whose_record_is_never_written_leaves_no_file() {
    let runtime = TestRuntime::open();
    let added = runtime.runtime.add_component(guest(ECHO).into()).await.unwrap();
    let again = runtime.runtime.add_component(guest(ECHO).into()).await.unwrap();
    drop(added);
    runtime.runtime.remove_components(vec![again.component.digest]).await.unwrap();
    assert_eq!(runtime.files(), 2, "another upload of the same bytes keeps them");
    drop(again);
    runtime.until_files(0).await;
}

#[tokio::test]
async fn a_changed_or_missing_artifact_is_compiled_again() {
    let runtime = TestRuntime::open();
    let run = runtime.run(ECHO).await;
    let file = runtime.only_file("artifacts");
    let good = std::fs::read(&file).unwrap();
    for damage in [Some(b"native code from elsewhere".as_slice()), None] {
        match damage {
            Some(bytes) => std::fs::write(&file, bytes).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        // A new process: nothing is in memory.
        let again = TestRuntime::open_in(runtime.directory.clone(), runtime.records.clone());
        assert_eq!(output(&again.perform(&run).await), "\"hello\"");
        assert_eq!(std::fs::read(&file).unwrap().len(), good.len());
        let artifact = crate::files::Artifact::open(&file).unwrap().unwrap().digest;
        let record = runtime.records.find(run.component.digest).unwrap();
        assert_eq!(record.artifacts.values().collect::<Vec<_>>(), [&artifact]);
    }
}

/// Lets a call wait for its turn to compile, as the last of this many.
async fn until_it_waits(artifacts: &Artifacts, call: &mut (impl Future + Unpin), waiting: usize) {
    while artifacts.compile_turns().waiting() < waiting {
        assert!(call.now_or_never().is_none(), "another call has the turn");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A call that has the turn keeps it until it is polled again, so it is known which call is next.
#[tokio::test]
async fn components_are_compiled_in_turns_of_their_owners() {
    let [evil, good] = ["evil", "good"].map(|name| OwnerId::new(name).unwrap());
    let component = |number: u32| guest(&format!("(drop (i32.const {number})) {ECHO}"));
    let before = TestRuntime::open();
    let mut stored = vec![];
    for number in 0..3 {
        stored.push(before.add(component(number)).await.digest);
        std::fs::remove_file(before.only_file("artifacts")).unwrap();
    }
    let runtime = TestRuntime::open_in(before.directory.clone(), before.records.clone());
    let artifacts = &runtime.runtime.artifacts;
    let upload = async |number: u32, owner: &OwnerId| {
        let staged = artifacts.stage(owner).unwrap();
        staged.write(component(number).into()).await.unwrap();
        artifacts.add(staged, owner, Timestamp::from_millis(0)).await.unwrap();
    };
    let load = async |number: usize, owner: &OwnerId| {
        artifacts.load(stored[number], Metering::Fuel, owner).await.unwrap();
    };
    let is_next = async |call: &mut (dyn Future<Output = ()> + Unpin)| {
        let called = tokio::time::timeout(Duration::from_secs(30), call).await;
        called.expect("the turn is that of another call");
    };

    let mut first = Box::pin(upload(10, &evil));
    while !artifacts.compile_turns().is_taken() {
        assert!((&mut first).now_or_never().is_none());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let mut uploads = [(11, &evil), (12, &evil), (13, &good)]
        .map(|(number, owner)| Box::pin(upload(number, owner)));
    let mut jobs =
        [(0, &evil), (1, &evil), (2, &good)].map(|(number, owner)| Box::pin(load(number, owner)));
    for (number, call) in uploads.iter_mut().enumerate() {
        until_it_waits(artifacts, call, number + 1).await;
    }
    for (number, call) in jobs.iter_mut().enumerate() {
        until_it_waits(artifacts, call, number + 4).await;
    }
    is_next(&mut first).await;
    let [evil_job, second_evil_job, good_job] = &mut jobs;
    let [evil_upload, second_evil_upload, good_upload] = &mut uploads;
    for call in [evil_job, good_job, second_evil_job] {
        is_next(call).await;
    }
    for call in [evil_upload, good_upload, second_evil_upload] {
        is_next(call).await;
    }
}

#[tokio::test]
async fn a_damaged_component_is_not_compiled() {
    let runtime = TestRuntime::open();
    let run = runtime.run(ECHO).await;
    std::fs::write(runtime.only_file("components"), guest(SPIN)).unwrap();
    std::fs::remove_file(runtime.only_file("artifacts")).unwrap();
    let report = runtime.perform(&run).await;
    let digest = run.component.digest;
    let expected = format!("the stored file of component `{digest}` is missing or damaged");
    assert_eq!(error(&report), expected);
}

#[tokio::test]
async fn files_are_private_and_are_deleted_with_the_component() {
    use std::os::unix::fs::PermissionsExt as _;
    let runtime = TestRuntime::open();
    let component = runtime.add(guest(ECHO)).await;
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    for below in ["components", "artifacts"] {
        let file = runtime.only_file(below);
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700), "{file:?}");
    }
    assert_eq!(component.exports, ["gristmill:handler/run@0.1.0"]);
    assert!(component.imports.contains(&"gristmill:handler/output@0.1.0".to_owned()));
    let known = runtime.runtime.add_component(guest(ECHO).into()).await.unwrap();
    assert_eq!(known.component, component, "the same bytes are the same component");
    // Files stay as long as there is a record, or a task is about to write one.
    let remove = || runtime.runtime.remove_components(vec![component.digest]);
    remove().await.unwrap();
    assert_eq!(runtime.files(), 2);
    runtime.records.remove(component.digest);
    remove().await.unwrap();
    assert_eq!(runtime.files(), 2);
    drop(known);
    runtime.until_files(0).await;
}

#[tokio::test]
async fn a_start_removes_files_without_a_record() {
    let TestRuntime { runtime, records, directory } = TestRuntime::open();
    let forgotten = runtime.add_component(guest(ECHO).into()).await.unwrap();
    // A crash, before the record is written.
    std::mem::forget(forgotten);
    drop(runtime);
    let other = guest("(call $ok (i32.const 0) (i32.const 0))");
    let runtime = TestRuntime::open_in(directory.clone(), records.clone());
    assert_eq!(runtime.files(), 0);
    runtime.add(other).await;
    // Another upload is half complete.
    let staged = runtime.runtime.stage(&OwnerId::operator()).await.unwrap();
    staged.write("half".into()).await.unwrap();
    std::mem::forget(staged);
    drop(runtime);
    let runtime = TestRuntime::open_in(directory.clone(), records);
    assert_eq!(runtime.files(), 2);
}

#[tokio::test]
async fn without_a_component_the_image_is_named() {
    let runtime = TestRuntime::open();
    let run = runtime.run(ECHO).await;
    let deployment = Deployment { component: None, ..Deployment::clone(&run.deployment()) };
    let deployment = Arc::new(deployment);
    let reservation = runtime.runtime.reserve(&deployment, Level::CLIENT).await;
    let attempt = run.attempt_of(deployment);
    let report = runtime.runtime.perform(reservation, attempt, run.sink.clone()).await;
    assert_eq!(error(&report), "no component is stored as `t:latest`");
}

struct PanickingSink;

#[async_trait]
impl AttemptSink for PanickingSink {
    async fn emit(
        &self,
        _: Vec<gristmill_core::job::record::Chunk>,
    ) -> Result<(), gristmill_core::runtime::SinkClosed> {
        panic!("a mistake of the host")
    }
    fn progress(&self, _: gristmill_core::job::payload::Json) {}
    fn log(&self, _: gristmill_core::runtime::LogLevel, _: &str) {}
    async fn requested(&self, _: gristmill_core::metrics::endpoint::RequestEnd, _: u64) {}
    fn trapped(&self, _: Vec<gristmill_core::runtime::StackCall>) {}
    fn host(&self) -> Option<&dyn gristmill_core::runtime::HandlerHost> {
        None
    }
}

#[tokio::test]
async fn a_panic_of_the_host_fails_the_job_only() {
    let runtime = TestRuntime::open();
    let run = runtime.run(EMIT_INPUT).await;
    for _ in 0..3 {
        let deployment = run.deployment();
        let reservation = runtime.runtime.reserve(&deployment, Level::CLIENT).await;
        let attempt = run.attempt_of(deployment);
        let report = runtime.runtime.perform(reservation, attempt, Arc::new(PanickingSink)).await;
        assert_eq!(error(&report), "the host failed while it ran the handler");
    }
    assert_eq!(output(&runtime.perform(&run).await), "\"hello\"");
    assert_eq!(runtime.runtime.load().running, 0);
}
