//! OpenAI's error format, `{"error":{"message","type","param","code"}}`: refusals are converted to
//! it, and a handler's error object in this format determines the status code.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::Response;
use gristmill_core::job::payload::Json;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::answer::error::{self, ApiError};

/// Converts a refusal to OpenAI's format. Status and headers are unchanged.
pub(crate) async fn reshape_refusal(mut response: Response) -> Response {
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        response.headers_mut().remove(header::CONTENT_LENGTH);
        *response.body_mut() = Body::from(body(&error));
    }
    response
}

/// A refusal in OpenAI's format.
#[derive(Serialize, ToSchema)]
pub(crate) struct OpenAiError<'a> {
    error: OpenAiErrorFields<'a>,
}

#[derive(Serialize, ToSchema)]
struct OpenAiErrorFields<'a> {
    message: &'a str,
    r#type: &'static str,
    param: Option<&'a str>,
    code: &'static str,
}

/// A refusal as JSON text.
pub(super) fn body(error: &ApiError) -> String {
    let code = error.code();
    let (message, r#type) = (error.sentence(), type_of(error::status(code)));
    let error = OpenAiErrorFields { message, r#type, param: None, code: code.as_str() };
    serde_json::to_string(&OpenAiError { error }).expect("the body is plain data")
}

fn type_of(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_client_error() => "invalid_request_error",
        _ => "server_error",
    }
}

#[derive(Deserialize)]
struct Probe<'a> {
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    code: Option<&'a RawValue>,
    #[serde(borrow)]
    r#type: Option<&'a RawValue>,
}

/// The status code for a handler's output: 200, or for an error object the code that it names.
/// Error objects are `{"error":{…}}` without another `object`, and `{"object":"error",…}`.
pub(super) fn status_of(output: &Json) -> StatusCode {
    // Most outputs are no error objects, and are recognised without being parsed.
    if !output.as_str().starts_with('{') || !output.as_str().contains("\"error\"") {
        return StatusCode::OK;
    }
    let Ok(outer) = output.read::<Probe<'_>>() else { return StatusCode::OK };
    let is_error = outer.object.is_some_and(|object| object.get() == "\"error\"");
    let inner = outer.error.filter(|_| outer.object.is_none() || is_error);
    match inner.and_then(|error| serde_json::from_str::<Probe<'_>>(error.get()).ok()) {
        Some(error) => named_status(&error),
        None if is_error => named_status(&outer),
        None => StatusCode::OK,
    }
}

/// The integer `code`, or the code that belongs to `type`.
fn named_status(error: &Probe<'_>) -> StatusCode {
    let code = error.code.and_then(|code| code.get().parse::<u16>().ok());
    if let Some(code) = code.filter(|code| (400..=599).contains(code)) {
        return StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    }
    match error.r#type.map_or("", RawValue::get).trim_matches('"') {
        "invalid_request_error" => StatusCode::BAD_REQUEST,
        "authentication_error" => StatusCode::UNAUTHORIZED,
        "permission_error" => StatusCode::FORBIDDEN,
        "not_found_error" => StatusCode::NOT_FOUND,
        "rate_limit_error" | "insufficient_quota" => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::error::ErrorCode;

    #[test]
    fn a_refusal_has_all_four_fields() {
        let cases = [
            (ErrorCode::BadRequest, "invalid_request_error", "bad_request"),
            (ErrorCode::Unauthorized, "authentication_error", "unauthorized"),
            (ErrorCode::NotFound, "not_found_error", "not_found"),
            (ErrorCode::JobCancelled, "invalid_request_error", "job_cancelled"),
            (ErrorCode::RateLimited, "rate_limit_error", "rate_limited"),
            (ErrorCode::JobFailed, "server_error", "job_failed"),
            (ErrorCode::Unavailable, "server_error", "unavailable"),
        ];
        for (code, r#type, word) in cases {
            assert_eq!(
                body(&ApiError::new(code, "no \"flour\"")),
                format!(
                    r#"{{"error":{{"message":"no \"flour\"","type":"{type}","param":null,"code":"{word}"}}}}"#
                )
            );
        }
    }

    #[test]
    fn an_error_object_gets_the_status_that_it_names() {
        let cases = [
            (r#"{"error":{"code":404,"type":"NotFoundError"}}"#, 404),
            (r#"{"object":"error","message":"no","code":422}"#, 422),
            (r#"{"object":"error","error":{"code":503}}"#, 503),
            (r#"{"error":{"type":"invalid_request_error","code":"model_not_found"}}"#, 400),
            (r#"{"error":{"type":"authentication_error"}}"#, 401),
            (r#"{"error":{"type":"permission_error"}}"#, 403),
            (r#"{"error":{"type":"not_found_error","code":null}}"#, 404),
            (r#"{"error":{"type":"insufficient_quota"}}"#, 429),
            (r#"{"error":{"type":"not_found_error","code":200}}"#, 404),
            (r#"{"error":{"message":"no"}}"#, 500),
            (r#"{"object":"error"}"#, 500),
            // No error objects, or the error is not that of the answer.
            (r#"{"error":null}"#, 200),
            (r#"{"error":"text"}"#, 200),
            (r#"{"object":"response","error":{"code":"server_error"}}"#, 200),
            (r#"{"choices":[{"error":{"code":500}}]}"#, 200),
            (r#"[{"error":{"code":500}}]"#, 200),
            (r#""{\"error\":{}}""#, 200),
        ];
        for (output, expected) in cases {
            assert_eq!(status_of(&Json::parse(output).unwrap()).as_u16(), expected, "{output}");
        }
    }
}
