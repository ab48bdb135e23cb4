//! A rolling restart: the next host is started while the previous one still drains, and clients
//! that retry complete every job.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gristmill_tests::{Answer, Client, PATIENCE, TestHost, eventually, guests};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

const ENDPOINT: &str = "rolling";
const RESTARTS: usize = 3;
const CLIENTS: u64 = 8;

/// Jobs that are submitted between two restarts, at least.
const JOBS_BETWEEN: u64 = 3 * CLIENTS;

/// The present address of the host, for its clients.
#[derive(Clone)]
struct CurrentHost(Arc<Mutex<Client>>);

impl CurrentHost {
    /// Sends a call until the answer is not "come back later".
    async fn send_until_accepted(&self, request: impl Fn(&Client) -> RequestBuilder) -> Answer {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let client = self.0.lock().unwrap().clone();
            match client.try_send(request(&client)).await {
                Ok(answer) if answer.status != 503 => return answer,
                refused => assert!(Instant::now() < deadline, "no answer: {refused:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Submits a job, with a key so that repeated submissions refer to the same job, and waits for
    /// its end.
    async fn run_to_end(&self, operation: &str, number: u64) -> Value {
        // Some end during the drain, and some outlive it.
        let ms = match number % 16 {
            0 => 1_500,
            1 | 2 => 300,
            _ => 5,
        };
        let body = json!({ "input": { "op": "sleep", "ms": ms, "value": number } });
        let submitted = self
            .send_until_accepted(|client| {
                client
                    .request(Method::POST, &client.path(ENDPOINT, operation))
                    .header("idempotency-key", format!("rolling-{number}"))
                    .json(&body)
            })
            .await
            .ok();
        let job = submitted["id"].as_str().unwrap();
        loop {
            let rest = format!("status-sync/{job}?wait=5000");
            let answer = self.send_until_accepted(|client| {
                client.request(Method::GET, &client.path(ENDPOINT, &rest))
            });
            let document = answer.await.ok();
            if !matches!(document["status"].as_str(), Some("IN_QUEUE" | "IN_PROGRESS")) {
                assert_eq!(document["output"], json!({ "slept": ms, "echo": number }));
                return document;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_rolling_restart_loses_no_job_and_repeats_none_that_ended() {
    let mut host = TestHost::start_with(&["--drain-timeout", "1"]);
    host.deploy(&guests::playground(), ENDPOINT, json!({ "workersMax": 4 })).await;
    let current_host = CurrentHost(Arc::new(Mutex::new(host.client())));
    let (numbers, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|index| {
            let (current_host, numbers, is_over) =
                (current_host.clone(), numbers.clone(), is_over.clone());
            let operation = if index % 2 == 0 { "run" } else { "runsync" };
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let number = numbers.fetch_add(1, Ordering::Relaxed);
                    current_host.run_to_end(operation, number).await;
                }
            })
        })
        .collect();

    for restart in 1..=RESTARTS {
        let before = numbers.load(Ordering::Relaxed);
        eventually("some jobs of each client", async || {
            (numbers.load(Ordering::Relaxed) >= before + JOBS_BETWEEN).then_some(())
        })
        .await;
        host.ask_to_end();
        // A service manager tries until it succeeds. Before that, the start fails with a reason.
        let mut refused = 0;
        let last = loop {
            match tokio::task::block_in_place(|| host.replace()) {
                Ok(last) => break last,
                Err(status) => assert_eq!(status.code(), Some(1), "{}", host.log()),
            }
            refused += 1;
            assert!(refused < 1_000, "{}", host.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        println!(
            "restart {restart}: {refused} early starts were refused; the last ended with {last}"
        );
        assert_eq!(last.code(), Some(0), "{}", host.log());
        assert_eq!(host.ready()["wasClean"], true, "{}", host.ready());
        *current_host.0.lock().unwrap() = host.client();
    }
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    let count = numbers.load(Ordering::Relaxed);
    println!("{count} jobs were seen through {RESTARTS} restarts");
    assert!(!host.log().contains("panicked"), "{}", host.log());
    // One job for each submission, and one end for each job; no restart counts as a crash.
    let jobs = &host.client().health(ENDPOINT).await["jobs"];
    let expected = json!({
        "completed": count, "failed": 0, "inProgress": 0, "inQueue": 0, "retried": 0
    });
    assert_eq!(*jobs, expected);
}
