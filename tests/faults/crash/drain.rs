//! SIGTERM: running jobs end or wait for the next start, and every call gets an answer.

use std::time::Instant;

use gristmill_tests::{PATIENCE, TestHost, Wire, eventually, guests, parse_events};
use reqwest::Method;
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_is_asked_to_end_drains() {
    let mut host = TestHost::start_with(&["--drain-timeout", "12"]);
    let client = host.client();
    let settings = json!({ "workersMax": 2 });
    let endpoint = host.deploy(&guests::playground(), "drained", settings).await;
    // The test reaches the SIGTERM within these 5 s, and the drain of 12 s has room for their rest.
    let brief = client.submit(&endpoint, json!({ "op": "sleep", "ms": 5_000, "value": 1 })).await;
    client.until(&endpoint, &brief, "IN_PROGRESS").await;
    let parked = tokio::spawn({
        let (client, endpoint) = (client.clone(), endpoint.clone());
        async move {
            let input = json!({ "op": "sleep_forever" });
            client.run_sync(&endpoint, "?wait=60000", input).await
        }
    });
    eventually("both to run", async || {
        (client.health(&endpoint).await["jobs"]["inProgress"] == 2).then_some(())
    })
    .await;
    let waiting = client.submit(&endpoint, json!({ "op": "echo", "value": 2 })).await;
    let stream = client.path(&endpoint, &format!("stream/{waiting}?wait=60000"));
    let events = client.request(Method::GET, &stream).header("accept", "text/event-stream");
    let events = events.send().await.unwrap();
    let mut pages = Wire::connect(&host).await;
    pages.send_head(&host, "GET", &stream, "").await;

    let begun = Instant::now();
    host.ask_to_end();
    eventually("the host to drain", async || {
        let request = client.request(Method::GET, "/readyz");
        client.try_send(request).await.map_or(true, |answer| answer.status == 503).then_some(())
    })
    .await;
    // A client is asked to come back later, or cannot connect.
    let body = json!({ "input": { "op": "echo" } });
    let request = client.request(Method::POST, &client.path(&endpoint, "run")).json(&body);
    let late = client.try_send(request).await;
    println!("a submission during the drain: {late:?}");
    if let Ok(answer) = late {
        answer.refused(503);
        assert!(answer.header("retry-after").is_some(), "{answer:?}");
    }
    let parked = parked.await.unwrap();
    println!("the parked runsync was answered {} after {:?}", parked.status, begun.elapsed());
    let pages = pages.answer(PATIENCE).await.expect("an answer, before the connection ends");
    assert_eq!((pages.status, &*pages.body), (200, "[]"), "{pages:?}");
    assert_eq!(pages.header("x-job-status"), Some("IN_QUEUE"), "{pages:?}");
    let events = parse_events(&events.text().await.unwrap());
    assert_eq!(events, [], "the stream has not ended, and does not say so");
    let status = host.wait(PATIENCE);
    println!("the host ended with {status} after {:?}", begun.elapsed());
    assert_eq!(status.code(), Some(0), "{status}");
    let parked = parked.ok();
    assert!(matches!(parked["status"].as_str(), Some("IN_PROGRESS" | "IN_QUEUE")), "{parked}");

    host.start_again();
    assert_eq!(host.ready()["wasClean"], true, "{}", host.ready());
    let client = host.client();
    let document = client.until(&endpoint, &brief, "COMPLETED").await;
    assert_eq!(document["output"], json!({ "slept": 5_000, "echo": 1 }), "{document}");
    assert!(document.get("retries").is_none(), "it ended before its host: {document}");
    client.until(&endpoint, &waiting, "COMPLETED").await;
    // The endless job waits, or runs, again.
    let forever = parked["id"].as_str().unwrap();
    client.until(&endpoint, forever, "IN_PROGRESS").await;
    client.cancel(&endpoint, forever).await.ok();
}

#[tokio::test]
async fn an_idle_host_ends_at_once_and_all_waits_for_the_next_start() {
    // A host that waits for nothing ends long before this timeout.
    let mut host = TestHost::start_with(&["--drain-timeout", "600"]);
    let settings = json!({ "workersMax": 0 });
    let endpoint = host.deploy(&guests::playground(), "idle", settings).await;
    let job = host.client().submit(&endpoint, json!({ "op": "echo", "value": 3 })).await;
    let begun = Instant::now();
    host.ask_to_end();
    assert_eq!(host.wait(PATIENCE).code(), Some(0));
    println!("an idle host ended {:?} after SIGTERM", begun.elapsed());
    host.start_again();
    let client = host.client();
    client.patch(&format!("/v1/endpoints/{endpoint}"), &json!({ "workersMax": 1 })).await.ok();
    let document = client.until(&endpoint, &job, "COMPLETED").await;
    assert_eq!(document["output"], json!({ "echo": 3 }));
    assert!(document.get("retries").is_none(), "{document}");
}

#[tokio::test]
async fn a_second_signal_ends_the_host_at_once() {
    let mut host = TestHost::start_with(&["--drain-timeout", "600"]);
    let client = host.client();
    let settings = json!({ "workersMax": 1 });
    let endpoint = host.deploy(&guests::playground(), "impatient", settings).await;
    let job = client.submit(&endpoint, json!({ "op": "sleep_forever" })).await;
    client.until(&endpoint, &job, "IN_PROGRESS").await;
    host.ask_to_end();
    eventually("the drain to begin", async || {
        host.log().contains("stopping: running jobs have 600 s").then_some(())
    })
    .await;
    let begun = Instant::now();
    host.ask_to_end();
    assert_eq!(host.wait(PATIENCE).code(), Some(0));
    println!("ended {:?} after the second signal", begun.elapsed());
    host.start_again();
    let client = host.client();
    client.until(&endpoint, &job, "IN_PROGRESS").await;
    client.cancel(&endpoint, &job).await.ok();
}
