//! Numbers, flags and escapes in queries: clamped waits, and values that are refused.

use gristmill_core::limits::{STREAM_WAIT_MS, WAIT_MS};

use super::*;

#[test]
fn waits_are_clamped_and_words_refused() {
    let cases = [
        ("", Some(90_000)),
        ("wait=5000", Some(5_000)),
        ("a=b&wait=1", Some(1_000)),
        ("wait=-7", Some(1_000)),
        ("wait=99999999999999999999999", Some(300_000)),
        ("wait=soon", None),
        ("wait=", None),
        ("wait=1.5", None),
    ];
    for (query, expected) in cases {
        let wait = Query(query).wait(WAIT_MS).ok();
        assert_eq!(wait, expected.map(Duration::from_millis), "{query}");
    }
    let of_stream = [
        ("", Some(4_000)),
        ("wait=5000", Some(5_000)),
        ("a=b&wait=0", Some(0)),
        ("wait=-7", Some(0)),
        ("wait=99999999999999999999999", Some(300_000)),
        ("wait=soon", None),
    ];
    for (query, expected) in of_stream {
        let wait = Query(query).wait(STREAM_WAIT_MS).ok();
        assert_eq!(wait, expected.map(Duration::from_millis), "of a stream: {query}");
    }
}

#[test]
fn escapes_that_are_not_utf8_are_refused_by_name() {
    for query in ["", "a=1&b", "a=%C3%A9&%c3%a9=%EF%BF%BD", "a=%zz%", "a=+%2B", "&&=", "a=é"] {
        assert!(check_utf8(query).is_ok(), "{query}");
    }
    let wrong = [
        ("a=%ff", "`a`"),
        ("a=1&b=x%C3&c=%A9", "`b`"),
        ("a%20b=%c0%80", "`a b`"),
        ("a=%ED%A0%80", "`a`"),
        ("%ff=1", "`\u{fffd}`"),
        ("%ff", "`\u{fffd}`"),
    ];
    for (query, name) in wrong {
        let said = format!("{:?}", check_utf8(query).expect_err(query));
        assert!(said.contains(&format!("query {name} must be")), "{query}: {said}");
    }
    let long = check_utf8(&format!("{}=%ff", "x".repeat(1_000))).unwrap_err();
    assert!(format!("{long:?}").len() < 300);
}

#[test]
fn unsigned_numbers_refuse_a_sign() {
    assert_eq!(Query("ttl=6000").unsigned("ttl").ok(), Some(Some(6_000)));
    assert_eq!(Query("").unsigned("ttl").ok(), Some(None));
    assert!(Query("ttl=-1").unsigned("ttl").is_err());
    assert!(Query("ttl=x").unsigned("ttl").is_err());
}

#[test]
fn numbers_out_of_bounds_are_refused() {
    let cases = [
        ("", Some(90_000)),
        ("n=1000", Some(1_000)),
        ("n=300000", Some(300_000)),
        ("n=999", None),
        ("n=300001", None),
        ("n=-1", None),
        ("n=", None),
    ];
    for (query, expected) in cases {
        assert_eq!(Query(query).bounded("n", WAIT_MS).ok(), expected, "{query}");
    }
}

#[test]
fn every_spelling_of_a_flag_is_checked() {
    let names = ["includePlatformTemplates", "includeMillTemplates"];
    let cases = [
        ("", Some(false)),
        ("includeMillTemplates=true", Some(true)),
        ("includePlatformTemplates", None),
        ("includePlatformTemplates=", None),
        ("includePlatformTemplates=false&includeMillTemplates=true", Some(true)),
        ("includePlatformTemplates=false&other=1", Some(false)),
        ("includePlatformTemplates=True", Some(true)),
        ("includePlatformTemplates=False", Some(false)),
        ("includePlatformTemplates=False&includeMillTemplates=TRUE", Some(true)),
        ("includePlatformTemplates=yes", None),
        ("includePlatformTemplates=%20True", None),
        ("includePlatformTemplates=true&includeMillTemplates=1", None),
        ("includeMillTemplates=true&includeMillTemplates=x", None),
    ];
    for (query, expected) in cases {
        assert_eq!(flag(query, &names).ok(), expected, "{query}");
    }
}
