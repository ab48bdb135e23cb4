//! `/v1/endpoints`: handlers with their workers, limits and permissions.

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use gristmill_core::catalog::{CatalogChange, CatalogEntry, CatalogKey, View};
use gristmill_core::egress::AllowedHosts;
use gristmill_core::endpoint::{Endpoint, Reuse, SandboxLimits, Scaler, Scaling};
use gristmill_core::id::{EndpointId, OwnerId, TemplateId};
use gristmill_core::key::ApiKey;
use gristmill_core::limits::{ALLOWED_HOSTS_MAX, Bounds, EXECUTION_TIMEOUT_MS, RETENTION_MS};
use gristmill_core::retention::ChosenRetention;

use super::dto::{
    self, EndpointInput, EndpointWithSecret, NewEndpoint, RetentionInput, ReuseInput, ScalerType,
};
use super::input::Named;
use super::input::{self, bounded, bounded_u32};
use super::owned::{find_owned, random_id};
use super::page::{Page, Paged};
use super::volumes;
use crate::caller::{Caller, Manage};
use crate::error::ApiError;
use crate::images;
use crate::openapi::parameters::PageOfList;
use crate::openapi::refusals::{BodyRefused, Missing, Mistaken};
use crate::openapi::tag;

/// One endpoint.
#[utoipa::path(
    get, path = "/endpoints/{id}", operation_id = "GetEndpoint", tag = tag::ENDPOINTS,
    responses((status = 200, description = "The endpoint", body = dto::Endpoint), Mistaken, Missing),
)]
pub(crate) async fn get(
    Caller { state, key, .. }: Caller<Manage>,
    Named(id): Named,
) -> Result<Json<dto::Endpoint>, ApiError> {
    let view = state.catalog.view();
    let endpoint: &Endpoint = find_owned(&view, &key, &id)?;
    Ok(Json(endpoint.into()))
}

/// All endpoints of the key's owner, by id; with an admin key those of all owners.
#[utoipa::path(
    get, path = "/endpoints", operation_id = "ListEndpoints", tag = tag::ENDPOINTS,
    params(PageOfList),
    responses((status = 200, description = "By id", body = Vec<dto::Endpoint>), Mistaken),
)]
pub(crate) async fn list(
    Caller { state, key, .. }: Caller<Manage>,
    page: Page,
) -> Result<Paged, ApiError> {
    let view = state.catalog.view();
    let select = move |page: Page, caller: &ApiKey| {
        let endpoints = view.deployments.values().map(|deployment| &*deployment.endpoint);
        let own = endpoints.filter(|endpoint| caller.sees(&endpoint.owner));
        page.of(own, |endpoint| endpoint.id.to_string(), dto::Endpoint::from)
    };
    page.make(&state, &key, select).await
}

/// A new endpoint; it takes jobs at once.
#[utoipa::path(
    post, path = "/endpoints", operation_id = "CreateEndpoint", tag = tag::ENDPOINTS,
    request_body = NewEndpoint,
    responses((status = 200, description = "The new endpoint", body = EndpointWithSecret), BodyRefused),
)]
pub(crate) async fn create(
    Caller { state, key, .. }: Caller<Manage>,
    request: Request,
) -> Result<Json<EndpointWithSecret>, ApiError> {
    let input: EndpointInput = input::json(&state, &key, request).await?;
    let template = input.template_id.clone().ok_or_else(|| {
        ApiError::bad_request("`templateId` is required; it names the template to run")
    })?;
    let id = match &input.id {
        Some(id) => id.clone(),
        None => random_id(),
    };
    let blank = Endpoint::new(id.clone(), key.owner.clone(), template, state.jobs.now());
    state
        .change(&key, |view| {
            if view.deployments.contains_key(&id) {
                return Err(ApiError::conflict(format!("endpoint `{id}` exists already")));
            }
            id.check_new().map_err(|error| ApiError::bad_request(error.to_string()))?;
            Ok((upsert(apply_patch(view, blank, input)?), ()))
        })
        .await?;
    let view = state.catalog.view();
    let endpoint: &Endpoint = find_owned(&view, &key, id.as_str())?;
    state.workers.refresh(&endpoint.id);
    Ok(Json(endpoint.into()))
}

