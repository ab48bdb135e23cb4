//! API keys: `gm_<key id>_<secret>`. The secret has 256 random bits and is kept only as its
//! SHA-256; with so much entropy a slow password hash would add no protection.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

pub use gristmill_wire::Scope;

use crate::id::{EndpointId, KeyId, OwnerId};
use crate::time::Timestamp;

/// A stored key: everything except the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    /// The public part of the key's text.
    pub id: KeyId,
    /// A display name.
    pub name: String,
    /// Its owner. A key with the scope `admin` belongs to the operator.
    pub owner: OwnerId,
    /// Its permissions; never empty.
    pub scopes: Vec<Scope>,
    /// The endpoints that it may use; `None`: all of them.
    pub endpoints: Option<Vec<EndpointId>>,
    /// When it was created.
    pub created_at: Timestamp,
    /// The time from which it is refused.
    pub expires_at: Option<Timestamp>,
    /// SHA-256 of the secret.
    secret_sha256: [u8; 32],
}

/// The text of a key, shown once at its creation.
pub struct KeyText(String);

impl KeyText {
    /// The text for clients.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyText(redacted)")
    }
}

/// The properties of a new key.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// A display name.
    pub name: String,
    /// Its owner.
    pub owner: OwnerId,
    /// Its permissions.
    pub scopes: Vec<Scope>,
    /// The endpoints that it may use; `None`: all.
    pub endpoints: Option<Vec<EndpointId>>,
    /// The time from which it is refused.
    pub expires_at: Option<Timestamp>,
}

impl ApiKey {
    /// Creates a key and its text.
    pub fn generate(new: NewKey, now: Timestamp) -> (Self, KeyText) {
        use rand::RngExt as _;
        const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
        let mut rng = rand::rng();
        let id: String = (0..12)
            .map(|_| char::from(ALPHABET.get(rng.random_range(0..32)).copied().unwrap_or(b'a')))
            .collect();
        let secret = URL_SAFE_NO_PAD.encode(rng.random::<[u8; 32]>());
        let text = KeyText(format!("gm_{id}_{secret}"));
        let key = Self {
            id: KeyId::new(&id).expect("letters and digits are an id"),
            name: new.name,
            owner: new.owner,
            scopes: new.scopes,
            endpoints: new.endpoints,
            created_at: now,
            expires_at: new.expires_at,
            secret_sha256: Sha256::digest(secret).into(),
        };
        (key, text)
    }

    /// What the calls of a visitor, who has no key, count as on one public endpoint. No text is
    /// that of this key, and it is stored nowhere.
    pub fn of_visitor(id: KeyId, owner: OwnerId, endpoint: EndpointId) -> Self {
        Self {
            id,
            name: String::new(),
            owner,
            scopes: vec![Scope::Submit],
            endpoints: Some(vec![endpoint]),
            created_at: Timestamp::from_millis(0),
            expires_at: None,
            secret_sha256: [0; 32],
        }
    }

    /// Splits a key's text into the key's id and the secret. `None`: not the text of a key.
    pub fn parse_text(text: &str) -> Option<(KeyId, &str)> {
        let (id, secret) = text.strip_prefix("gm_")?.split_once('_')?;
        Some((KeyId::new(id).ok()?, secret))
    }

    /// Whether `secret` belongs to this key, compared in constant time, and the key has not
    /// expired.
    pub fn accepts(&self, secret: &str, now: Timestamp) -> bool {
        let given: [u8; 32] = Sha256::digest(secret).into();
        bool::from(given.ct_eq(&self.secret_sha256)) && !self.is_expired(now)
    }

    /// Whether the key has expired at `now`.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| now >= at)
    }

    /// Whether the key can see objects of `owner`: those of its own owner and, with the scope
    /// `admin`, those of all owners. Other objects do not exist for it.
    pub fn sees(&self, owner: &OwnerId) -> bool {
        self.owner == *owner || self.is_admin()
    }

    /// Whether the key belongs to the operator and has every permission.
    pub fn is_admin(&self) -> bool {
        self.scopes.contains(&Scope::Admin)
    }

    /// Whether the key may use an operation that needs `needed`: on `endpoint`, or without any
    /// endpoint.
    pub fn allows(&self, needed: Scope, endpoint: Option<&EndpointId>) -> bool {
        let on_endpoint = match (&self.endpoints, endpoint) {
            (None, _) => true,
            (Some(list), Some(endpoint)) => list.contains(endpoint),
            (Some(_), None) => false,
        };
        on_endpoint && self.scopes.iter().any(|scope| scope.covers(needed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn key(scopes: &[Scope], endpoints: Option<&[&str]>) -> (ApiKey, KeyText) {
        let id = |text: &&str| EndpointId::new(text).unwrap();
        let new = NewKey {
            name: "k".into(),
            owner: OwnerId::new("me").unwrap(),
            scopes: scopes.to_vec(),
            endpoints: endpoints.map(|list| list.iter().map(id).collect()),
            expires_at: Some(NOW.plus_millis(10)),
        };
        ApiKey::generate(new, NOW)
    }

    #[test]
    fn only_its_own_text_opens_a_key_and_only_until_it_expires() {
        let (key, text) = key(&[Scope::Read], None);
        let (id, secret) = ApiKey::parse_text(text.reveal()).unwrap();
        assert_eq!(id, key.id);
        assert!(key.accepts(secret, NOW));
        assert!(!key.accepts(secret, NOW.plus_millis(10)));
        assert!(!key.accepts(&secret[1..], NOW));
        assert!(!key.accepts("", NOW));
        for wrong in ["", "gm_", "gm_abc", "sk_abc_def", "gm__x", "gm_a b_c"] {
            assert!(ApiKey::parse_text(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn the_secret_is_neither_stored_nor_logged() {
        let (key, text) = key(&[Scope::Admin], None);
        let (_, secret) = ApiKey::parse_text(text.reveal()).unwrap();
        assert!(!serde_json::to_string(&key).unwrap().contains(secret));
        assert!(!format!("{key:?} {text:?}").contains(secret));
    }

    #[test]
    fn a_key_sees_its_owners_things_and_an_admin_key_sees_all() {
        let [me, other] = ["me", "other"].map(|name| OwnerId::new(name).unwrap());
        for scope in Scope::ALL {
            let (key, _) = key(&[scope], None);
            assert!(key.sees(&me), "{scope:?}");
            assert_eq!(key.sees(&other), scope == Scope::Admin, "{scope:?}");
        }
    }

    #[test]
    fn scopes_and_endpoints_both_have_to_allow() {
        use Scope::{Admin, Manage, Metrics, Read, Submit};
        let covered = [
            (Admin, vec![Admin, Manage, Submit, Read, Metrics]),
            (Manage, vec![Manage, Metrics]),
            (Submit, vec![Submit, Read]),
            (Read, vec![Read]),
            (Metrics, vec![Metrics]),
        ];
        let a = EndpointId::new("a").unwrap();
        let b = EndpointId::new("b").unwrap();
        for (scope, allowed) in covered {
            let (everywhere, _) = key(&[scope], None);
            let (only_a, _) = key(&[scope], Some(&["a"]));
            for needed in Scope::ALL {
                let expected = allowed.contains(&needed);
                assert_eq!(everywhere.allows(needed, Some(&b)), expected);
                assert_eq!(everywhere.allows(needed, None), expected);
                assert_eq!(only_a.allows(needed, Some(&a)), expected);
                assert!(!only_a.allows(needed, Some(&b)));
                assert!(!only_a.allows(needed, None));
            }
        }
    }
}
