//! Whether the host requires keys, or serves every caller (`--no-key`).

use std::sync::Arc;

use gristmill_core::access::key::{ApiKey, NewKey, Scope};
use gristmill_core::id::OwnerId;
use gristmill_core::time::Timestamp;

/// The callers that the host serves.
#[derive(Debug, Clone, Default)]
pub struct Access(Option<Arc<ApiKey>>);

impl Access {
    /// Callers with a key.
    pub fn with_keys() -> Self {
        Self(None)
    }

    /// Every caller, as `owner` and with every permission. Only for a host that listens on
    /// loopback.
    pub fn without_keys(owner: OwnerId, now: Timestamp) -> Self {
        let (key, _) = ApiKey::generate(
            NewKey {
                name: "no key".into(),
                owner,
                scopes: vec![Scope::Admin],
                endpoints: None,
                expires_at: None,
            },
            now,
        );
        Self(Some(Arc::new(key)))
    }

    /// The key that every call counts as, if none is required.
    pub fn key_of_all(&self) -> Option<&Arc<ApiKey>> {
        self.0.as_ref()
    }
}
