//! Credentials for fetching images from registries. Each is bound to one registry: no template
//! sends it to another.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::deploy::image::RegistryHost;
use crate::id::{OwnerId, RegistryAuthId};
use crate::time::Timestamp;

/// A user name and a password for a registry. Encrypted in the catalog, and sent only to the
/// registry.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistryAuth {
    /// Its id.
    pub id: RegistryAuthId,
    /// Its owner; other owners' templates cannot name it.
    pub owner: OwnerId,
    /// Unique among the owner's.
    pub name: String,
    /// The only registry that receives them.
    pub registry: RegistryHost,
    /// The user at the registry.
    pub username: String,
    /// The password, or a token in its place.
    pub password: String,
    /// When it was created.
    pub created_at: Timestamp,
}

impl fmt::Debug for RegistryAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, owner, name, registry, username, password: _, created_at } = self;
        f.debug_struct("RegistryAuth")
            .field("id", id)
            .field("owner", owner)
            .field("name", name)
            .field("registry", registry)
            .field("username", username)
            .field("created_at", created_at)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_not_logged() {
        let auth = RegistryAuth {
            id: RegistryAuthId::new("a").unwrap(),
            owner: OwnerId::new("me").unwrap(),
            name: "hub".into(),
            registry: RegistryHost::DEFAULT.parse().unwrap(),
            username: "mill".into(),
            password: "s3cret".into(),
            created_at: Timestamp::from_millis(0),
        };
        let shown = format!("{auth:?}");
        assert!(shown.contains("mill") && !shown.contains("s3cret"), "{shown}");
    }
}
