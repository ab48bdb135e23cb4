//! Ten thousand idle connections beside other work.

use std::time::Duration;

use gristmill_tests::{TestHost, Wire, eventually, guests};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::time::sleep;

use crate::memory;
use crate::pulse::Pulse;
use crate::scale::Scale;

const CONNECTIONS: u64 = 10_000;

/// Files that host and tests need besides these connections, including the other scenarios'.
const OTHER_FILES: u64 = 2_000;

/// The host's memory for one of these connections.
const CONNECTION_BYTES: u64 = 24 << 10;

/// The number of connections that this process and the host can have.
fn affordable() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let files = limit.maximum.unwrap_or(u64::MAX);
    let connections = CONNECTIONS.min(files.saturating_sub(OTHER_FILES));
    assert!(connections >= 1_000, "`ulimit -Hn` is {files}: too few for this test");
    println!("{connections} connections; `ulimit -Hn` is {files}");
    connections
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the machine for itself: `make faults` runs it after the other tests, `make overload` at full size"]
async fn idle_connections() {
    let scale = Scale::of_this_run();
    let connections = affordable();
    // Long enough to open them all, short enough to see them closed.
    let idle_wait = scale.lasts.as_secs() + 15;
    let idle_text = idle_wait.to_string();
    let host = TestHost::start_with(&["--idle-timeout", &idle_text]);
    let endpoint = host.deploy(&guests::echo(), "mill", json!({})).await;
    let pulse = Pulse::start(&host, &endpoint).await;
    let (idle, files) = (host.resident_memory(), memory::open_files(&host));

    let mut held = Vec::new();
    for number in 0..connections {
        let mut connection = Wire::connect(&host).await;
        // Half of them have sent nothing yet, and half have made a call and stay.
        if number % 2 == 0 {
            connection.send_head(&host, "GET", "/v2/mill/health", "").await;
            let answer = connection.answer(gristmill_tests::PATIENCE).await;
            assert_eq!(answer.map(|answer| answer.status), Some(200), "connection {number}");
        }
        held.push(connection);
    }
    eventually("all connections to be accepted", async || {
        (memory::open_files(&host) as u64 >= files as u64 + connections).then_some(())
    })
    .await;
    let each = host.resident_memory().saturating_sub(idle) / connections;
    println!("{each} B of memory for each idle connection");
    // The subject: the time for which the idle connections stay.
    sleep(scale.lasts).await;
    pulse.finish().await;

    // The clients do not close them; the host does.
    sleep(Duration::from_secs(idle_wait).saturating_sub(scale.lasts)).await;
    eventually("all of them to be closed", async || {
        (memory::open_files(&host) <= files + 8).then_some(())
    })
    .await;
    let fresh = host.client().run_sync(&endpoint, "", json!({ "grain": 1 })).await.ok();
    assert_eq!(fresh["status"], "COMPLETED", "{fresh}");
    let bound = connections * CONNECTION_BYTES + memory::SLACK_BYTES;
    memory::peak_is_within(&host, idle, bound);
}
