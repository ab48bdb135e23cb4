//! `/v1/endpoints`: handlers with their workers, limits and permissions.

use axum::extract::{RawQuery, Request};
use axum::http::StatusCode;
use axum::response::Response;

use gristmill_wire::management::{self as wire, EndpointInput, EndpointWithSecret, NewEndpoint};

use super::dry_run::DryRun;
use super::input::{self, Named, Parsed};
use super::page::{Page, Paged};
use super::{document, dto};
use crate::answer::error::ApiError;
use crate::identity::caller::{Caller, Manage};
use crate::openapi::parameters::{CheckOnly, OfHostedService, PageOfList};
use crate::openapi::refusals::{BodyRefused, Missing, Mistaken};
use crate::openapi::tag;
use crate::request::query;

/// One endpoint.
#[utoipa::path(
    get, path = "/endpoints/{id}", operation_id = "GetEndpoint", tag = tag::ENDPOINTS,
    params(OfHostedService),
    responses((status = 200, description = "The endpoint", body = wire::Endpoint), Mistaken, Missing),
)]
pub(crate) async fn get(
    Caller { state, key, .. }: Caller<Manage>,
    RawQuery(query): RawQuery,
    named: Named,
) -> Result<Response, ApiError> {
    check_flags(query.as_deref().unwrap_or_default())?;
    let deployment = state.control.endpoints.get_deployment(&key, &named.id()?)?;
    document::answer(&state, &key, move || dto::deployed_endpoint(&deployment)).await
}

/// All endpoints of the key's owner, by id; with an admin key those of all owners.
#[utoipa::path(
    get, path = "/endpoints", operation_id = "ListEndpoints", tag = tag::ENDPOINTS,
    params(PageOfList, OfHostedService),
    responses((status = 200, description = "By id", body = Vec<wire::Endpoint>), Mistaken),
)]
pub(crate) async fn list(
    Caller { state, key, .. }: Caller<Manage>,
    RawQuery(query): RawQuery,
    page: Page,
) -> Result<Paged, ApiError> {
    check_flags(query.as_deref().unwrap_or_default())?;
    let (endpoints, caller) = (state.control.endpoints.clone(), key.clone());
    let select = move |page: Page| {
        let own = endpoints.list(&caller);
        page.of(own.iter(), |endpoint| endpoint.id.to_string(), |e| dto::endpoint(e))
    };
    page.make(&state, &key, select).await
}

/// Checks the flags of clients of the hosted service. They have no effect, but another value than `true` or
/// `false` is a mistake.
fn check_flags(query: &str) -> Result<(), ApiError> {
    for name in ["includeTemplate", "includeWorkers"] {
        query::flag(query, &[name])?;
    }
    Ok(())
}

/// A new endpoint; it takes jobs at once.
#[utoipa::path(
    post, path = "/endpoints", operation_id = "CreateEndpoint", tag = tag::ENDPOINTS,
    params(CheckOnly), request_body = NewEndpoint,
    responses(
        (status = 200, description = "The new endpoint", body = EndpointWithSecret),
        (status = 204, description = "With `dryRun`: the call would succeed"),
        BodyRefused,
    ),
)]
pub(crate) async fn create(
    Caller { state, key, .. }: Caller<Manage>,
    dry_run: DryRun,
    request: Request,
) -> Result<Response, ApiError> {
    let Parsed { body, ignored } = input::parsed::<EndpointInput>(&state, &key, request).await?;
    let new = dto::new_endpoint(body);
    let endpoint = state.control.endpoints.create(&key, new, dry_run.0).await?;
    let make = move || dto::endpoint_with_secret(&endpoint, ignored);
    dry_run.answer(&state, &key, make).await
}

/// Changes the given fields.
///
/// Running jobs continue with the old settings; waiting jobs start with the new ones.
#[utoipa::path(
    patch, path = "/endpoints/{id}", operation_id = "UpdateEndpoint", tag = tag::ENDPOINTS,
    params(CheckOnly), request_body = EndpointInput,
    responses(
        (status = 200, description = "The changed endpoint", body = wire::Endpoint),
        (status = 204, description = "With `dryRun`: the call would succeed"),
        BodyRefused, Missing,
    ),
)]
pub(crate) async fn update(
    Caller { state, key, .. }: Caller<Manage>,
    named: Named,
    dry_run: DryRun,
    request: Request,
) -> Result<Response, ApiError> {
    let Parsed { body, ignored } = input::parsed::<EndpointInput>(&state, &key, request).await?;
    let id = named.id()?;
    named.check_kept(body.id.as_ref().map(|id| id.as_str()))?;
    let patch = dto::endpoint_patch(body);
    let endpoint = state.control.endpoints.update(&key, id, patch, dry_run.0).await?;
    dry_run.answer(&state, &key, move || dto::endpoint_of(&endpoint, ignored)).await
}

/// Deletes the endpoint with all its jobs.
///
/// Waiting jobs are removed, and running jobs are stopped.
#[utoipa::path(
    delete, path = "/endpoints/{id}", operation_id = "DeleteEndpoint", tag = tag::ENDPOINTS,
    responses((status = 204, description = "Deleted"), Mistaken, Missing),
)]
pub(crate) async fn delete(
    Caller { state, key, .. }: Caller<Manage>,
    named: Named,
) -> Result<StatusCode, ApiError> {
    state.control.endpoints.delete(&key, named.id()?).await?;
    Ok(StatusCode::NO_CONTENT)
}
