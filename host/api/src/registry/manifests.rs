//! `/v2/{name}/manifests` and `/v2/{name}/tags/list`: the components of images.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, RawQuery, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use gristmill_control::{BlobClaim, ClaimedBlobs, ImageName, NamedComponent};
use gristmill_core::access::key::ApiKey;
use gristmill_core::catalog::Image;
use gristmill_core::deploy::image::{
    Blob, BlobDigest, ComponentManifest, MANIFEST_TYPE, PushedManifest, is_tag, parse_digest,
};
use gristmill_core::limits::{Bounds, IMAGE_CONFIG_BYTES_MAX, IMAGE_MANIFEST_BYTES_MAX};
use gristmill_core::runtime::Staged;
use serde_json::{Value, json};

use super::error::{OciCode, RegistryError};
use super::stored_images::{config_of_image, find, manifest_of};
use super::{answer, name, referrers};
use crate::answer::error::ApiError;
use crate::identity::auth;
use crate::identity::caller::RegistryCaller;
use crate::request::query::Query;
use crate::state::ApiState;

/// `n` of a list of tags.
const TAGS: Bounds = Bounds { min: 0, default: 1_000, max: 1_000 };

/// The manifest with a tag or a digest.
pub(super) async fn get(
    RegistryCaller { state, key, .. }: RegistryCaller,
    Path((name, reference)): Path<(String, String)>,
) -> Result<Response, RegistryError> {
    let found = match parse_digest(&reference) {
        Some(digest) => {
            let is_it = move |manifest: &PushedManifest| manifest.digest() == digest;
            let look = move |manifest: &PushedManifest| is_it(manifest).then(|| manifest.clone());
            find(&state, &key, &name, look).await?
        }
        None => {
            let image = ImageName { name: name.clone(), tag: reference.clone() };
            let found = state.control.images.get(&key, &image).ok();
            found.map(|(image, component)| manifest_of(&image, &component).into_owned())
        }
    };
    let manifest = found.ok_or_else(|| unknown(&name, &reference))?;
    let text = manifest.text().to_owned();
    let bytes = text.len() as u64;
    Ok(answer::content(MANIFEST_TYPE, manifest.digest(), bytes, Body::from(text)))
}

/// Accepts a manifest: its component is checked and compiled, and becomes the handler `name:tag`.
/// Its blobs must have been pushed before.
pub(super) async fn push(
    RegistryCaller { state, key, .. }: RegistryCaller,
    Path((name, tag)): Path<(String, String)>,
    request: Request,
) -> Result<Response, RegistryError> {
    name::check(&name)?;
    let (parts, body) = request.into_parts();
    let text = state.bodies.read(&key.id, &parts, body, IMAGE_MANIFEST_BYTES_MAX).await?.bytes;
    auth::check_again(&key, &state)?;
    let text = String::from_utf8(text.into()).map_err(|_| {
        RegistryError::invalid(OciCode::ManifestInvalid, "the manifest is not UTF-8")
    })?;
    let image = ImageName { name, tag };
    let manifest = check(&image.tag, &text).inspect_err(|_| {
        // The blobs have no other use, and would count against their owner's next uploads.
        for digest in blobs_named_in(&text) {
            state.control.blob_uploads.release(&key.owner, &image.name, digest);
        }
    })?;
    let location = format!("/v2/{}/manifests/", image.name);
    let subject = referrers::subject(text.as_bytes());
    let digest = take(&state, &key, image, text, manifest).await?;
    let created = answer::created(&format!("{location}{}", digest.oci()), digest);
    Ok(match subject {
        Some(subject) => answer::with_subject(created, &subject),
        None => created,
    })
}

