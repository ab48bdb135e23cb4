//! `/console/session` and `/console/links`: the login of the console. A session is a cookie, which
//! scripts cannot read; see [`session_cookie`].

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use gristmill_core::access::key::{ApiKey, Scope};
use gristmill_core::id::{EndpointId, KeyId, OwnerId};
use gristmill_wire::ConsoleLink;
use serde::{Deserialize, Serialize};

use crate::answer::error::{ApiError, ErrorCode};
use crate::answer::wire_time::rfc3339;
use crate::identity::caller::{KeyHolder, Visitor};
use crate::identity::session_cookie;

/// The body of a login: one of the two.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    key: Option<String>,
    link: Option<String>,
}

/// What the page may know of its session.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionDocument {
    key: KeyDocument,
    version: &'static str,
    /// Absent on a host that requires no key.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

#[derive(Serialize)]
struct KeyDocument {
    id: KeyId,
    name: String,
    owner: OwnerId,
    scopes: Vec<Scope>,
    /// Absent for a key that is valid for all endpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoints: Option<Vec<EndpointId>>,
}

type Answer<T> = Result<(HeaderMap, Json<T>), ApiError>;

/// The session of the calling page.
pub(super) async fn show(visitor: Visitor, request: Request) -> Answer<SessionDocument> {
    if let Some(key) = visitor.key_of_all() {
        return Ok((not_stored(), document(key, None)));
    }
    let (head, _) = request.into_parts();
    let session = session_cookie::token(&head).and_then(|token| visitor.sessions().find(token));
    let none = || ApiError::new(ErrorCode::Unauthorized, "there is no session; log in with a key");
    let session = session.ok_or_else(none)?;
    Ok((not_stored(), document(&session.key, Some(rfc3339(session.expires_at)))))
}

/// Begins a session with a key or a link. The page's earlier session ends.
pub(super) async fn begin(visitor: Visitor, request: Request) -> Answer<SessionDocument> {
    if let Some(key) = visitor.key_of_all() {
        return Ok((not_stored(), document(key, None)));
    }
    let (head, body) = request.into_parts();
    let body = visitor.read(&head, body).await?;
    let login = serde_json::from_slice(&body)
        .map_err(|error| ApiError::bad_request(format!("the body is invalid: {error}")))?;
    let key = match login {
        Login { key: Some(text), link: None } => visitor.key_of_text(&head, text.trim())?,
        Login { key: None, link: Some(link) } => visitor.key_of_link(&head, &link)?,
        Login { .. } => {
            return Err(ApiError::bad_request("the body must have either `key` or `link`"));
        }
    };
    if let Some(earlier) = session_cookie::token(&head) {
        visitor.sessions().end(earlier);
    }
    let (token, session) = visitor.sessions().begin(key);
    let mut headers = not_stored();
    headers.insert(header::SET_COOKIE, session_cookie::begin(&head, token.reveal()));
    Ok((headers, document(&session.key, Some(rfc3339(session.expires_at)))))
}

/// Ends the session of the calling page, if it has one.
pub(super) async fn end(visitor: Visitor, request: Request) -> (StatusCode, HeaderMap) {
    let (head, _) = request.into_parts();
    if let Some(token) = session_cookie::token(&head) {
        visitor.sessions().end(token);
    }
    let mut headers = not_stored();
    headers.insert(header::SET_COOKIE, session_cookie::end(&head));
    (StatusCode::NO_CONTENT, headers)
}

/// A link that begins one session with the caller's key.
pub(super) async fn create_link(KeyHolder { sessions, key }: KeyHolder) -> Answer<ConsoleLink> {
    let (link, expires_at) = sessions.create_link(&key);
    let link = ConsoleLink { link: link.reveal().to_owned(), expires_at: rfc3339(expires_at) };
    Ok((not_stored(), Json(link)))
}

fn document(key: &ApiKey, expires_at: Option<String>) -> Json<SessionDocument> {
    let ApiKey { id, name, owner, scopes, endpoints, .. } = key.clone();
    let key = KeyDocument { id, name, owner, scopes, endpoints };
    Json(SessionDocument { key, version: env!("CARGO_PKG_VERSION"), expires_at })
}

fn not_stored() -> HeaderMap {
    HeaderMap::from_iter([(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))])
}
