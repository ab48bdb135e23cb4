//! `retention` of an endpoint and `policy.retention` of a submission: how long jobs are kept after
//! their end.

use gristmill_tests::{TestHost, eventually, guests};
use serde_json::{Value, json};

const MINUTE: u64 = 60_000;
const DAY: u64 = 86_400_000;

#[tokio::test]
async fn failed_jobs_are_kept_listed_and_retried_after_weeks() {
    let host = TestHost::start_with_clock::<&str>(&[]);
    let client = host.client();
    let settings = json!({ "retention": { "failed": 30 * DAY, "cancelled": 5 * MINUTE } });
    let endpoint = host.deploy(&guests::playground(), "kept", settings).await;
    let failed = client.submit(&endpoint, json!({ "op": "fail" })).await;
    client.until(&endpoint, &failed, "FAILED").await;
    let completed = client.submit(&endpoint, json!({ "op": "echo" })).await;
    client.until(&endpoint, &completed, "COMPLETED").await;
    // The submission comes before its endpoint.
    let policy = json!({ "retention": { "failed": MINUTE, "completed": 2 * DAY } });
    let input = |op| json!({ "op": op });
    let short = client.submit_with(&endpoint, input("fail"), policy.clone()).await;
    client.until(&endpoint, &short, "FAILED").await;
    let long = client.submit_with(&endpoint, input("echo"), policy).await;
    client.until(&endpoint, &long, "COMPLETED").await;

    host.advance(MINUTE);
    client.status(&endpoint, &short).await.refused(404);
    host.advance(29 * MINUTE);
    client.status(&endpoint, &completed).await.refused(404);
    // Later than the ttl of both jobs.
    host.advance(2 * DAY - 31 * MINUTE);
    assert_eq!(client.status(&endpoint, &long).await.ok()["status"], "COMPLETED");
    host.advance(MINUTE);
    client.status(&endpoint, &long).await.refused(404);

    host.advance(27 * DAY);
    let listed = client.get(&client.path(&endpoint, "requests?status=FAILED")).await.ok();
    assert_eq!(listed["requests"][0]["id"], failed, "{listed}");
    client.retry(&endpoint, &failed).await.ok();
    client.until(&endpoint, &failed, "FAILED").await;
    host.advance(30 * DAY - 1);
    assert_eq!(client.status(&endpoint, &failed).await.ok()["retries"], 1);
    host.advance(1);
    client.status(&endpoint, &failed).await.refused(404);
}

#[tokio::test]
async fn a_shortened_ttl_wins_over_a_chosen_retention() {
    let host = TestHost::start_with_clock::<&str>(&[]);
    let client = host.client();
    let settings = json!({ "retention": { "completed": DAY }, "workersMax": 0 });
    let endpoint = host.deploy(&guests::playground(), "shortened", settings).await;
    let job = client.submit(&endpoint, json!({ "op": "echo" })).await;
    client.get(&client.path(&endpoint, &format!("status/{job}?ttl={}", 2 * MINUTE))).await.ok();
    let path = format!("/v1/endpoints/{endpoint}");
    client.patch(&path, &json!({ "workersMax": 1 })).await.ok();
    client.until(&endpoint, &job, "COMPLETED").await;
    host.advance(2 * MINUTE - 1);
    assert_eq!(client.status(&endpoint, &job).await.ok()["status"], "COMPLETED");
    host.advance(1);
    client.status(&endpoint, &job).await.refused(404);
}

