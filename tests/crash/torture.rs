//! `kill -9` again and again under mixed load. Set `GRISTMILL_CRASH_SEED` to repeat a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use gristmill_tests::{Client, TestHost, guests};
use reqwest::Method;
use serde_json::json;

use crate::ledger::{Kind, Ledger};

const ENDPOINT: &str = "torture";
const KILLS: usize = 5;
const SUBMITTERS: u64 = 6;

/// A small generator: the same seed gives the same run, as far as time allows.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn kind(&mut self) -> Kind {
        match self.below(10) {
            0..=4 => Kind::Echo,
            5 | 6 => Kind::Sleep,
            7 => Kind::Stream,
            8 => Kind::Fail,
            _ => Kind::Cancelled,
        }
    }
}

/// Submits until it is told to stop or the host is gone. Only an answer counts: what the host did
/// not acknowledge, nobody was promised.
async fn submitter(
    client: Client,
    ledger: Arc<Ledger>,
    numbers: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    seed: u64,
) {
    let mut random = Random(seed);
    while !stop.load(Ordering::Relaxed) {
        let (kind, number) = (random.kind(), numbers.fetch_add(1, Ordering::Relaxed));
        let is_sync = kind != Kind::Cancelled && random.below(4) == 0;
        let operation = if is_sync { "runsync" } else { "run" };
        let body = json!({ "input": kind.input(number) });
        let request = client.request(Method::POST, &client.path(ENDPOINT, operation)).json(&body);
        let Ok(answer) = client.try_send(request).await else { return ledger.broke_off() };
        let document = answer.ok();
        let job = document["id"].as_str().unwrap();
        ledger.acknowledged(job, kind, number);
        ledger.seen(&document);
        if kind == Kind::Cancelled {
            let path = client.path(ENDPOINT, &format!("cancel/{job}"));
            let Ok(answer) = client.try_send(client.request(Method::POST, &path)).await else {
                return;
            };
            ledger.seen(&answer.ok());
        }
        // Below the rate limits of the endpoint, and not in step with the others.
        tokio::time::sleep(Duration::from_millis(5 + random.below(40))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_job_is_lost_or_ends_twice() {
    let seed = match std::env::var("GRISTMILL_CRASH_SEED") {
        Ok(text) => text.parse().unwrap(),
        Err(_) => SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos().into(),
    };
    println!("GRISTMILL_CRASH_SEED={seed}");
    let mut random = Random(seed);
    let mut host = TestHost::start();
    host.deploy(&guests::playground(), ENDPOINT, json!({ "workersMax": 4 })).await;
    let (ledger, numbers) = (Arc::new(Ledger::default()), Arc::new(AtomicU64::new(0)));
    for kill in 1..=KILLS {
        let stop = Arc::new(AtomicBool::new(false));
        let submitters: Vec<_> = (0..SUBMITTERS)
            .map(|_| {
                let (ledger, numbers, stop) = (ledger.clone(), numbers.clone(), stop.clone());
                let seed = random.below(u64::MAX);
                tokio::spawn(submitter(host.client(), ledger, numbers, stop, seed))
            })
            .collect();
        let ms = 150 + random.below(900);
        tokio::time::sleep(Duration::from_millis(ms)).await;
        host.kill9();
        stop.store(true, Ordering::Relaxed);
        for submitter in submitters {
            submitter.await.unwrap();
        }
        println!("kill {kill} after {ms} ms; {} jobs acknowledged so far", ledger.len());
        host.start_again();
        println!("  the start found {}", host.ready());
    }
    ledger.check(&host.client(), ENDPOINT).await;
}
