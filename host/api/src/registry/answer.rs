//! Successful answers, with the codes and headers of the specification.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use gristmill_control::BlobUploadId;
use gristmill_core::deploy::image::BlobDigest;

/// The header with the digest of pushed or sent bytes.
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// The header with the version of the protocol.
const API_VERSION: HeaderName = HeaderName::from_static("docker-distribution-api-version");

/// Media type of an index.
pub(super) const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";

/// `{}`, the answer by which clients recognise a registry.
pub(super) fn empty_object() -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (API_VERSION, HeaderValue::from_static("registry/2.0")),
    ];
    (headers, "{}").into_response()
}

/// The progress of an upload, and the URL to continue it.
pub(super) fn under_way(status: StatusCode, name: &str, id: BlobUploadId, bytes: u64) -> Response {
    let headers = [
        (header::LOCATION, value(&format!("/v2/{name}/blobs/uploads/{id}"))),
        // An empty upload has the range of one byte, since the header cannot express none.
        (header::RANGE, value(&format!("0-{}", bytes.saturating_sub(1)))),
        (header::CONTENT_LENGTH, HeaderValue::from_static("0")),
    ];
    (status, headers).into_response()
}

/// The header with the subject of a pushed manifest.
const SUBJECT: HeaderName = HeaderName::from_static("oci-subject");

/// The header with the filters of a list.
const FILTERS_APPLIED: HeaderName = HeaderName::from_static("oci-filters-applied");

/// Adds that the `subject` of a pushed manifest was processed.
pub(super) fn with_subject(mut response: Response, subject: &str) -> Response {
    // A subject that is not a digest may be invalid in a header.
    if let Ok(subject) = HeaderValue::from_str(subject) {
        response.headers_mut().insert(SUBJECT, subject);
    }
    response
}

/// An index of manifests. `is_filtered`: by their `artifactType`. `next` is the URL of the next
/// page.
pub(super) fn index(text: String, is_filtered: bool, next: Option<&str>) -> Response {
    let mut response = ([(header::CONTENT_TYPE, INDEX_TYPE)], text).into_response();
    if is_filtered {
        let filter = HeaderValue::from_static("artifactType");
        response.headers_mut().insert(FILTERS_APPLIED, filter);
    }
    if let Some(next) = next {
        response.headers_mut().insert(header::LINK, value(&format!("<{next}>; rel=\"next\"")));
    }
    response
}

/// The answer for an accepted blob or manifest.
pub(super) fn created(location: &str, digest: BlobDigest) -> Response {
    let headers = [
        (header::LOCATION, value(location)),
        (CONTENT_DIGEST, value(&digest.oci())),
        (header::CONTENT_LENGTH, HeaderValue::from_static("0")),
    ];
    (StatusCode::CREATED, headers).into_response()
}

/// A blob or a manifest.
pub(super) fn content(kind: &'static str, digest: BlobDigest, bytes: u64, body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CONTENT_LENGTH, HeaderValue::from(bytes)),
        (CONTENT_DIGEST, value(&digest.oci())),
    ];
    (headers, body).into_response()
}

/// Checked names and ids are always valid in a header.
fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("names, ids and digests are a header value")
}
