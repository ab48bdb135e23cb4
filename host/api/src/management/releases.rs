//! `/v1/endpoints/{id}/…` about handlers: the releases of the endpoint, and the rollback to one of
//! them.

use std::sync::Arc;

use axum::Json;
use axum::extract::Request;
use gristmill_core::catalog::{CatalogChange, CatalogEntry, View};
use gristmill_core::endpoint::{Deployment, Endpoint};
use gristmill_core::release::Release;
use gristmill_core::template::Template;

use super::dto::{self, RollbackInput};
use super::input::{self, Named};
use super::owned::find_owned;
use super::page::{Page, Paged};
use super::templates::refresh_bound;
use crate::caller::{Caller, Manage};
use crate::error::ApiError;
use crate::openapi::parameters::PageOfList;
use crate::openapi::refusals::{BodyRefused, Missing, Mistaken};
use crate::openapi::tag;

/// The handlers that the endpoint has run, the newest first: 20 at most.
#[utoipa::path(
    get, path = "/endpoints/{id}/releases", operation_id = "ListReleases", tag = tag::ENDPOINTS,
    params(PageOfList),
    responses((status = 200, description = "Newest first", body = Vec<dto::Release>), Mistaken, Missing),
)]
pub(crate) async fn list(
    Caller { state, key, .. }: Caller<Manage>,
    Named(id): Named,
    page: Page,
) -> Result<Paged, ApiError> {
    let view = state.catalog.view();
    let endpoint: &Endpoint = find_owned(&view, &key, &id)?;
    // There are at most 20 releases.
    let cursor_position = |release: &&Release| format!("{:010}", u32::MAX - release.version);
    page.of(&*endpoint.releases, cursor_position, dto::Release::from)
}

/// Returns to an earlier handler of the endpoint: from now on its template names that component.
///
/// Running jobs finish with the handler that they began with; waiting jobs start with the earlier
/// handler. The settings are unchanged.
#[utoipa::path(
    post, path = "/endpoints/{id}/rollback", operation_id = "RollBackEndpoint", tag = tag::ENDPOINTS,
    request_body = RollbackInput,
    responses((status = 200, description = "The release that runs now", body = dto::Release), BodyRefused, Missing),
)]
pub(crate) async fn roll_back(
    Caller { state, key, .. }: Caller<Manage>,
    Named(id): Named,
    request: Request,
) -> Result<Json<dto::Release>, ApiError> {
    let input: RollbackInput = input::json_or_default(&state, &key, request).await?;
    let template = state
        .change(&key, |view| {
            let endpoint = find_owned(view, &key, &id)?;
            let template = rolled_back(view, endpoint, input.version)?;
            let id = template.id.clone();
            let change = CatalogChange::Put(CatalogEntry::Template(template));
            Ok::<_, ApiError>((vec![change], id))
        })
        .await?;
    refresh_bound(&state, &template);
    let view = state.catalog.view();
    let endpoint: &Endpoint = find_owned(&view, &key, &id)?;
    let current = endpoint.releases.last();
    Ok(Json(current.ok_or_else(|| nowhere(endpoint))?.into()))
}

/// The endpoint's template with the component of an earlier release.
fn rolled_back(view: &View, endpoint: &Endpoint, to: Option<u64>) -> Result<Template, ApiError> {
    let deployment = view.deployments.get(&endpoint.id).ok_or_else(|| nowhere(endpoint))?;
    let release = target(deployment, to)?;
    if endpoint.template_is_deleted {
        return Err(ApiError::conflict(deployment.missing_component()));
    }
    let template = &deployment.template;
    if template.owner != endpoint.owner {
        return Err(ApiError::conflict(format!(
            "template `{}` is another owner's, and a rollback would change it; give the endpoint a template of its own owner",
            template.id
        )));
    }
    if !view.has_component(&template.owner, &release.component) {
        return Err(ApiError::conflict(format!(
            "the handler of version {} is no longer stored: sha256 {}",
            release.version, release.component
        )));
    }
    // Endpoints of other owners follow a public template, as with any change of it.
    let shares = |other: &&Arc<Endpoint>| other.owner == endpoint.owner && other.id != endpoint.id;
    if let Some(other) = view.bound_to(&template.id).find(shares) {
        return Err(ApiError::conflict(format!(
            "endpoint `{}` runs the same template `{}`; change the template's `imageName`",
            other.id, template.id
        )));
    }
    // The local name, without the registry that it once came from.
    let name = release.image.rsplit('/').next().unwrap_or_default();
    let name = name.split(['@', ':']).next().unwrap_or_default();
    let image = format!("{name}@{}", release.component.oci());
    Ok(Template { image, fetched: None, ..(**template).clone() })
}

fn target(deployment: &Deployment, to: Option<u64>) -> Result<&Release, ApiError> {
    let endpoint = &deployment.endpoint;
    let Some(version) = to else {
        let mut earlier = endpoint.releases.iter().rev();
        let target = earlier.find(|release| Some(release.component) != deployment.component);
        return target.ok_or_else(|| nowhere(endpoint));
    };
    let target = endpoint.releases.iter().find(|release| u64::from(release.version) == version);
    target.ok_or_else(|| {
        let versions: Vec<_> = endpoint.releases.iter().map(|r| r.version.to_string()).collect();
        ApiError::bad_request(format!(
            "`version` must be that of a release, not {version}: {}",
            versions.join(", ")
        ))
    })
}

fn nowhere(endpoint: &Endpoint) -> ApiError {
    ApiError::conflict(format!("endpoint `{}` has run no other handler", endpoint.id))
}
