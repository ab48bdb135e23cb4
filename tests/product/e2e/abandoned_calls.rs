//! Calls that overlap a change of the catalog: their client closes the connection, their endpoint
//! is deleted, or their key is revoked while the body arrives.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use gristmill_tests::{TestHost, eventually, guests};
use serde_json::{Value, json};

/// Number of abandoned deletes. Without the fix, 89 of 120 of them left disk and memory different.
const ENDPOINTS: u32 = 40;

/// Sends the head of a `DELETE`, and closes the connection after this time.
fn abandon_delete(host: &TestHost, path: &str, later: Duration) {
    let mut stream = TcpStream::connect(host.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    let key = host.admin_key();
    let head =
        format!("DELETE {path} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {key}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    // The subject: the time at which the client leaves.
    std::thread::sleep(later);
}

/// Waits until the host has closed each connection that its client has closed, and so has ended the
/// calls on it.
async fn abandoned_calls_ended(host: &TestHost) {
    /// The kernel's number for a connection whose other side has ended: `CLOSE_WAIT`.
    const CLOSE_WAIT: &str = "08";
    let (_, port) = host.address().rsplit_once(':').unwrap();
    let port = format!(":{:04X}", port.parse::<u16>().unwrap());
    eventually("the abandoned calls to end", async || {
        let connections = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let is_abandoned = |line: &str| {
            let fields: Vec<_> = line.split_whitespace().collect();
            // A number, the local address, the other one, and the state.
            matches!(fields[..], [_, local, _, CLOSE_WAIT, ..] if local.ends_with(&port))
        };
        (!connections.lines().any(is_abandoned)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_abandoned_change_is_made_on_disk_and_in_memory_or_in_neither() {
    let mut host = TestHost::start();
    let client = host.client();
    host.deploy(&guests::echo(), "first", json!({ "workersMax": 0 })).await;
    for n in 0..ENDPOINTS {
        let endpoint = json!({ "id": format!("e{n}"), "templateId": "first", "workersMax": 0 });
        client.post("/v1/endpoints", &endpoint).await.ok();
    }
    for n in 0..ENDPOINTS {
        abandon_delete(&host, &format!("/v1/endpoints/e{n}"), Duration::from_micros(150) * n);
    }
    abandoned_calls_ended(&host).await;
    // A begun change ends before this one, since changes run one at a time.
    client.post("/v1/endpoints", &json!({ "id": "last", "templateId": "first" })).await.ok();
    let mut accepted = vec![];
    for n in 0..ENDPOINTS {
        let run = format!("/v2/e{n}/run");
        let answer = client.post(&run, &json!({ "input": {} })).await;
        if answer.status == 200 {
            accepted.push((n, answer.json()["id"].as_str().unwrap().to_owned()));
        }
    }
    println!("{} of {ENDPOINTS} endpoints outlived their abandoned delete", accepted.len());

    host.start_again();
    let client = host.client();
    for (n, job) in &accepted {
        let document = client.get(&format!("/v2/e{n}/status/{job}")).await.ok();
        assert_eq!(document["status"], "IN_QUEUE", "job {job} of e{n} was acknowledged");
    }
    let listed = client.get("/v1/endpoints").await.ok();
    let left = listed.as_array().unwrap().len();
    assert_eq!(left, accepted.len() + 2, "an endpoint that was deleted came back: {listed}");
}

#[tokio::test]
async fn a_delete_that_its_client_abandons_deletes_the_jobs_too() {
    let host = TestHost::start();
    let client = host.client();
    for n in 0..20 {
        let endpoint =
            host.deploy(&guests::echo(), &format!("j{n}"), json!({ "workersMax": 0 })).await;
        client.submit(&endpoint, json!({})).await;
        abandon_delete(&host, &format!("/v1/endpoints/{endpoint}"), Duration::from_micros(100) * n);
    }
    eventually("jobs of deleted endpoints to be deleted", async || {
        let left = client.get("/v1/endpoints").await.ok().as_array().unwrap().len();
        let metrics = client.get("/metrics").await.text;
        let jobs = metrics.lines().find_map(|line| line.strip_prefix("gristmill_jobs ")).unwrap();
        (jobs.parse::<usize>().unwrap() == left).then_some(())
    })
    .await;
}

/// The interim answer with which the host asks for a body.
const CONTINUE: &[u8; 25] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A call with half of its body sent.
struct HalfSent {
    stream: TcpStream,
    rest: String,
}

impl HalfSent {
    fn begin(host: &TestHost, key: &str, path: &str, body: &Value) -> Self {
        Self::begin_as("POST", host, key, path, body)
    }

    fn begin_as(method: &str, host: &TestHost, key: &str, path: &str, body: &Value) -> Self {
        let body = body.to_string();
        let (first, rest) = body.split_at(body.len() / 2);
        let length = format!("Content-Length: {}", body.len());
        Self::begin_with(&format!("{method} {path}"), host, key, &length, first, rest)
    }

    /// A call without a body, which has not said so yet.
    fn begin_empty(method: &str, host: &TestHost, key: &str, path: &str) -> Self {
        let length = "Transfer-Encoding: chunked";
        Self::begin_with(&format!("{method} {path}"), host, key, length, "", "0\r\n\r\n")
    }

    fn begin_with(
        call: &str,
        host: &TestHost,
        key: &str,
        length: &str,
        first: &str,
        rest: &str,
    ) -> Self {
        let mut stream = TcpStream::connect(host.address()).unwrap();
        let head = format!(
            "{call} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n\
             Expect: 100-continue\r\n{length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        // The host asks for the body once it has checked the head.
        let mut interim = [0; CONTINUE.len()];
        stream.read_exact(&mut interim).unwrap();
        assert_eq!(&interim, CONTINUE);
        stream.write_all(first.as_bytes()).unwrap();
        Self { stream, rest: rest.to_owned() }
    }

    /// Sends the rest; returns the status and the body of the answer.
    fn end(mut self) -> (u16, String) {
        self.stream.write_all(self.rest.as_bytes()).unwrap();
        let mut answer = String::new();
        self.stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }
}

#[tokio::test]
async fn a_submission_to_an_endpoint_that_is_deleted_meanwhile_is_refused() {
    let host = TestHost::start();
    let client = host.client();
    let endpoint = host.deploy(&guests::echo(), "same", json!({ "env": { "WHO": "first" } })).await;
    let submission = json!({ "input": { "secret": "of the first" } });
    let calls = ["run", "run", "runsync"].map(|operation| {
        HalfSent::begin(&host, host.admin_key(), &format!("/v2/same/{operation}"), &submission)
    });
    assert_eq!(client.delete(&format!("/v1/endpoints/{endpoint}")).await.status, 204);
    let mut calls = calls.into_iter();
    let (status, body) = calls.next().unwrap().end();
    assert_eq!(status, 404, "{body}");
    // The next endpoint of that id runs none of the others either.
    client.post("/v1/endpoints", &json!({ "id": "same", "templateId": "same" })).await.ok();
    for call in calls {
        let (status, body) = call.end();
        assert_eq!(status, 404, "{body}");
    }
    client.run_sync("same", "", json!({})).await.ok();
    assert_eq!(client.health("same").await["jobs"]["completed"], 1);
}

#[tokio::test]
async fn workers_of_a_deleted_endpoint_do_not_serve_the_next_of_its_id() {
    let host = TestHost::start();
    let client = host.client();
    let one = json!({ "workersMax": 1, "workersMin": 1 });
    let endpoint = host.deploy(&guests::playground(), "again", one).await;
    let job = client.submit(&endpoint, json!({ "op": "sleep", "ms": 60_000 })).await;
    client.until(&endpoint, &job, "IN_PROGRESS").await;
    assert_eq!(client.delete("/v1/endpoints/again").await.status, 204);
    let next = json!({ "id": "again", "templateId": "again", "workersMax": 1 });
    client.post("/v1/endpoints", &next).await.ok();
    for _ in 0..6 {
        client.submit("again", json!({ "op": "sleep", "ms": 300 })).await;
    }
    eventually("the jobs to complete", async || {
        let jobs = client.health("again").await["jobs"].clone();
        assert!(jobs["inProgress"].as_u64().unwrap() <= 1, "workersMax is 1: {jobs}");
        (jobs["completed"] == 6).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_key_that_is_revoked_while_a_body_is_on_its_way_changes_nothing() {
    let host = TestHost::start();
    let client = host.client();
    host.deploy(&guests::echo(), "kept", json!({ "workersMax": 0 })).await;
    let made = json!({ "name": "short", "scopes": ["admin"] });
    let made = client.post("/v1/keys", &made).await.ok();
    let (key, id) = (made["key"].as_str().unwrap(), made["id"].as_str().unwrap());
    let calls = [
        ("/v1/keys", json!({ "name": "another", "scopes": ["admin"] })),
        ("/v2/kept/run", json!({ "input": {} })),
        ("/v2/kept/runsync", json!({ "input": {} })),
        ("/v2/kept/openai/v1/chat/completions", json!({ "messages": [] })),
    ];
    let mut calls = Vec::from(calls.map(|(path, body)| HalfSent::begin(&host, key, path, &body)));
    let manifest = json!({ "schemaVersion": 2, "layers": [] });
    calls.push(HalfSent::begin_as("PUT", &host, key, "/v2/mill/manifests/latest", &manifest));
    let volume = client.post("/v1/networkvolumes", &json!({ "name": "v", "size": 1 })).await.ok();
    let files = format!("/v1/networkvolumes/{}/files", volume["id"].as_str().unwrap());
    let directory = format!("{files}/late?directory=true");
    calls.push(HalfSent::begin_empty("PUT", &host, key, &directory));
    assert_eq!(client.delete(&format!("/v1/keys/{id}")).await.status, 204);
    for call in calls {
        let (status, body) = call.end();
        assert_eq!(status, 401, "{body}");
    }
    assert_eq!(client.get("/v1/keys").await.ok().as_array().unwrap().len(), 1);
    assert_eq!(client.health("kept").await["jobs"]["inQueue"], 0);
    assert_eq!(client.get(&files).await.ok(), json!([]), "no directory was made");
}
