//! The rules that keep a handler apart from the API and the console.
//!
//! By a path it shares their origin. There are three layers, since a browser sends no fetch
//! metadata to a host in the clear: calls of pages are refused, credentials do not pass, and an
//! answer that reaches a browser nevertheless is a file to be saved, without scripts and without
//! effects on the origin.
//!
//! By a name of its own it has an origin of its own, and shares at most the site. Cookies know
//! neither ports nor, with `Domain`, names. So those of the console do not pass in either
//! direction, and a cookie is for its own name only.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gristmill_core::access::key::ApiKey;
use gristmill_edge::remove_named_by_connection;
use url::Url;

use super::refusal::ERROR;
use super::target::Address;
use crate::answer::error::{ApiError, ErrorCode};
use crate::identity::access::FETCH_MODE;
use crate::identity::session_cookie::is_of_console;

const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
const SERVICE_WORKER: HeaderName = HeaderName::from_static("service-worker");

/// Headers of a request that the handler does not get.
const WITHHELD: [HeaderName; 3] =
    [header::CONNECTION, header::FORWARDED, HeaderName::from_static("x-gristmill-console")];

/// Headers of an answer by a path that would change something for the whole origin, or that are the
/// host's.
const REMOVED: [HeaderName; 19] = [
    header::SET_COOKIE,
    HeaderName::from_static("accept-ch"),
    HeaderName::from_static("critical-ch"),
    HeaderName::from_static("origin-agent-cluster"),
    HeaderName::from_static("set-login"),
    HeaderName::from_static("speculation-rules"),
    HeaderName::from_static("use-as-dictionary"),
    ACCEL_REDIRECT,
    SENDFILE,
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

/// Headers by which a proxy in front would send a file of its own.
const ACCEL_REDIRECT: HeaderName = HeaderName::from_static("x-accel-redirect");
const SENDFILE: HeaderName = HeaderName::from_static("x-sendfile");

/// The same for an answer by a name: the first one ends sessions of the whole site.
const REMOVED_BY_NAME: [HeaderName; 4] =
    [HeaderName::from_static("clear-site-data"), ACCEL_REDIRECT, SENDFILE, ERROR];

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

/// Removes what is for this host or for the connection alone. On a public endpoint, credentials are
/// the handler's, unless they are a key of this host.
pub(super) fn withhold(headers: &mut HeaderMap, address: Address, is_public: bool) {
    remove_named_by_connection(headers);
    let cookies = match address {
        Address::Path => None,
        Address::Name => cookies_of_handler(headers),
    };
    headers.remove(header::COOKIE);
    if let Some(cookies) = cookies {
        headers.insert(header::COOKIE, cookies);
    }
    if !is_public || headers.get_all(header::AUTHORIZATION).iter().any(holds_key) {
        headers.remove(header::AUTHORIZATION);
    }
    for name in &WITHHELD {
        headers.remove(name);
    }
}

/// Whether a line has a key of this host, as it is or as a password of `Basic`.
fn holds_key(line: &HeaderValue) -> bool {
    let line = String::from_utf8_lossy(line.as_bytes());
    let is_in = |text: &str| {
        let mut found = text.match_indices("gm_").filter_map(|(at, _)| text.get(at..));
        found.any(|text| {
            let is_other = |c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-');
            ApiKey::parse_text(text.split(is_other).next().unwrap_or_default()).is_some()
        })
    };
    let decoded = line.split_whitespace().filter_map(|word| STANDARD.decode(word).ok());
    is_in(&line) || decoded.into_iter().any(|bytes| is_in(&String::from_utf8_lossy(&bytes)))
}

/// Refuses an answer by a path that sends the client to another path of this host: many clients
/// would send its key there. `called` is the URL of the call, below `home`.
///
/// # Errors
/// 502 with the remedy.
pub(super) fn check_redirect(
    answer: &Response<Body>,
    called: &str,
    home: &str,
) -> Result<(), ApiError> {
    let Some(location) = answer.headers().get(header::LOCATION) else { return Ok(()) };
    if !answer.status().is_redirection() {
        return Ok(());
    }
    let (Ok(called), Ok(location)) = (Url::parse(called), location.to_str()) else {
        return Err(invalid_redirect(home));
    };
    let leads_to = called.join(location).map_err(|_| invalid_redirect(home))?;
    // The ports are not compared, since a proxy in front may have changed them.
    match leads_to.host() != called.host() || leads_to.path().starts_with(home) {
        true => Ok(()),
        false => Err(invalid_redirect(home)),
    }
}

fn invalid_redirect(home: &str) -> ApiError {
    let sentence = format!(
        "the handler redirects to a path of this host that is not below `{home}`, where it is no \
         handler's: begin its paths with `X-Forwarded-Prefix`, or call it by a host name of its own"
    );
    ApiError::new(ErrorCode::InvalidAnswer, sentence)
}

/// The cookies without those of the console, in one line. HTTP/2 sends each in a line of its own.
fn cookies_of_handler(headers: &HeaderMap) -> Option<HeaderValue> {
    let lines = headers.get_all(header::COOKIE).iter();
    let cookies = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    let cookies = cookies.map(<[u8]>::trim_ascii);
    let kept: Vec<_> = cookies.filter(|one| !one.is_empty() && !is_of_console(one)).collect();
    (!kept.is_empty()).then(|| HeaderValue::from_bytes(&kept.join(&b"; "[..])).ok()).flatten()
}

/// A cookie without its `Domain`, so that it is for its own name only; `None` for one with a name
/// of the console's cookie.
fn cookie_of_name(line: &HeaderValue) -> Option<HeaderValue> {
    let is_domain = |part: &[u8]| {
        let name = part.split(|byte| *byte == b'=').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(b"domain")
    };
    let mut parts = line.as_bytes().split(|byte| *byte == b';');
    let pair = parts.next().filter(|pair| !is_of_console(pair))?;
    let mut kept = vec![pair];
    kept.extend(parts.filter(|part| !is_domain(part)));
    HeaderValue::from_bytes(&kept.join(&b";"[..])).ok()
}

fn is_active(kind: &str) -> bool {
    let is_xml = || kind.split(';').next().is_some_and(|kind| kind.trim_end().ends_with("+xml"));
    ACTIVE.iter().any(|active| kind.starts_with(active)) || is_xml()
}

/// Makes an answer harmless for the site that the endpoint's own name is a part of.
pub(super) fn confine_name(headers: &mut HeaderMap) {
    for name in &REMOVED_BY_NAME {
        headers.remove(name);
    }
    let cookies: Vec<_> =
        headers.get_all(header::SET_COOKIE).iter().filter_map(cookie_of_name).collect();
    headers.remove(header::SET_COOKIE);
    for cookie in cookies {
        headers.append(header::SET_COOKIE, cookie);
    }
}

/// Makes an answer by a path harmless for the origin.
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
#[path = "rules_tests.rs"]
mod tests;
