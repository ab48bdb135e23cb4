//! The database fails over to a standby of PostgreSQL.

use std::slice;

use gristmill_tests::{PATIENCE, TestHost, eventually, guests};
use serde_json::json;

use crate::hosts::{Ledger, arguments_at, check, submit_all, until_active};
use crate::mistakes::refusal;
use crate::postgres::Server;
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

/// A standby that had not received the newest commits: the active host, whose memory has them, ends, and the
/// next one continues with everything that the database has.
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
