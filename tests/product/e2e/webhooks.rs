//! A job's webhook is called when it has ended, signed, up to three times, and without delaying
//! anything else.

use gristmill_core::webhook::signature::WebhookSecret;
use gristmill_tests::{Client, ReceivedCall, Receiver, TestHost, eventually, guests, machine_name};
use serde_json::{Value, json};

/// The wait between two attempts, in milliseconds.
const RETRY_INTERVAL_MS: u64 = 10_000;

/// A host that may call these receivers, with a clock that the test moves.
fn host(receivers: &[&Receiver]) -> TestHost {
    let allow = |receiver: &&Receiver| ["--webhook-allow".to_owned(), receiver.host()];
    let arguments: Vec<_> = receivers.iter().flat_map(allow).collect();
    TestHost::start_with_clock(&arguments)
}

/// Deploys the playground with a known secret.
async fn deploy(host: &TestHost, name: &str) -> WebhookSecret {
    host.deploy(&guests::playground(), name, json!({})).await;
    rotate(&host.client(), name).await
}

async fn rotate(client: &Client, endpoint: &str) -> WebhookSecret {
    let path = format!("/v1/endpoints/{endpoint}/rotate-webhook-secret");
    let document = client.post_empty(&path).await.ok();
    document["webhookSecret"].as_str().unwrap().to_owned().try_into().unwrap()
}

async fn submit(client: &Client, endpoint: &str, input: Value, webhook: &str) -> String {
    client.submit_body(endpoint, &json!({ "input": input, "webhook": webhook })).await
}

/// The endpoint's newest delivery, once it is in this state.
async fn delivery(client: &Client, endpoint: &str, state: &str) -> Value {
    eventually(&format!("the delivery to be {state}"), async || {
        let log = client.get(&format!("/v1/endpoints/{endpoint}/deliveries")).await.ok();
        (log[0]["state"] == state).then(|| log[0].clone())
    })
    .await
}

/// The endpoint's newest delivery, once this many attempts have been recorded.
async fn attempted(client: &Client, endpoint: &str, attempts: u32) -> Value {
    eventually(&format!("{attempts} attempts"), async || {
        let log = client.get(&format!("/v1/endpoints/{endpoint}/deliveries")).await.ok();
        (log[0]["attempts"] == attempts).then(|| log[0].clone())
    })
    .await
}

/// Whether the call has a signature with this secret.
fn is_signed(call: &ReceivedCall, secret: &WebhookSecret) -> bool {
    let timestamp = call.header("webhook-timestamp").parse().unwrap();
    let expected = secret.sign(call.header("webhook-id"), timestamp, &call.body);
    call.header("webhook-signature").split(' ').any(|signature| signature == expected)
}

