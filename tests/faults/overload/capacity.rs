//! Ten times as many jobs as the workers can run, submitted at a fixed rate.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_tests::{Answer, Client, TestHost, eventually, guests};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::TaskTracker;

use crate::memory::{self, MIB};
use crate::pulse::Pulse;
use crate::scale::Scale;

const WORKERS: u64 = 4;

/// Duration of one job.
const JOB_MS: u64 = 100;

/// The workers' capacity.
const JOBS_PER_S: u64 = WORKERS * 1_000 / JOB_MS;

/// Jobs that may wait.
const WAITING_MAX: u64 = 200;

/// A sandbox's memory.
const SANDBOX_MIB: u64 = 16;

/// Bytes of an input.
const INPUT_BYTES: usize = 2_000;

/// Of the 3,200 submissions in 8 s, 1,800 are within the limit: 1,000 at once, and 100 in each
/// second. The test's own queries at the end should not be limited.
const CONFIG: &str = "[rate-limits.status]\ncalls-per-10s = 1000000\nconcurrent = \"unlimited\"\n\
    [rate-limits.run]\ncalls-per-10s = 1000\nconcurrent = 200\ncalls-per-worker = 0\n";

/// The answers.
#[derive(Default)]
struct Observed {
    /// Accepted jobs whose results are kept for longer than the test.
    admitted: Vec<String>,
    /// The ends of the others: results of `runsync` are kept for a minute.
    ends: BTreeMap<String, u64>,
    /// Accepted jobs that were cancelled before their end.
    cancelled: u64,
    /// Refusals by their code.
    refused: BTreeMap<String, u64>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the machine for itself: `make faults` runs it after the other tests, `make overload` at full size"]
async fn ten_times_the_capacity() {
    let scale = Scale::of_this_run();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("limits.toml");
    fs::write(&config, CONFIG).unwrap();
    let waiting_max = WAITING_MAX.to_string();
    let host = TestHost::start_with(&[
        "--max-waiting-jobs",
        &waiting_max,
        "--config",
        config.to_str().unwrap(),
    ]);
    let settings = json!({ "workersMax": WORKERS, "memoryMib": SANDBOX_MIB });
    let endpoint = host.deploy(&guests::playground(), "mill", settings).await;
    let client = host.client();
    client.run_sync(&endpoint, "", json!({ "op": "echo" })).await.ok();
    let idle = host.resident_memory();
    let pulse = Pulse::start(&host, &endpoint).await;

    let observed = Arc::new(Mutex::new(Observed::default()));
    offer(&client, &endpoint, &observed, scale.lasts).await;

    let health = client.health(&endpoint).await;
    let waiting = health["jobs"]["inQueue"].as_u64().unwrap();
    assert!(waiting <= WAITING_MAX, "{health}");
    let drained = Instant::now();
    eventually("the queue to be done", async || {
        let jobs = client.health(&endpoint).await;
        (jobs["jobs"]["inQueue"] == 0 && jobs["jobs"]["inProgress"] == 0).then_some(())
    })
    .await;
    let drained = drained.elapsed();
    let fresh = client.run_sync(&endpoint, "", json!({ "op": "echo", "value": 7 })).await.ok();
    assert_eq!(fresh["output"], json!({ "echo": 7 }), "{fresh}");
    pulse.finish().await;

    let Observed { admitted, mut ends, cancelled, refused } = std::mem::take(&mut *observed.lock());
    println!(
        "capacity {JOBS_PER_S} jobs/s, offered {}/s for {:?}: {} admitted ({cancelled} cancelled), \
         refused {refused:?}; {waiting} waited at the end, done after {drained:.1?}",
        JOBS_PER_S * 10,
        scale.lasts,
        admitted.len() as u64 + ends.values().sum::<u64>(),
    );
    for job in &admitted {
        let document = client.status(&endpoint, job).await.ok();
        *ends.entry(document["status"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    let done = ends.remove("COMPLETED").unwrap_or_default();
    assert_eq!(ends.remove("CANCELLED").unwrap_or_default(), cancelled);
    assert!(ends.is_empty(), "admitted and not finished: {ends:?}");
    // A lower bound, since this machine has other work. A short run shows only that jobs are done.
    let possible = JOBS_PER_S * scale.lasts.as_secs();
    let least = scale.choose(1, possible / 2);
    assert!(done >= least, "{done} jobs were done, {possible} possible");
    for code in ["rate_limited", "queue_full"] {
        assert!(refused.contains_key(code), "no call was refused as {code}: {refused:?}");
    }
    let sandboxes = (WORKERS + 1) * SANDBOX_MIB * MIB;
    memory::peak_is_within(&host, idle, memory::STORE_BYTES + sandboxes + memory::SLACK_BYTES);
}

/// Submits at ten times the capacity, each call at its scheduled time.
async fn offer(client: &Client, endpoint: &str, observed: &Arc<Mutex<Observed>>, lasts: Duration) {
    let calls = TaskTracker::new();
    let mut ticks = interval(Duration::from_secs(1) / u32::try_from(JOBS_PER_S * 10).unwrap());
    // Late calls are sent at once, so that the rate is the intended one.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let started = Instant::now();
    for number in 0_u64.. {
        ticks.tick().await;
        if started.elapsed() >= lasts {
            break;
        }
        let (client, endpoint, observed) = (client.clone(), endpoint.to_owned(), observed.clone());
        calls.spawn(async move { submit(&client, &endpoint, number, &observed).await });
    }
    calls.close();
    calls.wait().await;
}

async fn submit(client: &Client, endpoint: &str, number: u64, observed: &Mutex<Observed>) {
    let input = json!({ "op": "sleep", "ms": JOB_MS, "value": "x".repeat(INPUT_BYTES) });
    // Some wait for the end, which may be later than their wait.
    let waits = number.is_multiple_of(10);
    let answer = if waits {
        client.run_sync(endpoint, "?wait=1000", input).await
    } else {
        client.run(endpoint, input).await
    };
    if answer.status != 200 {
        *observed.lock().refused.entry(refusal(&answer)).or_default() += 1;
        return;
    }
    let id = answer.ok()["id"].as_str().unwrap().to_owned();
    if number.is_multiple_of(64) {
        let answer = client.cancel(endpoint, &id).await.ok();
        let is_cancelled = answer["status"] == "CANCELLED";
        observed.lock().cancelled += u64::from(is_cancelled);
    }
    if !waits {
        observed.lock().admitted.push(id);
        return;
    }
    // A drain of the whole queue takes some seconds.
    let mut end = None;
    for _ in 0..120 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let document = client.status(endpoint, &id).await.ok();
        let status = document["status"].as_str().unwrap();
        end = (!matches!(status, "IN_QUEUE" | "IN_PROGRESS")).then(|| status.to_owned());
        if end.is_some() {
            break;
        }
    }
    let end = end.expect("an admitted job ends");
    *observed.lock().ends.entry(end).or_default() += 1;
}

/// The code of a refusal, which must be one for overload with a time to try again.
pub(crate) fn refusal(answer: &Answer) -> String {
    assert!(matches!(answer.status, 429 | 503), "{answer:?}");
    let seconds = answer.header("retry-after").and_then(|text| text.parse::<u64>().ok());
    assert!(seconds.is_some_and(|seconds| seconds >= 1), "{answer:?}");
    answer.json()["code"].as_str().unwrap().to_owned()
}
