//! `/v1/containerregistryauth`: credentials for fetching images from registries.

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use gristmill_core::deploy::registry_auth;
use gristmill_wire::management::{NewRegistryAuth, RegistryAuth};

use super::input::{self, Named};
use super::page::{Page, Paged};
use crate::answer::error::ApiError;
use crate::answer::wire_time::rfc3339;
use crate::identity::caller::{Caller, Manage};
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
    let own = state.control.registry_auths.list(&key);
    let select = move |page: Page| {
        page.of(own.iter(), |a| format!("{} {}", a.name, a.id), |a| registry_auth(a))
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
    named: Named,
) -> Result<Json<RegistryAuth>, ApiError> {
    let auth = state.control.registry_auths.get(&key, &named.id()?)?;
    Ok(Json(registry_auth(&auth)))
}

/// Stores credentials; the password is sent only to the registry, and never shown.
#[utoipa::path(
    post, path = "/containerregistryauth", operation_id = "CreateContainerRegistryAuth",
    tag = tag::REGISTRY_AUTHS, request_body = NewRegistryAuth,
    responses((status = 200, description = "The new credentials", body = RegistryAuth), BodyRefused),
)]
pub(crate) async fn create(
    Caller { state, key, .. }: Caller<Manage>,
    request: Request,
) -> Result<Json<RegistryAuth>, ApiError> {
    let new = input::json(&state, &key, request).await?;
    let auth = state.control.registry_auths.create(&key, new).await?;
    Ok(Json(registry_auth(&auth)))
}

/// Deletes credentials that no template names.
#[utoipa::path(
    delete, path = "/containerregistryauth/{id}", operation_id = "DeleteContainerRegistryAuth",
    tag = tag::REGISTRY_AUTHS,
    responses((status = 204, description = "Deleted"), Mistaken, Missing),
)]
pub(crate) async fn delete(
    Caller { state, key, .. }: Caller<Manage>,
    named: Named,
) -> Result<StatusCode, ApiError> {
    state.control.registry_auths.delete(&key, &named.id()?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The answer's form of credentials, without the password.
fn registry_auth(auth: &registry_auth::RegistryAuth) -> RegistryAuth {
    RegistryAuth {
        id: auth.id.clone(),
        name: auth.name.clone(),
        registry: Some(auth.registry.to_string()),
        username: auth.username.clone(),
        created_at: rfc3339(auth.created_at),
    }
}
