//! An answer that is JSON text.

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};

/// A 200 with a body that is JSON.
pub(crate) fn json_response(body: Body) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], body).into_response()
}
