//! The position of a job in a distributed trace: accepted with the submission, kept with the job,
//! visible to the handler, and added to its requests and its webhook where the endpoint allows it.

use gristmill_tests::{
    Client, PATIENCE, ReceivedCall, Receiver, TestHost, eventually, guests, shared_host,
};
use reqwest::Method;
use serde_json::{Value, json};

/// Not sampled: the host passes it on unchanged.
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

async fn submit(client: &Client, endpoint: &str, route: &str, body: &Value, header: &str) -> Value {
    submit_with(client, &client.path(endpoint, route), body, &[("traceparent", header)]).await
}

/// The name and the value of a header.
type Header<'a> = (&'a str, &'a str);

/// Submits with several headers.
async fn submit_with(client: &Client, path: &str, body: &Value, headers: &[Header<'_>]) -> Value {
    let mut request = client.request(Method::POST, path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    client.send(request.json(body)).await.ok()
}

async fn trace_id(client: &Client, endpoint: &str, job: &str) -> Value {
    let timeline = client.get(&client.path(endpoint, &format!("timeline/{job}"))).await.ok();
    timeline.get("traceId").cloned().unwrap_or(Value::Null)
}

/// The header, if the call has one.
fn traceparent(call: &ReceivedCall) -> Option<&str> {
    header(call, "traceparent")
}

fn tracestate(call: &ReceivedCall) -> Option<&str> {
    header(call, "tracestate")
}

fn header<'a>(call: &'a ReceivedCall, wanted: &str) -> Option<&'a str> {
    let found = call.headers.iter().find(|(name, _)| name == wanted);
    found.map(|(_, value)| value.as_str())
}

#[tokio::test]
async fn a_handler_sees_the_trace_of_its_submission() {
    let host = shared_host();
    let client = &host.client;
    let endpoint = host.deploy(&guests::playground(), "traced", json!({})).await;
    let input = json!({ "op": "trace" });
    let body = json!({ "input": input });
    let done = submit(client, &endpoint, "runsync", &body, PARENT).await;
    assert_eq!(done["output"], json!({ "traceParent": PARENT }), "{done}");
    assert_eq!(trace_id(client, &endpoint, done["id"].as_str().unwrap()).await, TRACE);
    let queued = submit(client, &endpoint, "run", &body, PARENT).await;
    let done = client.finished(&endpoint, queued["id"].as_str().unwrap()).await;
    assert_eq!(done["output"], json!({ "traceParent": PARENT }), "{done}");
    let done = submit(client, &endpoint, "openai/v1/chat", &input, PARENT).await;
    assert_eq!(done, json!({ "traceParent": PARENT }));

    // The standard wants that a header which is none is ignored.
    for wrong in ["", "nonsense", &PARENT.replace("0af7", "0AF7"), &PARENT.replace("00-", "ff-")] {
        let done = submit(client, &endpoint, "runsync", &body, wrong).await;
        assert_eq!(done["output"], json!({ "traceParent": null }), "{wrong}: {done}");
    }
    let twice = client.request(Method::POST, &client.path(&endpoint, "runsync"));
    let twice = twice.header("traceparent", PARENT).header("traceparent", PARENT).json(&body);
    assert_eq!(client.send(twice).await.ok()["output"], json!({ "traceParent": null }));
    let done = client.finish(&endpoint, input).await;
    assert_eq!(done["output"], json!({ "traceParent": null }), "without a header: {done}");
    assert_eq!(trace_id(client, &endpoint, done["id"].as_str().unwrap()).await, Value::Null);
}

