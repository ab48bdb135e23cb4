//! Attacks beside an innocent endpoint, and handlers that search for data of other jobs.
//! docs/internals/security.md names these tests beside the attacks, and shows how to print the
//! table of the first.

use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gristmill_tests::{Client, PATIENCE, TestHost, guests, percentile, shared_host};
use serde_json::{Value, json};
use tokio::time::timeout;

/// Jobs of one attack that run at one time.
const ATTACKERS: usize = 4;

/// The memory limit of an attacking handler.
const MEMORY_MIB: u64 = 64;

/// The pause between two calls of the innocent endpoint.
const PAUSE: Duration = Duration::from_millis(10);

/// The p99 of the innocent endpoint's calls stays below this in a run that measures, such as that
/// of `make hostile`. Other runs only exclude a call without an answer.
const P99_MAX: Duration = Duration::from_secs(3);

/// The sum of the host's own buffers and caches, and the attackers' memories.
const HOST_BYTES_MAX: u64 = (600 + ATTACKERS as u64 * MEMORY_MIB) << 20;

/// Sends the same job again whenever it has ended, until the attack is over; then cancels it.
async fn attack(client: &Client, endpoint: &str, input: &Value, is_over: &AtomicBool) {
    loop {
        let job = client.submit(endpoint, input.clone()).await;
        loop {
            if is_over.load(Ordering::Relaxed) {
                client.cancel(endpoint, &job).await.ok();
                return;
            }
            // The pace of the attack, within the limit on reads.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let document = client.status(endpoint, &job).await.ok();
            if !matches!(document["status"].as_str(), Some("IN_QUEUE" | "IN_PROGRESS")) {
                break;
            }
        }
    }
}

/// The number of calls for each attack in a run that measures.
fn measured_calls() -> Option<u32> {
    std::env::var("HOSTILE_CALLS").ok().map(|calls| calls.parse().expect("HOSTILE_CALLS: a number"))
}

/// The durations of the innocent endpoint's calls: `HOSTILE_CALLS`, or 200.
async fn innocent_calls(client: &Client, endpoint: &str) -> Vec<Duration> {
    let mut took = vec![];
    for call in 0..measured_calls().unwrap_or(50) {
        let started = Instant::now();
        let answer = client.run_sync(endpoint, "", json!({ "call": call }));
        let answer = timeout(PATIENCE, answer).await.expect("an answer").ok();
        took.push(started.elapsed());
        assert_eq!(answer["output"], json!({ "call": call }), "{answer}");
        tokio::time::sleep(PAUSE).await;
    }
    took
}

/// The same; sets `is_over` when they are done, for concurrent work.
async fn innocent_calls_beside(
    client: &Client,
    endpoint: &str,
    is_over: &AtomicBool,
) -> Vec<Duration> {
    let took = innocent_calls(client, endpoint).await;
    is_over.store(true, Ordering::Relaxed);
    took
}

/// Programs without any relation to the host that compute on every core at the lowest priority:
/// they show the machine's own behaviour under load.
struct BusyPrograms(Vec<Child>);

impl BusyPrograms {
    fn start() -> Self {
        let cores = std::thread::available_parallelism().unwrap().get();
        let start = |_| {
            // The loop has an end, in case no test is left to kill it.
            let computing = "n=0; while [ $n -lt 50000000 ]; do n=$((n + 1)); done";
            Command::new("nice").args(["-n", "19", "sh", "-c", computing]).spawn().unwrap()
        };
        Self((0..cores).map(start).collect())
    }
}

