//! `/v1/handlers`: uploaded components and the names by which templates find them.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use gristmill_core::catalog::{CatalogChange, CatalogEntry, Image};
use gristmill_core::key::Scope;
use gristmill_core::limits::{COMPONENT_BYTES_MAX, NAME_BYTES_MAX};
use gristmill_core::runtime::AddComponentError;

use super::dto::Handler;
use super::input::Named;
use super::page::{Page, Paged};
use crate::auth::ManagementCaller;
use crate::error::{ApiError, ErrorCode};
use crate::openapi::parameters::PageOfList;
use crate::openapi::refusals::{BodyRefused, Mistaken};
use crate::openapi::schema::ComponentBytes;
use crate::openapi::tag;
use crate::state::ApiState;

/// All image names, with what they name.
#[utoipa::path(
    get, path = "/handlers", operation_id = "ListHandlers", tag = tag::HANDLERS,
    params(PageOfList),
    responses((status = 200, description = "By image", body = Vec<Handler>), Mistaken),
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    caller: ManagementCaller,
    page: Page,
) -> Result<Paged<Handler>, ApiError> {
    caller.require(Scope::Manage)?;
    let view = state.catalog.view();
    let own = view.images.values().filter(|image| image.owner == caller.0.owner);
    let handlers = own.filter_map(|image| Some((image, view.components.get(&image.digest)?)));
    let place = |(image, _): &(&Arc<Image>, _)| image.reference();
    Ok(page.of(handlers, place, |(image, component)| Handler::new(image, component)))
}

/// Takes a component in and lets `name:tag` name it.
///
/// Endpoints that run this image run the new component from their next job on.
#[utoipa::path(
    put, path = "/handlers/{reference}", operation_id = "UploadHandler", tag = tag::HANDLERS,
    request_body(content = ComponentBytes, content_type = "application/wasm", description = "The component"),
    responses((status = 200, description = "What the name now names", body = Handler), BodyRefused),
)]
pub(crate) async fn upload(
    State(state): State<ApiState>,
    caller: ManagementCaller,
    Named(reference): Named,
    request: Request,
) -> Result<Json<Handler>, ApiError> {
    caller.require(Scope::Manage)?;
    let (name, tag) = parse_reference(&reference)?;
    let (parts, body) = request.into_parts();
    let body = state.bodies.read(&parts.headers, body, COMPONENT_BYTES_MAX).await?;
    if body.bytes.is_empty() {
        return Err(ApiError::bad_request("the body is empty; send the component's bytes"));
    }
    let component = state.components.add_component(body.bytes.clone()).await.map_err(refused)?;
    let image = Image {
        name,
        tag,
        digest: component.digest,
        owner: caller.0.owner.clone(),
        updated_at: state.jobs.now(),
    };
    let reference = image.reference();
    let document = state
        .catalog
        .change(|view| {
            let current = view.images.get(&reference);
            if current.is_some_and(|current| current.owner != image.owner) {
                return Err(unusable(format!("the name `{reference}` belongs to another owner")));
            }
            let document = Handler::new(&image, &component);
            let changes = [CatalogEntry::Component(component), CatalogEntry::Image(image)];
            Ok((changes.map(CatalogChange::Put).into(), document))
        })
        .await?;
    let view = state.catalog.view();
    for deployment in view.deployments.values() {
        let names_it = view.resolve_image(&deployment.template.image) == deployment.component;
        if names_it && deployment.component.is_some() {
            state.workers.refresh(&deployment.endpoint.id);
        }
    }
    Ok(Json(document))
}

fn unusable(sentence: String) -> ApiError {
    ApiError::new(ErrorCode::Conflict, sentence)
}

fn refused(error: AddComponentError) -> ApiError {
    match error {
        AddComponentError::Rejected(reason) => ApiError::bad_request(reason),
        AddComponentError::Failed(reason) => {
            tracing::error!("an uploaded component could not be taken in: {reason}");
            ApiError::new(
                ErrorCode::Internal,
                "the component could not be compiled or kept; the host's log has the details",
            )
        }
    }
}

/// Reads `name` or `name:tag`; the tag is `latest` when there is none.
fn parse_reference(text: &str) -> Result<(String, String), ApiError> {
    let (name, tag) = text.split_once(':').unwrap_or((text, "latest"));
    let is_part = |part: &str| {
        !part.is_empty()
            && part.len() <= NAME_BYTES_MAX
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    if is_part(name) && is_part(tag) {
        return Ok((name.to_owned(), tag.to_owned()));
    }
    Err(ApiError::bad_request(format!(
        "`{text}` is no handler name: write `name:tag`, each 1 to {NAME_BYTES_MAX} letters, digits, `.`, `_` or `-`"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_have_a_name_and_a_tag() {
        let pair = |name: &str, tag: &str| Some((name.to_owned(), tag.to_owned()));
        let cases = [
            ("echo", pair("echo", "latest")),
            ("echo:v1.2", pair("echo", "v1.2")),
            ("", None),
            (":x", None),
            ("a:", None),
            ("a:b:c", None),
            ("a/b", None),
            ("..", pair("..", "latest")),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_reference(text).ok(), expected, "{text}");
        }
    }
}
