//! Credentials for registries.

use gristmill_core::id::RegistryAuthId;
use gristmill_core::image::RegistryHost;
use gristmill_core::registry_auth;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::openapi::schema;
use crate::wire_time::rfc3339;

/// Credentials to store.
#[derive(Deserialize, ToSchema)]
#[schema(as = NewContainerRegistryAuth)]
pub(crate) struct RegistryAuthInput {
    /// Unique among the owner's credentials.
    #[schema(value_type = schema::Name)]
    pub(crate) name: String,
    /// The only registry that they are sent to, as images name it; `docker.io` by default.
    #[schema(value_type = Option<schema::RegistryHost>)]
    pub(crate) registry: Option<String>,
    /// The user at the registry.
    #[schema(value_type = schema::RegistryUser)]
    pub(crate) username: String,
    /// The password, or a token used as one. No answer contains it.
    #[schema(value_type = schema::RegistryPassword)]
    pub(crate) password: String,
}

/// The answer's form of credentials, without the password.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ContainerRegistryAuth)]
pub(crate) struct RegistryAuth {
    /// The id for the field `containerRegistryAuthId` of templates.
    #[schema(value_type = schema::Id)]
    id: RegistryAuthId,
    name: String,
    /// The only registry that they are sent to. Absent for credentials of earlier versions, which
    /// are sent to the registries of the images whose templates name them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schema::RegistryHost)]
    registry: Option<RegistryHost>,
    username: String,
    #[schema(value_type = schema::Time)]
    created_at: String,
}

impl From<&registry_auth::RegistryAuth> for RegistryAuth {
    fn from(auth: &registry_auth::RegistryAuth) -> Self {
        Self {
            id: auth.id.clone(),
            name: auth.name.clone(),
            registry: auth.registry.clone(),
            username: auth.username.clone(),
            created_at: rfc3339(auth.created_at),
        }
    }
}
