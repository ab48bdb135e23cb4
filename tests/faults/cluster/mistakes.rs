//! Databases and settings that a host refuses at its start: one sentence, and exit code 1.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use gristmill_tests::{TestHost, command, disk_shim};
use serde_json::json;

use crate::hosts::{arguments, directory, first};
use crate::postgres::{Database, Server};
use crate::tcp::PASSWORD;

/// The error of a host that does not start with these arguments.
pub(crate) fn refusal(arguments: &[&str]) -> String {
    let (_folder, data) = directory();
    refusal_in(&data, arguments)
}

/// The same with this data directory.
fn refusal_in(data: &Path, arguments: &[&str]) -> String {
    refusal_with(data, arguments, &[])
}

/// The same with these variables of its environment.
fn refusal_with(data: &Path, arguments: &[&str], environment: &[(&str, &OsStr)]) -> String {
    let mut serve = command();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()]);
    serve.args(arguments).envs(environment.iter().copied());
    let output = serve.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let errors: Vec<_> = said.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{said}");
    errors[0].to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_names_what_is_wrong_with_the_database() {
    let Some(database) = Database::new() else { return };
    let with = arguments(&database);
    let with: Vec<_> = with.iter().map(String::as_str).collect();
    let admin_key = first(&database).admin_key().to_owned();
    let name = database.sql("SELECT current_database()");
    let alter = |change: &str| database.sql(&format!("ALTER DATABASE {name} {change}"));
    for (setting, value, reason) in [
        ("synchronous_commit", "off", "synchronous_commit is `off`"),
        ("default_transaction_read_only", "on", "the server is read only"),
    ] {
        alter(&format!("SET {setting} = {value}"));
        let said = refusal(&with);
        assert!(said.contains(reason) && said.contains(&name), "{said}");
        alter(&format!("RESET {setting}"));
    }
    database.sql("INSERT INTO schema_version VALUES (1000, 1000)");
    let said = refusal(&with);
    assert!(said.contains("have version 1000"), "{said}");
    database.sql("DELETE FROM schema_version WHERE version = 1000");
    database.sql("ALTER TABLE meta RENAME TO other");
    let said = refusal(&with);
    assert!(said.contains("meta"), "{said}");
    database.sql("ALTER TABLE other RENAME TO meta");

    // The key file of another database, and none.
    let (folder, _) = directory();
    let key = folder.path().join("key");
    let url = database.url();
    let other_key = ["--database", &url, "--secrets-key", key.to_str().unwrap()];
    let said = refusal(&other_key);
    assert!(said.contains("copy the file of the host that made the database"), "{said}");
    fs::write(&key, "0".repeat(64)).unwrap();
    let said = refusal(&other_key);
    assert!(said.contains("it is not the key that this store's secrets"), "{said}");

    let said = refusal(&["--database", "postgres://me:secret@127.0.0.1:1/mill"]);
    assert!(said.contains("postgres://me@127.0.0.1:1/mill"), "{said}");
    assert!(said.contains("Connection refused"), "{said}");
    assert!(!said.contains("secret"), "{said}");
    let said = refusal(&["--cluster-listen", "127.0.0.1:0"]);
    assert!(said.contains("cluster-listen is for hosts that share a database"), "{said}");
    let said = refusal(&["--database", &url, "--cluster-listen", "0.0.0.0:0"]);
    assert!(said.contains("needs the address at which other hosts reach this one"), "{said}");
    let said = refusal(&["--database", &url, "--cluster-advertise", "10.0.0.1:7000"]);
    assert!(said.contains("cluster-advertise names the address of cluster-listen"), "{said}");
    for address in ["0.0.0.0:7000", "10.0.0.1:0"] {
        let listen = ["--cluster-listen", "0.0.0.0:0", "--cluster-advertise", address];
        let said = refusal(&[&["--database", &url][..], &listen].concat());
        assert!(said.contains("cluster-advertise needs the address and the port"), "{said}");
    }
    drop(TestHost::join(&arguments(&database), &admin_key));
}

