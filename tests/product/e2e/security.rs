//! Compares the pages that name the tests of each bound and promise with the tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Files whose tests must all be in the document.
const ATTACKS: [&str; 4] = [
    "host/runtime/src/wasmtime_runtime/hostile_tests.rs",
    "tests/product/runtime/hostile.rs",
    "tests/product/e2e/hostile.rs",
    "tests/product/e2e/hostile_uploads.rs",
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The tests of a file, as `path::name`.
fn tests_of(path: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(repository().join(path))
        .unwrap_or_else(|error| panic!("{path} is named: {error}"));
    let mut found = BTreeSet::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if let Some((_, signature)) = line.split_once("fn ").filter(|_| is_test) {
            found.insert(format!("{path}::{}", signature.split('(').next().unwrap()));
        }
        let is_attribute = line == "#[test]" || line.starts_with("#[tokio::test");
        // Further attributes, such as `ignore`, may stand before the function.
        is_test = is_attribute || is_test && line.starts_with("#[");
    }
    found
}

/// The tests that the document's tables name whose last column is `Test`, row by row.
fn rows() -> Vec<Vec<String>> {
    let text = fs::read_to_string(repository().join("docs/internals/security.md")).unwrap();
    let (mut is_table, mut has_tests) = (false, false);
    let rows = text.lines().filter(|line| {
        let is_head = line.starts_with('|') && !is_table;
        is_table = line.starts_with('|');
        has_tests = if is_head { line.ends_with("| Test |") } else { has_tests };
        line.starts_with("| ") && !is_head && has_tests
    });
    let tests = |row: &str| -> Vec<String> {
        let last = row.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        let tests: Vec<_> = last.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        assert!(!tests.is_empty(), "a row without a test: {row}");
        tests
    };
    rows.map(tests).collect()
}

/// The first lines of `gristmill-edge` name the test of each promise, such as `tls::NAME`.
#[test]
fn every_promise_of_the_edge_has_its_tests() {
    let page = fs::read_to_string(repository().join("host/edge/src/lib.rs")).unwrap();
    let promises = page.lines().map_while(|line| line.strip_prefix("//!")).collect::<String>();
    let quoted = promises.split('`').skip(1).step_by(2);
    let named: Vec<_> = quoted.filter_map(|name| name.split_once("::")).collect();
    assert!(named.len() > 20, "only {} tests were found", named.len());
    for (file, name) in named {
        let file = format!("tests/product/edge/{file}.rs");
        let test = format!("{file}::{name}");
        assert!(tests_of(&file).contains(&test), "{test} does not exist");
    }
}

#[test]
fn every_bound_has_its_test_and_every_attack_its_row() {
    let rows = rows();
    assert!(rows.len() > 30, "only {} rows were found", rows.len());
    let named: BTreeSet<String> = rows.into_iter().flatten().collect();
    let mut paths: BTreeSet<&str> =
        named.iter().map(|test| test.split_once("::").unwrap().0).collect();
    paths.extend(ATTACKS);
    let exist: BTreeSet<String> = paths.into_iter().flat_map(tests_of).collect();
    let missing: Vec<_> = named.difference(&exist).collect();
    assert!(missing.is_empty(), "tests that are named and do not exist: {missing:#?}");
    let is_attack = |test: &&String| ATTACKS.iter().any(|path| test.starts_with(path));
    let unnamed: Vec<_> = exist.difference(&named).filter(is_attack).collect();
    assert!(unnamed.is_empty(), "attacks that no row names: {unnamed:#?}");
}
