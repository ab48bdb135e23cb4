//! Jobs that handlers submit to other endpoints: who may, what they survive, and how they end.

use gristmill_tests::{Client, TestHost, eventually, guests, shared_host};
use reqwest::Method;
use serde_json::{Value, json};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

/// The input of a playground job that calls `endpoint` with `value`.
fn call(endpoint: &str, value: &Value) -> Value {
    json!({ "op": "call", "endpoint": endpoint, "value": value })
}

fn submit(endpoint: &str, value: &Value, key: Option<&str>) -> Value {
    json!({ "op": "submit", "endpoint": endpoint, "value": value, "key": key })
}

/// The error of the job with this input, which fails.
async fn error(client: &Client, endpoint: &str, input: Value) -> String {
    let done = client.finish(endpoint, input).await;
    assert_eq!(done["status"], "FAILED", "{done}");
    done["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_handler_calls_the_endpoints_that_its_own_endpoint_lists() {
    let host = shared_host();
    let client = &host.client;
    let settings = json!({ "callEndpoints": ["called", "called-missing"] });
    let caller = host.deploy(&guests::playground(), "caller", settings).await;
    let called = host.deploy(&guests::playground(), "called", json!({})).await;
    let shown = client.get("/v1/endpoints/caller").await.ok();
    assert_eq!(shown["callEndpoints"], json!(["called", "called-missing"]), "{shown}");

    let value = json!({ "op": "echo", "value": 9_007_199_254_740_993_u64 });
    let done = client.finish(&caller, call(&called, &value)).await;
    assert_eq!(done["output"], json!({ "echo": 9_007_199_254_740_993_u64 }), "{done}");
    let chunks = json!({ "op": "stream", "count": 2 });
    let done = client.finish(&caller, call(&called, &chunks)).await;
    assert_eq!(done["output"], json!([{ "i": 0 }, { "i": 1 }]), "{done}");

    let done = client.finish(&caller, submit(&called, &json!({ "op": "echo" }), None)).await;
    let job = done["output"].as_str().unwrap();
    assert!(job.starts_with("call1-"), "{job}");
    assert_eq!(client.until(&called, job, "COMPLETED").await["output"], json!({ "echo": null }));
    let found = client.get(&format!("/v1/jobs?idPrefix={}", &job[..19])).await.ok();
    assert!(found.to_string().contains(job), "{found}");

    let failing = call(&called, &json!({ "op": "fail", "message": "no flour" }));
    let sentence = error(client, &caller, failing).await;
    assert!(sentence.contains("is FAILED: no flour"), "{sentence}");
    let long = json!({ "op": "chunk", "bytes": 1 << 20, "count": 21 });
    let sentence = error(client, &caller, call(&called, &long)).await;
    assert!(sentence.contains("the list of its chunks has more than 20971520 bytes"), "{sentence}");

    let echo = json!({ "op": "echo" });
    for (input, expected) in [
        (call("caller", &echo), "add it to its `callEndpoints` (deploy --call-endpoint caller)"),
        (call("called-missing", &echo), "endpoint `called-missing` does not exist"),
        (call("no/id", &echo), "`no/id` is not the id of an endpoint"),
        (call(&called, &json!([1])), "the input must be a JSON object"),
        (submit(&called, &echo, Some("")), "an idempotency key must have 1 to 255"),
        (submit(&called, &echo, Some("\n")), "an idempotency key must have 1 to 255"),
    ] {
        let sentence = error(client, &caller, input.clone()).await;
        assert!(sentence.contains(expected), "{input}: {sentence}");
    }
    // The called endpoint itself may call none.
    let sentence = error(client, &called, call("caller", &echo)).await;
    assert!(sentence.contains("endpoint `called` does not allow calls"), "{sentence}");
}

#[tokio::test]
async fn an_endpoint_of_another_owner_does_not_exist_for_a_handler() {
    let host = TestHost::start();
    let other = host.client_of("other").await;
    let settings = json!({ "callEndpoints": ["mill"] });
    other.deploy(&guests::playground(), "intruder", settings).await;
    let mill = host.deploy(&guests::playground(), "mill", json!({})).await;
    let sentence = error(&other, "intruder", call(&mill, &json!({ "op": "echo" }))).await;
    assert!(sentence.contains("endpoint `mill` does not exist"), "{sentence}");
    assert_eq!(host.client().health(&mill).await["jobs"]["completed"], 0);
}

#[tokio::test]
async fn handlers_that_call_in_a_circle_end() {
    let host = shared_host();
    let client = &host.client;
    let settings = json!({ "callEndpoints": ["circle"], "workersMax": 1 });
    let circle = host.deploy(&guests::hostile(), "circle", settings).await;
    client.submit(&circle, json!({ "op": "circle" })).await;
    let jobs = eventually("the ninth job fails", async || {
        let jobs = client.health(&circle).await["jobs"].clone();
        (jobs["failed"] == 1).then_some(jobs)
    })
    .await;
    assert_eq!((&jobs["completed"], &jobs["inQueue"]), (&json!(8), &json!(0)), "{jobs}");
    let failed = client.get(&client.path(&circle, "requests?status=FAILED")).await.ok();
    let text = failed.to_string();
    assert!(text.contains("call8-"), "{failed}");
}

#[tokio::test]
async fn jobs_of_an_endpoint_that_calls_itself_are_completed() {
    let host = shared_host();
    let client = &host.client;
    let settings = json!({ "callEndpoints": ["self-call"], "workersMax": 2 });
    let endpoint = host.deploy(&guests::playground(), "self-call", settings).await;
    let input = call(&endpoint, &json!({ "op": "sleep", "ms": 20 }));
    let mut jobs = Vec::new();
    for _ in 0..8 {
        jobs.push(client.submit(&endpoint, input.clone()).await);
    }
    for job in jobs {
        assert_eq!(client.finished(&endpoint, &job).await["status"], "COMPLETED");
    }
    let settings = json!({ "callEndpoints": ["chain"], "workersMax": 1 });
    let chain = host.deploy(&guests::playground(), "chain", settings).await;
    let input = (0..4).fold(json!({ "op": "echo", "value": 7 }), |next, _| call(&chain, &next));
    let done = client.finish(&chain, input).await;
    assert_eq!(done["output"], json!({ "echo": 7 }), "{done}");
    assert_eq!(client.health(&chain).await["jobs"]["completed"], 5);
}

#[tokio::test]
async fn a_job_that_waits_for_another_one_lends_its_place_to_called_jobs_alone() {
    let host = shared_host();
    let client = &host.client;
    let settings = json!({ "callEndpoints": ["lends"], "workersMax": 1 });
    let endpoint = host.deploy(&guests::playground(), "lends", settings).await;
    let input = call(&endpoint, &json!({ "op": "sleep_forever" }));
    let caller = client.submit(&endpoint, input).await;
    client.workers_running(&endpoint, 2).await;
    let other = client.submit(&endpoint, json!({ "op": "echo" })).await;
    // A claim is visible a moment later.
    let called = eventually("the called job is listed", async || {
        let found = client.get(&client.path(&endpoint, "requests?status=IN_PROGRESS")).await.ok();
        let mut ids = found["requests"].as_array()?.iter().filter_map(|job| job["id"].as_str());
        ids.find(|id| id.starts_with("call1-")).map(str::to_owned)
    })
    .await;

    // The called job continues without its caller, and has the only place.
    client.cancel(&endpoint, &caller).await.ok();
    client.workers_running(&endpoint, 1).await;
    assert_eq!(client.status(&endpoint, &other).await.ok()["status"], "IN_QUEUE");
    client.cancel(&endpoint, &called).await.ok();
    client.until(&endpoint, &other, "COMPLETED").await;
}

#[tokio::test]
async fn a_call_of_a_busy_endpoint_ends_before_the_deadline() {
    let host = shared_host();
    let client = &host.client;
    let busy = host.deploy(&guests::playground(), "is-busy", json!({ "workersMax": 1 })).await;
    let settings = json!({ "callEndpoints": ["is-busy"], "executionTimeoutMs": 5000 });
    let caller = host.deploy(&guests::playground(), "calls-busy", settings).await;
    let running = client.submit(&busy, json!({ "op": "sleep_forever" })).await;
    client.workers_running(&busy, 1).await;
    let sentence = error(client, &caller, call(&busy, &json!({ "op": "echo" }))).await;
    assert!(sentence.contains("still waits for a worker"), "{sentence}");
    assert!(sentence.contains("has at most 1 workers that compute"), "{sentence}");
    // The called job runs once there is a worker.
    client.cancel(&busy, &running).await.ok();
    eventually("the called job is completed", async || {
        (client.health(&busy).await["jobs"]["completed"] == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_bound_of_the_called_queue_holds() {
    let host = shared_host();
    let client = &host.client;
    let settings = json!({ "callEndpoints": ["full-queue"] });
    let caller = host.deploy(&guests::playground(), "calls-full", settings).await;
    let settings = json!({ "workersMax": 0, "maxWaitingJobs": 1 });
    let called = host.deploy(&guests::playground(), "full-queue", settings).await;
    let input = submit(&called, &json!({ "op": "echo" }), None);
    assert_eq!(client.finish(&caller, input.clone()).await["status"], "COMPLETED");
    let sentence = error(client, &caller, input).await;
    assert!(sentence.contains("the queue is full"), "{sentence}");
}

#[tokio::test]
async fn a_called_job_is_in_the_trace_of_its_caller() {
    let host = shared_host();
    let client = &host.client;
    let settings = json!({ "callEndpoints": ["traced-call"] });
    let caller = host.deploy(&guests::playground(), "traces-call", settings).await;
    let called = host.deploy(&guests::playground(), "traced-call", json!({})).await;
    let body = json!({ "input": call(&called, &json!({ "op": "trace" })) });
    let request = client.request(Method::POST, &client.path(&caller, "runsync"));
    let done = client.send(request.header("traceparent", PARENT).json(&body)).await.ok();
    assert_eq!(done["output"], json!({ "traceParent": PARENT }), "{done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn called_jobs_and_their_depth_survive_the_death_of_the_host() {
    let mut host = TestHost::start();
    let settings = json!({ "callEndpoints": ["second"] });
    let first = host.deploy(&guests::playground(), "first", settings).await;
    let settings = json!({ "callEndpoints": ["second"], "workersMax": 0 });
    let second = host.deploy(&guests::playground(), "second", settings).await;
    let client = host.client();
    let next = submit("second", &json!({ "op": "echo" }), None);
    let input = submit(&second, &next, Some("order-17"));
    let done = client.finish(&first, input.clone()).await;
    let job = done["output"].as_str().unwrap().to_owned();
    host.kill9();
    host.start_again();

    // The submission was on disk, and the key finds it.
    let client = host.client();
    assert_eq!(client.finish(&first, input).await["output"], job);
    let other = submit(&second, &json!({ "op": "echo" }), Some("order-17"));
    let sentence = error(&client, &first, other).await;
    assert!(sentence.contains("this idempotency key was used before"), "{sentence}");
    client.patch("/v1/endpoints/second", &json!({ "workersMax": 1 })).await.ok();
    let done = client.until(&second, &job, "COMPLETED").await;
    assert!(done["output"].as_str().unwrap().starts_with("call2-"), "{done}");
}

#[tokio::test]
async fn a_call_after_a_submit_with_the_same_key_waits_for_that_job() {
    let host = shared_host();
    let client = &host.client;
    let settings = json!({ "callEndpoints": ["keyed"] });
    let caller = host.deploy(&guests::playground(), "calls-keyed", settings).await;
    let called = host.deploy(&guests::playground(), "keyed", json!({})).await;
    let value = json!({ "op": "echo", "value": 1 });
    client.finish(&caller, submit(&called, &value, Some("part-1"))).await;
    let mut input = call(&called, &value);
    input["key"] = json!("part-1");
    assert_eq!(client.finish(&caller, input).await["output"], json!({ "echo": 1 }));
    assert_eq!(client.health(&called).await["jobs"]["completed"], 1);
}
