//! Hosts that stand by run jobs for the active host.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use gristmill_tests::{Client, PATIENCE, TestHost, binary, eventually, guests};
use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::hosts::{arguments, cluster, component_files, signal, sleep, until_active, until_known};
use crate::postgres::Database;

/// An active host with so many sandboxes.
fn active(database: &Database, sandboxes: u32) -> TestHost {
    TestHost::start_with(&with_sandboxes(database, sandboxes))
}

/// A host that stands by, with so many sandboxes and further arguments.
fn standby(database: &Database, first: &TestHost, sandboxes: u32, more: &[&str]) -> TestHost {
    let mut arguments = with_sandboxes(database, sandboxes);
    arguments.extend(more.iter().map(|&argument| argument.to_owned()));
    TestHost::join(&arguments, first.admin_key())
}

fn with_sandboxes(database: &Database, sandboxes: u32) -> Vec<String> {
    let mut arguments = arguments(database);
    arguments.extend(["--max-running-jobs".to_owned(), sandboxes.to_string()]);
    // The jobs of a host that does not come back run again soon.
    arguments.extend(["--adopt-within", "2"].map(str::to_owned));
    arguments
}

fn running(host: &Value) -> u64 {
    host["running"].as_u64().unwrap()
}

/// Keeps the only sandbox of the active host busy, and returns the job.
async fn occupy(host: &TestHost) -> String {
    let client = host.client();
    if client.get("/v1/endpoints/busy").await.status == 404 {
        host.deploy(&guests::playground(), "busy", json!({ "workersMax": 1 })).await;
    }
    let job = client.submit("busy", sleep(600_000, 0)).await;
    client.until("busy", &job, "IN_PROGRESS").await;
    eventually("the sandbox to be busy", async || {
        (running(&cluster(&client).await[0]) == 1).then_some(())
    })
    .await;
    job
}

