//! The `tracestate` of a caller: values of tracing systems, which travel beside the `traceparent`.
//!
//! **Promise.** The host passes on each member as it came, and adds none. A list that breaks a rule
//! of the standard is dropped as a whole; the `traceparent` beside it stays. **Bounds.** A list has
//! [`STATE_MEMBERS_MAX`] members, and [`STATE_BYTES_MAX`] bytes of it are kept: of a longer one the
//! longest members are left out first, then the last ones. **Cost.** One allocation for a job with
//! a list, and none for other jobs; copies share it.
//!
//! Source: <https://www.w3.org/TR/trace-context-1/#tracestate-header>.

use std::fmt;
use std::sync::Arc;

/// Most members of a list.
pub const STATE_MEMBERS_MAX: usize = 32;

/// Most bytes of a list that are kept.
pub const STATE_BYTES_MAX: usize = 512;

/// Members over this length are the first ones that a list over [`STATE_BYTES_MAX`] loses.
const LONG_MEMBER_BYTES: usize = 128;

/// Longest value of a member, and longest key, in bytes.
const TEXT_BYTES_MAX: usize = 256;

/// Longest part before the `@` of a key, and after it.
const TENANT_BYTES_MAX: usize = 241;
const SYSTEM_BYTES_MAX: usize = 14;

/// A valid list, or none. A thin pointer, since most jobs have no list.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct TraceState(Option<Arc<Box<str>>>);

impl TraceState {
    /// The list of these `tracestate` headers, in their order. None if they break a rule of the
    /// standard, or have no member.
    pub fn from_headers<'a>(headers: impl IntoIterator<Item = &'a str>) -> Self {
        let mut members: Vec<(&str, &str)> = Vec::new();
        let listed = headers.into_iter().flat_map(|header| header.split(','));
        for member in listed.map(|member| member.trim_matches([' ', '\t'])) {
            if member.is_empty() {
                continue;
            }
            let key = member.split_once('=').filter(|(key, value)| is_key(key) && is_value(value));
            let Some((key, _)) = key else { return Self::default() };
            let is_known = members.iter().any(|(other, _)| *other == key);
            if is_known || members.len() == STATE_MEMBERS_MAX {
                return Self::default();
            }
            members.push((key, member));
        }
        let members = shortened(members.into_iter().map(|(_, member)| member).collect());
        Self((!members.is_empty()).then(|| Arc::new(members.join(",").into())))
    }

    /// The list as one header.
    pub fn as_str(&self) -> Option<&str> {
        self.0.as_ref().map(|text| &***text)
    }

    /// The text, to be shared.
    pub fn shared(&self) -> Option<&Arc<Box<str>>> {
        self.0.as_ref()
    }

    /// A copy of a list that is shared.
    pub fn from_shared(text: Arc<Box<str>>) -> Self {
        Self(Some(text))
    }
}

impl fmt::Debug for TraceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.as_str(), f)
    }
}

/// The members that are kept: long ones are left out first, then the last ones.
fn shortened(mut members: Vec<&str>) -> Vec<&str> {
    let bytes = |members: &[&str]| {
        members.iter().map(|member| member.len() + 1).sum::<usize>().saturating_sub(1)
    };
    while bytes(&members) > STATE_BYTES_MAX {
        let long = members.iter().rposition(|member| member.len() > LONG_MEMBER_BYTES);
        members.remove(long.unwrap_or(members.len() - 1));
    }
    members
}

/// A key is the name of a system, or `tenant@system`.
fn is_key(key: &str) -> bool {
    let begins = |text: &str, digit_too: bool| {
        let first = text.bytes().next();
        first.is_some_and(|byte| byte.is_ascii_lowercase() || digit_too && byte.is_ascii_digit())
    };
    let has_form = |text: &str, bytes_max: usize| {
        let is_allowed =
            |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/');
        text.len() <= bytes_max && text.bytes().all(is_allowed)
    };
    match key.split_once('@') {
        None => begins(key, false) && has_form(key, TEXT_BYTES_MAX),
        Some((tenant, system)) => {
            begins(tenant, true)
                && has_form(tenant, TENANT_BYTES_MAX)
                && begins(system, false)
                && has_form(system, SYSTEM_BYTES_MAX)
        }
    }
}

/// A value has printable ASCII without `,` and `=`. Blanks after it are not a part of it.
fn is_value(value: &str) -> bool {
    let is_allowed = |byte| matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'=');
    (1..=TEXT_BYTES_MAX).contains(&value.len()) && value.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
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
        let member =
            |key: &str, bytes: usize| format!("{key}={}", "v".repeat(bytes - key.len() - 1));
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
}
