//! `/v1/keys`: API keys, of the operator and of other owners. Only a key with the scope `admin` may
//! create, list or revoke them.

use std::sync::Arc;

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use gristmill_core::catalog::{CatalogChange, CatalogEntry, CatalogKey, View};
use gristmill_core::id::{KeyId, OwnerId};
use gristmill_core::key::{ApiKey, NewKey, Scope};
use gristmill_core::limits::{KEY_ENDPOINTS_MAX, KEY_LIFETIME_S};
use gristmill_core::time::Timestamp;

use super::dto::{Key, KeyInput, KeyWithText};
use super::input::{self, Named};
use super::page::{Page, Paged};
use crate::caller::{Admin, Caller};
use crate::error::ApiError;
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
    let view = state.catalog.view();
    let cursor_position =
        |key: &&Arc<ApiKey>| format!("{:020} {}", key.created_at.as_millis(), key.id);
    let select = move |page: Page, _: &ApiKey| {
        page.of(view.keys.values(), cursor_position, |key| Key::from(&**key))
    };
    page.make(&state, &key, select).await
}

/// A new key; its text is shown in this answer and never again.
#[utoipa::path(
    post, path = "/keys", operation_id = "CreateKey", tag = tag::KEYS,
    request_body = KeyInput,
    responses((status = 200, description = "The new key", body = KeyWithText), BodyRefused),
)]
pub(crate) async fn create(
    Caller { state, key, .. }: Caller<Admin>,
    request: Request,
) -> Result<Json<KeyWithText>, ApiError> {
    let input: KeyInput = input::json(&state, &key, request).await?;
    input::check_name(&input.name)?;
    if input.scopes.is_empty() {
        return Err(ApiError::bad_request(
            "`scopes` must have at least one of admin, manage, submit, read",
        ));
    }
    input::check_count("scopes", input.scopes.len(), Scope::ALL.len())?;
    let endpoints = input.endpoints.as_ref().map_or(0, Vec::len);
    input::check_count("endpoints", endpoints, KEY_ENDPOINTS_MAX)?;
    let owner = input.owner.unwrap_or_else(|| key.owner.clone());
    if input.scopes.contains(&Scope::Admin) && !owner.is_operator() {
        return Err(ApiError::bad_request(format!(
            "`scopes`: `admin` is for keys of the operator, `{}`; a key of `{owner}` may have manage, submit and read",
            OwnerId::OPERATOR
        )));
    }
    let now = state.jobs.now();
    let expires_at = match input.expires_in_seconds {
        Some(seconds) => {
            let seconds = input::bounded("expiresInSeconds", KEY_LIFETIME_S, seconds)?;
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
    let (created, text) = ApiKey::generate(new, now);
    let document = KeyWithText::new(&created, &text);
    state
        .change(&key, |_| {
            Ok::<_, ApiError>((vec![CatalogChange::Put(CatalogEntry::Key(created))], ()))
        })
        .await?;
    Ok(Json(document))
}

/// Revokes a key: from now on it is refused.
///
/// The last admin key that does not expire cannot be revoked: without it no new keys could be
/// created.
#[utoipa::path(
    delete, path = "/keys/{id}", operation_id = "RevokeKey", tag = tag::KEYS,
    responses((status = 204, description = "It is refused from now on"), Mistaken, Missing),
)]
pub(crate) async fn revoke(
    Caller { state, key, .. }: Caller<Admin>,
    Named(id): Named,
) -> Result<StatusCode, ApiError> {
    state
        .change(&key, |view| {
            let key = KeyId::new(&id).ok().and_then(|id| view.keys.get(&id));
            let key = key.ok_or_else(|| ApiError::not_found(format!("key `{id}` not found")))?;
            check_replaced(view, key, state.jobs.now())?;
            Ok((vec![CatalogChange::Delete(CatalogKey::Key(key.id.clone()))], ()))
        })
        .await
        .map_err(|error: ApiError| error)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Refuses to revoke an admin key unless another admin key remains; if the key does not expire, the
/// other key must not expire either.
fn check_replaced(view: &View, key: &ApiKey, now: Timestamp) -> Result<(), ApiError> {
    let makes_keys = |key: &ApiKey| key.allows(Scope::Admin, None) && !key.is_expired(now);
    let lasts = |other: &ApiKey| other.expires_at.is_none() || key.expires_at.is_some();
    let mut others = view.keys.values().filter(|other| other.id != key.id);
    if !makes_keys(key) || others.any(|other| makes_keys(other) && lasts(other)) {
        return Ok(());
    }
    let missing = match key.expires_at {
        None => "no other admin key without an expiry",
        Some(_) => "no other admin key",
    };
    Err(ApiError::conflict(format!(
        "key `{}` cannot be revoked: there is {missing}, so no new keys could be created; create \
         one first, with `gristmill keys create --scope admin` or `POST /v1/keys`",
        key.id
    )))
}

#[cfg(test)]
mod tests {
    use gristmill_core::id::EndpointId;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn key(scope: Scope, endpoints: Option<&str>, expires_at: Option<u64>) -> ApiKey {
        let endpoints = endpoints.map(|id| vec![EndpointId::new(id).unwrap()]);
        let expires_at = expires_at.map(Timestamp::from_millis);
        let owner = OwnerId::operator();
        let new = NewKey { name: String::new(), owner, scopes: vec![scope], endpoints, expires_at };
        ApiKey::generate(new, NOW).0
    }

    fn is_revoked(key: &ApiKey, others: &[ApiKey]) -> bool {
        let all = others.iter().chain([key]).cloned().map(|key| (key.id.clone(), Arc::new(key)));
        let mut view = View::default();
        view.keys = all.collect();
        check_replaced(&view, key, NOW).is_ok()
    }

    #[test]
    fn the_last_admin_key_is_not_revoked() {
        let lasting = || key(Scope::Admin, None, None);
        let expiring = || key(Scope::Admin, None, Some(2_000));
        let expired = || key(Scope::Admin, None, Some(1_000));
        let bound = || key(Scope::Admin, Some("e"), None);
        let other = || key(Scope::Manage, None, None);
        // (the key, the others, whether it is revoked)
        let cases = [
            (lasting(), vec![], false),
            (lasting(), vec![other(), expired(), bound()], false),
            (lasting(), vec![expiring()], false),
            (lasting(), vec![lasting()], true),
            (expiring(), vec![], false),
            (expiring(), vec![expired()], false),
            (expiring(), vec![expiring()], true),
            (expiring(), vec![lasting()], true),
            (expired(), vec![], true),
            (bound(), vec![], true),
            (other(), vec![], true),
        ];
        for (number, (key, others, expected)) in cases.into_iter().enumerate() {
            assert_eq!(is_revoked(&key, &others), expected, "case {number}");
        }
    }
}
