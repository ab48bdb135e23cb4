//! Jobs go on when the host that runs them and the active host lose each other.

use std::time::Duration;

use gristmill_tests::{Client, PATIENCE, TestHost, eventually, guests};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::hosts::{
    arguments, cluster, cluster_address, finished, signal, sleep, until_active, until_known,
};
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

/// Waits until the database has the hosts of the attempts that run. They are written some
/// milliseconds after an attempt has begun; if the active host is killed before, its successor
/// begins the jobs again.
async fn until_noted(client: &Client) {
    tokio::time::sleep(Duration::from_millis(20)).await;
    // It is acknowledged when all changes before it are on disk.
    let later = json!({ "input": {}, "policy": { "delay": 600_000 } });
    client.post("/v2/play/run", &later).await.ok();
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

/// Jobs on the only standby, while the sandbox of the active host is busy: one emits a chunk each
/// 150 ms, and one waits as long for a job that it has called, which runs there too.
struct OtherJobs {
    chunks: u64,
    stream: String,
    call: String,
}

impl OtherJobs {
    async fn begin(active: &TestHost, chunks: u64) -> Self {
        let client = active.client();
        let settings = json!({ "workersMax": 4, "callEndpoints": ["called"] });
        active.deploy(&guests::playground(), "play", settings).await;
        active.deploy(&guests::playground(), "called", json!({ "workersMax": 4 })).await;
        let _busy = occupy(active).await;
        let stream = json!({ "op": "stream", "count": chunks, "delay_ms": 150 });
        let stream = client.submit("play", stream).await;
        let ms = 150 * chunks;
        let call =
            json!({ "op": "call", "endpoint": "called", "value": { "op": "sleep", "ms": ms } });
        let call = client.submit("play", call).await;
        eventually("three jobs on the other host", async || {
            (running_elsewhere(&client).await == 3).then_some(())
        })
        .await;
        until_noted(&client).await;
        Self { chunks, stream, call }
    }

    /// Each of them has ended with its result, and has run once: also each chunk and each call.
    async fn have_ended_once(&self, client: &Client) {
        let clients = std::slice::from_ref(client);
        let document = finished(clients, "play", &self.stream).await;
        assert_eq!(document["output"], chunks(self.chunks), "each chunk once: {document}");
        let document = finished(clients, "play", &self.call).await;
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
    let jobs = OtherJobs::begin(&one, CHUNKS).await;
    for _ in 0..5 {
        link.set(Link::Cut);
        until_known(&client, 0).await;
        // The subject: the job goes on without a connection.
        tokio::time::sleep(Duration::from_millis(1_000)).await;
        link.set(Link::Open);
        until_known(&client, 1).await;
    }
    jobs.have_ended_once(&client).await;
}

/// The active host is killed three times, and another one becomes active each time: never the one
/// that runs the jobs, which is paused meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_on_other_hosts_go_on_over_three_take_overs() {
    const CHUNKS: u64 = 400;
    let Some(database) = Database::new() else { return };
    let mut active = TestHost::start_with(&with_sandboxes(&database, 1, &[]));
    let key = active.admin_key().to_owned();
    let runner = TestHost::join(&with_sandboxes(&database, 4, &[]), &key);
    until_known(&active.client(), 1).await;
    let jobs = OtherJobs::begin(&active, CHUNKS).await;
    let mut next = TestHost::join(&with_sandboxes(&database, 1, &[]), &key);
    for _ in 0..3 {
        until_known(&active.client(), 2).await;
        signal(&runner, Signal::STOP);
        active.kill9();
        until_active(&next).await;
        signal(&runner, Signal::CONT);
        until_known(&next.client(), 1).await;
        std::mem::swap(&mut active, &mut next);
        tokio::task::block_in_place(|| next.start_again());
    }
    jobs.have_ended_once(&active.client()).await;
}

/// The host that runs the jobs becomes the active one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_active_host_that_ends_in_order_interrupts_no_job_elsewhere() {
    let Some(database) = Database::new() else { return };
    let drain = ["--drain-timeout", "8"];
    let mut one = TestHost::start_with(&with_sandboxes(&database, 1, &drain));
    let two = TestHost::join(&with_sandboxes(&database, 4, &[]), one.admin_key());
    until_known(&one.client(), 1).await;
    let jobs = OtherJobs::begin(&one, 120).await;
    signal(&one, Signal::TERM);
    let status = tokio::task::block_in_place(|| one.wait(PATIENCE));
    assert_eq!(status.code(), Some(0), "{}", one.log());
    until_active(&two).await;
    jobs.have_ended_once(&two.client()).await;
    let busy = two.client().health("busy").await["jobs"].clone();
    assert_eq!((&busy["retried"], &busy["completed"]), (&json!(0), &json!(0)), "{busy}");
}

/// Only the jobs that the active host has run itself begin again when it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_jobs_of_the_next_active_host_are_not_interrupted() {
    let Some(database) = Database::new() else { return };
    let mut one = TestHost::start_with(&with_sandboxes(&database, 4, &[]));
    let two = TestHost::join(&with_sandboxes(&database, 4, &[]), one.admin_key());
    let client = one.client();
    until_known(&client, 1).await;
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 8 })).await;
    let mut jobs = Vec::new();
    for number in 0..8 {
        jobs.push(client.submit("play", sleep(12_000, number)).await);
    }
    eventually("four jobs on each host", async || {
        let hosts = cluster(&client).await;
        hosts.iter().all(|host| host["running"] == 4).then_some(())
    })
    .await;
    until_noted(&client).await;
    one.kill9();
    until_active(&two).await;
    let client = two.client();
    let mut interrupted = 0;
    for (number, job) in jobs.iter().enumerate() {
        let document = client.finished("play", job).await;
        assert_eq!(document["output"], json!({ "slept": 12_000, "echo": number }), "{document}");
        interrupted += document["retries"].as_u64().unwrap_or(0);
    }
    assert_eq!(interrupted, 4);
}

/// A job is cancelled while its host and the next active one have not found each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_before_the_host_is_found_ends_the_job_there() {
    let Some(database) = Database::new() else { return };
    let mut one = TestHost::start_with(&with_sandboxes(&database, 1, &[]));
    let key = one.admin_key().to_owned();
    let runner = TestHost::join(&with_sandboxes(&database, 4, &[]), &key);
    until_known(&one.client(), 1).await;
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 4 })).await;
    let _busy = occupy(&one).await;
    let job = one.client().submit("play", json!({ "op": "spin" })).await;
    eventually("a job on the other host", async || {
        (running_elsewhere(&one.client()).await == 1).then_some(())
    })
    .await;
    let next = TestHost::join(&with_sandboxes(&database, 1, &[]), &key);
    until_known(&one.client(), 2).await;
    signal(&runner, Signal::STOP);
    one.kill9();
    until_active(&next).await;
    let client = next.client();
    assert_eq!(client.status("play", &job).await.ok()["status"], "IN_PROGRESS");
    assert_eq!(client.cancel("play", &job).await.ok()["status"], "CANCELLED");
    signal(&runner, Signal::CONT);
    until_known(&client, 1).await;
    let spins = std::path::PathBuf::from(format!("/proc/{}/stat", runner.pid()));
    let ticks = || {
        let stat = std::fs::read_to_string(&spins).unwrap();
        let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    eventually("the handler to stop", async || {
        let before = ticks();
        tokio::time::sleep(Duration::from_secs(1)).await;
        (ticks() - before < 50).then_some(())
    })
    .await;
}
