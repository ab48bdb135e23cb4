//! Signatures of webhooks, by the Standard Webhooks specification, and their secrets. A receiver
//! with an endpoint's secret can verify that a call came from this platform and was not changed.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::time::Timestamp;

/// The prefix of a secret's text.
const PREFIX: &str = "whsec_";

/// Bytes of a new secret; the specification allows 24 to 64.
const SECRET_BYTES: usize = 32;

/// How long a previous secret is still used for signing: a day, in which receivers can change to
/// the new one.
const PREVIOUS_VALID_MS: u64 = 24 * 60 * 60 * 1_000;

/// Most previous secrets, so that the header stays short: five signatures have 240 bytes.
const PREVIOUS_MAX: usize = 4;

/// A secret that signs an endpoint's webhooks.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WebhookSecret(Vec<u8>);

/// The error for a text that is not a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a webhook secret is `whsec_` and the base64 of 24 to 64 bytes")]
pub struct InvalidWebhookSecret;

impl WebhookSecret {
    /// A new random secret.
    pub fn generate() -> Self {
        use rand::RngExt as _;
        Self(rand::rng().random::<[u8; SECRET_BYTES]>().to_vec())
    }

    /// The secret's text for receivers.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(&self.0))
    }

    /// The signature of one call: `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`.
    pub fn sign(&self, id: &str, timestamp_s: u64, body: &[u8]) -> String {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of every length");
        mac.update(format!("{id}.{timestamp_s}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret(redacted)")
    }
}

impl TryFrom<String> for WebhookSecret {
    type Error = InvalidWebhookSecret;
    fn try_from(text: String) -> Result<Self, InvalidWebhookSecret> {
        let encoded = text.strip_prefix(PREFIX).ok_or(InvalidWebhookSecret)?;
        let bytes = STANDARD.decode(encoded).map_err(|_| InvalidWebhookSecret)?;
        if (24..=64).contains(&bytes.len()) { Ok(Self(bytes)) } else { Err(InvalidWebhookSecret) }
    }
}

impl From<WebhookSecret> for String {
    fn from(secret: WebhookSecret) -> Self {
        secret.reveal()
    }
}

/// The secrets of one endpoint: the newest one, and for a day after a rotation the ones before it.
///
/// Receivers may know any of them: a rotation may be repeated because its answer was lost, or two
/// operators may rotate at the same time. So all of them sign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookSecrets {
    current: WebhookSecret,
    /// The oldest first; at most [`PREVIOUS_MAX`].
    previous: Vec<PreviousSecret>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PreviousSecret {
    secret: WebhookSecret,
    valid_until: Timestamp,
}

impl WebhookSecrets {
    /// One new secret.
    pub fn generate() -> Self {
        Self { current: WebhookSecret::generate(), previous: Vec::new() }
    }

    /// The newest secret.
    pub fn current(&self) -> &WebhookSecret {
        &self.current
    }

    /// Adds a new secret. Each previous one stays valid for a day after its replacement. If there
    /// are too many, the newest of them is dropped: receivers are more likely to know the older
    /// ones.
    #[must_use]
    pub fn rotated(self, now: Timestamp) -> Self {
        let Self { current: secret, mut previous } = self;
        previous.retain(|earlier| earlier.valid_until > now);
        previous.truncate(PREVIOUS_MAX - 1);
        let valid_until = now.plus_millis(PREVIOUS_VALID_MS);
        previous.push(PreviousSecret { secret, valid_until });
        Self { current: WebhookSecret::generate(), previous }
    }

    /// The signatures of one call, newest secret first, as the value of the header
    /// `webhook-signature`.
    pub fn sign(&self, id: &str, now: Timestamp, body: &[u8]) -> String {
        let timestamp_s = now.as_millis() / 1_000;
        let previous = self.previous.iter().rev().filter(|previous| previous.valid_until > now);
        let secrets = std::iter::once(&self.current).chain(previous.map(|it| &it.secret));
        let signatures: Vec<_> = secrets.map(|secret| secret.sign(id, timestamp_s, body)).collect();
        signatures.join(" ")
    }
}

#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;
