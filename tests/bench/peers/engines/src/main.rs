//! Compares the job store with embedded engines on the same work; README.md has the commands.
//!
//! A job is submitted, claimed and finished by one task after the other: each waits for the
//! durable submission, claims the oldest waiting job, and waits for its durable result. The job is
//! deleted once `kept` later jobs have ended. Every engine runs in a separate process, which is
//! stopped (SIGSTOP) while another one is measured, so that work which an engine postpones counts
//! in its own slices.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark stops at an error")]

mod bench;
mod count;
mod engines;
mod peer;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "store")]
mod store;

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;

/// The operations of a job, each durable when it returns.
pub enum System {
    #[cfg(feature = "store")]
    Store(Arc<store::Store>),
    Peer(Arc<peer::Peer>),
    #[cfg(feature = "postgres")]
    Claims(Arc<postgres::Claims>),
}

impl Clone for System {
    fn clone(&self) -> Self {
        match self {
            #[cfg(feature = "store")]
            Self::Store(it) => Self::Store(it.clone()),
            Self::Peer(it) => Self::Peer(it.clone()),
            #[cfg(feature = "postgres")]
            Self::Claims(it) => Self::Claims(it.clone()),
        }
    }
}

impl System {
    /// Opens the engine in `dir`; also returns the number of waiting jobs.
    pub fn open(engine: &str, dir: &Path, kept: u64) -> (Self, u64) {
        std::fs::create_dir_all(dir).unwrap();
        match engine {
            #[cfg(feature = "store")]
            "store" => {
                let (it, waiting) = store::Store::open(dir, kept);
                (Self::Store(it), waiting)
            }
            #[cfg(feature = "postgres")]
            "pg-claims" | "pg-claims+standby" => {
                let has_standby = engine.ends_with("+standby");
                (Self::Claims(postgres::Claims::open(dir, has_standby, kept)), 0)
            }
            _ => {
                let (it, waiting) = peer::Peer::open(engines::open(engine, dir), kept);
                (Self::Peer(it), waiting)
            }
        }
    }

    async fn submit(&self, payload: &Bytes) {
        match self {
            #[cfg(feature = "store")]
            Self::Store(it) => it.submit(payload).await,
            Self::Peer(it) => it.submit(payload.clone()).await,
            #[cfg(feature = "postgres")]
            Self::Claims(it) => it.submit(payload.clone()).await,
        }
    }

    /// Claims the oldest waiting job and finishes it.
    async fn run(&self, result: &Bytes) {
        match self {
            #[cfg(feature = "store")]
            Self::Store(it) => it.run(result).await,
            Self::Peer(it) => it.run(result.clone()).await,
            #[cfg(feature = "postgres")]
            Self::Claims(it) => it.run(result.clone()).await,
        }
    }

    /// Submits a job, and runs the oldest waiting job, without waiting for the submission where the
    /// system can do so.
    async fn live(&self, payload: &Bytes, result: &Bytes) {
        match self {
            // The claim must find a committed row.
            #[cfg(feature = "postgres")]
            Self::Claims(_) => {
                self.submit(payload).await;
                self.run(result).await;
            }
            _ => drop(tokio::join!(self.submit(payload), self.run(result))),
        }
    }

    /// Deletes jobs whose retention is over; returns whether there may be more.
    async fn expire(&self) -> bool {
        match self {
            #[cfg(feature = "store")]
            Self::Store(it) => it.expire().await,
            Self::Peer(it) => it.expire().await,
            #[cfg(feature = "postgres")]
            Self::Claims(it) => it.expire().await,
        }
    }

