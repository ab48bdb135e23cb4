//! The answers that succeed: codes and headers as the specification has them.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use gristmill_core::image::BlobDigest;

use super::uploads::UploadId;

/// Names the digest of what was pushed or is sent.
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// Says what is spoken here.
const API_VERSION: HeaderName = HeaderName::from_static("docker-distribution-api-version");

/// Media type of an index.
pub(super) const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";

/// `{}`, by which a registry is known.
pub(super) fn empty_object() -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (API_VERSION, HeaderValue::from_static("registry/2.0")),
    ];
    (headers, "{}").into_response()
}

/// What has come of an upload, and where to go on with it.
pub(super) fn under_way(status: StatusCode, name: &str, id: UploadId, bytes: u64) -> Response {
    let headers = [
        (header::LOCATION, value(&format!("/v2/{name}/blobs/uploads/{id}"))),
        // An empty upload has the range of one byte: there is no way to write none.
        (header::RANGE, value(&format!("0-{}", bytes.saturating_sub(1)))),
        (header::CONTENT_LENGTH, HeaderValue::from_static("0")),
    ];
    (status, headers).into_response()
}

/// Names the manifest that a pushed one is about.
const SUBJECT: HeaderName = HeaderName::from_static("oci-subject");

/// Names the queries by which a list was filtered.
const FILTERS_APPLIED: HeaderName = HeaderName::from_static("oci-filters-applied");

/// Adds that the `subject` of a pushed manifest was seen.
pub(super) fn with_subject(mut response: Response, subject: &str) -> Response {
    // A subject that is no digest may be no header value.
    if let Ok(subject) = HeaderValue::from_str(subject) {
        response.headers_mut().insert(SUBJECT, subject);
    }
    response
}

/// An index of manifests. `is_filtered`: by their `artifactType`. `next` is where the next page is.
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

/// A blob or a manifest was taken.
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

/// Names and ids that were checked are a header value.
fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("names, ids and digests are a header value")
}
