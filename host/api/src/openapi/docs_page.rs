//! `GET /v1/docs`: the OpenAPI document as an interactive page. The program contains everything
//! that the page needs (Swagger UI: 1.2 MB compressed, 4.3 MB otherwise); the page loads nothing
//! from other hosts, and works without a network. Like the document, it needs no key.
//!
//! The page refers to its files by relative paths, because a proxy may add a path prefix. They
//! begin at `/v1/docs/`, so the page at `/v1/docs` names that as its base.
//!
//! Clients that accept gzip get the files as they are in the program. For others, the host
//! decompresses a file once and keeps it, since each client may ask for it again and again: 4.3 MB
//! of memory at most.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use bytes::Bytes;
use flate2::read::GzDecoder;
use parking_lot::Mutex;
use utoipa_swagger_ui::Config;

use crate::answer::error::{ApiError, ErrorCode};
use crate::identity::caller::{Anyone, Guarded};
use crate::openapi::refusals::{Mistaken, UnauthenticatedRefused};
use crate::openapi::tag;
use crate::request::paths::OriginalPath;

/// The path from the page to the document.
const DOCUMENT: &str = "../openapi.json";

/// The file with the page itself.
const PAGE: &str = "index.html";

/// Where the page's head begins.
const HEAD: &str = "<head>";

/// The page may only use its own files, and call its own host.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'",
);

/// The page and its files.
pub(crate) fn routes() -> Router<Guarded> {
    Router::new().route("/v1/docs", get(page)).route("/v1/docs/{file}", get(file))
}

/// This API as an interactive page.
///
/// It loads nothing from other hosts. Its example bodies work unedited on a host with a handler
/// `echo:latest`, in the order template, endpoint, job.
#[utoipa::path(
    get, path = "/v1/docs", operation_id = "GetDocs", tag = tag::HOST, security(()),
    responses(
        (status = 200, description = "The page", body = String, content_type = "text/html"),
        Mistaken, UnauthenticatedRefused,
    ),
)]
pub(crate) async fn page(
    as_sent: Option<Extension<OriginalPath>>,
    _: Anyone,
) -> Result<Response, ApiError> {
    let Served { headers, content } = served(PAGE, false)?;
    let has_slash = as_sent.is_some_and(|Extension(OriginalPath(uri))| uri.path().ends_with('/'));
    if has_slash {
        return Ok((headers, content).into_response());
    }
    let based = format!("{HEAD}<base href=\"docs/\">");
    let content = String::from_utf8_lossy(&content).replacen(HEAD, &based, 1);
    Ok((headers, content).into_response())
}

async fn file(
    Path(name): Path<String>,
    request: HeaderMap,
    _: Anyone,
) -> Result<Response, ApiError> {
    let Served { headers, content } = served(&name, accepts_gzip(&request))?;
    Ok((headers, content).into_response())
}

/// A file of the page, as an answer.
struct Served {
    headers: HeaderMap,
    content: Bytes,
}

/// The file with this name, compressed only if the client accepts it.
fn served(name: &str, accepts_gzip: bool) -> Result<Served, ApiError> {
    let config = Arc::new(Config::from(DOCUMENT).try_it_out_enabled(true));
    let found = utoipa_swagger_ui::serve(name, config).ok().flatten();
    let not_found = || ApiError::not_found(format!("the page has no file `{name}`"));
    let found = found.ok_or_else(not_found)?;
    let kind = HeaderValue::try_from(found.content_type);
    let kind = kind.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    let mut headers = HeaderMap::from_iter([
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
    ]);
    let mut content = match found.bytes {
        Cow::Borrowed(bytes) => Bytes::from_static(bytes),
        Cow::Owned(bytes) => bytes.into(),
    };
    if found.gzpipped {
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        if accepts_gzip {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        } else {
            let broken = |error| {
                ApiError::new(ErrorCode::Internal, format!("the file `{name}` is damaged: {error}"))
            };
            content = decompressed(name, &content).map_err(broken)?;
        }
    }
    Ok(Served { headers, content })
}

/// Whether an `Accept-Encoding` names gzip, or any coding, with a weight above 0.
fn accepts_gzip(request: &HeaderMap) -> bool {
    let weight = |coding: &str| {
        let values = request.get_all(header::ACCEPT_ENCODING);
        let mut listed =
            values.iter().filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(','));
        listed.find_map(|item| {
            let (name, parameters) = item.split_once(';').unwrap_or((item, ""));
            let weight =
                parameters.trim().strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok());
            name.trim().eq_ignore_ascii_case(coding).then(|| weight.unwrap_or(1.0))
        })
    };
    weight("gzip").or_else(|| weight("*")).is_some_and(|weight| weight > 0.0)
}

/// The content of a file of the page.
fn decompressed(name: &str, gzip: &[u8]) -> std::io::Result<Bytes> {
    static FILES: Mutex<BTreeMap<String, Bytes>> = Mutex::new(BTreeMap::new());
    let mut files = FILES.lock();
    if let Some(content) = files.get(name) {
        return Ok(content.clone());
    }
    let mut content = Vec::new();
    GzDecoder::new(gzip).read_to_end(&mut content)?;
    let content = Bytes::from(content);
    files.insert(name.to_owned(), content.clone());
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_sent_to_clients_that_accept_it() {
        let accepts = |values: &[&'static str]| {
            let values = values
                .iter()
                .map(|value| (header::ACCEPT_ENCODING, HeaderValue::from_static(value)));
            accepts_gzip(&values.collect())
        };
        for yes in ["gzip", "br, GZIP", "deflate,gzip;q=0.5", "*", "*;q=0.1", "gzip, *;q=0"] {
            assert!(accepts(&[yes]), "{yes}");
        }
        for no in ["", "identity", "gzip;q=0", "gzip; q=0.000, *", "x-gzip2", "br", "*;q=0"] {
            assert!(!accepts(&[no]), "{no}");
        }
        assert!(!accepts(&[]) && accepts(&["br", "gzip"]));
    }
}
