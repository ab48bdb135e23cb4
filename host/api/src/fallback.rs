//! The answers of both APIs for unknown routes. A call without a valid key is first counted as
//! unauthenticated.

use axum::body::Body;
use axum::extract::State;
use axum::http::Request;

use crate::auth;
use crate::error::{ApiError, ErrorCode};
use crate::state::ApiState;

/// For paths below `/v1`, here without their prefix.
pub(crate) async fn unknown_management_route(
    State(state): State<ApiState>,
    request: Request<Body>,
) -> ApiError {
    let unknown = ApiError::not_found(format!("there is no route `/v1{}`", request.uri().path()));
    auth::count_unauthenticated(&request, &state).err().unwrap_or(unknown)
}

/// For a route with other methods.
pub(crate) async fn method_not_allowed(
    State(state): State<ApiState>,
    request: Request<Body>,
) -> ApiError {
    let method = request.method();
    let sentence = format!("the method {method} is not allowed here; see the Allow header");
    let wrong = ApiError::new(ErrorCode::MethodNotAllowed, sentence);
    auth::count_unauthenticated(&request, &state).err().unwrap_or(wrong)
}
