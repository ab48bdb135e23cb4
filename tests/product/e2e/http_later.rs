//! Requests of HTTP endpoints that are answered later: jobs with the request as input and the
//! answer as output.

use gristmill_tests::{Client, TestHost, eventually, guests};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};

async fn site(host: &TestHost, name: &str, mut settings: Value) -> String {
    settings["type"] = "LOAD_BALANCER".into();
    host.deploy(&guests::http_playground(), name, settings).await
}

fn later(client: &Client, method: Method, site: &str, path: &str) -> RequestBuilder {
    client.request(method, &format!("/http/{site}{path}")).header("prefer", "respond-async")
}

/// The place of the answer, and the id.
async fn accepted(request: RequestBuilder) -> (String, String) {
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::ACCEPTED);
    assert_eq!(answer.headers()["preference-applied"], "respond-async");
    let location = answer.headers()["location"].to_str().unwrap().to_owned();
    let body: Value = answer.json().await.unwrap();
    assert_eq!(body["status"], "IN_QUEUE");
    let id = body["id"].as_str().unwrap();
    assert!(location.ends_with(id), "{location}");
    (location, id.to_owned())
}

/// The answer when there is one.
async fn fetched(client: &Client, location: &str) -> Response {
    eventually("the answer", async || {
        let answer = client.request(Method::GET, location).send().await.unwrap();
        (answer.status() != StatusCode::ACCEPTED).then_some(answer)
    })
    .await
}

#[tokio::test]
async fn an_answer_is_fetched_later_with_all_of_its_parts() {
    let host = TestHost::start();
    let client = host.client();
    let site = site(&host, "site", json!({})).await;
    let request = later(&client, Method::PUT, &site, "/head?a=%2F")
        .header("x-own", "1")
        .header("cookie", "a=b")
        .body("text");
    let (location, id) = accepted(request).await;
    let answer = fetched(&client, &location).await;
    assert_eq!(answer.headers()["content-type"], "application/json");
    assert_eq!(
        answer.headers()["content-security-policy"].to_str().unwrap().find("sandbox"),
        Some(0)
    );
    let seen: Value = answer.json().await.unwrap();
    assert_eq!((&seen["method"], &seen["target"]), (&"PUT".into(), &"/head?a=%2F".into()));
    let names: Vec<_> = seen["headers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|header| header[0].as_str().unwrap())
        .collect();
    for (name, is_there) in [
        ("x-own", true),
        ("x-forwarded-for", true),
        ("cookie", false),
        ("authorization", false),
        ("prefer", false),
    ] {
        assert_eq!(names.contains(&name), is_there, "{name}: {names:?}");
    }
    // It is a job.
    let job = client.status(&site, &id).await.ok();
    assert_eq!((&job["status"], &job["output"]["status"]), (&"COMPLETED".into(), &200.into()));
    // An answer without a body has none later either.
    let head = later(&client, Method::HEAD, &site, "/").send().await.unwrap();
    let location = head.headers()["location"].to_str().unwrap().to_owned();
    let answer = fetched(&client, &location).await;
    assert_eq!((answer.status(), answer.text().await.unwrap()), (StatusCode::OK, String::new()));
    let delete = client.request(Method::DELETE, &location).send().await.unwrap();
    assert_eq!(delete.status(), StatusCode::METHOD_NOT_ALLOWED);
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let echo = later(&client, Method::POST, &site, "/echo").body(bytes.clone());
    let (location, _) = accepted(echo).await;
    assert_eq!(fetched(&client, &location).await.bytes().await.unwrap(), bytes);
}

#[tokio::test]
async fn an_accepted_request_outlives_the_host() {
    let mut host = TestHost::start();
    let client = host.client();
    let site = site(&host, "site", json!({ "workersMax": 0 })).await;
    let (location, id) = accepted(later(&client, Method::GET, &site, "/")).await;
    let answer = client.request(Method::GET, &location).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::ACCEPTED);
    assert!(answer.headers().contains_key("retry-after"));
    host.kill9();
    host.start_again();
    let client = host.client();
    assert_eq!(client.status(&site, &id).await.ok()["status"], "IN_QUEUE");
    client.patch(&format!("/v1/endpoints/{site}"), &json!({ "workersMax": 1 })).await.ok();
    assert_eq!(fetched(&client, &location).await.text().await.unwrap(), "hello\n");
}

#[tokio::test]
async fn an_answer_that_will_not_come_has_its_reason() {
    let host = TestHost::start();
    let client = host.client();
    let site = site(&host, "site", json!({ "executionTimeoutMs": 5_000 })).await;
    for (path, status, code) in [
        ("/panic", 500, "handler_failed"),
        ("/panic-later", 500, "handler_failed"),
        ("/unfinished", 500, "handler_failed"),
        ("/sleep-later", 504, "handler_timed_out"),
    ] {
        let (location, _) = accepted(later(&client, Method::GET, &site, path)).await;
        let refused = fetched(&client, &location).await;
        assert_eq!(refused.status().as_u16(), status, "{path}");
        assert_eq!(refused.headers()["x-gristmill-error"], code, "{path}");
    }
    client.patch(&format!("/v1/endpoints/{site}"), &json!({ "workersMax": 0 })).await.ok();
    let (location, id) = accepted(later(&client, Method::GET, &site, "/")).await;
    client.cancel(&site, &id).await.ok();
    assert_eq!(fetched(&client, &location).await.status(), StatusCode::GONE);
    let unknown = location.replace(&id, "nothing");
    assert_eq!(fetched(&client, &unknown).await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_request_that_is_sent_again_is_one() {
    let host = TestHost::start();
    let client = host.client();
    let site = site(&host, "site", json!({})).await;
    let send = |path, body: &'static str| {
        later(&client, Method::POST, &site, path).header("idempotency-key", "once").body(body)
    };
    let (_, first) = accepted(send("/echo", "a")).await;
    assert_eq!(accepted(send("/echo", "a")).await.1, first);
    for (path, body) in [("/echo", "b"), ("/head", "a")] {
        let refused = send(path, body).send().await.unwrap();
        assert_eq!(refused.status().as_u16(), 422, "{path} {body}");
    }
}

#[tokio::test]
async fn a_visitor_gets_no_job() {
    let names = ["--http-listen", "127.0.0.1:0", "--http-domain", "apps.localhost"];
    let host = TestHost::start_with(&names);
    let site = site(&host, "site", json!({ "http": { "public": true } })).await;
    let address = host.ready()["httpAddr"].as_str().unwrap().to_owned();
    let visitor = Client::new(&format!("http://{address}"), "").with_authorization(None);
    let visit =
        |path: &str| visitor.request(Method::GET, path).header("host", "site.apps.localhost");
    let ask = || visit("/").header("prefer", "respond-async");
    assert_eq!(ask().send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    let with_key = |request: RequestBuilder| request.bearer_auth(host.admin_key());
    let (location, id) = accepted(with_key(ask())).await;
    assert_eq!(location, format!("/.well-known/gristmill/requests/{id}"));
    assert_eq!(visit(&location).send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    let answer = eventually("the answer", async || {
        let answer = with_key(visit(&location)).send().await.unwrap();
        (answer.status() == StatusCode::OK).then_some(answer)
    })
    .await;
    assert_eq!(answer.text().await.unwrap(), "hello\n");
    // By the path too.
    let (by_path, _) = accepted(later(&host.client(), Method::GET, &site, "/")).await;
    assert_eq!(fetched(&host.client(), &by_path).await.text().await.unwrap(), "hello\n");
}