#[tokio::test]
async fn the_retention_of_an_endpoint_is_changed_field_by_field() {
    let host = TestHost::start_with_clock::<&str>(&[]);
    let client = host.client();
    let endpoint = host.deploy(&guests::echo(), "chosen", json!({})).await;
    let path = format!("/v1/endpoints/{endpoint}");
    let shown = async || client.get(&path).await.ok()["retention"].clone();
    assert_eq!(shown().await, json!({}));
    let change =
        async |retention: Value| client.patch(&path, &json!({ "retention": retention })).await;
    change(json!({ "failed": DAY, "completed": MINUTE })).await.ok();
    change(json!({ "cancelled": 30 * DAY })).await.ok();
    let all = json!({ "completed": MINUTE, "failed": DAY, "cancelled": 30 * DAY });
    assert_eq!(shown().await, all);
    change(json!({ "failed": 0 })).await.ok();
    assert_eq!(shown().await, json!({ "completed": MINUTE, "cancelled": 30 * DAY }));
    change(json!({ "maxJobs": 100, "maxMib": 1 })).await.ok();
    change(json!({ "maxJobs": 0, "completed": 0, "cancelled": 0 })).await.ok();
    assert_eq!(shown().await, json!({ "maxMib": 1 }));

    for (retention, sentence) in [
        (json!({ "failed": MINUTE - 1 }), "`retention.failed` must be 60000 to 2592000000"),
        (json!({ "completed": 30 * DAY + 1 }), "`retention.completed` must be 60000 to 2592000000"),
        (json!({ "timedOut": DAY }), "unknown field `timedOut`"),
        (json!({ "maxJobs": 100_000_001 }), "`retention.maxJobs` must be 1 to 100000000"),
        (json!({ "maxMib": 16_777_217 }), "`retention.maxMib` must be 1 to 16777216"),
        (json!([DAY]), "retention"),
    ] {
        let refused = change(retention).await.refused(400);
        assert!(refused.contains(sentence), "{refused}");
    }
    let policy = json!({ "retention": { "cancelled": 30 * DAY + 1 } });
    let body = json!({ "input": {}, "policy": policy });
    let refused = client.post(&client.path(&endpoint, "run"), &body).await.refused(400);
    let sentence = "policy.retention.cancelled must be 60000 to 2592000000 ms";
    assert!(refused.contains(sentence), "{refused}");
}

#[tokio::test]
async fn the_oldest_jobs_beyond_the_bounds_of_an_endpoint_are_deleted() {
    let host = TestHost::start_with_clock::<&str>(&[]);
    let client = host.client();
    let settings = json!({ "retention": { "completed": 30 * DAY, "maxJobs": 2 } });
    let endpoint = host.deploy(&guests::playground(), "bounded", settings).await;
    let mut jobs = vec![];
    for _ in 0..4 {
        jobs.push(client.submit(&endpoint, json!({ "op": "echo", "value": 1 })).await);
        client.until(&endpoint, jobs.last().unwrap(), "COMPLETED").await;
    }
    // A job stays for 10 seconds after its end, so that its caller can read the result.
    host.advance(5_000);
    for job in &jobs {
        assert_eq!(client.status(&endpoint, job).await.ok()["status"], "COMPLETED");
    }
    host.advance(6_000);
    eventually("the two oldest jobs to be deleted", async || {
        let listed = client.get(&client.path(&endpoint, "requests")).await.ok();
        let listed = listed["requests"].as_array().unwrap().clone();
        let ids: Vec<_> = listed.iter().map(|job| job["id"].as_str().unwrap()).collect();
        (ids == [&*jobs[3], &*jobs[2]]).then_some(())
    })
    .await;
    client.status(&endpoint, &jobs[0]).await.refused(404);

    // The bytes of results: one of the two remaining results of 700 KiB is too many.
    let patch = json!({ "retention": { "maxJobs": 0, "maxMib": 1 } });
    client.patch(&format!("/v1/endpoints/{endpoint}"), &patch).await.ok();
    for _ in 0..2 {
        jobs.push(client.submit(&endpoint, json!({ "op": "output", "bytes": 700 << 10 })).await);
        client.until(&endpoint, jobs.last().unwrap(), "COMPLETED").await;
    }
    host.advance(11_000);
    eventually("the oldest job with a large result to be deleted", async || {
        let answer = client.status(&endpoint, &jobs[4]).await;
        (answer.status == 404).then_some(())
    })
    .await;
    assert_eq!(client.status(&endpoint, &jobs[5]).await.ok()["status"], "COMPLETED");
}
