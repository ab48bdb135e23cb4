//! What passes to handlers and to browsers, by a path and by a name.

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
    withhold(&mut sent, Address::Path, false);
    assert_eq!(sent, headers(&[("x-a", "1")]));
    for (credentials, is_of_handler) in [
        ("Bearer abc", true),
        ("Basic YTpi", true),
        ("Bearer gm_", true),
        ("Bearer gm_k_s", false),
        ("gm_k_s", false),
        ("Bearer \"gm_k_s\"", false),
        ("basic  dTpnbV9rX3M=", false),
    ] {
        let mut sent = headers(&[("authorization", credentials), ("cookie", "a=b")]);
        withhold(&mut sent, Address::Path, true);
        assert_eq!(sent.contains_key("authorization"), is_of_handler, "{credentials}");
        assert!(!sent.contains_key("cookie"));
    }
}

#[test]
fn by_a_name_cookies_pass_but_not_those_of_the_console() {
    let mut sent = headers(&[("cookie", "a=b; gristmill-console-8080=t;c=d")]);
    sent.append("cookie", HeaderValue::from_static("__Host-gristmill-console=t"));
    sent.append("cookie", HeaderValue::from_static("e=f"));
    withhold(&mut sent, Address::Name, false);
    sent.append("cookie", HeaderValue::from_bytes("g=\u{e9}".as_bytes()).unwrap());
    withhold(&mut sent, Address::Name, false);
    assert_eq!(sent["cookie"].as_bytes(), "a=b; c=d; e=f; g=\u{e9}".as_bytes());
    for (set, expected) in [
        ("a=b; Path=/; HttpOnly", Some("a=b; Path=/; HttpOnly")),
        ("a=b; Domain=example.com; Secure", Some("a=b; Secure")),
        ("a=b;domain = .example.com", Some("a=b")),
        ("gristmill-console=t; Path=/", None),
        (" __Host-gristmill-console-8080=t; Secure", None),
        ("=gristmill-console=t", None),
        ("__Secure-gristmill-console=t", Some("__Secure-gristmill-console=t")),
    ] {
        let mut answer = headers(&[("set-cookie", set), ("clear-site-data", "*")]);
        confine_name(&mut answer);
        let kept = answer.get("set-cookie").map(|kept| kept.to_str().unwrap());
        assert_eq!(kept, expected, "{set}");
        assert!(!answer.contains_key("clear-site-data"));
    }
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

#[test]
fn a_redirect_by_a_path_stays_below_the_endpoint() {
    let called = "http://mill:8080/http/site/a/b?c";
    for (location, is_fine) in [
        ("d", true),
        ("../d", true),
        ("/http/site/", true),
        ("http://mill:8080/http/site/x", true),
        ("https://mill:8080/v2/e/run", false),
        ("https://other.example/", true),
        ("https://mill/v1/endpoints", false),
        ("/v2/e/purge-queue", false),
        ("../../../v2/e/run", false),
        ("/http/site/%2e%2e/%2E%2e/v2/e/run", false),
        ("/http/site/../other/", false),
        ("//mill:8080/v1/endpoints/e", false),
        ("\\\\mill:8080\\v1\\endpoints", false),
        ("/http/site2/", false),
        ("http://[", false),
    ] {
        let answer = |status: u16| {
            let answer = Response::builder().status(status).header("location", location);
            answer.body(Body::empty()).unwrap()
        };
        let checked = check_redirect(&answer(307), called, "/http/site/");
        assert_eq!(checked.is_ok(), is_fine, "{location}");
        assert!(check_redirect(&answer(201), called, "/http/site/").is_ok());
    }
}
