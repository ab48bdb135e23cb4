//! `/openai/*`: calls of OpenAI clients as jobs, with refusals and failures in OpenAI's format.

use std::time::Duration;

use gristmill_tests::{Client, TestHost, eventually, guests, shared_host};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::computing;

const CHAT: &str = "v1/chat/completions";

fn pair(r#type: &str, code: &str) -> (String, String) {
    (r#type.to_owned(), code.to_owned())
}

#[tokio::test]
async fn route_and_body_reach_the_handler_as_they_came_and_its_output_is_the_answer() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::echo(), "openai-echo", json!({})).await;
    let body = "{\"n\": 9007199254740993, \"z\":1.0,\n \"a\":\"\\u00e9\"}";
    for client in [host.client.clone(), host.client.sdk()] {
        let path = client.path(&endpoint, "openai/v1/any/thing%2Fmore?a=b");
        let answer = client.post_text(&path, format!("  {body}\n")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let expected =
            format!("{{\"openai_route\":\"/v1/any/thing/more\",\"openai_input\":{body}}}");
        assert_eq!(answer.text, expected);

        let path = client.path(&endpoint, "openai/v1/models/");
        let answer = client.get(&path).await;
        assert_eq!(answer.text, r#"{"openai_route":"/v1/models"}"#);
        assert_eq!(client.post_empty(&path).await.text, answer.text);
        let job = answer.header("x-job-id").unwrap();
        assert!(job.starts_with("sync-"), "{job}");
        assert_eq!(answer.header("x-request-id"), Some(job), "where OpenAI's clients look for it");
        let document = client.status(&endpoint, job).await.ok();
        assert_eq!((&document["status"], &document["output"]), (&json!("COMPLETED"), &answer.ok()));
    }
}

#[tokio::test]
async fn the_sample_handler_chats() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::chat(), "openai-chat", json!({})).await;
    let body = json!({
        "model": "gristmill-markov", "seed": 1, "max_tokens": 12,
        "messages": [{ "role": "user", "content": "How does a mill work?" }],
    });
    let answer = host.client.openai(&endpoint, CHAT, &body).await;
    let document = answer.ok();
    assert_eq!(document["object"], "chat.completion", "{document}");
    assert_eq!(
        document["id"],
        format!("chatcmpl-{}", answer.header("x-job-id").unwrap()),
        "{document}"
    );
    let again = host.client.openai(&endpoint, CHAT, &body).await.ok();
    assert_eq!(document["choices"], again["choices"]);
    assert!(document["created"].as_u64().unwrap() > 1_700_000_000, "{document}");
}

#[tokio::test]
async fn a_handler_that_only_emits_answers_with_its_first_chunk() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "openai-first", json!({})).await;
    let call = async |body: Value| host.client.openai(&endpoint, CHAT, &body).await;
    let body = json!({ "op": "emit", "values": [{ "z": 1, "a": 2 }, { "b": 3 }] });
    assert_eq!(call(body).await.ok(), json!({ "z": 1, "a": 2 }));
    // The returned value has precedence.
    let body = json!({ "op": "emit", "values": [{ "a": 1 }], "value": { "b": 2 } });
    assert_eq!(call(body).await.ok(), json!({ "b": 2 }));
    assert_eq!(call(json!({ "op": "emit" })).await.ok(), Value::Null);
    // The parts of a split chunk are joined again.
    let text = "é\n\"".repeat(800_000);
    for large in [json!({ "text": text }), json!(text)] {
        let answer = call(json!({ "op": "emit", "values": [large, "rest", 1] })).await;
        assert_eq!(answer.ok(), large);
    }
}

#[tokio::test]
async fn error_objects_get_the_status_that_they_name_and_stay_as_they_are() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "openai-objects", json!({})).await;
    let typed = |r#type: &str| json!({ "error": { "message": "m", "type": r#type, "code": "x" } });
    let cases = [
        (json!({ "object": "error", "message": "no such model", "code": 404 }), 404),
        (json!({ "error": { "message": "busy", "code": 503 } }), 503),
        (typed("invalid_request_error"), 400),
        (typed("insufficient_quota"), 429),
        (typed("something_else"), 500),
        (json!({ "object": "response", "error": { "code": "server_error" } }), 200),
    ];
    for (value, status) in cases {
        for (body, is_returned) in [
            (json!({ "op": "emit", "value": value }), true),
            (json!({ "op": "emit", "value": value, "stream": true }), true),
            (json!({ "op": "emit", "values": [value], "stream": true }), false),
        ] {
            let answer = host.client.openai(&endpoint, CHAT, &body).await;
            assert_eq!(answer.status, status, "{body}: {answer:?}");
            if status != 200 {
                assert_eq!(answer.json(), value, "{body}");
            }
            let job = answer.header("x-job-id").unwrap();
            let document = host.client.until(&endpoint, job, "COMPLETED").await;
            assert_eq!(document["output"] == value, is_returned, "{document}");
        }
    }
}

