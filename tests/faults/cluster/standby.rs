//! A host that stands by: its probes, the calls that it forwards, and an orderly change of the
//! active host.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use gristmill_tests::http2::{Event, Http2};
use gristmill_tests::{Client, PATIENCE, TestHost, eventually, guests};
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::hosts::{arguments, component_files, first, further, send, signal, until_active};
use crate::postgres::Database;
use rustix::process::Signal;

#[tokio::test]
async fn each_host_serves_its_own_metrics_to_collectors() {
    let Some(database) = Database::new() else { return };
    let with_metrics = || {
        let mut arguments = arguments(&database);
        arguments.extend(["--metrics-listen", "127.0.0.1:0"].map(str::to_owned));
        arguments
    };
    let of_collectors = |host: &TestHost| {
        let address = host.ready()["metricsAddr"].as_str().unwrap().to_owned();
        Client::new(&format!("http://{address}"), "").with_authorization(None)
    };
    let one = TestHost::start_with(&with_metrics());
    let two = TestHost::join(&with_metrics(), one.admin_key());
    assert_eq!(two.ready()["role"], "standby", "{}", two.ready());

    let active = of_collectors(&one).get("/metrics").await;
    assert!(active.text.contains("\ngristmill_active 1\n"), "{active:?}");
    let collector = of_collectors(&two);
    let standby = collector.get("/metrics").await;
    assert_eq!(standby.status, 200, "{standby:?}");
    assert_eq!(standby.header("content-type"), active.header("content-type"));
    let value = |name: &str| {
        let line = standby.text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {}", standby.text)).trim().to_owned()
    };
    assert_eq!(value("gristmill_active "), "0");
    assert_ne!(value("gristmill_disk_free_bytes "), "0", "the disk of the standby is measured");
    // The sum of a counter over both hosts counts each job once.
    assert!(!standby.text.contains("_total"), "{}", standby.text);
    collector.get("/v1/endpoints").await.refused(503);
    let website = collector.request(Method::GET, "/metrics").header("host", "mill.example.com");
    collector.send(website).await.refused(401);
    let malformed = collector.request(Method::GET, "/metrics").header("host", "127.0.0.1@example");
    collector.send(malformed).await.refused(400);

    one.ask_to_end();
    until_active(&two).await;
    let promoted = collector.get("/metrics").await;
    assert!(promoted.text.contains("\ngristmill_active 1\n"), "{promoted:?}");
    assert!(promoted.text.contains("gristmill_store_commits_total"), "{promoted:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_has_its_name_on_each_host() {
    let Some(database) = Database::new() else { return };
    let with_names = || {
        let mut arguments = arguments(&database);
        let names = ["--http-listen", "127.0.0.1:0", "--http-domain", "localhost"];
        arguments.extend(names.map(str::to_owned));
        arguments
    };
    let one = TestHost::start_with(&with_names());
    let two = TestHost::join(&with_names(), one.admin_key());
    assert_eq!(two.ready()["role"], "standby", "{}", two.ready());
    let settings = json!({ "type": "LOAD_BALANCER", "http": { "public": true } });
    one.deploy(&guests::http_playground(), "site", settings).await;
    for host in [&one, &two] {
        let address = host.ready()["httpAddr"].as_str().unwrap().to_owned();
        let visitor = Client::new(&format!("http://{address}"), "").with_authorization(None);
        let get = |path| visitor.request(Method::GET, path).header("host", "site.localhost");
        let head = visitor.send(get("/head?a=b")).await.ok();
        assert_eq!(head["target"], "/head?a=b");
        assert_eq!(head["authority"], "site.localhost");
        // Neither the probes nor the API are there.
        for path in ["/livez", "/metrics", "/v1/endpoints"] {
            assert_eq!(visitor.send(get(path)).await.text, "no such path\n", "{path}");
        }
        let claims = host.client().with_authorization(None);
        let claims = claims.request(Method::GET, "/http/site.localhost/");
        let claims = host.client().send(claims.header("gristmill-by-name", "1")).await;
        assert_eq!(claims.status, 401, "{claims:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_through_a_host_that_stands_by_reach_the_active_one() {
    let Some(database) = Database::new() else { return };
    let one = first(&database);
    let two = further(&database, &one);
    let shown = two.ready()["database"].as_str().unwrap();
    assert!(shown.starts_with("postgres://postgres@/"), "{shown}");
    assert_eq!(one.ready()["database"], shown);
    assert!(!two.data_dir().join("admin.key").exists());

    let client = two.client();
    assert_eq!(client.get("/livez").await.status, 200);
    let ready = client.get("/readyz").await;
    assert_eq!((ready.status, ready.text.contains("stands by")), (503, true), "{ready:?}");
    assert_eq!(one.client().get("/readyz").await.status, 200);

    // Everything is deployed through one host, and used through both.
    two.deploy(&guests::playground(), "play", json!({ "workersMax": 2 })).await;
    for client in [one.client(), two.client()] {
        let document = client.finish("play", json!({ "op": "echo", "value": 7 })).await;
        assert_eq!(document["output"], json!({ "echo": 7 }));
        let answer = client.run_sync("play", "", json!({ "op": "echo", "value": 8 })).await.ok();
        assert_eq!(answer["output"], json!({ "echo": 8 }));
    }
    let wrong = client.with_key("wrong").run("play", json!({})).await;
    assert_eq!(
        wrong.refused(401),
        one.client().with_key("wrong").run("play", json!({})).await.refused(401)
    );

    // The largest head, which takes more than the 16 KiB of a frame of HTTP/2.
    let field = "x".repeat(60 << 10);
    for client in [one.client(), two.client()] {
        client
            .send(client.request(Method::GET, "/v1/endpoints").header("x-large", &field))
            .await
            .ok();
        let options = client.send(client.request(Method::HEAD, "/v1/endpoints")).await;
        assert_eq!(options.text, "", "{options:?}");
    }

    // Bodies of 5 MB in both directions.
    let text = "x".repeat(5 << 20);
    let input = json!({ "op": "echo", "value": text });
    let answer = client.run_sync("play", "?wait=60000", input).await.ok();
    assert_eq!(answer["output"]["echo"].as_str().map(str::len), Some(text.len()));

    // Events arrive while the job runs.
    let job = client.submit("play", json!({ "op": "stream", "count": 3, "delay_ms": 300 })).await;
    let path = client.path("play", &format!("stream/{job}"));
    let request = client.request(Method::GET, &path).header("accept", "text/event-stream");
    let events = client.send(request).await;
    assert_eq!(events.header("content-type"), Some("text/event-stream"), "{events:?}");
    for part in [r#""i":0"#, r#""i":1"#, r#""i":2"#, "COMPLETED"] {
        assert!(events.text.contains(part), "{events:?}");
    }
}

/// Reads until the text is there.
async fn read_until(connection: &mut TcpStream, read: &mut String, text: &str) {
    while !read.contains(text) {
        let mut bytes = [0; 4096];
        let wait = tokio::time::timeout(PATIENCE, connection.read(&mut bytes));
        let count = wait.await.unwrap_or_else(|_| panic!("no {text} in {read}")).unwrap();
        assert_ne!(count, 0, "no {text} in {read}");
        read.push_str(std::str::from_utf8(bytes.get(..count).unwrap()).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_of_http_reads_and_writes_at_once_through_each_host() {
    let Some(database) = Database::new() else { return };
    let one = first(&database);
    let two = further(&database, &one);
    let settings = json!({ "type": "LOAD_BALANCER", "workersMax": 1 });
    one.deploy(&guests::http_playground(), "site", settings).await;
    for host in [&one, &two] {
        let mut connection = TcpStream::connect(host.address()).await.unwrap();
        let head = format!(
            "POST /http/site/echo HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {}\r\nte: trailers\r\n\
             trailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n",
            one.admin_key()
        );
        let mut read = String::new();
        connection.write_all(head.as_bytes()).await.unwrap();
        for piece in ["first", "other", "third"] {
            connection.write_all(format!("5\r\n{piece}\r\n").as_bytes()).await.unwrap();
            read_until(&mut connection, &mut read, piece).await;
        }
        connection.write_all(b"0\r\nx-sum: 9\r\n\r\n").await.unwrap();
        read_until(&mut connection, &mut read, "\r\n0\r\n").await;
        // A client that leaves in the middle ends the request, so that the worker is free.
        let mut left = TcpStream::connect(host.address()).await.unwrap();
        left.write_all(head.as_bytes()).await.unwrap();
        left.write_all(b"5\r\nfirst\r\n").await.unwrap();
        read_until(&mut left, &mut String::new(), "first").await;
        drop(left);
        one.client().workers_running("site", 0).await;
    }
}

/// A client cannot choose the address that its calls count for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_address_for_hosts_answers_only_hosts() {
    let Some(database) = Database::new() else { return };
    let one = first(&database);
    let address = one.ready()["clusterAddr"].as_str().unwrap();
    let client = one.client();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = http
        .get(format!("http://{address}/livez"))
        .header("gristmill-peer", "192.0.2.1")
        .send()
        .await;
    assert!(answer.is_err(), "{answer:?}");
    assert_eq!(client.get("/livez").await.status, 200);

    // Silent connections take no place that another host needs.
    let mut silent = vec![];
    for _ in 0..400 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let two = further(&database, &one);
    for _ in 0..3 {
        two.client().get("/v1/endpoints").await.ok();
        for _ in 0..200 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
    }
}

/// The active host refuses a body before it has arrived, and closes the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn early_answers_are_forwarded() {
    let Some(database) = Database::new() else { return };
    let one = first(&database);
    let two = further(&database, &one);
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 0 })).await;
    let key = one.admin_key();
    for (length, body, status) in
        [("99999999", "", "413"), ("zz", "", "400"), ("chunked", "zz\r\n", "400")]
    {
        let mut connection = TcpStream::connect(two.address()).await.unwrap();
        let framing = match length {
            "chunked" => "transfer-encoding: chunked".to_owned(),
            length => format!("content-length: {length}"),
        };
        let head = format!(
            "POST /v2/play/run HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\n{framing}\r\n\r\n{body}"
        );
        connection.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let read = connection.read_to_string(&mut answer);
        let read = tokio::time::timeout(Duration::from_secs(20), read).await;
        assert!(read.is_ok(), "{length}: the connection is not closed after `{answer}`");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{length}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_host_hands_everything_over() {
    let Some(database) = Database::new() else { return };
    let mut one = first(&database);
    let two = further(&database, &one);
    let settings = json!({ "workersMax": 1, "templateEnv": { "STONE": "granite" } });
    one.deploy(&guests::playground(), "play", settings).await;
    let ended = one.client().finish("play", json!({ "op": "echo", "value": 1 })).await;
    let running = one.client().submit("play", json!({ "op": "sleep", "ms": 8_000 })).await;
    one.client().until("play", &running, "IN_PROGRESS").await;
    let waiting: Vec<_> = {
        let mut jobs = Vec::new();
        for value in 0..5 {
            jobs.push(two.client().submit("play", json!({ "op": "echo", "value": value })).await);
        }
        jobs
    };
    let asked = Instant::now();
    signal(&one, Signal::TERM);
    let status = tokio::task::block_in_place(|| one.wait(PATIENCE));
    assert_eq!(status.code(), Some(0), "{}", one.log());
    until_active(&two).await;
    let ready = tokio::task::block_in_place(|| two.next_ready());
    assert_eq!(ready["role"], "active", "{ready}");
    // The time in which it stood by, more than a second, does not count.
    let started_in = Duration::from_millis(ready["startedInMs"].as_u64().unwrap());
    assert!(started_in <= asked.elapsed(), "{ready}");
    let client = two.client();
    // The component came from the database, and the environment is decrypted.
    let document = client.finish("play", json!({ "op": "env", "name": "STONE" })).await;
    assert_eq!(document["output"], json!({ "env": "granite" }), "{document}");
    for done in ["fetched component", "compiled component"] {
        assert!(two.log().contains(done), "{done}: {}", two.log());
    }
    let files = component_files(&two);
    for ending in [".wasm", ".cwasm"] {
        assert!(files.iter().any(|file| file.ends_with(ending)), "{ending}: {files:?}");
    }
    let document = client.status("play", ended["id"].as_str().unwrap()).await.ok();
    assert_eq!(document["output"], json!({ "echo": 1 }));
    assert_eq!(client.finished("play", &running).await["status"], "COMPLETED");
    for (value, job) in waiting.iter().enumerate() {
        assert_eq!(client.finished("play", job).await["output"], json!({ "echo": value }));
    }
    // No session was lost.
    assert_eq!(database.sql("SELECT count(*) FROM session WHERE is_clean"), "1");
}

/// A host that stands by lets forwarded calls end, and forwards no more of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forwarded_calls_end_before_a_host_that_stands_by() {
    let Some(database) = Database::new() else { return };
    let one = first(&database);
    let mut two = further(&database, &one);
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 2 })).await;
    let client = two.client();
    let waits = {
        let client = client.clone();
        let input = json!({ "op": "sleep", "ms": 3_000, "value": 7 });
        tokio::spawn(async move { client.run_sync("play", "?wait=20000", input).await })
    };
    eventually("the job to run", async || {
        (one.client().health("play").await["jobs"]["inProgress"] == 1).then_some(())
    })
    .await;
    signal(&two, Signal::TERM);
    // New calls are refused, on a new connection or on an open one.
    eventually("new calls to be refused", async || {
        let sent = client.try_send(client.request(Method::GET, "/v1/endpoints")).await;
        sent.is_err().then_some(())
    })
    .await;
    let answer = waits.await.unwrap().ok();
    assert_eq!(answer["output"], json!({ "slept": 3_000, "echo": 7 }), "{answer}");
    let status = tokio::task::block_in_place(|| two.wait(PATIENCE));
    assert_eq!(status.code(), Some(0), "{}", two.log());
    assert!(
        two.log().contains("every forwarded call and every running job had ended"),
        "{}",
        two.log()
    );
    assert_eq!(one.client().get("/readyz").await.status, 200);
}

