//! Refusals: the right status code, one shape, and a sentence that helps.

use gristmill_tests::{Client, guests, shared_host};
use reqwest::Method;
use serde_json::json;

const UNKNOWN_JOB: &str = "0192f3a0-0000-7000-8000-000000000000-0000";

#[tokio::test]
async fn a_body_that_is_no_submission_is_refused() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "errors-body", json!({})).await;
    let cases = [
        ("", ""),
        ("{", "JSON"),
        ("{\"input\":{}", "JSON"),
        ("[]", "object"),
        ("\"text\"", "object"),
        ("{}", "input"),
        ("{\"input\":null}", "input"),
        ("{\"input\":7}", "input"),
        ("{\"input\":\"text\"}", "input"),
        ("{\"input\":[]}", "input"),
        ("{\"input\":{\"a\":nul}}", "JSON"),
        ("{\"input\":{}} trailing", "JSON"),
    ];
    for operation in ["run", "runsync"] {
        for (body, word) in cases {
            let path = host.client.path(&endpoint, operation);
            let answer = host.client.post_text(&path, body).await;
            assert!(answer.refused(400).contains(word), "{body}: {answer:?}");
        }
    }
    let not_utf8 = host.client.request(Method::POST, &host.client.path(&endpoint, "run"));
    host.client.send(not_utf8.body(b"{\"input\":{\"a\":\"\xff\"}}".to_vec())).await.refused(400);
    let deep = format!("{{\"input\":{{\"a\":{}1{}}}}}", "[".repeat(100_000), "]".repeat(100_000));
    let answer = host.client.post_text(&host.client.path(&endpoint, "run"), deep).await;
    assert!(answer.refused(400).contains("deeper than 128 levels"), "{answer:?}");
    assert_eq!(host.client.finish(&endpoint, json!({ "op": "echo" })).await["status"], "COMPLETED");
}

#[tokio::test]
async fn unknown_keys_of_a_submission_are_ignored() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "errors-keys", json!({})).await;
    let body = json!({
        "id": "mine", "timeout": 60_000, "webhookV2": null, "webhook": null,
        "s3Config": { "bucketName": "b", "objectPath": "o" }, "input": { "op": "echo", "value": 1 },
    });
    let answer = host.client.post(&host.client.path(&endpoint, "runsync"), &body).await.ok();
    assert_eq!(answer["output"], json!({ "echo": 1 }), "{answer}");
    assert_ne!(answer["id"], "mine");
}

async fn job_calls(client: &Client, endpoint: &str, job: &str) -> Vec<gristmill_tests::Answer> {
    vec![
        client.status(endpoint, job).await,
        client.stream(endpoint, job).await,
        client.cancel(endpoint, job).await,
        client.retry(endpoint, job).await,
        client.get(&client.path(endpoint, &format!("status-sync/{job}?wait=1000"))).await,
    ]
}

#[tokio::test]
async fn what_does_not_exist_is_not_found() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "errors-404", json!({})).await;
    let other = host.deploy(&guests::playground(), "errors-404-other", json!({})).await;
    for client in [host.client.clone(), host.client.sdk()] {
        client.run("no-such-endpoint", json!({})).await.refused(404);
        client.run_sync("no-such-endpoint", "", json!({})).await.refused(404);
        client.purge("no-such-endpoint").await.refused(404);
        client.get(&client.path("no-such-endpoint", "health")).await.refused(404);
        for job in [UNKNOWN_JOB, "no-such-job", "%20", &"x".repeat(2_000)] {
            for answer in job_calls(&client, &endpoint, job).await {
                answer.refused(404);
            }
        }
        // A job belongs to its endpoint: others neither show nor touch it.
        let job = client.submit(&endpoint, json!({ "op": "sleep", "ms": 300 })).await;
        for answer in job_calls(&client, &other, &job).await {
            answer.refused(404);
        }
        client.until(&endpoint, &job, "COMPLETED").await;
    }
}

#[tokio::test]
async fn an_unknown_route_is_a_404_in_json() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "errors-routes", json!({})).await;
    let paths = [
        "/".to_owned(),
        "/v2".to_owned(),
        "/v3/x/run".to_owned(),
        format!("/v2/{endpoint}"),
        format!("/v2/{endpoint}/nothing"),
        format!("/v2/{endpoint}/status"),
        format!("/v2/{endpoint}/status/a/b"),
        "/v1/pods".to_owned(),
        "/favicon.ico".to_owned(),
        "/..%2f..%2fetc/passwd".to_owned(),
    ];
    for path in paths {
        let sentence = host.client.get(&path).await.refused(404);
        assert!(path.contains("..") || sentence.contains(&path), "{path}: {sentence}");
    }
}

