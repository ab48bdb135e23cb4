//! Credentials for registries.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::RegistryAuthId;
#[cfg(feature = "openapi")]
use crate::schema;

/// Credentials to store.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = NewContainerRegistryAuth))]
#[serde(deny_unknown_fields)]
pub struct NewRegistryAuth {
    /// Unique among the owner's credentials.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Name))]
    pub name: String,
    /// The only registry that they are sent to, as images name it; `docker.io` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::RegistryHost>))]
    pub registry: Option<String>,
    /// The user at the registry.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::RegistryUser))]
    pub username: String,
    /// The password, or a token used as one. No answer contains it.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::RegistryPassword))]
    pub password: String,
}

impl fmt::Debug for NewRegistryAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, registry, username, password: _ } = self;
        f.debug_struct("NewRegistryAuth")
            .field("name", name)
            .field("registry", registry)
            .field("username", username)
            .finish_non_exhaustive()
    }
}

/// The answer's form of credentials, without the password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(as = ContainerRegistryAuth))]
pub struct RegistryAuth {
    /// The id for the field `containerRegistryAuthId` of templates.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub id: RegistryAuthId,
    /// Unique among the owner's credentials.
    pub name: String,
    /// The only registry that they are sent to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::RegistryHost))]
    pub registry: Option<String>,
    /// The user at the registry.
    pub username: String,
    /// When they were created.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub created_at: String,
}
