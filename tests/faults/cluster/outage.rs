//! The database ends and starts again while hosts work, or its disk is full.

use std::process::Command;
use std::time::{Duration, Instant};

use gristmill_tests::{
    Client, PATIENCE, TestHost, eventually, guests, run_in_own_network, skip_without_namespaces,
};
use reqwest::Method;
use rustix::process::Signal;
use serde_json::json;

use crate::hosts::{
    Ledger, arguments, arguments_at, check, finished, first, further, signal, sleep, submit_all,
    until_active,
};
use crate::mistakes::refusal;
use crate::postgres::Server;
use crate::tcp::PASSWORD;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_refused_during_an_outage_and_work_continues_after_it() {
    let Some(mut server) = Server::start() else { return };
    let database = server.database();
    let with_metrics = ["--metrics-listen", "127.0.0.1:0"].map(str::to_owned);
    let one = TestHost::start_with(&[arguments(&database), with_metrics.to_vec()].concat());
    let two = further(&database, &one);
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 2 })).await;
    let clients = [one.client(), two.client()];
    let mut jobs = Ledger::new();
    submit_all(&clients, 0..30, 300, &mut jobs).await;
    server.kill();
    // A submission that is sent at once is answered, too.
    let begun = Instant::now();
    let in_flight = clients[0].run("play", sleep(1, 99)).await;
    let waited = begun.elapsed();
    assert_eq!(in_flight.status, 503, "{in_flight:?}");
    assert!(waited < Duration::from_secs(30), "it waited {waited:?}");
    for client in &clients {
        eventually("refusals", async || {
            let answers = [
                client.run("play", json!({})).await,
                client.status("play", &jobs[&0]).await,
                client.get("/v1/endpoints").await,
                client.get("/readyz").await,
            ];
            let refused = answers.iter().all(|answer| answer.status == 503);
            let later = answers[..3].iter().all(|answer| answer.header("retry-after").is_some());
            (refused && later).then_some(())
        })
        .await;
        assert_eq!(client.get("/livez").await.status, 200);
    }
    // The alert about hosts that take no calls reads this.
    let address = one.ready()["metricsAddr"].as_str().unwrap();
    let collector = Client::new(&format!("http://{address}"), "").with_authorization(None);
    let metrics = collector.get("/metrics").await;
    assert!(metrics.text.contains("\ngristmill_active 0\n"), "{metrics:?}");
    tokio::task::block_in_place(|| server.start_again());
    check(&clients, &jobs).await;
    // The active host was not replaced.
    assert_eq!(one.client().get("/readyz").await.status, 200);
    assert_eq!(two.client().get("/readyz").await.status, 503);
    assert_eq!(database.sql("SELECT count(*) FROM session"), "1");
    assert!(begun.elapsed() < PATIENCE);
    drop((one, two));
    drop(database);
}

/// The database does not accept the hosts any more, or could lose their commits: they refuse calls,
/// and continue by themselves when it is as it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_refused_while_the_database_does_not_accept_the_hosts() {
    let Some(server) = Server::start_on_tcp(|_| String::new()) else { return };
    let database = server.database();
    let arguments = arguments_at(&database, &database.url_by_tcp(PASSWORD, ""));
    let one = TestHost::start_with(&arguments);
    let two = TestHost::join(&arguments, one.admin_key());
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 2 })).await;
    let clients = [one.client(), two.client()];
    let mut jobs = Ledger::new();
    let name = database.sql("SELECT current_database()");
    let faults = [
        (
            "ALTER ROLE mill PASSWORD 'barley'".to_owned(),
            format!("ALTER ROLE mill PASSWORD '{PASSWORD}'"),
            "password authentication failed",
        ),
        (
            "ALTER ROLE mill NOLOGIN".to_owned(),
            "ALTER ROLE mill LOGIN".to_owned(),
            "is not permitted to log in",
        ),
        (
            format!("ALTER DATABASE {name} SET synchronous_commit = off"),
            format!("ALTER DATABASE {name} RESET synchronous_commit"),
            "synchronous_commit is `off`",
        ),
        (
            format!("ALTER DATABASE {name} SET default_transaction_read_only = on"),
            format!("ALTER DATABASE {name} RESET default_transaction_read_only"),
            "the server is read only",
        ),
    ];
    for (number, (begin, end, reason)) in faults.into_iter().enumerate() {
        let number = number as u64 * 10;
        submit_all(&clients, number..number + 5, 300, &mut jobs).await;
        server.sql(&begin);
        database.cut_connections();
        for client in &clients {
            eventually("a refusal", async || {
                let refused = client.run("play", json!({})).await;
                (refused.status == 503 && refused.header("retry-after").is_some()).then_some(())
            })
            .await;
        }
        for host in [&one, &two] {
            eventually(&format!("`{reason}` in the log"), async || {
                host.log().contains(reason).then_some(())
            })
            .await;
        }
        server.sql(&end);
        submit_all(&clients, number + 5..number + 10, 20, &mut jobs).await;
        check(&clients, &jobs).await;
    }
    assert_eq!(database.sql("SELECT count(*) FROM session"), "1", "no host was replaced");
    drop((one, two));
    drop(database);
}

