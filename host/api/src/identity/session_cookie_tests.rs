//! Session cookies: calls of the console's page and of other sites, two cookies, and attributes.

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
            assert_eq!(check_site(&call, true).is_ok(), expected, "{method} {path} {headers:?}");
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
