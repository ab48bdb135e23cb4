//! `/v1/keys`: API keys, of the operator and of other owners. Only a key with the scope `admin` may
//! create, list or revoke them.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use gristmill_core::catalog::{CatalogChange, CatalogEntry, CatalogKey};
use gristmill_core::id::{KeyId, OwnerId};
use gristmill_core::key::{ApiKey, NewKey, Scope};
use gristmill_core::limits::{KEY_ENDPOINTS_MAX, KEY_LIFE_S};

use super::dto::{Key, KeyInput, KeyWithText};
use super::input::{self, Named};
use super::page::{Page, Paged};
use crate::auth::ManagementCaller;
use crate::error::ApiError;
use crate::openapi::parameters::PageOfList;
use crate::openapi::refusals::{BodyRefused, Missing, Mistaken};
use crate::openapi::tag;
use crate::state::ApiState;

/// All keys, without their secrets.
#[utoipa::path(
    get, path = "/keys", operation_id = "ListKeys", tag = tag::KEYS,
    params(PageOfList),
    responses((status = 200, description = "Oldest first", body = Vec<Key>), Mistaken),
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    caller: ManagementCaller,
    page: Page,
) -> Result<Paged<Key>, ApiError> {
    caller.require(Scope::Admin)?;
    let view = state.catalog.view();
    let place = |key: &&Arc<ApiKey>| format!("{:020} {}", key.created_at.as_millis(), key.id);
    Ok(page.of(view.keys.values(), place, |key| (&**key).into()))
}

/// A new key; its text is shown in this answer and never again.
#[utoipa::path(
    post, path = "/keys", operation_id = "CreateKey", tag = tag::KEYS,
    request_body = KeyInput,
    responses((status = 200, description = "The new key", body = KeyWithText), BodyRefused),
)]
pub(crate) async fn create(
    State(state): State<ApiState>,
    caller: ManagementCaller,
    request: Request,
) -> Result<Json<KeyWithText>, ApiError> {
    caller.require(Scope::Admin)?;
    let input: KeyInput = input::json(&state, &caller, request).await?;
    input::check_name(&input.name)?;
    if input.scopes.is_empty() {
        return Err(ApiError::bad_request(
            "`scopes` must have at least one of admin, manage, submit, read",
        ));
    }
    input::check_count("scopes", input.scopes.len(), Scope::ALL.len())?;
    let endpoints = input.endpoints.as_ref().map_or(0, Vec::len);
    input::check_count("endpoints", endpoints, KEY_ENDPOINTS_MAX)?;
    let owner = input.owner.unwrap_or_else(|| caller.0.owner.clone());
    if input.scopes.contains(&Scope::Admin) && !owner.is_operator() {
        return Err(ApiError::bad_request(format!(
            "`scopes`: `admin` is for keys of the operator, `{}`; a key of `{owner}` may have manage, submit and read",
            OwnerId::OPERATOR
        )));
    }
    let now = state.jobs.now();
    let expires_at = match input.expires_in_seconds {
        Some(seconds) => {
            let seconds = input::bounded("expiresInSeconds", KEY_LIFE_S, seconds)?;
            Some(now.plus_millis(seconds * 1_000))
        }
        None => None,
    };
    let new = NewKey {
        name: input.name,
        owner,
        scopes: input.scopes,
        endpoints: input.endpoints,
        expires_at,
    };
    let (key, text) = ApiKey::generate(new, now);
    let document = KeyWithText::new(&key, &text);
    state
        .change(&caller.0, |_| {
            Ok::<_, ApiError>((vec![CatalogChange::Put(CatalogEntry::Key(key))], ()))
        })
        .await?;
    Ok(Json(document))
}

/// Revokes a key: it is refused from now on.
#[utoipa::path(
    delete, path = "/keys/{id}", operation_id = "RevokeKey", tag = tag::KEYS,
    responses((status = 204, description = "It is refused from now on"), Missing),
)]
pub(crate) async fn revoke(
    State(state): State<ApiState>,
    caller: ManagementCaller,
    Named(id): Named,
) -> Result<StatusCode, ApiError> {
    caller.require(Scope::Admin)?;
    state
        .change(&caller.0, |view| {
            let key = KeyId::new(&id).ok().and_then(|id| view.keys.get(&id));
            let key = key.ok_or_else(|| ApiError::not_found(format!("key `{id}` not found")))?;
            Ok((vec![CatalogChange::Delete(CatalogKey::Key(key.id.clone()))], ()))
        })
        .await
        .map_err(|error: ApiError| error)?;
    Ok(StatusCode::NO_CONTENT)
}
