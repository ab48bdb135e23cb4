//! One `kill -9`, and the state that must exist afterwards.

use std::time::Duration;

use gristmill_tests::{TestHost, eventually, guests};
use serde_json::json;

#[tokio::test]
async fn acknowledged_jobs_survive_and_reach_their_end_in_order() {
    let mut host = TestHost::start();
    let client = host.client();
    let settings = json!({ "workersMax": 1 });
    let endpoint = host.deploy(&guests::playground(), "survivors", settings).await;
    let done = client.finish(&endpoint, json!({ "op": "echo", "value": "before" })).await;
    let failed = client.finish(&endpoint, json!({ "op": "fail", "message": "no flour" })).await;
    let cancelled = client.submit(&endpoint, json!({ "op": "sleep_forever" })).await;
    client.cancel(&endpoint, &cancelled).await.ok();
    let streamed = client.finish(&endpoint, json!({ "op": "stream", "count": 5 })).await;
    // It still runs at the kill, after 20 submissions with a sync each.
    let running = client.submit(&endpoint, json!({ "op": "sleep", "ms": 5_000 })).await;
    client.until(&endpoint, &running, "IN_PROGRESS").await;
    let mut waiting = vec![];
    for i in 0..20 {
        let input = json!({ "op": "sleep", "ms": 40, "value": i });
        waiting.push(client.submit(&endpoint, input).await);
    }

    host.kill9();
    host.start_again();
    let client = host.client();
    assert!(host.ready().get("adminKeyFile").is_none(), "named on the first start only");

    // Earlier results are unchanged.
    for document in [&done, &failed, &streamed] {
        let job = document["id"].as_str().unwrap();
        assert_eq!(client.status(&endpoint, job).await.ok(), *document);
    }
    let document = client.status(&endpoint, &cancelled).await.ok();
    assert_eq!(document["status"], "CANCELLED");
    let replay = format!("{}?from=3", streamed["id"].as_str().unwrap());
    let chunks = client.stream(&endpoint, &replay).await.ok();
    assert_eq!(chunks[0]["output"], json!({ "i": 3 }));

    // The queue keeps its order: when a job has ended, so have all earlier ones. They are read from
    // the last to the first, so that none can end between two reads.
    eventually("all jobs to end", async || {
        let mut is_final = vec![];
        for job in waiting.iter().rev() {
            let document = client.status(&endpoint, job).await.ok();
            is_final.push(document["status"] == "COMPLETED");
        }
        assert!(is_final.is_sorted(), "overtaken, from the last to the first: {is_final:?}");
        is_final.first().copied().unwrap_or(true).then_some(())
    })
    .await;
    for (i, job) in waiting.iter().enumerate() {
        let document = client.until(&endpoint, job, "COMPLETED").await;
        assert_eq!(document["output"], json!({ "slept": 40, "echo": i }));
        assert!(document.get("retries").is_none(), "it never ran before: {document}");
    }
    let document = client.until(&endpoint, &running, "COMPLETED").await;
    assert_eq!(document["retries"], 1, "its host died while it ran: {document}");
    assert_eq!(document["output"]["slept"], 5_000);

    let jobs = &client.health(&endpoint).await["jobs"];
    assert_eq!((&jobs["completed"], &jobs["failed"]), (&json!(23), &json!(1)), "{jobs}");
}

#[tokio::test]
async fn keys_endpoints_templates_and_handlers_survive() {
    let mut host = TestHost::start();
    let client = host.client();
    let settings = json!({ "workersMax": 3, "env": { "GRAIN": "rye" }, "dockerStartCmd": ["x"] });
    let endpoint = host.deploy(&guests::playground(), "entries", settings).await;
    client.finish(&endpoint, json!({ "op": "echo" })).await;
    let made = client.post("/v1/keys", &json!({ "name": "k", "scopes": ["submit"] })).await.ok();
    let revoked = client.post("/v1/keys", &json!({ "name": "r", "scopes": ["read"] })).await.ok();
    let path = format!("/v1/keys/{}", revoked["id"].as_str().unwrap());
    assert_eq!(client.delete(&path).await.status, 204);
    let paths = [
        "/v1/templates/entries?includeEndpointBoundTemplates=true",
        "/v1/endpoints/entries",
        "/v1/handlers",
        "/v1/keys",
    ];
    let mut before = vec![];
    for path in paths {
        before.push(client.get(path).await.ok());
    }
    host.kill9();
    host.start_again();
    let client = host.client();
    for (path, before) in paths.into_iter().zip(before) {
        assert_eq!(client.get(path).await.ok(), before, "{path}");
    }
    let submitter = client.with_key(made["key"].as_str().unwrap());
    let document = submitter.finish(&endpoint, json!({ "op": "env", "name": "GRAIN" })).await;
    assert_eq!(document["output"], json!({ "env": "rye" }), "{document}");
    let reader = client.with_key(revoked["key"].as_str().unwrap());
    reader.get(&reader.path(&endpoint, "health")).await.refused(401);
    assert_eq!(client.health(&endpoint).await["jobs"]["completed"], 2);
}

