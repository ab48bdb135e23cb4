//! Hosts of one database, and clients that find the one that answers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gristmill_tests::{Answer, Client, PATIENCE, TestHost, eventually};
use reqwest::RequestBuilder;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::postgres::Database;
use crate::proxy::Proxy;
use crate::tcp::PASSWORD;

/// The arguments of a host of this database.
pub(crate) fn arguments(database: &Database) -> Vec<String> {
    arguments_at(database, &database.url())
}

/// The arguments of a host that reaches the database at this URL.
pub(crate) fn arguments_at(database: &Database, url: &str) -> Vec<String> {
    let key = database.key_file();
    ["--database", url, "--cluster-listen", "127.0.0.1:0", "--secrets-key", key.to_str().unwrap()]
        .map(str::to_owned)
        .into()
}

/// The arguments of a host that reaches the database, and that other hosts reach, by these links.
pub(crate) fn arguments_by(
    database: &Database,
    to_database: &Proxy,
    to_host: &Proxy,
) -> Vec<String> {
    let mut arguments = arguments_at(database, &database.url_at(to_database.address(), PASSWORD));
    arguments.extend(["--cluster-advertise".to_owned(), to_host.address().to_string()]);
    arguments
}

/// The address at which a host listens for the others.
pub(crate) fn cluster_address(host: &TestHost) -> SocketAddr {
    host.ready()["clusterAddr"].as_str().unwrap().parse().unwrap()
}

/// The first host of a database, which has its jobs.
pub(crate) fn first(database: &Database) -> TestHost {
    let host = TestHost::start_with(&arguments(database));
    assert_eq!(host.ready()["role"], "active", "{}", host.ready());
    host
}

/// A further host, which stands by.
pub(crate) fn further(database: &Database, first: &TestHost) -> TestHost {
    let host = TestHost::join(&arguments(database), first.admin_key());
    assert_eq!(host.ready()["role"], "standby", "{}", host.ready());
    host
}

/// Waits until a host has the jobs.
pub(crate) async fn until_active(host: &TestHost) {
    let client = host.client();
    eventually("the host to be ready", async || {
        let answer = client.try_send(client.request(reqwest::Method::GET, "/readyz")).await;
        answer.is_ok_and(|answer| answer.status == 200).then_some(())
    })
    .await;
}

/// The hosts of the database, as any of them shows them.
pub(crate) async fn cluster(client: &Client) -> Vec<Value> {
    // On a busy machine a sign of life may be late, and calls are refused for a moment.
    let shown = eventually("the hosts", async || {
        let answer = client.get("/v1/cluster").await;
        (answer.status != 503).then_some(answer)
    });
    shown.await.ok()["hosts"].as_array().unwrap().clone()
}

/// Waits until so many hosts stand by and are known.
pub(crate) async fn until_known(client: &Client, standbys: usize) {
    eventually("the hosts to be known", async || {
        (cluster(client).await.len() == standbys + 1).then_some(())
    })
    .await;
}

/// The files of the components in a host's data directory.
pub(crate) fn component_files(host: &TestHost) -> BTreeSet<String> {
    let names = |directory: PathBuf| {
        let found = std::fs::read_dir(directory).into_iter().flatten();
        found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    let data = host.data_dir();
    let compiled = names(data.join("artifacts")).into_iter();
    let compiled = compiled.flat_map(|engine| names(data.join("artifacts").join(engine)));
    names(data.join("components")).into_iter().chain(compiled).collect()
}

/// Sends a signal to a host.
pub(crate) fn signal(host: &TestHost, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(host.pid()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Sends a call to the hosts in turn until one of them does not answer "come back later".
pub(crate) async fn send(clients: &[Client], call: impl Fn(&Client) -> RequestBuilder) -> Answer {
    let deadline = Instant::now() + PATIENCE;
    for client in clients.iter().cycle() {
        match client.try_send(call(client)).await {
            Ok(answer) if answer.status != 503 => return answer,
            Ok(refused) => assert!(refused.header("retry-after").is_some(), "{refused:?}"),
            // A host that was killed.
            Err(_) => {}
        }
        assert!(Instant::now() < deadline, "no host has answered");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    unreachable!("there is a client")
}

/// Submits a job, with a key so that repeated submissions refer to the same job, and returns its
/// id.
pub(crate) async fn submit(clients: &[Client], endpoint: &str, key: &str, body: &Value) -> String {
    let answer = send(clients, |client| {
        client
            .request(reqwest::Method::POST, &client.path(endpoint, "run"))
            .header("idempotency-key", key)
            .json(body)
    });
    answer.await.ok()["id"].as_str().unwrap().to_owned()
}

/// Waits until a job has ended, and returns its document.
pub(crate) async fn finished(clients: &[Client], endpoint: &str, job: &str) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let path = clients[0].path(endpoint, &format!("status-sync/{job}?wait=3000"));
        let answer = send(clients, |client| client.request(reqwest::Method::GET, &path)).await;
        let document = answer.ok();
        if !matches!(document["status"].as_str(), Some("IN_QUEUE" | "IN_PROGRESS")) {
            return document;
        }
        if Instant::now() >= deadline {
            let health = clients[0].health(endpoint).await;
            panic!("{document}; {health}; {:?}", cluster(&clients[0]).await);
        }
    }
}

/// The ids of acknowledged jobs, by their numbers.
pub(crate) type Ledger = BTreeMap<u64, String>;

/// Submits numbered jobs that take this time, and remembers those that were acknowledged.
pub(crate) async fn submit_all(
    clients: &[Client],
    numbers: Range<u64>,
    ms: u64,
    ledger: &mut Ledger,
) {
    for number in numbers {
        let body = json!({ "input": sleep(ms, number) });
        ledger.insert(number, submit(clients, "play", &format!("n-{number}"), &body).await);
    }
}

/// Every acknowledged job has ended, with its own result.
pub(crate) async fn check(clients: &[Client], ledger: &Ledger) {
    for (number, job) in ledger {
        let document = finished(clients, "play", job).await;
        assert_eq!(document["status"], "COMPLETED", "{number}: {document}");
        assert_eq!(document["output"]["echo"], json!(number), "{document}");
    }
}

/// The input of a job that takes this time.
pub(crate) fn sleep(ms: u64, value: impl Into<Value>) -> Value {
    json!({ "op": "sleep", "ms": ms, "value": value.into() })
}

/// An empty directory for a host that does not start.
pub(crate) fn directory() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    (folder, data)
}
