//! The bounds of connections: their number, their heads, and their time without a call.

use std::time::Duration;

use gristmill_tests::{
    PATIENCE, TestHost, WireAnswer, eventually, guests, next_answer, shared_host,
};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

const HEAD: &str = "GET /openapi.json HTTP/1.1\r\nhost: x\r\n";

async fn connect(host: &TestHost) -> TcpStream {
    TcpStream::connect(host.address()).await.unwrap()
}

/// The status of the next answer, read to its end; `None` when the connection is closed instead.
async fn status(stream: &mut TcpStream) -> Option<u16> {
    next_answer(stream).await.map(|answer| answer.status)
}

async fn call(stream: &mut TcpStream) -> Option<u16> {
    stream.write_all(format!("{HEAD}\r\n").as_bytes()).await.unwrap();
    timeout(PATIENCE, status(stream)).await.expect("the host answers")
}

async fn is_closed(stream: &mut TcpStream) {
    let end = timeout(PATIENCE, status(stream)).await.expect("the host closes it");
    assert_eq!(end, None);
}

#[tokio::test]
async fn connections_beyond_the_bound_wait() {
    let host = TestHost::start_with(&["--max-connections", "2"]);
    let mut first = connect(&host).await;
    let new = json!({ "name": "r", "scopes": ["read"], "owner": "zoe" }).to_string();
    let head = format!(
        "POST /v1/keys HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{new}",
        host.admin_key(),
        new.len()
    );
    first.write_all(head.as_bytes()).await.unwrap();
    let made = timeout(PATIENCE, next_answer(&mut first)).await.unwrap().expect("an answer");
    let made: Value = serde_json::from_str(&made.body).unwrap();
    let key = made["key"].as_str().unwrap();
    let mut second = connect(&host).await;
    assert_eq!(read_health(&mut second, key).await, Some(404));
    let mut third = connect(&host).await;
    third.write_all(format!("{HEAD}\r\n").as_bytes()).await.unwrap();
    let early = timeout(Duration::from_secs(2), status(&mut third)).await;
    assert!(early.is_err(), "it was served beside two others: {early:?}");
    // Open connections are served.
    assert_eq!(call(&mut first).await, Some(200));
    drop(second);
    assert_eq!(timeout(PATIENCE, status(&mut third)).await.unwrap(), Some(200));
}

/// A connection from one of the addresses of this machine.
async fn connect_from(host: &TestHost, last: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, last], 0).into()).unwrap();
    socket.connect(host.address().parse().unwrap()).await.unwrap()
}

#[tokio::test]
async fn silent_strangers_keep_nobody_out_and_make_no_share_smaller() {
    let host = TestHost::start_with(&["--max-connections", "40"]);
    let (mut silent, mut keyed) = (vec![], vec![]);
    for round in 0..25 {
        for last in 2..12 {
            silent.push(connect_from(&host, last).await);
        }
        let mut stream = connect_from(&host, 99).await;
        assert_eq!(call_with_key(&host, &mut stream).await, Some(200), "round {round}");
        keyed.push(stream);
    }
    for stream in &mut keyed {
        assert_eq!(call_with_key(&host, stream).await, Some(200), "a key keeps its connection");
    }
    eventually("most of the silent connections to be closed", async || {
        let gone = silent.iter().filter(|stream| is_gone(stream)).count();
        (gone >= 250 - 15).then_some(())
    })
    .await;
}

