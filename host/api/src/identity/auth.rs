//! Finds the calling key and checks its permissions. The lookup is in memory, and never waits.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;
use axum::http::{Extensions, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gristmill_control::SessionId;
use gristmill_core::access::key::{ApiKey, Scope};
use gristmill_core::id::EndpointId;
use gristmill_edge::{CallOrigin, OwnerAtShare};
use tokio::time::Instant;

use crate::answer::error::{ApiError, ErrorCode};
use crate::answer::refusal::Refusal;
use crate::identity::session_cookie;
use crate::state::ApiState;

/// The refusal of a key that is none.
pub(crate) const WRONG_KEY: &str = "this API key is unknown, revoked or expired";

/// Accepted forms of a key in the Authorization header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `Bearer KEY`, the scheme in any case, or the bare key.
    BearerOrBare,
    /// The same, and no session of the console.
    KeyOnly,
    /// `Bearer KEY` only.
    Bearer,
    /// `Bearer KEY`, or `Basic` with the key as the password, as clients of a registry send it.
    BasicOrBearer,
}

/// Refuses the call unless the key has the scope `needed`: on `endpoint`, or without any endpoint.
pub(crate) fn require(
    key: &ApiKey,
    needed: Scope,
    endpoint: Option<&EndpointId>,
) -> Result<(), ApiError> {
    if key.allows(needed, endpoint) {
        return Ok(());
    }
    let has_scope = key.scopes.iter().any(|scope| scope.covers(needed));
    let for_endpoint = match (endpoint, &key.endpoints) {
        (None, Some(endpoints)) if has_scope => return Err(for_some_endpoints_only(endpoints)),
        (None, _) => String::new(),
        (Some(endpoint), _) => format!(" on endpoint `{endpoint}`"),
    };
    Err(unauthorized(format!("this API key lacks the scope `{}`{for_endpoint}", needed.as_str())))
}

/// The refusal of a call that is for no single endpoint, for a key that is restricted to some.
fn for_some_endpoints_only(endpoints: &[EndpointId]) -> ApiError {
    let example = endpoints.first().map_or("ENDPOINT", EndpointId::as_str);
    unauthorized(format!(
        "this API key is valid for some endpoints only, and this call needs a key that is valid for all \
         endpoints; use such a key, or the calls of an endpoint, such as `/v2/{example}/requests`"
    ))
}

/// Refuses the call unless the key is one of the operator's.
pub(crate) fn require_operator(key: &ApiKey) -> Result<(), ApiError> {
    match key.owner.is_operator() {
        true => Ok(()),
        false => Err(unauthorized("this is for the operator's API keys only")),
    }
}

/// The key of a call, and the session of the console that stands for it.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) key: Arc<ApiKey>,
    /// `None`: the key itself is in the head of the call.
    pub(crate) session: Option<SessionId>,
}

/// Interval at which a waiting call checks that its key and its session are still valid.
pub(crate) const KEY_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The key of a call, which must stay valid while the call waits or its answer is being sent, as
/// must its session if it has one. `None`: the host requires no keys.
#[derive(Debug, Clone)]
pub(crate) struct KeyCheck(Option<CheckedKey>);

#[derive(Debug, Clone)]
struct CheckedKey {
    state: ApiState,
    identity: Identity,
}

impl KeyCheck {
    /// The caller, whose scope and endpoints were checked when the call began.
    pub(crate) fn new(state: &ApiState, identity: &Identity) -> Self {
        let is_needed = state.control.keys.access().key_of_all().is_none();
        Self(is_needed.then(|| CheckedKey { state: state.clone(), identity: identity.clone() }))
    }

