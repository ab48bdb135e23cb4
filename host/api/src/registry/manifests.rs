//! `/v2/{name}/manifests` and `/v2/{name}/tags/list`: which component an image is.

use axum::body::Body;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use gristmill_core::catalog::{Component, Image};
use gristmill_core::id::OwnerId;
use gristmill_core::image::{
    Blob, BlobDigest, CONFIG_TYPE, ComponentManifest, LAYER_TYPE, MANIFEST_TYPE, PushedManifest,
    is_tag, parse_digest,
};
use gristmill_core::limits::{Bounds, IMAGE_CONFIG_BYTES_MAX, IMAGE_MANIFEST_BYTES_MAX};
use serde_json::json;

use super::error::{OciCode, RegistryError};
use super::{Caller, answer, images_of, name};
use crate::images::{self, ImageName, Named};
use crate::query::Query;
use crate::state::ApiState;
use crate::wire_time::rfc3339;

/// `n` of a list of tags.
const TAGS: Bounds = Bounds { min: 1, default: 1_000, max: 1_000 };

/// The manifest of a tag, or the one with a digest.
pub(super) async fn get(
    State(state): State<ApiState>,
    Caller(key): Caller,
    Path((name, reference)): Path<(String, String)>,
) -> Result<Response, RegistryError> {
    let view = state.catalog.view();
    let mut images = images_of(&view, &key.owner, &name);
    let found = match parse_digest(&reference) {
        Some(digest) => images
            .map(|(image, component)| of(image, component))
            .find(|manifest| manifest.digest() == digest),
        None => images
            .find(|(image, _)| image.tag == reference)
            .map(|(image, component)| of(image, component)),
    };
    let manifest = found.ok_or_else(|| {
        let sentence = format!("handler `{name}` has no image `{reference}`");
        RegistryError::unknown(OciCode::ManifestUnknown, sentence)
    })?;
    let text = manifest.text().to_owned();
    let bytes = text.len() as u64;
    Ok(answer::content(MANIFEST_TYPE, manifest.digest(), bytes, Body::from(text)))
}

/// Takes a manifest: its component is checked and compiled, and is the handler `name:tag` from now
/// on. Its blobs have come before.
pub(super) async fn push(
    State(state): State<ApiState>,
    Caller(key): Caller,
    Path((name, tag)): Path<(String, String)>,
    request: Request,
) -> Result<Response, RegistryError> {
    name::check(&name)?;
    if parse_digest(&tag).is_some() {
        let sentence = "a handler has a tag: push the manifest by one, not by its digest";
        return Err(RegistryError::invalid(OciCode::Unsupported, sentence));
    }
    if !is_tag(&tag) {
        let sentence = format!("`{tag}` is no tag: letters, digits, `.`, `_` and `-`");
        return Err(RegistryError::invalid(OciCode::ManifestInvalid, sentence));
    }
    let (parts, body) = request.into_parts();
    let text = state.bodies.read(None, &parts.headers, body, IMAGE_MANIFEST_BYTES_MAX).await?;
    let invalid = |reason: String| RegistryError::invalid(OciCode::ManifestInvalid, reason);
    let manifest =
        ComponentManifest::parse(&text.bytes).map_err(|error| invalid(error.to_string()))?;
    let text = String::from_utf8(text.bytes.into())
        .map_err(|_| invalid("the manifest is not UTF-8".to_owned()))?;
    let owner = &key.owner;
    let config = config(&state, owner, &name, manifest.config).await?;
    let component = component(&state, owner, &name, manifest.component).await?;
    let pushed = PushedManifest::new(text, config);
    let digest = pushed.digest();
    let image = ImageName { name: name.clone(), tag };
    images::name(&state, owner, image, component, Some(pushed)).await?;
    Ok(answer::created(&format!("/v2/{name}/manifests/{}", digest.oci()), digest))
}

