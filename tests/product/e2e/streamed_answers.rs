//! Answers of other servers that a handler reads as they arrive: with the SDK, and with a crate for
//! `wasi:http` that knows nothing of this platform.

use std::path::PathBuf;

use gristmill_tests::{Client, LocalServer, TestHost, guests, shared_host};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// A server that answers one request, with the pieces that the test sends.
struct SlowServer {
    host: String,
    pieces: mpsc::UnboundedSender<&'static str>,
}

/// The piece that completes the answer. Without it the answer breaks off when the server is
/// dropped.
const END: &str = "";

impl SlowServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let (pieces, sent) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let (connection, _) = listener.accept().await.unwrap();
            answer(connection, sent).await;
        });
        Self { host, pieces }
    }

    fn send(&self, piece: &'static str) {
        self.pieces.send(piece).unwrap();
    }

    /// An endpoint that may reach the server.
    async fn deploy(&self, on: &TestHost, handler: &Handler, name: &str) -> String {
        let upstream = format!("http://{}/v1", self.host);
        let mut settings = json!({ "allowedHosts": [self.host] });
        if handler.name == "llm-proxy" {
            settings["env"] = json!({ "UPSTREAM_URL": upstream });
        }
        let name = format!("{name}-{}", handler.name);
        on.deploy(&(handler.component)(), &name, settings).await
    }
}

async fn answer(mut connection: TcpStream, mut pieces: mpsc::UnboundedReceiver<&'static str>) {
    let mut head = vec![];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        head.push(connection.read_u8().await.unwrap());
    }
    let kind = "content-type: text/event-stream\r\ntransfer-encoding: chunked";
    let head = format!("HTTP/1.1 200 OK\r\n{kind}\r\n\r\n");
    connection.write_all(head.as_bytes()).await.unwrap();
    while let Some(piece) = pieces.recv().await {
        let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
        if connection.write_all(chunk.as_bytes()).await.is_err() {
            // The handler has read enough.
            return;
        }
    }
}

/// A handler that emits each event of a server, such as `data: one`.
struct Handler {
    name: &'static str,
    component: fn() -> PathBuf,
    input: fn(&str) -> Value,
}

const HANDLERS: [Handler; 3] = [
    Handler {
        name: "sdk",
        component: guests::playground,
        input: |host| json!({ "op": "fetch_lines", "url": format!("http://{host}/") }),
    },
    Handler {
        name: "wstd",
        component: guests::wstd_fetch,
        input: |host| json!({ "url": format!("http://{host}/"), "body": "{}" }),
    },
    Handler {
        name: "llm-proxy",
        component: guests::llm_proxy,
        input: |_| json!({ "openai_route": "/v1/chat/completions", "openai_input": {} }),
    },
];

/// The next chunks of a job that are not empty lines, without the white space around them.
async fn next_event(client: &Client, endpoint: &str, job: &str) -> String {
    loop {
        let page = client.stream(endpoint, &format!("{job}?wait=60000")).await;
        let chunks = page.chunks();
        let texts = chunks.iter().filter_map(|chunk| chunk["output"].as_str());
        let text = texts.collect::<String>().trim().to_owned();
        let is_running = ["IN_QUEUE", "IN_PROGRESS"].contains(&page.job_status());
        if !text.is_empty() || !is_running {
            return text;
        }
    }
}

#[tokio::test]
async fn each_event_reaches_the_client_before_the_next_one_is_sent() {
    let host = shared_host();
    for handler in &HANDLERS {
        let server = SlowServer::start().await;
        let endpoint = server.deploy(&host, handler, "streamed").await;
        let job = host.client.submit(&endpoint, (handler.input)(&server.host)).await;
        for event in ["data: one\n\n", "data: two\n\n"] {
            server.send(event);
            let seen = next_event(&host.client, &endpoint, &job).await;
            assert_eq!(seen, event.trim(), "{}", handler.name);
        }
        server.send(END);
        let ended = host.client.finished(&endpoint, &job).await;
        assert_eq!(ended["status"], "COMPLETED", "{}: {ended}", handler.name);
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_fails_the_job_after_its_events() {
    let host = shared_host();
    for handler in &HANDLERS {
        let server = SlowServer::start().await;
        let endpoint = server.deploy(&host, handler, "broken").await;
        let job = host.client.submit(&endpoint, (handler.input)(&server.host)).await;
        server.send("data: one\n\n");
        assert_eq!(
            next_event(&host.client, &endpoint, &job).await,
            "data: one",
            "{}",
            handler.name
        );
        let at = server.host.clone();
        drop(server);
        let ended = host.client.finished(&endpoint, &job).await;
        assert_eq!(ended["status"], "FAILED", "{}: {ended}", handler.name);
        let names_server = ended["error"].as_str().unwrap().contains(&at);
        assert!(names_server || handler.name == "wstd", "{}: {ended}", handler.name);
    }
}

#[tokio::test]
async fn an_answer_over_the_limit_is_named_as_such() {
    let host = shared_host();
    let handler = &HANDLERS[0];
    let server = SlowServer::start().await;
    let endpoint = server.deploy(&host, handler, "too-large").await;
    let job = host.client.submit(&endpoint, (handler.input)(&server.host)).await;
    let line: &str = Box::leak(("x".repeat((1 << 20) - 1) + "\n").into_boxed_str());
    for _ in 0..=16 {
        server.send(line);
    }
    let ended = host.client.finished(&endpoint, &job).await;
    assert_eq!(ended["error"], "HTTP response exceeds the limit: 16777216 bytes", "{ended}");
}

#[tokio::test]
async fn a_host_that_is_not_listed_is_denied_to_every_client() {
    let host = shared_host();
    let server = LocalServer::start().await;
    for handler in HANDLERS.iter().filter(|handler| handler.name != "llm-proxy") {
        let name = format!("streamed-denied-{}", handler.name);
        let endpoint = host.deploy(&(handler.component)(), &name, json!({})).await;
        let input = (handler.input)(&server.host());
        let error = host.client.finish(&endpoint, input).await["error"].to_string();
        let expected = if handler.name == "sdk" { "--allow-host" } else { "HttpRequestDenied" };
        assert!(error.contains(expected), "{}: {error}", handler.name);
    }
}
