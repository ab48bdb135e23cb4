//! Space runs out, a write fails, a sync fails, under a real host with load: it stops by itself and
//! says why, and once the disk works again a start finds all that was acknowledged.

use std::ffi::OsStr;
use std::time::Duration;

use gristmill_tests::{Client, TestHost, eventually, guests};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const CLIENTS: u64 = 8;
const STOPS_WITHIN: Duration = Duration::from_secs(60);

/// Large enough for the journal to be taken over by the database all the time.
const TEXT_BYTES: usize = 12_000;

async fn host() -> TestHost {
    let host = TestHost::start_with(&["--journal-mib", "16"]);
    host.deploy(&guests::echo(), "faulty", json!({ "workersMax": 4 })).await;
    host
}

fn input(number: u64) -> Value {
    json!({ "number": number, "text": "x".repeat(TEXT_BYTES) })
}

/// Submits jobs until the host does not answer any more. Answers with those that were acknowledged,
/// and whether their result was.
async fn use_it(client: Client, from: u64) -> Vec<(String, u64, bool)> {
    let mut acknowledged = Vec::new();
    for number in from.. {
        let call = if number % 2 == 0 { "run" } else { "runsync" };
        let path = client.path("faulty", call);
        let request = client.request(reqwest::Method::POST, &path);
        let sent = client.try_send(request.json(&json!({ "input": input(number) }))).await;
        let Ok(answer) = sent else { return acknowledged };
        if answer.status == 200 {
            let document = answer.json();
            let has_ended = document["status"] == "COMPLETED";
            acknowledged.push((document["id"].as_str().unwrap().to_owned(), number, has_ended));
        } else {
            assert!(answer.status >= 500, "{answer:?}");
        }
    }
    acknowledged
}

async fn survives(fault: &str, says: &str) {
    let mut host = host().await;
    let dir = host.data_dir().canonicalize().unwrap();
    host.start_again_in(&[
        ("LD_PRELOAD", crate::shim().as_os_str()),
        ("DISK_DIR", dir.as_os_str()),
        ("DISK_FAULT", OsStr::new(fault)),
    ]);
    let mut clients = JoinSet::new();
    for n in 0..CLIENTS {
        clients.spawn(use_it(host.client(), n * 1_000_000));
    }
    let status = tokio::task::block_in_place(|| host.wait(STOPS_WITHIN));
    assert_eq!(status.code(), Some(1), "{fault}: {status}");
    let log = host.log();
    assert!(log.contains(says), "{fault}: the host said: {log}");
    assert!(!log.contains("panicked"), "{fault}: {log}");
    let acknowledged = clients.join_all().await.concat();
    assert!(!acknowledged.is_empty(), "{fault} came before the first job");

    host.start_again();
    let client = host.client();
    let ended = acknowledged.iter().filter(|(_, _, has_ended)| *has_ended).count();
    for (job, number, has_ended) in &acknowledged {
        let document = if *has_ended {
            client.status("faulty", job).await.ok()
        } else {
            client.finished("faulty", job).await
        };
        assert_eq!(document["status"], "COMPLETED", "{fault}: {document}");
        assert_eq!(document["output"], input(*number), "{fault}: {job}");
    }
    println!("{fault}: {status}, {} jobs acknowledged, {ended} ended", acknowledged.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_space_in_the_journal() {
    survives(&format!("write:{}:200:journal/", libc::ENOSPC), "No space left on device").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_cannot_be_written() {
    survives(&format!("write:{}:150:journal/", libc::EIO), "Input/output error").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_cannot_be_synced() {
    survives(&format!("sync:{}:60:journal/", libc::EIO), "Input/output error").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_space_in_the_database() {
    survives(&format!("write:{}:300:store.db", libc::ENOSPC), "database or disk is full").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_database_cannot_be_synced() {
    // A start syncs the tables and their log a few times.
    survives(&format!("sync:{}:10:store.db", libc::EIO), "disk I/O error").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_space_for_a_component() {
    let mut host = host().await;
    let dir = host.data_dir().canonicalize().unwrap();
    let fault = format!("write:{}:1:components/", libc::ENOSPC);
    host.start_again_in(&[
        ("LD_PRELOAD", crate::shim().as_os_str()),
        ("DISK_DIR", dir.as_os_str()),
        ("DISK_FAULT", OsStr::new(&fault)),
    ]);
    let component = std::fs::read(guests::word_count()).unwrap();
    let answer = host.upload("words:latest", component.clone()).await;
    assert_eq!(answer.status, 500, "{answer:?}");
    assert!(host.log().contains("No space left on device"), "{}", host.log());
    let document = host.client().finish("faulty", input(1)).await;
    assert_eq!(document["status"], "COMPLETED", "jobs go on: {document}");
    host.start_again();
    let uploaded = eventually("the upload passes", async || {
        let answer = host.upload("words:latest", component.clone()).await;
        (answer.status < 300).then_some(answer)
    });
    uploaded.await;
}
