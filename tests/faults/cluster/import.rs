//! The data of a host without a database moves into one: completely, or not at all.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use gristmill_tests::{TestHost, command, eventually, guests};
use serde_json::{Value, json};

use crate::hosts::{arguments, directory};
use crate::postgres::Database;

fn import(data: &Path, database: &Database) -> Command {
    let mut import = command();
    import.args(["import", "--database", &database.url(), "--data-dir"]).arg(data);
    import.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    import
}

/// The error of an import that is refused, and leaves nothing behind.
fn refusal(data: &Path, database: &Database) -> String {
    let refused = import(data, database).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert_eq!(rows(database), "0 0 0 0");
    assert!(!data.join(".import").exists());
    said.lines().find(|line| line.starts_with("error: ")).unwrap().to_owned()
}

/// Rows of the tables that an import fills first, and of those that it fills last.
fn rows(database: &Database) -> String {
    let count = |table: &str| format!("(SELECT count(*) FROM {table})");
    let counts = ["meta", "catalog", "job", "component_part"].map(count).join(" || ' ' || ");
    database.sql(&format!("SELECT {counts}"))
}

/// A connection that has a table of the database to itself until it is dropped.
struct TableLock(Child);

impl TableLock {
    fn take(database: &Database, table: &str) -> Self {
        let script = format!(
            "SET search_path = gristmill; BEGIN; LOCK TABLE {table}; SELECT 'locked'; SELECT pg_sleep(600)"
        );
        let mut psql = Command::new("psql");
        psql.arg(database.url()).args(["-qAtX"]);
        for statement in script.split("; ") {
            psql.args(["-c", statement]);
        }
        let mut psql = psql.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(psql.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "locked");
        Self(psql)
    }
}

impl TableLock {
    /// The server does not notice the end of a client while it sleeps.
    fn release(self, database: &Database) {
        database.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()",
        );
    }
}

impl Drop for TableLock {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_is_complete_or_leaves_nothing() {
    let Some(database) = Database::new() else { return };
    let mut alone = TestHost::start();
    alone.deploy(&guests::playground(), "play", json!({ "workersMax": 2 })).await;
    alone.deploy(&guests::playground(), "parked", json!({ "workersMax": 0 })).await;
    let client = alone.client();
    let large = "x".repeat(3 << 20);
    let mut ended = Vec::new();
    for value in [json!(large), json!(1), json!({ "deep": [null, 2.5, "é"] })] {
        let job = client.finish("play", json!({ "op": "echo", "value": value })).await;
        ended.push(job);
    }
    let mut waiting = Vec::new();
    // Below the limit of calls in ten seconds.
    for number in 0..900 {
        waiting.push(client.submit("parked", json!({ "op": "echo", "value": number })).await);
    }
    let data = alone.data_dir();

    // A running host keeps its directory.
    let said = refusal(&data, &database);
    assert!(said.contains("is in use by another process"), "{said}");
    alone.kill9();
    let (_folder, empty) = directory();
    fs::create_dir(&empty).unwrap();
    assert!(refusal(&empty, &database).contains("No such file"));
    // A damaged handler.
    let components = fs::read_dir(data.join("components")).unwrap();
    let component = components.map(|entry| entry.unwrap().path());
    let component =
        component.into_iter().find(|path| path.extension().is_some_and(|it| it == "wasm"));
    let component = component.unwrap();
    let bytes = fs::read(&component).unwrap();
    fs::write(&component, &bytes[1..]).unwrap();
    let said = refusal(&data, &database);
    assert!(said.contains("does not match the digest in its name"), "{said}");
    fs::write(&component, bytes).unwrap();
    // Without the key, secrets would be of no use.
    fs::rename(data.join("secrets.key"), data.join("other.key")).unwrap();
    let said = refusal(&data, &database);
    assert!(said.contains("secrets.key") && said.contains("--secrets-key"), "{said}");
    fs::rename(data.join("other.key"), data.join("secrets.key")).unwrap();

    // It is killed when it has sent the jobs, before the handlers.
    let lock = TableLock::take(&database, "component_part");
    let mut killed = import(&data, &database).spawn().unwrap();
    eventually("the import to wait for the table", async || {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'gristmill' \
             AND datname = current_database() AND wait_event_type = 'Lock'";
        (database.sql(waiting) == "1").then_some(())
    })
    .await;
    killed.kill().unwrap();
    killed.wait().unwrap();
    lock.release(&database);
    assert!(data.join(".import").exists(), "the copy of the import that was killed");
    database.cut_connections();
    assert_eq!(rows(&database), "0 0 0 0");

    let done = import(&data, &database).arg("--json").output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success(), "{said}");
    let counts: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&counts["jobs"], &counts["unfinishedJobs"]), (&json!(903), &json!(900)));
    assert_eq!(counts["handlers"], 1, "{counts}");
    assert!(!data.join(".import").exists());

    // The hosts have the key file, and the admin key of the directory.
    fs::copy(data.join("secrets.key"), database.key_file()).unwrap();
    let host = TestHost::join(&arguments(&database), alone.admin_key());
    let client = host.client();
    for job in &ended {
        assert_eq!(client.status("play", job["id"].as_str().unwrap()).await.ok(), *job);
    }
    client.patch("/v1/endpoints/parked", &json!({ "workersMax": 2 })).await.ok();
    for (number, job) in waiting.iter().enumerate().rev().step_by(97) {
        let document = client.finished("parked", job).await;
        assert_eq!(document["output"], json!({ "echo": number }), "{document}");
    }
    // A new job follows the imported ones.
    let new = client.finish("play", json!({ "op": "echo", "value": 3 })).await;
    assert_eq!(new["output"], json!({ "echo": 3 }));
    assert_eq!(database.sql("SELECT count(*) FROM job"), "904");
}
