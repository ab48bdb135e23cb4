//! The rules that keep a handler apart from the origin that it shares with the API and the console.
//!
//! There are three layers, since a browser sends no fetch metadata to a host in the clear: calls of
//! pages are refused, credentials do not pass, and an answer that reaches a browser nevertheless is
//! a file to be saved, without scripts and without effects on the origin.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use gristmill_edge::remove_named_by_connection;

use super::refusal::ERROR;
use crate::answer::error::{ApiError, ErrorCode};

const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SERVICE_WORKER: HeaderName = HeaderName::from_static("service-worker");

/// Headers of a request that the handler does not get.
const WITHHELD: [HeaderName; 5] = [
    header::AUTHORIZATION,
    header::CONNECTION,
    header::COOKIE,
    header::FORWARDED,
    HeaderName::from_static("x-gristmill-console"),
];

/// Headers of an answer that would change something for the whole origin, or that are the host's.
const REMOVED: [HeaderName; 11] = [
    header::SET_COOKIE,
    HeaderName::from_static("clear-site-data"),
    header::STRICT_TRANSPORT_SECURITY,
    header::ALT_SVC,
    HeaderName::from_static("nel"),
    HeaderName::from_static("report-to"),
    HeaderName::from_static("reporting-endpoints"),
    HeaderName::from_static("service-worker-allowed"),
    header::REFRESH,
    header::WWW_AUTHENTICATE,
    ERROR,
];

/// Policies of several headers apply together.
const POLICY: HeaderValue =
    HeaderValue::from_static("sandbox; default-src 'none'; frame-ancestors 'none'");

/// The beginnings of media types that a browser would show or run.
const ACTIVE: [&str; 11] = [
    "text/html",
    "text/css",
    "text/javascript",
    "text/xml",
    "application/javascript",
    "application/ecmascript",
    "application/pdf",
    "application/wasm",
    "application/xml",
    "application/xhtml",
    "multipart/",
];

/// Refuses a call by which a page would load something from here.
///
/// # Errors
/// 403 with the reason.
pub(super) fn check_caller(headers: &HeaderMap) -> Result<(), ApiError> {
    let is_part_of_a_page = headers.get_all(&FETCH_DEST).iter().any(|dest| dest != "empty");
    let is_navigation = headers.get_all(&FETCH_MODE).iter().any(|mode| mode == "navigate");
    if is_part_of_a_page || is_navigation || headers.contains_key(&SERVICE_WORKER) {
        return Err(ApiError::new(
            ErrorCode::Forbidden,
            "paths below /http are for programs: a browser shows nothing from here",
        ));
    }
    Ok(())
}

/// Removes what is for this host or for the connection alone.
pub(super) fn withhold(headers: &mut HeaderMap) {
    remove_named_by_connection(headers);
    for name in &WITHHELD {
        headers.remove(name);
    }
}

fn is_active(kind: &str) -> bool {
    let is_xml = || kind.split(';').next().is_some_and(|kind| kind.trim_end().ends_with("+xml"));
    ACTIVE.iter().any(|active| kind.starts_with(active)) || is_xml()
}

/// Makes an answer harmless for the origin.
pub(super) fn confine(headers: &mut HeaderMap) {
    for name in &REMOVED {
        headers.remove(name);
    }
    headers.append(header::CONTENT_SECURITY_POLICY, POLICY);
    let lines = headers.get_all(header::CONTENT_TYPE).iter();
    let kinds = lines.map(|line| String::from_utf8_lossy(line.as_bytes()).to_ascii_lowercase());
    let kinds = kinds.collect::<Vec<_>>().join(",");
    // Of several types a browser takes the last one, and it guesses one that is not there.
    if kinds.split(',').map(str::trim).any(|kind| kind.is_empty() || is_active(kind)) {
        headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn calls_of_pages_are_refused_and_those_of_programs_are_not() {
        for dest in ["document", "iframe", "script", "style", "image", "worker", "serviceworker"] {
            assert!(check_caller(&headers(&[("sec-fetch-dest", dest)])).is_err(), "{dest}");
        }
        assert!(check_caller(&headers(&[("sec-fetch-mode", "navigate")])).is_err());
        assert!(check_caller(&headers(&[("service-worker", "script")])).is_err());
        assert!(check_caller(&headers(&[])).is_ok());
        let fetch = [("sec-fetch-dest", "empty"), ("sec-fetch-mode", "cors")];
        assert!(check_caller(&headers(&fetch)).is_ok());
    }

    #[test]
    fn no_credential_of_this_host_passes() {
        let mut sent = headers(&[
            ("cookie", "a=b"),
            ("authorization", "Bearer k"),
            ("x-gristmill-console", "1"),
            ("x-a", "1"),
            ("x-mine", "1"),
            ("connection", "close, X-Mine"),
        ]);
        withhold(&mut sent);
        assert_eq!(sent, headers(&[("x-a", "1")]));
    }

    #[test]
    fn answers_change_nothing_for_the_origin_and_active_ones_are_saved() {
        for name in REMOVED {
            let mut answer = HeaderMap::from_iter([(name.clone(), HeaderValue::from_static("x"))]);
            confine(&mut answer);
            assert!(!answer.contains_key(&name), "{name}");
        }
        for (kind, is_saved) in [
            ("text/html; charset=utf-8", true),
            (" TEXT/HTML", true),
            ("image/svg+xml;a=b", true),
            ("application/xhtml+xml", true),
            ("text/javascript", true),
            ("multipart/mixed", true),
            ("application/json", false),
            ("text/plain", false),
            ("text/event-stream", false),
            ("text/plain, text/html", true),
        ] {
            let mut answer = headers(&[]);
            answer.insert(header::CONTENT_TYPE, kind.parse().unwrap());
            confine(&mut answer);
            assert_eq!(answer.contains_key(header::CONTENT_DISPOSITION), is_saved, "{kind}");
        }
        let mut own = headers(&[("content-security-policy", "default-src *")]);
        confine(&mut own);
        assert_eq!(own.get_all(header::CONTENT_SECURITY_POLICY).iter().count(), 2);
        assert_eq!(own[header::CONTENT_DISPOSITION], "attachment", "without a type");
    }
}