/// Changes the given fields.
///
/// Running jobs continue with the old settings; waiting jobs start with the new ones.
#[utoipa::path(
    patch, path = "/endpoints/{id}", operation_id = "UpdateEndpoint", tag = tag::ENDPOINTS,
    request_body = EndpointInput,
    responses((status = 200, description = "The changed endpoint", body = dto::Endpoint), BodyRefused, Missing),
)]
pub(crate) async fn update(
    Caller { state, key, .. }: Caller<Manage>,
    Named(id): Named,
    request: Request,
) -> Result<Json<dto::Endpoint>, ApiError> {
    let input: EndpointInput = input::json(&state, &key, request).await?;
    state
        .change(&key, |view| {
            let endpoint =
                apply_patch(view, find_owned::<Endpoint>(view, &key, &id)?.clone(), input)?;
            Ok::<_, ApiError>((upsert(endpoint), ()))
        })
        .await?;
    let view = state.catalog.view();
    let endpoint: &Endpoint = find_owned(&view, &key, &id)?;
    state.workers.refresh(&endpoint.id);
    Ok(Json(endpoint.into()))
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
    Named(id): Named,
) -> Result<StatusCode, ApiError> {
    let (id, incarnation) = state
        .change(&key, |view| {
            let Endpoint { id, .. } = find_owned(view, &key, &id)?;
            let incarnation =
                view.deployments.get(id).map(|deployment| deployment.incarnation.clone());
            let change = CatalogChange::Delete(CatalogKey::Endpoint(id.clone()));
            Ok::<_, ApiError>((vec![change], (id.clone(), incarnation.unwrap_or_default())))
        })
        .await?;
    state.workers.refresh(&id);
    state.store.await_deletion(&id).await?;
    state.logs.forget(&incarnation);
    // The components of its releases may be unused now.
    images::remove_unused_components(&state).await;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) fn upsert(endpoint: Endpoint) -> Vec<CatalogChange> {
    vec![CatalogChange::Put(CatalogEntry::Endpoint(endpoint))]
}

/// The endpoint with the given fields changed, if the result is valid.
fn apply_patch(view: &View, current: Endpoint, input: EndpointInput) -> Result<Endpoint, ApiError> {
    let scaling = scaling(current.scaling, &input)?;
    let (template, template_is_deleted) = match input.template_id {
        Some(id) => {
            check_template(view, &current.id, &current.owner, &id)?;
            (id, false)
        }
        None => {
            check_template(view, &current.id, &current.owner, &current.template)?;
            (current.template, current.template_is_deleted)
        }
    };
    let name = input.name.unwrap_or(current.name);
    input::check_name(&name)?;
    if let Some(hosts) = &input.allowed_hosts {
        input::check_count("allowedHosts", hosts.len(), ALLOWED_HOSTS_MAX)?;
    }
    if let Some(env) = &input.env {
        input::check_env(env)?;
    }
    let network_volume = match input.network_volume_id {
        Some(id) => volumes::attached(view, &current.owner, &template, &id)?,
        None => current.network_volume,
    };
    let execution_timeout_ms = match input.execution_timeout_ms {
        Some(ms) => bounded("executionTimeoutMs", EXECUTION_TIMEOUT_MS, ms)?,
        None => current.execution_timeout_ms,
    };
    let limits = SandboxLimits {
        memory_bytes_max: match input.memory_mib {
            Some(mib) => bounded("memoryMib", SandboxLimits::MEMORY_MIB, mib)? << 20,
            None => current.limits.memory_bytes_max,
        },
        // 0 removes the explicit budget: it is derived from the timeout again.
        fuel_max: input.max_fuel.or(current.limits.fuel_max).filter(|fuel| *fuel > 0),
        metering: input.metering.unwrap_or(current.limits.metering),
    };
    Ok(Endpoint {
        id: current.id,
        name,
        owner: current.owner,
        template,
        template_is_deleted,
        version: current.version,
        template_revision: current.template_revision,
        releases: current.releases,
        created_at: current.created_at,
        scaling,
        execution_timeout_ms,
        limits,
        reuse: match input.reuse {
            Some(given) => reuse(current.reuse, &given)?,
            None => current.reuse,
        },
        waiting_jobs_max: match input.max_waiting_jobs {
            // 0 removes the explicit bound.
            Some(0) => None,
            Some(jobs) => Some(bounded_u32("maxWaitingJobs", Endpoint::WAITING_JOBS_MAX, jobs)?),
            None => current.waiting_jobs_max,
        },
        retention: match input.retention {
            Some(given) => retention(current.retention, &given)?,
            None => current.retention,
        },
        rate_limits: match input.rate_limits {
            Some(limits) => dto::rate_limits(limits)?,
            None => current.rate_limits,
        },
        allowed_hosts: input.allowed_hosts.map_or(current.allowed_hosts, AllowedHosts::new),
        env: input.env.unwrap_or(current.env),
        network_volume,
        webhook_secrets: current.webhook_secrets,
    })
}

