//! Two hundred bodies of 20 MB at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_tests::{PATIENCE, TestHost, Wire, WireAnswer, guests, next_answer};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::memory::{self, MIB};
use crate::pulse::Pulse;
use crate::scale::Scale;

/// A body of the maximum size.
const BODY_BYTES: usize = 20 << 20;

/// All bodies that are being read, together.
const BODIES_BYTES: u64 = 256 * MIB;

/// Concurrent bodies of one key: it leaves a quarter of the memory to other keys.
const AT_ONE_TIME: usize = 9;

/// The same when some have paused: then they hold only the bytes that were sent.
const STOPPED_AT_ONE_TIME: usize = 12;

/// A call waits for memory for 10 s; a body may pause for 30 s.
const ANSWER_WAIT: Duration = Duration::from_secs(120);

const WORKERS: u64 = 2;
const SANDBOX_MIB: u64 = 128;

const BEGIN: &[u8] = b"{\"input\":{\"op\":\"echo\",\"ignored\":\"";
const END: &[u8] = b"\"}}";

/// Sends a body, the last MiB of it once `go` is true, and waits for the answer.
fn send(host: &Arc<TestHost>, mut go: watch::Receiver<bool>) -> JoinHandle<WireAnswer> {
    let host = host.clone();
    tokio::spawn(async move {
        let mut connection = Wire::connect(&host).await;
        let headers = format!("content-type: application/json\r\ncontent-length: {BODY_BYTES}\r\n");
        let path = "/v2/mill/runsync?wait=60000";
        connection.send_head(&host, "POST", path, &headers).await;
        let Wire { mut reader, mut writer } = connection;
        let writing = tokio::spawn(async move {
            let piece = vec![b'x'; 64 << 10];
            let filling = BODY_BYTES - BEGIN.len() - END.len();
            let mut sent = 0;
            writer.write_all(BEGIN).await?;
            while sent < filling {
                let part = piece.len().min(filling - sent);
                if sent + part > filling - (1 << 20) {
                    let _ = go.wait_for(|go| *go).await;
                }
                writer.write_all(&piece[..part]).await?;
                sent += part;
            }
            writer.write_all(END).await?;
            // Kept open until it is answered.
            std::future::pending::<std::io::Result<()>>().await
        });
        let answer = timeout(ANSWER_WAIT, next_answer(&mut reader)).await.ok().flatten();
        writing.abort();
        answer.expect("an answer, before the connection ends")
    })
}

/// Number of accepted bodies; the others must have a time to try again.
async fn taken(calls: Vec<JoinHandle<WireAnswer>>) -> usize {
    let mut taken = 0;
    for call in calls {
        let answer = call.await.unwrap();
        if answer.status == 200 {
            assert!(answer.body.contains("\"COMPLETED\""), "{answer:?}");
            taken += 1;
        } else {
            assert_eq!(answer.status, 503, "{answer:?}");
            let seconds = answer.header("retry-after").and_then(|text| text.parse::<u64>().ok());
            assert!(seconds.is_some_and(|seconds| seconds >= 1), "{answer:?}");
            assert!(answer.body.contains("\"unavailable\""), "{answer:?}");
        }
    }
    taken
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the machine for itself: `make faults` runs it after the other tests, `make overload` at full size"]
async fn large_bodies_at_once() {
    let scale = Scale::of_this_run();
    let host = Arc::new(TestHost::start());
    let settings = json!({ "workersMax": WORKERS, "memoryMib": SANDBOX_MIB });
    let endpoint = host.deploy(&guests::playground(), "mill", settings).await;
    host.client().run_sync(&endpoint, "", json!({ "op": "echo" })).await.ok();
    let idle = host.resident_memory();
    let pulse = Pulse::start(&host, &endpoint).await;
    let count = scale.choose(40, 200);

    // Bodies that pause before their end keep the bytes that were sent; all others are refused.
    let (go, wait) = watch::channel(false);
    let calls: Vec<_> = (0..count).map(|_| send(&host, wait.clone())).collect();
    let refused = async {
        while calls.iter().filter(|call| call.is_finished()).count() < count - STOPPED_AT_ONE_TIME {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, refused).await.expect("what has no share is refused in time");
    let held = host.resident_memory() - idle;
    println!("{} MiB while bodies were held", held / MIB);
    go.send(true).unwrap();
    let stopped = taken(calls).await;
    assert!((AT_ONE_TIME - 1..=STOPPED_AT_ONE_TIME).contains(&stopped), "{stopped} were taken");

    // And all at once at full speed.
    let calls: Vec<_> = (0..count).map(|_| send(&host, wait.clone())).collect();
    let at_once = taken(calls).await;
    println!("{at_once} of {count} bodies were taken, the others told to come again");
    assert!(at_once >= AT_ONE_TIME);
    pulse.finish().await;
    let last = send(&host, wait.clone()).await.unwrap();
    assert_eq!(last.status, 200, "{last:?}");
    // A running job has its input twice: in the host, and in the sandbox.
    let running = WORKERS * (SANDBOX_MIB + 20) * MIB;
    let bound = BODIES_BYTES + memory::STORE_BYTES + running + memory::SLACK_BYTES;
    memory::peak_is_within(&host, idle, bound);
}

/// Calls that announce a body and send nearly nothing delay no other call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the machine for itself: `make faults` runs it after the other tests, `make overload` at full size"]
async fn bodies_that_were_only_announced_hold_nothing() {
    let host = TestHost::start();
    let endpoint = host.deploy(&guests::playground(), "mill", json!({})).await;
    let chunked = "transfer-encoding: chunked\r\n".to_owned();
    let announced = format!("content-length: {BODY_BYTES}\r\n");
    let mut held = vec![];
    for number in 0..90 {
        let mut connection = Wire::connect(&host).await;
        let headers = if number % 3 == 0 { &announced } else { &chunked };
        connection.send_head(&host, "POST", "/v2/mill/runsync", headers).await;
        if number % 3 == 1 {
            connection.writer.write_all(b"100\r\n{\"input\":{\"").await.unwrap();
        }
        held.push(connection);
    }
    let begun = Instant::now();
    let input = json!({ "op": "echo", "ignored": "x".repeat(1 << 20) });
    for _ in 0..3 {
        host.client().run_sync(&endpoint, "", input.clone()).await.ok();
    }
    // If announced bytes were reserved, the first call would wait for ten seconds and be refused.
    let took = begun.elapsed();
    println!("three bodies of a MiB took {took:?}");
    if Scale::of_this_run().is_full {
        assert!(took < Duration::from_millis(9_500), "{took:?} for three bodies of a MiB");
    }
    drop(held);
}
