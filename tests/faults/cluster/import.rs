//! The data of a host without a database moves into one: completely, or not at all.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gristmill_tests::{TestHost, command, eventually, guests};
use serde_json::{Value, json};

use crate::hosts::{arguments, directory};
use crate::postgres::{Database, Server};
use crate::proxy::{Link, Proxy};
use crate::tcp::PASSWORD;

fn import(data: &Path, database: &Database) -> Command {
    import_at(data, &database.url())
}

fn import_at(data: &Path, url: &str) -> Command {
    let mut import = command();
    import.args(["import", "--database", url, "--data-dir"]).arg(data);
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
    assert!(refusal(&empty, &database).contains("holds no data of a host"));
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

    // No host runs the jobs of the directory as well, and another database may get them.
    let mut serve = command();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data);
    let refused = serve.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("`.imported`"), "{said}");
    let other = Database::new().unwrap();
    let again = import(&data, &other).output().unwrap();
    assert!(again.status.success(), "{again:?}");
    assert_eq!(other.sql("SELECT count(*) FROM job"), "903");

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

/// Makes the commits of a server wait for these standbys, which may be none.
fn set_standbys(server: &Server, names: &str) {
    server.sql(&format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"));
    server.sql("SELECT pg_reload_conf()");
}

/// A host that has ended, with a waiting job in its directory.
async fn ended_host() -> TestHost {
    let mut alone = TestHost::start();
    alone.deploy(&guests::echo(), "parked", json!({ "workersMax": 0 })).await;
    alone.client().submit("parked", json!({ "grain": 1 })).await;
    alone.kill9();
    alone
}

/// Makes the tables, since an import that is refused leaves them empty.
fn make_tables(database: &Database) {
    let (_folder, empty) = directory();
    fs::create_dir(&empty).unwrap();
    refusal(&empty, database);
}

/// An import that has lost its connection while the server carries out its commit, which waits for
/// this event; and the link by which it connects again.
async fn import_without_connection(
    data: &Path,
    database: &Database,
    event: &str,
) -> (Child, Proxy) {
    let proxy = Proxy::to(database.address_by_tcp()).await;
    let mut import = import_at(data, &database.url_at(proxy.address(), PASSWORD)).spawn().unwrap();
    eventually("the commit to wait", async || {
        assert!(import.try_wait().unwrap().is_none(), "the import has ended");
        let waiting = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
             AND application_name = 'gristmill' AND query = 'COMMIT' AND wait_event = '{event}'"
        );
        (database.sql(&waiting) == "1").then_some(())
    })
    .await;
    proxy.set(Link::Cut);
    // The proxy sees a link's last state only.
    tokio::time::sleep(Duration::from_secs(2)).await;
    proxy.set(Link::Open);
    (import, proxy)
}

/// The standby returns after the import has connected again, and the rows were not visible until
/// then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_that_loses_its_connection_waits_for_the_end_of_its_commit() {
    let Some(server) = Server::start_on_tcp(|_| String::new()) else { return };
    let database = server.database();
    let alone = ended_host().await;
    make_tables(&database);
    set_standbys(&server, "nobody");
    let (mut import, _link) =
        import_without_connection(&alone.data_dir(), &database, "SyncRep").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(rows(&database), "0 0 0 0");
    assert_eq!(import.try_wait().unwrap(), None, "the import has ended before its commit");
    set_standbys(&server, "");
    let done = import.wait_with_output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success(), "{said}");
    assert_eq!(database.sql("SELECT count(*) FROM job"), "1");
    drop(database);
}

/// The standby returns after the import has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_does_not_call_a_commit_that_still_waits_a_failure() {
    let Some(server) = Server::start_on_tcp(|_| String::new()) else { return };
    let database = server.database();
    let alone = ended_host().await;
    make_tables(&database);
    set_standbys(&server, "nobody");
    let (waiting, _link) = import_without_connection(&alone.data_dir(), &database, "SyncRep").await;
    let ended = waiting.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("whether the import was completed is unknown"), "{said}");
    set_standbys(&server, "");
    eventually("the commit", async || {
        (database.sql("SELECT count(*) FROM job") == "1").then_some(())
    })
    .await;
    // The next import finds the rows of the directory, and removes the copy of an import that was
    // killed.
    let (mark, copy) = (alone.data_dir().join(".imported"), alone.data_dir().join(".import"));
    assert!(!mark.exists());
    fs::create_dir(&copy).unwrap();
    let again = import(&alone.data_dir(), &database).output().unwrap();
    assert!(String::from_utf8_lossy(&again.stderr).contains("not empty"), "{again:?}");
    assert_eq!((mark.exists(), copy.exists()), (true, false));
    drop(database);
}

/// The server undoes the transaction after the import has connected again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_whose_commit_was_undone_is_a_failure() {
    let Some(server) = Server::start_on_tcp(|_| String::new()) else { return };
    let database = server.database();
    let alone = ended_host().await;
    make_tables(&database);
    database.sql(
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_sleep(600); RETURN NULL; END'; \
         CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON meta DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION wait()",
    );
    let (import, _link) = import_without_connection(&alone.data_dir(), &database, "PgSleep").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    database.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND wait_event = 'PgSleep'",
    );
    let ended = import.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot import") && !said.contains("unknown"), "{said}");
    assert_eq!(rows(&database), "0 0 0 0");
    drop(database);
}
