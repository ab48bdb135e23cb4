//! `/v2/{name}/blobs`: the bytes that manifests name, on their way in and out.

use axum::body::Body;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use gristmill_core::image::{BlobDigest, parse_digest};
use gristmill_core::limits::COMPONENT_BYTES_MAX;
use gristmill_core::runtime::Staged;
use tokio_util::io::ReaderStream;

use super::error::{OciCode, RegistryError};
use super::uploads::Taken;
use super::{Caller, answer, images_of, manifests, name};
use crate::body;
use crate::query::Query;
use crate::state::ApiState;

/// Bytes of a component that are read from the disk at one time.
const PIECE_BYTES: usize = 64 << 10;

/// Begins an upload; with `?digest=` and a body it is the whole of it.
pub(super) async fn begin(
    State(state): State<ApiState>,
    Caller(key): Caller,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response, RegistryError> {
    name::check(&name)?;
    let staged = state.components.stage().await?;
    let id = state.uploads.begin(&key.owner, &name, staged)?;
    let Some(digest) = digest_in(query.as_deref())? else {
        // `?mount=` is answered like this too: the client sends the bytes.
        return Ok(answer::under_way(StatusCode::ACCEPTED, &name, id, 0));
    };
    let taken = state.uploads.take(&key.owner, &name, &id.to_string())?;
    let (parts, body) = request.into_parts();
    if let Err(error) = append(&taken, &parts.headers, body).await {
        taken.end();
        return Err(error);
    }
    conclude(taken, &name, digest)
}

/// Adds a piece to an upload.
pub(super) async fn add(
    State(state): State<ApiState>,
    Caller(key): Caller,
    Path((name, upload)): Path<(String, String)>,
    request: Request,
) -> Result<Response, RegistryError> {
    let taken = state.uploads.take(&key.owner, &name, &upload)?;
    let (parts, body) = request.into_parts();
    append(&taken, &parts.headers, body).await?;
    Ok(answer::under_way(StatusCode::ACCEPTED, &name, taken.id, taken.len()))
}

/// Ends an upload, with its last piece if there is a body.
pub(super) async fn finish(
    State(state): State<ApiState>,
    Caller(key): Caller,
    Path((name, upload)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response, RegistryError> {
    let digest = digest_in(query.as_deref())?.ok_or_else(|| {
        let sentence = "the query `digest` is required: `?digest=sha256:…`";
        RegistryError::invalid(OciCode::DigestInvalid, sentence)
    })?;
    let taken = state.uploads.take(&key.owner, &name, &upload)?;
    let (parts, body) = request.into_parts();
    append(&taken, &parts.headers, body).await?;
    conclude(taken, &name, digest)
}

/// How far an upload has come.
pub(super) async fn progress(
    State(state): State<ApiState>,
    Caller(key): Caller,
    Path((name, upload)): Path<(String, String)>,
) -> Result<Response, RegistryError> {
    let taken = state.uploads.take(&key.owner, &name, &upload)?;
    Ok(answer::under_way(StatusCode::NO_CONTENT, &name, taken.id, taken.len()))
}

/// Gives an upload up.
pub(super) async fn cancel(
    State(state): State<ApiState>,
    Caller(key): Caller,
    Path((name, upload)): Path<(String, String)>,
) -> Result<Response, RegistryError> {
    state.uploads.take(&key.owner, &name, &upload)?.end();
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// A component or a config of an image with this name. A blob that waits for its manifest is known
/// to HEAD, by which clients find out what they need not push, and has no content yet.
pub(super) async fn get(
    State(state): State<ApiState>,
    Caller(key): Caller,
    Path((name, digest)): Path<(String, String)>,
    request: Request,
) -> Result<Response, RegistryError> {
    const BYTES: &str = "application/octet-stream";
    let digest = read_digest(&digest)?;
    let view = state.catalog.view();
    for (image, component) in images_of(&view, &key.owner, &name) {
        if image.digest == digest {
            let file = state.components.open_component(digest).await.map_err(|error| {
                tracing::error!("the component `{digest}` cannot be read: {error}");
                unknown(digest)
            })?;
            let body = Body::from_stream(ReaderStream::with_capacity(file, PIECE_BYTES));
            return Ok(answer::content(BYTES, digest, component.bytes, body));
        }
        let manifest = manifests::of(image, component);
        if manifest.config_digest() == digest {
            let config = manifest.config().to_owned();
            return Ok(answer::content(BYTES, digest, config.len() as u64, config.into()));
        }
    }
    match state.uploads.whole(&key.owner, &name, digest) {
        Some(bytes) if request.method() == axum::http::Method::HEAD => {
            Ok(answer::content(BYTES, digest, bytes, Body::empty()))
        }
        Some(_) | None => Err(unknown(digest)),
    }
}

/// Adds a body to an upload, where the last one has ended.
async fn append(taken: &Taken, headers: &HeaderMap, body: Body) -> Result<(), RegistryError> {
    let there = taken.len();
    if let Some(range) = headers.get(header::CONTENT_RANGE) {
        let start = range.to_str().ok().and_then(|range| range.split_once('-'));
        let start = start.and_then(|(start, _)| start.trim_start_matches("bytes ").parse().ok());
        if start != Some(there) {
            let sentence = format!("the next piece of this upload begins at {there}");
            return Err(RegistryError::out_of_order(sentence));
        }
    }
    let room = COMPONENT_BYTES_MAX.saturating_sub(usize::try_from(there).unwrap_or(usize::MAX));
    let staged: &dyn Staged = &**taken;
    Ok(body::stage(headers, body, room, staged).await?)
}

/// An upload that is not what its client says goes.
fn conclude(taken: Taken, name: &str, digest: BlobDigest) -> Result<Response, RegistryError> {
    let found = taken.digest();
    if found != digest {
        taken.end();
        let sentence = format!("the upload has the digest {}, not {}", found.oci(), digest.oci());
        return Err(RegistryError::invalid(OciCode::DigestInvalid, sentence));
    }
    taken.finish(digest);
    Ok(answer::created(&format!("/v2/{name}/blobs/{}", digest.oci()), digest))
}

/// The query `digest`.
fn digest_in(query: Option<&str>) -> Result<Option<BlobDigest>, RegistryError> {
    let digest = Query(query.unwrap_or_default()).text("digest");
    digest.map(|digest| read_digest(&digest)).transpose()
}

fn read_digest(text: &str) -> Result<BlobDigest, RegistryError> {
    parse_digest(text).ok_or_else(|| {
        let sentence = format!("`{text}` is no digest: write `sha256:` and 64 hexadecimal digits");
        RegistryError::invalid(OciCode::DigestInvalid, sentence)
    })
}

fn unknown(digest: BlobDigest) -> RegistryError {
    let sentence = format!("blob {} not found under this name", digest.oci());
    RegistryError::unknown(OciCode::BlobUnknown, sentence)
}
