//! Streams far larger than the host's memory: the handler waits for the disk, readers have
//! different speeds, and neither costs the host more than its buffers.

use std::time::{Duration, Instant};

use gristmill_tests::{Client, TestHost, Wire, eventually, guests};
use serde_json::json;
use tokio::io::AsyncReadExt as _;

/// The sum of all buffers and caches: 64 MiB of pending writes, 96 MiB of caches, SQLite's 64 MiB,
/// some answers of 8 MiB, and the allocator's reserve.
const HOST_BYTES_MAX: u64 = 600 << 20;

/// Reads the whole stream page by page. Returns the number of chunks and of the letters `x` in
/// them.
async fn read_all(client: &Client, endpoint: &str, job: &str, query: &str) -> (u64, u64) {
    let (mut next, mut letters) = (0, 0);
    loop {
        let from = if query.is_empty() { String::new() } else { format!("?{query}={next}") };
        let answer = client.stream(endpoint, &format!("{job}{from}")).await;
        assert_eq!(answer.status, 200, "after {next} chunks");
        let upto: u64 = answer.header("x-stream-next").unwrap().parse().unwrap();
        let found = answer.text.bytes().filter(|byte| *byte == b'x').count() as u64;
        // The key `stream_index` of each chunk has one, too.
        letters += found - (upto - next);
        next = upto;
        match answer.header("x-job-status") {
            Some("COMPLETED") => return (next, letters),
            Some("IN_QUEUE" | "IN_PROGRESS") => {}
            other => panic!("{other:?} after {next} chunks"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gigabyte_passes_through_a_bounded_host() {
    const CHUNKS: u64 = 1_024;
    const BYTES: u64 = (1 << 20) - 2;
    let host = TestHost::start();
    let endpoint = host.deploy(&guests::playground(), "big", json!({})).await;
    let client = host.client();
    let started = Instant::now();
    let input = json!({ "op": "chunk", "count": CHUNKS, "bytes": BYTES });
    let job = client.submit(&endpoint, input).await;
    // One reader that reads as fast as it can, one that reads the stream again, and one that never
    // reads a byte of its answer.
    let mut idle = Wire::connect(&host).await;
    let path = format!("/v2/big/stream/{job}?from=0");
    idle.send_head(&host, "GET", &path, "accept: text/event-stream\r\n").await;
    let (drained, replayed) = tokio::join!(
        read_all(&client, &endpoint, &job, ""),
        read_all(&client, &endpoint, &job, "from"),
    );
    assert_eq!(drained, (CHUNKS, CHUNKS * BYTES));
    assert_eq!(replayed, (CHUNKS, CHUNKS * BYTES));
    let peak = host.peak_memory();
    println!("1 GiB read twice in {:.1?}; peak memory {} MiB", started.elapsed(), peak >> 20);
    assert!(peak < HOST_BYTES_MAX, "{} MiB", peak >> 20);
    let mut first = [0; 15];
    idle.reader.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    // The list of all chunks would be too large an output; they can still be read.
    assert!(client.status(&endpoint, &job).await.ok().get("output").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_chunks_arrive_in_order_with_and_without_a_reader() {
    const CHUNKS: u64 = 100_000;
    let host = TestHost::start();
    let endpoint = host.deploy(&guests::playground(), "many", json!({})).await;
    let client = host.client();
    let started = Instant::now();
    let job = client.submit(&endpoint, json!({ "op": "stream", "count": CHUNKS })).await;
    // No reader exists, and the handler does not wait for one.
    let done = eventually("the job to end", async || {
        let document = client.status(&endpoint, &job).await.ok();
        (document["status"] == "COMPLETED").then_some(document)
    })
    .await;
    println!("{CHUNKS} chunks written in {} ms", done["executionTime"]);
    let readers = (0..4).map(|_| {
        let (client, endpoint, job) = (client.clone(), endpoint.clone(), job.clone());
        async move {
            let mut next = 0;
            while next < CHUNKS {
                let page = client.stream(&endpoint, &format!("{job}?from={next}")).await.ok();
                for chunk in page.as_array().unwrap() {
                    assert_eq!(
                        (&chunk["output"]["i"], &chunk["metrics"]["stream_index"]),
                        (&json!(next), &json!(next))
                    );
                    next += 1;
                }
            }
        }
    });
    futures::future::join_all(readers).await;
    println!("and read four times after {:.1?}", started.elapsed());
    assert_eq!(done["output"].as_array().map(Vec::len), Some(100_000));
    assert!(host.peak_memory() < HOST_BYTES_MAX, "{} MiB", host.peak_memory() >> 20);
}

/// A page has up to 8 MB. Without a bound, these readers would take 3 GiB.
#[tokio::test(flavor = "multi_thread")]
async fn readers_that_never_read_share_the_memory_of_pages() {
    let host = TestHost::start();
    let endpoint = host.deploy(&guests::playground(), "unread", json!({})).await;
    let client = host.client();
    let input = json!({ "op": "chunk", "count": 30, "bytes": 900_000 });
    let job = client.submit(&endpoint, input).await;
    client.until(&endpoint, &job, "COMPLETED").await;
    let readers = (0..200).map(async |number| {
        let form = ["text/event-stream", "application/json"][number % 2];
        let mut reader = Wire::connect(&host).await;
        let path = format!("/v2/{endpoint}/stream/{job}?from=0");
        reader.send_head(&host, "GET", &path, &format!("accept: {form}\r\n")).await;
        // Nothing, if the host has closed the connection for the sake of other readers.
        let mut status = [0; 12];
        let is_answered = reader.reader.read_exact(&mut status).await.is_ok();
        (is_answered.then_some(status), reader)
    });
    let readers = futures::future::join_all(readers).await;
    let answers = |expected: &[u8; 12]| {
        readers.iter().filter(|(status, _)| status.as_ref() == Some(expected)).count()
    };
    let (served, refused) = (answers(b"HTTP/1.1 200"), answers(b"HTTP/1.1 503"));
    println!("{served} served, {refused} refused; peak {} MiB", host.peak_memory() >> 20);
    assert!(served > 0 && host.peak_memory() < HOST_BYTES_MAX, "{}", host.peak_memory() >> 20);
    // The memory returns, with the readers or before.
    drop(readers);
    eventually("a page to be served", async || {
        let answer = client.stream(&endpoint, &format!("{job}?from=0")).await;
        (answer.status == 200).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_reader_delays_no_other_call() {
    let host = TestHost::start();
    let endpoint = host.deploy(&guests::playground(), "slow", json!({})).await;
    let client = host.client();
    let input = json!({ "op": "chunk", "count": 64, "bytes": 1_000_000 });
    let job = client.submit(&endpoint, input).await;
    let mut slow = Wire::connect(&host).await;
    let headers = "accept: text/event-stream\r\nconnection: close\r\n";
    slow.send_head(&host, "GET", &format!("/v2/slow/stream/{job}"), headers).await;
    let mut text = vec![0; 100_000];
    slow.reader.read_exact(&mut text).await.unwrap();
    // The reader reads nothing more; the job ends nevertheless, and other readers are served.
    client.until(&endpoint, &job, "COMPLETED").await;
    client.finish(&endpoint, json!({ "op": "echo" })).await;
    tokio::time::timeout(Duration::from_secs(60), slow.reader.read_to_end(&mut text))
        .await
        .unwrap()
        .unwrap();
    let events = text.windows(10).filter(|window| window == b"\ndata: {\"o").count();
    assert_eq!(events, 64, "it gets all of them when it goes on");
}
