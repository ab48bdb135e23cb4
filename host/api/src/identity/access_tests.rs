//! Hosts, origins and browsers that a host without keys and its listener for collectors answer.

use gristmill_core::id::OwnerId;
use gristmill_core::time::Timestamp;

use super::*;

fn is_admitted(host: Option<&str>, origin: Option<&str>) -> bool {
    let owner = OwnerId::new("default").unwrap();
    let access = Access::without_keys(owner, Timestamp::from_millis(0));
    let mut request = Request::builder().uri("/v2/a/run");
    for (name, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
        if let Some(value) = value {
            request = request.header(name, value);
        }
    }
    check(&access, &request.body(()).unwrap()).is_ok()
}

#[test]
fn without_keys_only_callers_on_this_machine_are_admitted() {
    for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "[::1]:8080"] {
        assert!(is_admitted(Some(host), None), "{host}");
        assert!(is_admitted(Some(host), Some(&format!("http://{host}"))), "{host}");
    }
    let elsewhere = [
        "example.com",
        "localhost.example.com",
        // It may be the name of an endpoint.
        "site.localhost:8080",
        "10.0.0.1",
        "[::2]:8080",
        "0.0.0.0",
    ];
    for host in elsewhere {
        assert!(!is_admitted(Some(host), None), "{host}");
        assert!(!is_admitted(Some("localhost"), Some(&format!("https://{host}"))), "{host}");
    }
    assert!(!is_admitted(None, None));
    assert!(!is_admitted(Some("localhost"), Some("null")));
    assert!(is_admitted(Some("localhost:8080"), Some("http://localhost:3000")));
}

#[test]
fn without_keys_an_endpoint_is_visited_by_links_and_its_own_pages() {
    let owner = OwnerId::new("default").unwrap();
    let access = Access::without_keys(owner, Timestamp::from_millis(0));
    let cases = [
        (Method::POST, &[][..], true),
        (Method::GET, &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], true),
        (Method::POST, &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], false),
        (Method::GET, &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "cors")], false),
        (Method::GET, &[("sec-fetch-site", "same-site"), ("sec-fetch-mode", "no-cors")], false),
        (Method::POST, &[("sec-fetch-site", "same-origin")], true),
        (Method::POST, &[("origin", "http://site.localhost:81")], true),
        (Method::POST, &[("origin", "http://localhost:81")], false),
        (Method::POST, &[("origin", "null")], false),
    ];
    for (method, lines, expected) in cases {
        let request = Request::builder().method(&method).header(header::HOST, "site.localhost:81");
        let request = lines.iter().fold(request, |it, (name, value)| it.header(*name, *value));
        let (call, ()) = request.body(()).unwrap().into_parts();
        assert_eq!(check_visit(&access, &call).is_ok(), expected, "{method} {lines:?}");
        assert!(check_visit(&Access::with_keys(), &call).is_ok());
    }
}

#[test]
fn without_keys_a_browser_is_answered_only_for_this_very_host() {
    let owner = OwnerId::new("default").unwrap();
    let access = Access::without_keys(owner, Timestamp::from_millis(0));
    let cases = [
        (&[][..], true),
        (&["same-origin"], true),
        (&["none"], true),
        (&["cross-site"], false),
        (&["same-site"], false),
        (&["same-origin", "cross-site"], false),
        (&[""], false),
        (&["Same-Origin, cross-site"], false),
        (&["something-new"], false),
    ];
    for (sites, expected) in cases {
        let request = Request::builder().uri("/v1/backup").header(header::HOST, "localhost");
        let request = sites.iter().fold(request, |it, site| it.header(&FETCH_SITE, *site));
        let checked = check(&access, &request.body(()).unwrap());
        assert_eq!(checked.is_ok(), expected, "{sites:?}");
    }
}

#[test]
fn collectors_are_told_from_websites() {
    let is_admitted = |is_loopback, headers: &[(&HeaderName, &str)]| {
        let request = Request::builder().uri("/metrics");
        let request = headers.iter().fold(request, |it, (name, value)| it.header(*name, *value));
        check_collector(is_loopback, &request.body(()).unwrap()).is_ok()
    };
    // Whether collectors are answered on a loopback address, and browsers on any.
    let hosts = [
        ("localhost:9090", true, true),
        ("mill.localhost", false, false),
        ("127.0.0.1:9090", true, true),
        ("10.0.0.1:9090", true, true),
        ("[::1]:9090", true, true),
        ("gristmill:9090", true, false),
        ("com", true, false),
        ("com.", true, false),
        ("example.com:9090", false, false),
        ("example.com.", false, false),
        ("localhost.example.com", false, false),
        ("127.0.0.1.example.com", false, false),
    ];
    for (host, by_collectors, by_browsers) in hosts {
        let headers = [(&header::HOST, host)];
        assert_eq!(is_admitted(true, &headers), by_collectors, "{host}");
        assert!(is_admitted(false, &headers), "{host} on an address of the network");
        for language in ["en-US,en;q=0.9", "*", ""] {
            let headers = [(&header::HOST, host), (&header::ACCEPT_LANGUAGE, language)];
            for is_loopback in [true, false] {
                assert_eq!(is_admitted(is_loopback, &headers), by_browsers, "{host}");
            }
        }
    }
    assert!(is_admitted(true, &[]), "a probe by HTTP/1.0");
    for is_loopback in [true, false] {
        for (site, expected) in
            [("none", true), ("same-origin", true), ("cross-site", false), ("same-site", false)]
        {
            let headers = [(&header::HOST, "localhost"), (&FETCH_SITE, site)];
            assert_eq!(is_admitted(is_loopback, &headers), expected, "{site}");
        }
    }
}

#[test]
fn with_keys_a_key_decides_alone() {
    let request = Request::builder().header(header::HOST, "example.com");
    let request = request.header(&FETCH_SITE, "cross-site").body(()).unwrap();
    assert!(check(&Access::with_keys(), &request).is_ok());
}
