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
mod tests {
    use gristmill_core::access::key::{NewKey, Scope};
    use gristmill_core::id::OwnerId;
    use gristmill_core::time::Timestamp;

    use super::*;

    const BOUNDS: Bounds = Bounds {
        idle: Duration::from_secs(10),
        life: Duration::from_secs(25),
        of_key_max: 3,
        all_max: 5,
    };

    fn key(owner: &str) -> Arc<ApiKey> {
        let new = NewKey {
            name: String::new(),
            owner: OwnerId::new(owner).unwrap(),
            scopes: vec![Scope::Read],
            endpoints: None,
            expires_at: None,
        };
        Arc::new(ApiKey::generate(new, Timestamp::from_millis(0)).0)
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_secret_ends_when_it_is_not_used_and_at_the_end_of_its_life() {
        // (the times of uses, whether it is found)
        let cases: [&[(u64, bool)]; 5] = [
            &[(0, true), (9, true), (18, true), (24, true), (25, false)],
            &[(9, true), (19, false), (19, false)],
            &[(10, false), (1, false)],
            // A use at a time before the last one changes nothing for the worse.
            &[(9, true), (3, true), (12, true)],
            &[(u64::MAX, false)],
        ];
        for uses in cases {
            let mut issued = Issued::new(BOUNDS);
            let text = issued.issue(key("a"), at(0));
            for (now, expected) in uses {
                assert_eq!(issued.find(&text, at(*now)).is_some(), *expected, "{uses:?} at {now}");
            }
        }
    }

    #[test]
    fn a_look_at_a_secret_is_no_use_of_it() {
        let mut issued = Issued::new(BOUNDS);
        let text = issued.issue(key("a"), at(0));
        let looks = [1, 9, 10].map(|now| issued.has(&hash(&text), at(now)));
        assert_eq!(looks, [true, true, false], "it ends ten seconds after it was issued");
        assert!(!issued.has(&hash("x"), at(1)));
        issued.take(&text, at(1)).unwrap();
        assert!(!issued.has(&hash(&text), at(1)));
    }

    #[test]
    fn a_secret_is_taken_once_and_no_other_text_is_one() {
        let mut issued = Issued::new(BOUNDS);
        let text = issued.issue(key("a"), at(0));
        assert_eq!(text.len(), 43);
        for other in ["", "x", &text[1..], &text.to_lowercase(), &format!("{text}=")] {
            assert!(issued.take(other, at(1)).is_none(), "{other}");
        }
        assert!(issued.take(&text, at(1)).is_some());
        assert!(issued.take(&text, at(1)).is_none());
        let late = issued.issue(key("a"), at(0));
        assert!(issued.take(&late, at(10)).is_none());
    }

    #[test]
    fn a_key_at_its_bound_loses_its_oldest_secret() {
        let (mut issued, a) = (Issued::new(BOUNDS), key("a"));
        let texts: Vec<_> = (0..4).map(|_| issued.issue(a.clone(), at(0))).collect();
        let found: Vec<_> = texts.iter().map(|text| issued.find(text, at(1)).is_some()).collect();
        assert_eq!(found, [false, true, true, true]);
    }

    #[test]
    fn a_full_set_loses_the_secret_that_was_unused_for_longest() {
        let mut issued = Issued::new(BOUNDS);
        let texts: Vec<_> = (0..5).map(|_| issued.issue(key("a"), at(0))).collect();
        for text in texts.iter().take(4) {
            issued.find(text, at(2)).unwrap();
        }
        let next = issued.issue(key("b"), at(3));
        assert!(issued.find(&texts[4], at(3)).is_none());
        assert!(texts[..4].iter().chain([&next]).all(|text| issued.find(text, at(3)).is_some()));
        assert_eq!(issued.entries.len(), 5);
    }

    #[test]
    fn ended_secrets_leave_no_memory() {
        let mut issued = Issued::new(BOUNDS);
        for minute in 0..10_000 {
            issued.issue(key("a"), at(60 * minute));
        }
        assert_eq!(issued.entries.len(), 1);
    }
}