/// Waits until a host that stands by runs so many jobs.
async fn until_running(client: &Client, jobs: u64) {
    eventually("jobs on the other host", async || {
        let hosts = cluster(client).await;
        (hosts.iter().skip(1).map(running).sum::<u64>() == jobs).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_run_on_all_hosts_and_never_more_than_workers_max() {
    const JOBS: usize = 30;
    let Some(database) = Database::new() else { return };
    let one = active(&database, 2);
    let two = standby(&database, &one, 2, &[]);
    let three = standby(&database, &one, 2, &[]);
    let client = two.client();
    until_known(&client, 2).await;
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 5 })).await;
    // Checks the bounds, and returns the numbers of jobs that run and that are completed.
    let checked = async || {
        let hosts = cluster(&client).await;
        let each: Vec<_> = hosts.iter().map(running).collect();
        assert!(each.iter().all(|running| *running <= 2), "{hosts:?}");
        let all = each.iter().sum::<u64>();
        assert!(all <= 5, "{hosts:?}");
        let health = client.health("play").await;
        assert!(health["jobs"]["inProgress"].as_u64().unwrap() <= 5, "{health}");
        (all, health["jobs"]["completed"].as_u64().unwrap())
    };
    // The hosts that stand by compile the handler first, for any time.
    let mut long = Vec::new();
    for number in 0..6 {
        long.push(client.submit("play", sleep(600_000, number)).await);
    }
    eventually("all three hosts to run jobs at one time", async || {
        (checked().await.0 == 5).then_some(())
    })
    .await;
    // A sixth sandbox is free, and a sixth job waits.
    for _ in 0..10 {
        checked().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for job in &long {
        assert_eq!(client.cancel("play", job).await.status, 200);
    }
    eventually("the cancelled jobs to end", async || (checked().await.0 == 0).then_some(())).await;

    let mut jobs = Vec::new();
    for number in 0..JOBS {
        jobs.push(client.submit("play", sleep(700, number)).await);
    }
    eventually("the jobs to end", async || (checked().await.1 == JOBS as u64).then_some(())).await;
    for (number, job) in jobs.iter().enumerate() {
        let document = client.finished("play", job).await;
        assert_eq!(document["output"], json!({ "slept": 700, "echo": number }), "{document}");
    }
    // The component came from the database.
    assert!(two.log().contains("fetched component"), "{}", two.log());

    let hosts = cluster(&three.client()).await;
    let roles: Vec<_> = hosts.iter().map(|host| host["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["active", "standby", "standby"]);
    let addresses: BTreeSet<_> =
        hosts.iter().map(|host| &host["address"]).map(Value::to_string).collect();
    let expected = [&one, &two, &three].map(|host| host.ready()["clusterAddr"].to_string());
    assert_eq!(addresses, expected.into());
    let system = client.get("/v1/system").await.ok();
    assert_eq!(system["sandboxes"]["max"], 6);
    let arguments = ["cluster", "status", "--url", three.url(), "--api-key", one.admin_key()];
    let listed = Command::new(binary()).args(arguments).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("standby  0 of 2") && listed.lines().count() == 4, "{listed}");
}

/// Without this the files of each version that was ever deployed would fill the disks of the other
/// hosts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn components_that_were_deleted_leave_all_hosts() {
    let Some(database) = Database::new() else { return };
    let one = active(&database, 1);
    let two = standby(&database, &one, 4, &[]);
    let client = one.client();
    until_known(&client, 1).await;
    occupy(&one).await;
    let run = async |component: &Path, name: &str, input: Value| {
        one.deploy(component, name, json!({ "workersMax": 1 })).await;
        let document = client.finish(name, input).await;
        assert_eq!(document["status"], "COMPLETED", "{document}");
    };
    run(&guests::echo(), "first", json!({})).await;
    let handler = client.get("/v1/handlers/echo:latest").await.ok();
    let digest = handler["sha256"].as_str().unwrap();
    let first = ["wasm", "cwasm"].map(|ending| format!("{digest}.{ending}"));
    assert!(first.iter().all(|file| component_files(&two).contains(file)), "{digest}");
    assert_eq!(client.delete("/v1/endpoints/first").await.status, 204);
    assert_eq!(client.delete("/v1/handlers/echo:latest").await.status, 204);

    // The next deployment.
    run(&guests::word_count(), "second", json!({ "text": "a b" })).await;
    for host in [&one, &two] {
        eventually("the files to leave", async || {
            let present = component_files(host);
            first.iter().all(|file| !present.contains(file)).then_some(())
        })
        .await;
    }
    assert!(!component_files(&two).is_empty(), "the others stay");

    // Its bytes come from the database again.
    one.upload("echo:latest", std::fs::read(guests::echo()).unwrap()).await.ok();
    one.deploy_image("echo:latest", "third", json!({ "workersMax": 1 })).await;
    let document = client.finish("third", json!({ "a": 1 })).await;
    assert_eq!(document["status"], "COMPLETED", "{document}");
    assert!(first.iter().all(|file| component_files(&two).contains(file)));
}

/// Everything that a handler can do works on a host that stands by.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_on_another_host_behaves_as_on_the_active_one() {
    let Some(database) = Database::new() else { return };
    let one = active(&database, 1);
    let two = standby(&database, &one, 8, &[]);
    let client = one.client();
    until_known(&client, 1).await;
    let settings = json!({
        "workersMax": 4, "templateEnv": { "STONE": "granite" }, "callEndpoints": ["play"],
    });
    one.deploy(&guests::playground(), "play", settings).await;
    let busy = occupy(&one).await;

    let document = client.finish("play", json!({ "op": "env", "name": "STONE" })).await;
    assert_eq!(document["output"], json!({ "env": "granite" }), "{document}");
    let text = "x".repeat(5 << 20);
    let answer =
        client.run_sync("play", "?wait=60000", json!({ "op": "echo", "value": text })).await;
    assert_eq!(answer.ok()["output"]["echo"].as_str().map(str::len), Some(text.len()));

    // A stream, while the job runs, through the host that runs it.
    let job = client.submit("play", json!({ "op": "stream", "count": 3, "delay_ms": 300 })).await;
    let path = client.path("play", &format!("stream/{job}"));
    let standby = two.client();
    let request = standby.request(Method::GET, &path).header("accept", "text/event-stream");
    let events = standby.send(request).await;
    for part in [r#""i":0"#, r#""i":1"#, r#""i":2"#, "COMPLETED"] {
        assert!(events.text.contains(part), "{events:?}");
    }

    let failed = client.finish("play", json!({ "op": "fail", "message": "no flour" })).await;
    assert_eq!((&failed["status"], &failed["error"]), (&json!("FAILED"), &json!("no flour")));
    let trapped = client.finish("play", json!({ "op": "trap" })).await;
    assert_eq!(trapped["status"], "FAILED", "{trapped}");
    let logged = client.finish("play", json!({ "op": "log", "message": "ground here" })).await;
    assert_eq!(logged["status"], "COMPLETED");
    let lines = client.get("/v1/endpoints/play/logs").await;
    assert!(lines.text.contains("ground here"), "{lines:?}");
    let call = json!({ "op": "call", "endpoint": "play", "value": { "op": "echo", "value": 7 } });
    let called = client.finish("play", call).await;
    assert_eq!(called["status"], "COMPLETED", "{called}");
    assert!(called["output"].to_string().contains("\"echo\":7"), "{called}");
    let denied = json!({ "op": "call", "endpoint": "busy", "value": {} });
    let denied = client.finish("play", denied).await;
    assert_eq!(denied["status"], "FAILED", "{denied}");

    // A limit of time, and a cancellation.
    let policy = json!({ "executionTimeout": 5_000 });
    let job = client.submit_with("play", json!({ "op": "sleep_forever" }), policy).await;
    let late = client.finished("play", &job).await;
    assert_eq!(late["status"], "TIMED_OUT", "{late}");
    let job = client.submit("play", json!({ "op": "spin" })).await;
    until_running(&client, 1).await;
    assert_eq!(two.client().cancel("play", &job).await.ok()["status"], "CANCELLED");
    until_running(&client, 0).await;
    assert_eq!(client.cancel("busy", &busy).await.status, 200);

    // A new version is used at once.
    let changed = json!({ "env": { "STONE": "basalt" } });
    client.patch("/v1/endpoints/play", &changed).await.ok();
    let _busy = occupy(&one).await;
    let document = client.finish("play", json!({ "op": "env", "name": "STONE" })).await;
    assert_eq!(document["output"], json!({ "env": "basalt" }), "{document}");
    assert_eq!(running(&cluster(&client).await[0]), 1, "the active host is still busy");
}