/// Parses a manifest, which must be pushed by a tag.
fn check(tag: &str, text: &str) -> Result<ComponentManifest, RegistryError> {
    if parse_digest(tag).is_some() {
        let sentence = "a handler has a tag: push the manifest by one, not by its digest";
        return Err(RegistryError::unsupported(sentence));
    }
    let invalid = |reason: String| RegistryError::invalid(OciCode::ManifestInvalid, reason);
    if !is_tag(tag) {
        return Err(invalid(format!("`{tag}` is no tag: letters, digits, `.`, `_` and `-`")));
    }
    let manifest =
        ComponentManifest::parse(text.as_bytes()).map_err(|error| invalid(error.to_string()))?;
    if manifest.config.digest == manifest.component.digest {
        let sentence = "the config and the component have the same digest: they must be two blobs";
        return Err(invalid(sentence.to_owned()));
    }
    if !referrers::has_valid_annotations(text) {
        return Err(invalid("`annotations` must be an object with texts".to_owned()));
    }
    Ok(manifest)
}

/// Creates a handler from a manifest. If one of its blobs is missing, the others are kept. If the
/// same manifest may be accepted later, all of them are kept; otherwise they are consumed.
async fn take(
    state: &ApiState,
    caller: &Arc<ApiKey>,
    image: ImageName,
    text: String,
    manifest: ComponentManifest,
) -> Result<BlobDigest, RegistryError> {
    let ComponentManifest { config, component } = manifest;
    let name = image.name.clone();
    let (mut claimed, stored_config) = claim(state, caller, &name, manifest).await?;
    let [staged_config, staged_component] = std::mem::take(&mut claimed.staged);
    let config_text = match (&staged_config, stored_config) {
        (Some(staged), _) => read_config(&**staged).await?,
        (None, Some(stored)) => stored,
        (None, None) => return Err(missing("config", config)),
    };
    let named = match &staged_component {
        Some(staged) => NamedComponent::Uploaded(&**staged),
        None => NamedComponent::Known(component.digest),
    };
    let pushed = PushedManifest::new(text, config_text);
    let digest = pushed.digest();
    let (uploads, owner) = (state.control.blob_uploads.clone(), caller.owner.clone());
    let claimed = Arc::new(claimed);
    let until_named = claimed.clone();
    // The image has the blobs then, for the next manifest that names them.
    let on_named = move || {
        for blob in [config, component] {
            while uploads.release(&owner, &name, blob.digest) {}
        }
        drop(until_named);
    };
    match state.control.images.push(caller, image, named, pushed, on_named).await {
        Ok(()) => Ok(digest),
        Err(error) => {
            let refused = RegistryError::from(error);
            if refused.may_pass() {
                claimed.give_back([staged_config, staged_component]);
            }
            Err(refused)
        }
    }
}

/// Claims the uploaded blobs of a manifest. Clients skip the upload of a blob that the host has, so
/// several manifests may share one copy: while another manifest has it, this one waits for the
/// image of the other. Also returns the config of an image, if the config was not uploaded.
async fn claim(
    state: &ApiState,
    caller: &Arc<ApiKey>,
    name: &str,
    manifest: ComponentManifest,
) -> Result<(ClaimedBlobs<2>, Option<String>), RegistryError> {
    let ComponentManifest { config, component } = manifest;
    let owner = &caller.owner;
    loop {
        let mut ends = state.control.blob_uploads.claim_ends();
        let stored_config = match state.control.blob_uploads.has(owner, name, config) {
            true => None,
            false => config_of_image(state, caller, name, config.digest).await?,
        };
        let is_stored = [stored_config.is_some(), is_known(state, caller, name, component)];
        match state.control.blob_uploads.claim(owner, name, [config, component], is_stored) {
            BlobClaim::Taken(claimed) => return Ok((claimed, stored_config)),
            // Only an error if the table of uploads has ended, with the host.
            BlobClaim::Busy => drop(ends.changed().await),
            // An image may have the blob since the look at the images.
            BlobClaim::Missing(_) if ends.has_changed().unwrap_or(false) => {}
            BlobClaim::Missing(blob) if blob == config => return Err(missing("config", config)),
            BlobClaim::Missing(_) => return Err(missing("component", component)),
        }
    }
}

