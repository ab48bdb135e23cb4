//! HTTP endpoints: requests below `/http/{endpoint}` go to the handler without a queue.

use gristmill_tests::{Client, PATIENCE, Shared, TestHost, eventually, guests, shared_host};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Deploys the handler for tests as an endpoint, and returns the endpoint.
async fn site(host: &Shared, name: &str, mut settings: Value) -> String {
    settings["type"] = "LOAD_BALANCER".into();
    host.deploy(&guests::http_playground(), name, settings).await
}

fn request(client: &Client, method: Method, endpoint: &str, path: &str) -> RequestBuilder {
    client.request(method, &format!("/http/{endpoint}{path}"))
}

fn get(client: &Client, endpoint: &str, path: &str) -> RequestBuilder {
    request(client, Method::GET, endpoint, path)
}

#[tokio::test]
async fn a_handler_answers_with_its_own_status_headers_and_body() {
    let host = shared_host();
    let client = host.client();
    let site = site(&host, "site-1", json!({})).await;
    let answer = get(&client, &site, "/").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.text().await.unwrap(), "hello\n");
    for status in [201, 204, 404, 500] {
        let answer = get(&client, &site, &format!("/status?code={status}")).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status);
        assert!(!answer.headers().contains_key("x-gristmill-error"), "{status}");
    }
    let answer = request(&client, Method::HEAD, &site, "/").send().await.unwrap();
    assert_eq!((answer.status(), answer.text().await.unwrap()), (StatusCode::OK, String::new()));
    let endpoint = client.get(&format!("/v1/endpoints/{site}")).await.ok();
    assert_eq!(endpoint["type"], "LOAD_BALANCER");
}

#[tokio::test]
async fn the_handler_sees_its_own_path_and_the_client_but_no_credential() {
    let host = shared_host();
    let client = host.client();
    let site = site(&host, "site-2", json!({})).await;
    let sent = request(&client, Method::PUT, &site, "/head?a=%2F&b=c//..")
        .header("cookie", "gristmill-console=secret")
        .header("x-forwarded-for", "192.0.2.9")
        .header("x-own", "1")
        .body("four")
        .send();
    let seen: Value = sent.await.unwrap().json().await.unwrap();
    assert_eq!(seen["target"], "/head?a=%2F&b=c//..");
    assert_eq!(seen["method"], "PUT");
    assert_eq!(seen["authority"], host.address());
    let header = |name: &str| {
        let all = seen["headers"].as_array().unwrap();
        all.iter().find(|header| header[0] == name).map(|header| header[1].clone())
    };
    assert_eq!(header("x-own"), Some("1".into()));
    assert_eq!(header("x-forwarded-for"), Some("127.0.0.1".into()));
    assert_eq!(header("x-forwarded-prefix"), Some(format!("/http/{site}").into()));
    for withheld in ["authorization", "cookie"] {
        assert_eq!(header(withheld), None, "{withheld}");
    }
}

/// A handler's path may have anything, which a router would change.
#[tokio::test]
async fn the_path_arrives_byte_for_byte() {
    let host = shared_host();
    let site = site(&host, "site-3", json!({})).await;
    for path in ["//a//b/", "/a/../b", "/%2e%2e/%2F;p=1", "/openai/v1/models", "/run"] {
        let mut connection = TcpStream::connect(host.address()).await.unwrap();
        let head = format!(
            "GET /http/{site}{path} HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {}\r\nconnection: close\r\n\r\n",
            host.admin_key()
        );
        connection.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains("no such path"), "{path}: {answer}");
    }
    let redirect = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    let answer = redirect.build().unwrap().get(format!("{}/http/{site}?a=1", host.url()));
    let answer = answer.bearer_auth(host.admin_key()).send().await.unwrap();
    assert_eq!(answer.status(), 308);
    assert_eq!(answer.headers()["location"], format!("/http/{site}/?a=1"));
}

