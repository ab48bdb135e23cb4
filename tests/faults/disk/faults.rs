//! A write or a sync fails under a real host with load: the host stops by itself with a reason, and
//! once the disk works again a start finds everything that was acknowledged. Without space the host
//! waits, refuses new work, and continues without a restart once there is space.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gristmill_tests::{Client, TestHost, disk_shim, eventually, guests};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const CLIENTS: u64 = 8;
const STOPS_WITHIN: Duration = Duration::from_secs(60);

/// Large enough for constant checkpoints of the journal.
const TEXT_BYTES: usize = 12_000;

async fn host() -> TestHost {
    let host = TestHost::start_with(&["--journal-mib", "16"]);
    host.deploy(&guests::echo(), "faulty", json!({ "workersMax": 4 })).await;
    host
}

fn input(number: u64) -> Value {
    json!({ "number": number, "text": "x".repeat(TEXT_BYTES) })
}

/// Submits jobs until the host does not answer any more. Returns the acknowledged ones, and whether
/// their result was acknowledged.
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
        ("LD_PRELOAD", disk_shim().as_os_str()),
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

/// Submits jobs until `is_over`. Returns the acknowledged ones.
async fn use_it_until(client: Client, from: u64, is_over: Arc<AtomicBool>) -> Vec<(String, u64)> {
    let mut acknowledged = Vec::new();
    for number in from.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let answer = client.run("faulty", input(number)).await;
        if answer.status == 200 {
            acknowledged.push((answer.json()["id"].as_str().unwrap().to_owned(), number));
        } else {
            let (status, document) = (answer.status, answer.json());
            let is_full = status == 503 && document["code"] == "disk_full";
            assert!(is_full || status == 429, "{answer:?}");
            assert!(answer.header("retry-after").is_some(), "{answer:?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    acknowledged
}

/// Writes to a part of the data directory find no space from the `nth` on: the host logs it,
/// continues to answer, and takes new work once there is space.
async fn waits_for_space(part: &str, nth: u64, says: &str) {
    let mut host = host().await;
    let dir = host.data_dir().canonicalize().unwrap();
    let is_full = host.scratch().canonicalize().unwrap().join("is-full");
    std::fs::write(&is_full, "").unwrap();
    let fault = format!("write:{}:{nth}:{part}", libc::ENOSPC);
    host.start_again_in(&[
        ("LD_PRELOAD", disk_shim().as_os_str()),
        ("DISK_DIR", dir.as_os_str()),
        ("DISK_FAULT", OsStr::new(&fault)),
        ("DISK_FAULT_WHILE", is_full.as_os_str()),
    ]);
    let (client, is_over) = (host.client(), Arc::new(AtomicBool::new(false)));
    let mut clients = JoinSet::new();
    for n in 0..CLIENTS {
        clients.spawn(use_it_until(host.client(), n * 1_000_000, is_over.clone()));
    }
    eventually("the host waits for space", async || host.log().contains(says).then_some(())).await;
    eventually("new work is refused", async || {
        let refused = client.run("faulty", input(1)).await;
        (refused.json()["code"] == "disk_full").then_some(())
    })
    .await;
    client.health("faulty").await;
    std::fs::remove_file(&is_full).unwrap();
    let taken = eventually("new work is taken", async || {
        let answer = client.run("faulty", input(2)).await;
        (answer.status == 200).then(|| answer.json())
    });
    let taken = taken.await["id"].as_str().unwrap().to_owned();
    is_over.store(true, Ordering::Relaxed);
    let mut acknowledged = clients.join_all().await.concat();
    acknowledged.push((taken, 2));
    for restarts in 0..2 {
        let client = host.client();
        for (job, number) in &acknowledged {
            let document = client.finished("faulty", job).await;
            assert_eq!(document["status"], "COMPLETED", "{document}");
            assert_eq!(document["output"], input(*number), "{job}");
        }
        if restarts == 0 {
            host.start_again();
        }
    }
    assert!(!host.log().contains("panicked"), "{}", host.log());
    println!("{fault}: {} jobs acknowledged", acknowledged.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_space_in_the_journal() {
    waits_for_space("journal/", 200, "the journal waits for space").await;
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
    waits_for_space("store.db", 300, "the database waits for space").await;
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
        ("LD_PRELOAD", disk_shim().as_os_str()),
        ("DISK_DIR", dir.as_os_str()),
        ("DISK_FAULT", OsStr::new(&fault)),
    ]);
    let component = std::fs::read(guests::word_count()).unwrap();
    let answer = host.upload("words:latest", component.clone()).await;
    assert_eq!((answer.status, &answer.json()["code"]), (503, &"disk_full".into()), "{answer:?}");
    let document = host.client().finish("faulty", input(1)).await;
    assert_eq!(document["status"], "COMPLETED", "jobs go on: {document}");
    host.start_again();
    let uploaded = eventually("the upload passes", async || {
        let answer = host.upload("words:latest", component.clone()).await;
        (answer.status < 300).then_some(answer)
    });
    uploaded.await;
}