/// The call of a client that leaves ends on the active host too, where its body has arrived in part
/// or as a whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_a_host_that_stands_by_ends_its_call_on_the_active_host() {
    let Some(database) = Database::new() else { return };
    let one = first(&database);
    let two = further(&database, &one);
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 4 })).await;
    let in_progress = async |count: u64| {
        eventually(&format!("{count} jobs in progress"), async || {
            (one.client().health("play").await["jobs"]["inProgress"] == count).then_some(())
        })
        .await;
    };
    for is_stream in [false, true] {
        let client = two.client();
        let body = json!({ "op": "sleep_forever", "stream": is_stream });
        let call =
            tokio::spawn(async move { client.openai("play", "chat/completions", &body).await });
        in_progress(1).await;
        // A client that ends its side within 100 ms of its call may still wait for the answer.
        tokio::time::sleep(Duration::from_millis(500)).await;
        call.abort();
        in_progress(0).await;
    }
    // An upload that stops: the connection that it shares goes on, and so do other calls.
    let mut connection = TcpStream::connect(two.address()).await.unwrap();
    let head = format!(
        "POST /v2/play/run HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: 1000000\r\n\r\n{{",
        one.admin_key()
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    two.client().get("/v1/endpoints").await.ok();
    drop(connection);
    two.client().get("/v1/endpoints").await.ok();
}