    fn commits(&self) -> u64 {
        match self {
            #[cfg(feature = "store")]
            Self::Store(it) => it.commits(),
            Self::Peer(it) => it.commits(),
            #[cfg(feature = "postgres")]
            Self::Claims(it) => it.commits(),
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.get(1..).unwrap_or_default() {
        ["bench", rest @ ..] => bench::bench(rest),
        ["reopen", rest @ ..] => bench::reopen(rest),
        ["child", engine, dir, payload, kept] => {
            child(engine, &PathBuf::from(dir), payload.parse().unwrap(), kept.parse().unwrap());
        }
        ["open", engine, dir] => {
            let begun = Instant::now();
            let (system, waiting) = System::open(engine, &PathBuf::from(dir), 1 << 40);
            let ms = begun.elapsed().as_secs_f64() * 1e3;
            println!("{ms:.1} {waiting} {}", count::rss_kib());
            // The caller kills this process.
            std::thread::sleep(Duration::from_secs(60));
            drop(system);
        }
        _ => {
            println!("usage: engines bench|reopen [options], see README.md");
            std::process::exit(2);
        }
    }
}

/// Random text, so that compression would gain nothing.
pub fn payload(bytes: usize) -> Bytes {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text: Vec<u8> =
        (0..bytes).map(|_| LETTERS[rand::random::<u8>() as usize % 64]).collect();
    text[0] = b'"';
    text[bytes - 1] = b'"';
    text.into()
}

/// Reads commands from standard input: `run TASKS MS`, `sync TASKS MS`, `jobs TASKS N`, `submit
/// TASKS N`.
///
/// In `sync` a task does not wait for its submission before it claims and finishes a job, as a call
/// of `/runsync` does not: a quick job is then one durable state.
fn child(engine: &str, dir: &Path, payload_bytes: usize, kept: u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    let (system, _) = System::open(engine, dir, kept);
    let expirer = system.clone();
    runtime.spawn(async move {
        loop {
            if !expirer.expire().await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    });
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let (what, tasks, n): (_, usize, u64) =
            (words[0], words[1].parse().unwrap(), words[2].parse().unwrap());
        let (is_timed, is_sync) = (matches!(what, "run" | "sync"), what == "sync");
        let (input, output) = (payload(payload_bytes), payload(payload_bytes));
        let before = count::Counters::now();
        let commits = system.commits();
        let begun = Instant::now();
        let until = begun + Duration::from_millis(if is_timed { n } else { 3_600_000 });
        let left = Arc::new(AtomicU64::new(if is_timed { u64::MAX / 2 } else { n }));
        let is_life = what != "submit";
        let each = (0..tasks).map(|_| {
            let (system, input, output) = (system.clone(), input.clone(), output.clone());
            let left = left.clone();
            runtime.spawn(async move {
                let mut acks: Vec<u32> = Vec::with_capacity(1 << 12);
                while Instant::now() < until
                    && left.try_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_ok()
                {
                    let submitted = Instant::now();
                    if is_sync {
                        system.live(&input, &output).await;
                    } else {
                        system.submit(&input).await;
                    }
                    acks.push((submitted.elapsed().as_nanos() / 100).min(u32::MAX as u128) as u32);
                    if is_life && !is_sync {
                        system.run(&output).await;
                    }
                }
                acks
            })
        });
        let each: Vec<_> = each.collect();
        let mut acks: Vec<u32> = runtime.block_on(async {
            let mut all = Vec::new();
            for task in each {
                all.extend(task.await.unwrap());
            }
            all
        });
        let secs = begun.elapsed().as_secs_f64();
        let spent = count::Counters::now().since(&before);
        let commits = system.commits() - commits;
        acks.sort_unstable();
        let jobs = acks.len() as f64;
        let at = |q: f64| f64::from(acks[((acks.len() - 1) as f64 * q) as usize]) / 1e4;
        println!(
            "{} {:.1} {:.3} {:.3} {:.3} {:.1} {:.1} {:.5} {:.5} {:.4} {:.4} {}",
            acks.len(),
            jobs / secs,
            spent.cpu_us / jobs,
            spent.engine_us / jobs,
            spent.server_us / jobs,
            spent.written as f64 / jobs,
            spent.dirtied as f64 / jobs,
            spent.syncs as f64 / jobs,
            commits as f64 / jobs,
            at(0.5),
            at(0.99),
            count::rss_kib(),
        );
        std::io::stdout().flush().unwrap();
    }
}
