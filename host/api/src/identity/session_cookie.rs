//! The session of a call of the web console: the cookie, which carries the token, and the check
//! that the call comes from the page that began the session.
//!
//! A browser adds the cookie to each call to this host, whatever page causes it. `SameSite=Strict`
//! keeps it from calls of other sites, but other ports of the same machine are the same site. So a
//! call with the cookie must come from this very origin: browsers report it in `Sec-Fetch-Site`, or
//! in `Origin`. It also needs the header [`CONSOLE_CALL`], which a page of another origin cannot
//! set, since this host permits it to none (CORS), and which a link cannot have: a link in the
//! readme of another owner's template has this origin too, and a GET of a job's status or stream
//! may change the job. Only the download of a volume's file, which changes nothing, is a plain link
//! in the console. Over plain HTTP browsers send no origin with a GET; the header then stands
//! alone.
//!
//! Cookies do not know ports, and browsers send those with longer paths first: another service on
//! this host's name may add or replace a cookie, and receives those of the console. So the header's
//! value is the session's mark, which the page alone has: a call with the cookie of another session
//! is refused, and a token without its mark is not enough. A call with two cookies of the name is
//! refused too. Over TLS the name begins with `__Host-`, which browsers accept neither from a
//! sibling domain nor over plain HTTP; then a cookie without this prefix is ignored.

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use gristmill_control::{Session, Sessions};

use crate::answer::error::{ApiError, ErrorCode};
use crate::identity::access::FETCH_SITE;
use crate::request::head;

/// The header of calls that the console makes, with the mark of the page's session. Before a login,
/// any text.
const CONSOLE_CALL: HeaderName = HeaderName::from_static("x-gristmill-console");

/// The beginning of the cookie's name.
const NAME: &str = "gristmill-console";

/// The longest life of a session, in seconds; the host may end it before.
const MAX_AGE_S: u32 = 7 * 24 * 3_600;

/// Before the name of a cookie that only a page of this very host may set, over TLS and for all
/// paths.
const HOST_PREFIX: &str = "__Host-";

/// The session of a call whose cookie has this [`token`]. [`check_site`] comes before.
///
/// # Errors
/// 401 if the session has ended, and if the header has not its mark.
pub(crate) fn session(call: &Parts, token: &str, sessions: &Sessions) -> Result<Session, ApiError> {
    let session = sessions.find(token).ok_or_else(session_ended)?;
    let is_of_page = |mark: &HeaderValue| mark.to_str().is_ok_and(|mark| session.has_mark(mark));
    match call.headers.get(CONSOLE_CALL) {
        Some(mark) if !is_of_page(mark) => Err(unauthorized(
            "this page's calls have the cookie of another session, which a login elsewhere or another \
             service on this host's name has set; log in again",
        )),
        // Without the header it is a download.
        Some(_) | None => Ok(session),
    }
}

/// The token in the cookie.
///
/// # Errors
/// 401 for two cookies.
pub(crate) fn token(call: &Parts) -> Result<Option<&str>, ApiError> {
    let lines = call.headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|one| one.split_once('='));
    let mut pairs = pairs.peekable();
    if pairs.peek().is_none() {
        return Ok(None);
    }
    let name = name(call);
    let (mut secure, mut plain) = (vec![], vec![]);
    for (given, token) in pairs {
        match given.trim().strip_prefix(HOST_PREFIX) {
            Some(given) if given == name => secure.push(token.trim()),
            None if given.trim() == name => plain.push(token.trim()),
            Some(_) | None => {}
        }
    }
    let found = if secure.is_empty() { plain } else { secure };
    match *found {
        [] => Ok(None),
        [token] => Ok(Some(token)),
        _ => Err(unauthorized(format!(
            "this browser has two cookies of the name {name}, one of which another service on this \
             host's name has set; delete the browser's cookies for this host, and log in again"
        ))),
    }
}

/// The refusal of a session that is none any more.
pub(crate) fn session_ended() -> ApiError {
    unauthorized(
        "the session has ended: by a logout, because its key was revoked, because it expired, or \
         because the host restarted; log in again",
    )
}

fn unauthorized(sentence: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::Unauthorized, sentence)
}

