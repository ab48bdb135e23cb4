//! The endpoint and the handler's own part of a path, and of a call by the endpoint's own name.

use axum::body::Body;
use axum::http::uri::PathAndQuery;
use axum::http::{Request, Response, Uri};

use super::refusal;
use crate::answer::error::ApiError;
use crate::request::head;

/// The prefix of these paths.
pub(super) const PREFIX: &str = "/http/";

/// The way in which a call names its endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Address {
    /// By a path below [`PREFIX`], on the origin of the API and of the console.
    Path,
    /// By a host name, which is an origin of the endpoint's own.
    Name,
}

/// Among the extensions of a call that was made [`by_name`].
#[derive(Debug, Clone, Copy)]
pub struct ByName;

/// Whether the body of a call of this path may be read while its answer is sent already.
pub fn reads_on(path: &str) -> bool {
    path.starts_with(PREFIX)
}

/// A call by an endpoint's own name as one below `/http/`, with the name in the place of the id: so
/// it has one form on the way to the host that answers it.
///
/// # Errors
/// The refusal of a call that names no host, or has no path.
#[expect(clippy::result_large_err, reason = "it is the answer")]
pub fn by_name<B>(request: Request<B>) -> Result<Request<B>, Response<Body>> {
    let (mut parts, body) = request.into_parts();
    match path_of(&parts.uri, &parts.headers) {
        Some(path) => {
            let mut uri = std::mem::take(&mut parts.uri).into_parts();
            uri.path_and_query = Some(path);
            let uri = Uri::from_parts(uri);
            parts.uri = uri.map_err(|_| refusal::refuse(no_name()))?;
            parts.extensions.insert(ByName);
            Ok(Request::from_parts(parts, body))
        }
        None => Err(refusal::refuse(no_name())),
    }
}

fn no_name() -> ApiError {
    ApiError::bad_request("the call names no host, or its path does not begin with `/`")
}

fn path_of(uri: &Uri, headers: &axum::http::HeaderMap) -> Option<PathAndQuery> {
    let host = head::host(uri, headers)?.host().to_ascii_lowercase();
    let host = host.strip_suffix('.').unwrap_or(&host);
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let path = format!("{PREFIX}{host}{}{path}", if path.starts_with('?') { "/" } else { "" });
    path.parse().ok().filter(|_| !host.is_empty() && uri.path() != "*")
}

/// What a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target<'p> {
    /// The text in the place of the endpoint's id.
    pub(super) endpoint: &'p str,
    /// The handler's path with its first slash, byte for byte; `None` when the path ends with the
    /// endpoint.
    pub(super) rest: Option<&'p str>,
}

impl<'p> Target<'p> {
    /// `None` for a path that is not one of a handler.
    pub(crate) fn of(path: &'p str) -> Option<Self> {
        let below = path.strip_prefix(PREFIX)?;
        let end = below.find('/').unwrap_or(below.len());
        let (endpoint, rest) = below.split_at_checked(end)?;
        (!endpoint.is_empty())
            .then_some(Self { endpoint, rest: Some(rest).filter(|rest| !rest.is_empty()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_takes_the_place_of_the_id() {
        for (uri, host, expected) in [
            ("/", "site.apps.example.com", Some("/http/site.apps.example.com/")),
            (
                "/a//b?c=d",
                "Site.Apps.Example.com.:8443",
                Some("/http/site.apps.example.com/a//b?c=d"),
            ),
            ("http://a.example/x", "a.example", Some("/http/a.example/x")),
            ("http://a.example?x", "a.example", Some("/http/a.example/?x")),
            ("/http/other/", "a.example", Some("/http/a.example/http/other/")),
            ("/", "", None),
            ("*", "a.example", None),
        ] {
            let request = Request::builder().uri(uri).header("host", host).body(()).unwrap();
            let named = by_name(request).ok();
            let path = named.as_ref().map(|named| named.uri().path_and_query().unwrap().as_str());
            assert_eq!(path, expected, "{uri} {host}");
            assert!(named.is_none_or(|named| named.extensions().get::<ByName>().is_some()));
        }
    }

    #[test]
    fn the_path_of_the_handler_stays_as_it_is() {
        for (path, endpoint, rest) in [
            ("/http/site", "site", None),
            ("/http/site/", "site", Some("/")),
            ("/http/site/a//b/../%2F;c", "site", Some("/a//b/../%2F;c")),
            ("/http/site//", "site", Some("//")),
            ("/http/s%2Fx/a", "s%2Fx", Some("/a")),
            ("/http/site/openai/v1", "site", Some("/openai/v1")),
        ] {
            assert_eq!(Target::of(path), Some(Target { endpoint, rest }), "{path}");
        }
        for path in ["/http", "/http/", "/http//site", "/https/site/", "/v2/http/run", "//http/a"] {
            assert_eq!(Target::of(path), None, "{path}");
        }
    }
}