/// A client may speak HTTP/2 with a host that stands by: calls share its connection, and are
/// forwarded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_2_is_forwarded() {
    const CALLS: u32 = 20;
    let Some(database) = Database::new() else { return };
    let one = first(&database);
    let two = further(&database, &one);
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 2 })).await;
    let mut http = Http2::begin(TcpStream::connect(two.address()).await.unwrap()).await;
    let key = format!("Bearer {}", one.admin_key());
    let fields = [("authorization", &*key), ("content-type", "application/json")];
    // All calls wait at one time, on one connection.
    let streams: Vec<_> = (0..CALLS).map(|n| 2 * n + 1).collect();
    for stream in &streams {
        let body = json!({ "input": { "op": "sleep", "ms": 300, "value": stream } });
        let path = "/v2/play/runsync?wait=60000";
        http.call(*stream, "POST", path, &fields, &body.to_string()).await;
    }
    let mut waiting: BTreeSet<_> = streams.into_iter().collect();
    while !waiting.is_empty() {
        match http.next().await {
            Event::Status { stream, status } => {
                assert_eq!(status, 200);
                assert!(waiting.remove(&stream), "two answers on stream {stream}");
            }
            other => panic!("{other:?}"),
        }
    }
    let health = one.client().health("play").await;
    assert_eq!(health["jobs"]["completed"], CALLS, "{health}");
    // The connection continues after a refusal.
    http.get(101, "/v2/nothing/health", &fields).await;
    assert_eq!(http.status_of(101).await, 404);
    http.get(103, "/v1/endpoints", &fields).await;
    assert_eq!(http.status_of(103).await, 200);
}

