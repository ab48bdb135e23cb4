//! The request as the handler sees it: below its own root, from the client.

use axum::http::request::Parts;
use axum::http::uri::{Authority, PathAndQuery, Scheme};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use gristmill_edge::CallOrigin;

use super::rules;
use super::target::PREFIX;
use crate::answer::error::ApiError;
use crate::request::head;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Of a host that no client has named.
const NO_NAME: &str = "localhost";

/// The URI and the headers for the handler.
///
/// # Errors
/// 400 for a path that no URI can have.
pub(super) fn for_handler(
    parts: &Parts,
    endpoint: &str,
    path: &str,
    (scheme, origin): (Scheme, &CallOrigin),
) -> Result<(Uri, HeaderMap), ApiError> {
    let authority =
        head::host(&parts.uri, &parts.headers).unwrap_or_else(|| Authority::from_static(NO_NAME));
    let target = match parts.uri.query() {
        Some(query) => format!("{path}?{query}").parse::<PathAndQuery>(),
        None => path.parse(),
    };
    let invalid = || ApiError::bad_request("the path or the query has a character of no URL");
    let uri = Uri::builder()
        .scheme(scheme.clone())
        .authority(authority.clone())
        .path_and_query(target.map_err(|_| invalid())?)
        .build()
        .map_err(|_| invalid())?;
    let mut headers = parts.headers.clone();
    rules::withhold(&mut headers);
    // A client's own values would name any address.
    for (name, value) in [
        (FORWARDED_FOR, origin.peer().0.to_string()),
        (FORWARDED_HOST, authority.to_string()),
        (FORWARDED_PREFIX, format!("{PREFIX}{endpoint}")),
        (FORWARDED_PROTO, scheme.to_string()),
    ] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    }
    Ok((uri, headers))
}
