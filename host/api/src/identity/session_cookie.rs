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

/// The name of the cookie without the prefix. Browsers send a cookie to all ports of a machine, so
/// the port is a part of the name: otherwise a login at one host would end the session at another
/// one.
fn name(call: &Parts) -> String {
    let host = head::host(&call.uri, &call.headers);
    match host.and_then(|host| host.port_u16()) {
        Some(port) => format!("gristmill-console-{port}"),
        None => "gristmill-console".to_owned(),
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
mod tests {
    use axum::http::Request;

    use super::*;

    fn call(method: &str, headers: &[(&str, &str)]) -> Parts {
        call_of("/jobs", method, headers)
    }

    fn call_of(path: &str, method: &str, headers: &[(&str, &str)]) -> Parts {
        let request = Request::builder().method(method).uri(path);
        let request = headers.iter().fold(request, |it, (name, value)| it.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    const HOST: (&str, &str) = ("host", "mill.lan:8080");
    const MARK: (&str, &str) = ("x-gristmill-console", "mark");
    const SAME: (&str, &str) = ("sec-fetch-site", "same-origin");
    const CROSS: (&str, &str) = ("sec-fetch-site", "cross-site");
    const SIBLING: (&str, &str) = ("sec-fetch-site", "same-site");
    const TYPED: (&str, &str) = ("sec-fetch-site", "none");
    const OWN: (&str, &str) = ("origin", "http://mill.lan:8080");
    const OTHER_PORT: (&str, &str) = ("origin", "http://mill.lan:9090");
    const OTHER: (&str, &str) = ("origin", "http://evil.example");
    const OPAQUE: (&str, &str) = ("origin", "null");

    #[test]
    fn only_the_page_of_this_origin_uses_the_session() {
        // (headers beside the host, whether a file is served, whether other calls are accepted)
        type Headers<'a> = &'a [(&'a str, &'a str)];
        let cases: [(Headers<'_>, bool, bool); 19] = [
            (&[], false, false),
            (&[MARK], true, true),
            (&[("x-gristmill-console", "")], false, false),
            (&[SAME], true, false),
            (&[SAME, MARK], true, true),
            (&[SAME, MARK, OWN], true, true),
            (&[CROSS, MARK], false, false),
            (&[CROSS, MARK, OWN], false, false),
            (&[SIBLING, MARK], false, false),
            (&[TYPED, MARK], false, false),
            (&[SAME, CROSS, MARK], false, false),
            (&[("sec-fetch-site", ""), MARK], false, false),
            (&[OWN], true, false),
            (&[OWN, MARK], true, true),
            (&[OTHER, MARK], false, false),
            (&[OTHER_PORT, MARK], false, false),
            (&[OPAQUE, MARK], false, false),
            (&[OWN, OTHER, MARK], false, false),
            (&[("origin", "http://MILL.lan:8080"), MARK], true, true),
        ];
        let file = "/networkvolumes/v/files/a/b";
        for (headers, is_served, is_accepted) in cases {
            let all = [headers, &[HOST]].concat();
            for (path, method, expected) in [
                (file, "GET", is_served),
                (file, "HEAD", is_served),
                (file, "PUT", is_accepted),
                (file, "DELETE", is_accepted),
                ("/networkvolumes/v/files", "GET", is_accepted),
                ("/networkvolumes/v", "GET", is_accepted),
                ("/networkvolumes/files/x", "GET", is_accepted),
                ("/e/status/j", "GET", is_accepted),
                ("/jobs", "HEAD", is_accepted),
                ("/jobs", "POST", is_accepted),
                ("/jobs", "PATCH", is_accepted),
            ] {
                let call = call_of(path, method, &all);
                assert_eq!(
                    check_site(&call, true).is_ok(),
                    expected,
                    "{method} {path} {headers:?}"
                );
            }
            // The endpoint `networkvolumes` has a path of the same form.
            let call = call_of(file, "GET", &all);
            assert_eq!(check_site(&call, false).is_ok(), is_accepted, "{headers:?}");
        }
    }

    #[test]
    fn the_cookie_of_this_port_is_found() {
        for (cookies, expected) in [
            (&["gristmill-console-8080=abc"][..], Some("abc")),
            (&["a=b; gristmill-console-8080=abc; c=d"], Some("abc")),
            (&["a=b", "gristmill-console-8080=abc"], Some("abc")),
            (&["gristmill-console-8080="], Some("")),
            (&["gristmill-console-8081=abc", "gristmill-console=abc"], None),
            (&["xgristmill-console-8080=abc", "gristmill-console-8080"], None),
            (&[], None),
        ] {
            let cookies = cookies.iter().map(|cookie| ("cookie", *cookie));
            let headers: Vec<_> = cookies.chain([HOST]).collect();
            assert_eq!(token(&call("GET", &headers)), Ok(expected), "{headers:?}");
        }
        let without_port = [("host", "mill.lan"), ("cookie", "gristmill-console=abc")];
        assert_eq!(token(&call("GET", &without_port)), Ok(Some("abc")));
    }

    #[test]
    fn two_cookies_of_the_name_are_refused() {
        const PLAIN: &str = "gristmill-console-8080";
        const SECURE: &str = "__Host-gristmill-console-8080";
        for (cookies, expected) in [
            (format!("{PLAIN}=abc; {PLAIN}=def"), None),
            (format!("{PLAIN}=abc; a=b; {PLAIN}=abc"), None),
            (format!("{SECURE}=abc; {SECURE}=def"), None),
            // Cookies without the prefix, which others may set, change nothing.
            (format!("{PLAIN}=abc; {SECURE}=def"), Some("def")),
            (format!("{SECURE}=def; {PLAIN}=abc; {PLAIN}=x"), Some("def")),
        ] {
            let call = call("GET", &[HOST, ("cookie", &cookies)]);
            assert_eq!(token(&call).ok(), expected.map(Some), "{cookies}");
            let sentence = expected.is_none().then(|| token(&call).unwrap_err());
            assert!(sentence.is_none_or(|it| it.sentence().contains("two cookies")), "{cookies}");
        }
        let in_two_lines =
            [HOST, ("cookie", "gristmill-console-8080=a"), ("cookie", "gristmill-console-8080=b")];
        token(&call("GET", &in_two_lines)).unwrap_err();
    }

    #[test]
    fn the_cookie_is_for_this_host_alone_and_secure_behind_tls() {
        let plain = begin(&call("POST", &[HOST, OWN]), "abc");
        assert_eq!(
            plain,
            "gristmill-console-8080=abc; Path=/; Max-Age=604800; HttpOnly; SameSite=Strict"
        );
        let tls = begin(&call("POST", &[HOST, ("origin", "https://mill.lan:8080")]), "abc");
        assert_eq!(
            tls,
            "__Host-gristmill-console-8080=abc; Path=/; Max-Age=604800; HttpOnly; SameSite=Strict; Secure"
        );
        let gone = end(&call("DELETE", &[HOST]));
        assert!(gone.to_str().unwrap().starts_with("gristmill-console-8080=; Path=/; Max-Age=0;"));
    }
}
