//! `/v1/endpoints`: handlers with their workers, limits and permissions.

use std::sync::Arc;

use axum::extract::{RawQuery, Request};
use axum::http::StatusCode;
use axum::response::Response;

use gristmill_control::TemplateUsage;
use gristmill_core::deploy::endpoint::{Deployment, Endpoint};
use gristmill_json_schema::SchemaText;
use gristmill_wire::management::{
    self as wire, ComputeType, EndpointInput, EndpointWithSecret, NewEndpoint,
};

use super::dry_run::DryRun;
use super::input::{self, Named, Parsed};
use super::page::{Page, Paged};
use super::{document, pods, templates};
use crate::answer::error::ApiError;
use crate::answer::wire_time::rfc3339;
use crate::identity::caller::{Caller, Manage};
use crate::openapi::parameters::{CheckOnly, EndpointParts, PageOfList};
use crate::openapi::refusals::{BodyRefused, Missing, Mistaken};
use crate::openapi::tag;
use crate::request::query;
use crate::state::ApiState;

/// One endpoint.
#[utoipa::path(
    get, path = "/endpoints/{id}", operation_id = "GetEndpoint", tag = tag::ENDPOINTS,
    params(EndpointParts),
    responses((status = 200, description = "The endpoint", body = wire::Endpoint), Mistaken, Missing),
)]
pub(crate) async fn get(
    Caller { state, key, .. }: Caller<Manage>,
    RawQuery(query): RawQuery,
    named: Named,
) -> Result<Response, ApiError> {
    let parts = Parts::of(&state, query.as_deref().unwrap_or_default()).await?;
    let deployment = state.control.endpoints.get_deployment(&key, &named.id()?)?;
    document::answer(&state, &key, move || {
        let endpoint = deployed_endpoint(&deployment);
        parts.added_to(endpoint, &deployment)
    })
    .await
}

/// All endpoints of the key's owner, by id; with an admin key those of all owners.
#[utoipa::path(
    get, path = "/endpoints", operation_id = "ListEndpoints", tag = tag::ENDPOINTS,
    params(PageOfList, EndpointParts),
    responses((status = 200, description = "By id", body = Vec<wire::Endpoint>), Mistaken),
)]
pub(crate) async fn list(
    Caller { state, key, .. }: Caller<Manage>,
    RawQuery(query): RawQuery,
    page: Page,
) -> Result<Paged, ApiError> {
    let parts = Parts::of(&state, query.as_deref().unwrap_or_default()).await?;
    let caller = key.clone();
    let select = move |page: Page| {
        let own = parts.state.control.endpoints.deployments(&caller);
        let document = |of: &Arc<Deployment>| parts.added_to(shown(&of.endpoint), of);
        page.of(own.iter(), |deployment| deployment.endpoint.id.to_string(), document)
    };
    page.make(&state, &key, select).await
}

/// The parts of an endpoint's answer that are only there on request.
struct Parts {
    state: ApiState,
    /// For the template; `None`: without it.
    used: Option<TemplateUsage>,
    has_workers: bool,
}

impl Parts {
    async fn of(state: &ApiState, query: &str) -> Result<Self, ApiError> {
        let has_workers = query::flag(query, &["includeWorkers"])?;
        let used = match query::flag(query, &["includeTemplate"])? {
            true => Some(state.control.templates.usage().await?),
            false => None,
        };
        Ok(Self { state: state.clone(), used, has_workers })
    }

    /// A caller that sees the endpoint sees each template that it uses.
    fn added_to(&self, endpoint: wire::Endpoint, deployment: &Deployment) -> wire::Endpoint {
        let (control, compatibility) = (&self.state.control, &self.state.compatibility);
        let template = self.used.as_ref().filter(|_| deployment.uses_template()).map(|used| {
            let prices = control.billing.prices();
            templates::shown(&deployment.template, &compatibility.brand, used, prices).into()
        });
        let workers = self.has_workers.then(|| {
            let workers = control.endpoints.workers(&deployment.endpoint.id).into_iter();
            workers.map(|worker| pods::pod(deployment, worker)).collect()
        });
        wire::Endpoint { template, workers, ..endpoint }
    }
}

/// A new endpoint; it takes jobs at once.
///
/// A used id is refused with 400 `conflict`, whichever owner has it.
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
    let endpoint = state.control.endpoints.create(&key, body, dry_run.0).await?;
    let make = move || endpoint_with_secret(&endpoint, ignored);
    dry_run.answer(&state, &key, make).await
}

/// Changes the given fields.
///
/// Running jobs continue with the old settings; waiting jobs start with the new ones. An `id` in
/// the body must be the one in the path.
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
    let endpoint = state.control.endpoints.update(&key, id, body, dry_run.0).await?;
    dry_run.answer(&state, &key, move || endpoint_of(&endpoint, ignored)).await
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

/// The answer's form of an endpoint.
fn shown(endpoint: &Endpoint) -> wire::Endpoint {
    wire::Endpoint {
        id: endpoint.id.clone(),
        user_id: endpoint.owner.clone(),
        kind: endpoint.kind,
        name: endpoint.name.clone(),
        template_id: endpoint.template.clone(),
        template_is_deleted: endpoint.template_is_deleted,
        version: endpoint.version,
        created_at: rfc3339(endpoint.created_at),
        compute_type: ComputeType::Cpu,
        data_center_ids: Vec::new(),
        gpu_count: 0,
        gpu_type_ids: Vec::new(),
        allowed_cuda_versions: Vec::new(),
        instance_ids: Vec::new(),
        settings: endpoint.settings.clone(),
        network_volume_ids: endpoint.network_volume.iter().cloned().collect(),
        network_volume_id: endpoint.network_volume.clone(),
        input_schema: None,
        template: None,
        workers: None,
        ignored_fields: Vec::new(),
    }
}

/// The answer to a body in which these fields were ignored.
fn endpoint_of(of: &Endpoint, ignored_fields: Vec<String>) -> wire::Endpoint {
    wire::Endpoint { ignored_fields, ..shown(of) }
}

/// The same with the schema of its handler's input.
fn deployed_endpoint(deployment: &Deployment) -> wire::Endpoint {
    let input_schema = deployment.input_schema.as_ref().map(SchemaText::value);
    wire::Endpoint { input_schema, ..shown(&deployment.endpoint) }
}

/// An endpoint with the secret of its webhooks.
pub(super) fn endpoint_with_secret(
    with: &Endpoint,
    ignored_fields: Vec<String>,
) -> EndpointWithSecret {
    let webhook_secret = with.webhook_secrets.current().reveal();
    EndpointWithSecret { endpoint: endpoint_of(with, ignored_fields), webhook_secret }
}
