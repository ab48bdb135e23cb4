//! The database fails over to a standby of PostgreSQL.

use std::slice;
use std::time::{Duration, Instant};

use gristmill_tests::{Client, PATIENCE, TestHost, eventually, guests};
use reqwest::Method;
use serde_json::json;

use crate::hosts::{Ledger, arguments_at, check, sleep, submit_all, until_active};
use crate::mistakes::refusal;
use crate::postgres::{Database, Server};
use crate::proxy::Proxy;
use crate::tcp::PASSWORD;

/// Waits until the standby has received everything, and makes each later commit wait for it.
async fn replicate_synchronously(primary: &Server) {
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.sql("SELECT pg_reload_conf()");
    eventually("the standby to be synchronous", async || {
        let state = primary.sql("SELECT sync_state FROM pg_stat_replication");
        (state == "sync").then_some(())
    })
    .await;
}

/// The standby becomes the primary server at the address that the hosts know.
fn promote(standby: &Server, address: &Proxy) {
    standby.sql("SELECT pg_promote()");
    address.set_target(standby.address());
}

/// With a synchronous standby nothing acknowledged is lost, and the hosts continue by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_acknowledged_is_lost_when_a_synchronous_standby_takes_over() {
    let Some(mut primary) = Server::start_on_tcp(|_| String::new()) else { return };
    let database = primary.database();
    let address = Proxy::to(primary.address()).await;
    let with = arguments_at(&database, &database.url_at(address.address(), PASSWORD));
    let one = TestHost::start_with(&with);
    let two = TestHost::join(&with, one.admin_key());
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 2 })).await;
    let standby = tokio::task::block_in_place(|| primary.standby());
    replicate_synchronously(&primary).await;

    // A host does not use a server that it cannot write to.
    let url = database.url_at(standby.address(), PASSWORD);
    let said = tokio::task::block_in_place(|| refusal(&["--database", &url]));
    assert!(said.contains("the server is read only"), "{said}");

    let clients = [one.client(), two.client()];
    let mut ledger = Ledger::new();
    submit_all(&clients, 0..20, 200, &mut ledger).await;
    primary.kill();
    promote(&standby, &address);
    submit_all(&clients, 20..40, 200, &mut ledger).await;
    check(&clients, &ledger).await;
    let jobs = clients[0].health("play").await["jobs"].clone();
    assert_eq!(jobs["completed"], json!(ledger.len()), "{jobs}");
    drop((one, two));
    // The database was on it.
    drop(primary);
}

/// A standby that had not received the newest commits: the active host, whose memory has them,
/// ends, and the next one continues with everything that the database has.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_host_ends_when_the_database_has_lost_commits() {
    let Some(mut primary) = Server::start_on_tcp(|_| String::new()) else { return };
    let database = primary.database();
    let address = Proxy::to(primary.address()).await;
    let with = arguments_at(&database, &database.url_at(address.address(), PASSWORD));
    let mut one = TestHost::start_with(&with);
    let two = TestHost::join(&with, one.admin_key());
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 2 })).await;
    let mut standby = tokio::task::block_in_place(|| primary.standby());
    replicate_synchronously(&primary).await;
    let mut kept = Ledger::new();
    let clients = [one.client(), two.client()];
    submit_all(&clients, 0..10, 200, &mut kept).await;
    check(&clients, &kept).await;

    // From now on the primary server does not wait for the standby, which is away.
    primary.sql("ALTER SYSTEM RESET synchronous_standby_names");
    primary.sql("SELECT pg_reload_conf()");
    standby.kill();
    let mut lost = Ledger::new();
    submit_all(&clients, 10..20, 200, &mut lost).await;
    check(&clients, &lost).await;
    primary.kill();
    tokio::task::block_in_place(|| standby.start_again());
    promote(&standby, &address);

    let status = tokio::task::block_in_place(|| one.wait(PATIENCE));
    assert_eq!(status.code(), Some(1), "{}", one.log());
    assert!(one.log().contains("the database has lost commit"), "{}", one.log());
    until_active(&two).await;
    let two = two.client();
    check(slice::from_ref(&two), &kept).await;
    assert_eq!(two.status("play", &lost[&19]).await.status, 404);
    submit_all(slice::from_ref(&two), 20..25, 200, &mut kept).await;
    check(slice::from_ref(&two), &kept).await;
    one.start_again();
    assert_eq!(one.ready()["role"], "standby");
    drop(primary);
}

