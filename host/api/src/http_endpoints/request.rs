//! The request as the handler sees it: below its own root, from the client.

use axum::http::request::Parts;
use axum::http::uri::{Authority, PathAndQuery, Scheme};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use gristmill_edge::CallOrigin;

use super::target::{Address, PREFIX};
use crate::answer::error::ApiError;
use crate::request::head;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Of a host that no client has named.
const NO_NAME: &str = "localhost";

/// The scheme that the client has used: that of this host's listeners, or of a trusted proxy before
/// them. What others say was removed.
pub(super) fn scheme(headers: &HeaderMap, has_certificate: bool) -> Scheme {
    match headers.get(&FORWARDED_PROTO) {
        Some(proto) if proto == "https" => Scheme::HTTPS,
        None if has_certificate => Scheme::HTTPS,
        Some(_) | None => Scheme::HTTP,
    }
}

/// The URI and the headers for the handler.
///
/// # Errors
/// 400 for a path that no URI can have.
pub(super) fn for_handler(
    parts: &Parts,
    endpoint: &str,
    path: &str,
    (address, scheme, origin): (Address, Scheme, &CallOrigin),
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
    let prefix = (address == Address::Path).then(|| format!("{PREFIX}{endpoint}"));
    // A client's own values would name any address.
    for (name, value) in [
        (FORWARDED_FOR, Some(origin.peer().0.to_string())),
        (FORWARDED_HOST, Some(authority.to_string())),
        (FORWARDED_PREFIX, prefix),
        (FORWARDED_PROTO, Some(scheme.to_string())),
    ] {
        headers.remove(&name);
        if let Some(Ok(value)) = value.map(|value| HeaderValue::from_str(&value)) {
            headers.insert(name, value);
        }
    }
    Ok((uri, headers))
}
