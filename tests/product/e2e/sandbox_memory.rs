//! The memory of all sandboxes together: what a job is charged, and what happens when it is used
//! up.

use std::time::Duration;

use gristmill_tests::{Client, TestHost, eventually, guests};
use serde_json::{Value, json};

/// Waits until the job waits with a reason that contains `part`.
async fn reason_of(client: &Client, endpoint: &str, job: &str, part: &str) -> String {
    eventually("a reason", async || {
        let waiting = client.status(endpoint, job).await.ok();
        let reason = waiting["reason"].as_str().filter(|reason| reason.contains(part));
        reason.filter(|_| waiting["status"] == "IN_QUEUE").map(str::to_owned)
    })
    .await
}

/// A job is charged the memory that it has, not the `memoryMib` of its endpoint: of these, two fit
/// into 512 MiB.
#[tokio::test]
async fn two_hundred_jobs_wait_in_the_memory_of_two() {
    let memory = ["--max-sandbox-memory-mib", "512", "--max-running-jobs", "300"];
    let host = TestHost::start_with(&memory);
    let client = host.client();
    let endpoints = ["first", "second"];
    for endpoint in endpoints {
        host.deploy(&guests::playground(), endpoint, json!({ "workersMax": 100 })).await;
        for _ in 0..100 {
            client.submit(endpoint, json!({ "op": "sleep_forever" })).await;
        }
    }
    for endpoint in endpoints {
        eventually("100 running jobs", async || {
            let health = client.health(endpoint).await;
            (health["jobs"]["inProgress"] == 100).then_some(())
        })
        .await;
    }
    let third = host.deploy(&guests::playground(), "third", json!({})).await;
    assert_eq!(client.finish(&third, json!({ "op": "echo" })).await["status"], "COMPLETED");
}

