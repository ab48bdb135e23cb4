//! The first hours with Gristmill: mistakes that a new user makes get a message that names the
//! remedy, and leave nothing behind.

use std::fs;

use gristmill_tests::{PATIENCE, TestHost, command, guests, shared_host};
use serde_json::json;

use crate::command::{on, run, run_args};

#[tokio::test]
async fn a_refused_deploy_of_a_new_endpoint_leaves_no_template() {
    let host = shared_host();
    let template = "/v1/templates/cli-leftover?includeEndpointBoundTemplates=true";
    let playground = guests::playground().display().to_string();
    let line = format!("deploy {playground} --name cli-leftover --volume no-such-volume");
    run(on(&host), &line).failed(1, &["volume"]);
    host.client.get(template).await.refused(404);

    // The settings are right, and the host refuses the component.
    let foreign = host.scratch().join("foreign.wasm");
    let component = wat::parse_str("(component (import \"grain:mill/stone\" (instance)))").unwrap();
    fs::write(&foreign, component).unwrap();
    let line = format!("deploy {} --name cli-leftover", foreign.display());
    run(on(&host), &line).failed(1, &[]);
    host.client.get(template).await.refused(404);

    run(on(&host), &format!("deploy {playground} --name cli-leftover")).succeeded();
    run(on(&host), &line).failed(1, &[]);
    host.client.get(template).await.ok();
}

#[tokio::test]
async fn submissions_with_the_same_key_make_one_job() {
    let host = shared_host();
    host.deploy(&guests::echo(), "cli-keyed", json!({ "workersMax": 0 })).await;
    let submit = |key: &str| {
        let words = ["submit", "cli-keyed", "--input", "{}", "--idempotency-key", key];
        run_args(on(&host), words, "").succeeded().line().to_owned()
    };
    let first = submit("order 7");
    assert_eq!(submit("order 7"), first);
    assert_ne!(submit("order 8"), first);
    let wrong = ["submit", "cli-keyed", "--input", "{}", "--idempotency-key", "ä"];
    run_args(on(&host), wrong, "").failed(2, &["printable"]);
}

#[tokio::test]
async fn a_volume_gets_another_name_and_a_larger_size() {
    let host = shared_host();
    let id = run(on(&host), "volumes create growing --size 1").succeeded();
    let id = id.line();
    let shown = run(on(&host), &format!("volumes update {id} --size 2")).succeeded();
    assert!(shown.stdout.contains("2 GB") && shown.stdout.contains("growing"), "{shown:?}");
    let shown = run(on(&host), &format!("volumes update {id} --name grown --json")).succeeded();
    let shown = shown.json();
    assert_eq!((&shown["name"], &shown["size"]), (&"grown".into(), &2.into()));
    run(on(&host), &format!("volumes update {id}")).failed(2, &["--name", "--size"]);
    run(on(&host), &format!("volumes update {id} --size 1")).failed(1, &["size"]);
}

#[tokio::test]
async fn a_missing_key_is_no_damage() {
    let mut host = TestHost::start();
    host.deploy(&guests::echo(), "e", json!({ "workersMax": 0 })).await;
    for number in 0..3 {
        host.client().submit("e", json!({ "number": number })).await;
    }
    host.ask_to_end();
    host.wait(PATIENCE);
    let data = host.data_dir().display().to_string();
    let check = || run_args(command(), ["check", "--data-dir", &data], "");
    let whole = check().succeeded();
    assert!(whole.stderr.contains("read 3 jobs"), "{whole:?}");

    let (key, away) = (host.data_dir().join("secrets.key"), host.scratch().join("away.key"));
    fs::rename(&key, &away).unwrap();
    let without = check().failed(3, &["read 3 jobs", "nothing is damaged", "--secrets-key"]);
    assert!(without.stdout.is_empty(), "{without:?}");
    let serve = ["serve", "--listen", "127.0.0.1:0", "--data-dir", &data];
    run_args(command(), serve, "").failed(1, &["the file is missing", "--secrets-key"]);
    let away = away.display().to_string();
    let named = ["check", "--data-dir", &data, "--secrets-key", &away];
    run_args(command(), named, "").succeeded();
}

#[test]
fn a_directory_without_a_hosts_data_is_refused_with_one_cause() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("handler.py"), "").unwrap();
    let data = dir.path().display().to_string();
    let shown = run_args(command(), ["check", "--data-dir", &data], "");
    let shown = shown.failed(1, &["holds no data of a host"]);
    assert!(!shown.stderr.contains("os error"), "{shown:?}");
}

#[tokio::test]
async fn backups_name_the_file_and_the_directory_that_are_wrong() {
    let host = shared_host();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (missing, output) = (path("missing"), path("missing/b.tar"));
    let shown = run_args(on(&host), ["backup", "--output", &output], "");
    let shown =
        shown.failed(1, &[&format!("the directory {missing} does not exist").to_lowercase()]);
    assert!(!shown.stderr.contains(".gristmill-"), "{shown:?}");

    fs::write(path("count.wasm"), "this is a handler").unwrap();
    let (wrong, data) = (path("count.wasm"), path("data"));
    run_args(command(), ["restore", &wrong, "--data-dir", &data], "")
        .failed(1, &["count.wasm", "is not a backup"]);
}

#[tokio::test]
async fn an_empty_file_is_named() {
    let host = shared_host();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("empty.json");
    fs::write(&file, "").unwrap();
    let file = file.display().to_string();
    let input = format!("@{file}");
    run_args(on(&host), ["submit", "none", "--input", &input], "")
        .failed(1, &["empty.json is empty", "a json object"]);
    run_args(on(&host), ["submit", "none", "--input", "nope"], "")
        .failed(1, &["is not json", "a json object"]);
    let echo = guests::echo().display().to_string();
    run_args(command(), ["test", &echo, "--cases", &file], "")
        .failed(1, &["empty.json", "the file is empty", "\"tests\""]);
}