#[tokio::test]
async fn the_log_of_the_host_has_job_endpoint_and_trace_in_the_lines_of_handlers() {
    let host = TestHost::start();
    let client = host.client();
    let endpoint = host.deploy(&guests::playground(), "logged", json!({})).await;
    let body = json!({ "input": { "op": "log", "message": "a line of a traced job" } });
    let traced = submit(&client, &endpoint, "runsync", &body, PARENT).await;
    let input = json!({ "op": "log", "message": "a line of another job" });
    let other = client.finish(&endpoint, input).await;
    for (text, job, trace) in [
        ("a line of a traced job", &traced, json!(TRACE)),
        ("a line of another job", &other, Value::Null),
    ] {
        let line = eventually(text, async || {
            let log = host.log();
            let line = log.lines().find(|line| line.contains(text))?;
            serde_json::from_str::<Value>(line).ok()
        })
        .await;
        let fields = &line["fields"];
        assert_eq!((&line["target"], &fields["message"]), (&json!("handler"), &json!(text)));
        assert_eq!((&fields["job.id"], &fields["endpoint.id"]), (&job["id"], &json!(endpoint)));
        assert_eq!(fields.get("trace.id").unwrap_or(&Value::Null), &trace, "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_webhooks_carry_the_trace_only_where_the_endpoint_allows_it() {
    let receiver = Receiver::start(&["200 OK"]).await;
    let host = TestHost::start_with(&["--webhook-allow", &receiver.host()]);
    let client = host.client();
    let settings = json!({ "allowedHosts": [receiver.host()], "propagateTraces": true });
    let open = host.deploy(&guests::playground(), "open", settings.clone()).await;
    let wasi = host.deploy(&guests::fetch(), "wasi", settings).await;
    let shown = client.get("/v1/endpoints/open").await.ok();
    assert_eq!(shown["propagateTraces"], true, "{shown}");
    let settings = json!({ "allowedHosts": [receiver.host()] });
    let closed = host.deploy(&guests::playground(), "closed", settings).await;
    let input = json!({ "op": "fetch", "url": receiver.url("/asked") });
    let body = json!({ "input": input, "webhook": receiver.url("/hook") });
    for (calls, endpoint, expected) in [(2, &open, Some(PARENT)), (4, &closed, None)] {
        let done = submit(&client, endpoint, "runsync", &body, PARENT).await;
        assert_eq!(done["status"], "COMPLETED", "{done}");
        let received = receiver.until(calls).await;
        let received = &received[calls - 2..];
        assert_eq!(received[0].line, "GET /asked");
        assert_eq!(received[1].line, "POST /hook");
        for call in received {
            assert_eq!(traceparent(call), expected, "{call:?}");
        }
    }
    // The other interface for requests, and a header that the handler set.
    let body = json!({ "input": { "url": receiver.url("/wasi") } });
    submit(&client, &wasi, "runsync", &body, PARENT).await;
    let received = receiver.until(5).await;
    assert_eq!(traceparent(&received[4]), Some(PARENT), "{:?}", received[4]);
    // Without a trace there is no header.
    client.finish(&open, json!({ "op": "fetch", "url": receiver.url("/none") })).await;
    assert_eq!(traceparent(&receiver.until(6).await[5]), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_survives_the_death_of_the_host_and_a_retry() {
    let receiver = Receiver::start(&["200 OK"]).await;
    let mut host = TestHost::start_with(&["--webhook-allow", &receiver.host()]);
    let settings = json!({ "propagateTraces": true, "workersMax": 0 });
    let endpoint = host.deploy(&guests::playground(), "survivor", settings).await;
    let body = json!({
        "input": { "op": "fail", "message": "no luck" }, "webhook": receiver.url("/hook"),
    });
    let queued = submit(&host.client(), &endpoint, "run", &body, PARENT).await;
    let job = queued["id"].as_str().unwrap().to_owned();
    host.kill9();
    host.start_again_with(&["--webhook-allow", &receiver.host()]);
    let client = host.client();
    client.patch(&format!("/v1/endpoints/{endpoint}"), &json!({ "workersMax": 1 })).await.ok();
    client.until(&endpoint, &job, "FAILED").await;
    assert_eq!(traceparent(&receiver.until(1).await[0]), Some(PARENT));
    host.kill9();
    host.start_again_with(&["--webhook-allow", &receiver.host()]);
    let client = host.client();
    assert_eq!(trace_id(&client, &endpoint, &job).await, TRACE);
    client.retry(&endpoint, &job).await.ok();
    assert_eq!(traceparent(&receiver.until(2).await[1]), Some(PARENT));
    assert_eq!(trace_id(&client, &endpoint, &job).await, TRACE);
}

const STATE: &str = "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7";

#[tokio::test(flavor = "multi_thread")]
async fn a_tracestate_goes_wherever_its_traceparent_goes() {
    let receiver = Receiver::start(&["200 OK"]).await;
    let host = TestHost::start_with(&["--webhook-allow", &receiver.host()]);
    let client = host.client();
    let settings = json!({ "allowedHosts": [receiver.host()], "propagateTraces": true });
    let open = host.deploy(&guests::playground(), "open", settings.clone()).await;
    let wasi = host.deploy(&guests::fetch(), "wasi", settings).await;
    let closed = json!({ "allowedHosts": [receiver.host()] });
    let closed = host.deploy(&guests::playground(), "closed", closed).await;
    let both = [("traceparent", PARENT), ("tracestate", STATE)];
    let input = json!({ "op": "fetch", "url": receiver.url("/asked") });
    let body = json!({ "input": input, "webhook": receiver.url("/hook") });
    let mut calls = 0;
    // Every route that submits jobs.
    for (endpoint, route, expected) in
        [(&open, "runsync", Some(STATE)), (&open, "run", Some(STATE)), (&closed, "runsync", None)]
    {
        submit_with(&client, &client.path(endpoint, route), &body, &both).await;
        calls += 2;
        for call in &receiver.until(calls).await[calls - 2..] {
            assert_eq!(tracestate(call), expected, "{route}: {call:?}");
        }
    }
    submit_with(&client, &client.path(&open, "openai/v1/chat"), &input, &both).await;
    let body = json!({ "input": { "url": receiver.url("/wasi") } });
    submit_with(&client, &client.path(&wasi, "runsync"), &body, &both).await;
    calls += 2;
    for call in &receiver.until(calls).await[calls - 2..] {
        assert_eq!((traceparent(call), tracestate(call)), (Some(PARENT), Some(STATE)), "{call:?}");
    }

    let body = json!({ "input": input });
    let path = client.path(&open, "runsync");
    let [long, longer, longest] =
        ["long", "longer", "longest"].map(|key| format!("{key}={}", "v".repeat(200)));
    let shortened = format!("{STATE},{long},{longer}");
    let many: Vec<_> = (0..33).map(|number| format!("k{number}=v")).collect();
    let many = many.join(",");
    let cases: [(&[Header<'_>], Option<&str>, Option<&str>); 7] = [
        // Several headers are one list.
        (
            &[both[0], ("tracestate", "a=1"), ("tracestate", " b=2 ,")],
            Some(PARENT),
            Some("a=1,b=2"),
        ),
        // A list that breaks a rule is dropped, and the traceparent stays.
        (&[both[0], ("tracestate", "no list")], Some(PARENT), None),
        (&[both[0], ("tracestate", "a=1"), ("tracestate", "a=2")], Some(PARENT), None),
        (&[both[0], ("tracestate", &many)], Some(PARENT), None),
        // Over 512 characters it loses its longest members.
        (
            &[
                both[0],
                both[1],
                ("tracestate", &long),
                ("tracestate", &longer),
                ("tracestate", &longest),
            ],
            Some(PARENT),
            Some(&shortened),
        ),
        // Without a traceparent it has no meaning.
        (&[both[1]], None, None),
        (&[("traceparent", "nonsense"), both[1]], None, None),
    ];
    for (headers, parent, state) in cases {
        submit_with(&client, &path, &body, headers).await;
        calls += 1;
        let call = &receiver.until(calls).await[calls - 1];
        assert_eq!((traceparent(call), tracestate(call)), (parent, state), "{headers:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tracestate_survives_the_death_of_the_host_and_a_retry() {
    let receiver = Receiver::start(&["200 OK"]).await;
    let mut host = TestHost::start_with(&["--webhook-allow", &receiver.host()]);
    let settings = json!({ "propagateTraces": true, "workersMax": 0 });
    let endpoint = host.deploy(&guests::playground(), "survivor", settings).await;
    let body = json!({
        "input": { "op": "fail", "message": "no luck" }, "webhook": receiver.url("/hook"),
    });
    let client = host.client();
    let both = [("traceparent", PARENT), ("tracestate", STATE)];
    let queued = submit_with(&client, &client.path(&endpoint, "run"), &body, &both).await;
    let job = queued["id"].as_str().unwrap().to_owned();
    // The journal has it, and after an orderly end the tables.
    host.kill9();
    host.start_again_with(&["--webhook-allow", &receiver.host()]);
    host.ask_to_end();
    host.wait(PATIENCE);
    host.start_again_with(&["--webhook-allow", &receiver.host()]);
    let client = host.client();
    client.patch(&format!("/v1/endpoints/{endpoint}"), &json!({ "workersMax": 1 })).await.ok();
    client.until(&endpoint, &job, "FAILED").await;
    assert_eq!(tracestate(&receiver.until(1).await[0]), Some(STATE));
    host.kill9();
    host.start_again_with(&["--webhook-allow", &receiver.host()]);
    host.client().retry(&endpoint, &job).await.ok();
    let second = &receiver.until(2).await[1];
    assert_eq!((traceparent(second), tracestate(second)), (Some(PARENT), Some(STATE)));
}