/// A server that refuses the host, or does not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_names_why_the_server_cannot_be_used() {
    let Some(server) = Server::start_on_tcp(|_| String::new()) else { return };
    let database = server.database();
    let key = database.key_file();
    let refused = |url: &str| refusal(&["--database", url, "--secrets-key", key.to_str().unwrap()]);
    let url = database.url_by_tcp(PASSWORD, "");

    let said = refused(&database.url_by_tcp("barley", ""));
    assert!(said.contains("password authentication failed for user"), "{said}");
    assert!(!said.contains("barley"), "{said}");
    let said = refused(&url.replace("/test_", "/other_"));
    assert!(said.contains("database \"other_") && said.contains("does not exist"), "{said}");
    let said = refused(&url.replace("//mill:", "//miller:"));
    assert!(said.contains("password authentication failed for user \"miller\""), "{said}");
    server.sql("CREATE ROLE guest LOGIN PASSWORD 'wheat'");
    let said = refused(&url.replace("//mill:", "//guest:"));
    assert!(said.contains("permission denied for database"), "{said}");
    let said = refused(&database.url_by_tcp(PASSWORD, "?sslmode=require"));
    assert!(said.contains("TLS"), "{said}");
    // A program that accepts connections, and is silent.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let said = refused(&format!("postgres://mill:wheat@{}/mill", silent.local_addr().unwrap()));
    assert!(said.contains("does not answer") && !said.contains("wheat"), "{said}");
    // A URL that is wrong is a mistake of the command line.
    let (_folder, data) = directory();
    let mut serve = command();
    serve.args(["serve", "--data-dir", data.to_str().unwrap(), "--database"]);
    serve.arg(database.url_by_tcp(PASSWORD, "?sslmode=verify-full"));
    let output = serve.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("sslmode=verify-full needs sslrootcert"), "{said}");

    // Nothing was made, and the right URL works.
    assert!(!key.exists());
    drop(TestHost::start_with(&["--database", &url, "--secrets-key", key.to_str().unwrap()]));
    drop(database);
}

/// Jobs have times, so a host whose clock is wrong would delete them before their time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_whose_clock_differs_from_that_of_the_database_does_not_become_active() {
    let Some(database) = Database::new() else { return };
    let (folder, data) = directory();
    let clock = folder.path().join("clock");
    fs::write(&clock, (30 * 24 * 3_600).to_string()).unwrap();
    let with = arguments(&database);
    let with: Vec<_> = with.iter().map(String::as_str).collect();
    let environment = [("LD_PRELOAD", disk_shim().as_os_str()), ("CLOCK_FILE", clock.as_os_str())];
    let said = refusal_with(&data, &with, &environment);
    assert!(said.contains("ahead of that of the database"), "{said}");
    assert!(said.contains("--accept-clock"), "{said}");
    // The host whose clock is right starts.
    drop(first(&database));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backups_and_new_keys_are_refused() {
    let Some(database) = Database::new() else { return };
    let host = first(&database);
    let client = host.client();
    let backup = client.get("/v1/backup").await;
    assert_eq!(
        (backup.status, &backup.json()["code"]),
        (501, &json!("not_implemented")),
        "{backup:?}"
    );
    assert!(backup.text.contains("such as pg_dump"), "{backup:?}");
    let rotation = client.post_empty("/v1/secrets/rotate").await;
    assert_eq!(rotation.status, 501, "{rotation:?}");
    assert!(rotation.text.contains("it cannot be replaced yet"), "{rotation:?}");
    // Both are answers, and the host continues.
    let log = host.log();
    assert!(!log.contains("ERROR"), "{log}");
    assert_eq!(client.get("/readyz").await.status, 200);
}

/// A directory with jobs of its own is no cache, and a directory belongs to one host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_directory_with_jobs_is_refused() {
    let Some(database) = Database::new() else { return };
    let url = database.url();
    let mut alone = TestHost::start();
    alone.kill9();
    let said = refusal_in(&alone.data_dir(), &["--database", &url]);
    assert!(said.contains("has the jobs of a host without a database"), "{said}");
    let active = first(&database);
    let said = refusal_in(&active.data_dir(), &["--database", &url]);
    assert!(said.contains("is in use by another process"), "{said}");
}
