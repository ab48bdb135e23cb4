//! The answer to a request as it is noted for operators, with the request's id for the client.

use axum::body::Body;
use axum::http::{HeaderValue, Response};
use gristmill_core::http_requests::ObservedRequest;

use super::refusal::refuse;
use crate::answer::error::ApiError;
use crate::queue::dto::REQUEST_ID;

/// Notes the head of the answer, or the refusal, and adds the id.
pub(super) fn answer(
    request: &ObservedRequest,
    answered: Result<Response<Body>, ApiError>,
) -> Response<Body> {
    let (mut answer, code) = match answered {
        Ok(answer) => (answer, None),
        Err(refused) => {
            let code = refused.code().as_str();
            (refuse(refused), Some(code))
        }
    };
    request.answered(answer.status(), code);
    if let Ok(id) = HeaderValue::from_str(request.id().text().as_str()) {
        // A handler's own would match nothing here.
        answer.headers_mut().insert(REQUEST_ID, id);
    }
    answer
}
