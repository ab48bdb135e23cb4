//! Schedules: their times become jobs, exactly once over crashes.

use gristmill_tests::{
    Client, TestHost, each_time_is_decided_once, eventually, guests, shared_host,
};
use serde_json::{Value, json};

/// The schedule, once it has decided so many times.
async fn decided(client: &Client, id: &str, count: usize) -> Value {
    eventually(&format!("{count} times of schedule {id}"), async || {
        let shown = client.get(&format!("/v1/schedules/{id}")).await.ok();
        let total = ["jobs", "skipped", "missed"].map(|name| shown[name].as_u64().unwrap());
        (total.iter().sum::<u64>() >= count as u64).then_some(shown)
    })
    .await
}

#[tokio::test]
async fn each_time_becomes_one_job_also_over_crashes() {
    let mut host = TestHost::start();
    let endpoint = host.deploy(&guests::echo(), "echo", json!({})).await;
    let client = host.client();
    let schedule = json!({
        "id": "often", "endpointId": endpoint, "everyMs": 1_000,
        "input": { "n": 9_007_199_254_740_993_u64 }, "overlap": "queue",
        "catchUp": { "maxTicks": 1_000 },
    });
    let made = client.post("/v1/schedules", &schedule).await.ok();
    assert_eq!((&made["name"], &made["overlap"]), (&"often".into(), &"queue".into()), "{made}");
    assert_eq!(made["next"].as_array().unwrap().len(), 10, "{made}");
    decided(&client, "often", 2).await;
    for _ in 0..3 {
        host.kill9();
        host.start_again();
        let client = host.client();
        let before = client.get("/v1/schedules/often").await.ok();
        let count = before["jobs"].as_u64().unwrap() as usize + 2;
        decided(&client, "often", count).await;
    }
    let client = host.client();
    let shown = each_time_is_decided_once(&client, "often").await;
    assert_eq!((&shown["skipped"], &shown["missed"]), (&0.into(), &0.into()), "{shown}");
    let paused = client.patch("/v1/schedules/often", &json!({ "paused": true })).await.ok();
    assert_eq!(paused["next"], json!([]));
    let last = shown["ticks"][0]["jobId"].as_str().unwrap();
    let done = client.until(&endpoint, last, "COMPLETED").await;
    assert!(done["output"].to_string().contains("9007199254740993"), "{done}");
}

