//! `/v1/handlers`: uploaded components and the names by which templates find them.

use std::sync::Arc;

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use gristmill_core::catalog::Image;
use gristmill_core::key::ApiKey;
use gristmill_core::limits::COMPONENT_BYTES_MAX;

use super::dto::Handler;
use super::input::Named;
use super::page::{Page, Paged};
use crate::auth;
use crate::body;
use crate::caller::{Caller, Manage};
use crate::complete::complete;
use crate::error::ApiError;
use crate::images::{self, ImageName};
use crate::openapi::parameters::PageOfList;
use crate::openapi::refusals::{BodyRefused, CompileRefused, Missing, Mistaken};
use crate::openapi::schema::ComponentBytes;
use crate::openapi::tag;
use crate::upload_refusal;

/// All image names of the key's owner, with their components.
#[utoipa::path(
    get, path = "/handlers", operation_id = "ListHandlers", tag = tag::HANDLERS,
    params(PageOfList),
    responses((status = 200, description = "By image", body = Vec<Handler>), Mistaken),
)]
pub(crate) async fn list(
    Caller { state, key, .. }: Caller<Manage>,
    page: Page,
) -> Result<Paged, ApiError> {
    let view = state.catalog.view();
    let select = move |page: Page, caller: &ApiKey| {
        let own = view.images.values().filter(|image| image.owner == caller.owner);
        let handlers = own.filter_map(|image| Some((image, view.components.get(&image.digest)?)));
        let cursor_position = |(image, _): &(&Arc<Image>, _)| image.reference();
        page.of(handlers, cursor_position, |(image, component)| Handler::new(image, component))
    };
    page.make(&state, &key, select).await
}

/// One image name, with its component.
#[utoipa::path(
    get, path = "/handlers/{reference}", operation_id = "GetHandler", tag = tag::HANDLERS,
    responses((status = 200, description = "What the name names", body = Handler), Mistaken, Missing),
)]
pub(crate) async fn get(
    Caller { state, key, .. }: Caller<Manage>,
    Named(reference): Named,
) -> Result<Json<Handler>, ApiError> {
    let name = ImageName::parse(&reference)?;
    let view = state.catalog.view();
    let image = view.image(&key.owner, &reference);
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
    Caller { state, key, .. }: Caller<Manage>,
    Named(reference): Named,
    request: Request,
) -> Result<Json<Handler>, ApiError> {
    let name = ImageName::parse(&reference)?;
    let (parts, body) = request.into_parts();
    let staged = state.components.stage(&key.owner).await?;
    body::stage(&parts.headers, body, COMPONENT_BYTES_MAX, &*staged).await?;
    if staged.is_empty() {
        return Err(ApiError::bad_request("the body is empty; send the component's bytes"));
    }
    auth::check_again(&key, &state)?;
    let added =
        images::Named::Added(staged.add(&key.owner).await.map_err(upload_refusal::refused)?);
    let named = async move { images::tag(&state, &key, name, added, None).await };
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
    Caller { state, key, .. }: Caller<Manage>,
    Named(reference): Named,
) -> Result<StatusCode, ApiError> {
    images::untag(&state, &key, &ImageName::parse(&reference)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
