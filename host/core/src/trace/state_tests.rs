//! Lists of callers: valid ones, broken ones, long ones, and any texts.

use proptest::prelude::*;

use super::*;

fn kept(headers: &[&str]) -> Option<String> {
    TraceState::from_headers(headers.iter().copied()).as_str().map(str::to_owned)
}

#[test]
fn valid_lists_are_kept_in_their_order() {
    let all_keys = "abcdefghijklmnopqrstuvwxyz0123456789_-*/";
    let all_values: String =
        (' '..='~').filter(|character| !matches!(character, ',' | '=')).collect();
    let all = format!("{all_keys}={all_values}");
    let tenant = format!("{all_keys}@a-z0-9_-*/={all_values}");
    let longest = format!("{}=1", "z".repeat(256));
    let longest_tenant = format!("{}@{}=1", "t".repeat(241), "v".repeat(14));
    let cases: [(&[&str], &str); 10] = [
        (&["foo=1,bar=2"], "foo=1,bar=2"),
        (&["foo=1,bar=2", "rojo=1", "", "baz=3"], "foo=1,bar=2,rojo=1,baz=3"),
        (&["\t foo=1 \t , \t bar=2 ,,"], "foo=1,bar=2"),
        (&["foo= 1"], "foo= 1"),
        (&["1a@b=1"], "1a@b=1"),
        (
            &["congo=t61rcWkgMzE", "rojo=00f067aa0ba902b7"],
            "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7",
        ),
        (&[&all], &all),
        (&[&tenant], &tenant),
        (&["foo=1", &longest], &format!("foo=1,{longest}")),
        (&[&longest_tenant], &longest_tenant),
    ];
    for (headers, expected) in cases {
        assert_eq!(kept(headers).as_deref(), Some(expected), "{headers:?}");
    }
}

#[test]
fn a_list_that_breaks_a_rule_is_dropped_as_a_whole() {
    let long_key = format!("{}=1", "z".repeat(257));
    let long_tenant = format!("{}@v=1", "t".repeat(242));
    let long_system = format!("t@{}=1", "v".repeat(15));
    let long_value = format!("foo={}", "1".repeat(257));
    let wrong: [&str; 20] = [
        "",
        " \t",
        ",",
        "foo",
        "foo=",
        "=1",
        "foo =1",
        "FOO=1",
        "foo.bar=1",
        "1foo=1",
        "foo@=1",
        "@foo=1",
        "foo@@bar=1",
        "foo@bar@baz=1",
        "foo=bar=baz",
        "foo=\u{e9}",
        &long_key,
        &long_tenant,
        &long_system,
        &long_value,
    ];
    for header in wrong {
        assert_eq!(kept(&[header]), None, "{header}");
        let expected = header.trim_matches([' ', '\t', ',']).is_empty().then_some("bar=2");
        assert_eq!(kept(&["bar=2", header]).as_deref(), expected, "{header}");
    }
    for twice in [&["foo=1,foo=1"][..], &["foo=1", "foo=2"]] {
        assert_eq!(kept(twice), None, "{twice:?}");
    }
}

#[test]
fn a_list_has_at_most_32_members() {
    let list = |members: usize| {
        let members: Vec<_> = (0..members).map(|n| format!("bar{n:02}={n:02}")).collect();
        members.join(",")
    };
    assert_eq!(kept(&[&list(32)]), Some(list(32)));
    assert_eq!(kept(&[&list(33)]), None);
    assert_eq!(kept(&[&list(16), "bar16=1,", &list(17)]), None, "a key comes twice");
}

#[test]
fn of_a_list_over_512_bytes_long_members_are_left_out_first_and_then_the_last_ones() {
    let member = |key: &str, bytes: usize| format!("{key}={}", "v".repeat(bytes - key.len() - 1));
    let (short, long) = (member("s", 100), member("l", 129));
    let full: Vec<_> = ["a", "b", "c", "d"].map(|key| member(key, 100)).into();
    let full = full.join(",");
    assert_eq!(full.len(), 403);
    let exact = format!("{full},{}", member("e", 108));
    assert_eq!(exact.len(), STATE_BYTES_MAX);
    assert_eq!(kept(&[&exact]), Some(exact.clone()), "exactly as much as is kept");
    let over = format!("{full},{}", member("e", 109));
    assert_eq!(kept(&[&over]), Some(full.clone()), "the last one is left out");
    assert_eq!(kept(&[&long, &full]), Some(full.clone()), "the long one is left out");
    let both = format!("{long},{full},{short}");
    assert_eq!(kept(&[&both]), Some(format!("{full},{short}")), "one is enough");
    let huge = format!("{}={}", "k".repeat(256), "v".repeat(256));
    assert_eq!(kept(&[&huge]), None, "no member is left");
}

proptest! {
    #[test]
    fn any_texts_are_read_without_a_panic(texts: Vec<String>) {
        let _ = TraceState::from_headers(texts.iter().map(String::as_str));
    }

    #[test]
    fn a_kept_list_is_valid_and_bounded(
        members in prop::collection::vec("[a-z][a-z0-9]{0,8}=[!-+]{1,200}", 0..40),
    ) {
        let state = TraceState::from_headers([members.join(",").as_str()]);
        let Some(text) = state.as_str() else { return Ok(()) };
        prop_assert!(text.len() <= STATE_BYTES_MAX);
        prop_assert_eq!(TraceState::from_headers([text]), state.clone());
    }
}
