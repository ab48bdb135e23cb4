//! `GET /v1/series` and `GET /v1/endpoints/{id}/series`: what endpoints did, for charts.

use std::fs;

use gristmill_tests::{Client, PATIENCE, TestHost, eventually, guests, shared_host};
use serde_json::{Value, json};

async fn series(client: &Client, endpoint: &str, window: &str) -> Value {
    client.get(&format!("/v1/endpoints/{endpoint}/series?window={window}")).await.ok()
}

/// The sum of a field over all points.
fn sum(series: &Value, field: &str) -> u64 {
    let points = series["points"].as_array().unwrap();
    points.iter().map(|point| point[field].as_u64().unwrap()).sum()
}

/// The series once the sampler has seen so many submissions.
async fn with_submissions(host: &TestHost, endpoint: &str, window: &str, jobs: u64) -> Value {
    let client = host.client();
    eventually("the sample", async || {
        host.advance(10_000);
        let found = series(&client, endpoint, window).await;
        (sum(&found, "submitted") == jobs).then_some(found)
    })
    .await
}

#[tokio::test]
async fn a_series_has_the_jobs_of_its_endpoint_and_survives_a_restart() {
    let mut host = TestHost::start_with_clock::<&str>(&[]);
    let client = host.client();
    let endpoint = host.deploy(&guests::playground(), "series", json!({ "workersMin": 2 })).await;
    let empty = series(&client, &endpoint, "15m").await;
    assert_eq!((&empty["points"], &empty["stepMs"]), (&json!([]), &json!(10_000)));
    for _ in 0..3 {
        client.finish(&endpoint, json!({ "op": "echo" })).await;
    }
    client.finish(&endpoint, json!({ "op": "fail", "message": "no flour" })).await;
    let found = with_submissions(&host, &endpoint, "15m", 4).await;
    assert_eq!((sum(&found, "completed"), sum(&found, "failed")), (3, 1), "{found}");
    let points = found["points"].as_array().unwrap();
    let first = points.iter().find(|point| point["submitted"] == 4).unwrap();
    assert!(first["runMs"]["p99"].as_f64().unwrap() > 0.0, "{first}");
    assert!(first["delayMs"]["p50"].as_f64().unwrap() > 0.0, "{first}");
    assert_eq!(points[0]["at"], found["from"]);
    let idle = points.iter().map(|point| point["workers"]["idle"].as_u64().unwrap()).max();
    assert!((1..=2).contains(&idle.unwrap()), "the workers that are kept wait: {found}");
    assert_eq!(points[0]["workers"]["unhealthy"], 0);
    for pair in points.windows(2) {
        assert_eq!(pair[1]["at"].as_u64().unwrap() - pair[0]["at"].as_u64().unwrap(), 10_000);
    }
    for (window, step_ms) in [("6h", 300_000), ("7d", 7_200_000)] {
        let coarse = series(&client, &endpoint, window).await;
        assert_eq!((sum(&coarse, "submitted"), &coarse["stepMs"]), (4, &json!(step_ms)));
    }
    let list = client.get("/v1/series?window=7d").await.ok();
    let lists = &list["endpoints"][&endpoint];
    let total = |name: &str| {
        lists[name].as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((total("submitted"), total("failed")), (4, 1), "{list}");
    assert!(lists["runMs"]["p99"].as_f64().unwrap() > 0.0, "{list}");
    assert_eq!((&lists["waiting"], &lists["running"]), (&json!(0), &json!(0)), "{list}");
    client.get("/v1/series?window=1y").await.refused(400);

    host.ask_to_end();
    host.wait(PATIENCE);
    host.start_again();
    assert_eq!(sum(&series(&host.client(), &endpoint, "7d").await, "submitted"), 4);
    host.client().finish(&endpoint, json!({ "op": "echo" })).await;
    with_submissions(&host, &endpoint, "7d", 5).await;
}

#[tokio::test]
async fn a_damaged_file_of_charts_is_reported_and_the_host_works() {
    let mut host = TestHost::start_with_clock::<&str>(&[]);
    let endpoint = host.deploy(&guests::echo(), "series-damaged", json!({})).await;
    host.client().finish(&endpoint, json!({})).await;
    with_submissions(&host, &endpoint, "7d", 1).await;
    host.ask_to_end();
    host.wait(PATIENCE);
    let file = host.data_dir().join("charts");
    let whole = fs::read(&file).unwrap();
    for damaged in [&whole[..whole.len() / 2], b"", &[0; 100]] {
        fs::write(&file, damaged).unwrap();
        host.start_again();
        let found = series(&host.client(), &endpoint, "7d").await;
        assert_eq!(found["points"], json!([]));
        assert!(host.log().contains("charts of the last days begin again"), "{}", host.log());
        host.kill9();
    }
    fs::write(&file, &whole).unwrap();
    host.start_again();
    assert_eq!(sum(&series(&host.client(), &endpoint, "7d").await, "submitted"), 1);
}

#[tokio::test]
async fn the_state_of_the_host_is_for_its_operator() {
    let host = TestHost::start_with_clock(&["--max-running-jobs", "7"]);
    let system = host.client().get("/v1/system").await.ok();
    let sandboxes = &system["sandboxes"];
    let memory = json!({
        "maxBytes": sandboxes["memory"]["maxBytes"].as_u64().filter(|max| *max > 1 << 27).unwrap(),
        "chargedBytes": 0, "keptBytes": 0, "withheldBytes": 0,
    });
    let none =
        json!({ "running": 0, "idle": 0, "waiting": 0, "growing": 0, "max": 7, "memory": memory });
    assert_eq!(*sandboxes, none);
    assert_eq!(system["settings"]["max-running-jobs"], "7");
    assert_eq!(system["webhooks"], json!({ "waiting": 0, "givenUp": 0 }));
    assert!(system["disk"]["freeBytes"].as_u64().unwrap() > 0, "{system}");
    assert_eq!(system.get("lastBackupAt"), None);
    assert!(!system.to_string().contains(host.data_dir().to_str().unwrap()), "{system}");
    host.deploy(&guests::echo(), "system", json!({})).await;
    host.advance(5_000);
    let later = host.client().get("/v1/system").await.ok();
    let uptime = |of: &Value| of["uptimeMs"].as_u64().unwrap();
    assert_eq!((uptime(&later) - uptime(&system), &later["endpoints"]), (5_000, &json!(1)));
    assert_eq!(later["startedAt"], system["startedAt"]);
    for (owner, scope, status) in
        [("default", "metrics", 200), ("default", "submit", 401), ("a", "manage", 401)]
    {
        let new = json!({ "name": "k", "owner": owner, "scopes": [scope] });
        let made = host.client().post("/v1/keys", &new).await.ok();
        let client = host.client().with_key(made["key"].as_str().unwrap());
        assert_eq!(client.get("/v1/system").await.status, status, "{owner} {scope}");
    }
}

#[tokio::test]
async fn a_series_needs_the_scope_read() {
    let host = shared_host();
    let metrics = host.client.with_scopes(&["metrics"]).await;
    metrics.get("/v1/series").await.refused(401);
    metrics.get("/v1/endpoints/x/series").await.refused(401);
    host.client.get("/v1/endpoints/no-such-one/series").await.refused(404);
}
