//! The hosts of a database are replaced by those of another version while jobs run.
//!
//! `GRISTMILL_EARLIER` names the program of an earlier version, as `make rolling-upgrade` does.
//! Without it both versions are the binary under test, which shows only the order of the
//! replacement.

use std::path::PathBuf;

use gristmill_tests::{PATIENCE, Receiver, TestHost, binary, guests};
use rustix::process::Signal;
use serde_json::json;

use crate::hosts::{arguments, cluster, signal, until_active};
use crate::load::Load;
use crate::postgres::Database;

/// Asks a host to end, and waits for its end.
fn drain(host: &mut TestHost) {
    signal(host, Signal::TERM);
    let status = tokio::task::block_in_place(|| host.wait(PATIENCE));
    assert_eq!(status.code(), Some(0), "{}", host.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hosts_are_replaced_one_after_the_other_and_back_while_jobs_run() {
    let Some(database) = Database::new() else { return };
    let new = binary();
    let earlier = std::env::var_os("GRISTMILL_EARLIER").map_or_else(|| new.clone(), PathBuf::from);
    let receiver = Receiver::start(&["200 OK"]).await;
    let allowed = ["--webhook-allow".to_owned(), receiver.host()];
    let arguments = [&arguments(&database)[..], &allowed].concat();
    let mut one = TestHost::start_as(&earlier, &arguments);
    let mut two = TestHost::join_as(&earlier, &arguments, one.admin_key());
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 4 })).await;
    let load = Load::start(vec![one.client(), two.client()], &receiver.url("/hook"));
    load.progress(50).await;

    // The host that stands by, and then the active one, as the documents recommend.
    drain(&mut two);
    two.start_again_as(&new);
    assert_eq!(two.ready()["role"], "standby");
    load.use_hosts(vec![one.client(), two.client()]);
    load.progress(50).await;
    drain(&mut one);
    until_active(&two).await;
    load.progress(20).await;
    one.start_again_as(&new);
    load.use_hosts(vec![one.client(), two.client()]);
    load.progress(50).await;
    assert_eq!(cluster(&one.client()).await.len(), 2);

    // And back: the earlier version opens a database that the new one has changed.
    drain(&mut one);
    one.start_again_as(&earlier);
    load.use_hosts(vec![one.client(), two.client()]);
    load.progress(50).await;
    drain(&mut two);
    until_active(&one).await;
    load.progress(50).await;
    load.use_hosts(vec![one.client()]);
    let jobs = load.end(&receiver).await;
    println!("{jobs} jobs were seen through 4 replacements");
}