/// A job that crashes its host every time is given up instead of being tried for ever.
#[tokio::test]
async fn a_job_whose_host_dies_three_times_is_failed() {
    let mut host = TestHost::start();
    let settings = json!({ "workersMax": 1 });
    let endpoint = host.deploy(&guests::playground(), "unlucky", settings).await;
    let job = host.client().submit(&endpoint, json!({ "op": "sleep_forever" })).await;
    for crash in 1..=3 {
        let document = host.client().until(&endpoint, &job, "IN_PROGRESS").await;
        assert_eq!(document["retries"].as_u64().unwrap_or(0), crash - 1, "{document}");
        host.kill9();
        host.start_again();
    }
    let document = host.client().finished(&endpoint, &job).await;
    assert_eq!(document["status"], "FAILED", "{document}");
    println!("after three crashes: {}", document["error"]);
    assert!(!document["error"].as_str().unwrap().is_empty());
}

#[tokio::test]
async fn a_ttl_elapses_while_the_host_is_down() {
    let mut host = TestHost::start();
    let client = host.client();
    let settings = json!({ "workersMax": 1 });
    let endpoint = host.deploy(&guests::playground(), "ttl-down", settings).await;
    let done = client.finish(&endpoint, json!({ "op": "echo" })).await;
    let done = done["id"].as_str().unwrap();
    let running = client.submit(&endpoint, json!({ "op": "sleep_forever" })).await;
    client.until(&endpoint, &running, "IN_PROGRESS").await;
    let waiting = client.submit(&endpoint, json!({ "op": "echo" })).await;
    let jobs = [done, &running, &waiting];
    for job in jobs {
        client.status(&endpoint, &format!("{job}?ttl=600")).await.ok();
    }
    host.kill9();
    // The subject: the ttl of 600 ms passes while no process runs.
    tokio::time::sleep(Duration::from_millis(800)).await;
    host.start_again();
    let client = host.client();
    for job in jobs {
        client.status(&endpoint, job).await.refused(404);
    }
    assert_eq!(client.finish(&endpoint, json!({ "op": "echo" })).await["status"], "COMPLETED");
}

#[tokio::test]
async fn large_inputs_and_outputs_survive() {
    let mut host = TestHost::start();
    let client = host.client();
    let endpoint = host.deploy(&guests::echo(), "large", json!({ "workersMax": 2 })).await;
    let text = |bytes: usize| json!({ "text": "grain ".repeat(bytes / 6) });
    let sizes = [3 << 10, 40 << 10, 1 << 20, 6 << 20];
    let mut done = vec![];
    for bytes in sizes {
        done.push(client.finish(&endpoint, text(bytes)).await["id"].as_str().unwrap().to_owned());
    }
    let path = format!("/v1/endpoints/{endpoint}");
    client.patch(&path, &json!({ "workersMax": 0 })).await.ok();
    let mut waiting = vec![];
    for bytes in sizes {
        waiting.push(client.submit(&endpoint, text(bytes)).await);
    }
    host.kill9();
    host.start_again();
    let client = host.client();
    client.patch(&path, &json!({ "workersMax": 2 })).await.ok();
    for jobs in [done, waiting] {
        for (bytes, job) in sizes.into_iter().zip(jobs) {
            let document = client.until(&endpoint, &job, "COMPLETED").await;
            assert!(document["output"] == text(bytes), "{bytes} bytes of {job}");
        }
    }
}
