//! Reads the inputs of management calls.

use std::str::FromStr;

use axum::body::Body;
use axum::body::HttpBody as _;
use axum::extract::{FromRequestParts, Path};
use axum::http::Request;
use axum::http::request::Parts;
use gristmill_core::id::InvalidId;
use gristmill_core::key::ApiKey;
use gristmill_core::limits::MANAGEMENT_BODY_BYTES_MAX;
use serde::de::DeserializeOwned;

use crate::auth;
use crate::error::ApiError;
use crate::state::ApiState;

/// The value of the one placeholder of a management path.
#[derive(Debug)]
pub(crate) struct Named(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(text)) => Ok(Self(text)),
            Err(_) => Err(ApiError::bad_request("the path is not UTF-8")),
        }
    }
}

impl Named {
    /// The value as an id.
    ///
    /// # Errors
    /// 400 when the text is not an id.
    pub(crate) fn id<I: FromStr<Err = InvalidId>>(&self) -> Result<I, ApiError> {
        self.0.parse().map_err(|error: InvalidId| ApiError::bad_request(error.to_string()))
    }
}

/// Parses the body, an object, as `T`.
///
/// # Errors
/// 400 that names the field which does not fit; 401 when the caller's key was revoked or has
/// expired while the body arrived.
pub(crate) async fn json<T: DeserializeOwned + Send + 'static>(
    state: &ApiState,
    caller: &ApiKey,
    request: Request<Body>,
) -> Result<T, ApiError> {
    let (parts, body) = request.into_parts();
    let body = state.bodies.read(&caller.id, &parts, body, MANAGEMENT_BODY_BYTES_MAX).await?;
    auth::check_again(caller, state)?;
    state.checks.run(caller, &body.bytes, |body| parse(body)).await
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    // Serde alone would take an array of the fields' values in their order.
    if body.trim_ascii_start().starts_with(b"[") {
        return Err(ApiError::bad_request("the body must be a JSON object"));
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." { "the body".to_owned() } else { format!("`{path}`") };
        ApiError::bad_request(format!("{field} is invalid: {}", error.inner()))
    })?;
    reader
        .end()
        .map_err(|error| ApiError::bad_request(format!("the body is not valid JSON: {error}")))?;
    Ok(value)
}

/// The same; a call without a body counts as an empty object.
pub(crate) async fn json_or_default<T: DeserializeOwned + Default + Send + 'static>(
    state: &ApiState,
    caller: &ApiKey,
    request: Request<Body>,
) -> Result<T, ApiError> {
    if request.body().size_hint().exact() == Some(0) {
        return Ok(T::default());
    }
    json(state, caller, request).await
}

/// A flag in a query: `true` or `false` in any case, or absent. With several names or values, it is
/// set if one of them is true.
pub(crate) fn flag(query: &str, names: &[&str]) -> Result<bool, ApiError> {
    let given = url::form_urlencoded::parse(query.as_bytes())
        .filter(|(name, _)| names.contains(&name.as_ref()));
    let mut is_set = false;
    for (name, value) in given {
        // Python's `requests` sends `True`.
        let is = |word: &str| value.eq_ignore_ascii_case(word);
        if value.is_empty() || is("true") {
            is_set = true;
        } else if !is("false") {
            return Err(ApiError::bad_request(format!(
                "query `{name}` must be true or false, not `{value}`"
            )));
        }
    }
    Ok(is_set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_flag_is_checked() {
        let names = ["includePlatformTemplates", "includeMillTemplates"];
        let cases = [
            ("", Some(false)),
            ("includeMillTemplates=true", Some(true)),
            ("includePlatformTemplates", Some(true)),
            ("includePlatformTemplates=false&includeMillTemplates=true", Some(true)),
            ("includePlatformTemplates=false&other=1", Some(false)),
            ("includePlatformTemplates=True", Some(true)),
            ("includePlatformTemplates=False", Some(false)),
            ("includePlatformTemplates=False&includeMillTemplates=TRUE", Some(true)),
            ("includePlatformTemplates=yes", None),
            ("includePlatformTemplates=%20True", None),
            ("includePlatformTemplates=true&includeMillTemplates=1", None),
            ("includeMillTemplates=true&includeMillTemplates=x", None),
        ];
        for (query, expected) in cases {
            assert_eq!(flag(query, &names).ok(), expected, "{query}");
        }
    }
}
