//! The webhook of a job.

use gristmill_tests::{ReceivedCall, Receiver, TestHost, eventually, guests};
use serde_json::{Value, json};

use crate::support::{DAY, Endpoint, SECOND, echo, failing, forever, id};

/// An endpoint on a separate host that may call this receiver, and whose clock the test moves.
async fn endpoint_calling(receiver: &Receiver, name: &str) -> Endpoint<Box<TestHost>> {
    let arguments = ["--webhook-allow", &*receiver.host().leak()];
    let host = Box::new(TestHost::start_with_clock(&arguments));
    let id = host.deploy(&guests::playground(), name, json!({ "workersMax": 1 })).await;
    Endpoint { client: host.client(), id, host }
}

/// Submits a job with a webhook; returns its id.
async fn submit(endpoint: &Endpoint<Box<TestHost>>, input: Value, webhook: &str) -> String {
    id(&endpoint.post("run", &json!({ "input": input, "webhook": webhook })).await.ok())
}

/// Waits until this many attempts to call `path` are recorded; returns the delivery.
async fn recorded(endpoint: &Endpoint<Box<TestHost>>, path: &str, attempts: u64) -> Value {
    let log = format!("/v1/endpoints/{}/deliveries", endpoint.id);
    eventually(&format!("{attempts} attempts on record"), async || {
        let log = endpoint.client.get(&log).await.ok();
        let is_it = |delivery: &&Value| {
            delivery["url"].as_str().unwrap().ends_with(path) && delivery["attempts"] == attempts
        };
        log.as_array().unwrap().iter().find(is_it).cloned()
    })
    .await
}

fn calls_of(calls: &[ReceivedCall], path: &str) -> usize {
    calls.iter().filter(|call| call.line == format!("POST {path}")).count()
}

/// Makes a job call `path`, and returns all calls that the receiver has had by then. The host
/// begins with the deliveries that have been due longest, so earlier ones have been sent too.
async fn calls_until_marker(
    endpoint: &Endpoint<Box<TestHost>>,
    receiver: &Receiver,
    path: &str,
) -> Vec<ReceivedCall> {
    submit(endpoint, echo(), &receiver.url(path)).await;
    eventually(&format!("the call of {path}"), async || {
        let calls = receiver.calls();
        (calls_of(&calls, path) > 0).then_some(calls)
    })
    .await
}

/// When a job with a webhook completes, its URL is called; a job without one causes no call.
#[tokio::test]
async fn job_completion_calls_the_webhook() {
    let receiver = Receiver::start(&["200 OK"]).await;
    let endpoint = endpoint_calling(&receiver, "events-completion").await;
    endpoint.finish(echo()).await;
    let job = submit(&endpoint, echo(), &receiver.url("/done?job=1")).await;
    let calls = receiver.until(1).await;
    assert_eq!(calls[0].line, "POST /done?job=1");
    assert_eq!(calls[0].json()["id"], json!(job));
    // The same with /runsync.
    let body = json!({ "input": echo(), "webhook": receiver.url("/sync") });
    endpoint.post("runsync", &body).await.ok();
    assert_eq!(calls_of(&receiver.until(2).await, "/sync"), 1);
}

/// A receiver that answers 200 is not called again.
#[tokio::test]
async fn answer_200_is_the_end() {
    let receiver = Receiver::start(&["200 OK"]).await;
    let endpoint = endpoint_calling(&receiver, "events-once").await;
    submit(&endpoint, echo(), &receiver.url("/first")).await;
    let log = recorded(&endpoint, "/first", 1).await;
    assert_eq!(log["state"], "DELIVERED", "{log}");
    endpoint.host.advance(DAY);
    let calls = calls_until_marker(&endpoint, &receiver, "/second").await;
    assert_eq!(calls_of(&calls, "/first"), 1);
}

