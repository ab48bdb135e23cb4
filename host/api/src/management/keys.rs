//! `/v1/keys`: API keys, of the operator and of other owners. Only a key with the scope `admin` may
//! create, list or revoke them.

use std::sync::Arc;

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use gristmill_core::access::key::ApiKey;
use gristmill_wire::management::{Key, KeyWithText, NewKey};

use super::input::{self, Named};
use super::page::{Page, Paged};
use crate::answer::error::ApiError;
use crate::answer::wire_time::rfc3339;
use crate::identity::caller::{Admin, Caller};
use crate::openapi::parameters::PageOfList;
use crate::openapi::refusals::{BodyRefused, Missing, Mistaken};
use crate::openapi::tag;

/// All keys, without their secrets.
#[utoipa::path(
    get, path = "/keys", operation_id = "ListKeys", tag = tag::KEYS,
    params(PageOfList),
    responses((status = 200, description = "Oldest first", body = Vec<Key>), Mistaken),
)]
pub(crate) async fn list(
    Caller { state, key, .. }: Caller<Admin>,
    page: Page,
) -> Result<Paged, ApiError> {
    let keys = state.control.keys.list();
    let cursor_position =
        |key: &&Arc<ApiKey>| format!("{:020} {}", key.created_at.as_millis(), key.id);
    let select = move |page: Page| page.of(&keys, cursor_position, |key| shown(key));
    page.make(&state, &key, select).await
}

/// A new key; its text is shown in this answer and never again.
///
/// Keys of the same owner that expired more than 30 days ago are removed.
#[utoipa::path(
    post, path = "/keys", operation_id = "CreateKey", tag = tag::KEYS,
    request_body = NewKey,
    responses((status = 200, description = "The new key", body = KeyWithText), BodyRefused),
)]
pub(crate) async fn create(
    Caller { state, key, .. }: Caller<Admin>,
    request: Request,
) -> Result<Json<KeyWithText>, ApiError> {
    let input: NewKey = input::json(&state, &key, request).await?;
    let (created, text) = state.control.keys.create(&key, input).await?;
    Ok(Json(KeyWithText { key: shown(&created), text: text.reveal().to_owned() }))
}

/// Revokes a key: from now on it is refused.
///
/// The last admin key that does not expire cannot be revoked (`conflict`): without it no new keys
/// could be created.
#[utoipa::path(
    delete, path = "/keys/{id}", operation_id = "RevokeKey", tag = tag::KEYS,
    responses((status = 204, description = "It is refused from now on"), Mistaken, Missing),
)]
pub(crate) async fn revoke(
    Caller { state, key, .. }: Caller<Admin>,
    Named(id): Named,
) -> Result<StatusCode, ApiError> {
    state.control.keys.revoke(&key, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The answer's form of a key, without its secret.
fn shown(key: &ApiKey) -> Key {
    Key {
        id: key.id.clone(),
        name: key.name.clone(),
        owner: key.owner.clone(),
        scopes: key.scopes.clone(),
        created_at: rfc3339(key.created_at),
        endpoints: key.endpoints.clone(),
        expires_at: key.expires_at.map(rfc3339),
    }
}