    /// A call that needs no key.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Refuses the call if the key was revoked or has expired, or if the session has ended, such as
    /// by a logout. Its scope and endpoints are those of the first check: a key with other ones
    /// would be another key.
    ///
    /// # Errors
    /// 401.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        let Some(CheckedKey { state, identity }) = &self.0 else { return Ok(()) };
        check_again(&identity.key, state)?;
        match identity.session {
            Some(session) if !state.control.sessions.goes_on(session) => {
                Err(session_cookie::session_ended())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Calls `look` until it has found enough or `wait` is over. `look` gets a part of the time,
    /// and returns its findings and whether they are enough.
    ///
    /// # Errors
    /// Errors of `look`, and 401 when the key or the session is no longer valid.
    pub(crate) async fn wait<T, F>(
        &self,
        wait: Duration,
        look: impl Fn(Duration) -> F,
    ) -> Result<T, ApiError>
    where
        F: Future<Output = Result<(T, bool), ApiError>>,
    {
        let part = if self.0.is_some() { KEY_CHECK_INTERVAL } else { wait };
        let deadline = Instant::now() + wait;
        let mut left = wait;
        loop {
            let (found, is_enough) = look(left.min(part)).await?;
            if is_enough || left <= part {
                return Ok(found);
            }
            self.check()?;
            left = deadline.saturating_duration_since(Instant::now());
        }
    }
}

/// The key of the call, and its session.
///
/// # Errors
/// 401 without a valid key; 429 when too many such calls come from one address, and when the owner
/// of the key has too many connections.
pub(crate) fn identify(call: &Parts, state: &ApiState, form: Form) -> Result<Identity, ApiError> {
    match valid_key(call, state, form) {
        Ok(identity) => {
            show_key(&call.extensions, &identity.key)?;
            Ok(identity)
        }
        Err(refusal) => {
            if let Some(origin) = call.extensions.get::<Arc<CallOrigin>>() {
                origin.record_no_key();
            }
            state.unauthenticated.admit(&call.extensions)?;
            Err(refusal)
        }
    }
}

/// Refuses a call of the management API whose key was revoked or has expired, or whose session has
/// ended, while its body arrived, which may take minutes.
///
/// # Errors
/// 401.
pub(crate) fn check_after_body(extensions: &Extensions) -> Result<(), ApiError> {
    extensions.get::<KeyCheck>().map_or(Ok(()), KeyCheck::check)
}

/// Refuses a call whose key was revoked or has expired while its body arrived. A call that may have
/// a session has a [`KeyCheck`] instead.
///
/// # Errors
/// 401.
pub(crate) fn check_again(key: &ApiKey, state: &ApiState) -> Result<(), ApiError> {
    Ok(state.control.keys.check(key)?)
}

/// Counts a call of a route that needs no key, unless it has a valid one, which is returned.
///
/// # Errors
/// 429 when too many such calls come from one address.
pub(crate) fn count_unauthenticated(
    call: &Parts,
    state: &ApiState,
) -> Result<Option<Arc<ApiKey>>, ApiError> {
    match valid_key(call, state, Form::BearerOrBare) {
        Ok(Identity { key, .. }) => {
            show_key(&call.extensions, &key)?;
            Ok(Some(key))
        }
        Err(_) => {
            state.unauthenticated.admit(&call.extensions)?;
            Ok(None)
        }
    }
}

/// Records the valid key of a call, for its connection and for its answer. All calls with a key
/// pass here, so that each large answer has an owner.
///
/// # Errors
/// 429 when the owner of the key has too many connections.
pub(crate) fn show_key(extensions: &Extensions, key: &ApiKey) -> Result<(), ApiError> {
    let Some(origin) = extensions.get::<Arc<CallOrigin>>() else { return Ok(()) };
    Ok(origin.record_key(&key.owner, &key.id)?)
}

impl From<OwnerAtShare> for ApiError {
    fn from(OwnerAtShare { held }: OwnerAtShare) -> Self {
        let sentence = format!(
            "this owner's keys hold {held} connections, the most that one owner may hold now; close \
             some, or send more calls on each"
        );
        let cap = u32::try_from(held).unwrap_or(u32::MAX);
        let refusal = Refusal::at_one_time("connections", cap);
        Self::new(ErrorCode::ConcurrencyLimited, sentence).with_refusal(refusal)
    }
}

fn valid_key(call: &Parts, state: &ApiState, form: Form) -> Result<Identity, ApiError> {
    let of_head = |key| Identity { key, session: None };
    // A key in the call is ignored: some clients always send one.
    if let Some(key) = state.control.keys.access().key_of_all() {
        return Ok(of_head(key.clone()));
    }
    let Some(header) = call.headers.get(header::AUTHORIZATION) else {
        return key_of_session(call, state, form);
    };
    let header = header.to_str().unwrap_or_default().trim();
    let wrong = || unauthorized(WRONG_KEY);
    let text = match (header.split_once(' '), form) {
        (Some((scheme, key)), _) if scheme.eq_ignore_ascii_case("bearer") => key.trim().into(),
        (None, Form::BearerOrBare | Form::KeyOnly) => Cow::Borrowed(header),
        (Some((scheme, pair)), Form::BasicOrBearer) if scheme.eq_ignore_ascii_case("basic") => {
            password(pair).ok_or_else(wrong)?.into()
        }
        (_, Form::BasicOrBearer) => {
            return Err(unauthorized("log in with any user name and the API key as the password"));
        }
        (Some(_) | None, _) => {
            return Err(unauthorized("the Authorization header must be `Bearer <API key>`"));
        }
    };
    key_of_text(&text, state).map(of_head).ok_or_else(wrong)
}

/// The valid key with this text. The answer is the same for every wrong key, so that it does not
/// reveal which part was wrong.
pub(crate) fn key_of_text(text: &str, state: &ApiState) -> Option<Arc<ApiKey>> {
    let (id, secret) = ApiKey::parse_text(text)?;
    state.control.keys.accepted(&id, secret)
}

/// The key of a call without one in its head: that of its session, if it is a call of the console.
fn key_of_session(call: &Parts, state: &ApiState, form: Form) -> Result<Identity, ApiError> {
    let none = || unauthorized("no API key: send the header `Authorization: Bearer <API key>`");
    // The registry is for programs, and pages on an endpoint's own name are none of the console.
    let is_for_programs = matches!(form, Form::BasicOrBearer | Form::KeyOnly);
    let token = if is_for_programs { None } else { session_cookie::token(call)? };
    let token = token.ok_or_else(none)?;
    session_cookie::check_site(call, form == Form::Bearer)?;
    let found = session_cookie::session(call, token, &state.control.sessions)?;
    Ok(Identity { key: found.key, session: Some(found.id) })
}

/// The password of `user:password` in base64.
fn password(pair: &str) -> Option<String> {
    let pair = String::from_utf8(STANDARD.decode(pair.trim()).ok()?).ok()?;
    pair.split_once(':').map(|(_, password)| password.to_owned())
}

fn unauthorized(sentence: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::Unauthorized, sentence)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use gristmill_core::access::key::NewKey;
    use gristmill_core::id::OwnerId;
    use gristmill_core::time::Timestamp;
    use gristmill_edge::{ConnectionAuth, PeerAddress};

    use super::*;

    #[tokio::test]
    async fn a_key_for_some_endpoints_is_told_from_one_without_the_scope() {
        use axum::response::IntoResponse as _;
        use http_body_util::BodyExt as _;

        let new_key = |scope, endpoints: Option<&str>| NewKey {
            name: "k".into(),
            owner: OwnerId::new("a").unwrap(),
            scopes: vec![scope],
            endpoints: endpoints.map(|id| vec![EndpointId::new(id).unwrap()]),
            expires_at: None,
        };
        let other = EndpointId::new("other").unwrap();
        let lacks = "lacks the scope `read`";
        for (scope, endpoints, endpoint, expected) in [
            (Scope::Read, Some("mill"), None, "valid for some endpoints only"),
            (Scope::Read, Some("mill"), None, "`/v2/mill/requests`"),
            (Scope::Submit, Some("mill"), None, "valid for some endpoints only"),
            (Scope::Manage, Some("mill"), None, lacks),
            (Scope::Manage, None, None, lacks),
            (Scope::Read, Some("mill"), Some(&other), "`read` on endpoint `other`"),
        ] {
            let key = ApiKey::generate(new_key(scope, endpoints), Timestamp::from_millis(0)).0;
            let refused = require(&key, Scope::Read, endpoint).unwrap_err().into_response();
            assert_eq!(refused.status(), 401);
            let said = refused.into_body().collect().await.unwrap().to_bytes();
            let said = String::from_utf8(said.to_vec()).unwrap();
            assert!(said.contains(expected), "{scope:?} {endpoints:?}: {said}");
            assert!(expected == lacks || endpoint.is_some() || !said.contains("lacks"), "{said}");
        }
    }

    #[test]
    fn a_valid_key_is_recorded_for_its_connection_and_for_the_answer() {
        let owner = OwnerId::new("a").unwrap();
        let new_key = NewKey {
            name: "k".into(),
            owner: owner.clone(),
            scopes: vec![Scope::Manage],
            endpoints: None,
            expires_at: None,
        };
        let (key, _) = ApiKey::generate(new_key, Timestamp::from_millis(0));
        let connection_auth = Arc::<ConnectionAuth>::default();
        let peer = PeerAddress(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let origin = || Arc::new(CallOrigin::new(peer, connection_auth.clone()));
        let (call, next_call) = (origin(), origin());
        let mut extensions = Extensions::new();
        extensions.insert(call.clone());
        assert!(call.owner().is_none() && !connection_auth.has_key());
        show_key(&extensions, &key).unwrap();
        assert_eq!(call.owner(), Some(&owner));
        // The next call of the connection may be another owner's, as behind a proxy.
        assert!(next_call.owner().is_none() && connection_auth.has_key());
    }
}
