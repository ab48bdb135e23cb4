//! Callers without a key who flood a host that stands by: the hosts keep each other, the jobs that
//! run there, and their files.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use gristmill_tests::http2::{Event, HEADER_TABLE_SIZE, Http2};
use gristmill_tests::{TestHost, eventually, guests};
use serde_json::json;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::hosts::{arguments, cluster, first, sleep, until_known};
use crate::postgres::Database;

/// Connections of each address, and the calls of each.
const CONNECTIONS: usize = 16;
const CALLS: u32 = 100;

/// Addresses of the flood.
const ADDRESSES: u8 = 10;

/// Files of a host beside the connections of its callers: some dozens for itself, and those to
/// other hosts.
const FILES_MAX: usize = 150;

fn files(host: &TestHost) -> usize {
    fs::read_dir(format!("/proc/{}/fd", host.pid())).unwrap().count()
}

/// A connection of this address, whose calls show no key.
async fn connect(address: u8, host: &TestHost) -> Http2<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((IpAddr::from(Ipv4Addr::new(127, 0, 0, address)), 0).into()).unwrap();
    let stream = socket.connect(host.address().parse().unwrap()).await.unwrap();
    Http2::begin_with(stream, &[(HEADER_TABLE_SIZE, 0)]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_without_keys_at_a_standby_costs_no_link_no_job_and_few_files() {
    let Some(database) = Database::new() else { return };
    let one = first(&database);
    let mut with_sandboxes = arguments(&database);
    with_sandboxes.extend(["--max-running-jobs", "4"].map(str::to_owned));
    let two = TestHost::join(&with_sandboxes, one.admin_key());
    until_known(&one.client(), 1).await;
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 40 })).await;
    let client = one.client();
    let mut jobs = vec![];
    eventually("jobs on the standby", async || {
        jobs.push(client.submit("play", sleep(20_000, 1)).await);
        (cluster(&client).await[1]["running"].as_u64() >= Some(2)).then_some(())
    })
    .await;

    let mut peaks = [0; 2];
    for _ in 0..2 {
        let mut flood = JoinSet::new();
        let mut connections = vec![];
        for address in 10..10 + ADDRESSES {
            for _ in 0..CONNECTIONS {
                connections.push(connect(address, &two).await);
            }
        }
        let opened = connections.len();
        for mut connection in connections {
            flood.spawn(async move {
                connection.flood(1, CALLS, "/v1/endpoints", 0).await;
                let mut answers = 0;
                // The host may close the connection in place of some answers.
                while answers < CALLS {
                    let event = timeout(Duration::from_secs(20), connection.next()).await;
                    match event.expect("an answer, or the end of the connection") {
                        Event::Status { status, .. } => assert_ne!(status, 200),
                        Event::Reset { .. } => {}
                        Event::GoAway { .. } | Event::Closed => return,
                    }
                    answers += 1;
                }
            });
        }
        while !flood.is_empty() {
            // The subject: the files of both hosts while the flood takes place.
            peaks[0] = peaks[0].max(files(&one));
            peaks[1] = peaks[1].max(files(&two).saturating_sub(opened));
            // Callers with a key are served meanwhile.
            timeout(Duration::from_secs(20), two.client().get("/v1/endpoints")).await.unwrap().ok();
            while flood.try_join_next().transpose().unwrap().is_some() {}
        }
    }
    assert!(peaks.iter().all(|files| *files <= FILES_MAX), "{peaks:?} files");
    for job in jobs {
        let document = client.finished("play", &job).await;
        assert_eq!(document["status"], "COMPLETED", "{document}");
        assert_eq!(document["retries"].as_u64().unwrap_or(0), 0, "{document}");
    }
    for host in [&one, &two] {
        assert!(!host.log().contains("runs no jobs for this one any more"), "{}", host.log());
        assert!(!host.log().contains("is lost"), "{}", host.log());
    }
}
