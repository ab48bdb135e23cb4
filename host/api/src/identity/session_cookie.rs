//! The cookie of the web console, which carries the token of a session, and the check that a call with
//! it comes from the console.
//!
//! A browser adds the cookie to each call to this host, whatever page causes it. `SameSite=Strict`
//! keeps it from calls of other sites, but other ports of the same machine are the same site. So
//! a call with the cookie must come from this very origin: browsers report it in `Sec-Fetch-Site`, or in
//! `Origin`. It also needs the header [`CONSOLE_CALL`], which a page of another origin cannot set, since
//! this host permits it to none (CORS), and which a link cannot have: a link in the readme of another
//! owner's template has this origin too, and a GET of a job's status or stream may change the job. Only
//! the download of a volume's file, which changes nothing, is a plain link in the console. Over plain HTTP
//! browsers send no origin with a GET; the header then stands alone.

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};

use crate::answer::error::{ApiError, ErrorCode};
use crate::identity::access::FETCH_SITE;
use crate::request::head;

/// The header of calls that the console makes.
const CONSOLE_CALL: HeaderName = HeaderName::from_static("x-gristmill-console");

/// The longest life of a session, in seconds; the host may end it before.
const MAX_AGE_S: u32 = 7 * 24 * 3_600;

/// The token in the cookie.
pub(crate) fn token(call: &Parts) -> Option<&str> {
    let name = name(call);
    let lines = call.headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|one| one.split_once('='));
    pairs.find_map(|(given, value)| (given.trim() == name).then(|| value.trim()))
}

/// Refuses a call that may come from a page of another origin, or from a link. `of_management`: the call is one of
/// the management API, which has downloads.
///
/// # Errors
/// 401.
pub(crate) fn check_site(call: &Parts, of_management: bool) -> Result<(), ApiError> {
    let refuse = |sentence| Err(ApiError::new(ErrorCode::Unauthorized, sentence));
    let is_marked = call.headers.get(CONSOLE_CALL).is_some_and(|value| value == "1");
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
        return refuse("calls of the console must have the header `X-Gristmill-Console: 1`");
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
    let secure =
        if call.headers.get(header::ORIGIN).is_some_and(is_https) { "; Secure" } else { "" };
    let name = name(call);
    let line =
        format!("{name}={token}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::try_from(line).expect("names and tokens are letters, digits, `-` and `_`")
}

/// The name of the cookie. Browsers send a cookie to all ports of a machine, so the port is a part of the
/// name: otherwise a login at one host would end the session at another one.
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
    const MARK: (&str, &str) = ("x-gristmill-console", "1");
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
            (&[("x-gristmill-console", "0")], false, false),
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
            assert_eq!(token(&call("GET", &headers)), expected, "{headers:?}");
        }
        let without_port = [("host", "mill.lan"), ("cookie", "gristmill-console=abc")];
        assert_eq!(token(&call("GET", &without_port)), Some("abc"));
    }

    #[test]
    fn the_cookie_is_for_this_host_alone_and_secure_behind_tls() {
        let plain = begin(&call("POST", &[HOST, OWN]), "abc");
        assert_eq!(
            plain,
            "gristmill-console-8080=abc; Path=/; Max-Age=604800; HttpOnly; SameSite=Strict"
        );
        let tls = begin(&call("POST", &[HOST, ("origin", "https://mill.lan:8080")]), "abc");
        assert!(tls.to_str().unwrap().ends_with("; Secure"), "{tls:?}");
        let gone = end(&call("DELETE", &[HOST]));
        assert!(gone.to_str().unwrap().starts_with("gristmill-console-8080=; Path=/; Max-Age=0;"));
    }
}
