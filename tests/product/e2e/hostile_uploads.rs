//! Uploads that attack the compiler. docs/internals/security.md names these tests beside the
//! attacks.

use std::fs;
use std::path::PathBuf;
use std::thread::available_parallelism;
use std::time::Instant;

use gristmill_tests::{TestHost, eventually, guests};
use serde_json::json;

fn component(fields: &str) -> Vec<u8> {
    wat::parse_str(format!("(component {fields})")).unwrap()
}

fn function(locals: &str, body: &str) -> Vec<u8> {
    component(&format!("(core module (func (param i32) {locals} {body}))"))
}

/// A component in a component in a component, and so on.
fn nested(levels: usize) -> Vec<u8> {
    const HEADER: &[u8] = b"\0asm\x0d\0\x01\0";
    const COMPONENT_SECTION: u8 = 4;
    (0..levels).fold(HEADER.to_vec(), |inner, _| {
        let mut length = vec![];
        let mut rest = inner.len();
        while rest >= 0x80 {
            length.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        length.push(rest as u8);
        [HEADER, &[COMPONENT_SECTION], &length, &inner].concat()
    })
}

/// Each component contains the previous one ten times: ten to the power of `levels` in a kilobyte.
pub(crate) fn nested_types(levels: usize) -> Vec<u8> {
    let core = "(component $c0 (core module $m) (core instance (instantiate $m)))";
    let ten = |level: usize| format!("(instance (instantiate $c{level}))").repeat(10);
    let components = (1..=levels).map(|level| format!("(component $c{level} {})", ten(level - 1)));
    component(&format!("{core} {} {}", components.collect::<String>(), ten(levels)))
}

/// Three thousand types of up to nine hundred parameters.
fn types() -> Vec<u8> {
    let types = (0..3_000).map(|n| format!("(type (func (param {})))", "i32 ".repeat(n % 900)));
    component(&format!("(core module {})", types.collect::<String>()))
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_components_are_compiled_apart_and_do_no_harm() {
    let host = TestHost::start();
    let innocent = host.deploy(&guests::echo(), "innocent", json!({ "workersMin": 1 })).await;
    let blocks = ["block ".repeat(30_000), "end ".repeat(30_000)].concat();
    let jumps = format!("block local.get 0 br_table {} end", "0 ".repeat(60_000));
    let sums = format!("i32.const 0 {} drop", "i32.const 1 i32.add ".repeat(500_000));
    for (name, bytes) in [
        ("blocks", function("", &blocks)),
        ("jumps", function("", &jumps)),
        ("locals", function(&format!("(local {})", "i64 ".repeat(49_000)), "")),
        ("sums", function("", &sums)),
        ("types", types()),
        ("nested", nested(500)),
        ("laughs", nested_types(5)),
    ] {
        let size = bytes.len();
        let started = Instant::now();
        let answer = host.upload(&format!("{name}:latest"), bytes).await;
        println!("{name}, {} KiB: answered after {:.1?}", size >> 10, started.elapsed());
        // It was compiled, and only then recognised as not a handler.
        assert!(answer.refused(400).contains("not a handler"), "{name}: {answer:?}");
        let document = host.client().finish(&innocent, json!({ "after": name })).await;
        assert_eq!(document["output"], json!({ "after": name }));
    }
}

/// The running child processes of a process.
pub(crate) fn children_of(parent: u32) -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let is_child = |process: &PathBuf| {
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        status.lines().any(|line| line == format!("PPid:\t{parent}"))
    };
    processes.filter(is_child).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compile_that_wants_too_much_is_ended() {
    let host = TestHost::start();
    let uploading = async {
        let started = Instant::now();
        let answer = host.upload("laughs:latest", nested_types(9)).await;
        println!("answered after {:.1?}: {}", started.elapsed(), answer.text);
        answer.refused(400)
    };
    let watching = async {
        // The limits are set before it reads the component, so at once.
        let limits = eventually("a limited child of the host", async || {
            let child = children_of(host.pid()).pop()?;
            let limits = fs::read_to_string(child.join("limits")).ok()?;
            let environment = fs::read_to_string(child.join("environ")).ok()?;
            limits.contains("4294967296").then_some((limits, environment))
        });
        let (limits, environment) = limits.await;
        let half = available_parallelism().unwrap().get().div_ceil(2).min(4);
        assert_eq!(environment, format!("RAYON_NUM_THREADS={half}\0"), "nothing of the host's");
        let is_limited = |name: &str, limit: &str| {
            let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().any(|word| word == limit)
        };
        for (name, limit) in [
            ("Max cpu time", "120"),
            ("Max address space", "4294967296"),
            ("Max file size", "1073741824"),
            ("Max open files", "64"),
            ("Max core file size", "0"),
        ] {
            assert!(is_limited(name, limit), "{name}: {limits}");
        }
    };
    let (reason, ()) = tokio::join!(uploading, watching);
    assert!(reason.contains("component could not be compiled within its limits"), "{reason}");
    assert_eq!(children_of(host.pid()), Vec::<PathBuf>::new());
    let peak = host.peak_memory();
    assert!(peak < 300 << 20, "the host itself had {} MiB", peak >> 20);
}
