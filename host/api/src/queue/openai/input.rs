//! The job's input: `{"openai_route":"/v1/…","openai_input":{…}}`, with the body byte for byte.

use axum::http::{HeaderMap, header};
use bytes::Bytes;
use gristmill_core::job::payload::Json;
use gristmill_core::limits::JSON_NESTING_MAX;
use gristmill_json_schema::is_nested_deeper;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::answer::error::ApiError;

/// The request of a client.
#[derive(Debug)]
pub(crate) struct ParsedRequest {
    pub(crate) input: Json,
    /// Whether the client requests events.
    pub(crate) is_stream: bool,
}

/// Refuses a body of files before it is read: some of the calls of OpenAI's clients send one.
///
/// # Errors
/// 400 for `multipart/…`.
pub(crate) fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let kind = headers.get(header::CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    match kind.get(..10).is_some_and(|start| start.eq_ignore_ascii_case(b"multipart/")) {
        true => Err(ApiError::bad_request(
            "the body must be a JSON object; files as multipart/form-data are not supported",
        )),
        false => Ok(()),
    }
}

/// Creates the input from a call's route and body. An empty body, as of a GET, is left out.
///
/// # Errors
/// 400 for a body that is no JSON object.
pub(crate) fn parse(route: &str, body: &Bytes) -> Result<ParsedRequest, ApiError> {
    #[derive(Deserialize)]
    struct Fields<'a> {
        #[serde(borrow)]
        stream: Option<&'a RawValue>,
    }
    let route = Json::from_value(&format!("/{route}"));
    let mut text = Vec::with_capacity(body.len() + route.len() + 40);
    text.extend_from_slice(b"{\"openai_route\":");
    text.extend_from_slice(route.as_bytes());
    let mut is_stream = false;
    if !body.is_empty() {
        let invalid = |error| ApiError::bad_request(format!("the body is not valid JSON: {error}"));
        let body = Json::parse(body.clone()).map_err(invalid)?;
        if !body.as_str().starts_with('{') {
            return Err(ApiError::bad_request("the body must be a JSON object"));
        }
        let fields: Fields<'_> = body.read().map_err(invalid)?;
        if is_nested_deeper(body.as_str(), JSON_NESTING_MAX - 1) {
            let levels = JSON_NESTING_MAX - 1;
            let sentence = format!("the body must not be nested deeper than {levels} levels");
            return Err(ApiError::bad_request(sentence));
        }
        is_stream = fields.stream.is_some_and(|value| value.get() == "true");
        text.extend_from_slice(b",\"openai_input\":");
        text.extend_from_slice(body.as_bytes());
    }
    text.push(b'}');
    Ok(ParsedRequest { input: Json::from_stored(text), is_stream })
}

/// Whether the route is that of the models, or of one model, which OpenAI clients read with GET.
pub(crate) fn is_listing(route: &str) -> bool {
    let models = route.strip_prefix("v1/").unwrap_or(route).strip_prefix("models");
    models.is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_models_are_listed() {
        let cases = [
            ("v1/models", true),
            ("models", true),
            ("v1/models/mill-1", true),
            ("v1/models/team/mill-1", true),
            ("v1/modelsx", false),
            ("v1/chat/completions", false),
            ("v1/chat/models", false),
            ("v2/models", false),
            ("v1", false),
            ("V1/Models", false),
        ];
        for (route, expected) in cases {
            assert_eq!(is_listing(route), expected, "{route}");
        }
    }

    fn parse(body: &str) -> Result<ParsedRequest, ApiError> {
        super::parse("v1/a \"b\"", &Bytes::from(body.to_owned()))
    }

    #[test]
    fn the_body_is_kept_to_the_byte() {
        let wanted = parse(" {\"n\": 9007199254740993,\n \"z\":1.0} \n").unwrap();
        assert_eq!(
            wanted.input.as_str(),
            "{\"openai_route\":\"/v1/a \\\"b\\\"\",\"openai_input\":{\"n\": 9007199254740993,\n \"z\":1.0}}"
        );
        assert_eq!(parse("").unwrap().input.as_str(), r#"{"openai_route":"/v1/a \"b\""}"#);
    }

    #[test]
    fn only_true_asks_for_a_stream() {
        let cases = [
            (r#"{"stream": true}"#, true),
            (r#"{"\u0073tream":true}"#, true),
            (r#"{"stream":false}"#, false),
            (r#"{"stream":null}"#, false),
            (r#"{"stream":"true"}"#, false),
            (r#"{"a":{"stream":true}}"#, false),
            ("", false),
        ];
        for (body, expected) in cases {
            assert_eq!(parse(body).unwrap().is_stream, expected, "{body}");
        }
    }

    #[test]
    fn values_that_are_no_object_are_refused() {
        let cases = [
            ("[]", "must be a JSON object"),
            ("\"stream\"", "must be a JSON object"),
            (" ", "not valid JSON: EOF"),
            ("{\"a\":}", "not valid JSON: expected value"),
            ("{} {}", "not valid JSON: trailing characters"),
            (
                &format!("{{\"a\":{}1{}}}", "[".repeat(127), "]".repeat(127)),
                "deeper than 127 levels",
            ),
        ];
        for (body, expected) in cases {
            let error = parse(body).expect_err(body);
            assert!(error.sentence().contains(expected), "{body}: {error:?}");
        }
    }
}
