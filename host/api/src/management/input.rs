//! Reads the inputs of management calls.

use std::str::FromStr;

use axum::body::{self, HttpBody as _};
use axum::extract::{FromRequestParts, Path};
use axum::http::Request;
use axum::http::request::Parts;
use gristmill_core::access::key::ApiKey;
use gristmill_core::id::InvalidId;
use gristmill_core::limits::MANAGEMENT_BODY_BYTES_MAX;
use serde::de::DeserializeSeed as _;

use super::fields::{Body, BodySeed};
use crate::answer::error::ApiError;
use crate::identity::auth;
use crate::state::{ApiState, Compatibility};

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

/// The values of the two placeholders of a management path.
#[derive(Debug)]
pub(crate) struct NamedPart(pub(crate) Named, pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for NamedPart {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path((of, part))) => Ok(Self(Named(of), part)),
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

    /// Checks the id in a body that changes the object with this id.
    ///
    /// # Errors
    /// 400 for another id.
    pub(crate) fn check_kept(&self, id: Option<&str>) -> Result<(), ApiError> {
        match id {
            Some(id) if id != self.0 => {
                Err(ApiError::bad_request(format!("`id` cannot be changed; it is `{}`", self.0)))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// A body, and the names of its fields that had no effect and might surprise its sender.
#[derive(Debug)]
pub(crate) struct Parsed<T> {
    pub(crate) body: T,
    pub(crate) ignored: Vec<String>,
}

/// Parses the body, an object, as `T`.
///
/// # Errors
/// 400 that names the field which does not fit, or which `T` does not have; 401 when the caller's
/// key was revoked or has expired, or its session has ended, while the body arrived.
pub(crate) async fn json<T: Body>(
    state: &ApiState,
    caller: &ApiKey,
    request: Request<body::Body>,
) -> Result<T, ApiError> {
    Ok(parsed(state, caller, request).await?.body)
}

/// The same with the names of ignored fields.
pub(crate) async fn parsed<T: Body>(
    state: &ApiState,
    caller: &ApiKey,
    request: Request<body::Body>,
) -> Result<Parsed<T>, ApiError> {
    let (parts, body) = request.into_parts();
    let body = state.bodies.read(&caller.id, &parts, body, MANAGEMENT_BODY_BYTES_MAX).await?;
    auth::check_after_body(&parts.extensions)?;
    let compatibility = state.compatibility.clone();
    state.checks.run(caller, &body.bytes, move |body| parse(body, &compatibility)).await
}

fn parse<T: Body>(body: &[u8], compatibility: &Compatibility) -> Result<Parsed<T>, ApiError> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut reader, &mut track);
    let mut ignored = vec![];
    let seed = BodySeed::<T>::new(compatibility, &mut ignored);
    let value = seed.deserialize(tracked).map_err(|error| {
        let path = track.path().to_string();
        let field = if path == "." { "the body".to_owned() } else { format!("`{path}`") };
        ApiError::bad_request(format!("{field} is invalid: {error}"))
    })?;
    reader
        .end()
        .map_err(|error| ApiError::bad_request(format!("the body is not valid JSON: {error}")))?;
    Ok(Parsed { body: value, ignored })
}

/// The same as [`json`]; a call without a body counts as an empty object.
pub(crate) async fn json_or_default<T: Body + Default>(
    state: &ApiState,
    caller: &ApiKey,
    request: Request<body::Body>,
) -> Result<T, ApiError> {
    if request.body().size_hint().exact() == Some(0) {
        return Ok(T::default());
    }
    json(state, caller, request).await
}

#[cfg(test)]
#[path = "input_tests.rs"]
mod tests;
