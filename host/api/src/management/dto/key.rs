//! API keys.

use gristmill_core::id::{EndpointId, KeyId, OwnerId};
use gristmill_core::key::{ApiKey, KeyText, Scope};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::openapi::schema;
use crate::whole_number;
use crate::wire_time::rfc3339;

/// A key to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = NewKey)]
pub(crate) struct KeyInput {
    #[schema(value_type = schema::Name)]
    pub(crate) name: String,
    #[schema(value_type = schema::Scopes)]
    pub(crate) scopes: Vec<Scope>,
    /// The key's owner; by default the operator. The key reaches only this owner's objects.
    #[schema(value_type = Option<schema::Id>)]
    pub(crate) owner: Option<OwnerId>,
    /// The endpoints that the key is valid for; by default all endpoints of its owner.
    #[schema(value_type = Option<schema::KeyEndpoints>)]
    pub(crate) endpoints: Option<Vec<EndpointId>>,
    #[schema(value_type = Option<schema::KeyLife>)]
    #[serde(default, deserialize_with = "whole_number::optional")]
    pub(crate) expires_in_seconds: Option<u64>,
}

/// The answer's form of a key, without its secret.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Key {
    #[schema(value_type = schema::Id)]
    id: KeyId,
    name: String,
    /// The key's owner.
    #[schema(value_type = schema::Id)]
    owner: OwnerId,
    #[schema(value_type = Vec<schema::Scope>)]
    scopes: Vec<Scope>,
    #[schema(value_type = schema::Time)]
    created_at: String,
    /// Absent: all endpoints of the key's owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<schema::EndpointId>)]
    endpoints: Option<Vec<EndpointId>>,
    /// Absent: the key does not expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schema::Time)]
    expires_at: Option<String>,
}

impl From<&ApiKey> for Key {
    fn from(key: &ApiKey) -> Self {
        Self {
            id: key.id.clone(),
            name: key.name.clone(),
            owner: key.owner.clone(),
            scopes: key.scopes.clone(),
            created_at: rfc3339(key.created_at),
            endpoints: key.endpoints.clone(),
            expires_at: key.expires_at.map(rfc3339),
        }
    }
}

/// A new key, with its secret.
#[derive(Serialize, ToSchema)]
pub(crate) struct KeyWithText {
    #[serde(flatten)]
    key: Key,
    /// The whole key, which clients send; this is the only answer that contains it.
    #[serde(rename = "key")]
    text: String,
}

impl KeyWithText {
    pub(crate) fn new(key: &ApiKey, text: &KeyText) -> Self {
        Self { key: key.into(), text: text.reveal().to_owned() }
    }
}
