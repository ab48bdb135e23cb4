//! Normalises paths: clients join URLs as strings, so `//` and a trailing `/` are ignored.

use std::borrow::Cow;

use axum::http::uri::PathAndQuery;
use axum::http::{Request, Uri};

/// The URI of a request as its client sent it, if that was not the normal form.
#[derive(Debug, Clone)]
pub(crate) struct OriginalPath(pub(crate) Uri);

/// Collapses doubled slashes in the request's URI and removes a trailing one.
pub(crate) fn normalize<B>(request: &mut Request<B>) {
    if let Some(normal) = normal(request.uri()) {
        let as_sent = std::mem::replace(request.uri_mut(), normal);
        request.extensions_mut().insert(OriginalPath(as_sent));
    }
}

/// The normal form of a URI; `None` if the URI has it already.
fn normal(uri: &Uri) -> Option<Uri> {
    let Cow::Owned(normal) = normal_path(uri.path()) else { return None };
    let path_and_query = match uri.query() {
        Some(query) => format!("{normal}?{query}"),
        None => normal,
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(path_and_query).ok()?);
    Uri::from_parts(parts).ok()
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
            let mut request = Request::builder().uri(given).body(()).unwrap();
            normalize(&mut request);
            assert_eq!(request.uri().to_string(), expected);
            let as_sent =
                request.extensions().get::<OriginalPath>().map(|OriginalPath(uri)| uri.to_string());
            assert_eq!(as_sent, (given != expected).then(|| given.to_owned()));
        }
    }
}
