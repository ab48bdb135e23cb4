//! The demo of several hosts, as `make demo-cluster` runs it.

use std::path::Path;
use std::process::{Command, Stdio};

use gristmill_tests::{binary, guests};

use crate::postgres::is_installed;

#[test]
fn the_demo_loses_no_job() {
    if !is_installed() {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/demo-cluster.sh");
    let components = guests::playground();
    let mut demo = Command::new("sh");
    demo.arg(script).arg(binary()).arg(components.parent().unwrap());
    let output = demo.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    assert_eq!(said.lines().next_back(), Some("12 of 12 jobs COMPLETED"), "{said}{errors}");
    // Jobs ran on both hosts, and the other one has become the active one.
    assert!(said.contains("standby  2 of 2"), "{said}");
    assert!(said.contains("the other host is active after"), "{said}");
}
