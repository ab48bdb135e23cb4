//! `/v1/templates`: reusable definitions of the image that workers run.

use std::sync::Arc;

use axum::extract::{RawQuery, Request};
use axum::http::StatusCode;
use axum::response::Response;
use gristmill_control::TemplateUsage;
use gristmill_core::billing::price::Prices;
use gristmill_core::deploy::template::{Template, TemplateFilter};
use gristmill_wire::management::{self as wire, NewTemplate, TemplateInput};

use super::document;
use super::dry_run::DryRun;
use super::input::{self, Named};
use super::page::{Page, Paged};
use crate::answer::amount::amount;
use crate::answer::error::ApiError;
use crate::identity::caller::{Caller, Manage};
use crate::openapi::parameters::{CheckOnly, PageOfList, TemplateFlags};
use crate::openapi::refusals::{BodyRefused, CompileRefused, Missing, Mistaken};
use crate::openapi::tag;
use crate::request::brand::{NEUTRAL, PLATFORM_FLAG, branded_field, branded_flag};
use crate::request::query;
use crate::state::ApiState;

/// One template, if the caller may see it with the given flags.
///
/// The owner's templates that no endpoint uses need no flag. A template of several kinds is found
/// with each of their flags; a platform template is not also a public one.
#[utoipa::path(
    get, path = "/templates/{templateId}", operation_id = "GetTemplate", tag = tag::TEMPLATES,
    params(TemplateFlags),
    responses((status = 200, description = "Successful operation", body = wire::Template), Mistaken, Missing),
)]
pub(crate) async fn get(
    Caller { state, key, .. }: Caller<Manage>,
    named: Named,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let id = named.id()?;
    let filter = filter(&state, query.as_deref().unwrap_or_default())?;
    let template = state.control.templates.get(&key, &id, filter)?;
    let make = documents(&state).await?;
    document::answer(&state, &key, move || make(&template)).await
}

/// All templates that the caller may see with the given flags, by name.
#[utoipa::path(
    get, path = "/templates", operation_id = "ListTemplates", tag = tag::TEMPLATES,
    params(TemplateFlags, PageOfList),
    responses((status = 200, description = "By name", body = Vec<wire::Template>), Mistaken),
)]
pub(crate) async fn list(
    Caller { state, key, .. }: Caller<Manage>,
    page: Page,
    RawQuery(query): RawQuery,
) -> Result<Paged, ApiError> {
    let filter = filter(&state, query.as_deref().unwrap_or_default())?;
    let make = documents(&state).await?;
    let (templates, caller) = (state.control.templates.clone(), key.clone());
    let select = move |page: Page| {
        let visible = templates.list(&caller, filter);
        let cursor_position = |t: &&Arc<Template>| format!("{} {}", t.name, t.id);
        page.of(visible.iter(), cursor_position, |t| make(t))
    };
    page.make(&state, &key, select).await
}

/// A new template. An image in a registry is fetched before the answer.
#[utoipa::path(
    post, path = "/templates", operation_id = "CreateTemplate", tag = tag::TEMPLATES,
    params(CheckOnly), request_body = NewTemplate,
    responses(
        (status = 200, description = "The new template", body = wire::Template),
        (status = 204, description = "With `dryRun`: the call would succeed"),
        BodyRefused, CompileRefused,
    ),
)]
pub(crate) async fn create(
    Caller { state, key, .. }: Caller<Manage>,
    dry_run: DryRun,
    request: Request,
) -> Result<Response, ApiError> {
    let input: TemplateInput = input::json(&state, &key, request).await?;
    let template = state.control.templates.create(&key, input, dry_run.0).await?;
    let make = documents(&state).await?;
    dry_run.answer(&state, &key, move || make(&template)).await
}

/// Changes the given fields. A given image in a registry is fetched, even if its name is unchanged.
///
/// Endpoints with the template run the new version from their next job on. An `id` in the body must
/// be the one in the path.
#[utoipa::path(
    patch, path = "/templates/{templateId}", operation_id = "UpdateTemplate", tag = tag::TEMPLATES,
    params(CheckOnly), request_body = TemplateInput,
    responses(
        (status = 200, description = "The changed template", body = wire::Template),
        (status = 204, description = "With `dryRun`: the call would succeed"),
        BodyRefused, CompileRefused, Missing,
    ),
)]
pub(crate) async fn update(
    Caller { state, key, .. }: Caller<Manage>,
    named: Named,
    dry_run: DryRun,
    request: Request,
) -> Result<Response, ApiError> {
    let id = named.id()?;
    let input: TemplateInput = input::json(&state, &key, request).await?;
    named.check_kept(input.id.as_ref().map(|id| id.as_str()))?;
    let template = state.control.templates.update(&key, id, input, dry_run.0).await?;
    let make = documents(&state).await?;
    dry_run.answer(&state, &key, move || make(&template)).await
}

/// Deletes a template that no endpoint uses.
///
/// Endpoints of other owners that may no longer use it do not prevent this: their jobs wait.
#[utoipa::path(
    delete, path = "/templates/{templateId}", operation_id = "DeleteTemplate", tag = tag::TEMPLATES,
    responses((status = 204, description = "Deleted"), Mistaken, Missing),
)]
pub(crate) async fn delete(
    Caller { state, key, .. }: Caller<Manage>,
    named: Named,
) -> Result<StatusCode, ApiError> {
    state.control.templates.delete(&key, named.id()?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Makes the documents of templates, with their usage until now.
///
/// # Errors
/// Those of the store.
async fn documents(
    state: &ApiState,
) -> Result<impl Fn(&Template) -> wire::Template + Send + use<>, ApiError> {
    let (used, state) = (state.control.templates.usage().await?, state.clone());
    Ok(move |template: &Template| {
        let prices = state.control.billing.prices();
        shown(template, &state.compatibility.brand, &used, prices)
    })
}

fn filter(state: &ApiState, query: &str) -> Result<TemplateFilter, ApiError> {
    let branded = branded_flag(&state.compatibility.brand);
    Ok(TemplateFilter {
        endpoint_bound: query::flag(query, &["includeEndpointBoundTemplates"])?,
        public: query::flag(query, &["includePublicTemplates"])?,
        platform: query::flag(query, &[PLATFORM_FLAG, &branded])?,
    })
}

/// The answer's form of a template.
pub(super) fn shown(
    template: &Template,
    brand: &str,
    used: &TemplateUsage,
    prices: &Prices,
) -> wire::Template {
    let earned = amount(used.earned(template, prices));
    let runtime_in_min = used.runtime_min(template);
    let template = template.clone();
    let branded = (brand != NEUTRAL).then(|| (branded_field(brand), template.is_platform));
    wire::Template {
        id: template.id,
        name: template.name,
        image_name: template.image,
        category: template.category,
        container_disk_in_gb: template.container_disk_gb,
        volume_in_gb: template.volume_gb,
        volume_mount_path: template.volume_mount_path,
        container_registry_auth_id: template.registry_auth,
        docker_entrypoint: template.entrypoint,
        docker_start_cmd: template.start_command,
        env: template.env,
        ports: template.ports,
        readme: template.readme,
        is_public: template.is_public,
        is_platform: template.is_platform,
        is_serverless: template.is_serverless,
        earned,
        runtime_in_min,
        branded: branded.into_iter().collect(),
    }
}