/// The blobs that a text names like a manifest, even if it is not a valid one.
fn blobs_named_in(text: &str) -> Vec<BlobDigest> {
    let manifest: Value = serde_json::from_str(text).unwrap_or_default();
    let layers = manifest.get("layers").and_then(Value::as_array).into_iter().flatten();
    let named = manifest.get("config").into_iter().chain(layers);
    named.filter_map(|blob| parse_digest(blob.get("digest")?.as_str()?)).collect()
}

/// Deletes a tag, or with a manifest's digest all tags of this manifest. Refused while an endpoint
/// runs the component of one of them; then no tag is deleted.
pub(super) async fn delete(
    RegistryCaller { state, key, .. }: RegistryCaller,
    Path((name, reference)): Path<(String, String)>,
) -> Result<Response, RegistryError> {
    let (label, images) = match parse_digest(&reference) {
        Some(digest) => (name.clone(), with_digest(&state, &key, &name, digest).await?),
        None => {
            let label = format!("{name}:{reference}");
            let image = ImageName { name: name.clone(), tag: reference.clone() };
            let image = state.control.images.get(&key, &image).ok();
            (label, image.into_iter().map(|(image, _)| image).collect())
        }
    };
    match state.control.images.remove_all(&key, label, images).await? {
        true => Ok(StatusCode::ACCEPTED.into_response()),
        false => Err(unknown(&name, &reference)),
    }
}

/// The caller's images of this name whose manifest has this digest.
async fn with_digest(
    state: &ApiState,
    caller: &Arc<ApiKey>,
    name: &str,
    digest: BlobDigest,
) -> Result<Vec<Arc<Image>>, ApiError> {
    let images = state.control.images.list(caller, Some(name.to_owned()));
    let search = move || {
        let meant = images
            .iter()
            .filter(|(image, component)| manifest_of(image, component).digest() == digest);
        Ok(meant.map(|(image, _)| image.clone()).collect())
    };
    state.pages.write(caller, search).await
}

/// The tags of a name, in order; `?n=` and `?last=` page through them.
pub(super) async fn tags(
    RegistryCaller { state, key, .. }: RegistryCaller,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, RegistryError> {
    let query = Query(query.as_deref().unwrap_or_default());
    let n = query.text("n").and_then(|n| n.parse().ok()).unwrap_or(TAGS.default);
    let n = usize::try_from(TAGS.clamp(n)).unwrap_or(usize::MAX);
    let last = query.text("last").unwrap_or_default();
    let images = state.control.images.list(&key, Some(name.clone()));
    let mut all: Vec<_> = images.iter().map(|(image, _)| image.tag.as_str()).collect();
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

/// The text of a pushed config.
async fn read_config(staged: &dyn Staged) -> Result<String, RegistryError> {
    let bytes = staged.read(IMAGE_CONFIG_BYTES_MAX).await.ok();
    bytes.and_then(|bytes| String::from_utf8(bytes.into()).ok()).ok_or_else(|| {
        RegistryError::invalid(OciCode::ManifestInvalid, "the image's config is not UTF-8")
    })
}

/// Whether an image of this name has this component.
fn is_known(state: &ApiState, caller: &ApiKey, name: &str, blob: Blob) -> bool {
    let images = state.control.images.list(caller, Some(name.to_owned()));
    images
        .iter()
        .any(|(image, component)| image.digest == blob.digest && component.bytes == blob.bytes)
}

fn unknown(name: &str, reference: &str) -> RegistryError {
    let sentence = format!("handler `{name}` has no image `{reference}`");
    RegistryError::unknown(OciCode::ManifestUnknown, sentence)
}

fn missing(what: &str, blob: Blob) -> RegistryError {
    let Blob { digest, bytes } = blob;
    let digest = digest.oci();
    let sentence = format!("the image's {what} {digest} of {bytes} bytes was not pushed before");
    RegistryError::unknown(OciCode::ManifestBlobUnknown, sentence)
}
