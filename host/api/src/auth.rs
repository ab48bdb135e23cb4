//! Who calls, and whether he may. A key is looked up in memory; nothing here waits.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, Request, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gristmill_core::id::EndpointId;
use gristmill_core::key::{ApiKey, Scope};

use crate::error::{ApiError, ErrorCode};
use crate::state::ApiState;

/// How a key may be written in the Authorization header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `Bearer KEY`, the scheme in any case, or the bare key.
    BearerOrBare,
    /// `Bearer KEY` only.
    Bearer,
    /// `Bearer KEY`, or `Basic` with the key as the password: how clients of a registry send it.
    BasicOrBearer,
}

/// The caller of the management API.
#[derive(Debug)]
pub(crate) struct ManagementCaller(pub(crate) Arc<ApiKey>);

impl ManagementCaller {
    /// Refuses the call unless the key may do `needed`.
    pub(crate) fn require(&self, needed: Scope) -> Result<(), ApiError> {
        require(&self.0, needed, None)
    }

    /// The same for what is the host's, which other owners' keys do not reach.
    pub(crate) fn require_of_operator(&self, needed: Scope) -> Result<(), ApiError> {
        self.require(needed)?;
        match self.0.owner.is_operator() {
            true => Ok(()),
            false => Err(unauthorized("this is for the operator's API keys only")),
        }
    }
}

/// Refuses the call unless the key may do `needed`: on `endpoint`, or on no endpoint at all.
pub(crate) fn require(
    key: &ApiKey,
    needed: Scope,
    endpoint: Option<&EndpointId>,
) -> Result<(), ApiError> {
    if key.allows(needed, endpoint) {
        return Ok(());
    }
    let place = match endpoint {
        Some(endpoint) => format!(" on endpoint `{endpoint}`"),
        None => String::new(),
    };
    Err(unauthorized(format!("this API key lacks the scope `{}`{place}", needed.as_str())))
}

impl FromRequestParts<ApiState> for ManagementCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        identify(&parts.headers, &parts.extensions, state, Form::Bearer).map(Self)
    }
}

/// The key that the call carries.
///
/// # Errors
/// 401 without a valid key; 429 when too many such calls come from one address.
pub(crate) fn identify(
    headers: &HeaderMap,
    extensions: &Extensions,
    state: &ApiState,
    form: Form,
) -> Result<Arc<ApiKey>, ApiError> {
    valid_key(headers, state, form).or_else(|refusal| {
        state.strangers.admit(extensions)?;
        Err(refusal)
    })
}

/// Counts a call of what needs no key, unless it carries a valid one.
///
/// # Errors
/// 429 when too many such calls come from one address.
pub(crate) fn count_stranger<B>(request: &Request<B>, state: &ApiState) -> Result<(), ApiError> {
    match valid_key(request.headers(), state, Form::BearerOrBare) {
        Ok(_) => Ok(()),
        Err(_) => state.strangers.admit(request.extensions()),
    }
}

fn valid_key(headers: &HeaderMap, state: &ApiState, form: Form) -> Result<Arc<ApiKey>, ApiError> {
    // Whatever the call carries: clients insist on sending some key.
    if let Some(key) = state.access.key_of_all() {
        return Ok(key.clone());
    }
    let header = headers.get(header::AUTHORIZATION).ok_or_else(|| {
        unauthorized("no API key: send the header `Authorization: Bearer <API key>`")
    })?;
    let header = header.to_str().unwrap_or_default().trim();
    let wrong = || unauthorized("this API key is unknown, revoked or expired");
    let text = match (header.split_once(' '), form) {
        (Some((scheme, key)), _) if scheme.eq_ignore_ascii_case("bearer") => key.trim().into(),
        (None, Form::BearerOrBare) => Cow::Borrowed(header),
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
    // One answer for every wrong key: it tells nothing about which part was wrong.
    let (id, secret) = ApiKey::parse_text(&text).ok_or_else(wrong)?;
    let key = state.catalog.view().keys.get(&id).cloned().ok_or_else(wrong)?;
    if key.accepts(secret, state.jobs.now()) { Ok(key) } else { Err(wrong()) }
}

/// The password of `user:password` in base64.
fn password(pair: &str) -> Option<String> {
    let pair = String::from_utf8(STANDARD.decode(pair.trim()).ok()?).ok()?;
    pair.split_once(':').map(|(_, password)| password.to_owned())
}

fn unauthorized(sentence: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::Unauthorized, sentence)
}
