//! `/v1/job-actions`: cancel, retry and delete many jobs in the background, through crashes of the
//! host.

use gristmill_tests::{Client, TestHost, eventually, guests};
use serde_json::{Value, json};

async fn begin(client: &Client, action: &str, filter: Value) -> String {
    let body = json!({ "action": action, "filter": filter });
    client.post("/v1/job-actions", &body).await.ok()["id"].as_str().unwrap().to_owned()
}

async fn ended(client: &Client, id: &str) -> Value {
    eventually("the action to end", async || {
        let action = client.get(&format!("/v1/job-actions/{id}")).await.ok();
        (action["state"] != "RUNNING").then_some(action)
    })
    .await
}

fn counts(action: &Value) -> [u64; 3] {
    ["matched", "changed", "skipped"].map(|name| action[name].as_u64().unwrap())
}

/// The number of jobs that a query selects.
async fn count(client: &Client, query: &str) -> usize {
    let (mut found, mut cursor) = (0, String::new());
    loop {
        let page = client.get(&format!("/v1/jobs?limit=1000&{query}{cursor}")).await.ok();
        found += page["jobs"].as_array().unwrap().len();
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

#[tokio::test]
async fn many_jobs_are_retried_cancelled_and_deleted() {
    let host = TestHost::start_with(&["--archive-after", "0"]);
    let client = host.client();
    host.deploy(&guests::playground(), "e", json!({ "workersMax": 4 })).await;
    for n in 0..30 {
        let tags = json!({ "batch": if n < 20 { "one" } else { "two" } });
        let body = json!({ "input": { "op": "fail", "message": "no grain" }, "tags": tags });
        client.post("/v2/e/run", &body).await.ok();
    }
    eventually("the jobs to fail", async || {
        (count(&client, "status=FAILED").await == 30).then_some(())
    })
    .await;
    client.patch("/v1/endpoints/e", &json!({ "workersMax": 0 })).await.ok();

    let filter = json!({ "statuses": ["FAILED"], "tags": { "batch": "one" }, "error": "grain" });
    let retry = begin(&client, "retry", filter.clone()).await;
    let retried = ended(&client, &retry).await;
    assert_eq!((&retried["state"], counts(&retried)), (&json!("COMPLETED"), [20, 20, 0]));
    assert_eq!((&retried["action"], &retried["filter"]), (&json!("retry"), &filter));
    assert!(retried["endedAt"].as_str() >= retried["createdAt"].as_str(), "{retried}");
    assert_eq!(count(&client, "status=IN_QUEUE&tag=batch:one").await, 20);

    let cancel = begin(&client, "cancel", json!({ "endpoints": ["e"] })).await;
    assert_eq!(counts(&ended(&client, &cancel).await), [30, 20, 10]);
    assert_eq!(count(&client, "status=CANCELLED").await, 20);

    let delete = begin(&client, "delete", json!({ "tags": { "batch": "one" } })).await;
    assert_eq!(counts(&ended(&client, &delete).await), [20, 20, 0]);
    assert_eq!((count(&client, "").await, count(&client, "tag=batch:two").await), (10, 10));

    let listed = client.get("/v1/job-actions?limit=2").await;
    let ids: Vec<_> = listed.ok().as_array().unwrap().iter().map(|one| one["id"].clone()).collect();
    assert_eq!(ids, [json!(delete), json!(cancel)]);
    let next = listed.next_page().unwrap();
    assert_eq!(client.get(&next).await.ok()[0]["id"], json!(retry));
    // An action that has ended can be aborted, without effect.
    assert_eq!(client.delete(&format!("/v1/job-actions/{retry}")).await.status, 204);
    assert_eq!(ended(&client, &retry).await["state"], "COMPLETED");
}

/// The host is killed while an action waits for room in the queue. The next process continues it;
/// an abort that was answered holds through the crash.
#[tokio::test]
async fn an_action_continues_after_a_crash_and_an_aborted_one_does_not() {
    let mut host = TestHost::start();
    let mut client = host.client();
    host.deploy(&guests::playground(), "e", json!({ "workersMax": 4 })).await;
    for _ in 0..20 {
        client.submit("e", json!({ "op": "fail" })).await;
    }
    eventually("the jobs to fail", async || {
        (count(&client, "status=FAILED").await == 20).then_some(())
    })
    .await;
    let paused = json!({ "workersMax": 0, "maxWaitingJobs": 5 });
    client.patch("/v1/endpoints/e", &paused).await.ok();
    let filter = json!({ "endpoints": ["e"], "statuses": ["FAILED"] });
    let retry = begin(&client, "retry", filter.clone()).await;
    eventually("the queue to be full", async || {
        let action = client.get(&format!("/v1/job-actions/{retry}")).await.ok();
        let reason = action["reason"].as_str().unwrap_or_default().to_owned();
        reason.contains("the queue is full: 5 jobs wait").then_some(())
    })
    .await;
    let aborted = begin(&client, "retry", filter.clone()).await;
    assert_eq!(client.delete(&format!("/v1/job-actions/{aborted}")).await.status, 204);
    host.start_again();
    client = host.client();
    let action = client.get(&format!("/v1/job-actions/{retry}")).await.ok();
    assert_eq!((&action["state"], &action["filter"]), (&json!("RUNNING"), &filter));
    assert_eq!(ended(&client, &aborted).await["state"], "ABORTED");
    // The jobs fail again, and are not retried again.
    client.patch("/v1/endpoints/e", &json!({ "workersMax": 4, "maxWaitingJobs": 100 })).await.ok();
    let done = ended(&client, &retry).await;
    assert_eq!(done["state"], "COMPLETED", "{done}");
    eventually("the jobs to fail again", async || {
        (count(&client, "status=FAILED").await == 20).then_some(())
    })
    .await;
    for job in client.get("/v1/jobs").await.ok()["jobs"].as_array().unwrap() {
        assert_eq!(job["retries"], 1, "{job}");
    }
}

#[tokio::test]
async fn a_mistake_in_an_action_is_named_and_owners_stay_apart() {
    let host = TestHost::start();
    let [a, b] = [host.client_of("a").await, host.client_of("b").await];
    for (client, name) in [(&a, "a-e"), (&b, "b-e")] {
        client.deploy(&guests::playground(), name, json!({ "workersMax": 0 })).await;
        client.submit(name, json!({ "op": "echo" })).await;
    }
    for (body, sentence) in [
        (json!({}), "missing field `action`"),
        (json!({ "action": "stop", "filter": {} }), "`cancel`, `retry`, `delete`"),
        (json!({ "action": "cancel" }), "missing field `filter`"),
        (json!({ "action": "cancel", "filter": {} }), "`filter` must have at least one condition"),
        (
            json!({ "action": "cancel", "filter": { "status": ["FAILED"] } }),
            "unknown field `status`",
        ),
        (json!({ "action": "cancel", "filter": { "statuses": ["DONE"] } }), "filter.statuses[0]"),
        (json!({ "action": "cancel", "filter": { "tags": { "A": "b" } } }), "`filter.tags`"),
        (
            json!({ "action": "cancel", "filter": { "endpoints": vec!["x"; 101] } }),
            "`filter.endpoints` has 101 endpoints; at most 100 are allowed",
        ),
    ] {
        let refused = a.post("/v1/job-actions", &body).await.refused(400);
        assert!(refused.contains(sentence), "{body}: {refused}");
    }
    let named = |name: &str| json!({ "action": "cancel", "filter": { "endpoints": [name] } });
    let theirs = b.post("/v1/job-actions", &named("a-e")).await.refused(400);
    let unknown = b.post("/v1/job-actions", &named("a-x")).await.refused(400);
    assert!(unknown.contains("`filter.endpoints`: endpoint `a-x` not found"), "{unknown}");
    assert_eq!(theirs.replace("a-e", "a-x"), unknown);

    let all = begin(&b, "cancel", json!({ "statuses": ["IN_QUEUE"] })).await;
    assert_eq!(counts(&ended(&b, &all).await), [1, 1, 0]);
    assert_eq!(count(&a, "status=IN_QUEUE").await, 1, "the other owner's job waits");
    let refused = a.get(&format!("/v1/job-actions/{all}")).await.refused(404);
    assert!(refused.contains(&format!("job action `{all}` not found")), "{refused}");
    a.delete(&format!("/v1/job-actions/{all}")).await.refused(404);
    assert_eq!(a.get("/v1/job-actions").await.ok(), json!([]));

    let admin = host.client();
    for (scopes, endpoints, status) in [
        (["read"], None, 401),
        (["manage"], None, 401),
        (["submit"], Some(["a-e"]), 401),
        (["submit"], None, 200),
    ] {
        let new = json!({ "name": "k", "owner": "a", "scopes": scopes, "endpoints": endpoints });
        let key = admin.post("/v1/keys", &new).await.ok()["key"].as_str().unwrap().to_owned();
        let body = json!({ "action": "delete", "filter": { "statuses": ["FAILED"] } });
        let answer = admin.with_key(&key).post("/v1/job-actions", &body).await;
        assert_eq!(answer.status, status, "{new}: {answer:?}");
    }
}
