//! The document of one object that may be large: an endpoint and a template have up to a MiB of
//! `env`, and an endpoint a schema. It is written on other threads than those that serve calls, as
//! pages of lists are.

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use gristmill_core::access::key::ApiKey;
use serde::Serialize;

use crate::answer::error::ApiError;
use crate::state::ApiState;

/// The answer with the document that `make` returns, made when it is the caller's turn.
///
/// # Errors
/// 500 when `make` panics.
pub(super) async fn answer<T: Serialize>(
    state: &ApiState,
    caller: &ApiKey,
    make: impl FnOnce() -> T + Send + 'static,
) -> Result<Response, ApiError> {
    state.pages.write(caller, move || Ok(Json(make()).into_response())).await
}
