//! The calls that the receiver of webhooks got.

use std::collections::HashMap;

use gristmill_tests::{Receiver, eventually};

use super::ledger::{End, Entry};

/// All calls by their `webhook-id`.
#[derive(Debug)]
pub(crate) struct ReceivedWebhooks {
    receiver: Receiver,
    bodies: HashMap<String, Vec<u8>>,
    pub(crate) calls: usize,
}

impl ReceivedWebhooks {
    pub(crate) async fn start() -> Self {
        Self { receiver: Receiver::start(&["200 OK"]).await, bodies: HashMap::new(), calls: 0 }
    }

    pub(crate) fn host(&self) -> String {
        self.receiver.host()
    }

    pub(crate) fn url(&self) -> String {
        self.receiver.url("/told")
    }

    /// Records the newest calls. A repeated one must have the same bytes.
    pub(crate) fn record_new_calls(&mut self) {
        for call in self.receiver.take() {
            self.calls += 1;
            let id = call.header("webhook-id").to_owned();
            let first = self.bodies.entry(id).or_insert_with(|| call.body.clone());
            assert!(*first == call.body, "double: two webhooks with one id: {call:?}");
        }
    }

    /// Waits until every end of the job was received, with the correct content.
    pub(crate) async fn expect(&mut self, job: &str, entry: &Entry) {
        for end in &entry.ends {
            let id = webhook_id(job, end);
            eventually(&format!("lost: the webhook {id}"), async || {
                self.record_new_calls();
                self.bodies.contains_key(&id).then_some(())
            })
            .await;
            // It is the status document with two more fields.
            let document = end.text.trim_end_matches('}').as_bytes();
            assert!(self.bodies[&id].starts_with(document), "wrong: the webhook {id}: {end:?}");
        }
    }

    /// Removes the records of a job that is not checked any more.
    pub(crate) fn forget(&mut self, job: &str, entry: &Entry) {
        for end in &entry.ends {
            self.bodies.remove(&webhook_id(job, end));
        }
    }
}

fn webhook_id(job: &str, end: &End) -> String {
    format!("msg_{job}_{}", end.retries)
}