#[tokio::test]
async fn a_time_is_left_out_or_cancels_while_an_earlier_job_runs() {
    let host = TestHost::start();
    let endpoint = host.deploy(&guests::playground(), "mill", json!({})).await;
    let client = host.client();
    let input = json!({ "op": "sleep_forever" });
    for (id, overlap) in [("skips", "skip"), ("waits", "queue"), ("cancels", "cancel")] {
        let schedule = json!({
            "id": id, "endpointId": endpoint, "everyMs": 1_000, "input": input, "overlap": overlap,
        });
        client.post("/v1/schedules", &schedule).await.ok();
    }
    let shown = decided(&client, "skips", 3).await;
    assert_eq!((&shown["jobs"], &shown["missed"]), (&1.into(), &0.into()), "{shown}");
    let reason = shown["ticks"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("had not ended"), "{reason}");
    let refused = client.post("/v1/schedules/skips/run", &Value::Null).await.refused(400);
    assert!(refused.contains("has not ended"), "{refused}");
    let shown = decided(&client, "cancels", 3).await;
    assert_eq!((&shown["skipped"], &shown["missed"]), (&0.into(), &0.into()), "{shown}");
    let first = shown["ticks"].as_array().unwrap().last().unwrap()["jobId"].as_str().unwrap();
    client.until(&endpoint, first, "CANCELLED").await;
    let waits = client.get("/v1/schedules/waits").await.ok();
    assert_eq!((&waits["jobs"], &waits["skipped"]), (&1.into(), &0.into()), "{waits}");
    // The next job follows the end of the first one.
    let first = waits["ticks"].as_array().unwrap().last().unwrap()["jobId"].as_str().unwrap();
    client.post(&format!("/v2/{endpoint}/cancel/{first}"), &Value::Null).await.ok();
    eventually("the next job of the queue", async || {
        let shown = client.get("/v1/schedules/waits").await.ok();
        (shown["jobs"] == 2).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_full_queue_delays_a_time_and_a_job_can_be_run_now() {
    let host = TestHost::start();
    let settings = json!({ "paused": true, "maxWaitingJobs": 1 });
    let endpoint = host.deploy(&guests::echo(), "echo", settings).await;
    let client = host.client();
    let waiting = client.submit(&endpoint, json!({})).await;
    let catch_up = json!({ "maxTicks": 1_000 });
    let schedule = json!({
        "id": "one", "endpointId": endpoint, "everyMs": 1_000, "catchUp": catch_up,
    });
    client.post("/v1/schedules", &schedule).await.ok();
    let refused = client.post("/v1/schedules/one/run", &Value::Null).await;
    assert_eq!(refused.status, 429, "{refused:?}");
    // Nothing is decided while the window lasts.
    let shown = client.get("/v1/schedules/one").await.ok();
    assert_eq!((&shown["jobs"], &shown["missed"]), (&0.into(), &0.into()), "{shown}");
    client.post(&format!("/v2/{endpoint}/cancel/{waiting}"), &Value::Null).await.ok();
    decided(&client, "one", 1).await;
    let refused = client.delete(&format!("/v1/endpoints/{endpoint}")).await.refused(400);
    assert!(refused.contains("has the schedule `one`"), "{refused}");
    assert_eq!(client.delete("/v1/schedules/one").await.status, 204);
    assert_eq!(client.delete(&format!("/v1/endpoints/{endpoint}")).await.status, 204);
}

#[tokio::test]
async fn a_change_accounts_for_the_times_and_jobs_before_it() {
    let host = TestHost::start();
    let settings = json!({ "paused": true, "maxWaitingJobs": 1 });
    let full = host.deploy(&guests::echo(), "full", settings).await;
    let other = host.deploy(&guests::echo(), "other", json!({})).await;
    let client = host.client();
    client.submit(&full, json!({})).await;
    let catch_up = json!({ "maxTicks": 1_000 });
    for (id, change) in
        [("paused", json!({ "paused": true })), ("changed", json!({ "everyMs": 900_000 }))]
    {
        let schedule =
            json!({ "id": id, "endpointId": full, "everyMs": 1_000, "catchUp": catch_up });
        let made = client.post("/v1/schedules", &schedule).await.ok();
        let due: jiff::Timestamp = made["next"][1].as_str().unwrap().parse().unwrap();
        eventually("two times wait for room", async || {
            (jiff::Timestamp::now() > due).then_some(())
        })
        .await;
        let shown = client.patch(&format!("/v1/schedules/{id}"), &change).await.ok();
        assert!(shown["missed"].as_u64().unwrap() >= 2, "{shown}");
        let reason = format!("the schedule was {id} before its job was submitted");
        assert_eq!(shown["ticks"][0]["reason"], reason, "{shown}");
    }
    // Its job still counts when it has another endpoint.
    let schedule = json!({ "id": "moves", "endpointId": full, "cron": "@yearly" });
    client.post("/v1/schedules", &schedule).await.ok();
    client.post(&format!("/v2/{full}/purge-queue"), &Value::Null).await.ok();
    client.post("/v1/schedules/moves/run", &Value::Null).await.ok();
    client.patch("/v1/schedules/moves", &json!({ "endpointId": other })).await.ok();
    let refused = client.post("/v1/schedules/moves/run", &Value::Null).await.refused(400);
    assert!(refused.contains("has not ended"), "{refused}");
}

#[tokio::test]
async fn mistakes_are_named() {
    let host = shared_host();
    let client = host.client();
    let endpoint = host.deploy(&guests::echo(), "echo-mistakes", json!({})).await;
    let nested = (0..128).fold(json!({}), |inner, _| json!({ "a": inner }));
    let cases = [
        (json!({ "cron": "@daily", "input": nested }), "must not be nested deeper than 128 levels"),
        (json!({}), "either `cron` or `everyMs`"),
        (json!({ "cron": "0 4 * * *", "everyMs": 1_000 }), "either `cron` or `everyMs`"),
        (json!({ "cron": "61 4 * * *" }), "61"),
        (json!({ "cron": "0 4 30 2 *" }), "`cron`"),
        (json!({ "everyMs": 999 }), "`everyMs` is 999"),
        (json!({ "everyMs": 1_000, "timeZone": "UTC" }), "`timeZone`"),
        (json!({ "cron": "@daily", "timeZone": "Europe/Berln" }), "did you mean `Europe/Berlin`"),
        (json!({ "cron": "@daily", "input": [] }), "`input` must be a JSON object"),
        (json!({ "cron": "@daily", "policy": { "runAt": "2026-01-01" } }), "`policy.runAt`"),
        (json!({ "cron": "@daily", "policy": { "ttl": 1 } }), "policy.ttl must be"),
        (json!({ "cron": "@daily", "policy": { "tll": 1 } }), "unknown field `tll`"),
        (json!({ "cron": "@daily", "catchUp": { "maxTicks": 0 } }), "`catchUp.maxTicks` must be"),
        (json!({ "cron": "@daily", "overlap": "sometimes" }), "skip"),
        (
            json!({ "cron": "@daily", "endpointId": "nothing" }),
            "`endpointId`: endpoint `nothing` not found",
        ),
    ];
    for (fields, sentence) in cases {
        let mut schedule = json!({ "endpointId": endpoint });
        schedule.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let refused = client.post("/v1/schedules", &schedule).await.refused(400);
        assert!(refused.contains(sentence), "{fields}: {refused}");
    }
}
