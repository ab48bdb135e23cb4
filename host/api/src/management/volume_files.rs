//! `/v1/networkvolumes/{id}/files`: the files of network volumes.
//!
//! **Bounds.** The body of a file is written while it arrives, and read while its client takes it:
//! some hundred KiB of it are in memory, whatever its size. The volume and the disk bound the size.
//! **Safety.** Content that a handler or another client wrote is sent as an attachment of bytes,
//! which no browser shows as a page of this host.

use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use gristmill_control::file_path;
use gristmill_core::deploy::volume_files::{FileEntry, FileKind, FilePath, OpenFile};
use gristmill_core::id::{InvalidId, VolumeId};

use super::input::Named;
use super::page::{Page, Paged};
use crate::answer::error::{ApiError, ErrorCode};
use crate::answer::wire_time::rfc3339;
use crate::identity::auth;
use crate::identity::caller::{Caller, Manage};
use crate::openapi::parameters::{AsDirectory, ByteRange, DirectoryPage, Recursive};
use crate::openapi::refusals::{
    BodyRefused, Missing, Mistaken, RangeRefused, TransferRefused, VolumeRefused,
};
use crate::openapi::tag;
use crate::request::body::Pieces;
use crate::request::byte_range::{self, Part};
use crate::request::query::{self, Query};
use gristmill_wire::management::{VolumeFile, VolumeFileType};
use gristmill_wire::schema::FileBytes;

const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");
const ATTACHMENT: HeaderValue = HeaderValue::from_static("attachment");

/// The volume and the path of a file, from the path of a call.
#[derive(Debug)]
pub(crate) struct FileOf {
    id: VolumeId,
    path: FilePath,
}

impl<S: Send + Sync> FromRequestParts<S> for FileOf {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let named = Path::<(String, String)>::from_request_parts(parts, state).await;
        let Ok(Path((id, path))) = named else {
            return Err(ApiError::bad_request("the path is not UTF-8"));
        };
        let id = id.parse().map_err(|error: InvalidId| ApiError::bad_request(error.to_string()))?;
        Ok(Self { id, path: file_path(&path)? })
    }
}

/// The files and directories in a directory of a network volume, by name.
///
/// Transfers in progress are not listed. Each page is the present state of the directory.
#[utoipa::path(
    get, path = "/networkvolumes/{id}/files", operation_id = "ListVolumeFiles", tag = tag::VOLUMES,
    params(DirectoryPage),
    responses((status = 200, description = "By name", body = Vec<VolumeFile>), Mistaken, Missing),
)]
pub(crate) async fn list(
    Caller { state, key, .. }: Caller<Manage>,
    named: Named,
    page: Page,
    request: Request,
) -> Result<Paged, ApiError> {
    let query = Query(request.uri().query().unwrap_or_default());
    let directory = query.text("path").filter(|path| !path.is_empty());
    let directory = directory.map(|path| file_path(&path)).transpose()?;
    let volumes = &state.control.volumes;
    // One more than the page has shows that there is a next page.
    let (id, count_max) = (named.id()?, page.count_max() + 1);
    let listed = volumes.list_files(&key, &id, directory.as_ref(), page.after(), count_max).await?;
    let position = |entry: &FileEntry| entry.name.clone();
    page.make(&state, &key, move |page| page.of(listed, position, volume_file)).await
}

/// The content of a file of a network volume, or one range of its bytes.
///
/// The answer has the size that the file has now; if a handler makes the file shorter meanwhile,
/// the answer breaks off. A file that is replaced meanwhile is sent to its end as it was. `Range:
/// bytes=1048576-` continues a download, and `If-Range` with the `ETag` of the first answer gives
/// the whole file instead if it has been changed. Several ranges are answered with the whole file.
/// At most 16 files of a volume are read or written at one time.
#[utoipa::path(
    get, path = "/networkvolumes/{id}/files/{*path}", operation_id = "ReadVolumeFile", tag = tag::VOLUMES,
    params(ByteRange),
    responses(
        (status = 200, description = "The content", body = FileBytes, content_type = "application/octet-stream"),
        (status = 206, description = "The bytes of the range", body = FileBytes, content_type = "application/octet-stream"),
        Mistaken, Missing, RangeRefused, TransferRefused,
    ),
)]
pub(crate) async fn read(
    Caller { state, key, .. }: Caller<Manage>,
    FileOf { id, path }: FileOf,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let file = state.control.volumes.open_file(&key, &id, &path).await?;
    let version = version_of(&file);
    // Only GET has ranges; a HEAD is about the whole file.
    let part = match method {
        Method::GET => byte_range::part(&headers, &version, file.bytes),
        _ => Part::All,
    };
    let (status, bytes) = match part {
        Part::All => (StatusCode::OK, 0..file.bytes),
        Part::Bytes(bytes) => (StatusCode::PARTIAL_CONTENT, bytes),
        Part::Unsatisfiable => return Ok(unsatisfiable(&path, file.bytes)),
    };
    let mut headers = HeaderMap::from_iter([
        (header::CONTENT_TYPE, BYTES),
        (header::CONTENT_DISPOSITION, ATTACHMENT),
        (header::CONTENT_LENGTH, HeaderValue::from(bytes.end - bytes.start)),
        (header::ACCEPT_RANGES, HeaderValue::from_static("bytes")),
        (header::ETAG, version),
    ]);
    if status == StatusCode::PARTIAL_CONTENT {
        let range = format!("bytes {}-{}/{}", bytes.start, bytes.end - 1, file.bytes);
        headers.insert(header::CONTENT_RANGE, of_digits(range));
    }
    Ok((status, headers, Body::from_stream(file.content.read(bytes))).into_response())
}