/// A connection that has shown a key is not closed beside many without one, also while its call
/// waits for the active host, and also before its first answer if the key is known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_with_a_key_keep_their_connections_beside_those_without() {
    let Some(database) = Database::new() else { return };
    let one = first(&database);
    let options = ["--max-address-connections", "10"].map(str::to_owned);
    let arguments = arguments(&database).into_iter().chain(options).collect::<Vec<_>>();
    let two = TestHost::join(&arguments, one.admin_key());
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 1 })).await;
    let mut http = Http2::begin(TcpStream::connect(two.address()).await.unwrap()).await;
    let key = format!("Bearer {}", one.admin_key());
    let fields = [("authorization", &*key), ("content-type", "application/json")];
    http.get(1, "/v2/play/health", &fields).await;
    assert_eq!(http.status_of(1).await, 200);
    let body = json!({ "input": { "op": "sleep", "ms": 3_000 } }).to_string();
    http.call(3, "POST", "/v2/play/runsync?wait=60000", &fields, &body).await;
    let mut other = Http2::begin(TcpStream::connect(two.address()).await.unwrap()).await;
    other.call(1, "POST", "/v2/play/runsync?wait=60000", &fields, &body).await;
    // Its call is on the way before the others come.
    eventually("both jobs", async || {
        let jobs = one.client().health("play").await["jobs"].clone();
        (jobs["inProgress"] == 1 && jobs["inQueue"] == 1).then_some(())
    })
    .await;

    // Many times the bound: the oldest of them are closed.
    let mut strangers = vec![];
    for _ in 0..50 {
        strangers.push(TcpStream::connect(two.address()).await.unwrap());
    }
    let mut oldest = strangers.swap_remove(0);
    let closed = tokio::time::timeout(PATIENCE, oldest.read(&mut [0])).await;
    assert!(matches!(closed, Ok(Ok(0) | Err(_))), "{closed:?}");
    assert_eq!(http.status_of(3).await, 200);
    assert_eq!(other.status_of(1).await, 200);
    http.get(5, "/v2/play/health", &fields).await;
    assert_eq!(http.status_of(5).await, 200);
}

