//! `/v1/handlers`: uploaded components and the names by which templates find them.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use gristmill_core::catalog::Image;
use gristmill_core::key::{ApiKey, Scope};
use gristmill_core::limits::COMPONENT_BYTES_MAX;

use super::dto::Handler;
use super::input::Named;
use super::page::{Page, Paged};
use crate::auth::{self, ManagementCaller};
use crate::body;
use crate::complete::complete;
use crate::error::ApiError;
use crate::images::{self, ImageName};
use crate::openapi::parameters::PageOfList;
use crate::openapi::refusals::{BodyRefused, CompileRefused, Missing, Mistaken};
use crate::openapi::schema::ComponentBytes;
use crate::openapi::tag;
use crate::state::ApiState;
use crate::upload_refusal;

/// All image names of the key's owner, with their components.
#[utoipa::path(
    get, path = "/handlers", operation_id = "ListHandlers", tag = tag::HANDLERS,
    params(PageOfList),
    responses((status = 200, description = "By image", body = Vec<Handler>), Mistaken),
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    caller: ManagementCaller,
    page: Page,
) -> Result<Paged, ApiError> {
    caller.require(Scope::Manage)?;
    let view = state.catalog.view();
    let select = move |page: Page, caller: &ApiKey| {
        let own = view.images.values().filter(|image| image.owner == caller.owner);
        let handlers = own.filter_map(|image| Some((image, view.components.get(&image.digest)?)));
        let cursor_position = |(image, _): &(&Arc<Image>, _)| image.reference();
        page.of(handlers, cursor_position, |(image, component)| Handler::new(image, component))
    };
    page.make(&state, &caller, select).await
}

/// One image name, with its component.
#[utoipa::path(
    get, path = "/handlers/{reference}", operation_id = "GetHandler", tag = tag::HANDLERS,
    responses((status = 200, description = "What the name names", body = Handler), Mistaken, Missing),
)]
pub(crate) async fn get(
    State(state): State<ApiState>,
    caller: ManagementCaller,
    Named(reference): Named,
) -> Result<Json<Handler>, ApiError> {
    caller.require(Scope::Manage)?;
    let name = ImageName::parse(&reference)?;
    let view = state.catalog.view();
    let image = view.image(&caller.0.owner, &reference);
    let found = image.and_then(|image| Some((image, view.components.get(&image.digest)?)));
    let (image, component) = found.ok_or_else(|| images::not_found(&name))?;
    Ok(Json(Handler::new(image, component)))
}

/// Uploads a component as `name:tag`.
///
/// Endpoints that run this image run the new component from their next job on. A component without
/// any name is deleted.
#[utoipa::path(
    put, path = "/handlers/{reference}", operation_id = "UploadHandler", tag = tag::HANDLERS,
    request_body(content = ComponentBytes, content_type = "application/wasm", description = "The component"),
    responses((status = 200, description = "What the name now names", body = Handler), BodyRefused, CompileRefused),
)]
pub(crate) async fn upload(
    State(state): State<ApiState>,
    caller: ManagementCaller,
    Named(reference): Named,
    request: Request,
) -> Result<Json<Handler>, ApiError> {
    caller.require(Scope::Manage)?;
    let name = ImageName::parse(&reference)?;
    let (parts, body) = request.into_parts();
    let staged = state.components.stage(&caller.0.owner).await?;
    body::stage(&parts.headers, body, COMPONENT_BYTES_MAX, &*staged).await?;
    if staged.is_empty() {
        return Err(ApiError::bad_request("the body is empty; send the component's bytes"));
    }
    auth::check_again(&caller.0, &state)?;
    let added =
        images::Named::Added(staged.add(&caller.0.owner).await.map_err(upload_refusal::refused)?);
    let named = async move { images::tag(&state, &caller.0, name, added, None).await };
    let (image, component) = complete(named).await??;
    Ok(Json(Handler::new(&image, &component)))
}

/// Removes a name; refused while an endpoint runs its component.
///
/// The component is deleted once no image name and no template refers to it. Running jobs continue.
#[utoipa::path(
    delete, path = "/handlers/{reference}", operation_id = "DeleteHandler", tag = tag::HANDLERS,
    responses((status = 204, description = "Deleted"), Mistaken, Missing),
)]
pub(crate) async fn delete(
    State(state): State<ApiState>,
    caller: ManagementCaller,
    Named(reference): Named,
) -> Result<StatusCode, ApiError> {
    caller.require(Scope::Manage)?;
    images::untag(&state, &caller.0, &ImageName::parse(&reference)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
