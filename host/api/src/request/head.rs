//! Rules of HTTP for the head of a request that the HTTP library does not check. Each header line
//! that changes the meaning of a request must be unique and unambiguous, so that a proxy in front
//! and the host cannot read two different requests.
//!
//! **Cost.** Three header lookups for each call.

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, Version, header};

use crate::answer::error::{ApiError, ErrorCode};

/// Refuses a head that violates HTTP.
///
/// # Errors
/// 400 without a valid `Host` (RFC 9112, 3.2), with several, or with another one than the URL's;
/// for several `Authorization`; 501 for a transfer coding other than `chunked` (RFC 9112, 6.1).
pub(crate) fn check<B>(request: &Request<B>) -> Result<(), ApiError> {
    let headers = request.headers();
    // HTTP/2 has the host in the URL, and HTTP/1.0 has no such header.
    let needs_host = request.version() == Version::HTTP_11;
    if request.uri().authority().is_some_and(|named| named.as_str().contains('@')) {
        return Err(ApiError::bad_request("the URL's host must have no user"));
    }
    match one(headers, &header::HOST)? {
        Some(host) if !is_host(host) => {
            return Err(ApiError::bad_request(
                "the header `Host` must be a name or an address, with a port or without",
            ));
        }
        Some(host) if names_another(request.uri(), host) => {
            return Err(ApiError::bad_request("the header `Host` is another host than the URL's"));
        }
        None if needs_host => {
            return Err(ApiError::bad_request("the header `Host` is missing; HTTP/1.1 needs it"));
        }
        Some(_) | None => {}
    }
    one(headers, &header::AUTHORIZATION)?;
    match one(headers, &header::TRANSFER_ENCODING)? {
        Some(coding) if !coding.as_bytes().eq_ignore_ascii_case(b"chunked") => {
            let sentence = "only the transfer coding `chunked` is supported";
            Err(ApiError::new(ErrorCode::NotImplemented, sentence))
        }
        Some(_) | None => Ok(()),
    }
}

/// The host that a call names, with its port if it has one.
pub(crate) fn host(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    // HTTP/2 has the host in the URL.
    match uri.authority() {
        Some(authority) => Some(authority.clone()),
        None => headers.get(header::HOST)?.to_str().ok()?.parse().ok(),
    }
}

/// Whether a URL with a host has another one than the header: a proxy may have read either.
fn names_another(uri: &Uri, host: &HeaderValue) -> bool {
    let is_other =
        |named: &Authority| !named.as_str().as_bytes().eq_ignore_ascii_case(host.as_bytes());
    uri.authority().is_some_and(is_other)
}

/// The only line of this name.
fn one<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h HeaderValue>, ApiError> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next();
    match lines.next() {
        None => Ok(first),
        Some(_) => {
            Err(ApiError::bad_request(format!("the header `{name}` is given more than once")))
        }
    }
}

/// A host may be empty, for a URL without one.
fn is_host(value: &HeaderValue) -> bool {
    let Ok(text) = value.to_str() else { return false };
    // The parser copies the text, so the usual hosts do not reach it.
    is_plain_host(text) || (!text.contains('@') && text.parse::<Authority>().is_ok())
}

/// Whether a host is empty, or letters, digits, dots and dashes, with a port or without.
fn is_plain_host(text: &str) -> bool {
    let (name, port) = text.split_once(':').unwrap_or((text, ""));
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    let is_port = port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    text.is_empty() || (!name.is_empty() && name.bytes().all(is_of_name) && is_port)
}

/// Refuses a body with a content coding: none is supported.
///
/// # Errors
/// 415, which names the header.
pub(crate) fn check_content_coding(headers: &HeaderMap) -> Result<(), ApiError> {
    let is_identity = |coding: &HeaderValue| {
        coding.as_bytes().eq_ignore_ascii_case(b"identity") || coding.is_empty()
    };
    if headers.get_all(header::CONTENT_ENCODING).iter().all(is_identity) {
        return Ok(());
    }
    let sentence = "compressed bodies are not supported: send the body without `Content-Encoding`";
    Err(ApiError::new(ErrorCode::UnsupportedMediaType, sentence))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status code of the refusal.
    fn refused(version: Version, lines: &[(&str, &str)]) -> Option<u16> {
        let mut request = Request::builder().version(version);
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        check(&request.body(()).unwrap())
            .err()
            .map(|error| crate::answer::error::status(error.code()).as_u16())
    }

    #[test]
    fn the_host_is_there_once_and_is_a_host() {
        for host in ["localhost", "example.com:8080", "127.0.0.1", "[::1]:8080", ""] {
            assert_eq!(refused(Version::HTTP_11, &[("host", host)]), None, "{host}");
        }
        for host in ["a b", "user@example.com", "http://example.com", "a/b"] {
            assert_eq!(refused(Version::HTTP_11, &[("host", host)]), Some(400), "{host}");
        }
        let twice = [("host", "localhost"), ("host", "evil.example")];
        for (version, without) in
            [(Version::HTTP_10, None), (Version::HTTP_11, Some(400)), (Version::HTTP_2, None)]
        {
            assert_eq!(refused(version, &[]), without, "{version:?}");
            assert_eq!(refused(version, &twice), Some(400), "{version:?}");
        }
    }

    #[test]
    fn the_url_and_the_header_name_one_host() {
        let user = Request::builder().uri("http://u@a.example/").header("host", "u@a.example");
        assert!(check(&user.body(()).unwrap()).is_err());
        for (host, expected) in
            [("a.example:80", true), ("A.example:80", true), ("a.example", false)]
        {
            let request = Request::builder().uri("http://a.example:80/x").header("host", host);
            assert_eq!(check(&request.body(()).unwrap()).is_ok(), expected, "{host}");
        }
    }

    #[test]
    fn a_plain_host_is_a_host_for_the_parser_too() {
        let plain = ["a", "A-1.b", "example.com:8080", "127.0.0.1:65535", "-", ".", "a:99999"];
        for host in plain {
            assert!(is_plain_host(host) && host.parse::<Authority>().is_ok(), "{host}");
        }
        for host in ["a_b", "a:b", "a:1:2", ":80", "a:123456", "[::1]", "a@b", "a b", "ä"] {
            assert!(!is_plain_host(host), "{host}");
        }
    }

    #[test]
    fn one_key_and_one_transfer_coding_are_taken() {
        let head = |name, values: &[&'static str]| {
            let lines: Vec<_> = values.iter().map(|value| (name, *value)).collect();
            refused(Version::HTTP_11, &[&[("host", "x")], &*lines].concat())
        };
        assert_eq!(head("authorization", &["Bearer a"]), None);
        assert_eq!(head("authorization", &["Bearer a", "Bearer b"]), Some(400));
        assert_eq!(head("transfer-encoding", &["Chunked"]), None);
        assert_eq!(head("transfer-encoding", &["gzip, chunked"]), Some(501));
        assert_eq!(head("transfer-encoding", &["gzip", "chunked"]), Some(400));
    }

    #[test]
    fn no_content_coding_is_understood() {
        let is_taken = |value: Option<&'static str>| {
            let value =
                value.map(|value| (header::CONTENT_ENCODING, HeaderValue::from_static(value)));
            check_content_coding(&value.into_iter().collect()).is_ok()
        };
        assert!(is_taken(None) && is_taken(Some("identity")) && is_taken(Some("")));
        assert!(!is_taken(Some("gzip")) && !is_taken(Some("identity, br")));
    }
}
