//! Forgiving paths: clients join URLs as strings, so `//` and a trailing `/` mean nothing.

use std::borrow::Cow;

use axum::http::Uri;
use axum::http::uri::PathAndQuery;

/// The URI with doubled slashes collapsed and a trailing one removed.
pub(crate) fn normalize(uri: Uri) -> Uri {
    let path = uri.path();
    let Cow::Owned(normal) = normal_path(path) else { return uri };
    let path_and_query = match uri.query() {
        Some(query) => format!("{normal}?{query}"),
        None => normal,
    };
    let mut parts = uri.clone().into_parts();
    match PathAndQuery::try_from(path_and_query) {
        Ok(path_and_query) => parts.path_and_query = Some(path_and_query),
        Err(_) => return uri,
    }
    Uri::from_parts(parts).unwrap_or(uri)
}

fn normal_path(path: &str) -> Cow<'_, str> {
    let is_normal = !path.contains("//") && (path == "/" || !path.ends_with('/'));
    if is_normal {
        return Cow::Borrowed(path);
    }
    let normal: String =
        path.split('/').filter(|part| !part.is_empty()).flat_map(|part| ["/", part]).collect();
    Cow::Owned(if normal.is_empty() { "/".into() } else { normal })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_are_forgiven() {
        let cases = [
            ("/", "/"),
            ("//", "/"),
            ("/v2/e/run", "/v2/e/run"),
            ("/v2/e/run/", "/v2/e/run"),
            ("//v2///e/run//?a=//b/", "/v2/e/run?a=//b/"),
        ];
        for (given, expected) in cases {
            assert_eq!(normalize(given.parse().unwrap()).to_string(), expected);
        }
    }
}