/// Whether the host has closed the connection.
fn is_gone(stream: &TcpStream) -> bool {
    match stream.try_read(&mut [0; 16]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

async fn call_with_key(host: &TestHost, stream: &mut TcpStream) -> Option<u16> {
    let key = host.admin_key();
    let head = format!("GET /v1/templates HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n");
    stream.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
    timeout(PATIENCE, status(stream)).await.expect("the host answers")
}

#[tokio::test]
async fn one_address_without_a_key_does_not_take_the_connections_of_all() {
    let options = ["--max-connections", "40", "--max-address-connections", "10"];
    let host = TestHost::start_with(&options);
    let mut keyed = vec![];
    for _ in 0..20 {
        let mut stream = connect(&host).await;
        assert_eq!(call_with_key(&host, &mut stream).await, Some(200));
        keyed.push(stream);
    }
    // Many times the bound. Each tenth calls a route that needs no key.
    let mut silent = vec![];
    for number in 0..200 {
        let mut stream = connect(&host).await;
        if number % 10 == 0 {
            stream.write_all(format!("{HEAD}\r\n").as_bytes()).await.unwrap();
        }
        silent.push(stream);
    }
    eventually("the oldest of them to be closed", async || {
        // Each tenth has an answer to read first.
        let gone = silent.iter().filter(|stream| is_gone(stream)).count();
        (gone >= 170).then_some(())
    })
    .await;
    // Connections with keys were not closed, and more of them are accepted.
    for stream in &mut keyed {
        assert_eq!(call_with_key(&host, stream).await, Some(200));
    }
    let mut late = connect(&host).await;
    assert_eq!(call_with_key(&host, &mut late).await, Some(200));
}

/// A call with a key, which may be refused, or find its connection closed.
async fn read_health(stream: &mut TcpStream, key: &str) -> Option<u16> {
    health_answer(stream, key).await.map(|answer| answer.status)
}

async fn health_answer(stream: &mut TcpStream, key: &str) -> Option<WireAnswer> {
    let head =
        format!("GET /v2/none/health HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n");
    stream.write_all(format!("{head}\r\n").as_bytes()).await.ok()?;
    timeout(PATIENCE, next_answer(stream)).await.expect("the host answers")
}

#[tokio::test]
async fn the_keys_of_one_owner_do_not_take_the_connections_of_all() {
    let host = TestHost::start_with(&["--max-connections", "40"]);
    let admin = host.client();
    let new = json!({ "name": "r", "scopes": ["read"], "owner": "zoe" });
    let made = admin.post("/v1/keys", &new).await.ok();
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    let (mut held, mut refused) = (vec![], 0);
    for _ in 0..120 {
        let mut stream = connect(&host).await;
        let answer = health_answer(&mut stream, key).await.expect("an answer");
        match (answer.status, answer.header("connection")) {
            (404, None) => held.push(stream),
            (429, Some("close")) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    // One more connection is the administrator's.
    assert!((27..=30).contains(&held.len()), "{} held, {refused} refused", held.len());
    admin.get("/v1/keys").await.ok();
    for stream in &mut held {
        assert_eq!(read_health(stream, key).await, Some(404), "it keeps what it has");
    }

    // A revoked key keeps none of them.
    assert_eq!(admin.delete(&format!("/v1/keys/{id}")).await.status, 204);
    for (number, mut stream) in held.into_iter().enumerate() {
        let answer = health_answer(&mut stream, key).await.expect("an answer");
        assert_eq!((answer.status, answer.header("connection")), (401, Some("close")));
        if number == 0 {
            // The host waits some time for its client to close it first.
            is_closed(&mut stream).await;
        }
    }
    let mut all = vec![];
    for _ in 0..25 {
        let mut stream = connect(&host).await;
        assert_eq!(call_with_key(&host, &mut stream).await, Some(200));
        all.push(stream);
    }
}

#[tokio::test]
async fn two_keys_of_an_owner_do_not_take_the_connections_of_all_by_turns() {
    let host = TestHost::start_with(&["--max-connections", "40"]);
    let admin = host.client();
    let mut keys = vec![];
    for owner in ["zoe", "zoe", "otto"] {
        let new = json!({ "name": "r", "scopes": ["read"], "owner": owner });
        let made = admin.post("/v1/keys", &new).await.ok();
        keys.push(made["key"].as_str().unwrap().to_owned());
    }
    let [first, second, other] = &keys[..] else { panic!("{keys:?}") };
    let mut held = vec![];
    for _ in 0..35 {
        let mut stream = connect(&host).await;
        if read_health(&mut stream, first).await == Some(404) {
            assert_eq!(read_health(&mut stream, second).await, Some(404));
            held.push(stream);
        }
    }
    assert!((27..=30).contains(&held.len()), "{} held", held.len());
    let mut of_other = connect(&host).await;
    assert_eq!(read_health(&mut of_other, other).await, Some(404));
}

#[tokio::test]
async fn a_revoked_key_keeps_no_connection_by_calls_that_need_no_key() {
    let host = TestHost::start();
    let admin = host.client();
    let new = json!({ "name": "r", "scopes": ["read"], "owner": "zoe" });
    let made = admin.post("/v1/keys", &new).await.ok();
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    let heads = [
        "GET /livez HTTP/1.1\r\nhost: x\r\n\r\n",
        "GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n",
        "GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n",
        // Refused before any route.
        "GET /livez HTTP/1.1\r\n\r\n",
    ];
    let mut held = vec![];
    for _ in heads {
        let mut stream = connect(&host).await;
        assert_eq!(read_health(&mut stream, key).await, Some(404));
        held.push(stream);
    }
    let closes = async |stream: &mut TcpStream, head: &str| {
        stream.write_all(head.as_bytes()).await.unwrap();
        let answer = timeout(PATIENCE, next_answer(stream)).await.expect("the host answers");
        answer.expect("an answer").header("connection").map(str::to_owned)
    };
    for (stream, head) in held.iter_mut().zip(heads).take(3) {
        assert_eq!(closes(stream, head).await, None, "{head}");
    }
    assert_eq!(admin.delete(&format!("/v1/keys/{id}")).await.status, 204);
    for (stream, head) in held.iter_mut().zip(heads) {
        assert_eq!(closes(stream, head).await.as_deref(), Some("close"), "{head}");
    }
}

/// Sets the host's limit of open files, and returns the previous one.
fn allow_files(host: &TestHost, current: Option<u64>) -> Option<u64> {
    let pid = Pid::from_raw(i32::try_from(host.pid()).unwrap());
    let limit = getrlimit(Resource::Nofile);
    let new = Rlimit { current, maximum: limit.maximum };
    prlimit(pid, Resource::Nofile, new).unwrap().current
}

#[tokio::test]
async fn a_host_that_runs_out_of_files_waits_for_one() {
    let host = TestHost::start_with(&["--journal-mib", "16"]);
    let endpoint = host.deploy(&guests::echo(), "files", json!({ "workersMax": 0 })).await;
    let client = host.client();
    let kept = client.submit(&endpoint, json!({})).await;
    let files = allow_files(&host, Some(3));
    // On an open connection. The input needs a new segment of the journal.
    let submitting = tokio::spawn({
        let (client, endpoint) = (client.clone(), endpoint.clone());
        async move { client.submit(&endpoint, json!({ "text": "x".repeat(5 << 20) })).await }
    });
    eventually("the journal to wait", async || {
        assert!(!submitting.is_finished(), "it was answered without a file");
        host.log().contains("the journal waits for a file descriptor").then_some(())
    })
    .await;
    allow_files(&host, files);
    let job = timeout(PATIENCE, submitting).await.expect("the job is stored then").unwrap();
    for job in [kept, job] {
        assert_eq!(client.status(&endpoint, &job).await.ok()["status"], "IN_QUEUE");
    }
}

#[tokio::test]
async fn a_connection_without_a_call_is_closed() {
    let host = TestHost::start_with(&["--idle-timeout", "1"]);
    let mut silent = connect(&host).await;
    is_closed(&mut silent).await;
    let mut used = connect(&host).await;
    assert_eq!(call(&mut used).await, Some(200));
    is_closed(&mut used).await;

    // A call may take longer, and so may the reading of its answer.
    let endpoint = host.deploy(&guests::playground(), "idle", json!({})).await;
    let client = host.client();
    let slow = client.run_sync(&endpoint, "", json!({ "op": "sleep", "ms": 4_000 })).await.ok();
    assert_eq!(slow["status"], "COMPLETED");
}

#[tokio::test]
async fn a_head_that_comes_too_slowly_ends_its_connection() {
    let host = shared_host();
    let mut fresh = connect(&host).await;
    let mut used = connect(&host).await;
    assert_eq!(call(&mut used).await, Some(200));
    for stream in [&mut fresh, &mut used] {
        stream.write_all(HEAD.as_bytes()).await.unwrap();
    }
    // Further bytes do not help.
    for stream in [fresh, used] {
        let (mut reader, mut writer) = stream.into_split();
        let trickle = tokio::spawn(async move {
            while writer.write_all(b"x: y\r\n").await.is_ok() {
                // The subject: the pace of a slow client.
                sleep(Duration::from_millis(200)).await;
            }
        });
        let mut rest = vec![];
        let read = timeout(PATIENCE, reader.read_to_end(&mut rest)).await;
        trickle.abort();
        // With bytes in transit, the close may look like a reset.
        let _ = read.expect("the host closes it");
        assert_eq!(String::from_utf8_lossy(&rest), "", "no answer to half a head");
    }
}

#[tokio::test]
async fn a_preface_that_stops_ends_its_connection() {
    let host = shared_host();
    let mut stream = connect(&host).await;
    stream.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
    is_closed(&mut stream).await;
}

#[tokio::test]
async fn a_head_has_64_kib_at_most() {
    let host = shared_host();
    for (bytes, expected) in [(60 << 10, Some(200)), (70 << 10, Some(431))] {
        let mut stream = connect(&host).await;
        let head = format!("{HEAD}x-large: {}\r\n\r\n", "x".repeat(bytes));
        stream.write_all(head.as_bytes()).await.unwrap();
        assert_eq!(timeout(PATIENCE, status(&mut stream)).await.unwrap(), expected, "{bytes}");
    }
}

#[tokio::test]
async fn connections_from_before_the_drain_are_answered() {
    // The drain lasts until the second signal, so a loaded machine has time for all calls.
    let mut host = TestHost::start_with(&["--drain-timeout", "600"]);
    let endpoint = host.deploy(&guests::playground(), "busy", json!({})).await;
    let client = host.client();
    let job = client.submit(&endpoint, json!({ "op": "sleep_forever" })).await;
    client.until(&endpoint, &job, "IN_PROGRESS").await;
    let mut connections = vec![];
    for _ in 0..100 {
        connections.push(connect(&host).await);
    }
    host.ask_to_end();
    eventually("the drain to begin", async || {
        host.log().contains("stopping: running jobs have 600 s").then_some(())
    })
    .await;
    for connection in &mut connections {
        assert_eq!(call(connection).await, Some(200));
    }
    host.ask_to_end();
    assert!(host.wait(PATIENCE).success());
}

#[tokio::test]
async fn a_drain_ends_quiet_connections() {
    let mut host = TestHost::start();
    let mut quiet = connect(&host).await;
    assert_eq!(call(&mut quiet).await, Some(200));
    host.ask_to_end();
    is_closed(&mut quiet).await;
    assert!(host.wait(PATIENCE).success());
    eventually("nobody to listen", async || {
        TcpStream::connect(host.address()).await.is_err().then_some(())
    })
    .await;
}
