//! API keys.

use gristmill_core::access::key::{ApiKey, KeyText};
use gristmill_wire::management::{Key, KeyWithText};

use crate::answer::wire_time::rfc3339;

/// The answer's form of a key, without its secret.
pub(crate) fn key(key: &ApiKey) -> Key {
    Key {
        id: key.id.clone(),
        name: key.name.clone(),
        owner: key.owner.clone(),
        scopes: key.scopes.clone(),
        created_at: rfc3339(key.created_at),
        endpoints: key.endpoints.clone(),
        expires_at: key.expires_at.map(rfc3339),
    }
}

/// A new key, with its secret.
pub(crate) fn key_with_text(new: &ApiKey, text: &KeyText) -> KeyWithText {
    KeyWithText { key: key(new), text: text.reveal().to_owned() }
}