/// A supervisor must not have to kill it.
async fn stops_during_an_outage(has_results: bool) {
    let Some(mut server) = Server::start() else { return };
    let database = server.database();
    let mut arguments = arguments(&database);
    arguments.extend(["--drain-timeout", "2"].map(str::to_owned));
    let mut one = TestHost::start_with(&arguments);
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 2 })).await;
    let client = one.client();
    if has_results {
        for (number, sleep_ms) in [(0, 1_000), (1, 600_000)] {
            let job = client.submit("play", sleep(sleep_ms, number)).await;
            client.until("play", &job, "IN_PROGRESS").await;
        }
    }
    server.kill();
    eventually("a refusal", async || {
        (client.run("play", json!({})).await.status == 503).then_some(())
    })
    .await;
    signal(&one, Signal::TERM);
    one.wait(Duration::from_secs(45));

    tokio::task::block_in_place(|| server.start_again());
    let two = TestHost::join(&arguments, one.admin_key());
    until_active(&two).await;
    two.client().get("/v1/endpoints/play").await.ok();
    drop(database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_is_asked_to_stop_during_an_outage_stops() {
    stops_during_an_outage(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_with_results_that_is_asked_to_stop_during_an_outage_stops() {
    stops_during_an_outage(true).await;
}

/// The variable that marks the inner test.
const INSIDE: &str = "FULL_DISK_INSIDE";

/// The disk of the database is full: calls that need space get 503 with `Retry-After`, and
/// everything continues by itself once there is space. The test starts itself again where it may
/// mount a small disk for the server.
#[test]
fn calls_are_refused_while_the_disk_of_the_database_is_full() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if std::env::var_os(INSIDE).is_some() {
        return runtime.block_on(fill_the_disk());
    }
    if !rustix::process::geteuid().is_root() {
        return skip_without_namespaces("only root may mount a disk for a server of another user");
    }
    let name = "outage::calls_are_refused_while_the_disk_of_the_database_is_full";
    run_in_own_network(name, &[(INSIDE, "1".as_ref())]);
}

async fn fill_the_disk() {
    gristmill_tests::ip("link set lo up");
    // Segments of the log have 16 MiB; a new one is needed soon.
    let Some(mut server) = Server::start_on_small_disk(192) else { return };
    let (database, unused) = (server.database(), server.database());
    // The first connection to a database writes a file.
    unused.sql("SELECT 1");
    let one = first(&database);
    let two = further(&database, &one);
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 2 })).await;
    let clients = [one.client(), two.client()];
    let (mut ledger, mut large) = (Ledger::new(), Vec::new());
    submit_all(&clients, 0..10, 20, &mut ledger).await;
    let ballast = server.dir.path().join("ballast");
    let filled = Command::new("dd")
        .args(["if=/dev/zero", "bs=1M", &format!("of={}", ballast.display())])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&filled.stderr).contains("No space left"), "{filled:?}");
    // The first host of a database does not start.
    let of_unused = arguments(&unused);
    let said = refusal(&of_unused.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(said.contains("the database's disk is full"), "{said}");
    // Incompressible inputs, until one of them does not fit.
    let mut number = 0;
    let refused = eventually("a refusal", async || {
        number += 1;
        let noise: String =
            (0..1 << 19).map(|_| char::from(rand::random_range(b'a'..=b'z'))).collect();
        let body = json!({ "input": { "op": "echo", "value": noise } });
        let request = clients[1].request(Method::POST, &clients[1].path("play", "run"));
        let key = format!("large-{number}");
        let answer = clients[1].send(request.header("idempotency-key", &key).json(&body)).await;
        match answer.status {
            200 => {
                large.push(answer.json()["id"].as_str().unwrap().to_owned());
                None
            }
            _ => Some(answer),
        }
    })
    .await;
    assert!(matches!(refused.status, 503 | 507), "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    // Longer than an active host may be silent.
    tokio::time::sleep(Duration::from_secs(12)).await;

    std::fs::remove_file(&ballast).unwrap();
    if !server.is_running() {
        // PostgreSQL ends when it cannot write its log; its supervisor starts it again.
        tokio::task::block_in_place(|| server.start_again());
    }
    submit_all(&clients, 10..11, 20, &mut ledger).await;
    check(&clients, &ledger).await;
    for job in &large {
        let document = finished(&clients, "play", job).await;
        assert_eq!(document["status"], "COMPLETED", "{document}");
    }
    for host in [&one, &two] {
        assert_eq!(host.client().get("/livez").await.status, 200, "{}", host.log());
    }
    drop((one, two));
    drop((database, unused));
}
