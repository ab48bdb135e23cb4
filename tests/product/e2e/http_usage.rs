//! HTTP requests are listed, counted and billed, whatever happens to their clients and the host.

use std::time::Duration;

use gristmill_tests::{Client, PATIENCE, TestHost, eventually, guests};
use reqwest::Method;
use serde_json::{Value, json};

const HOUR_MS: u64 = 3_600_000;

async fn site(host: &TestHost, name: &str) -> String {
    let settings = json!({ "type": "LOAD_BALANCER", "workersMax": 4 });
    host.deploy(&guests::http_playground(), name, settings).await
}

/// The whole answer, and its request's id.
async fn get(client: &Client, endpoint: &str, path: &str) -> (u16, String) {
    let sent = client.request(Method::GET, &format!("/http/{endpoint}{path}")).send();
    let answer = sent.await.unwrap();
    let id = answer.headers()["x-request-id"].to_str().unwrap().to_owned();
    let status = answer.status().as_u16();
    let _ = answer.bytes().await;
    (status, id)
}

async fn listed(client: &Client, endpoint: &str, query: &str) -> Vec<Value> {
    let listed = client.get(&format!("/v1/endpoints/{endpoint}/requests{query}")).await.ok();
    listed.as_array().unwrap().clone()
}

/// The bill by endpoint, with at least so many requests.
async fn billed(client: &Client, endpoint: &str, requests: u64) -> Value {
    let path = format!("/v1/billing/endpoints?bucketSize=year&endpointId={endpoint}");
    eventually("the sums to be written", async || {
        let records = client.get(&path).await.ok();
        let record = records.get(0)?.clone();
        (record["jobs"].as_u64()? >= requests).then_some(record)
    })
    .await
}

#[tokio::test]
async fn each_request_is_listed_with_its_end_and_counted_by_its_status() {
    let host = TestHost::start();
    let client = host.client();
    let site = site(&host, "site").await;
    let posted = client.request(Method::POST, &format!("/http/{site}/echo?secret=1"));
    let posted = posted.body(vec![b'x'; 100_000]).send().await.unwrap();
    assert_eq!(posted.bytes().await.unwrap().len(), 100_000);
    let (status, missing) = get(&client, &site, "/status?code=404").await;
    assert_eq!(status, 404);
    assert_eq!(get(&client, &site, "/panic").await.0, 500);
    let left = client.request(Method::GET, &format!("/http/{site}/sleep"));
    assert!(left.timeout(Duration::from_millis(500)).send().await.is_err());
    // This answer breaks off after its head, if the client gets so far.
    let _ = client.request(Method::GET, &format!("/http/{site}/panic-later")).send().await;
    let all = eventually("all requests to end", async || {
        let all = listed(&client, &site, "").await;
        (all.len() == 5).then_some(all)
    })
    .await;
    let of = |path: &str| {
        let found = all.iter().find(|one| one["path"] == path);
        found.unwrap_or_else(|| panic!("no {path}: {all:?}"))
    };
    let echo = of("/echo");
    assert_eq!((&echo["method"], &echo["status"]), (&"POST".into(), &200.into()));
    assert_eq!((&echo["bytesIn"], &echo["bytesOut"]), (&100_000.into(), &100_000.into()));
    assert_eq!((&echo["version"], echo.get("code")), (&1.into(), None));
    assert!(echo["workerId"].as_str().unwrap().ends_with("-v1"), "{echo}");
    assert_eq!(of("/status")["id"], missing);
    assert_eq!(
        (&of("/panic")["status"], &of("/panic")["code"]),
        (&500.into(), &"handler_failed".into())
    );
    assert_eq!(
        (&of("/sleep")["status"], &of("/sleep")["code"]),
        (&499.into(), &"client_left".into())
    );
    assert_eq!(of("/panic-later")["code"], "handler_failed");
    let failed = listed(&client, &site, "?status=5xx&limit=1").await;
    assert_eq!((failed.len(), &failed[0]["status"]), (1, &500.into()));
    let wrong = client.get(&format!("/v1/endpoints/{site}/requests?status=no")).await;
    assert!(wrong.refused(400).contains("`5xx`"));

    // By the scope `read`, for the owner alone.
    let reader = client.with_scopes(&["read"]).await;
    assert_eq!(listed(&reader, &site, "").await.len(), 5);
    let other = host.client_of("somebody").await;
    assert_eq!(other.get(&format!("/v1/endpoints/{site}/requests")).await.status, 404);

    let metric = async |name: &str, labels: &str| {
        client.metric(&format!("gristmill_{name}{{endpoint=\"{site}\"{labels}}}")).await
    };
    for (class, least) in [("2xx", 1), ("4xx", 1), ("5xx", 1), ("499", 1), ("3xx", 0)] {
        let count = metric("requests_total", &format!(",status=\"{class}\"")).await;
        assert!(count >= least, "{class}: {count}");
    }
    assert_eq!(metric("request_seconds_count", "").await, 5);
    assert!(metric("request_head_seconds_count", "").await >= 3);
    assert_eq!(metric("requests_waiting", "").await, 0);
    assert_eq!(metric("request_bytes_total", ",direction=\"in\"").await, 100_000);

    // A deleted endpoint leaves none to the next one with its id.
    let deployed = client.get(&format!("/v1/endpoints/{site}")).await.ok();
    client.delete(&format!("/v1/endpoints/{site}")).await;
    let again =
        json!({ "id": site, "templateId": deployed["templateId"], "type": "LOAD_BALANCER" });
    let next = client.post("/v1/endpoints", &again).await.ok();
    let next = next["id"].as_str().unwrap().to_owned();
    assert_eq!(listed(&client, &next, "").await, Vec::<Value>::new());
}

