//! Components that no compiler would write. docs/internals/security.md names these tests beside
//! the attacks.

use std::time::{Duration, Instant};

use gristmill_core::runtime::AttemptEnd;

use super::*;
use crate::sandbox::limiter::{INSTANCES_MAX, MEMORIES_MAX, TABLE_ELEMENTS_MAX, TABLES_MAX};
use crate::swap::tests::FakeSwaps;
use crate::testing::{Run, TestRuntime, guest, guest_with};

const ECHO: &str = "(call $ok (local.get $input) (local.get $input_len))";

async fn report(component: Vec<u8>) -> AttemptReport {
    let runtime = TestRuntime::open();
    let run = Run::of(&runtime.add(component).await);
    runtime.perform(&run).await
}

async fn error(component: Vec<u8>) -> String {
    match report(component).await.end {
        AttemptEnd::Failed { error, .. } => error,
        end => panic!("not failed: {end:?}"),
    }
}

/// Why a component is refused; `None` when it is accepted.
async fn refusal(component: Vec<u8>) -> Option<String> {
    match TestRuntime::open().runtime.add_component(component.into()).await {
        Ok(_) => None,
        Err(AddComponentError::Rejected(reason)) => Some(reason),
        Err(error) => panic!("the host failed: {error}"),
    }
}

#[tokio::test]
async fn tables_grow_to_a_sum() {
    // Grows both, one element at a time in turn, until neither grows; traps beyond the bound.
    let grow = format!(
        "(local $grown i32)
         (loop $more
           (local.set $grown (i32.and
             (table.grow $a (ref.null func) (i32.const 1000))
             (table.grow $b (ref.null func) (i32.const 1000))))
           (br_if $more (i32.ne (local.get $grown) (i32.const -1))))
         (if (i32.gt_u (i32.add (table.size $a) (table.size $b)) (i32.const {TABLE_ELEMENTS_MAX}))
           (then unreachable))
         {ECHO}"
    );
    let end = report(guest_with("(table $a 0 funcref) (table $b 0 funcref)", &grow)).await.end;
    assert!(matches!(end, AttemptEnd::Returned(_)), "{end:?}");
}

#[tokio::test]
async fn memories_grow_to_a_sum() {
    // Its own memory has a page; this one alone would fit into the limit of 256 MiB.
    let fields = "(memory $more 0)";
    let fits = format!("(drop (memory.grow $more (i32.const 4095))) {ECHO}");
    let report = report(guest_with(fields, &fits)).await;
    assert_eq!(report.usage.memory_bytes_peak, 256 << 20);
    let body =
        "(if (i32.eq (memory.grow $more (i32.const 4096)) (i32.const -1)) (then unreachable))
        unreachable";
    assert_eq!(error(guest_with(fields, body)).await, "memory limit of 256 MiB exceeded");
}

