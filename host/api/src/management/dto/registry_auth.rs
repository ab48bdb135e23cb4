//! Credentials for registries.

use gristmill_core::deploy::registry_auth;
use gristmill_wire::management::RegistryAuth;

use crate::answer::wire_time::rfc3339;

/// The answer's form of credentials, without the password.
pub(crate) fn registry_auth(auth: &registry_auth::RegistryAuth) -> RegistryAuth {
    RegistryAuth {
        id: auth.id.clone(),
        name: auth.name.clone(),
        registry: Some(auth.registry.to_string()),
        username: auth.username.clone(),
        created_at: rfc3339(auth.created_at),
    }
}