impl Drop for BusyPrograms {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A component with half a million additions.
fn slow_to_compile(number: u32) -> Vec<u8> {
    let sums = "i32.const 1 i32.add ".repeat(500_000);
    let module = format!("(core module (func i32.const {number} {sums} drop))");
    wat::parse_str(format!("(component {module})")).unwrap()
}

fn row(name: &str, took: &mut [Duration], peak: u64) {
    let [p50, p99] = [50, 99].map(|percent| percentile(took, percent).as_secs_f64() * 1e3);
    println!("| {name} | {p50:.1} | {p99:.1} | {} |", peak >> 20);
}

fn assert_is_quick(attack: &str, took: &mut [Duration]) {
    let p99 = percentile(took, 99);
    assert!(measured_calls().is_none() || p99 < P99_MAX, "{attack}: {p99:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_innocent_endpoint_is_served_beside_each_attack() {
    let host = TestHost::start();
    let client = host.client();
    let innocent = host.deploy(&guests::echo(), "innocent", json!({ "workersMin": 1 })).await;
    let settings = |metering: &str| json!({ "workersMax": ATTACKERS, "memoryMib": MEMORY_MIB, "metering": metering });
    let playground = host.deploy(&guests::playground(), "playground", settings("fuel")).await;
    let unmetered = host.deploy(&guests::playground(), "unmetered", settings("epoch")).await;
    let hostile = host.deploy(&guests::hostile(), "hostile", settings("fuel")).await;
    let [playground, unmetered, hostile] = [&playground, &unmetered, &hostile];
    let attacks = [
        (playground, json!({ "op": "echo" })),
        (playground, json!({ "op": "spin" })),
        (unmetered, json!({ "op": "spin" })),
        (playground, json!({ "op": "sleep_forever" })),
        (playground, json!({ "op": "alloc", "mib": 80 })),
        (playground, json!({ "op": "recurse" })),
        (playground, json!({ "op": "trap" })),
        (playground, json!({ "op": "stdout", "bytes": 64 << 20 })),
        (playground, json!({ "op": "output", "bytes": 20_000_000 })),
        (playground, json!({ "op": "fetch", "url": "http://169.254.169.254/" })),
        (hostile, json!({ "op": "park", "count": 500 })),
        (hostile, json!({ "op": "poll", "count": 8_000_000 })),
        (hostile, json!({ "op": "handles", "count": 2_000 })),
        (hostile, json!({ "op": "random", "bytes": 1 << 30 })),
        (hostile, json!({ "op": "log", "count": 10_000_000, "bytes": 20 })),
        (hostile, json!({ "op": "empty_writes", "count": 100_000_000 })),
        (hostile, json!({ "op": "progress", "count": 10_000_000, "bytes": 1_000 })),
        (hostile, json!({ "op": "emit", "count": 10_000_000, "bytes": 1 })),
        (hostile, json!({ "op": "emit", "count": 1_000, "bytes": 20 << 20 })),
        (hostile, json!({ "op": "heads", "count": 1_000, "bytes": 16 << 20 })),
        (hostile, json!({ "op": "fields", "count": 1_000, "bytes": 30_000 })),
        (hostile, json!({ "op": "bodies", "count": 1_000 })),
    ];
    innocent_calls(&client, &innocent).await;
    // Warm-up, so that no component is compiled during the attacks.
    client.finish(unmetered, json!({ "op": "echo" })).await;
    println!("| Attack | p50 ms | p99 ms | peak MiB |\n|---|---|---|---|");
    // Different components; each takes seconds to compile.
    let is_over = AtomicBool::new(false);
    let uploads = async {
        let mut number = 0;
        while !is_over.load(Ordering::Relaxed) {
            number += 1;
            host.upload("slow:latest", slow_to_compile(number)).await.refused(400);
        }
        number
    };
    let calls = innocent_calls_beside(&client, &innocent, &is_over);
    let (count, mut took) = tokio::join!(uploads, calls);
    row(&format!("compiling, {count} components"), &mut took, host.peak_memory());
    assert_is_quick("compiling", &mut took);
    let busy = BusyPrograms::start();
    let mut took = innocent_calls(&client, &innocent).await;
    row("other programs", &mut took, host.peak_memory());
    drop(busy);
    for (endpoint, input) in attacks {
        host.forget_peak_memory();
        let is_over = AtomicBool::new(false);
        let attackers = (0..ATTACKERS).map(|_| attack(&client, endpoint, &input, &is_over));
        let calls = innocent_calls_beside(&client, &innocent, &is_over);
        let (_, mut took) = tokio::join!(futures::future::join_all(attackers), calls);
        let peak = host.peak_memory();
        let name = input.as_object().unwrap().iter().map(|(name, value)| format!("{name}={value}"));
        let name = format!("{endpoint}: {}", name.collect::<Vec<_>>().join(" "));
        row(&name, &mut took, peak);
        assert_is_quick(&name, &mut took);
        assert!(peak < HOST_BYTES_MAX, "{name}: {} MiB", peak >> 20);
    }
    assert!(!host.log().contains("panicked"), "no attack reached a mistake of the host");
}

/// An empty write costs a handler nothing, and must leave nothing in the host.
/// The host takes 68 MiB, so eight million writes exceed the bound with 7 bytes for each of them.
#[tokio::test]
async fn writing_nothing_keeps_nothing() {
    const HOST_BYTES_MAX: u64 = 120 << 20;
    let host = TestHost::start();
    let endpoint = host.deploy(&guests::hostile(), "hostile", json!({ "workersMax": 1 })).await;
    let input = json!({ "op": "empty_writes", "count": 8_000_000 });
    let document = host.client().finish(&endpoint, input).await;
    assert_eq!(document["status"], "COMPLETED", "{document}");
    let peak = host.peak_memory();
    assert!(peak < HOST_BYTES_MAX, "{} MiB", peak >> 20);
}

/// The data of one endpoint's jobs is nowhere visible to those of another.
#[tokio::test]
async fn a_job_finds_nothing_of_others() {
    let host = shared_host();
    let secret = "the-secret-of-the-neighbour";
    let rich = json!({ "env": { "TOKEN": secret }, "dockerStartCmd": [secret], "workersMax": 1 });
    let rich = host.deploy(&guests::hostile(), "hostile-rich", rich).await;
    let poor = host.deploy(&guests::hostile(), "hostile-poor", json!({ "workersMax": 1 })).await;
    let snoop = json!({ "op": "snoop" });
    let s3 = json!({
        "accessId": "id", "accessSecret": secret, "bucketName": "b", "endpointUrl": "https://s3.example"
    });
    for _ in 0..3 {
        let body = json!({ "input": snoop, "s3Config": s3 });
        let seen = host.client.post(&host.client.path(&rich, "runsync"), &body).await.ok();
        let expected = json!({ "seen": [format!("TOKEN={secret}"), secret, secret] });
        assert_eq!(seen["output"], expected, "{seen}");
        // The next job of the same endpoint has its environment, and not the other job's
        // credentials.
        let seen = host.client.finish(&rich, snoop.clone()).await;
        assert_eq!(
            seen["output"],
            json!({ "seen": [format!("TOKEN={secret}"), secret] }),
            "{seen}"
        );
        let seen = host.client.finish(&poor, snoop.clone()).await;
        assert_eq!(seen["output"], json!({ "seen": [] }), "{seen}");
    }
    for op in ["files", "sockets"] {
        let seen = host.client.finish(&poor, json!({ "op": op })).await;
        assert_eq!(seen["output"], json!({ "seen": [] }), "{op}: {seen}");
    }
}
