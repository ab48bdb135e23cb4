//! Compares docs/CONFORMANCE.md, which names the test of each row of the contract, with the tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The tests in this folder, as `file::name`.
fn tests_that_exist() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("product/conformance");
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let module = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line == "#[tokio::test]" {
                let signature = lines.next().unwrap_or_default();
                let name =
                    signature.strip_prefix("async fn ").and_then(|rest| rest.split('(').next());
                found.insert(format!("{module}::{}", name.expect("a test follows its attribute")));
            }
        }
    }
    found
}

/// The tests that the last columns of the document's tables name, with the number of rows.
fn tests_that_are_named() -> (BTreeSet<String>, usize) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/CONFORMANCE.md");
    let text = fs::read_to_string(path).unwrap();
    let mut named = BTreeSet::new();
    let mut rows = 0;
    let is_row = |line: &&str| {
        line.starts_with('|') && !line.starts_with("|-") && !line.starts_with("| Row |")
    };
    for line in text.lines().filter(is_row) {
        let last = line.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        let tests: Vec<_> = last.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        assert!(!tests.is_empty(), "a row without a test: {line}");
        named.extend(tests);
        rows += 1;
    }
    (named, rows)
}

/// Every row names existing tests, and every test is in a row.
#[test]
fn rows_and_tests_are_the_same() {
    let exist = tests_that_exist();
    let (named, rows) = tests_that_are_named();
    assert!(rows > 100, "only {rows} rows were found");
    let missing: Vec<_> = named.difference(&exist).collect();
    assert!(missing.is_empty(), "tests that are named and do not exist: {missing:#?}");
    let unnamed: Vec<_> = exist.difference(&named).collect();
    assert!(unnamed.is_empty(), "tests that no row names: {unnamed:#?}");
}
