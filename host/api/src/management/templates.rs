//! `/v1/templates`: reusable definitions of the image that workers run.

use std::collections::HashSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, Request};
use axum::http::StatusCode;
use gristmill_core::catalog::{CatalogChange, CatalogEntry, CatalogKey, View};
use gristmill_core::id::{OwnerId, TemplateId};
use gristmill_core::image::RemoteImage;
use gristmill_core::key::{ApiKey, Scope};
use gristmill_core::limits::{
    ARGUMENT_CHARS_MAX, ARGUMENTS_MAX, IMAGE_NAME_CHARS_MAX, PORTS_MAX, README_CHARS_MAX,
};
use gristmill_core::registries::FetchError;
use gristmill_core::runtime::AddedComponent;
use gristmill_core::template::{Template, TemplateFilter};
use gristmill_core::usage::Hour;

use super::dto::template::{PLATFORM_FLAG, branded_flag};
use super::dto::{self, NewTemplate, TemplateInput};
use super::input::{self, Named};
use super::owned::{find_owned, missing, random_id, read_id};
use super::page::{Page, Paged};
use super::registry_auths;
use super::volumes;
use crate::auth;
use crate::billing::TemplateUsage;
use crate::caller::{Caller, Manage};
use crate::error::{ApiError, ErrorCode};
use crate::images;
use crate::openapi::parameters::{PageOfList, TemplateFlags};
use crate::openapi::refusals::{BodyRefused, CompileRefused, Missing, Mistaken};
use crate::openapi::tag;
use crate::state::ApiState;
use crate::upload_refusal;

/// One template, if the caller may see it with the given flags.
#[utoipa::path(
    get, path = "/templates/{templateId}", operation_id = "GetTemplate", tag = tag::TEMPLATES,
    params(TemplateFlags),
    responses((status = 200, description = "Successful operation", body = dto::Template), Mistaken, Missing),
)]
pub(crate) async fn get(
    Caller { state, key, .. }: Caller<Manage>,
    Named(id): Named,
    RawQuery(query): RawQuery,
) -> Result<Json<dto::Template>, ApiError> {
    let id: TemplateId = read_id(&id)?;
    let filter = filter(&state, query.as_deref().unwrap_or_default())?;
    let view = state.catalog.view();
    let template = view.templates.get(&id).filter(|t| is_visible(&view, &key, t, filter));
    let template = template.ok_or_else(|| missing::<Template>(&id))?;
    Ok(Json(document(&state, template).await?))
}

/// All templates that the caller may see with the given flags, by name.
#[utoipa::path(
    get, path = "/templates", operation_id = "ListTemplates", tag = tag::TEMPLATES,
    params(TemplateFlags, PageOfList),
    responses((status = 200, description = "By name", body = Vec<dto::Template>), Mistaken),
)]
pub(crate) async fn list(
    Caller { state, key, .. }: Caller<Manage>,
    page: Page,
    RawQuery(query): RawQuery,
) -> Result<Paged, ApiError> {
    let filter = filter(&state, query.as_deref().unwrap_or_default())?;
    let view = state.catalog.view();
    let (used, parts) = (used(&state).await?, state.clone());
    let select = move |page: Page, caller: &ApiKey| {
        // As in `is_visible`, but with one pass over the endpoints for all templates.
        let endpoints = view.deployments.values().map(|deployment| &deployment.endpoint);
        let seen = endpoints.filter(|endpoint| caller.sees(&endpoint.owner));
        let bound: HashSet<_> = seen.map(|endpoint| &endpoint.template).collect();
        let templates = view.templates.values();
        let visible = templates.filter(|t| t.is_visible_to(caller, bound.contains(&t.id), filter));
        let cursor_position = |t: &&Arc<Template>| format!("{} {}", t.name, t.id);
        page.of(visible, cursor_position, |t| {
            dto::Template::new(t, &parts.brand, &used, &parts.prices)
        })
    };
    page.make(&state, &key, select).await
}

