//! `/v2/{name}/blobs`: upload and download of the blobs that manifests name.

use std::io;

use axum::body::{Body, HttpBody as _};
use axum::extract::{Path, RawQuery, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use gristmill_control::BlobUploadInUse;
use gristmill_core::access::key::ApiKey;
use gristmill_core::deploy::image::{BlobDigest, parse_digest};
use gristmill_core::limits::COMPONENT_BYTES_MAX;
use tokio::fs::File;
use tokio::io::AsyncRead;
use tokio_util::io::ReaderStream;

use super::error::{OciCode, RegistryError};
use super::stored_images::config_of_image;
use super::{answer, name};
use crate::answer::error::ApiError;
use crate::identity::caller::RegistryCaller;
use crate::request::body::Pieces;
use crate::request::query::Query;
use crate::state::ApiState;

/// The media type of a blob, whose content a registry does not know.
const BYTES: &str = "application/octet-stream";

/// Bytes of a component that are read from the disk in one step.
const PIECE_BYTES: usize = 64 << 10;

/// Begins an upload; with `?digest=` and a body this is the whole upload.
pub(super) async fn begin(
    RegistryCaller { state, key, .. }: RegistryCaller,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response, RegistryError> {
    name::check(&name)?;
    let digest = digest_in(query.as_deref())?;
    let staged = state.control.images.stage(&key).await?;
    let id = state.control.blob_uploads.begin(&key.owner, &name, staged)?;
    let Some(digest) = digest else {
        // `?mount=` gets the same answer: the client sends the bytes.
        return Ok(answer::under_way(StatusCode::ACCEPTED, &name, id, 0));
    };
    let mut taken = state.control.blob_uploads.take(&key.owner, &name, &id.to_string())?;
    // The client never receives the upload's location.
    taken.end_unless_finished();
    let (parts, body) = request.into_parts();
    append(&taken, &parts.headers, body).await?;
    conclude(&state, &key, taken, &name, digest).await
}

/// Adds a piece to an upload.
pub(super) async fn add(
    RegistryCaller { state, key, .. }: RegistryCaller,
    Path((name, upload)): Path<(String, String)>,
    request: Request,
) -> Result<Response, RegistryError> {
    let taken = state.control.blob_uploads.take(&key.owner, &name, &upload)?;
    let (parts, body) = request.into_parts();
    append(&taken, &parts.headers, body).await?;
    Ok(answer::under_way(StatusCode::ACCEPTED, &name, taken.id, taken.len()))
}

/// Ends an upload, with its last piece if there is a body. If this is its only piece, a failure
/// ends the upload, too: the client would repeat the whole body, which cannot follow a part of it.
pub(super) async fn finish(
    RegistryCaller { state, key, .. }: RegistryCaller,
    Path((name, upload)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response, RegistryError> {
    let mut taken = state.control.blob_uploads.take(&key.owner, &name, &upload)?;
    let digest = match digest_in(query.as_deref()) {
        Ok(Some(digest)) => digest,
        Ok(None) => {
            let sentence = "the query `digest` is required: `?digest=sha256:…`";
            return Err(RegistryError::invalid(OciCode::DigestInvalid, sentence));
        }
        // The client cannot end this upload, because it uses another digest algorithm.
        Err(refused) => {
            taken.end();
            return Err(refused);
        }
    };
    if taken.is_empty() {
        taken.end_unless_finished();
    }
    let (parts, body) = request.into_parts();
    append(&taken, &parts.headers, body).await?;
    conclude(&state, &key, taken, &name, digest).await
}

/// The progress of an upload.
pub(super) async fn progress(
    RegistryCaller { state, key, .. }: RegistryCaller,
    Path((name, upload)): Path<(String, String)>,
) -> Result<Response, RegistryError> {
    let taken = state.control.blob_uploads.take(&key.owner, &name, &upload)?;
    Ok(answer::under_way(StatusCode::NO_CONTENT, &name, taken.id, taken.len()))
}

/// Deletes an upload.
pub(super) async fn cancel(
    RegistryCaller { state, key, .. }: RegistryCaller,
    Path((name, upload)): Path<(String, String)>,
) -> Result<Response, RegistryError> {
    state.control.blob_uploads.take(&key.owner, &name, &upload)?.end();
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// A component or a config of an image with this name, or a blob that waits for its manifest.
pub(super) async fn get(
    RegistryCaller { state, key, .. }: RegistryCaller,
    Path((name, digest)): Path<(String, String)>,
) -> Result<Response, RegistryError> {
    let digest = read_digest(&digest)?;
    if let Some(bytes) = component_of_image(&state, &key, &name, digest) {
        let file = state.control.images.open(digest).await;
        let file = file.map_err(|error| unreadable(digest, &error))?;
        return Ok(content(digest, file, bytes));
    }
    if let Some(config) = config_of_image(&state, &key, &name, digest).await? {
        return Ok(answer::content(BYTES, digest, config.len() as u64, config.into()));
    }
    let waiting = state.control.blob_uploads.open(&key.owner, &name, digest);
    let waiting = waiting.map_err(|error| unreadable(digest, &error))?;
    let (file, bytes) = waiting.ok_or_else(|| unknown(digest))?;
    Ok(content(digest, File::from_std(file), bytes))
}

/// Deletes a blob that waits for its manifest. Blobs of images are deleted with their manifests.
pub(super) async fn delete(
    RegistryCaller { state, key, .. }: RegistryCaller,
    Path((name, digest)): Path<(String, String)>,
) -> Result<Response, RegistryError> {
    let digest = read_digest(&digest)?;
    let mut is_released = false;
    while state.control.blob_uploads.release(&key.owner, &name, digest) {
        is_released = true;
    }
    if is_released {
        return Ok(StatusCode::ACCEPTED.into_response());
    }
    if is_of_image(&state, &key, &name, digest).await? {
        let sentence = "a blob of an image is deleted with the image's manifests";
        return Err(RegistryError::unsupported(sentence));
    }
    Err(unknown(digest))
}

/// The size in bytes of the component with this digest, if an image with this name has it.
fn component_of_image(
    state: &ApiState,
    caller: &ApiKey,
    name: &str,
    digest: BlobDigest,
) -> Option<u64> {
    let images = state.control.images.list(caller, Some(name.to_owned()));
    let found = images.iter().find(|(image, _)| image.digest == digest);
    found.map(|(_, component)| component.bytes)
}

/// Whether an image with this name has this blob.
async fn is_of_image(
    state: &ApiState,
    caller: &ApiKey,
    name: &str,
    digest: BlobDigest,
) -> Result<bool, ApiError> {
    Ok(component_of_image(state, caller, name, digest).is_some()
        || config_of_image(state, caller, name, digest).await?.is_some())
}

/// A blob that is read from the disk while its client reads it.
fn content(digest: BlobDigest, file: impl AsyncRead + Send + 'static, bytes: u64) -> Response {
    let body = Body::from_stream(ReaderStream::with_capacity(file, PIECE_BYTES));
    answer::content(BYTES, digest, bytes, body)
}

fn unreadable(digest: BlobDigest, error: &io::Error) -> RegistryError {
    tracing::error!("the blob `{digest}` cannot be read: {error}");
    unknown(digest)
}

/// Appends a body to an upload.
async fn append(
    taken: &BlobUploadInUse,
    headers: &HeaderMap,
    body: Body,
) -> Result<(), RegistryError> {
    let there = taken.len();
    let expected = match headers.get(header::CONTENT_RANGE) {
        None => None,
        Some(range) => Some(bytes_of_range(range, there)?),
    };
    let wrong_size = |bytes: u64| match expected {
        Some(expected) if expected != bytes => {
            let sentence = format!("Content-Range has {expected} bytes, and the body {bytes}");
            Err(RegistryError::invalid(OciCode::SizeInvalid, sentence))
        }
        Some(_) | None => Ok(()),
    };
    if let Some(bytes) = body.size_hint().exact() {
        wrong_size(bytes)?;
    }
    let room = COMPONENT_BYTES_MAX.saturating_sub(usize::try_from(there).unwrap_or(usize::MAX));
    let mut pieces = Pieces::new(headers, body, room)?;
    while let Some(piece) = pieces.next().await? {
        taken.write(piece).await.map_err(ApiError::from)?;
    }
    // Only now is the size of a chunked body known; in an upload in pieces its bytes stay, like
    // those of a body that ended early.
    wrong_size(taken.len() - there)
}

/// The number of bytes of a Content-Range, which must begin at the upload's end.
fn bytes_of_range(range: &HeaderValue, there: u64) -> Result<u64, RegistryError> {
    let range = range.to_str().unwrap_or_default().trim_start_matches("bytes ");
    let range = range
        .split_once('-')
        .and_then(|(start, end)| Some((start.parse::<u64>().ok()?, end.parse::<u64>().ok()?)));
    range
        .filter(|(start, end)| *start == there && end >= start)
        .and_then(|(start, end)| (end - start).checked_add(1))
        .ok_or_else(|| {
            let sentence =
                format!("the next piece of this upload begins at {there}: `{there}-<last byte>`");
            RegistryError::out_of_order(sentence)
        })
}

/// Ends an upload. It is deleted if its digest is not the client's, or if an image has the blob
/// already.
async fn conclude(
    state: &ApiState,
    caller: &ApiKey,
    taken: BlobUploadInUse,
    name: &str,
    digest: BlobDigest,
) -> Result<Response, RegistryError> {
    let found = taken.digest();
    if found != digest {
        taken.end();
        let sentence = format!("the upload has the digest {}, not {}", found.oci(), digest.oci());
        return Err(RegistryError::invalid(OciCode::DigestInvalid, sentence));
    }
    // A blob that is kept needlessly costs less than a repetition of the whole upload.
    if is_of_image(state, caller, name, digest).await.unwrap_or(false) {
        taken.end();
    } else {
        taken.finish(digest);
    }
    Ok(answer::created(&format!("/v2/{name}/blobs/{}", digest.oci()), digest))
}

/// The query `digest`; `digest-algorithm` announces its algorithm.
fn digest_in(query: Option<&str>) -> Result<Option<BlobDigest>, RegistryError> {
    let query = Query(query.unwrap_or_default());
    if let Some(algorithm) = query.text("digest-algorithm").filter(|word| word != "sha256") {
        let sentence = format!("the digest algorithm is sha256, not `{algorithm}`");
        return Err(RegistryError::invalid(OciCode::DigestInvalid, sentence));
    }
    let digest = query.text("digest");
    digest.map(|digest| read_digest(&digest)).transpose()
}

fn read_digest(text: &str) -> Result<BlobDigest, RegistryError> {
    parse_digest(text).ok_or_else(|| {
        let sentence =
            format!("`{text}` is not a digest: write `sha256:` and 64 hexadecimal digits");
        RegistryError::invalid(OciCode::DigestInvalid, sentence)
    })
}

fn unknown(digest: BlobDigest) -> RegistryError {
    let sentence = format!("blob {} not found under this name", digest.oci());
    RegistryError::unknown(OciCode::BlobUnknown, sentence)
}
