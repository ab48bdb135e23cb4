//! `/v1/keys`: API keys. Only a key with the scope `admin` may make, list or revoke them.

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use gristmill_core::catalog::{CatalogChange, CatalogEntry, CatalogKey};
use gristmill_core::key::{ApiKey, NewKey, Scope};
use gristmill_core::limits::{Bounds, NAME_BYTES_MAX};
use serde_json::Value;

use super::dto::{self, KeyInput};
use super::input;
use crate::auth::ManagementCaller;
use crate::error::ApiError;
use crate::state::ApiState;

/// Most seconds that a key may live when it is to expire: ten years.
const LIFE_S: Bounds = Bounds { min: 1, default: 0, max: 315_360_000 };

/// All keys, without their secrets.
pub(crate) async fn list(
    State(state): State<ApiState>,
    caller: ManagementCaller,
) -> Result<Json<Vec<Value>>, ApiError> {
    caller.require(Scope::Admin)?;
    let view = state.catalog.view();
    let mut keys: Vec<_> = view.keys.values().collect();
    keys.sort_by_key(|key| (key.created_at, key.id.clone()));
    Ok(Json(keys.into_iter().map(|key| dto::key(key, None)).collect()))
}

/// A new key; its text is shown in this answer and never again.
pub(crate) async fn create(
    State(state): State<ApiState>,
    caller: ManagementCaller,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    caller.require(Scope::Admin)?;
    let input: KeyInput = input::json(&state, request).await?;
    if input.name.is_empty() || input.name.len() > NAME_BYTES_MAX {
        return Err(ApiError::bad_request(format!("`name` has 1 to {NAME_BYTES_MAX} bytes")));
    }
    if input.scopes.is_empty() {
        return Err(ApiError::bad_request(
            "`scopes` must have at least one of admin, manage, submit, read",
        ));
    }
    let now = state.jobs.now();
    let expires_at = match input.expires_in_seconds {
        Some(seconds) => {
            let seconds = input::bounded("expiresInSeconds", LIFE_S, seconds)?;
            Some(now.plus_millis(seconds * 1_000))
        }
        None => None,
    };
    let new = NewKey {
        name: input.name,
        owner: caller.0.owner.clone(),
        scopes: input.scopes,
        endpoints: input.endpoints,
        expires_at,
    };
    let (key, text) = ApiKey::generate(new, now);
    let document = dto::key(&key, Some(text.reveal()));
    state
        .catalog
        .change(|_| Ok::<_, ApiError>((vec![CatalogChange::Put(CatalogEntry::Key(key))], ())))
        .await?;
    Ok(Json(document))
}

/// Revokes a key: from now on it is refused.
pub(crate) async fn revoke(
    State(state): State<ApiState>,
    caller: ManagementCaller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    caller.require(Scope::Admin)?;
    state
        .catalog
        .change(|view| {
            let key = dto::key_id(&id).and_then(|id| view.keys.get(&id));
            let key = key.ok_or_else(|| ApiError::not_found(format!("key `{id}` not found")))?;
            Ok((vec![CatalogChange::Delete(CatalogKey::Key(key.id.clone()))], ()))
        })
        .await
        .map_err(|error: ApiError| error)?;
    Ok(StatusCode::NO_CONTENT)
}
