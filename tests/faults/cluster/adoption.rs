//! Jobs go on when the host that runs them and the active host lose each other.

use std::time::Duration;

use gristmill_tests::{Client, TestHost, eventually, guests};
use serde_json::{Value, json};

use crate::hosts::{arguments, cluster, cluster_address, sleep, until_known};
use crate::postgres::Database;
use crate::proxy::{Link, Proxy};

fn with_sandboxes(database: &Database, sandboxes: u32, more: &[&str]) -> Vec<String> {
    let mut arguments = arguments(database);
    arguments.extend(["--max-running-jobs".to_owned(), sandboxes.to_string()]);
    arguments.extend(more.iter().map(|&argument| argument.to_owned()));
    arguments
}

/// How many jobs the hosts that stand by run.
async fn running_elsewhere(client: &Client) -> u64 {
    let hosts = cluster(client).await;
    hosts.iter().skip(1).filter_map(|host| host["running"].as_u64()).sum()
}

/// Keeps the only sandbox of the active host busy.
async fn occupy(host: &TestHost) -> String {
    let client = host.client();
    host.deploy(&guests::playground(), "busy", json!({ "workersMax": 1 })).await;
    let job = client.submit("busy", sleep(600_000, 0)).await;
    eventually("the sandbox to be busy", async || {
        (cluster(&client).await[0]["running"] == 1).then_some(())
    })
    .await;
    job
}

fn chunks(count: u64) -> Value {
    (0..count).map(|i| json!({ "i": i })).collect()
}

/// The connection between two hosts is cut five times while one of them runs a job that emits
/// chunks, and another one that waits for a job that it has called.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_cut_five_times_interrupts_no_job() {
    const CHUNKS: u64 = 150;
    let Some(database) = Database::new() else { return };
    let link = Proxy::start().await;
    let advertised = link.address().to_string();
    let one =
        TestHost::start_with(&with_sandboxes(&database, 1, &["--cluster-advertise", &advertised]));
    link.set_target(cluster_address(&one));
    let _two = TestHost::join(&with_sandboxes(&database, 4, &[]), one.admin_key());
    let client = one.client();
    until_known(&client, 1).await;
    let settings = json!({ "workersMax": 4, "callEndpoints": ["called"] });
    one.deploy(&guests::playground(), "play", settings).await;
    one.deploy(&guests::playground(), "called", json!({ "workersMax": 4 })).await;
    let _busy = occupy(&one).await;
    let stream = json!({ "op": "stream", "count": CHUNKS, "delay_ms": 150 });
    let stream = client.submit("play", stream).await;
    let call =
        json!({ "op": "call", "endpoint": "called", "value": { "op": "sleep", "ms": 20_000 } });
    let call = client.submit("play", call).await;
    eventually("three jobs on the other host", async || {
        (running_elsewhere(&client).await == 3).then_some(())
    })
    .await;
    for _ in 0..5 {
        link.set(Link::Cut);
        until_known(&client, 0).await;
        // The subject: the job goes on without a connection.
        tokio::time::sleep(Duration::from_millis(1_000)).await;
        link.set(Link::Open);
        until_known(&client, 1).await;
    }
    let document = client.finished("play", &stream).await;
    assert_eq!(document["output"], chunks(CHUNKS), "each chunk once: {document}");
    let document = client.finished("play", &call).await;
    assert_eq!(document["status"], "COMPLETED", "{document}");
    for (endpoint, completed) in [("play", 2), ("called", 1)] {
        let jobs = client.health(endpoint).await["jobs"].clone();
        assert_eq!(
            (&jobs["completed"], &jobs["retried"]),
            (&json!(completed), &json!(0)),
            "{jobs}"
        );
    }
}
