//! The binary of `make demo` and the tests are one build: `make test` compiles no crate of the demo
//! a second time, and `make full` none of `make test`.
//!
//! Cargo selects the features of a crate from all selected packages. A library that only tests use
//! can so select a further feature of, say, `tracing`, and every crate above it, wasmtime included,
//! is compiled twice. tests/Cargo.toml selects these features for the demo too.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::Command;

use serde_json::Value;

/// The units that cargo would compile, by a digest of all that makes them differ.
fn units(arguments: &[&str]) -> BTreeMap<u64, String> {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .args(["--locked", "--offline", "-Z", "unstable-options", "--unit-graph"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        // The list of units is an unstable option; nothing is compiled with this variable.
        .env("RUSTC_BOOTSTRAP", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let graph: Value = serde_json::from_slice(&output.stdout).unwrap();
    let units = graph["units"].as_array().unwrap();
    let mut digests = vec![None; units.len()];
    (0..units.len())
        .map(|index| {
            let unit = &units[index];
            let name = format!("{} ({})", unit["pkg_id"], unit["target"]["name"]);
            (digest(units, index, &mut digests), name)
        })
        .collect()
}

/// The digest of a unit: its package, target, profile and features, and the same of its
/// dependencies.
fn digest(units: &[Value], index: usize, digests: &mut [Option<u64>]) -> u64 {
    if let Some(known) = digests[index] {
        return known;
    }
    let unit = &units[index];
    let mut hasher = DefaultHasher::new();
    for field in ["pkg_id", "target", "platform", "mode", "features"] {
        unit[field].to_string().hash(&mut hasher);
    }
    // The profiles `dev` and `test` have the same values here, under two names.
    let mut profile = unit["profile"].clone();
    profile["name"] = Value::Null;
    profile.to_string().hash(&mut hasher);
    let dependencies = unit["dependencies"].as_array().unwrap().iter();
    let mut of_dependencies: Vec<_> = dependencies
        .map(|dependency| digest(units, dependency["index"].as_u64().unwrap() as usize, digests))
        .collect();
    of_dependencies.sort_unstable();
    of_dependencies.hash(&mut hasher);
    *digests[index].insert(hasher.finish())
}

/// The programs of `make test`.
const TESTS: [&str; 4] = ["test", "--workspace", "--exclude", "gristmill-faults"];

#[test]
fn make_test_compiles_nothing_of_the_demo_a_second_time() {
    let demo = units(&["build", "-p", "gristmill-tests", "--bin", "gristmill-under-test"]);
    let tests = units(&TESTS);
    assert!(demo.len() > 400 && tests.len() > demo.len(), "{} and {}", demo.len(), tests.len());
    assert_shared(&demo, &tests);
}

#[test]
fn make_full_compiles_nothing_of_make_test_a_second_time() {
    let mut faults = units(&["test", "-p", "gristmill-faults"]);
    let suites = faults.len();
    faults.retain(|_, name| !name.contains("#gristmill-faults@"));
    assert!(faults.len() > 400 && faults.len() < suites, "{} of {suites}", faults.len());
    assert_shared(&faults, &units(&TESTS));
}

#[test]
fn make_quick_compiles_neither_the_engine_nor_the_database_nor_the_web_framework() {
    let makefile = include_str!("../../../Makefile");
    let crates = makefile.lines().find_map(|line| line.strip_prefix("QUICK := ")).unwrap();
    let packages: Vec<_> = crates.split(' ').map(|name| format!("-pgristmill-{name}")).collect();
    let arguments = ["test", "--lib"].into_iter().chain(packages.iter().map(String::as_str));
    let quick = units(&arguments.collect::<Vec<_>>());
    assert!(quick.len() > 100, "{}", quick.len());
    for name in ["#wasmtime@", "#libsqlite3-sys@", "#axum@"] {
        let found: Vec<_> = quick.values().filter(|unit| unit.contains(name)).collect();
        assert!(found.is_empty(), "{found:?}");
    }
}

fn assert_shared(wanted: &BTreeMap<u64, String>, built: &BTreeMap<u64, String>) {
    let missing = wanted.iter().filter(|(digest, _)| !built.contains_key(digest));
    let twice: Vec<_> = missing.map(|(_, name)| name).collect();
    assert!(
        twice.is_empty(),
        "select the features of these crates in tests/Cargo.toml: {twice:#?}"
    );
}
