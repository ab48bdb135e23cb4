//! Secrets that the host has issued for a key: tokens of sessions, and links. Only their hashes are
//! kept.
//!
//! **Bounds.** Those of [`Bounds`]; an entry is about 150 bytes. A key at its bound loses its
//! oldest entry, and a full set the entry that was unused for longest. **Cost.** A new secret costs
//! a look at all entries, some microseconds for a hundred of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use gristmill_core::access::key::ApiKey;
use sha2::{Digest as _, Sha256};

/// How long secrets are valid, and how many there are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Longest time without a use.
    pub(super) idle: Duration,
    /// Longest time in all.
    pub(super) life: Duration,
    /// Most secrets of one key.
    pub(super) of_key_max: usize,
    /// Most secrets of all keys.
    pub(super) all_max: usize,
}

/// The hash of a secret. A lookup by it takes no time that depends on the secret.
pub(super) type Hash = [u8; 32];

/// The valid secrets. All times are those of a monotonic clock.
#[derive(Debug)]
pub(super) struct Issued {
    bounds: Bounds,
    entries: HashMap<Hash, Entry>,
    /// The number of the next one.
    next: u64,
}

#[derive(Debug)]
struct Entry {
    key: Arc<ApiKey>,
    issued_at: Duration,
    used_at: Duration,
    /// Orders secrets that were issued at the same time.
    number: u64,
}

/// A secret that was found.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) key: Arc<ApiKey>,
    /// Until its end, if it is not used any more.
    pub(super) left: Duration,
}

impl Issued {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, entries: HashMap::new(), next: 0 }
    }

    /// A new secret of a key.
    pub(super) fn issue(&mut self, key: Arc<ApiKey>, now: Duration) -> String {
        let Bounds { of_key_max, all_max, .. } = self.bounds;
        self.drop_ended(now);
        let of_key = || self.entries.iter().filter(|(_, entry)| entry.key.id == key.id);
        let surplus = if of_key().count() >= of_key_max {
            of_key().min_by_key(|(_, entry)| entry.number)
        } else if self.entries.len() >= all_max {
            self.entries.iter().min_by_key(|(_, entry)| (entry.used_at, entry.number))
        } else {
            None
        };
        if let Some(hash) = surplus.map(|(hash, _)| *hash) {
            self.entries.remove(&hash);
        }
        let number = self.next;
        self.next += 1;
        let text = BASE64URL_NOPAD.encode(&rand::random::<[u8; 32]>());
        self.entries.insert(hash(&text), Entry { key, issued_at: now, used_at: now, number });
        text
    }

    /// Finds a secret, which counts as its use.
    pub(super) fn find(&mut self, text: &str, now: Duration) -> Option<Found> {
        let (bounds, hash) = (self.bounds, hash(text));
        let entry = self.entries.get_mut(&hash)?;
        if entry.left(bounds, now).is_zero() {
            self.entries.remove(&hash);
            return None;
        }
        entry.used_at = now;
        Some(Found { key: entry.key.clone(), left: entry.left(bounds, now) })
    }

    /// Whether the secret with this hash is valid. The look does not count as its use.
    pub(super) fn has(&self, hash: &Hash, now: Duration) -> bool {
        self.entries.get(hash).is_some_and(|entry| !entry.left(self.bounds, now).is_zero())
    }

    /// Removes a secret, and returns it if it was valid.
    pub(super) fn take(&mut self, text: &str, now: Duration) -> Option<Found> {
        let found = self.find(text, now);
        self.entries.remove(&hash(text));
        found
    }

    fn drop_ended(&mut self, now: Duration) {
        let bounds = self.bounds;
        self.entries.retain(|_, entry| !entry.left(bounds, now).is_zero());
    }
}

impl Entry {
    /// The time until the end; zero after it.
    fn left(&self, Bounds { idle, life, .. }: Bounds, now: Duration) -> Duration {
        let end = (self.used_at + idle).min(self.issued_at + life);
        end.saturating_sub(now)
    }
}

pub(super) fn hash(text: &str) -> Hash {
    Sha256::digest(text).into()
}

#[cfg(test)]
#[path = "issued_tests.rs"]
mod tests;
