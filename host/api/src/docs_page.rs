//! `GET /v1/docs`: the OpenAPI document as an interactive page. The program contains everything
//! that the page needs (Swagger UI, some megabytes); the page loads nothing from other hosts, and
//! works without a network. Like the document, it needs no key.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::Path;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::{Extension, Router};
use utoipa_swagger_ui::Config;

use crate::answer::error::ApiError;
use crate::identity::caller::{Anyone, Guarded};
use crate::request::paths::OriginalPath;

/// The path from the page to the document: relative, because a proxy may add a path prefix.
const DOCUMENT: &str = "../../openapi.json";

/// The page may only use its own files, and call its own host.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'",
);

/// The page and its files.
pub(crate) fn routes() -> Router<Guarded> {
    Router::new().route("/v1/docs", get(start)).route("/v1/docs/{file}", get(file))
}

/// Redirects to the page by a relative path, which depends on whether the client sent a trailing
/// slash.
async fn start(as_sent: Option<Extension<OriginalPath>>) -> Redirect {
    let has_slash = as_sent.is_some_and(|Extension(OriginalPath(uri))| uri.path().ends_with('/'));
    Redirect::temporary(if has_slash { "index.html" } else { "docs/index.html" })
}

async fn file(Path(name): Path<String>, _: Anyone) -> Result<Response, ApiError> {
    let config = Arc::new(Config::from(DOCUMENT).try_it_out_enabled(true));
    let found = utoipa_swagger_ui::serve(&name, config).ok().flatten();
    let not_found = || ApiError::not_found(format!("the page has no file `{name}`"));
    let found = found.ok_or_else(not_found)?;
    let kind = HeaderValue::try_from(found.content_type);
    let kind = kind.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_SECURITY_POLICY, POLICY)];
    let bytes = match found.bytes {
        Cow::Borrowed(bytes) => bytes::Bytes::from_static(bytes),
        Cow::Owned(bytes) => bytes.into(),
    };
    Ok((headers, bytes).into_response())
}
