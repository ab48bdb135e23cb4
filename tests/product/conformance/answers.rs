//! Our decisions where the contract is silent, about answers: codes, bodies, paths. (Documents:
//! `documents`.)

use gristmill_tests::{TestHost, Wire, eventually, guests};
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::routes::{Part, Routes};
use crate::support::{UNKNOWN_JOB, echo, failing, forever, id, one_worker, shared};

/// Every success of the queue API is a 200; the management API has 204 for deletions, and 200.
#[tokio::test]
async fn success_code() {
    let endpoint = shared("answers-success", one_worker()).await;
    let routes = Routes::of(&endpoint.client).await;
    for n in 0..routes.in_part(Part::Queue, &endpoint.id, UNKNOWN_JOB).len() {
        // Each route has its own job, which no other route retries or purges.
        let job = id(&endpoint.finish(failing()).await);
        let route = routes.in_part(Part::Queue, &endpoint.id, &job).swap_remove(n);
        let request = endpoint.client.request(route.method.clone(), &route.path);
        let request = match &route.body {
            Some(body) => request.json(body),
            None => request,
        };
        let answer = endpoint.client.send(request).await;
        assert_eq!(answer.status, 200, "{route:?}: {answer:?}");
    }
    let template = json!({ "id": "answers-t", "name": "answers-t", "imageName": "echo:latest" });
    let client = &endpoint.client;
    assert_eq!(client.post("/v1/templates", &template).await.status, 200);
    assert_eq!(client.get("/v1/templates/answers-t").await.status, 200);
    assert_eq!(client.patch("/v1/templates/answers-t", &json!({})).await.status, 200);
    assert_eq!(client.delete("/v1/templates/answers-t").await.status, 204);
}

/// Every refusal of both APIs has a sentence as `error` and a word as `code`, the management API
/// the sentence as `message` too, and none has a `status`.
#[tokio::test]
async fn error_body() {
    let endpoint = shared("answers-errors", json!({})).await;
    let client = &endpoint.client;
    let nobody = client.with_authorization(None);
    // `refused` asserts the format.
    for path in ["/x", "/v3/x", "/favicon.ico", "/v1/pods/nothing", "/v2/a/nothing", "/v2/a/b/c/d"]
    {
        let sentence = client.get(path).await.refused(404);
        assert!(sentence.contains(path), "{path}: {sentence}");
    }
    for route in Routes::of(client).await.of_both(&endpoint.id, UNKNOWN_JOB) {
        client.send(client.request(Method::OPTIONS, &route.path)).await.refused(405);
        nobody.send(nobody.request(route.method.clone(), &route.path)).await.refused(401);
        if route.body.is_some() {
            let request = client.request(route.method, &route.path).body("{");
            client.send(request).await.refused(400);
        }
    }
    endpoint.status(UNKNOWN_JOB).await.refused(404);
}

/// 405 names the permitted methods; 413 is sent before a byte is read, and while reading. (400,
/// 401, 404 and 429: `errors`.)
#[tokio::test]
async fn codes() {
    let endpoint = shared("answers-codes", json!({})).await;
    let path = |rest: &str| endpoint.path(rest);
    let cases = [
        (Method::GET, path("run"), "POST"),
        (Method::GET, path("runsync"), "POST"),
        (Method::GET, path("purge-queue"), "POST"),
        (Method::GET, path(&format!("cancel/{UNKNOWN_JOB}")), "POST"),
        (Method::GET, path(&format!("retry/{UNKNOWN_JOB}")), "POST"),
        (Method::POST, path("health"), "GET"),
        (Method::DELETE, path(&format!("status/{UNKNOWN_JOB}")), "GET POST"),
        (Method::PUT, path(&format!("stream/{UNKNOWN_JOB}")), "GET POST"),
        (Method::PUT, "/v1/templates/some-id".to_owned(), "GET PATCH DELETE"),
    ];
    for (method, path, allowed) in cases {
        let answer = endpoint.client.send(endpoint.client.request(method.clone(), &path)).await;
        answer.refused(405);
        let named: Vec<_> = answer.header("allow").unwrap().split(',').map(str::trim).collect();
        let all_named = allowed.split(' ').all(|method| named.contains(&method));
        assert!(all_named && !named.contains(&method.as_str()), "{method} {path}: {named:?}");
    }
    crate::raw::refused_by_its_length(&endpoint, "run", (10 << 20) + 1).await;
    Wire::call_in_chunks(&endpoint.host, "POST", &path("run"), 11 << 20).await.refused(413);
    assert_eq!(endpoint.health().await["jobs"]["inQueue"], 0);
}

