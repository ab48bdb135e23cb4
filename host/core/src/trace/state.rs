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
#[path = "state_tests.rs"]
mod tests;