/// The tags of a name, in order; `?n=` and `?last=` page through them.
pub(super) async fn tags(
    State(state): State<ApiState>,
    Caller(key): Caller,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, RegistryError> {
    let query = Query(query.as_deref().unwrap_or_default());
    let n = query.text("n").and_then(|n| n.parse().ok()).unwrap_or(TAGS.default);
    let n = usize::try_from(TAGS.clamp(n)).unwrap_or(usize::MAX);
    let last = query.text("last").unwrap_or_default();
    let view = state.catalog.view();
    let mut all: Vec<_> =
        images_of(&view, &key.owner, &name).map(|(i, _)| i.tag.as_str()).collect();
    if all.is_empty() {
        let sentence = format!("there is no handler `{name}`");
        return Err(RegistryError::unknown(OciCode::NameUnknown, sentence));
    }
    all.sort_unstable();
    all.retain(|tag| *tag > &*last);
    let next =
        all.get(n).and_then(|_| n.checked_sub(1)).and_then(|last| all.get(last)).map(|last| {
            let link = format!("</v2/{name}/tags/list?n={n}&last={last}>; rel=\"next\"");
            HeaderValue::from_str(&link).expect("names and tags are a header value")
        });
    all.truncate(n);
    let mut response = axum::Json(json!({ "name": name, "tags": all })).into_response();
    if let Some(next) = next {
        response.headers_mut().insert(header::LINK, next);
    }
    Ok(response)
}

/// The manifest of an image: the one that was pushed, or the one that an upload would have had.
pub(super) fn of(image: &Image, component: &Component) -> PushedManifest {
    if let Some(pushed) = &image.manifest {
        return pushed.clone();
    }
    let digest = format!("{:?}", component.digest);
    let config = json!({
        "created": rfc3339(component.uploaded_at),
        "architecture": "wasm",
        "os": "wasip2",
        "layerDigests": [digest],
        "component": { "exports": component.exports, "imports": component.imports },
    })
    .to_string();
    let config_digest = format!("{:?}", BlobDigest::of(config.as_bytes()));
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": { "mediaType": CONFIG_TYPE, "digest": config_digest, "size": config.len() },
        "layers": [{ "mediaType": LAYER_TYPE, "digest": digest, "size": component.bytes }],
    });
    PushedManifest::new(manifest.to_string(), config)
}

/// The config that a manifest names: pushed before, or that of another tag.
async fn config(
    state: &ApiState,
    owner: &OwnerId,
    name: &str,
    blob: Blob,
) -> Result<String, RegistryError> {
    if let Some(staged) = state.uploads.claim(owner, name, blob) {
        let bytes = staged.read(IMAGE_CONFIG_BYTES_MAX).await.ok();
        return bytes.and_then(|bytes| String::from_utf8(bytes.into()).ok()).ok_or_else(|| {
            RegistryError::invalid(OciCode::ManifestInvalid, "the image's config is not UTF-8")
        });
    }
    let view = state.catalog.view();
    let known = images_of(&view, owner, name)
        .map(|(image, component)| of(image, component))
        .find(|manifest| manifest.config_digest() == blob.digest);
    known.map(|manifest| manifest.config().to_owned()).ok_or_else(|| unknown("config", blob))
}

/// The component that a manifest names: pushed before, or that of another tag.
async fn component(
    state: &ApiState,
    owner: &OwnerId,
    name: &str,
    blob: Blob,
) -> Result<Named, RegistryError> {
    if let Some(staged) = state.uploads.claim(owner, name, blob) {
        return Ok(Named::Added(staged.add().await?));
    }
    let view = state.catalog.view();
    let is_known = images_of(&view, owner, name)
        .any(|(image, component)| image.digest == blob.digest && component.bytes == blob.bytes);
    if is_known { Ok(Named::Known(blob.digest)) } else { Err(unknown("component", blob)) }
}

fn unknown(what: &str, blob: Blob) -> RegistryError {
    let Blob { digest, bytes } = blob;
    let digest = digest.oci();
    let sentence = format!("the image's {what} {digest} of {bytes} bytes was not pushed before");
    RegistryError::unknown(OciCode::ManifestBlobUnknown, sentence)
}
