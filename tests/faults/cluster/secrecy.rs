//! The network between two hosts: who listens there reads nothing, and its key can be replaced.

use std::fs;
use std::path::Path;

use gristmill_tests::{TestHost, eventually, guests};
use serde_json::json;

use crate::hosts::{arguments, cluster, cluster_address, sleep, until_known};
use crate::postgres::Database;
use crate::proxy::Proxy;

/// A relay sees no key, no input, no output and no path: neither of calls that a standby forwards,
/// nor of jobs that it runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_between_two_hosts_sees_no_word() {
    const WORD: &str = "swordfish-of-the-relay";
    let Some(database) = Database::new() else { return };
    let relay = Proxy::start().await;
    let mut of_first = arguments(&database);
    let advertised = relay.address().to_string();
    of_first
        .extend(["--cluster-advertise", &advertised, "--max-running-jobs", "1"].map(Into::into));
    let one = TestHost::start_with(&of_first);
    relay.set_target(cluster_address(&one));
    let two = TestHost::join(&arguments(&database), one.admin_key());
    until_known(&one.client(), 1).await;
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 8 })).await;
    let client = two.client();
    let mut jobs = vec![];
    eventually("jobs on the standby", async || {
        jobs.push(client.submit("play", sleep(2_000, WORD)).await);
        (cluster(&client).await[1]["running"].as_u64() >= Some(1)).then_some(())
    })
    .await;
    for job in jobs {
        let document = client.finished("play", &job).await;
        assert_eq!(document["output"]["echo"], WORD, "{document}");
    }
    let carried = relay.carried();
    assert!(carried.len() > 5_000, "{} bytes", carried.len());
    for word in [WORD, one.admin_key(), "authorization", "/v2/play", "play", "COMPLETED"] {
        let word = word.as_bytes();
        assert!(!carried.windows(word.len()).any(|seen| seen == word), "{word:?}");
    }
}

fn write_keys(file: &Path, keys: &[u8]) {
    let lines: String =
        keys.iter().map(|key| format!("{}\n", format!("{key:02x}").repeat(32))).collect();
    fs::write(file, lines).unwrap();
}

/// Both hosts forward a call, or answer it.
async fn both_answer(hosts: [&TestHost; 2]) {
    for host in hosts {
        let client = host.client();
        eventually("an answer through each host", async || {
            let answer = client.get("/v1/endpoints").await;
            (answer.status == 200).then_some(())
        })
        .await;
    }
    until_known(&hosts[0].client(), 1).await;
}

/// Each step is made on one host after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_of_the_hosts_is_replaced_without_stopping_all_of_them() {
    let Some(database) = Database::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let files = ["one", "two"].map(|name| folder.path().join(name));
    let with_key = |file: &Path| {
        let mut all = arguments(&database);
        all.extend(["--cluster-key".to_owned(), file.to_str().unwrap().to_owned()]);
        all
    };
    for file in &files {
        write_keys(file, &[1]);
    }
    let one = TestHost::start_with(&with_key(&files[0]));
    let two = TestHost::join(&with_key(&files[1]), one.admin_key());
    let mut hosts = [one, two];
    both_answer([&hosts[0], &hosts[1]]).await;
    for step in [&[1, 2][..], &[2, 1], &[2]] {
        for (at, file) in files.iter().enumerate() {
            write_keys(file, step);
            hosts[at].ask_to_end();
            tokio::task::block_in_place(|| hosts[at].start_again());
            both_answer([&hosts[0], &hosts[1]]).await;
        }
    }
    // A host with the former key alone is a stranger, whichever of the two is active.
    write_keys(&files[1], &[1]);
    hosts[1].ask_to_end();
    tokio::task::block_in_place(|| hosts[1].start_again());
    eventually("one host that answers, and one that reaches no other", async || {
        let [one, two] = [&hosts[0], &hosts[1]].map(TestHost::client);
        let mut statuses =
            [one.get("/v1/endpoints").await.status, two.get("/v1/endpoints").await.status];
        statuses.sort_unstable();
        (statuses == [200, 503]).then_some(())
    })
    .await;
}
