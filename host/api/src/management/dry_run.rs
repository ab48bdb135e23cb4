//! `?dryRun=true`: a change is checked, and nothing is written.

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use gristmill_control::Extent;
use gristmill_core::access::key::ApiKey;
use serde::Serialize;

use super::document;
use crate::answer::error::ApiError;
use crate::openapi::parameters::DRY_RUN;
use crate::request::query;
use crate::state::ApiState;

/// How far the query lets a call go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DryRun(pub(crate) Extent);

impl<S: Sync> FromRequestParts<S> for DryRun {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let is_dry = query::flag(parts.uri.query().unwrap_or_default(), &[DRY_RUN])?;
        Ok(Self(if is_dry { Extent::CheckOnly } else { Extent::Whole }))
    }
}

impl DryRun {
    /// The answer to a call without a refusal: the document, or no content after a check. A new
    /// object that was only checked has an id and a secret that it will not have later.
    ///
    /// # Errors
    /// Those of [`document::answer`].
    pub(crate) async fn answer<T: Serialize>(
        self,
        state: &ApiState,
        caller: &ApiKey,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Response, ApiError> {
        match self.0 {
            Extent::CheckOnly => Ok(StatusCode::NO_CONTENT.into_response()),
            Extent::Whole => document::answer(state, caller, make).await,
        }
    }
}
