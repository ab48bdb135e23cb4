//! Submissions that a client may repeat: the same `Idempotency-Key` with the same content always
//! refers to the same job.

use sha2::{Digest as _, Sha256};

use crate::id::OwnerId;

/// How long a key is stored after its first submission, in milliseconds (24 hours).
pub const KEY_LIFETIME_MS: u64 = 86_400_000;

/// Most keys that a store remembers, of about 150 bytes each. Beyond it, the owner with the most
/// keys loses the oldest key of the endpoint that has the most.
pub const KEYS_MAX: usize = 1_000_000;

/// The hashes by which a duplicate submission is recognised on its endpoint. Hashes are small and
/// reveal nothing; their first half is long enough to exclude accidental collisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Idempotency {
    /// Hash of the owner and the key.
    pub key: [u8; 16],
    /// Hash of the operation and the body.
    pub content: [u8; 16],
}

impl Idempotency {
    /// The hashes of `owner`'s submission of `body` by `operation`, with the key `text`.
    pub fn new(owner: &OwnerId, text: &str, operation: &str, body: &[u8]) -> Self {
        Self {
            key: digest(owner.as_str().as_bytes(), text.as_bytes()),
            content: digest(operation.as_bytes(), body),
        }
    }
}

/// The length separates the two parts.
fn digest(first: &[u8], second: &[u8]) -> [u8; 16] {
    let hash = Sha256::new()
        .chain_update((first.len() as u64).to_be_bytes())
        .chain_update(first)
        .chain_update(second)
        .finalize();
    let mut half = [0; 16];
    half.copy_from_slice(hash.split_at(16).0);
    half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_key_operation_and_body_each_count() {
        let mark = |owner, key, operation, body: &str| {
            Idempotency::new(&OwnerId::new(owner).unwrap(), key, operation, body.as_bytes())
        };
        let first = mark("ab", "c", "run", "{}");
        assert_eq!(first, mark("ab", "c", "run", "{}"));
        assert_ne!(first.key, mark("a", "bc", "run", "{}").key);
        assert_ne!(first.key, mark("ab", "d", "run", "{}").key);
        assert_ne!(first.content, mark("ab", "c", "runsync", "{}").content);
        assert_ne!(first.content, mark("ab", "c", "run", "{ }").content);
    }
}