#[tokio::test]
async fn a_start_that_breaks_down_fails_its_job() {
    for (fields, expected) in [
        ("(func $start unreachable) (start $start)", "handler aborted (`unreachable` executed"),
        ("(func $start (call $start)) (start $start)", "stack overflow"),
        ("(memory $huge 8192)", "memory limit of 256 MiB exceeded"),
        ("(data (i32.const 65530) \"far too long\")", "handler trapped: out of bounds memory"),
    ] {
        let error = error(guest_with(fields, ECHO)).await;
        assert!(error.starts_with(expected), "{fields}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_never_ends_is_stopped() {
    let runtime = TestRuntime::open();
    let fields = "(func $start (loop $again (br $again))) (start $start)";
    let mut run = Run::of(&runtime.add(guest_with(fields, ECHO)).await);
    run.timeout_ms = 100;
    let started = Instant::now();
    let report = runtime.perform(&run).await;
    assert!(matches!(report.end, AttemptEnd::DeadlineReached), "{:?}", report.end);
    assert!(started.elapsed() < Duration::from_secs(30));
}

/// One instruction that writes 256 MiB is not interrupted; a loop of them is.
#[tokio::test(flavor = "multi_thread")]
async fn writing_all_memory_again_and_again_is_stopped() {
    let runtime = TestRuntime::open();
    let fill = "(drop (memory.grow (i32.const 4095)))
        (loop $again
          (memory.fill (i32.const 0) (i32.const 1) (i32.const 268435456)) (br $again))
        unreachable";
    let mut run = Run::of(&runtime.add(guest(fill)).await);
    run.timeout_ms = 200;
    let started = Instant::now();
    let report = runtime.perform(&run).await;
    assert!(matches!(report.end, AttemptEnd::DeadlineReached), "{:?}", report.end);
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn pointers_that_lie_trap() {
    for (pointer, len) in [(-16, 100), (0, -1), (65_535, 2), (i32::MIN, i32::MIN)] {
        let body = format!("(call $ok (i32.const {pointer}) (i32.const {len}))");
        let error = error(guest(&body)).await;
        assert!(!error.contains("the host failed"), "{error}");
    }
    // A result record at the end of memory, and one that is not aligned.
    for at in ["65534", "1025", "-4"] {
        let error = error(guest(&format!("(i32.const {at})"))).await;
        assert!(error.starts_with("handler failed in a host call: "), "{error}");
    }
}

/// Fills slots of the pool with a pattern, then checks that other jobs find no trace of it there.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_never_sees_leftovers_of_another() {
    const PAGES: u32 = 512;
    let grow = format!("(drop (memory.grow (i32.const {PAGES})))");
    let from = 65_536;
    let bytes = PAGES * 65_536;
    let fill = format!(
        "{grow} (memory.fill (i32.const {from}) (i32.const 0xa5) (i32.const {bytes})) {ECHO}"
    );
    let scan = format!(
        "(local $at i32) {grow} (local.set $at (i32.const {from}))
         (loop $next
           (if (i64.ne (i64.load (local.get $at)) (i64.const 0)) (then unreachable))
           (local.set $at (i32.add (local.get $at) (i32.const 8)))
           (br_if $next (i32.lt_u (local.get $at) (i32.add (i32.const {from}) (i32.const {bytes})))))
         {ECHO}"
    );
    let copied = Pool::Slots { resident_bytes: 2 << 20, scans: false };
    for pool in [Pool::for_this_machine(), copied, Pool::OnDemand] {
        let runtime = TestRuntime::with_pool(pool);
        let (fill, scan) = (runtime.run(&fill).await, runtime.run(&scan).await);
        let returned = |report: AttemptReport| {
            assert!(matches!(report.end, AttemptEnd::Returned(_)), "{pool}: {:?}", report.end);
        };
        for _ in 0..4 {
            let both = tokio::join!(runtime.perform(&fill), runtime.perform(&fill));
            returned(both.0);
            returned(both.1);
            let both = tokio::join!(runtime.perform(&scan), runtime.perform(&scan));
            returned(both.0);
            returned(both.1);
        }
    }
}

#[tokio::test]
async fn after_swap_is_enabled_no_job_begins_in_memory_that_is_cleared_by_a_scan() {
    let swaps = FakeSwaps::none();
    let swap = swaps.watch();
    let runtime = TestRuntime::with_swap(swap.clone());
    let copied = Pool::Slots { resident_bytes: 2 << 20, scans: false };
    if runtime.runtime.pool() == copied {
        println!("skipped: this machine has swap, or its kernel cannot scan");
        return;
    }
    let run = runtime.run(ECHO).await;
    for is_enabled in [false, true] {
        if is_enabled {
            swaps.enable(&swap);
        }
        let report = runtime.perform(&run).await;
        assert!(matches!(report.end, AttemptEnd::Returned(_)), "{:?}", report.end);
        assert_eq!(runtime.runtime.pool() == copied, is_enabled);
    }
}

#[tokio::test]
async fn ten_thousand_functions_are_a_component_like_any_other() {
    let functions: String =
        (0..10_000).map(|n| format!("(func (result i32) (i32.const {n}))")).collect();
    let end = report(guest_with(&functions, ECHO)).await.end;
    assert!(matches!(end, AttemptEnd::Returned(_)), "{end:?}");
}

/// A handler with this many more core instances, in a component inside it, of a module with these
/// fields.
fn with_core_instances(count: u32, fields: &str) -> Vec<u8> {
    /// The header of a component, and a section with an empty component. It represents the one
    /// component that the handler has already, so that later indices are correct.
    const SKIPPED_BYTES: usize = 8 + 10;
    let instances = "(core instance (instantiate $m))".repeat(count as usize);
    let text = format!(
        "(component (component) (component $c (core module $m {fields}) {instances}) \
         (instance (instantiate $c)))"
    );
    let bytes = wat::parse_str(text).unwrap();
    [guest(ECHO), bytes[SKIPPED_BYTES..].to_vec()].concat()
}

#[tokio::test]
async fn too_many_parts_are_refused_before_the_compile() {
    let many = |count: u32, part: &str| part.repeat(count as usize);
    // The handler has its own memory, and wit-component adds a table.
    let memories = guest_with(&many(MEMORIES_MAX, "(memory 0)"), ECHO);
    let tables = guest_with(&many(TABLES_MAX + 1, "(table 0 funcref)"), ECHO);
    let exports: String =
        (0..300).map(|n| format!("(export \"e{n}\" (instance $i))")).collect::<Vec<_>>().concat();
    let long = format!("(export \"{}\" (instance $i))", "x".repeat(300));
    let text = |fields: &str| wat::parse_str(format!("(component {fields})")).unwrap();
    assert_eq!(refusal(with_core_instances(1, "")).await, None);
    for (component, expected) in [
        (memories, "component needs 5 memories, limit: 4"),
        (tables, "component needs 10 tables, limit: 8"),
        (with_core_instances(INSTANCES_MAX, ""), "component does not fit into a sandbox: "),
        (
            with_core_instances(1, &format!("(func $f) (elem func {})", many(1_001, " $f"))),
            "component needs 1001 elements of passive segments, limit: 1000",
        ),
        (text(&format!("(instance $i) {exports}")), "component needs 300 exports, limit: 256"),
        (
            text(&format!("(instance $i) {long}")),
            "not a valid component: a name of its exports has 300 bytes, limit: 256 bytes",
        ),
    ] {
        let reason = refusal(component).await.unwrap();
        assert!(reason.starts_with(expected), "{reason}");
    }
}

/// Each instance has its own globals, of 16 bytes each.
#[tokio::test]
async fn globals_of_all_instances_are_bounded_with_and_without_a_pool() {
    let globals = "(global i32 (i32.const 0))".repeat(20_000);
    let [fits, too_many] = [2, 4].map(|count| with_core_instances(count, &globals));
    for pool in [Pool::for_this_machine(), Pool::OnDemand] {
        let runtime = TestRuntime::with_pool(pool);
        runtime.add(fits.clone()).await;
        match runtime.runtime.add_component(too_many.clone().into()).await {
            Err(AddComponentError::Rejected(reason)) => {
                assert!(reason.starts_with("component does not fit into a sandbox: "), "{reason}");
            }
            other => panic!("{pool}: {other:?}"),
        }
    }
}

/// The length of a part of a component, in the encoding of WebAssembly.
fn leb128(mut number: usize) -> Vec<u8> {
    let mut bytes = vec![];
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A section of a component or a module.
fn section(id: u8, content: &[u8]) -> Vec<u8> {
    [&[id], leb128(content.len()).as_slice(), content].concat()
}

/// A handler with this many core modules of one section each. No module has an instance.
fn with_modules(count: usize, id: u8, items: usize, content: &[u8]) -> Vec<u8> {
    const CORE_MODULE: u8 = 1;
    let content = section(id, &[leb128(items).as_slice(), content].concat());
    let module = section(CORE_MODULE, &[b"\0asm\x01\0\0\0", content.as_slice()].concat());
    [guest(ECHO), module.repeat(count)].concat()
}

/// The host decodes the items of all modules when it loads a component.
#[tokio::test]
async fn items_of_modules_without_an_instance_are_bounded() {
    const GLOBALS: u8 = 6;
    // `(global i32 (i32.const 0))`
    let globals = [0x7f, 0, 0x41, 0, 0x0b].repeat(20_000);
    assert_eq!(refusal(with_modules(12, GLOBALS, 20_000, &globals)).await, None);
    let reason = refusal(with_modules(14, GLOBALS, 20_000, &globals)).await.unwrap();
    let expected = "component needs 2800";
    assert!(reason.starts_with(expected), "{reason}");
    let expected = " items (functions, globals, types, imports, exports, segments), limit: 250000";
    assert!(reason.ends_with(expected), "{reason}");
}

/// An item may be large: a name has up to 100,000 bytes.
#[tokio::test]
async fn metadata_of_a_loaded_component_is_bounded() {
    let with_names = |count: usize| {
        let long = "x".repeat(99_000);
        let exports: String =
            (0..count).map(|n| format!("(export \"{n}{long}\" (memory 0))")).collect();
        with_core_instances(0, &format!("(memory 0) {exports}"))
    };
    assert_eq!(refusal(with_names(10)).await, None);
    let reason = refusal(with_names(50)).await.unwrap();
    assert!(reason.starts_with("component needs "), "{reason}");
    assert!(reason.ends_with(" bytes of metadata, limit: 4194304"), "{reason}");
}

/// Cuts a component and flips bits of it. Each result is refused with a sentence, or is a component
/// whose job ends in order.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_components_do_no_harm() {
    let whole = guest(ECHO);
    let mut damaged: Vec<_> =
        (0..whole.len()).step_by(41).map(|len| whole[..len].to_vec()).collect();
    // A fixed sequence (the constants of a linear congruential generator), so that a failure
    // repeats.
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..300 {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut flipped = whole.clone();
        let at = usize::try_from(random >> 33).unwrap() % flipped.len();
        flipped[at] ^= 1 << (random >> 30 & 7);
        damaged.push(flipped);
    }
    let runtime = TestRuntime::open();
    let (mut refused, mut ran) = (0, 0);
    for bytes in damaged {
        match runtime.runtime.add_component(bytes.into()).await {
            Err(AddComponentError::Rejected(reason)) => {
                assert!(!reason.contains('\n') && reason.len() < 2_000, "{reason}");
                refused += 1;
            }
            Err(error) => panic!("the host failed: {error}"),
            Ok(added) => {
                let component = added.component;
                runtime.records.put(component.clone());
                let mut run = Run::of(&component);
                run.timeout_ms = 1_000;
                if let AttemptEnd::Failed { error, .. } = runtime.perform(&run).await.end {
                    assert!(!error.contains("the host failed"), "{error}");
                }
                ran += 1;
            }
        }
    }
    println!("{refused} damaged components were refused, {ran} ran");
    assert!(refused > 100 && ran > 10, "{refused} {ran}");
    let sound = Run::of(&runtime.add(whole).await);
    assert!(matches!(runtime.perform(&sound).await.end, AttemptEnd::Returned(_)));
}
