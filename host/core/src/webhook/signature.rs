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

/// How long the previous secret is still used for signing: a day, in which receivers can change to
/// the new one.
const PREVIOUS_VALID_MS: u64 = 24 * 60 * 60 * 1_000;

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

/// The secrets of one endpoint: one, or two for a day after a rotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookSecrets {
    current: WebhookSecret,
    previous: Option<PreviousSecret>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PreviousSecret {
    secret: WebhookSecret,
    valid_until: Timestamp,
}

impl WebhookSecrets {
    /// One new secret.
    pub fn generate() -> Self {
        Self { current: WebhookSecret::generate(), previous: None }
    }

    /// The newest secret.
    pub fn current(&self) -> &WebhookSecret {
        &self.current
    }

    /// Adds a new secret; the previous one stays valid for a day, and older ones are dropped.
    #[must_use]
    pub fn rotated(self, now: Timestamp) -> Self {
        let valid_until = now.plus_millis(PREVIOUS_VALID_MS);
        let previous = Some(PreviousSecret { secret: self.current, valid_until });
        Self { current: WebhookSecret::generate(), previous }
    }

    /// The signatures of one call, newest secret first, as the value of the header
    /// `webhook-signature`.
    pub fn sign(&self, id: &str, now: Timestamp, body: &[u8]) -> String {
        let timestamp_s = now.as_millis() / 1_000;
        let newest = self.current.sign(id, timestamp_s, body);
        match &self.previous {
            Some(previous) if previous.valid_until > now => {
                format!("{newest} {}", previous.secret.sign(id, timestamp_s, body))
            }
            Some(_) | None => newest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(bytes: &[u8]) -> WebhookSecret {
        format!("{PREFIX}{}", STANDARD.encode(bytes)).try_into().unwrap()
    }

    #[test]
    fn signatures_are_those_of_another_implementation() {
        // Computed with Python's modules `hmac` and `base64`.
        let secret = secret(b"0123456789abcdefghijklmnopqrstuv");
        let signature = secret.sign("msg_1", 1_700_000_000, br#"{"id":"1"}"#);
        assert_eq!(signature, "v1,ZpKFzDKR42bFRnDOTV1XUTVz0PasuCXqg+jEuq/44g0=");
    }

    #[test]
    fn after_a_rotation_both_secrets_sign_for_a_day() {
        let old = WebhookSecrets::generate();
        let now = Timestamp::from_millis(5_000);
        let new = old.clone().rotated(now);
        assert_ne!(old.current(), new.current());
        let both = new.sign("m", now, b"{}");
        let (newest, previous) = both.split_once(' ').unwrap();
        assert_eq!(previous, old.sign("m", now, b"{}"));
        assert_eq!(newest, new.current().sign("m", 5, b"{}"));
        let later = now.plus_millis(PREVIOUS_VALID_MS);
        assert!(!new.sign("m", later, b"{}").contains(' '));
        let twice = new.rotated(now);
        assert!(!twice.sign("m", now, b"{}").contains(previous));
    }

    #[test]
    fn secrets_survive_text_and_are_not_shown_by_accident() {
        let secret = WebhookSecret::generate();
        assert_eq!(WebhookSecret::try_from(secret.reveal()), Ok(secret.clone()));
        assert_eq!(format!("{secret:?}"), "WebhookSecret(redacted)");
        for wrong in ["", "whsec_", "whsec_AAAA", "whsec_%"] {
            assert_eq!(WebhookSecret::try_from(wrong.to_owned()), Err(InvalidWebhookSecret));
        }
    }
}