/// The `ETag` of a file: the time of its last change, in milliseconds, and its size.
fn version_of(file: &OpenFile) -> HeaderValue {
    of_digits(format!("\"{:x}-{:x}\"", file.modified_at.as_millis(), file.bytes))
}

fn of_digits(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("digits and signs are a header value")
}

/// The answer to a range without a byte of the file; its header has the file's size.
fn unsatisfiable(path: &FilePath, bytes: u64) -> Response {
    let sentence = format!("the range has no byte of `{path}`, which has {bytes} bytes");
    let mut answer = ApiError::new(ErrorCode::RangeNotSatisfiable, sentence).into_response();
    answer.headers_mut().insert(header::CONTENT_RANGE, of_digits(format!("bytes */{bytes}")));
    answer
}

/// Writes a file of a network volume, and creates missing directories of its path.
///
/// The file appears when all of it is on stable storage, and replaces an older file in one step;
/// until then readers see the older file. If the call ends earlier, nothing changes. Both files
/// count until the older one is replaced. Of several calls for one path, the last one to end is
/// kept. The body is the whole file, of any size that the volume has room for; `Content-Range` is
/// refused. With `directory=true` and no body the call creates a directory; a directory that exists
/// stays as it is. Refused with `conflict` for a directory in place of a file or the reverse, with
/// `quota_exceeded` if the volume or the owner's share of the disk has no room, and with
/// `disk_full`.
#[utoipa::path(
    put, path = "/networkvolumes/{id}/files/{*path}", operation_id = "WriteVolumeFile", tag = tag::VOLUMES,
    params(AsDirectory),
    request_body(content = FileBytes, content_type = "application/octet-stream", description = "The content"),
    responses((status = 204, description = "Written"), BodyRefused, Missing, TransferRefused, VolumeRefused),
)]
pub(crate) async fn write(
    Caller { state, key, .. }: Caller<Manage>,
    FileOf { id, path }: FileOf,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let (parts, body) = request.into_parts();
    let is_directory = query::flag(parts.uri.query().unwrap_or_default(), &["directory"])?;
    if parts.headers.contains_key(header::CONTENT_RANGE) {
        // The file would otherwise be replaced by a part of it (RFC 9110, section 14.5).
        let sentence = "`Content-Range` is not supported: the body must be the whole file";
        return Err(ApiError::bad_request(sentence));
    }
    // The room on the volume is the bound.
    let mut pieces = Pieces::new(&parts.headers, body, usize::MAX)?;
    if is_directory {
        if pieces.next().await?.is_some() {
            let sentence = "with `directory=true` the call creates a directory, and has no body";
            return Err(ApiError::bad_request(sentence));
        }
        state.control.volumes.create_directory(&key, &id, &path).await?;
        return Ok(StatusCode::NO_CONTENT);
    }
    let announced = pieces.announced().map(|bytes| bytes as u64);
    let mut file = state.control.volumes.create_file(&key, id, &path, announced).await?;
    loop {
        let next = pieces.next().await?;
        auth::check_after_body(&parts.extensions)?;
        let Some(piece) = next else { break };
        file.write(piece).await?;
    }
    file.finish().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Deletes a file or an empty directory of a network volume, or a directory with its content.
#[utoipa::path(
    delete, path = "/networkvolumes/{id}/files/{*path}", operation_id = "DeleteVolumeFile", tag = tag::VOLUMES,
    params(Recursive),
    responses((status = 204, description = "Deleted"), Mistaken, Missing),
)]
pub(crate) async fn delete(
    Caller { state, key, .. }: Caller<Manage>,
    FileOf { id, path }: FileOf,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let recursive = query::flag(request.uri().query().unwrap_or_default(), &["recursive"])?;
    state.control.volumes.remove_file(&key, &id, &path, recursive).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The answer's form of a file.
fn volume_file(entry: FileEntry) -> VolumeFile {
    let kind = match entry.kind {
        FileKind::File => VolumeFileType::File,
        FileKind::Directory => VolumeFileType::Directory,
        FileKind::Other => VolumeFileType::Other,
    };
    let modified_at = rfc3339(entry.modified_at);
    VolumeFile { name: entry.name, kind, size: entry.bytes, modified_at }
}