#[tokio::test]
async fn a_jobs_end_without_an_answer_has_a_status_of_its_own() {
    let host = shared_host();
    let settings = json!({ "executionTimeoutMs": 5_000 });
    let endpoint = host.deploy(&guests::playground(), "openai-ends", settings).await;
    for is_stream in [false, true] {
        let call = async |mut body: Value| {
            body["stream"] = json!(is_stream);
            let answer = host.client.openai(&endpoint, CHAT, &body).await;
            assert!(answer.header("x-job-id").is_some(), "{answer:?}");
            answer
        };
        let failed = call(json!({ "op": "fail", "message": "no flour" })).await;
        assert_eq!(failed.refused_as_openai(500), pair("server_error", "job_failed"));
        assert_eq!(failed.json()["error"]["message"], "no flour");
        let timed_out = call(computing()).await;
        assert_eq!(timed_out.refused_as_openai(504), pair("server_error", "job_timed_out"));
    }
}

#[tokio::test]
async fn a_job_that_is_cancelled_or_removed_ends_its_call() {
    let host = shared_host();
    let settings = json!({ "workersMax": 0 });
    for is_stream in [false, true] {
        let name = format!("openai-removed-{is_stream}");
        let endpoint = host.deploy(&guests::playground(), &name, settings.clone()).await;
        let (client, body) = (host.client.clone(), json!({ "op": "echo", "stream": is_stream }));
        let (to, message) = (endpoint.clone(), body.clone());
        let parked = tokio::spawn(async move { client.openai(&to, CHAT, &message).await });
        until_jobs(&host.client, &endpoint, "inQueue", 1).await;
        host.client.purge(&endpoint).await.ok();
        let gone = parked.await.unwrap();
        assert_eq!(gone.refused_as_openai(404), pair("not_found_error", "not_found"));
    }
}

