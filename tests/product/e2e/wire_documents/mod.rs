//! Snapshots of the documents of both HTTP APIs, so that a review shows each change of them: the
//! status, the headers that belong to a document, and the whole body.
//!
//! The host's clock stands still at a known time, so the times in a document are those of the
//! snapshot. Values that differ from run to run stand in brackets ([`shown`]). The order of fields
//! is not compared.
//!
//! After an intended change, `INSTA_UPDATE=always` before the test's command writes the files in
//! [`snapshots`](../snapshots) anew; the diff of these files is then a part of the review.

mod management;
mod queue;
mod shown;

use gristmill_tests::{Answer, TestHost};

/// 2023-11-14T22:13:20Z.
const CLOCK: &str = "--manual-clock=1700000000000";

/// Bounds that otherwise depend on the machine.
const MACHINE: [&str; 2] = ["--max-running-jobs=256", "--max-sandbox-memory-mib=1024"];

/// A host whose clock stands still at a known time.
fn host(arguments: &[&str]) -> TestHost {
    TestHost::start_with(&[&[CLOCK], &MACHINE[..], arguments].concat())
}

/// Compares an answer with the snapshot of this name.
#[track_caller]
fn check(name: &str, answer: &Answer) {
    check_text(name, &shown::answer(answer));
}

/// Compares a text with the snapshot of this name.
#[track_caller]
fn check_text(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(concat!(env!("CARGO_MANIFEST_DIR"), "/product/e2e/snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}
