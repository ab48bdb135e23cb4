//! What a durable job costs: `cargo bench -p gristmill-store`. Read ratios; absolute figures are
//! those of the machine and its disk.
//!
//! Each row has its own fresh store in the temporary directory, or in the directory named as the
//! argument. A life is submit, claim and finish, by one task after the other.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints, and may panic")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_core::id::{EndpointId, JobId, OwnerId, Submission, WorkerId};
use gristmill_core::payload::Json;
use gristmill_core::policy::Policy;
use gristmill_core::record::{NewJob, Outcome};
use gristmill_core::signals::Signals;
use gristmill_core::store::JobStore;
use gristmill_core::time::SystemClock;
use gristmill_store::{Settings, SqliteStore};
use tokio::task::JoinSet;

const RUN: Duration = Duration::from_millis(2_500);

#[derive(Clone, Copy)]
enum Work {
    Submit,
    Life,
}

struct Row {
    jobs: usize,
    elapsed: Duration,
    commits: u64,
    /// Of the whole process, the submitters included.
    cpu: Duration,
    latencies_us: Vec<u128>,
}

/// CPU time that this process has used, where the system says it: in steps of 10 ms.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // User and system time are the 12th and 13th fields after the name, which ends with `)`.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

fn main() {
    let dir = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let dir = dir.map_or_else(std::env::temp_dir, PathBuf::from);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    println!("work    payload  submitters     jobs/s  fsyncs/job  CPU us/job  p50 ms  p99 ms");
    for (work, name) in [(Work::Submit, "submit"), (Work::Life, "life")] {
        for payload_bytes in [256, 16 << 10] {
            for submitters in [1, 8, 64] {
                let dir = tempfile::tempdir_in(&dir).unwrap();
                let mut row = runtime.block_on(run(dir.path(), work, payload_bytes, submitters));
                row.latencies_us.sort_unstable();
                let percentile = |p: usize| {
                    let at = (row.latencies_us.len() * p / 100).min(row.latencies_us.len() - 1);
                    row.latencies_us.get(at).map_or(0.0, |us| *us as f64 / 1e3)
                };
                println!(
                    "{name:6} {payload_bytes:8} {submitters:11} {:10.0} {:11.3} {:11.1} {:7.2} {:7.2}",
                    row.jobs as f64 / row.elapsed.as_secs_f64(),
                    row.commits as f64 / row.jobs as f64,
                    row.cpu.as_secs_f64() * 1e6 / row.jobs as f64,
                    percentile(50),
                    percentile(99),
                );
            }
        }
    }
}

async fn run(dir: &std::path::Path, work: Work, payload_bytes: usize, submitters: usize) -> Row {
    let clock = Arc::new(SystemClock);
    let signals = Arc::new(Signals::default());
    let (store, _) = SqliteStore::open(dir, clock, signals, Settings::default()).unwrap();
    let store = Arc::new(store);
    let payload = Json::parse(format!("\"{}\"", "x".repeat(payload_bytes - 2))).unwrap();
    let (started, cpu_before) = (Instant::now(), cpu_time());
    let mut tasks = JoinSet::new();
    for n in 0..submitters {
        let (store, payload) = (store.clone(), payload.clone());
        tasks.spawn(async move {
            let worker = [WorkerId::new(&format!("w{n}")).unwrap()];
            let mut latencies_us = Vec::new();
            while started.elapsed() < RUN {
                let job_started = Instant::now();
                match work {
                    Work::Submit => {
                        let _ = store.submit(new_job(&store, &payload)).await.unwrap();
                    }
                    Work::Life => life(&store, &worker, &payload).await,
                }
                latencies_us.push(job_started.elapsed().as_micros());
            }
            latencies_us
        });
    }
    let latencies_us = tasks.join_all().await.concat();
    let elapsed = started.elapsed();
    let commits = store.stats().commits;
    let cpu = cpu_time().saturating_sub(cpu_before);
    Row { jobs: latencies_us.len(), elapsed, commits, cpu, latencies_us }
}

/// Runs while the submission is on its way to the disk, as the platform does.
async fn life(store: &SqliteStore, worker: &[WorkerId], payload: &Json) {
    let submit = store.submit(new_job(store, payload));
    let perform = async {
        let mut claimed = store.claim(&endpoint(), worker).await.unwrap();
        let Some(job) = claimed.pop() else { return };
        let _ = store.finish(job.lease, Outcome::Completed(job.input)).await.unwrap();
    };
    let (submitted, ()) = tokio::join!(submit, perform);
    let _ = submitted.unwrap();
}

fn new_job(store: &SqliteStore, payload: &Json) -> NewJob {
    NewJob {
        id: JobId::generate(Submission::Sync, store.node()),
        endpoint: endpoint(),
        owner: OwnerId::new("owner").unwrap(),
        input: payload.clone(),
        policy: Policy { execution_timeout_ms: 600_000, ttl_ms: 86_400_000, low_priority: false },
        retention_ms: 60_000,
        webhook: None,
        s3_config: None,
        may_linger: false,
        idempotency: None,
    }
}

fn endpoint() -> EndpointId {
    EndpointId::new("bench").unwrap()
}