/// Refuses a template that the endpoint's owner may not use. The endpoint's present template is not
/// checked again.
fn check_template(
    view: &View,
    endpoint: &EndpointId,
    owner: &OwnerId,
    id: &TemplateId,
) -> Result<(), ApiError> {
    let kept = view.deployments.get(endpoint).filter(|kept| kept.endpoint.template == *id);
    if kept.is_some_and(|kept| !kept.endpoint.template_is_deleted) {
        return Ok(());
    }
    let usable = view.templates.get(id).filter(|template| template.is_usable_by(owner));
    let template = usable
        .ok_or_else(|| ApiError::bad_request(format!("`templateId`: template `{id}` not found")))?;
    if !template.is_serverless {
        return Err(ApiError::bad_request(format!(
            "`templateId`: template `{id}` has `isServerless` false; an endpoint needs one where it is true"
        )));
    }
    Ok(())
}

fn retention(
    current: ChosenRetention,
    given: &RetentionInput,
) -> Result<ChosenRetention, ApiError> {
    let chosen = |field, given, current| match given {
        None => Ok(current),
        Some(0) => Ok(None),
        Some(ms) => bounded(field, RETENTION_MS, ms).map(Some),
    };
    Ok(ChosenRetention {
        completed_ms: chosen("retention.completed", given.completed, current.completed_ms)?,
        failed_ms: chosen("retention.failed", given.failed, current.failed_ms)?,
        cancelled_ms: chosen("retention.cancelled", given.cancelled, current.cancelled_ms)?,
    })
}

fn reuse(current: Reuse, given: &ReuseInput) -> Result<Reuse, ApiError> {
    Ok(Reuse {
        jobs_max: match given.max_jobs {
            Some(jobs) => bounded_u32("reuse.maxJobs", Reuse::JOBS_MAX, jobs)?,
            None => current.jobs_max,
        },
        idle_s: match given.max_idle {
            Some(seconds) => bounded_u32("reuse.maxIdle", Reuse::IDLE_S, seconds)?,
            None => current.idle_s,
        },
    })
}

fn scaling(current: Scaling, input: &EndpointInput) -> Result<Scaling, ApiError> {
    let workers_max = match input.workers_max {
        Some(count) => bounded_u32("workersMax", Scaling::WORKERS_MAX, count)?,
        None => current.workers_max,
    };
    let workers_min = match input.workers_min {
        Some(count) => {
            let bounds = Bounds { min: 0, default: 0, max: workers_max.into() };
            bounded_u32("workersMin", bounds, count)?
        }
        None => current.workers_min.min(workers_max),
    };
    let idle_timeout_s = match input.idle_timeout {
        Some(seconds) => bounded_u32("idleTimeout", Scaling::IDLE_TIMEOUT_S, seconds)?,
        None => current.idle_timeout_s,
    };
    let value = match input.scaler_value {
        Some(value) => bounded_u32("scalerValue", Scaler::VALUE, value)?,
        None => current.scaler.value(),
    };
    let scaler = match (input.scaler_type, current.scaler) {
        (Some(ScalerType::QueueDelay), _) | (None, Scaler::QueueDelay(_)) => {
            Scaler::QueueDelay(value)
        }
        (Some(ScalerType::RequestCount), _) | (None, Scaler::RequestCount(_)) => {
            Scaler::RequestCount(value)
        }
    };
    Ok(Scaling { workers_min, workers_max, idle_timeout_s, scaler })
}
