//! Clients that request large answers and then hardly read them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_tests::{TestHost, Wire, guests};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::time::{sleep, timeout};

use crate::memory::{self, MIB};
use crate::pulse::Pulse;
use crate::scale::Scale;

/// An answer that is not read for 30 s, or is read too slowly, is given up.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(60);

/// Size of the requested outputs.
const OUTPUT_BYTES: u64 = 16 * MIB;
const CHUNK_BYTES: u64 = MIB / 2;
const CHUNKS: u64 = 32;

/// Most bytes that wait for slow clients.
const UNTAKEN_BYTES: u64 = 256 * MIB;

/// Bytes in a connection's own buffers.
const PIECE_BYTES: u64 = MIB;

/// Bytes of a stream that are read at one time.
const PAGE_BYTES: u64 = 8 * MIB;

/// Sends a request, and reads the beginning of the answer; `None` when the host has no room for it.
async fn begin_to_read(host: &TestHost, path: &str, headers: &str) -> Option<Wire> {
    let mut connection = Wire::connect(host).await;
    connection.send_head(host, "GET", path, headers).await;
    let mut piece = [0; 1 << 10];
    let read = timeout(GIVEN_UP_WITHIN, connection.reader.read(&mut piece)).await;
    let text = String::from_utf8_lossy(&piece[..read.expect("the answer begins").unwrap()]);
    if text.starts_with("HTTP/1.1 503 ") {
        assert!(text.contains("retry-after: 2") && text.contains("large answers"), "{text}");
        return None;
    }
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    Some(connection)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the machine for itself: `make faults` runs it after the other tests, `make overload` at full size"]
async fn answers_that_are_read_slowly() {
    let scale = Scale::of_this_run();
    let host = Arc::new(TestHost::start());
    let endpoint = host.deploy(&guests::playground(), "mill", json!({ "workersMax": 2 })).await;
    let client = host.client();
    let each = scale.choose(12, 100);
    // Each reader has its own output, so that no cache serves it.
    let mut outputs = vec![];
    for _ in 0..each {
        let output = json!({ "op": "output", "bytes": OUTPUT_BYTES });
        outputs.push(client.submit(&endpoint, output).await);
    }
    for output in &outputs {
        client.until(&endpoint, output, "COMPLETED").await;
    }
    let chunks = json!({ "op": "chunk", "count": CHUNKS, "bytes": CHUNK_BYTES });
    let stream = client.submit(&endpoint, chunks).await;
    client.until(&endpoint, &stream, "COMPLETED").await;
    let pulse = Pulse::start(&host, &endpoint).await;
    let (idle, files) = (host.resident_memory(), memory::open_files(&host));

    let page = format!("/v2/{endpoint}/stream/{stream}?from=0");
    let mut readers = vec![];
    for output in &outputs {
        let status = format!("/v2/{endpoint}/status/{output}");
        readers.extend(begin_to_read(&host, &status, "").await);
        readers.extend(begin_to_read(&host, &page, "").await);
        readers.extend(begin_to_read(&host, &page, "accept: text/event-stream\r\n").await);
    }
    let began = Instant::now();
    let mut held = host.resident_memory();
    while memory::open_files(&host) > files + 8 {
        assert!(began.elapsed() < GIVEN_UP_WITHIN, "unread answers are kept");
        sleep(Duration::from_secs(1)).await;
        // 1 KiB per second. Bytes in the kernel can be read after the end, too.
        for connection in &readers {
            let _ = connection.reader.try_read(&mut [0; 1 << 10]);
        }
        held = held.max(host.resident_memory());
    }
    let (taken, all) = (readers.len(), 3 * each);
    println!(
        "of {all} slow readers {taken} were answered, and all disconnected after {:.1?}",
        began.elapsed()
    );
    println!("resident at most: {} MiB", held / MIB);
    pulse.finish().await;
    let whole = client.status(&endpoint, &outputs[0]).await.ok();
    assert_eq!(whole["output"].as_str().map(str::len), usize::try_from(OUTPUT_BYTES).ok());
    // Waiting answers, answers in preparation, and the pieces in connections.
    let made = 4 * (OUTPUT_BYTES + PAGE_BYTES);
    let bound = UNTAKEN_BYTES + made + readers.len() as u64 * PIECE_BYTES;
    memory::peak_is_within(&host, idle, bound + memory::STORE_BYTES + memory::SLACK_BYTES);
}
