//! The headers of every answer that keep browsers from misusing it.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response, header};

/// Adds headers that keep browsers from misusing an answer: as a script made from a handler's text,
/// or as a part of another site's page.
pub(crate) fn with_security_headers(mut response: Response<Body>) -> Response<Body> {
    const NO_SNIFFING: HeaderValue = HeaderValue::from_static("nosniff");
    const OWN_PAGES: HeaderValue = HeaderValue::from_static("same-origin");
    const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NO_SNIFFING);
    headers.insert(RESOURCE_POLICY, OWN_PAGES);
    response
}