#[tokio::test]
async fn bodies_stream_and_an_answer_that_broke_off_is_no_whole_one() {
    let host = shared_host();
    let client = host.client();
    let site = site(&host, "site-4", json!({})).await;
    let large = vec![b'x'; 20 << 20];
    let echo = request(&client, Method::POST, &site, "/echo").body(large.clone());
    assert!(echo.send().await.unwrap().bytes().await.unwrap() == large);
    let mut answer = get(&client, &site, "/stream?count=3&ms=100").send().await.unwrap();
    assert_eq!(answer.chunk().await.unwrap().unwrap(), "000\n");
    assert_eq!(answer.text().await.unwrap(), "001\n002\n");
    for path in ["/panic-later", "/unfinished"] {
        // The connection may break before the head is sent.
        if let Ok(answer) = get(&client, &site, path).send().await {
            assert_eq!(answer.status(), 200, "{path}");
            assert!(answer.bytes().await.is_err(), "{path}");
        }
    }
}

#[tokio::test]
async fn a_request_without_an_answer_is_refused_with_the_reason() {
    let host = shared_host();
    let client = host.client();
    let limits = json!({ "memoryMib": 64, "executionTimeoutMs": 5_000 });
    let site = site(&host, "site-5", limits).await;
    let cases = [
        ("/panic", 500, "handler_failed", "as asked"),
        ("/alloc?mib=80", 500, "handler_failed", "memory limit of 64 MiB exceeded"),
        ("/fail", 502, "invalid_answer", "no answer"),
        ("/status?code=103", 502, "invalid_answer", "103"),
        ("/spin", 504, "handler_timed_out", "executionTimeoutMs"),
        ("/sleep", 504, "handler_timed_out", "executionTimeoutMs"),
    ];
    let answers = cases.map(|(path, ..)| get(&client, &site, path).send());
    let answers = futures::future::join_all(answers).await;
    for ((path, status, code, part), answer) in cases.into_iter().zip(answers) {
        let answer = answer.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{path}");
        assert_eq!(answer.headers()["x-gristmill-error"], code, "{path}");
        let body: Value = answer.json().await.unwrap();
        assert!(body["error"].as_str().unwrap().contains(part), "{path}: {body}");
        assert_eq!(body["code"], code, "{path}");
    }
}

