//! The challenge of a registry that answers 401: the header `WWW-Authenticate`.

use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};

/// The kind of authentication that the registry requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// By user name and password.
    Basic,
    /// By a token from a token service.
    Bearer {
        /// The URL of the service.
        realm: String,
        /// The service's name for the registry; passed on.
        service: Option<String>,
        /// The requested permissions; passed on.
        scope: Option<String>,
    },
}

impl Challenge {
    /// Parses the headers. A token is preferred, because registries that offer both prefer it.
    pub(crate) fn read(headers: &HeaderMap) -> Option<Self> {
        let texts = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|text| text.to_str().ok());
        let challenges: Vec<_> = texts.filter_map(Self::parse).collect();
        let bearer = challenges.iter().find(|challenge| **challenge != Self::Basic);
        bearer.or_else(|| challenges.first()).cloned()
    }

    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (scheme, rest) = text.split_once(' ').unwrap_or((text, ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let parameters = parameters(rest);
        let find = |wanted: &str| {
            let found = parameters.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.map(|(_, value)| value.clone())
        };
        Some(Self::Bearer { realm: find("realm")?, service: find("service"), scope: find("scope") })
    }
}

/// Parses `name="value",name=value`; a quoted value may have commas, and `\` before a character.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text.chars().peekable();
    loop {
        while rest.next_if(|c| c.is_whitespace() || *c == ',').is_some() {}
        let mut name = String::new();
        while let Some(c) = rest.next_if(|c| !matches!(c, '=' | ',')) {
            name.push(c);
        }
        if rest.next_if_eq(&'=').is_none() {
            match rest.peek() {
                // A word without a value has no meaning here.
                Some(_) => continue,
                None => return found,
            }
        }
        let mut value = String::new();
        if rest.next_if_eq(&'"').is_some() {
            while let Some(c) = rest.next() {
                match c {
                    '"' => break,
                    '\\' => value.extend(rest.next()),
                    c => value.push(c),
                }
            }
        } else {
            while let Some(c) = rest.next_if(|c| *c != ',') {
                value.push(c);
            }
        }
        found.push((name.trim().to_owned(), value.trim().to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    fn read(texts: &[&'static str]) -> Option<Challenge> {
        let values = texts.iter().map(|text| (WWW_AUTHENTICATE, HeaderValue::from_static(text)));
        let mut headers = HeaderMap::new();
        for (name, value) in values {
            headers.append(name, value);
        }
        Challenge::read(&headers)
    }

    #[test]
    fn challenges_are_read_as_registries_write_them() {
        let bearer = |realm: &str, service: Option<&str>, scope: Option<&str>| {
            let [service, scope] = [service, scope].map(|text| text.map(str::to_owned));
            Some(Challenge::Bearer { realm: realm.to_owned(), service, scope })
        };
        let hub = r#"Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a/b:pull,push""#;
        let cases: [(&[&'static str], _); 9] = [
            (
                &[hub],
                bearer(
                    "https://auth.example/token",
                    Some("registry.example"),
                    Some("repository:a/b:pull,push"),
                ),
            ),
            (&["Basic realm=\"x\"", hub], read(&[hub])),
            (&["bearer  realm=https://a/t , error=\"x\\\"y\""], bearer("https://a/t", None, None)),
            (&["BASIC"], Some(Challenge::Basic)),
            (&["Basic realm=\"a, Bearer realm=b\""], Some(Challenge::Basic)),
            (&["Bearer service=\"x\""], None),
            (&["Bearer realm"], None),
            (&["Negotiate abc"], None),
            (&[], None),
        ];
        for (texts, expected) in cases {
            assert_eq!(read(texts), expected, "{texts:?}");
        }
        // None of these texts makes the parser panic or loop.
        for text in ["Bearer ,,,=,\"", "Bearer =\"\\", "Bearer a=\"b", "Bearer \"x\"y=z,"] {
            let _ = read(&[text]);
        }
    }
}