#[tokio::test]
async fn a_wrong_method_is_a_405_that_names_the_right_ones() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "errors-405", json!({})).await;
    let cases = [
        (Method::GET, host.client.path(&endpoint, "run"), vec!["POST"]),
        (Method::GET, host.client.path(&endpoint, "runsync"), vec!["POST"]),
        (Method::GET, host.client.path(&endpoint, "purge-queue"), vec!["POST"]),
        (Method::GET, host.client.path(&endpoint, &format!("cancel/{UNKNOWN_JOB}")), vec!["POST"]),
        (Method::GET, host.client.path(&endpoint, &format!("retry/{UNKNOWN_JOB}")), vec!["POST"]),
        (Method::POST, host.client.path(&endpoint, "health"), vec!["GET"]),
        (Method::PUT, host.client.path(&endpoint, "run"), vec!["POST"]),
        (
            Method::DELETE,
            host.client.path(&endpoint, &format!("status/{UNKNOWN_JOB}")),
            vec!["GET", "POST"],
        ),
        (
            Method::PUT,
            host.client.path(&endpoint, &format!("stream/{UNKNOWN_JOB}")),
            vec!["GET", "POST"],
        ),
        (Method::PUT, "/v1/templates/some-id".to_owned(), vec!["GET"]),
    ];
    for (method, path, allowed) in cases {
        let answer = host.client.send(host.client.request(method.clone(), &path)).await;
        answer.refused(405);
        let allow = answer.header("allow").unwrap_or_default();
        let named: Vec<_> = allow.split(',').map(str::trim).collect();
        assert!(allowed.iter().all(|method| named.contains(method)), "{method} {path}: {allow}");
        assert!(!named.contains(&method.as_str()), "{method} {path}: {allow}");
    }
}

#[tokio::test]
async fn doubled_and_trailing_slashes_are_accepted() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "errors-slashes", json!({})).await;
    let body = json!({ "input": { "op": "echo" } });
    let accepted = host.client.post(&format!("//v2//{endpoint}//run/"), &body).await.ok();
    let job = accepted["id"].as_str().unwrap();
    host.client.until(&endpoint, job, "COMPLETED").await;
    for path in [
        format!("/v2/{endpoint}/status/{job}/"),
        format!("/v2//{endpoint}/status//{job}"),
        format!("//sdk///v2/{endpoint}/stream/{job}/?from=0"),
        format!("/v2/{endpoint}/health/"),
    ] {
        host.client.get(&path).await.ok();
    }
    let path = format!("/v2//{endpoint}//runsync//?wait=5000");
    assert_eq!(host.client.post(&path, &body).await.ok()["status"], "COMPLETED");
}

#[tokio::test]
async fn status_and_stream_accept_post_and_bodyless_calls_ignore_a_body() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "errors-bodies", json!({})).await;
    let done = host.client.finish(&endpoint, json!({ "op": "fail" })).await;
    let job = done["id"].as_str().unwrap();
    for body in ["", "{}", "{ this is not JSON", "[1,2,3]"] {
        let post = async |rest: &str| {
            host.client.post_text(&host.client.path(&endpoint, rest), body).await
        };
        assert_eq!(post(&format!("status/{job}")).await.ok()["status"], "FAILED");
        assert_eq!(post(&format!("status-sync/{job}")).await.ok()["status"], "FAILED");
        assert_eq!(post(&format!("stream/{job}?from=0")).await.ok(), json!([]));
        assert_eq!(post(&format!("cancel/{job}")).await.ok()["status"], "FAILED");
        assert_eq!(post(&format!("retry/{job}")).await.ok()["status"], "IN_QUEUE");
        host.client.until(&endpoint, job, "FAILED").await;
    }
    for (method, rest) in [(Method::GET, "health"), (Method::POST, "purge-queue")] {
        let request = host.client.request(method, &host.client.path(&endpoint, rest));
        let request = request.header("content-type", "text/xml").body("<no json/>");
        host.client.send(request).await.ok();
    }
    let request =
        host.client.request(Method::GET, &host.client.path(&endpoint, &format!("status/{job}")));
    host.client.send(request.header("content-type", "application/json")).await.ok();
}