/// A failed call is repeated up to 2 times: exactly 10 and 20 seconds after the first one, and
/// never a fourth time.
#[tokio::test]
async fn two_more_attempts_10_s_apart() {
    let receiver = Receiver::start(&["500 Internal Server Error"]).await;
    let endpoint = endpoint_calling(&receiver, "events-again").await;
    submit(&endpoint, echo(), &receiver.url("/down")).await;
    let begun = receiver.until(1).await[0].header("webhook-timestamp").parse::<u64>().unwrap();
    for attempts in 1..3 {
        recorded(&endpoint, "/down", attempts).await;
        endpoint.host.advance(10 * SECOND - 1);
        let marker = format!("/early-{attempts}");
        let calls = calls_until_marker(&endpoint, &receiver, &marker).await;
        assert_eq!(calls_of(&calls, "/down") as u64, attempts);
        endpoint.host.advance(1);
    }
    recorded(&endpoint, "/down", 3).await;
    let calls = receiver.calls();
    let times = calls.iter().filter(|call| call.line == "POST /down");
    let times: Vec<_> = times
        .map(|call| call.header("webhook-timestamp").parse::<u64>().unwrap() - begun)
        .collect();
    assert_eq!(times, [0, 10, 20]);
    endpoint.host.advance(DAY);
    let calls = calls_until_marker(&endpoint, &receiver, "/late").await;
    assert_eq!(calls_of(&calls, "/down"), 3);
}

/// The body is the status document with `input` and `webhook`, the same bytes on each attempt, for
/// each kind of end; any 2xx counts as received; the headers are correct; and a restart of the host
/// loses nothing.
#[tokio::test]
async fn decided_webhook() {
    let answers = ["503 Service Unavailable", "204 No Content", "299 Fine"];
    let receiver = Receiver::start(&answers).await;
    let mut endpoint = endpoint_calling(&receiver, "events-decided").await;
    let url = receiver.url("/hook");
    let job = submit(&endpoint, echo(), &url).await;
    recorded(&endpoint, "/hook", 1).await;
    let status = endpoint.status(&job).await.ok();

    endpoint.host.kill9();
    endpoint.host.start_again();
    endpoint.client = endpoint.host.client();
    endpoint.host.advance(10 * SECOND);
    let calls = receiver.until(2).await;
    assert_eq!(calls[0].body, calls[1].body);
    assert_eq!(calls[0].header("webhook-id"), calls[1].header("webhook-id"));
    let mut expected = status;
    expected["input"] = echo();
    expected["webhook"] = json!(url);
    assert_eq!(calls[1].json(), expected);
    for header in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        assert!(!calls[1].header(header).is_empty(), "{header}");
    }
    assert!(calls[1].header("webhook-signature").starts_with("v1,"), "{:?}", calls[1]);
    let log = recorded(&endpoint, "/hook", 2).await;
    assert_eq!((&log["state"], &log["lastStatus"]), (&json!("DELIVERED"), &json!(204)));

    submit(&endpoint, failing(), &url).await;
    assert_eq!(receiver.until(3).await[2].json()["status"], "FAILED");
    let timing_out = json!({
        "input": forever(), "webhook": url, "policy": { "executionTimeout": 5_000 },
    });
    endpoint.post("run", &timing_out).await.ok();
    assert_eq!(receiver.until(4).await[3].json()["status"], "TIMED_OUT");
    let cancelled = submit(&endpoint, forever(), &url).await;
    endpoint.cancel(&cancelled).await.ok();
    let call = receiver.until(5).await.remove(4);
    assert_eq!(
        (call.json()["id"].as_str(), &call.json()["status"]),
        (Some(&*cancelled), &json!("CANCELLED"))
    );
}

/// A job whose ttl passes calls no webhook, whether it waited or ran.
#[tokio::test]
async fn ttl_calls_no_webhook() {
    let receiver = Receiver::start(&["200 OK"]).await;
    let endpoint = endpoint_calling(&receiver, "events-ttl").await;
    let ttl = json!({ "ttl": 10_000 });
    let mut jobs = vec![];
    for _ in 0..2 {
        let body = json!({ "input": forever(), "webhook": receiver.url("/ttl"), "policy": ttl });
        jobs.push(id(&endpoint.post("run", &body).await.ok()));
    }
    endpoint.until(&jobs[0], "IN_PROGRESS").await;
    endpoint.host.advance(10_000);
    let calls = calls_until_marker(&endpoint, &receiver, "/after").await;
    assert_eq!((calls.len(), calls_of(&calls, "/ttl")), (1, 0));
}
