//! One data directory, one host.

use std::path::Path;
use std::process::{Command, Stdio};

use gristmill_tests::{TestHost, command, guests};
use serde_json::json;

#[tokio::test]
async fn a_second_host_on_the_same_data_is_refused_and_the_first_continues() {
    let mut host = TestHost::start();
    let endpoint = host.deploy(&guests::playground(), "locked", json!({})).await;
    let data = host.data_dir();
    let second = tokio::task::spawn_blocking(move || {
        command()
            .args(["serve", "--listen", "127.0.0.1:0", "--json", "--data-dir"])
            .arg(data)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    });
    let second = tokio::time::timeout(gristmill_tests::PATIENCE, second).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    println!("the second host said: {said}");
    assert!(!second.status.success(), "{said}");
    assert!(second.stdout.is_empty(), "no ready line: {}", String::from_utf8_lossy(&second.stdout));
    let lower = said.to_lowercase();
    assert!(
        lower.contains("in use") || lower.contains("another") || lower.contains("lock"),
        "{said}"
    );
    assert!(!lower.contains("panicked"), "{said}");

    let client = host.client();
    assert_eq!(client.finish(&endpoint, json!({ "op": "echo" })).await["status"], "COMPLETED");
    // The lock ends with its process, not with a file.
    host.kill9();
    host.start_again();
    assert_eq!(host.client().health(&endpoint).await["jobs"]["completed"], 1);
}

/// Reads the tables as any other program would, in a separate process.
#[test]
#[ignore = "a process of its own, which another test starts"]
fn another_program() {
    let file = std::env::var_os("STORE_DB").unwrap();
    let db = rusqlite::Connection::open(file).unwrap();
    let counted = db.query_row("SELECT count(*) FROM job", (), |row| row.get::<_, i64>(0));
    println!("the other program: {counted:?}");
}

/// The tables as another program reads them.
fn read_by_another_program(data_dir: &Path) -> String {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "lock::another_program", "--ignored", "--nocapture"]);
    let output = program.env("STORE_DB", data_dir.join("store.db")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn after_a_backup_other_programs_are_kept_out_and_a_kill_loses_nothing() {
    let mut host = TestHost::start();
    let said = read_by_another_program(&host.data_dir());
    assert!(said.contains("database is locked"), "{said}");
    let client = host.client();
    assert_eq!(client.get("/v1/backup").await.status, 200);
    let said = read_by_another_program(&host.data_dir());
    let key = client.post("/v1/keys", &json!({ "name": "late", "scopes": ["manage"] })).await.ok();
    host.kill9();
    host.start_again();
    let late = host.client().with_key(key["key"].as_str().unwrap());
    assert_eq!(late.get("/v1/endpoints").await.status, 200, "the key is there after the kill");
    assert!(said.contains("database is locked"), "{said}");
}