/// A new template. An image in a registry is fetched before the answer.
#[utoipa::path(
    post, path = "/templates", operation_id = "CreateTemplate", tag = tag::TEMPLATES,
    request_body = NewTemplate,
    responses((status = 200, description = "The new template", body = dto::Template), BodyRefused, CompileRefused),
)]
pub(crate) async fn create(
    Caller { state, key, .. }: Caller<Manage>,
    request: Request,
) -> Result<Json<dto::Template>, ApiError> {
    let input: TemplateInput = input::json(&state, &key, request).await?;
    let id = match &input.id {
        Some(id) => id.clone(),
        None => random_id(),
    };
    let create = |view: &View| {
        // Ids are unique on the host, so the refusal is the same for every owner's template.
        if view.templates.contains_key(&id) {
            return Err(ApiError::conflict(format!("template `{id}` exists already")));
        }
        id.check_new().map_err(|error| ApiError::bad_request(error.to_string()))?;
        apply_patch(view, &key, blank(id.clone(), key.owner.clone()), input.clone())
    };
    let fetched = fetch(&state, create(&state.catalog.view())?, &input).await?;
    let put_new = |view: &View| create(view).map(|new| upsert(view, new, fetched.as_ref()));
    let template = state.change(&key, put_new).await?;
    Ok(Json(document(&state, &template).await?))
}

/// Changes the given fields. A given image in a registry is fetched, even if its name is unchanged.
///
/// Endpoints with the template run the new version from their next job on.
#[utoipa::path(
    patch, path = "/templates/{templateId}", operation_id = "UpdateTemplate", tag = tag::TEMPLATES,
    request_body = TemplateInput,
    responses((status = 200, description = "The changed template", body = dto::Template), BodyRefused, CompileRefused, Missing),
)]
pub(crate) async fn update(
    Caller { state, key, .. }: Caller<Manage>,
    Named(id): Named,
    request: Request,
) -> Result<Json<dto::Template>, ApiError> {
    let id: TemplateId = read_id(&id)?;
    let input: TemplateInput = input::json(&state, &key, request).await?;
    let update = |view: &View| {
        let current: &Template = find_owned(view, &key, id.as_str())?;
        apply_patch(view, &key, current.clone(), input.clone())
    };
    let fetched = fetch(&state, update(&state.catalog.view())?, &input).await?;
    let put_new = |view: &View| update(view).map(|new| upsert(view, new, fetched.as_ref()));
    let template = state.change(&key, put_new).await?;
    drop(fetched);
    refresh_bound(&state, &id);
    images::remove_unused_components(&state).await;
    Ok(Json(document(&state, &template).await?))
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
    Named(id): Named,
) -> Result<StatusCode, ApiError> {
    let id: TemplateId = read_id(&id)?;
    state
        .change(&key, |view| {
            let owner = &find_owned::<Template>(view, &key, id.as_str())?.owner;
            if let Some(user) = view.bound_to(&id).max_by_key(|user| user.owner == *owner) {
                let whose = if user.owner == *owner { "an" } else { "another owner's" };
                let sentence = format!("template `{id}` is in use by {whose} endpoint");
                return Err(ApiError::conflict(sentence));
            }
            Ok((vec![CatalogChange::Delete(CatalogKey::Template(id.clone()))], ()))
        })
        .await?;
    refresh_bound(&state, &id);
    images::remove_unused_components(&state).await;
    Ok(StatusCode::NO_CONTENT)
}

/// The usage of templates until now.
async fn used(state: &ApiState) -> Result<TemplateUsage, ApiError> {
    let now = Hour::of(state.jobs.now());
    Ok(state.template_totals.read(&state.usage, now).await?)
}

async fn document(state: &ApiState, template: &Template) -> Result<dto::Template, ApiError> {
    let used = used(state).await?;
    Ok(dto::Template::new(template, &state.brand, &used, &state.prices))
}

/// Notifies the workers of all endpoints with this template of its change, including endpoints that
/// may no longer use it.
pub(super) fn refresh_bound(state: &ApiState, id: &TemplateId) {
    for deployment in state.catalog.view().deployments.values() {
        if deployment.endpoint.template == *id {
            state.workers.refresh(&deployment.endpoint.id);
        }
    }
}

fn is_visible(view: &View, reader: &ApiKey, template: &Template, filter: TemplateFilter) -> bool {
    // Only endpoints that the reader sees count: a public template stays visible when another owner
    // uses it.
    let is_bound = view.bound_to(&template.id).any(|endpoint| reader.sees(&endpoint.owner));
    template.is_visible_to(reader, is_bound, filter)
}