/// 503 with Retry-After: the host is about to stop, and refuses jobs whose body is still arriving.
#[tokio::test]
async fn unavailable_while_it_stops() {
    let host = TestHost::start_with(&["--drain-timeout", "10"]);
    let endpoint = host.deploy(&guests::playground(), "stops", one_worker()).await;
    let client = host.client();
    let running = client.submit(&endpoint, forever()).await;
    client.until(&endpoint, &running, "IN_PROGRESS").await;
    let body = json!({ "input": echo() }).to_string();
    let head = crate::raw::head(&host, "POST", &client.path(&endpoint, "run"));
    let mut connection = TcpStream::connect(host.address()).await.unwrap();
    let length = body.len();
    let head = format!("{head}expect: 100-continue\r\ncontent-length: {length}\r\n\r\n");
    connection.write_all(head.as_bytes()).await.unwrap();
    // The host has begun this call before it is asked to stop: a connection without a begun call
    // is closed instead of answered.
    let mut interim = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    connection.read_exact(&mut interim).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    host.ask_to_end();
    eventually("the host to take no more connections", async || {
        TcpStream::connect(host.address()).await.is_err().then_some(())
    })
    .await;
    connection.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("\r\nretry-after: "), "{answer}");
    assert!(answer.contains("\"code\":\"unavailable\""), "{answer}");
}

/// Calls without a body ignore a body and its type; unknown keys of a submission are ignored.
#[tokio::test]
async fn bodyless_calls() {
    let endpoint = shared("answers-bodies", json!({})).await;
    let job = id(&endpoint.finish(failing()).await);
    for (method, rest) in [
        (Method::GET, format!("status/{job}")),
        (Method::GET, format!("stream/{job}")),
        (Method::POST, format!("cancel/{job}")),
        (Method::POST, format!("retry/{job}")),
        (Method::POST, "purge-queue".to_owned()),
        (Method::GET, "health".to_owned()),
    ] {
        endpoint.with_nonsense_body(method, &rest).await.ok();
    }
    let body = json!({
        "id": "mine", "timeout": 60_000, "webhookV2": null, "policy": { "priority": 9 },
        "input": { "op": "echo", "value": 1 },
    });
    let answer = endpoint.post("runsync", &body).await.ok();
    assert_eq!(answer["output"], json!({ "echo": 1 }));
    assert_ne!(answer["id"], "mine");
}

/// Trailing and doubled slashes are accepted; status, status-sync and stream take GET and POST.
#[tokio::test]
async fn urls() {
    let endpoint = shared("answers-urls", json!({})).await;
    let (client, name) = (&endpoint.client, &endpoint.id);
    let body = json!({ "input": echo() });
    let job = id(&client.post(&format!("//v2//{name}//run/"), &body).await.ok());
    endpoint.until(&job, "COMPLETED").await;
    for path in [
        format!("/v2/{name}/status/{job}/"),
        format!("/v2//{name}/status//{job}"),
        format!("//sdk///v2/{name}/stream/{job}/?from=0"),
        format!("/v2/{name}/health/"),
        format!("/v1//endpoints/{name}/"),
    ] {
        client.get(&path).await.ok();
    }
    for operation in ["status", "status-sync", "stream"] {
        let path = endpoint.path(&format!("{operation}/{job}"));
        client.get(&path).await.ok();
        client.post_empty(&path).await.ok();
    }
}