#[tokio::test]
async fn a_webhook_is_called_once_with_the_document_and_signatures() {
    let receiver = Receiver::start(&["204 No Content"]).await;
    let host = host(&[&receiver]);
    let client = host.client();
    let old = deploy(&host, "hooked").await;
    let new = rotate(&client, "hooked").await;
    let shown = client.get("/v1/endpoints/hooked").await.ok();
    assert_eq!(shown.get("webhookSecret"), None);
    let url = receiver.url("/done?job=1");
    let input = r#"{"op":"echo", "value":9007199254740993}"#;
    let body = format!(r#"{{"input":{input},"webhook":"{url}"}}"#);
    let answer = client.post_text(&client.path("hooked", "run"), body).await.ok();
    let job = answer["id"].as_str().unwrap();
    let call = receiver.until(1).await.remove(0);
    assert_eq!(call.line, "POST /done?job=1");
    assert_eq!(call.header("content-type"), "application/json");
    assert!(call.header("user-agent").starts_with("gristmill/"));
    let signatures: Vec<_> = call.header("webhook-signature").split(' ').collect();
    // The endpoint had a secret before `old` too.
    assert!(signatures.len() == 3 && is_signed(&call, &old) && is_signed(&call, &new), "{call:?}");
    let text = String::from_utf8(call.body.clone()).unwrap();
    assert!(text.contains(&format!(r#""input":{input},"webhook":"{url}"}}"#)), "{text}");
    // Without the two fields it is the status document, byte for byte.
    let status = client.status("hooked", job).await.text;
    assert!(text.starts_with(status.trim_end_matches('}')), "{text}\n{status}");
    let log = delivery(&client, "hooked", "DELIVERED").await;
    assert_eq!(
        (&log["jobId"], &log["lastStatus"], &log["attempts"]),
        (&json!(job), &json!(204), &json!(1))
    );
    assert_eq!(log["id"], call.header("webhook-id"));
    // Every kind of end causes a call.
    for (input, status) in
        [(json!({ "op": "fail" }), "FAILED"), (json!({ "op": "sleep_forever" }), "CANCELLED")]
    {
        let count = receiver.calls().len();
        let job = submit(&client, "hooked", input, &url).await;
        if status == "CANCELLED" {
            client.until("hooked", &job, "IN_PROGRESS").await;
            client.cancel("hooked", &job).await.ok();
        }
        let call = receiver.until(count + 1).await.remove(count);
        assert_eq!((&call.json()["id"], &call.json()["status"]), (&json!(job), &json!(status)));
    }
    assert_eq!(receiver.calls().len(), 3);
}

#[tokio::test]
async fn a_receiver_that_recovers_gets_the_same_call_again() {
    let answers = ["500 Internal Server Error", "302 Found\r\nlocation: /elsewhere", "200 OK"];
    let receiver = Receiver::start(&answers).await;
    let host = host(&[&receiver]);
    let client = host.client();
    let secret = deploy(&host, "again").await;
    submit(&client, "again", json!({ "op": "echo" }), &receiver.url("/")).await;
    for attempts in 1..3 {
        attempted(&client, "again", attempts).await;
        host.advance(RETRY_INTERVAL_MS);
    }
    let calls = receiver.until(3).await;
    for call in &calls {
        assert_eq!(call.line, "POST /", "no redirect is followed");
        assert_eq!(call.body, calls[0].body);
        assert_eq!(call.header("webhook-id"), calls[0].header("webhook-id"));
        assert!(is_signed(call, &secret));
    }
    let log = delivery(&client, "again", "DELIVERED").await;
    assert_eq!((&log["attempts"], &log["lastStatus"]), (&json!(3), &json!(200)));
    assert_eq!(receiver.calls().len(), 3);
}

#[tokio::test]
async fn an_address_inside_is_not_connected_to_and_harms_no_job() {
    let receiver = Receiver::start(&["200 OK"]).await;
    let host = host(&[]);
    let client = host.client();
    deploy(&host, "inside").await;
    let port = receiver.host().rsplit_once(':').unwrap().1.to_owned();
    for name in ["127.0.0.1", "[::ffff:127.0.0.1]", "2130706433", "localhost", "a.localhost"] {
        let body = json!({ "input": {}, "webhook": format!("http://{name}:{port}/") });
        for operation in ["run", "runsync"] {
            let said = client.post(&client.path("inside", operation), &body).await.refused(400);
            assert!(said.contains("`webhook`") && said.contains("not public"), "{said}");
            assert!(said.contains("--webhook-allow") && said.contains(&port), "{said}");
        }
    }
    // The addresses of another name are known only when the webhook is sent.
    let name = machine_name();
    let url = format!("http://{name}:{port}/");
    let job = submit(&client, "inside", json!({ "op": "echo" }), &url).await;
    client.until("inside", &job, "COMPLETED").await;
    let log = delivery(&client, "inside", "GIVEN_UP").await;
    assert_eq!((&log["jobId"], &log["attempts"]), (&json!(job), &json!(1)), "{log}");
    let said = log["lastError"].as_str().unwrap();
    assert!(said.contains(&format!("`serve --webhook-allow {name}:{port}`")), "{log}");
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn a_dead_receiver_does_not_delay_another() {
    let (dead, alive) = (Receiver::start(&[""]).await, Receiver::start(&["200 OK"]).await);
    let host = host(&[&dead, &alive]);
    let client = host.client();
    deploy(&host, "crowd").await;
    for _ in 0..8 {
        submit(&client, "crowd", json!({ "op": "echo" }), &dead.url("/")).await;
    }
    dead.until(4).await;
    submit(&client, "crowd", json!({ "op": "echo" }), &alive.url("/")).await;
    alive.until(1).await;
    // A call of the dead receiver ends after ten seconds, and the next one begins then: none has
    // ended yet.
    assert_eq!(dead.connections(), 4, "at most four at one time");
}

#[tokio::test]
async fn a_job_deleted_before_its_end_calls_no_webhook() {
    let receiver = Receiver::start(&["200 OK"]).await;
    let host = host(&[&receiver]);
    let client = host.client();
    host.deploy(&guests::playground(), "silent", json!({ "workersMax": 0 })).await;
    submit(&client, "silent", json!({ "op": "echo" }), &receiver.url("/purged")).await;
    client.purge("silent").await.ok();
    let job = submit(&client, "silent", json!({ "op": "echo" }), &receiver.url("/told")).await;
    client.cancel("silent", &job).await.ok();
    let calls = receiver.until(1).await;
    assert_eq!(calls[0].line, "POST /told");
    let log = client.get("/v1/endpoints/silent/deliveries").await.ok();
    assert_eq!(log.as_array().unwrap().len(), 1, "{log}");
}

#[tokio::test]
async fn deliveries_are_listed_page_by_page() {
    let host = host(&[]);
    let client = host.client();
    deploy(&host, "pages").await;
    for n in 0..3 {
        let url = format!("http://hooks.invalid/{n}");
        let job = submit(&client, "pages", json!({ "op": "echo" }), &url).await;
        client.until("pages", &job, "COMPLETED").await;
    }
    let path = "/v1/endpoints/pages/deliveries";
    let urls = |list: &Value| -> Vec<String> {
        let url = |delivery: &Value| delivery["url"].as_str().unwrap().to_owned();
        list.as_array().unwrap().iter().map(url).collect()
    };
    let all = client.get(path).await.ok();
    assert_eq!(urls(&all), [2, 1, 0].map(|n| format!("http://hooks.invalid/{n}")));
    let first = client.get(&format!("{path}?limit=2")).await;
    let next = first.next_page().unwrap();
    assert_eq!(urls(&first.ok()), urls(&all)[..2]);
    let second = client.get(&next).await;
    assert!(!second.headers.contains_key("link"), "{second:?}");
    assert_eq!(urls(&second.ok()), urls(&all)[2..]);
    client.get(&format!("{path}?limit=0")).await.refused(400);
}
