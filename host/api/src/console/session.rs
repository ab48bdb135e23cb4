//! `/console/session` and `/console/links`: the login of the console. A session is a cookie, which
//! scripts cannot read, with a mark, which the page keeps; see [`session_cookie`].
//!
//! A page of any origin may open the console with a link of its own key. So the console asks before
//! it redeems a link, with what [`preview_link`] says about it.

use axum::Json;
use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use gristmill_control::Session;
use gristmill_core::access::key::{ApiKey, Scope};
use gristmill_core::id::{EndpointId, KeyId, OwnerId};
use gristmill_wire::{ConsoleLink, ConsoleLinkQuestion, ConsoleLogin};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::answer::error::{ApiError, ErrorCode};
use crate::answer::wire_time::rfc3339;
use crate::identity::caller::{KeyHolder, Visitor};
use crate::identity::session_cookie;

/// What the page may know of its session.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionDocument {
    key: KeyDocument,
    version: &'static str,
    /// Only after a login: the value of the header of the page's calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<String>,
    /// Absent on a host that requires no key.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

/// Whom a link logs in.
#[derive(Serialize)]
pub(super) struct LinkDocument {
    key: KeyDocument,
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
        return Ok((not_stored(), Json(document(key, None))));
    }
    let (head, _) = request.into_parts();
    let none = || ApiError::new(ErrorCode::Unauthorized, "there is no session; log in with a key");
    let token = session_cookie::token(&head)?.ok_or_else(none)?;
    let session = session_cookie::session(&head, token, visitor.sessions())?;
    Ok((not_stored(), Json(document(&session.key, Some(&session)))))
}

/// Begins a session with a key or a link. The page's earlier session ends.
pub(super) async fn begin(visitor: Visitor, request: Request) -> Answer<SessionDocument> {
    if let Some(key) = visitor.key_of_all() {
        return Ok((not_stored(), Json(document(key, None))));
    }
    let (head, body) = request.into_parts();
    let login = read(&visitor, &head, body).await?;
    // A refusal must not use up a link.
    let earlier = session_cookie::token(&head)?;
    let key = match login {
        ConsoleLogin { key: Some(text), link: None } => visitor.key_of_text(&head, text.trim())?,
        ConsoleLogin { key: None, link: Some(link) } => visitor.key_of_link(&head, &link)?,
        ConsoleLogin { .. } => {
            return Err(ApiError::bad_request("the body must have either `key` or `link`"));
        }
    };
    // A page has lost the mark, or the cookie is not its own: that session is not the caller's to
    // end.
    if let Some(earlier) = earlier
        && session_cookie::session(&head, earlier, visitor.sessions()).is_ok()
    {
        visitor.sessions().end(earlier);
    }
    let (token, session) = visitor.sessions().begin(key);
    let mut headers = not_stored();
    headers.insert(header::SET_COOKIE, session_cookie::begin(&head, token.reveal()));
    let mark = Some(session.mark.reveal().to_owned());
    Ok((headers, Json(SessionDocument { mark, ..document(&session.key, Some(&session)) })))
}

/// Ends the session of the calling page. It may have ended before.
pub(super) async fn end(
    visitor: Visitor,
    request: Request,
) -> Result<(StatusCode, HeaderMap), ApiError> {
    let (head, _) = request.into_parts();
    if let Some(token) = session_cookie::token(&head)?
        && visitor.sessions().find(token).is_some()
    {
        session_cookie::session(&head, token, visitor.sessions())?;
        visitor.sessions().end(token);
    }
    let mut headers = not_stored();
    headers.insert(header::SET_COOKIE, session_cookie::end(&head));
    Ok((StatusCode::NO_CONTENT, headers))
}

/// Whom a link would log in. The link stays valid, and the caller learns no more than with a login.
pub(super) async fn preview_link(visitor: Visitor, request: Request) -> Answer<LinkDocument> {
    let (head, body) = request.into_parts();
    let ConsoleLinkQuestion { link } = read(&visitor, &head, body).await?;
    let key = visitor.key_of_unused_link(&link)?;
    Ok((not_stored(), Json(LinkDocument { key: key_document(&key) })))
}

/// A link that begins one session with the caller's key.
pub(super) async fn create_link(KeyHolder { sessions, key }: KeyHolder) -> Answer<ConsoleLink> {
    let (link, expires_at) = sessions.create_link(&key);
    let link = ConsoleLink { link: link.reveal().to_owned(), expires_at: rfc3339(expires_at) };
    Ok((not_stored(), Json(link)))
}

async fn read<T: DeserializeOwned>(
    visitor: &Visitor,
    head: &Parts,
    body: Body,
) -> Result<T, ApiError> {
    let body = visitor.read(head, body).await?;
    serde_json::from_slice(&body)
        .map_err(|error| ApiError::bad_request(format!("the body is invalid: {error}")))
}

fn document(key: &ApiKey, session: Option<&Session>) -> SessionDocument {
    let version = env!("CARGO_PKG_VERSION");
    let expires_at = session.map(|session| rfc3339(session.expires_at));
    SessionDocument { key: key_document(key), version, mark: None, expires_at }
}

fn key_document(key: &ApiKey) -> KeyDocument {
    let ApiKey { id, name, owner, scopes, endpoints, .. } = key.clone();
    KeyDocument { id, name, owner, scopes, endpoints }
}

fn not_stored() -> HeaderMap {
    HeaderMap::from_iter([(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))])
}
