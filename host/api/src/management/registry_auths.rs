//! `/v1/containerregistryauth`: credentials for fetching images from registries.

use std::sync::Arc;

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use gristmill_core::catalog::{CatalogChange, CatalogEntry, CatalogKey, View};
use gristmill_core::id::{OwnerId, RegistryAuthId};
use gristmill_core::image::{RegistryHost, RemoteImage};
use gristmill_core::key::ApiKey;
use gristmill_core::limits::REGISTRY_SECRET_BYTES_MAX;
use gristmill_core::registry_auth;

use super::dto::{RegistryAuth, RegistryAuthInput};
use super::input::{self, Named};
use super::owned::{find_owned, random_id};
use super::page::{Page, Paged};
use crate::caller::{Caller, Manage};
use crate::error::ApiError;
use crate::openapi::parameters::PageOfList;
use crate::openapi::refusals::{BodyRefused, Missing, Mistaken};
use crate::openapi::tag;

/// All credentials of the key's owner, without their passwords; with an admin key those of all
/// owners.
#[utoipa::path(
    get, path = "/containerregistryauth", operation_id = "ListContainerRegistryAuths",
    tag = tag::REGISTRY_AUTHS, params(PageOfList),
    responses((status = 200, description = "By name", body = Vec<RegistryAuth>), Mistaken),
)]
pub(crate) async fn list(
    Caller { state, key, .. }: Caller<Manage>,
    page: Page,
) -> Result<Paged, ApiError> {
    let view = state.catalog.view();
    let select = move |page: Page, caller: &ApiKey| {
        let own = view.registry_auths.values().filter(|auth| caller.sees(&auth.owner));
        let place = |auth: &&Arc<registry_auth::RegistryAuth>| format!("{} {}", auth.name, auth.id);
        page.of(own, place, |auth| RegistryAuth::from(&**auth))
    };
    page.make(&state, &key, select).await
}

/// One set of credentials, without its password.
#[utoipa::path(
    get, path = "/containerregistryauth/{id}", operation_id = "GetContainerRegistryAuth",
    tag = tag::REGISTRY_AUTHS,
    responses((status = 200, description = "The credentials", body = RegistryAuth), Mistaken, Missing),
)]
pub(crate) async fn get(
    Caller { state, key, .. }: Caller<Manage>,
    Named(id): Named,
) -> Result<Json<RegistryAuth>, ApiError> {
    let view = state.catalog.view();
    let auth: &registry_auth::RegistryAuth = find_owned(&view, &key, &id)?;
    Ok(Json(auth.into()))
}

/// Stores credentials; the password is sent only to the registry, and never shown.
#[utoipa::path(
    post, path = "/containerregistryauth", operation_id = "CreateContainerRegistryAuth",
    tag = tag::REGISTRY_AUTHS, request_body = RegistryAuthInput,
    responses((status = 200, description = "The new credentials", body = RegistryAuth), BodyRefused),
)]
pub(crate) async fn create(
    Caller { state, key, .. }: Caller<Manage>,
    request: Request,
) -> Result<Json<RegistryAuth>, ApiError> {
    let RegistryAuthInput { name, registry, username, password } =
        input::json(&state, &key, request).await?;
    let registry = registry.as_deref().unwrap_or(RegistryHost::DEFAULT).parse();
    let registry: RegistryHost =
        registry.map_err(|error| ApiError::bad_request(format!("`registry`: {error}")))?;
    input::check_name(&name)?;
    check("username", &username)?;
    check("password", &password)?;
    if username.contains(':') {
        return Err(ApiError::bad_request("`username` must not have a colon: HTTP ends it there"));
    }
    let auth = registry_auth::RegistryAuth {
        id: random_id(),
        owner: key.owner.clone(),
        name,
        registry: Some(registry),
        username,
        password,
        created_at: state.jobs.now(),
    };
    let document = (&auth).into();
    state
        .change(&key, |view| {
            let is_taken = view
                .registry_auths
                .values()
                .any(|other| other.owner == auth.owner && other.name == auth.name);
            if is_taken {
                let sentence = format!("registry credentials named `{}` exist already", auth.name);
                return Err(ApiError::conflict(sentence));
            }
            Ok((vec![CatalogChange::Put(CatalogEntry::RegistryAuth(auth))], ()))
        })
        .await?;
    Ok(Json(document))
}

/// Deletes credentials that no template names.
#[utoipa::path(
    delete, path = "/containerregistryauth/{id}", operation_id = "DeleteContainerRegistryAuth",
    tag = tag::REGISTRY_AUTHS,
    responses((status = 204, description = "Deleted"), Mistaken, Missing),
)]
pub(crate) async fn delete(
    Caller { state, key, .. }: Caller<Manage>,
    Named(id): Named,
) -> Result<StatusCode, ApiError> {
    state
        .change(&key, |view| {
            let auth: &registry_auth::RegistryAuth = find_owned(view, &key, &id)?;
            let id = auth.id.clone();
            let mut users = view.templates.values().filter(|template| {
                template.owner == auth.owner && template.registry_auth == id.as_str()
            });
            if let Some(user) = users.next() {
                let sentence =
                    format!("registry credentials `{id}` are in use by template `{}`", user.id);
                return Err(ApiError::conflict(sentence));
            }
            Ok((vec![CatalogChange::Delete(CatalogKey::RegistryAuth(id))], ()))
        })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The credentials with this id, for a template of this owner.
///
/// # Errors
/// 400 when there are none.
pub(super) fn named_by_template<'v>(
    view: &'v View,
    owner: &OwnerId,
    id: &str,
) -> Result<&'v registry_auth::RegistryAuth, ApiError> {
    let found = RegistryAuthId::new(id).ok().and_then(|id| view.registry_auths.get(&id));
    found.filter(|auth| auth.owner == *owner).map(|auth| &**auth).ok_or_else(|| {
        ApiError::bad_request(format!(
            "`containerRegistryAuthId`: registry credentials `{id}` not found"
        ))
    })
}

/// Refuses to send credentials to a registry that they are not bound to.
///
/// # Errors
/// 400 that names both registries.
pub(super) fn check_registry(
    view: &View,
    auth: &registry_auth::RegistryAuth,
    image: &RemoteImage,
) -> Result<(), ApiError> {
    if view.may_send(auth, image) {
        return Ok(());
    }
    let bound = match &auth.registry {
        Some(registry) => format!("are for the registry `{registry}`"),
        None => "name no registry; create them again with `registry`".to_owned(),
    };
    Err(ApiError::bad_request(format!(
        "`containerRegistryAuthId`: the credentials `{}` {bound}, and the image is in `{}`",
        auth.id,
        image.registry()
    )))
}

fn check(field: &str, text: &str) -> Result<(), ApiError> {
    if text.is_empty() || text.len() > REGISTRY_SECRET_BYTES_MAX || text.contains(char::is_control)
    {
        return Err(ApiError::bad_request(format!(
            "`{field}` is required and has 1 to {REGISTRY_SECRET_BYTES_MAX} bytes without control characters"
        )));
    }
    Ok(())
}