/// Refuses a call that may come from a page of another origin, or from a link. `of_management`: the
/// call is one of the management API, which has downloads.
///
/// # Errors
/// 401.
pub(crate) fn check_site(call: &Parts, of_management: bool) -> Result<(), ApiError> {
    let refuse = |sentence| Err(unauthorized(sentence));
    let is_marked = call.headers.get(CONSOLE_CALL).is_some_and(|mark| !mark.is_empty());
    let mut sites = call.headers.get_all(FETCH_SITE).iter().peekable();
    let mut origins = call.headers.get_all(header::ORIGIN).iter().peekable();
    let is_own = if sites.peek().is_some() {
        sites.all(|site| site == "same-origin")
    } else if origins.peek().is_some() {
        origins.all(|origin| is_this_host(call, origin))
    } else {
        is_marked
    };
    if !is_own {
        return refuse("a session of the console is for calls of its own page only");
    }
    let needs_no_mark = of_management && is_download(call);
    if !is_marked && !needs_no_mark {
        return refuse("calls of the console must have the header `X-Gristmill-Console`");
    }
    Ok(())
}

/// Whether the call reads a file of a network volume.
fn is_download(call: &Parts) -> bool {
    // The router has removed the first part of the path, `/v1`.
    let of_volume = call.uri.path().strip_prefix("/networkvolumes/");
    let file = of_volume.and_then(|rest| rest.split_once('/')).map(|(_, rest)| rest);
    matches!(call.method, Method::GET | Method::HEAD)
        && file.is_some_and(|rest| rest.starts_with("files/"))
}

/// The header that gives the browser the token of a new session.
pub(crate) fn begin(call: &Parts, token: &str) -> HeaderValue {
    line(call, token, MAX_AGE_S)
}

/// The header that removes the cookie from the browser.
pub(crate) fn end(call: &Parts) -> HeaderValue {
    line(call, "", 0)
}

/// Removes all cookies from the head of a call.
pub(crate) fn remove(headers: &mut HeaderMap) {
    headers.remove(header::COOKIE);
}

fn line(call: &Parts, token: &str, max_age_s: u32) -> HeaderValue {
    // A proxy may end TLS before this host, so the page's own origin decides.
    let is_https = |origin: &HeaderValue| origin.as_bytes().starts_with(b"https://");
    let is_secure = call.headers.get(header::ORIGIN).is_some_and(is_https);
    let (prefix, secure) = if is_secure { (HOST_PREFIX, "; Secure") } else { ("", "") };
    let name = name(call);
    let line = format!(
        "{prefix}{name}={token}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Strict{secure}"
    );
    HeaderValue::try_from(line).expect("names and tokens are letters, digits, `-` and `_`")
}

/// Whether a cookie, which begins with its name, may be one of the console, of this host or of
/// another one of its name. A cookie without a name is sent as its value alone.
pub(crate) fn is_of_console(cookie: &[u8]) -> bool {
    let is_before = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'=';
    let start = cookie.iter().position(|byte| !is_before(byte)).unwrap_or(cookie.len());
    let name = cookie.get(start..).unwrap_or_default();
    name.strip_prefix(HOST_PREFIX.as_bytes()).unwrap_or(name).starts_with(NAME.as_bytes())
}

/// The name of the cookie without the prefix. Browsers send a cookie to all ports of a machine, so
/// the port is a part of the name: otherwise a login at one host would end the session at another
/// one.
fn name(call: &Parts) -> String {
    let host = head::host(&call.uri, &call.headers);
    match host.and_then(|host| host.port_u16()) {
        Some(port) => format!("{NAME}-{port}"),
        None => NAME.to_owned(),
    }
}

/// Whether this origin is the host that the call names, with the same port.
fn is_this_host(call: &Parts, origin: &HeaderValue) -> bool {
    let origin = origin.to_str().ok().and_then(|text| text.parse::<Uri>().ok());
    let named = head::host(&call.uri, &call.headers);
    match (origin.as_ref().and_then(Uri::authority), named) {
        (Some(origin), Some(named)) => *origin == named,
        _ => false,
    }
}

#[cfg(test)]
#[path = "session_cookie_tests.rs"]
mod tests;