#[tokio::test]
async fn a_job_that_gets_no_memory_goes_back_to_its_place_and_runs_when_there_is_some() {
    let host = TestHost::start_with(&["--max-sandbox-memory-mib", "64"]);
    let client = host.client();
    let endpoint = host.deploy(&guests::playground(), "large", json!({ "memoryMib": 64 })).await;
    // Its input takes more than half of the memory.
    let large = |ms: u64| json!({ "op": "sleep", "ms": ms, "value": "x".repeat(9_000_000) });
    let running = client.submit(&endpoint, large(3_600_000)).await;
    client.until(&endpoint, &running, "IN_PROGRESS").await;
    // It is admitted by an estimate, and then finds no memory to grow.
    let waiting = client.submit(&endpoint, large(1)).await;
    reason_of(&client, &endpoint, &waiting, "--max-sandbox-memory-mib").await;
    // Another endpoint is served beside them.
    let small = host.deploy(&guests::playground(), "small", json!({ "memoryMib": 16 })).await;
    assert_eq!(client.finish(&small, json!({ "op": "echo" })).await["status"], "COMPLETED");
    client.cancel(&endpoint, &running).await.ok();
    let done = client.until(&endpoint, &waiting, "COMPLETED").await;
    assert_eq!(done["retries"].as_u64().unwrap_or(0), 0, "it has lost no try");
    let timeline = client.get(&client.path(&endpoint, &format!("timeline/{waiting}"))).await.ok();
    let causes: Vec<_> = timeline["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|event| event["cause"].as_str())
        .collect();
    let (first, again) = causes.split_first().unwrap();
    assert_eq!(*first, "submitted");
    assert!(again.iter().all(|cause| *cause == "noMemory"), "{timeline}");
}

#[tokio::test]
async fn jobs_that_reserve_their_memory_keep_it() {
    let host = TestHost::start_with(&["--max-sandbox-memory-mib", "512"]);
    let client = host.client();
    let settings = json!({ "memoryMib": 200, "reserveMemory": true });
    let careful = host.deploy(&guests::playground(), "careful", settings).await;
    let mut jobs = vec![];
    for _ in 0..3 {
        jobs.push(client.submit(&careful, json!({ "op": "sleep_forever" })).await);
    }
    client.until(&careful, &jobs[1], "IN_PROGRESS").await;
    // Sandboxes of other endpoints are charged only what they have after 2 s.
    tokio::time::sleep(Duration::from_secs(4)).await;
    reason_of(&client, &careful, &jobs[2], "--max-sandbox-memory-mib").await;
    let shown =
        client.patch("/v1/endpoints/careful", &json!({ "reserveMemory": false })).await.ok();
    assert_eq!(shown["reserveMemory"], false);
    client.until(&careful, &jobs[2], "IN_PROGRESS").await;
}

/// The sandboxes of `workersMin` are free for their endpoint, however busy the others are.
#[tokio::test]
async fn workers_min_reserves_sandboxes() {
    let host = TestHost::start_with(&["--max-running-jobs", "8"]);
    let client = host.client();
    let kept = host.deploy(&guests::playground(), "kept", json!({ "workersMin": 2 })).await;
    let mut waiting = vec![];
    for endpoint in ["a", "b", "c", "d", "e", "f", "g"] {
        host.deploy(&guests::playground(), endpoint, json!({})).await;
        waiting.push(client.submit(endpoint, json!({ "op": "sleep_forever" })).await);
    }
    let last = reason_of(&client, "g", &waiting[6], "workersMin").await;
    assert!(last.contains("--max-running-jobs"), "{last}");
    for _ in 0..2 {
        let job = client.submit(&kept, json!({ "op": "sleep_forever" })).await;
        client.until(&kept, &job, "IN_PROGRESS").await;
    }
    // Another one takes what is reserved no more.
    client.patch("/v1/endpoints/kept", &json!({ "workersMin": 0, "workersMax": 2 })).await.ok();
    client.cancel("a", &waiting[0]).await.ok();
    client.until("g", &waiting[6], "IN_PROGRESS").await;
    let too_many = json!({ "workersMin": 5, "workersMax": 5 });
    let refused = client.patch("/v1/endpoints/a", &too_many).await.refused(400);
    assert!(refused.contains("5 sandboxes") && refused.contains("may have 4"), "{refused}");
}

#[tokio::test]
async fn an_endpoint_beyond_all_memory_says_why() {
    let host = TestHost::start_with(&["--max-sandbox-memory-mib", "300"]);
    let client = host.client();
    let settings = json!({ "memoryMib": 512 });
    let huge = host.deploy(&guests::playground(), "huge", settings).await;
    let never = client.submit(&huge, json!({ "op": "echo" })).await;
    let reason = reason_of(&client, &huge, &never, "memoryMib of 512").await;
    assert!(reason.contains("300 MiB (--max-sandbox-memory-mib)"), "{reason}");
    client.patch("/v1/endpoints/huge", &json!({ "memoryMib": 300 })).await.ok();
    client.until(&huge, &never, "COMPLETED").await;
}

/// Attempts that all grow at once, beyond the memory of the host: each job ends once, and an
/// innocent endpoint is served meanwhile.
#[tokio::test]
async fn jobs_that_grow_together_end_once_and_delay_no_other_endpoint() {
    let host = TestHost::start_with(&["--max-sandbox-memory-mib", "512"]);
    let client = host.client();
    let settings = json!({ "workersMax": 60, "memoryMib": 256 });
    let greedy = host.deploy(&guests::playground(), "greedy", settings).await;
    let innocent = host.deploy(&guests::playground(), "innocent", json!({})).await;
    assert_eq!(client.finish(&innocent, json!({ "op": "echo" })).await["status"], "COMPLETED");
    let mut jobs = vec![];
    for _ in 0..60 {
        jobs.push(client.submit(&greedy, json!({ "op": "alloc", "mib": 200 })).await);
    }
    let is_done = async |jobs: &[String]| {
        let mut done = 0;
        for job in jobs {
            let status = client.status(&greedy, job).await.ok();
            assert_ne!(status["status"], "FAILED", "{status}");
            done += usize::from(status["status"] == "COMPLETED");
        }
        done == jobs.len()
    };
    let mut served = 0;
    while !is_done(&jobs).await {
        let answer: Value = client.finish(&innocent, json!({ "op": "echo" })).await;
        assert_eq!(answer["status"], "COMPLETED", "{answer}");
        served += 1;
        // The calls of the statuses have a rate limit.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(served > 0);
    let logs = client.get("/v1/endpoints/greedy/logs?tail=10000").await.ok().to_string();
    assert!(logs.contains("ms for memory of the host (--max-sandbox-memory-mib)"), "{logs}");
}