/// A job on another host lends its place in `workersMax` while it waits for the job that it called,
/// as on the active host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_call_their_own_endpoint_end_on_another_host() {
    let Some(database) = Database::new() else { return };
    let one = active(&database, 1);
    let _two = standby(&database, &one, 16, &[]);
    let client = one.client();
    until_known(&client, 1).await;
    let settings = json!({ "workersMax": 4, "memoryMib": 16, "callEndpoints": ["own"] });
    one.deploy(&guests::playground(), "own", settings).await;
    let _busy = occupy(&one).await;
    let call = json!({ "op": "call", "endpoint": "own", "value": { "op": "sleep", "ms": 20 } });
    let mut jobs = Vec::new();
    for _ in 0..48 {
        jobs.push(client.submit("own", call.clone()).await);
    }
    for job in jobs {
        let ended = client.finished("own", &job).await;
        assert_eq!(ended["status"], "COMPLETED", "{ended}");
    }
    assert_eq!(running(&cluster(&client).await[0]), 1, "the active host is still busy");
}

/// A host that dies while it runs jobs loses none of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_a_killed_host_run_again() {
    let Some(database) = Database::new() else { return };
    let one = active(&database, 1);
    let mut two = standby(&database, &one, 4, &[]);
    let client = one.client();
    until_known(&client, 1).await;
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 4 })).await;
    let busy = occupy(&one).await;
    let mut jobs = Vec::new();
    for number in 0..3 {
        jobs.push(client.submit("play", sleep(8_000, number)).await);
    }
    until_running(&client, 3).await;
    two.kill9();
    until_known(&client, 0).await;
    eventually("the jobs to wait again", async || {
        (client.health("play").await["jobs"]["inQueue"] == 3).then_some(())
    })
    .await;
    assert_eq!(client.cancel("busy", &busy).await.status, 200);
    for (number, job) in jobs.iter().enumerate() {
        let document = client.finished("play", job).await;
        assert_eq!(document["output"], json!({ "slept": 8_000, "echo": number }), "{document}");
        assert_eq!(document["retries"].as_u64().unwrap_or(1), 1, "{document}");
    }
}

