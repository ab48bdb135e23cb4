//! Limits of calls over several hosts: a limit is that of the active host, through whichever host a
//! call comes.

use std::net::{IpAddr, Ipv4Addr};

use futures::future::join_all;
use gristmill_tests::http2::{Event, Http2, INITIAL_WINDOW_SIZE};
use gristmill_tests::{Answer, Client, TestHost, eventually, guests};
use serde_json::json;
use tokio::net::TcpStream;

use crate::hosts::{arguments, first, further, until_active};
use crate::postgres::Database;

/// Sends so many calls at one time, through all hosts in turn.
async fn call_in_turn(
    clients: &[Client],
    calls: usize,
    call: impl AsyncFn(&Client) -> Answer,
) -> Vec<Answer> {
    join_all(clients.iter().cycle().take(calls).map(|client| call(client))).await
}

/// Exactly so many calls were admitted, and all others have got 429 with the time to wait.
fn assert_admitted(answers: &[Answer], limit: usize) {
    let admitted = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(admitted, limit, "{answers:?}");
    for refused in answers.iter().filter(|answer| answer.status != 200) {
        refused.refused(429);
        let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        // Calls are counted by quarters of a second.
        assert!((1..=11).contains(&wait), "{refused:?}");
    }
}

/// Each host counting for itself would admit twice the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_limit_is_one_for_all_hosts_and_begins_anew_with_the_next_active_one() {
    const LIMIT: usize = 20;
    let Some(database) = Database::new() else { return };
    let mut one = first(&database);
    let two = further(&database, &one);
    let settings = json!({
        "workersMax": 0,
        "rateLimits": { "run": { "callsPer10s": LIMIT } },
    });
    one.deploy(&guests::playground(), "play", settings).await;
    let clients = [one.client(), two.client()];
    let submit = async |client: &Client| client.run("play", json!({ "op": "echo" })).await;
    assert_admitted(&call_in_turn(&clients, 3 * LIMIT, submit).await, LIMIT);
    let jobs = one.client().health("play").await["jobs"]["inQueue"].clone();
    assert_eq!(jobs, json!(LIMIT), "refused calls submit nothing");
    // The limit of an operation without settings: two purges.
    let purge = async |client: &Client| client.purge("play").await;
    assert_admitted(&call_in_turn(&clients, 8, purge).await, 2);

    // The counters were in the memory of the active host.
    one.kill9();
    until_active(&two).await;
    one.start_again();
    assert_eq!(one.ready()["role"], "standby");
    let clients = [one.client(), two.client()];
    assert_admitted(&call_in_turn(&clients, 3 * LIMIT, submit).await, LIMIT);
    assert_admitted(&call_in_turn(&clients, 8, purge).await, 2);
}

/// A call without a key, from this address of this machine. Returns its status.
async fn call_from(address: Ipv4Addr, host: &TestHost) -> u16 {
    let client = reqwest::Client::builder().no_proxy().local_address(IpAddr::from(address));
    let call = client.build().unwrap().get(format!("{}/v1/templates", host.url()));
    call.send().await.unwrap().status().as_u16()
}

/// Otherwise one caller could use up the limit of all callers of a host that stands by, and could
/// have one limit for each host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_without_a_key_through_a_standby_count_for_the_address_of_their_client() {
    let Some(database) = Database::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    std::fs::write(&config, "[rate-limits.unauthenticated]\ncalls-per-10s = 20\n").unwrap();
    let mut arguments = arguments(&database);
    arguments.extend(["--config".to_owned(), config.to_str().unwrap().to_owned()]);
    let active = TestHost::start_with(&arguments);
    let standby = TestHost::join(&arguments, active.admin_key());
    assert_eq!(standby.ready()["role"], "standby");
    let [greedy, other] = [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)];
    let statuses = join_all((0..40).map(|_| call_from(greedy, &standby))).await;
    let admitted = statuses.iter().filter(|status| **status == 401).count();
    // Eleven at one time, and a few more while the calls take place.
    assert!((11..=20).contains(&admitted), "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 40 - admitted);
    // A place becomes free each second.
    let statuses = join_all((0..8).map(|_| call_from(greedy, &active))).await;
    assert!(statuses.contains(&429), "the active host counts them apart: {statuses:?}");
    for host in [&standby, &active] {
        assert_eq!(call_from(other, host).await, 401, "another address");
    }
}

/// Calls on a connection whose client reads no answer.
async fn hold(host: &TestHost, path: &str, calls: u32) -> Http2<TcpStream> {
    let stream = TcpStream::connect(host.address()).await.unwrap();
    let mut connection = Http2::begin_with(stream, &[(INITIAL_WINDOW_SIZE, 0)]).await;
    let fields = [("authorization", host.admin_key())];
    for call in 0..calls {
        connection.get(2 * call + 1, path, &fields).await;
    }
    for _ in 0..calls {
        match connection.next().await {
            Event::Status { status: 200, .. } => {}
            other => panic!("{other:?}"),
        }
    }
    connection
}

/// The cap on concurrent calls counts for all hosts together. A call through a standby ends for the
/// active host when the standby has read the answer, which does not wait for its client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cap_on_concurrent_calls_counts_a_call_until_its_reader_has_the_answer() {
    const CAP: u32 = 2;
    let Some(database) = Database::new() else { return };
    let active = first(&database);
    let standby = further(&database, &active);
    let settings = json!({
        "workersMax": 0,
        "rateLimits": { "requests": { "concurrent": CAP, "callsPer10s": 1_000 } },
    });
    active.deploy(&guests::playground(), "play", settings).await;
    let path = active.client().path("play", "requests");
    let held = hold(&active, &path, CAP).await;
    for host in [&active, &standby] {
        let refused = host.client().get(&path).await;
        refused.refused(429);
        assert!(refused.header("retry-after").is_some(), "{refused:?}");
        assert!(refused.text.contains("at most 2"), "{refused:?}");
    }
    drop(held);
    for host in [&active, &standby] {
        eventually("a place to be free", async || {
            (host.client().get(&path).await.status == 200).then_some(())
        })
        .await;
    }
    // Twice as many as the cap, and none of their answers is read.
    let (first, second) = (hold(&standby, &path, CAP).await, hold(&standby, &path, CAP).await);
    active.client().get(&path).await.ok();
    drop((first, second));
}
