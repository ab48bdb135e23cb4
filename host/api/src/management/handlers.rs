//! `/v1/handlers`: uploaded components and the names by which templates find them.

use std::sync::Arc;

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use gristmill_control::ImageName;
use gristmill_core::catalog::{self, Component, Image};
use gristmill_core::limits::COMPONENT_BYTES_MAX;

use super::input::Named;
use super::page::{Page, Paged};
use crate::answer::error::ApiError;
use crate::answer::wire_time::rfc3339;
use crate::identity::auth;
use crate::identity::caller::{Caller, Manage};
use crate::openapi::parameters::PageOfList;
use crate::openapi::refusals::{BodyRefused, CompileRefused, Missing, Mistaken};
use crate::openapi::tag;
use crate::request::body;
use gristmill_wire::management::{Handler, Producer};
use gristmill_wire::schema::ComponentBytes;

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
    let (images, caller) = (state.control.images.clone(), key.clone());
    let select = move |page: Page| {
        let images = images.list(&caller, None);
        let cursor_position = |(image, _): &(&Arc<Image>, _)| image.reference();
        page.of(images.iter(), cursor_position, |(image, component)| handler(image, component))
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
    let (image, component) = state.control.images.get(&key, &ImageName::parse(&reference)?)?;
    Ok(Json(handler(&image, &component)))
}

/// Uploads a component as `name:tag`.
///
/// Endpoints that run this image run the new component from their next job on. The body has 64 MB
/// at most. Bytes that are no component, that import something which this host does not provide, or
/// that export no handler are refused with the reason. A component without any name is deleted.
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
    let staged = state.control.images.stage(&key).await?;
    body::stage(&parts.headers, body, COMPONENT_BYTES_MAX, &*staged).await?;
    auth::check_after_body(&parts.extensions)?;
    if staged.is_empty() {
        return Err(ApiError::bad_request("the body is empty; send the component's bytes"));
    }
    let (image, component) = state.control.images.upload(&key, name, staged).await?;
    Ok(Json(handler(&image, &component)))
}

/// Removes a name; refused while an endpoint runs its component, with the names of the endpoints.
///
/// The component is deleted once no image name, no template, no release of an endpoint and no
/// running job uses it. An unused template may still name the image, and then refers to nothing.
#[utoipa::path(
    delete, path = "/handlers/{reference}", operation_id = "DeleteHandler", tag = tag::HANDLERS,
    responses((status = 204, description = "Deleted"), Mistaken, Missing),
)]
pub(crate) async fn delete(
    Caller { state, key, .. }: Caller<Manage>,
    Named(reference): Named,
) -> Result<StatusCode, ApiError> {
    state.control.images.remove(&key, ImageName::parse(&reference)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn producers(list: &[catalog::Producer]) -> Vec<Producer> {
    let producer = |producer: &catalog::Producer| Producer {
        name: producer.name.clone(),
        version: producer.version.clone(),
    };
    list.iter().map(producer).collect()
}

/// The answer's form of an uploaded handler.
fn handler(image: &Image, component: &Component) -> Handler {
    Handler {
        name: image.name.clone(),
        tag: image.tag.clone(),
        image: image.reference(),
        sha256: component.digest.to_string(),
        size_in_bytes: component.bytes,
        imports: component.imports.clone(),
        exports: component.exports.clone(),
        language: producers(&component.producers.languages),
        toolchain: producers(&component.producers.tools),
        compile_ms: component.compile_ms,
        updated_at: rfc3339(image.updated_at),
    }
}