/// A component is there for all hosts, or for none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn components_are_in_the_database_as_long_as_something_names_them() {
    let Some(database) = Database::new() else { return };
    let one = first(&database);
    let bytes = fs::read(guests::playground()).unwrap();
    one.upload("play:1", bytes.clone()).await.ok();
    let stored = "SELECT sum(octet_length(body)) FROM component_part";
    assert_eq!(database.sql(stored), bytes.len().to_string());
    one.upload("play:2", bytes.clone()).await.ok();
    assert_eq!(database.sql(stored), bytes.len().to_string());
    // A refused upload leaves nothing behind.
    let refused = one.upload("bad:1", b"\0asm\x0d\0\x01\0rest".to_vec()).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    assert_eq!(database.sql(stored), bytes.len().to_string());
    // A file that is damaged here is fetched again.
    let clients = [one.client()];
    let digest = database.sql("SELECT DISTINCT component FROM component_part");
    fs::remove_file(one.data_dir().join(format!("components/{digest}.wasm"))).unwrap();
    let path = format!("/v2/play/blobs/sha256:{digest}");
    let blob = send(&clients, |client| client.request(Method::GET, &path)).await;
    assert_eq!(blob.status, 200, "{blob:?}");
    for name in ["play:1", "play:2"] {
        assert_eq!(one.client().delete(&format!("/v1/handlers/{name}")).await.status, 204);
    }
    eventually("the component to be removed", async || {
        (database.sql("SELECT count(*) FROM component_part") == "0").then_some(())
    })
    .await;
}