/// The same when the database has lost only a deployment, so that no job is missing: later jobs of
/// that endpoint would have no record in the catalog, and no host would start on such a database.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_host_ends_when_the_database_has_lost_a_deployment() {
    let Some(mut primary) = Server::start_on_tcp(|_| String::new()) else { return };
    let database = primary.database();
    let address = Proxy::to(primary.address()).await;
    let with = arguments_at(&database, &database.url_at(address.address(), PASSWORD));
    let mut one = TestHost::start_with(&with);
    let two = TestHost::join(&with, one.admin_key());
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 2 })).await;
    let mut standby = tokio::task::block_in_place(|| primary.standby());
    replicate_synchronously(&primary).await;
    let mut ledger = Ledger::new();
    let clients = [one.client(), two.client()];
    submit_all(&clients, 0..10, 20, &mut ledger).await;
    check(&clients, &ledger).await;

    primary.sql("ALTER SYSTEM RESET synchronous_standby_names");
    primary.sql("SELECT pg_reload_conf()");
    standby.kill();
    one.deploy(&guests::playground(), "lost", json!({ "workersMax": 2 })).await;
    primary.kill();
    tokio::task::block_in_place(|| standby.start_again());
    promote(&standby, &address);

    let status = tokio::task::block_in_place(|| one.wait(PATIENCE));
    assert_eq!(status.code(), Some(1), "{}", one.log());
    assert!(one.log().contains("the database has lost commit"), "{}", one.log());
    until_active(&two).await;
    let two = two.client();
    assert_eq!(two.get("/v1/endpoints/lost").await.status, 404);
    submit_all(slice::from_ref(&two), 10..15, 20, &mut ledger).await;
    check(slice::from_ref(&two), &ledger).await;
    one.start_again();
    assert_eq!(one.ready()["role"], "standby");
    drop(primary);
}

/// The arguments of a host whose URL names both servers.
fn with_both(database: &Database, first: &Server, second: &Server) -> Vec<String> {
    let url = database.url_at(first.address(), PASSWORD);
    let addresses = format!("{},{}", first.address(), second.address());
    arguments_at(database, &url.replace(&first.address().to_string(), &addresses))
}

/// The URL names the primary server and its standby, in either order, and no address is changed
/// after the failover.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hosts_find_the_new_primary_server_among_the_addresses_of_their_url() {
    let Some(mut primary) = Server::start_on_tcp(|_| String::new()) else { return };
    let database = primary.database();
    let standby = tokio::task::block_in_place(|| primary.standby());
    // The first address of the second host is that of a server that does not accept writes.
    let one = TestHost::start_with(&with_both(&database, &primary, &standby));
    let two = TestHost::join(&with_both(&database, &standby, &primary), one.admin_key());
    let shown = two.ready()["database"].as_str().unwrap();
    assert!(shown.contains(&format!("{},{}", standby.address(), primary.address())), "{shown}");
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 2 })).await;
    replicate_synchronously(&primary).await;
    let clients = [one.client(), two.client()];
    let mut ledger = Ledger::new();
    submit_all(&clients, 0..20, 200, &mut ledger).await;
    primary.kill();
    // Longer than a host waits before it connects again: it finds no server that accepts writes.
    tokio::time::sleep(Duration::from_secs(3)).await;
    standby.sql("SELECT pg_promote()");
    submit_all(&clients, 20..40, 200, &mut ledger).await;
    check(&clients, &ledger).await;
    let jobs = clients[0].health("play").await["jobs"].clone();
    assert_eq!(jobs["completed"], json!(ledger.len()), "{jobs}");
    // A host that starts now finds it, too.
    let three = TestHost::join(&with_both(&database, &primary, &standby), one.admin_key());
    assert_eq!(three.ready()["role"], "standby");
    drop((one, two, three));
    // The database was on it.
    drop(primary);
}

/// A submission through each host is refused for so long.
async fn refused_for(clients: &[Client], time: Duration) {
    let begun = Instant::now();
    loop {
        for client in clients {
            let refused = client.run("play", sleep(1, 0)).await;
            assert_eq!(refused.status, 503, "{refused:?}");
            assert!(refused.header("retry-after").is_some(), "{refused:?}");
        }
        if begun.elapsed() >= time {
            return;
        }
    }
}

/// A submission is refused while the processes of the server that wait for the standby are ended:
/// the server shows their commits, and would lose them with a failover to the standby.
async fn refused_while_waits_are_ended(client: &Client, primary: &Server) {
    let submitted = {
        let client = client.clone();
        tokio::spawn(async move { client.run("play", sleep(1, 0)).await })
    };
    while !submitted.is_finished() {
        primary.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE application_name = 'gristmill' AND wait_event = 'SyncRep'",
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let refused = submitted.await.unwrap();
    assert_eq!(refused.status, 503, "{refused:?}");
}

/// Each commit waits for the only synchronous standby, so nothing is acknowledged while it is away.
/// The hosts continue by themselves when it has returned, and when no commit needs it any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_are_refused_while_the_only_synchronous_standby_is_away() {
    let Some(primary) = Server::start_on_tcp(|_| String::new()) else { return };
    let database = primary.database();
    let with = arguments_at(&database, &database.url_at(primary.address(), PASSWORD));
    let mut one = TestHost::start_with(&with);
    let mut two = TestHost::join(&with, one.admin_key());
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 2 })).await;
    let mut standby = tokio::task::block_in_place(|| primary.standby());
    replicate_synchronously(&primary).await;
    let clients = [one.client(), two.client()];
    let mut ledger = Ledger::new();
    submit_all(&clients, 0..20, 200, &mut ledger).await;

    standby.kill();
    refused_while_waits_are_ended(&clients[0], &primary).await;
    // Longer than an active host may be silent.
    refused_for(&clients, Duration::from_secs(12)).await;
    tokio::task::block_in_place(|| standby.start_again());
    submit_all(&clients, 20..30, 200, &mut ledger).await;
    check(&clients, &ledger).await;

    standby.kill();
    refused_for(&clients, Duration::ZERO).await;
    primary.sql("ALTER SYSTEM RESET synchronous_standby_names");
    primary.sql("SELECT pg_reload_conf()");
    submit_all(&clients, 30..40, 200, &mut ledger).await;
    check(&clients, &ledger).await;
    for host in [&mut one, &mut two] {
        assert!(!host.has_ended(), "{}", host.log());
    }
    drop((one, two));
    drop(database);
}