/// Such a job may be the reason why its hosts end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_host_was_lost_three_times_is_failed() {
    let Some(database) = Database::new() else { return };
    let one = active(&database, 1);
    let mut two = standby(&database, &one, 4, &[]);
    let client = one.client();
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 4 })).await;
    let _busy = occupy(&one).await;
    let steps = json!({ "op": "progress", "steps": 2, "delay_ms": 600_000 });
    let job = client.submit("play", steps).await;
    for lost in 1..=3 {
        // A job is IN_PROGRESS before its attempt begins on that host; progress comes from there.
        eventually("the handler to run", async || {
            (client.status("play", &job).await.ok()["output"]["progress"] == 1).then_some(())
        })
        .await;
        two.kill9();
        until_known(&client, 0).await;
        if lost < 3 {
            client.until("play", &job, "IN_QUEUE").await;
            tokio::task::block_in_place(|| two.start_again());
        }
    }
    let document = client.finished("play", &job).await;
    assert_eq!(document["status"], "FAILED", "{document}");
    let error = document["error"].as_str().unwrap();
    assert!(error.contains("the host died while the job ran, 3 times"), "{document}");
    // The host that continues runs other jobs.
    assert_eq!(client.get("/readyz").await.status, 200);
}

/// A host that is asked to end returns the jobs that take too long, and no crash is counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_ends_in_order_finishes_or_returns_its_jobs() {
    let Some(database) = Database::new() else { return };
    let one = active(&database, 1);
    let mut two = standby(&database, &one, 4, &["--drain-timeout", "15"]);
    let client = one.client();
    until_known(&client, 1).await;
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 4 })).await;
    let busy = occupy(&one).await;
    let short = client.submit("play", sleep(6_000, "short")).await;
    let long = client.submit("play", sleep(30_000, "long")).await;
    until_running(&client, 2).await;
    signal(&two, Signal::TERM);
    let status = tokio::task::block_in_place(|| two.wait(PATIENCE));
    assert_eq!(status.code(), Some(0), "{}", two.log());
    assert_eq!(client.status("play", &short).await.ok()["status"], "COMPLETED");
    client.until("play", &long, "IN_QUEUE").await;
    assert_eq!(client.health("play").await["jobs"]["retried"], 0, "no crash was counted");
    assert_eq!(client.cancel("busy", &busy).await.status, 200);
    let document = client.finished("play", &long).await;
    assert_eq!(document["output"]["echo"], "long", "{document}");
}

/// A host that is paused loses its jobs, and its late results change nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_host_loses_its_jobs_and_runs_others_when_it_continues() {
    let Some(database) = Database::new() else { return };
    let one = active(&database, 1);
    let two = standby(&database, &one, 4, &[]);
    let client = one.client();
    until_known(&client, 1).await;
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 4 })).await;
    let busy = occupy(&one).await;
    let job = client.submit("play", json!({ "op": "stream", "count": 40, "delay_ms": 200 })).await;
    until_running(&client, 1).await;
    signal(&two, Signal::STOP);
    until_known(&client, 0).await;
    assert_eq!(client.cancel("busy", &busy).await.status, 200);
    client.until("play", &job, "IN_PROGRESS").await;
    signal(&two, Signal::CONT);
    let document = client.finished("play", &job).await;
    assert_eq!(document["status"], "COMPLETED", "{document}");
    let expected: Vec<_> = (0..40).map(|i| json!({ "i": i })).collect();
    assert_eq!(document["output"], json!(expected), "each chunk once");
    until_known(&client, 1).await;
    let _busy = occupy(&one).await;
    let document = client.finish("play", json!({ "op": "echo", "value": 8 })).await;
    assert_eq!(document["output"], json!({ "echo": 8 }));
}

/// The host that runs most jobs becomes the active one: it has their components already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_runs_jobs_becomes_active() {
    let Some(database) = Database::new() else { return };
    let mut one = active(&database, 1);
    let mut arguments = arguments(&database);
    arguments.extend(["--max-running-jobs".to_owned(), "4".to_owned()]);
    let two = TestHost::join(&arguments, one.admin_key());
    let client = one.client();
    until_known(&client, 1).await;
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 4 })).await;
    let _busy = occupy(&one).await;
    let mut jobs = Vec::new();
    for number in 0..3 {
        jobs.push(client.submit("play", sleep(8_000, number)).await);
    }
    until_running(&client, 3).await;
    one.kill9();
    until_active(&two).await;
    let client = two.client();
    for (number, job) in jobs.iter().enumerate() {
        let document = client.finished("play", job).await;
        assert_eq!(document["output"], json!({ "slept": 8_000, "echo": number }), "{document}");
        assert_eq!(document["retries"].as_u64().unwrap_or(0), 0, "{document}");
    }
    let log = two.log();
    assert_eq!(log.matches("fetched component").count(), 1, "{log}");
    // The former active host stands by, and runs jobs.
    tokio::task::block_in_place(|| one.start_again());
    until_known(&client, 1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
}
