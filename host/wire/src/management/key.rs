//! API keys.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{EndpointId, KeyId, OwnerId};
#[cfg(feature = "openapi")]
use crate::schema;
use crate::{Scope, whole_number};

/// A key to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewKey {
    /// A display name.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Name))]
    pub name: String,
    /// Its permissions.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Scopes))]
    pub scopes: Vec<Scope>,
    /// The key's owner, who exists from then on; by default the operator. The key reaches only this
    /// owner's objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Id>))]
    pub owner: Option<OwnerId>,
    /// The endpoints that the key is valid for; by default all endpoints of its owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::KeyEndpoints>))]
    pub endpoints: Option<Vec<EndpointId>>,
    /// By default it does not expire.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::KeyLife>))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub expires_in_seconds: Option<u64>,
}

/// The answer's form of a key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Key {
    /// The public part of the key.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub id: KeyId,
    /// A display name.
    pub name: String,
    /// The key's owner.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub owner: OwnerId,
    /// Its permissions.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::Scope>))]
    pub scopes: Vec<Scope>,
    /// When it was created.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub created_at: String,
    /// Absent: all endpoints of the key's owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::EndpointId>))]
    pub endpoints: Option<Vec<EndpointId>>,
    /// Absent: the key does not expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub expires_at: Option<String>,
}

/// A new key, with its secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyWithText {
    /// The key.
    #[serde(flatten)]
    pub key: Key,
    /// The whole key, which clients send; this is the only answer that contains it.
    #[serde(rename = "key")]
    pub text: String,
}

impl fmt::Debug for KeyWithText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyWithText").field("key", &self.key).finish_non_exhaustive()
    }
}