#[tokio::test]
async fn workers_and_waits_are_bounded() {
    let host = shared_host();
    let client = host.client();
    let settings = json!({ "workersMax": 1, "http": { "queueTimeoutMs": 500 } });
    let site = site(&host, "site-6", settings).await;
    let sleeping = get(&client, &site, "/sleep-later").send().await.unwrap();
    client.workers_running(&site, 1).await;
    let refused = get(&client, &site, "/").send().await.unwrap();
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(refused.json::<Value>().await.unwrap()["error"], "no workers available");
    // The client leaves, and the handler ends.
    drop(sleeping);
    client.workers_running(&site, 0).await;
    assert_eq!(get(&client, &site, "/").send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn requests_that_run_and_wait_are_counted() {
    let host = shared_host();
    let client = host.client();
    let site = site(&host, "site-17", json!({ "workersMax": 1 })).await;
    let counts = async || {
        let health = client.health(&site).await;
        [&health["jobs"]["inProgress"], &health["jobs"]["inQueue"]].map(|n| n.as_u64().unwrap())
    };
    assert_eq!(counts().await, [0, 0]);
    let running = get(&client, &site, "/stream?count=999&ms=100").send().await.unwrap();
    let waiting = tokio::spawn(get(&client, &site, "/").send());
    eventually("a request to wait", async || (counts().await == [1, 1]).then_some(())).await;
    let metric = format!("gristmill_requests_waiting{{endpoint=\"{site}\"}}");
    assert_eq!(client.metric(&metric).await, 1);
    drop(running);
    assert_eq!(waiting.await.unwrap().unwrap().status(), 200);
    eventually("no request to be left", async || (counts().await == [0, 0]).then_some(())).await;
}

#[tokio::test]
async fn a_body_beyond_the_endpoints_limit_is_refused() {
    let host = shared_host();
    let client = host.client();
    let site = site(&host, "site-7", json!({ "http": { "maxRequestMib": 1 } })).await;
    let post = |bytes: usize| {
        request(&client, Method::POST, &site, "/echo").body(vec![b'x'; bytes]).send()
    };
    assert_eq!(post(1 << 20).await.unwrap().bytes().await.unwrap().len(), 1 << 20);
    let refused = post((1 << 20) + 1).await.unwrap();
    assert_eq!(refused.status(), 413);
    assert!(refused.text().await.unwrap().contains("1048576"));
    // Without a length the end is seen late.
    let pieces = (0..40).map(|_| Ok::<_, std::io::Error>(vec![b'x'; 64 << 10]));
    let body = reqwest::Body::wrap_stream(futures::stream::iter(pieces));
    let answer = request(&client, Method::POST, &site, "/echo").body(body).send().await;
    let is_whole = match answer {
        Ok(answer) if answer.status() == 200 => answer.bytes().await.is_ok(),
        Ok(_) | Err(_) => false,
    };
    assert!(!is_whole);
}

#[tokio::test]
async fn each_type_of_endpoint_has_its_own_calls() {
    let host = shared_host();
    let client = host.client();
    let site = site(&host, "site-8", json!({})).await;
    let refused = client.run(&site, json!({})).await.refused(400);
    assert_eq!(refused, "not allowed for QB API");
    let echo = host.deploy(&guests::echo(), "no-site", json!({})).await;
    let answer = get(&client, &echo, "/").send().await.unwrap();
    assert_eq!(answer.status(), 404);
    assert!(answer.text().await.unwrap().contains("has the type `QUEUE`"));
    let change = json!({ "type": "LOAD_BALANCER" });
    let refused = client.patch(&format!("/v1/endpoints/{echo}"), &change).await.refused(400);
    assert!(refused.contains("cannot be changed"), "{refused}");
    // The component decides too.
    let template = client.get(&format!("/v1/endpoints/{site}")).await.ok()["templateId"].clone();
    let queue = json!({ "templateId": template });
    let refused = client.post("/v1/endpoints", &queue).await.refused(400);
    assert!(refused.contains("answers HTTP requests and handles no jobs"), "{refused}");
    // A push may move the template's image to a handler of the other kind. Then other settings can
    // still be changed, and requests have the reason.
    let bytes = std::fs::read(guests::http_playground()).unwrap();
    client.upload("moved:latest", bytes).await.ok();
    let settings = json!({ "type": "LOAD_BALANCER", "http": { "queueTimeoutMs": 1_000 } });
    let moved = client.deploy_image("moved:latest", "site-moved", settings).await;
    client.upload("moved:latest", std::fs::read(guests::echo()).unwrap()).await.ok();
    client.patch(&format!("/v1/endpoints/{moved}"), &json!({ "workersMax": 2 })).await.ok();
    let answer = get(&client, &moved, "/").send().await.unwrap();
    assert_eq!(answer.status(), 503);
    assert!(answer.text().await.unwrap().contains("handles no HTTP requests, only jobs"));
}

#[tokio::test]
async fn the_reason_of_a_failure_is_in_the_log() {
    let host = shared_host();
    let client = host.client();
    let site = site(&host, "site-12", json!({})).await;
    for (path, reason) in [("/panic-later", "as asked"), ("/status?code=103", "status 103")] {
        let _ = get(&client, &site, path).send().await;
        eventually("the log has the reason", async || {
            let lines = client.get(&format!("/v1/endpoints/{site}/logs")).await.text;
            lines.contains(reason).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_key_is_needed_and_pages_get_nothing() {
    let host = shared_host();
    let client = host.client();
    let site = site(&host, "site-9", json!({})).await;
    let without = client.with_authorization(None);
    assert_eq!(get(&without, &site, "/").send().await.unwrap().status(), 401);
    let reader = client.with_scopes(&["read"]).await;
    assert_eq!(get(&reader, &site, "/").send().await.unwrap().status(), 401);
    let other = host.client_of("somebody").await;
    assert_eq!(get(&other, &site, "/").send().await.unwrap().status(), 404);
    for (name, value) in [("sec-fetch-dest", "script"), ("sec-fetch-mode", "navigate")] {
        let refused = get(&client, &site, "/").header(name, value).send().await.unwrap();
        assert_eq!(refused.status(), 403, "{name}");
        assert_eq!(refused.headers()["x-gristmill-error"], "forbidden");
    }
    let answer = get(&client, &site, "/").send().await.unwrap();
    let policy = answer.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.starts_with("sandbox; default-src 'none'"), "{policy}");
    assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
    assert_eq!(answer.headers()["content-disposition"], "attachment");
}

#[tokio::test]
async fn methods_and_upgrades_that_no_handler_answers_are_refused() {
    let host = shared_host();
    let client = host.client();
    let site = site(&host, "site-10", json!({})).await;
    let trace = request(&client, Method::TRACE, &site, "/").send().await.unwrap();
    assert_eq!(trace.status(), 405);
    let upgrade = get(&client, &site, "/").header("upgrade", "websocket");
    let upgrade = upgrade.header("connection", "upgrade").send().await.unwrap();
    assert_eq!(upgrade.status(), 501);
    for method in [Method::OPTIONS, Method::DELETE, Method::PATCH] {
        let answer = request(&client, method.clone(), &site, "/head").send().await.unwrap();
        assert_eq!(answer.json::<Value>().await.unwrap()["method"], method.as_str());
    }
}

#[tokio::test]
async fn a_deleted_endpoint_ends_its_requests() {
    let host = shared_host();
    let client = host.client();
    let site = site(&host, "site-16", json!({})).await;
    let mut answer = get(&client, &site, "/stream?count=999&ms=100").send().await.unwrap();
    assert_eq!(answer.chunk().await.unwrap().unwrap(), "000\n");
    client.delete(&format!("/v1/endpoints/{site}")).await;
    let rest = tokio::time::timeout(PATIENCE, answer.text()).await.expect("the answer ends");
    assert!(rest.is_err(), "{rest:?}");
}

#[tokio::test]
async fn a_request_sees_the_newest_release() {
    let host = shared_host();
    let client = host.client();
    let site = site(&host, "site-11", json!({ "reuse": { "maxJobs": 1_000 } })).await;
    let count = async || get(&client, &site, "/count").send().await.unwrap().text().await.unwrap();
    assert_eq!(count().await, "1\n");
    // An answer arrives a moment before its instance is idle.
    eventually("an instance answers again", async || (count().await != "1\n").then_some(())).await;
    let change = json!({ "env": { "A": "1" } });
    client.patch(&format!("/v1/endpoints/{site}"), &change).await.ok();
    assert_eq!(count().await, "1\n", "another instance");
    let runs = format!("gristmill_job_run_seconds_count{{endpoint=\"{site}\"}}");
    eventually("the attempts are counted", async || {
        (client.metric(&runs).await >= 3).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_public_endpoint_needs_no_key_and_gives_none_away() {
    let host = shared_host();
    let client = host.client();
    let site = site(&host, "site-15", json!({ "http": { "public": true } })).await;
    let seen = async |authorization: Option<&str>| {
        let visitor = client.with_authorization(authorization);
        let answer = get(&visitor, &site, "/head").send().await.unwrap();
        let seen: Value = answer.json().await.unwrap();
        let all = seen["headers"].as_array().unwrap();
        let found = all.iter().find(|header| header[0] == "authorization");
        found.map(|header| header[1].as_str().unwrap().to_owned())
    };
    assert_eq!(seen(None).await, None);
    assert_eq!(seen(Some("Bearer of-the-handler")).await.as_deref(), Some("Bearer of-the-handler"));
    assert_eq!(seen(Some(&format!("Bearer {}", host.admin_key()))).await, None);
    // A slow body is a visitor's, too.
    let without = client.with_authorization(None);
    let answer = request(&without, Method::POST, &site, "/echo").body("four").send().await;
    assert_eq!(answer.unwrap().text().await.unwrap(), "four");
    client
        .patch(&format!("/v1/endpoints/{site}"), &json!({ "http": { "public": false } }))
        .await
        .ok();
    assert_eq!(get(&without, &site, "/").send().await.unwrap().status(), 401);
}

#[tokio::test]
async fn visitors_are_limited_by_their_address_and_keys_are_not() {
    let host = TestHost::start_configured("[rate-limits.visitors]\ncalls-per-10s = 10\n");
    let client = host.client();
    let settings = json!({ "type": "LOAD_BALANCER", "http": { "public": true } });
    let site = host.deploy(&guests::http_playground(), "site", settings).await;
    let visitor = client.with_authorization(None);
    let refused = eventually("a request to be refused", async || {
        let answer = get(&visitor, &site, "/").send().await.unwrap();
        (answer.status() == 429).then_some(answer)
    })
    .await;
    assert_eq!(refused.headers()["x-gristmill-error"], "rate_limited");
    assert!(refused.text().await.unwrap().contains("too many requests from this address"));
    // Guesses of keys count apart.
    assert_eq!(visitor.get("/v1/templates").await.status, 401);
}

#[tokio::test]
async fn pages_of_permitted_origins_may_ask() {
    let host = shared_host();
    let client = host.client();
    let cors = json!({ "origins": ["https://a.example"], "exposeHeaders": ["x-total"] });
    let site = site(&host, "site-13", json!({ "http": { "cors": cors } })).await;
    let without = client.with_authorization(None);
    let asks = request(&without, Method::OPTIONS, &site, "/x")
        .header("origin", "https://a.example")
        .header("access-control-request-method", "PUT")
        .header("access-control-request-headers", "authorization");
    let permitted = asks.send().await.unwrap();
    assert_eq!(permitted.status(), 200);
    assert_eq!(permitted.headers()["access-control-allow-methods"], "PUT");
    for (origin, expected) in [("https://a.example", true), ("https://b.example", false)] {
        for (caller, status) in [(&client, 200), (&without, 401)] {
            let answer = get(caller, &site, "/").header("origin", origin).send().await.unwrap();
            assert_eq!(answer.status(), status);
            let permits = answer.headers().contains_key("access-control-allow-origin");
            assert_eq!(permits, expected, "{origin} {status}");
        }
    }
}

#[tokio::test]
async fn a_client_may_ask_for_the_instance_that_has_answered_it() {
    let host = shared_host();
    let client = host.client();
    let settings = json!({
        "workersMax": 4,
        "reuse": { "maxJobs": 1_000 },
        "http": { "queueTimeoutMs": 1_000 },
    });
    let site = site(&host, "site-affinity", settings).await;
    let name = |answer: &reqwest::Response| {
        answer.headers()["x-gristmill-instance"].to_str().unwrap().to_owned()
    };
    let ask = async |path: &str, wanted: &str| {
        get(&client, &site, path).header("x-gristmill-instance", wanted).send().await.unwrap()
    };
    // Two at one time are in two instances.
    let both = tokio::join!(ask("/stream?count=2&ms=300", ""), ask("/stream?count=2&ms=300", ""));
    let names = [name(&both.0), name(&both.1)];
    assert_ne!(names[0], names[1]);
    both.0.bytes().await.unwrap();
    both.1.bytes().await.unwrap();
    for count in 2..6 {
        for one in &names {
            let answer = ask("/count", one).await;
            assert_eq!(name(&answer), *one);
            assert_eq!(answer.text().await.unwrap(), format!("{count}\n"));
        }
    }
    let strict = format!("strict {}", names[0]);
    assert_eq!(name(&ask("/count", &strict).await), names[0]);
    let busy = ask("/sleep-later", &strict).await;
    assert_eq!(ask("/count", &strict).await.status(), 503);
    assert_ne!(name(&ask("/count", &names[0]).await), names[0]);
    // A request that is left ends its instance.
    drop(busy);
    eventually("the end of the instance", async || {
        (ask("/count", &strict).await.status() == 404).then_some(())
    })
    .await;
    assert_eq!(ask("/count", "strict nonsense").await.status(), 404);
    assert_eq!(ask("/count", "nonsense").await.status(), 200);
}
