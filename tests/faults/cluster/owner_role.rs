//! A role that owns the database, and has no further rights, as docs/guides/cluster.md makes it.

use std::process::{Command, Stdio};

use gristmill_tests::{Client, PATIENCE, TestHost, command, eventually, guests};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::hosts::{Ledger, check, finished, signal, sleep, submit_all, until_active, until_known};
use crate::postgres::Server;

/// The page whose statements an operator copies.
const PAGE: &str = include_str!("../../../docs/guides/cluster.md");

/// The statements of the page that make the role and the database.
fn recipe() -> Vec<&'static str> {
    let (_, block) = PAGE.split_once("```sql\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let statements: Vec<_> = block.lines().filter(|line| !line.is_empty()).collect();
    assert!(statements[0].starts_with("CREATE ROLE mill LOGIN PASSWORD 'secret'"), "{block}");
    statements
}

/// The open connections of all hosts.
fn connections(server: &Server) -> u32 {
    let count = "SELECT count(*) FROM pg_stat_activity \
         WHERE application_name = 'gristmill' AND usename = 'mill' AND datname = 'mill'";
    server.sql(count).parse().unwrap()
}

/// Waits until the hosts have so many connections.
async fn until_connections(server: &Server, expected: u32) {
    eventually(&format!("{expected} connections"), async || {
        (connections(server) == expected).then_some(())
    })
    .await;
}

/// A host without a database, with a job that has ended and a job that waits. Returns both jobs.
async fn with_two_jobs(alone: &TestHost) -> (Value, String) {
    alone.deploy(&guests::playground(), "play", json!({ "workersMax": 1 })).await;
    let client = alone.client();
    let ended = client.finish("play", json!({ "op": "echo", "value": 7 })).await;
    let paused = json!({ "workersMax": 0 });
    client.patch("/v1/endpoints/play", &paused).await.ok();
    let waiting = client.submit("play", json!({ "op": "echo", "value": 8 })).await;
    (ended, waiting)
}

/// Moves the data of a host without a database into this one.
fn import(alone: &TestHost, url: &str) {
    let mut import: Command = command();
    import.args(["import", "--database", url, "--data-dir"]).arg(alone.data_dir());
    let output = import.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

async fn resume(client: &Client) {
    client.patch("/v1/endpoints/play", &json!({ "workersMax": 2 })).await.ok();
}

/// The next active host ends the connection of a paused one, which takes rights, too. The page also
/// names the connections of each host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_owns_the_database_needs_no_further_rights() {
    let Some(server) = Server::start_without_roles(|_| String::new()) else { return };
    for statement in recipe() {
        server.sql(statement);
    }
    let url = format!("postgres://mill:secret@{}/mill", server.address());
    let mut alone = TestHost::start();
    let (ended, waiting) = with_two_jobs(&alone).await;
    alone.kill9();
    tokio::task::block_in_place(|| import(&alone, &url));

    let key = alone.data_dir().join("secrets.key");
    let arguments = ["--database", &url, "--secrets-key", key.to_str().unwrap()];
    // The second job at one time runs on the host that stands by, which fetches its component then.
    let further = ["--cluster-listen", "127.0.0.1:0", "--max-running-jobs", "1"];
    let arguments = [&arguments[..], &further].concat();
    let mut one = TestHost::join(&arguments, alone.admin_key());
    assert_eq!(one.ready()["role"], "active");
    resume(&one.client()).await;
    let job = ended["id"].as_str().unwrap();
    assert_eq!(one.client().status("play", job).await.ok(), ended);
    assert_eq!(one.client().finished("play", &waiting).await["output"], json!({ "echo": 8 }));
    until_connections(&server, 4).await;
    let two = TestHost::join(&arguments, alone.admin_key());
    assert_eq!(two.ready()["role"], "standby");
    until_connections(&server, 4 + 1).await;
    until_known(&two.client(), 1).await;

    let clients = [one.client(), two.client()];
    let mut ledger = Ledger::new();
    submit_all(&clients, 0..20, 100, &mut ledger).await;
    check(&clients, &ledger).await;
    until_connections(&server, 4 + 2).await;
    let running = one.client().submit("play", sleep(8_000, "again")).await;
    one.client().until("play", &running, "IN_PROGRESS").await;
    signal(&one, Signal::STOP);
    until_active(&two).await;
    let document = finished(&[two.client()], "play", &running).await;
    assert_eq!(document["output"]["echo"], "again", "{document}");
    check(&[two.client()], &ledger).await;
    signal(&one, Signal::CONT);
    let status = tokio::task::block_in_place(|| one.wait(PATIENCE));
    assert_eq!(status.code(), Some(1), "{}", one.log());
    // It keeps one from the time in which it stood by.
    until_connections(&server, 4 + 1).await;
    drop((one, two));
}
