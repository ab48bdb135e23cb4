//! The web console below `/console/`: the files of its page, and its login ([`session`]). The page
//! is a client of the two public APIs.
//!
//! All addresses in the page are relative, and what it shows is behind `#`, so a proxy may add any
//! path prefix. Like the page of the OpenAPI document, the files need no key.

mod session;

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use gristmill_console::{Asset, INDEX};
use gristmill_samples::Sample;

use crate::answer::error::ApiError;
use crate::identity::caller::{Anyone, Guarded};
use crate::request::paths::OriginalPath;

/// The page may only use its own files, and call its own host. It has no inline code.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; \
     frame-ancestors 'none'",
);

/// The page, its files, and its login.
pub(crate) fn routes() -> Router<Guarded> {
    let session = get(session::show).post(session::begin).delete(session::end);
    Router::new()
        .route("/", get(root))
        .route("/console", get(page))
        .route("/console/session", session)
        .route("/console/links", post(session::create_link))
        .route("/console/links/preview", post(session::preview_link))
        .route("/console/assets/{*path}", get(file))
        .route("/console/samples", get(samples))
        .route("/console/samples/{name}", get(sample))
        .route("/console/{*path}", get(nothing))
        .route_layer(map_response(with_headers))
}

/// The address of the host leads a browser to the console, also below a prefix. Not for ever: later
/// versions may have an own page there.
async fn root(_: Anyone) -> Response {
    (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, "console/")]).into_response()
}

/// The page. Without a slash at its end the path leads there, by a relative address.
async fn page(
    _: Anyone,
    as_sent: Option<Extension<OriginalPath>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let has_slash = as_sent.is_some_and(|Extension(OriginalPath(uri))| uri.path().ends_with('/'));
    if !has_slash {
        let location = [(header::LOCATION, "console/")];
        return Ok((StatusCode::PERMANENT_REDIRECT, location).into_response());
    }
    answer(INDEX, &headers)
}

async fn file(
    _: Anyone,
    Path(path): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    answer(&path, &headers)
}

/// The samples that the page offers to deploy.
async fn samples(_: Anyone) -> Json<&'static [Sample]> {
    Json(&gristmill_samples::ALL)
}

/// The component of a sample, as it is embedded: each browser reads gzip.
async fn sample(_: Anyone, Path(name): Path<String>) -> Result<Response, ApiError> {
    let sample = gristmill_samples::find(&name)
        .ok_or_else(|| ApiError::not_found(format!("there is no sample `{name}`")))?;
    let kind = [(header::CONTENT_TYPE, "application/wasm"), (header::CONTENT_ENCODING, "gzip")];
    Ok((kind, sample.packed).into_response())
}

async fn nothing(_: Anyone, Path(path): Path<String>) -> ApiError {
    no_file(&path)
}

fn no_file(path: &str) -> ApiError {
    ApiError::not_found(format!("the console has no file `{path}`"))
}

/// A file; only its head if the browser has it already.
fn answer(path: &str, headers: &HeaderMap) -> Result<Response, ApiError> {
    let Asset { content, content_type, etag } =
        gristmill_console::find(path).ok_or_else(|| no_file(path))?;
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
    let is_known = known.flat_map(|tags| tags.split(',')).any(|tag| tag.trim() == etag);
    // Names have no hashes, so a browser asks each time whether the file has changed.
    let common = [(header::ETAG, &*etag), (header::CACHE_CONTROL, "no-cache")];
    if is_known {
        return Ok((StatusCode::NOT_MODIFIED, common).into_response());
    }
    Ok((common, [(header::CONTENT_TYPE, content_type)], content).into_response())
}

/// Adds the headers that bound what the page may do, and who may show it.
async fn with_headers(mut response: Response) -> Response {
    const OPENER: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(OPENER, HeaderValue::from_static("same-origin"));
    response
}
