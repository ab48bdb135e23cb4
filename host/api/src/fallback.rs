//! The answers of both APIs for unknown routes. A call without a valid key is first counted as
//! unauthenticated.

use axum::body::Body;
use axum::http::Request;

use crate::answer::error::{ApiError, ErrorCode};
use crate::identity::caller::Anyone;

/// For paths below `/v1`, here without their prefix.
pub(crate) async fn unknown_management_route(_: Anyone, request: Request<Body>) -> ApiError {
    ApiError::not_found(format!("there is no route `/v1{}`", request.uri().path()))
}

/// For a route with other methods.
pub(crate) async fn method_not_allowed(_: Anyone, request: Request<Body>) -> ApiError {
    let method = request.method();
    let sentence = format!("the method {method} is not allowed here; see the Allow header");
    ApiError::new(ErrorCode::MethodNotAllowed, sentence)
}