async fn until_jobs(client: &Client, endpoint: &str, state: &str, count: u64) {
    eventually(&format!("{count} jobs to be {state}"), async || {
        (client.health(endpoint).await["jobs"][state] == count).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_job_of_a_disconnected_client_is_cancelled() {
    let host = shared_host();
    let waiting = json!({ "workersMax": 0 });
    for (name, settings, state) in
        [("openai-gone-queued", waiting, "inQueue"), ("openai-gone", json!({}), "inProgress")]
    {
        let endpoint = host.deploy(&guests::playground(), name, settings).await;
        for is_stream in [false, true] {
            let body = json!({ "op": "sleep_forever", "stream": is_stream });
            let (client, to) = (host.client.clone(), endpoint.clone());
            let call = tokio::spawn(async move { client.openai(&to, CHAT, &body).await });
            until_jobs(&host.client, &endpoint, state, 1).await;
            // A client that ends its side within 100 ms of its call may still wait for the answer.
            tokio::time::sleep(Duration::from_millis(500)).await;
            call.abort();
            until_jobs(&host.client, &endpoint, state, 0).await;
        }
        let jobs = &host.client.health(&endpoint).await["jobs"];
        assert_eq!((&jobs["completed"], &jobs["failed"]), (&json!(0), &json!(0)), "{jobs}");
    }
}

#[tokio::test]
async fn refusals_have_the_shape_that_an_openai_client_reads() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::echo(), "openai-refused", json!({})).await;
    let client = &host.client;
    let path = client.path(&endpoint, "openai/v1/models");
    let unauthorized = client.with_authorization(None).get(&path).await;
    assert_eq!(unauthorized.refused_as_openai(401), pair("authentication_error", "unauthorized"));
    assert_eq!(unauthorized.header("www-authenticate"), Some("Bearer"));
    let unknown = client.get(&client.path("no-such-endpoint", "openai/v1/models")).await;
    assert_eq!(unknown.refused_as_openai(404), pair("not_found_error", "not_found"));
    let wrong_method = client.delete(&path).await;
    assert_eq!(
        wrong_method.refused_as_openai(405),
        pair("invalid_request_error", "method_not_allowed")
    );
    let allow = wrong_method.header("allow").unwrap();
    assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");

    for body in ["[]", "{", "\"x\"", "{\"a\":nul}"] {
        let answer = client.post_text(&path, body).await;
        assert_eq!(answer.refused_as_openai(400), pair("invalid_request_error", "bad_request"));
    }
    let not_text = client.path(&endpoint, "openai/v1/%ff");
    client.get(&not_text).await.refused_as_openai(404);
    let too_large = client.request(Method::POST, &path).header("content-length", 21 << 20);
    let answer = client.send(too_large.body("{")).await;
    assert_eq!(answer.refused_as_openai(413), pair("invalid_request_error", "payload_too_large"));

    // A key with only `read` runs nothing.
    let read = client.post("/v1/keys", &json!({ "name": "r", "scopes": ["read"] })).await.ok();
    let reader = client.with_key(read["key"].as_str().unwrap());
    reader.get(&path).await.refused_as_openai(401);
    // Other routes keep their own format.
    client.get(&client.path("no-such-endpoint", "health")).await.refused(404);
    client.get(&client.path(&endpoint, "openai")).await.refused(404);
    client.post_empty(&client.path(&endpoint, "health")).await.refused(405);
}

#[tokio::test]
async fn the_limits_of_openai_are_its_own() {
    let limits = "calls-per-10s = 2\nconcurrent = 1\ncalls-per-worker = 0\n";
    let host = TestHost::start_configured(&format!("[rate-limits.openai]\n{limits}"));
    let client = host.client();
    let endpoint = host.deploy(&guests::playground(), "limited", json!({})).await;

    let body = json!({ "op": "sleep_forever" });
    let (caller, to) = (client.clone(), endpoint.clone());
    let held = tokio::spawn(async move { caller.openai(&to, CHAT, &body).await });
    until_jobs(&client, &endpoint, "inProgress", 1).await;
    let refused = client.openai(&endpoint, CHAT, &json!({ "op": "echo" })).await;
    assert_eq!(refused.refused_as_openai(429), pair("rate_limit_error", "concurrency_limited"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    // An end within 100 ms of the call would not mean that the client has left.
    tokio::time::sleep(Duration::from_millis(500)).await;
    held.abort();
    until_jobs(&client, &endpoint, "inProgress", 0).await;

    let refused = eventually("the limit to be reached", async || {
        let answer = client.openai(&endpoint, CHAT, &json!({ "op": "echo" })).await;
        (answer.status == 429 && answer.header("ratelimit").is_some()).then_some(answer)
    })
    .await;
    assert_eq!(refused.refused_as_openai(429), pair("rate_limit_error", "rate_limited"));
    assert_eq!(refused.header("ratelimit-policy"), Some("\"openai\";q=2;w=10"));
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=11).contains(&seconds), "{seconds}");
    client.run_sync(&endpoint, "", json!({ "op": "echo" })).await.ok();
}

#[tokio::test]
async fn a_stopping_host_answers_503_and_leaves_no_job() {
    let mut host = TestHost::start_with(&["--drain-timeout", "1"]);
    let client = host.client();
    let endpoint = host.deploy(&guests::playground(), "drained", json!({})).await;
    let body = json!({ "op": "sleep_forever" });
    let (caller, to) = (client.clone(), endpoint.clone());
    let parked = tokio::spawn(async move { caller.openai(&to, CHAT, &body).await });
    until_jobs(&client, &endpoint, "inProgress", 1).await;
    host.ask_to_end();
    let answer = parked.await.unwrap();
    assert_eq!(answer.refused_as_openai(503), pair("server_error", "unavailable"));
    assert!(answer.header("retry-after").is_some());
    assert!(host.wait(Duration::from_secs(20)).success());
    host.start_again();
    let job = answer.header("x-job-id").unwrap();
    assert_eq!(host.client().status(&endpoint, job).await.ok()["status"], "CANCELLED");
}
