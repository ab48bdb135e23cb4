//! Clients that submit numbered jobs through all hosts while the hosts change.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gristmill_tests::{Client, Receiver, eventually};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::hosts::{Ledger, check, sleep, submit};

/// Jobs for the endpoint `play`: each 20th takes 700 ms, and each fourth has a webhook.
pub(crate) struct Load {
    hosts: Arc<Mutex<Vec<Client>>>,
    acknowledged: Arc<Mutex<Ledger>>,
    is_over: Arc<AtomicBool>,
    submitters: Vec<JoinHandle<()>>,
}

impl Load {
    /// Begins to submit.
    pub(crate) fn start(hosts: Vec<Client>, webhook: &str) -> Self {
        let hosts = Arc::new(Mutex::new(hosts));
        let acknowledged = Arc::new(Mutex::new(BTreeMap::new()));
        let is_over = Arc::<AtomicBool>::default();
        let numbers = Arc::<AtomicU64>::default();
        let submitter = |_| {
            let (hosts, acknowledged) = (hosts.clone(), acknowledged.clone());
            let (is_over, numbers) = (is_over.clone(), numbers.clone());
            let webhook = webhook.to_owned();
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let number = numbers.fetch_add(1, Ordering::Relaxed);
                    let ms = if number % 20 == 0 { 700 } else { 5 };
                    let mut body = json!({ "input": sleep(ms, number) });
                    if number % 4 == 0 {
                        body["webhook"] = webhook.clone().into();
                    }
                    let mut clients = hosts.lock().unwrap().clone();
                    if number % 2 == 0 {
                        clients.reverse();
                    }
                    let job = submit(&clients, "play", &format!("n-{number}"), &body).await;
                    acknowledged.lock().unwrap().insert(number, job);
                    // Below the rate limit of a key.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            })
        };
        let submitters = (0..6).map(submitter).collect();
        Self { hosts, acknowledged, is_over, submitters }
    }

    /// Sends the next submissions to these hosts.
    pub(crate) fn use_hosts(&self, hosts: Vec<Client>) {
        *self.hosts.lock().unwrap() = hosts;
    }

    /// The jobs that were acknowledged until now.
    pub(crate) fn acknowledged(&self) -> Ledger {
        self.acknowledged.lock().unwrap().clone()
    }

    /// Waits until so many further jobs are acknowledged.
    pub(crate) async fn progress(&self, more: usize) {
        let before = self.acknowledged().len();
        eventually("further jobs", async || {
            (self.acknowledged().len() >= before + more).then_some(())
        })
        .await;
    }

    /// Ends the submissions, and checks that each acknowledged job has run once, with its own
    /// result and its webhook. Returns the number of jobs.
    pub(crate) async fn end(self, receiver: &Receiver) -> usize {
        self.is_over.store(true, Ordering::Relaxed);
        for submitter in self.submitters {
            submitter.await.unwrap();
        }
        let acknowledged = self.acknowledged.lock().unwrap().clone();
        let clients = self.hosts.lock().unwrap().clone();
        check(&clients, &acknowledged).await;
        // One job for each number, although submissions were repeated.
        let jobs = clients[0].health("play").await["jobs"].clone();
        assert_eq!(jobs["completed"], json!(acknowledged.len()), "{jobs}");
        assert_eq!((&jobs["failed"], &jobs["inQueue"]), (&json!(0), &json!(0)), "{jobs}");
        for (number, job) in acknowledged.iter().filter(|(number, _)| *number % 4 == 0) {
            eventually(&format!("the webhook of {number}"), async || {
                let calls = receiver.calls();
                calls.iter().any(|call| call.json()["id"] == json!(job)).then_some(())
            })
            .await;
        }
        acknowledged.len()
    }
}
