//! The documents that the last host of a recorded data directory returned.

use std::collections::BTreeMap;

use gristmill_tests::recorded;
use serde::Deserialize;
use serde_json::Value;

/// The content of `expected.json`, which `record.py` writes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Expected {
    /// The last time of the host's clock, in milliseconds since the Unix epoch.
    pub(super) clock: u64,
    /// The address of the receiver of webhooks.
    pub(super) receiver: String,
    /// The address of the registry.
    pub(super) registry: String,
    /// The texts of API keys by name.
    pub(super) keys: BTreeMap<String, String>,
    pub(super) secrets: Secrets,
    /// Submissions with an idempotency key.
    pub(super) repeats: Vec<Repeat>,
    /// The first attempts of the webhooks that wait, by path.
    pub(super) pending_webhooks: BTreeMap<String, Webhook>,
    pub(super) documents: Vec<Document>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Secrets {
    pub(super) revoked_key: String,
    /// The registry's user name and password, as a request has them.
    pub(super) basic: String,
    /// The variable `TOKEN` of the endpoint `done`.
    pub(super) token: String,
    pub(super) old_webhook: String,
    pub(super) new_webhook: String,
    pub(super) partly_read: PartlyRead,
}

/// A job whose first chunks were delivered.
#[derive(Debug, Deserialize)]
pub(super) struct PartlyRead {
    pub(super) endpoint: String,
    pub(super) job: String,
    pub(super) delivered: usize,
}

#[derive(Debug, Deserialize)]
pub(super) struct Repeat {
    /// The name of the API key; none for the admin key.
    pub(super) key: Option<String>,
    pub(super) path: String,
    /// The bytes of the body: a repetition with other bytes is refused.
    pub(super) body: String,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) answer: Value,
}

#[derive(Debug, Deserialize)]
pub(super) struct Webhook {
    pub(super) id: String,
    pub(super) body: String,
}

/// The answer to a GET.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Document {
    /// The name of the API key; none for the admin key.
    pub(super) key: Option<String>,
    pub(super) path: String,
    pub(super) status: u16,
    /// The headers that describe a page.
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Value,
}

/// The content of `expected.json`.
pub(super) fn expected(archive: &str) -> Expected {
    serde_json::from_slice(&recorded::member(archive, "expected.json")).unwrap()
}