/// The changes of a template write: the template, and the component that was fetched for it.
fn upsert(
    view: &View,
    template: Template,
    fetched: Option<&AddedComponent>,
) -> (Vec<CatalogChange>, Template) {
    let component = fetched.map(|added| {
        let stored = view.components.get(&added.component.digest);
        added.component.clone().owned_by(&template.owner, stored.map(|stored| &**stored))
    });
    let template = match &component {
        Some(component) => Template { fetched: Some(component.digest), ..template },
        None => template,
    };
    let component = component.map(CatalogEntry::Component);
    let entries = component.into_iter().chain([CatalogEntry::Template(template.clone())]);
    (entries.map(CatalogChange::Put).collect(), template)
}

/// Fetches the image of a template before it is written, if the call names an image in a registry.
/// An unchanged name is fetched again, since its tag may have moved.
async fn fetch(
    state: &ApiState,
    template: Template,
    input: &TemplateInput,
) -> Result<Option<AddedComponent>, ApiError> {
    if input.image_name.is_none() || !RemoteImage::names_registry(&template.image) {
        return Ok(None);
    }
    let image = remote_image(&template)?;
    let view = state.catalog.view();
    let auth = match template.registry_auth.as_str() {
        "" => None,
        id => Some(registry_auths::named_by_template(&view, &template.owner, id)?),
    };
    let fetched = state.registries.fetch(&image, auth, &template.owner).await;
    fetched.map(Some).map_err(|error| fetch_refused(&image, error))
}

/// The refusal of a template whose image was not fetched.
fn fetch_refused(image: &RemoteImage, error: FetchError) -> ApiError {
    match error {
        FetchError::Refused(reason) => {
            ApiError::bad_request(format!("`imageName`: cannot fetch `{image}`: {reason}"))
        }
        FetchError::Full => ApiError::new(ErrorCode::Unavailable, error.to_string()),
        FetchError::TooManyWaiting(sentence) => upload_refusal::too_many_waiting(sentence),
        FetchError::OwnerDiskFull(sentence) => ApiError::new(ErrorCode::QuotaExceeded, sentence),
        FetchError::NoSpace(_) => ApiError::new(ErrorCode::DiskFull, error.to_string()),
        FetchError::Host(reason) => {
            tracing::error!("the image `{image}` could not be stored: {reason}");
            let sentence = "the image could not be stored; the host's log has the details";
            ApiError::new(ErrorCode::Internal, sentence)
        }
    }
}

fn filter(state: &ApiState, query: &str) -> Result<TemplateFilter, ApiError> {
    let branded = branded_flag(&state.brand);
    Ok(TemplateFilter {
        endpoint_bound: input::flag(query, &["includeEndpointBoundTemplates"])?,
        public: input::flag(query, &["includePublicTemplates"])?,
        platform: input::flag(query, &[PLATFORM_FLAG, &branded])?,
    })
}

fn blank(id: TemplateId, owner: OwnerId) -> Template {
    Template { name: String::new(), ..Template::new(id, owner, "") }
}