/// With two standbys and `ANY 1`, each commit waits for either of them, so the loss of one stops
/// nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn commits_continue_while_one_of_two_synchronous_standbys_is_away() {
    let Some(primary) = Server::start_on_tcp(|_| String::new()) else { return };
    let database = primary.database();
    let with = arguments_at(&database, &database.url_at(primary.address(), PASSWORD));
    let one = TestHost::start_with(&with);
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 2 })).await;
    let mut standbys = tokio::task::block_in_place(|| [primary.standby(), primary.standby()]);
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'");
    primary.sql("SELECT pg_reload_conf()");
    eventually("two standbys", async || {
        let count = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'";
        (primary.sql(count) == "2").then_some(())
    })
    .await;
    let clients = [one.client()];
    let mut ledger = Ledger::new();
    for (from, standby) in (0..).step_by(5).zip(&mut standbys) {
        standby.kill();
        // No call succeeds in the patience of a test if commits wait for the standby that is away.
        submit_all(&clients, from..from + 5, 20, &mut ledger).await;
        check(&clients, &ledger).await;
        tokio::task::block_in_place(|| standby.start_again());
        eventually("the standby to return", async || {
            let count = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
            (primary.sql(count) == "2").then_some(())
        })
        .await;
    }
    for standby in &mut standbys {
        standby.kill();
    }
    refused_for(&clients, Duration::ZERO).await;
    drop(one);
    // The removal of the database would wait for a standby, too.
    primary.sql("ALTER SYSTEM RESET synchronous_standby_names");
    primary.sql("SELECT pg_reload_conf()");
    drop(database);
}

/// Nobody has kept the former primary server away, and hosts find it first. Its commits wait for a
/// standby that it does not have any more, so nothing is acknowledged there, and nothing is lost
/// once it is away.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_former_primary_server_that_returns_acknowledges_nothing() {
    let Some(mut primary) = Server::start_on_tcp(|_| String::new()) else { return };
    let database = primary.database();
    let standby = tokio::task::block_in_place(|| primary.standby());
    let with = with_both(&database, &primary, &standby);
    let mut one = TestHost::start_with(&with);
    let mut two = TestHost::join(&with, one.admin_key());
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 2 })).await;
    replicate_synchronously(&primary).await;
    let clients = [one.client(), two.client()];
    let mut ledger = Ledger::new();
    submit_all(&clients, 0..10, 200, &mut ledger).await;
    primary.kill();
    standby.sql("SELECT pg_promote()");
    submit_all(&clients, 10..20, 200, &mut ledger).await;
    check(&clients, &ledger).await;

    tokio::task::block_in_place(|| primary.start_again());
    standby.sql_in(
        &database.name,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE application_name = 'gristmill' AND datname = current_database()",
    );
    // Longer than an active host may be silent.
    let returned = Instant::now();
    while returned.elapsed() < Duration::from_secs(12) {
        for client in &clients {
            acknowledges_nothing(client, &ledger).await;
        }
    }
    let status = tokio::task::block_in_place(|| one.wait(PATIENCE));
    assert_eq!(status.code(), Some(1), "{}", one.log());
    assert!(one.log().contains("the database has lost commit"), "{}", one.log());
    assert!(!two.has_ended(), "{}", two.log());

    primary.kill();
    one.start_again();
    let clients = [one.client(), two.client()];
    submit_all(&clients, 20..25, 200, &mut ledger).await;
    check(&clients, &ledger).await;
    drop((one, two));
    drop(primary);
}

/// A host that ends does not answer.
async fn acknowledges_nothing(client: &Client, ledger: &Ledger) {
    let submitted = client.request(Method::POST, &client.path("play", "run"));
    let submitted = submitted.json(&json!({ "input": sleep(1, 0) }));
    if let Ok(answer) = client.try_send(submitted).await {
        assert_eq!(answer.status, 503, "{answer:?}");
    }
    // The newest job is missing on the former primary server.
    let (_, newest) = ledger.last_key_value().unwrap();
    let path = client.path("play", &format!("status/{newest}"));
    if let Ok(answer) = client.try_send(client.request(Method::GET, &path)).await {
        assert!(matches!(answer.status, 200 | 503), "{answer:?}");
    }
}
