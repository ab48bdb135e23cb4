//! Bodies that arrive a byte at a time, or stop.

use std::time::{Duration, Instant};

use gristmill_tests::{TestHost, Wire, guests, next_answer};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;

use crate::memory;
use crate::pulse::Pulse;
use crate::scale::Scale;

/// A body may be too slow for 30 s; then it is refused.
const REFUSED_WITHIN: Duration = Duration::from_secs(60);

/// Memory of a connection besides its received bytes.
const CONNECTION_BYTES: u64 = 24 << 10;

/// Announces a body of this length and returns the host's answer, and its time.
async fn trickle(host: &TestHost, path: &str, length: usize, pause: Option<Duration>) -> Duration {
    let mut connection = Wire::connect(host).await;
    let headers = format!("content-type: application/json\r\ncontent-length: {length}\r\n");
    connection.send_head(host, "POST", path, &headers).await;
    connection.writer.write_all(b"{\"input\":{\"text\":\"").await.unwrap();
    let began = Instant::now();
    let Wire { mut reader, mut writer } = connection;
    let writing = tokio::spawn(async move {
        if let Some(pause) = pause {
            while writer.write_all(b"x").await.is_ok() {
                sleep(pause).await;
            }
        } else {
            // The connection stays open, and nothing comes.
            std::future::pending::<()>().await;
        }
    });
    let answer = timeout(REFUSED_WITHIN, next_answer(&mut reader)).await.ok().flatten();
    writing.abort();
    let answer = answer.expect("a body that does not come is refused");
    assert_eq!(answer.status, 408, "{answer:?}");
    assert!(answer.body.contains("\"request_timeout\""), "{answer:?}");
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the machine for itself: `make faults` runs it after the other tests, `make overload` at full size"]
async fn bodies_that_come_slowly() {
    let scale = Scale::of_this_run();
    let host = std::sync::Arc::new(TestHost::start());
    let endpoint = host.deploy(&guests::echo(), "mill", json!({ "workersMax": 2 })).await;
    host.client().run_sync(&endpoint, "", json!({})).await.ok();
    let idle = host.resident_memory();
    let pulse = Pulse::start(&host, &endpoint).await;

    // Half of the cap on concurrent calls.
    let each = scale.choose(50, 100);
    let calls = TaskTracker::new();
    let mut waits = vec![];
    for number in 0..2 * each {
        let host = host.clone();
        // None is large enough to need a share of the bound on large bodies.
        let pause = (number < each).then_some(Duration::from_millis(100));
        let path = if number % 2 == 0 { "/v2/mill/run" } else { "/v2/mill/runsync" };
        waits.push(calls.spawn(async move { trickle(&host, path, 60_000, pause).await }));
    }
    let mut longest = Duration::ZERO;
    for wait in waits {
        longest = longest.max(wait.await.unwrap());
    }
    println!("{} slow bodies were refused with 408, the last after {longest:.1?}", 2 * each);
    pulse.finish().await;
    let bound = 2 * each * (CONNECTION_BYTES + 60_000) + memory::STORE_BYTES;
    memory::peak_is_within(&host, idle, bound + memory::SLACK_BYTES);
}
