//! What a client was promised, and whether the host has kept it.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use gristmill_tests::Client;
use serde_json::{Value, json};

/// What a job was asked to do; says how it may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Echo,
    Sleep,
    Stream,
    Fail,
    /// Runs for ever; cancelled by its submitter.
    Cancelled,
}

impl Kind {
    pub(crate) fn input(self, number: u64) -> Value {
        match self {
            Self::Echo => json!({ "op": "echo", "value": number }),
            Self::Sleep => json!({ "op": "sleep", "ms": 30, "value": number }),
            Self::Stream => json!({ "op": "stream", "count": 3, "delay_ms": 10 }),
            Self::Fail => json!({ "op": "fail", "message": format!("asked by {number}") }),
            Self::Cancelled => json!({ "op": "sleep_forever" }),
        }
    }

    /// Whether the final document is one that this job may have.
    fn permits(self, number: u64, document: &Value) -> bool {
        if document["status"] == "FAILED" && document["retries"].as_u64() >= Some(3) {
            return true; // its host died three times
        }
        match self {
            Self::Echo => document["output"] == json!({ "echo": number }),
            Self::Sleep => document["output"] == json!({ "slept": 30, "echo": number }),
            Self::Stream => document["output"] == json!([{ "i": 0 }, { "i": 1 }, { "i": 2 }]),
            Self::Fail => document["error"] == format!("asked by {number}"),
            Self::Cancelled => document["status"] == "CANCELLED",
        }
    }
}

/// The jobs that were acknowledged, and the final documents that were seen.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    jobs: Mutex<Vec<(String, Kind, u64)>>,
    seen: Mutex<HashMap<String, Value>>,
    /// Submissions that broke off: each may have become a job, of which nobody knows.
    unanswered: AtomicU64,
}

impl Ledger {
    pub(crate) fn acknowledged(&self, job: &str, kind: Kind, number: u64) {
        self.jobs.lock().unwrap().push((job.to_owned(), kind, number));
    }

    pub(crate) fn broke_off(&self) {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes a final document; a second one must be the same.
    pub(crate) fn seen(&self, document: &Value) {
        if matches!(document["status"].as_str(), Some("IN_QUEUE" | "IN_PROGRESS")) {
            return;
        }
        let job = document["id"].as_str().unwrap().to_owned();
        let mut seen = self.seen.lock().unwrap();
        let first = seen.entry(job).or_insert_with(|| document.clone());
        for field in ["status", "output", "error"] {
            assert_eq!(first[field], document[field], "two results of one job: {first} {document}");
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.jobs.lock().unwrap().len()
    }

    /// Every acknowledged job ends, once, and as it was asked to.
    pub(crate) async fn check(&self, client: &Client, endpoint: &str) {
        let jobs = self.jobs.lock().unwrap().clone();
        let mut again = 0;
        for (job, kind, number) in jobs {
            // A cancellation may have been on its way when the host died.
            if kind == Kind::Cancelled {
                client.cancel(endpoint, &job).await.ok();
            }
            let document = client.finished(endpoint, &job).await;
            self.seen(&document);
            assert!(kind.permits(number, &document), "{kind:?} {number}: {document}");
            again += u64::from(document.get("retries").is_some());
        }
        println!("{again} of {} jobs ran more than once", self.len());
        self.check_counts(&client.health(endpoint).await);
    }

    /// The host's counts are those of the jobs that are known, and of at most those that may
    /// exist without a client's knowledge.
    fn check_counts(&self, health: &Value) {
        let unanswered = self.unanswered.load(Ordering::Relaxed);
        let seen = self.seen.lock().unwrap();
        for (field, status) in [("completed", "COMPLETED"), ("failed", "FAILED")] {
            let known =
                seen.values().filter(|document| document["status"] == status).count() as u64;
            let counted = health["jobs"][field].as_u64().unwrap();
            let possible = known..=known + unanswered;
            assert!(possible.contains(&counted), "{field}: {possible:?}: {health}");
        }
        let left = &health["jobs"];
        let left = left["inQueue"].as_u64().unwrap() + left["inProgress"].as_u64().unwrap();
        assert!(left <= unanswered, "{unanswered} submissions broke off: {health}");
    }
}