#[tokio::test]
async fn requests_are_billed_within_a_moment_and_a_stop_loses_none() {
    let mut host = TestHost::start();
    let client = host.client();
    let site = site(&host, "paid").await;
    let hello = "hello\n".len() as u64;
    for _ in 0..20 {
        assert_eq!(get(&client, &site, "/").await.0, 200);
    }
    let record = billed(&client, &site, 20).await;
    assert_eq!((&record["jobs"], &record["bytesOut"]), (&20.into(), &(20 * hello).into()));
    for field in ["fuel", "memoryBytesPeak"] {
        assert!(record[field].as_u64().unwrap() > 1_000, "{field}: {record}");
    }
    let by_owner = client.get("/v1/billing/endpoints?bucketSize=year&grouping=ownerId").await.ok();
    assert_eq!(by_owner[0]["jobs"], 20);
    // The shown values are on disk.
    host.kill9();
    host.start_again();
    let client = host.client();
    assert_eq!(billed(&client, &site, 20).await, record);
    assert_eq!(listed(&client, &site, "").await.len(), 0, "they were in memory");
    // A stop writes what has not been written, also of an endpoint that is deleted.
    for _ in 0..7 {
        assert_eq!(get(&client, &site, "/").await.0, 200);
    }
    client.delete(&format!("/v1/endpoints/{site}")).await;
    host.ask_to_end();
    host.wait(PATIENCE);
    host.start_again();
    let record = billed(&host.client(), &site, 27).await;
    assert_eq!((&record["jobs"], &record["bytesOut"]), (&27.into(), &(27 * hello).into()));
}

/// A jump of the clock counts no time.
#[tokio::test]
async fn sums_count_in_the_hour_of_their_write() {
    let host = TestHost::start_with_clock::<&str>(&[]);
    let client = host.client();
    let site = site(&host, "hourly").await;
    let path = "/v1/billing/endpoints?bucketSize=hour";
    for requests in [1, 2] {
        get(&client, &site, "/").await;
        // The clock that measures the request moves too.
        client.workers_running(&site, 0).await;
        host.advance(HOUR_MS);
        eventually("the sums to be written", async || {
            host.advance(1_000);
            let records = client.get(path).await.ok();
            let count = |name: &str| {
                let records = records.as_array().unwrap().iter();
                records.map(|one| one[name].as_u64().unwrap()).sum::<u64>()
            };
            assert!(count("timeBilledMs") < HOUR_MS, "{records}");
            (count("jobs") == requests).then_some(())
        })
        .await;
    }
}