/// The template with the given fields changed, if the result is valid and the caller may write it.
fn apply_patch(
    view: &View,
    caller: &ApiKey,
    current: Template,
    input: TemplateInput,
) -> Result<Template, ApiError> {
    let is_platform = input.is_platform.unwrap_or(current.is_platform);
    if is_platform != current.is_platform {
        auth::require(caller, Scope::Admin, None)?;
    }
    if is_platform && !current.owner.is_operator() {
        return Err(ApiError::bad_request(
            "`isPlatform` can be true for a template of the operator's own only",
        ));
    }
    let is_serverless = input.is_serverless.unwrap_or(current.is_serverless);
    if current.is_serverless && !is_serverless && view.bound_to(&current.id).next().is_some() {
        let sentence =
            format!("`isServerless`: template `{}` is in use by an endpoint", current.id);
        return Err(ApiError::conflict(sentence));
    }
    let names_registry = input.container_registry_auth_id.is_some() || input.image_name.is_some();
    let template = Template {
        // The component belongs to the previous image.
        fetched: current.fetched.filter(|_| input.image_name.is_none()),
        name: input.name.unwrap_or(current.name),
        image: input.image_name.unwrap_or(current.image),
        container_disk_gb: input.container_disk_in_gb.unwrap_or(current.container_disk_gb),
        volume_gb: input.volume_in_gb.unwrap_or(current.volume_gb),
        volume_mount_path: input.volume_mount_path.unwrap_or(current.volume_mount_path),
        registry_auth: input.container_registry_auth_id.unwrap_or(current.registry_auth),
        entrypoint: input.docker_entrypoint.unwrap_or(current.entrypoint),
        start_command: input.docker_start_cmd.unwrap_or(current.start_command),
        env: input.env.unwrap_or(current.env),
        ports: input.ports.unwrap_or(current.ports),
        readme: input.readme.unwrap_or(current.readme),
        is_public: input.is_public.unwrap_or(current.is_public),
        is_serverless,
        is_platform,
        id: current.id,
        owner: current.owner,
        revision: current.revision,
        releases: current.releases,
    };
    input::check_name(&template.name)?;
    if template.image.is_empty() {
        return Err(ApiError::bad_request(
            "`imageName` is required; it names an uploaded handler as `name:tag` or `name@sha256:…`, or an image in a registry",
        ));
    }
    check_sizes(&template)?;
    if names_registry {
        check_registry_auth(view, &template)?;
    }
    volumes::check_mount_path(&template.volume_mount_path)?;
    if let Some(port) = template.ports.iter().find(|port| !is_port(port)) {
        return Err(ApiError::bad_request(format!(
            "`ports` has `{port}`; a port is written `<1 to 65535>/http` or `…/tcp`"
        )));
    }
    let is_taken = view.templates.values().any(|other| {
        other.name == template.name && other.owner == template.owner && other.id != template.id
    });
    if is_taken {
        return Err(ApiError::conflict(format!(
            "a template named `{}` exists already",
            template.name
        )));
    }
    Ok(template)
}

/// Refuses texts and lists that are larger than a template may keep.
fn check_sizes(template: &Template) -> Result<(), ApiError> {
    input::check_text("imageName", &template.image, IMAGE_NAME_CHARS_MAX)?;
    input::check_text("readme", &template.readme, README_CHARS_MAX)?;
    let lists =
        [("dockerEntrypoint", &template.entrypoint), ("dockerStartCmd", &template.start_command)];
    for (field, arguments) in lists {
        input::check_count(field, arguments.len(), ARGUMENTS_MAX)?;
        for (at, argument) in arguments.iter().enumerate() {
            input::check_text(&format!("{field}[{at}]"), argument, ARGUMENT_CHARS_MAX)?;
        }
    }
    input::check_count("ports", template.ports.len(), PORTS_MAX)?;
    input::check_env(&template.env)
}

/// Refuses credentials that are not the owner's, or are bound to another registry than the image's.
fn check_registry_auth(view: &View, template: &Template) -> Result<(), ApiError> {
    if template.registry_auth.is_empty() {
        return Ok(());
    }
    let id = &template.registry_auth;
    let auth = registry_auths::named_by_template(view, &template.owner, id)?;
    match RemoteImage::names_registry(&template.image) {
        true => registry_auths::check_registry(view, auth, &remote_image(template)?),
        false => Ok(()),
    }
}

fn remote_image(template: &Template) -> Result<RemoteImage, ApiError> {
    let image = template.image.parse();
    image.map_err(|error| ApiError::bad_request(format!("`imageName` is not usable: {error}")))
}

fn is_port(text: &str) -> bool {
    text.split_once('/').is_some_and(|(number, protocol)| {
        // Only in the usual form of a number: no sign, no leading zero.
        let is_number = number.starts_with(|digit| matches!(digit, '1'..='9'));
        is_number && number.parse::<u16>().is_ok() && matches!(protocol, "http" | "tcp")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_was_not_fetched_is_refused_with_the_code_of_its_cause() {
        let image: RemoteImage = "registry.example/guest:1".parse().unwrap();
        for (error, expected) in [
            (FetchError::Refused("no such image".to_owned()), ErrorCode::BadRequest),
            (FetchError::Full, ErrorCode::Unavailable),
            (FetchError::OwnerDiskFull("the share is taken".to_owned()), ErrorCode::QuotaExceeded),
        ] {
            assert_eq!(fetch_refused(&image, error).code(), expected);
        }
    }
}
