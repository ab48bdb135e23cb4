//! A request that is answered later: its job has the request as its input, and the answer as its
//! output. This file has both as JSON.
//!
//! A body that is text stays text, so that a person can read it; any other is base64, and so is
//! text that would be longer in JSON than in base64. The value of a header has a character for
//! each byte.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::http_call::HttpBody;
use crate::job::payload::Json;

/// A text below this size stays text, however long it is in JSON.
const SMALL_BYTES: usize = 1 << 10;

/// The input of a job. A handler of jobs may have a field `http` too, but an endpoint has handlers
/// of one type only.
#[derive(Debug, Serialize, Deserialize)]
struct Input {
    http: DeferredRequest,
}

#[derive(Debug, Serialize, Deserialize)]
struct DeferredRequest {
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    #[serde(flatten)]
    body: Body,
}

#[derive(Debug, Serialize, Deserialize)]
struct DeferredAnswer {
    status: u16,
    headers: Vec<(String, String)>,
    #[serde(flatten)]
    body: Body,
}

#[derive(Debug, Serialize, Deserialize)]
enum Body {
    #[serde(rename = "body")]
    Text(String),
    #[serde(rename = "bodyBase64")]
    Base64(String),
}

/// Why JSON is no request, or no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the stored request or answer cannot be read: {0}")]
pub struct Unreadable(String);

/// The input of the job of a request.
pub fn input(request: &Request<Bytes>) -> Json {
    Json::from_value(&Input {
        http: DeferredRequest {
            method: request.method().to_string(),
            url: request.uri().to_string(),
            headers: header_texts(request.headers()),
            body: Body::of(request.body()),
        },
    })
}

/// The request of such an input.
///
/// # Errors
/// [`Unreadable`].
pub fn request(input: &Json) -> Result<Request<HttpBody>, Unreadable> {
    let Input { http } = input.read().map_err(unreadable)?;
    let body = Full::new(http.body.into_bytes()?).map_err(|never| match never {}).boxed_unsync();
    let mut request = Request::new(body);
    *request.method_mut() = http.method.parse().map_err(unreadable)?;
    *request.uri_mut() = http.url.parse().map_err(unreadable)?;
    *request.headers_mut() = header_values(http.headers)?;
    Ok(request)
}

/// The path of the request as its client has sent it, below which its handler's relative links are.
pub fn path_of_client<B>(request: &Request<B>) -> String {
    let prefix = request.headers().get("x-forwarded-prefix");
    let prefix = prefix.and_then(|prefix| prefix.to_str().ok()).unwrap_or_default();
    format!("{prefix}{}", request.uri().path())
}

/// Makes a `Location` that is relative to the `path` of the request a path of its own: the answer
/// is fetched from another path.
pub fn fix_location(headers: &mut HeaderMap, path: &str) {
    let Some(location) = headers.get(LOCATION).and_then(|text| text.to_str().ok()) else { return };
    let is_relative = !location.starts_with('/') && Url::parse(location).is_err();
    let base = Url::parse(&format!("http://localhost{path}"));
    let Some(joined) = base.ok().filter(|_| is_relative).and_then(|base| base.join(location).ok())
    else {
        return;
    };
    let text = joined.as_str().strip_prefix("http://localhost").unwrap_or_default();
    if let Ok(fixed) = HeaderValue::from_str(text) {
        headers.insert(LOCATION, fixed);
    }
}

/// The output of the job of a request with this answer.
pub fn output(answer: &Response<Bytes>) -> Json {
    Json::from_value(&DeferredAnswer {
        status: answer.status().as_u16(),
        headers: header_texts(answer.headers()),
        body: Body::of(answer.body()),
    })
}

/// The answer of such an output.
///
/// # Errors
/// [`Unreadable`].
pub fn answer(output: &Json) -> Result<Response<Bytes>, Unreadable> {
    let stored: DeferredAnswer = output.read().map_err(unreadable)?;
    let mut answer = Response::new(stored.body.into_bytes()?);
    *answer.status_mut() = StatusCode::from_u16(stored.status).map_err(unreadable)?;
    *answer.headers_mut() = header_values(stored.headers)?;
    Ok(answer)
}

impl Body {
    fn of(bytes: &Bytes) -> Self {
        // As many characters as JSON has for it at most.
        let in_json = |byte: &u8| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
            0..b' ' => 6,
            _ => 1,
        };
        let is_short = || bytes.iter().map(in_json).sum::<usize>() <= bytes.len() / 3 * 4;
        match str::from_utf8(bytes) {
            Ok(text) if bytes.len() < SMALL_BYTES || is_short() => Self::Text(text.to_owned()),
            _ => Self::Base64(STANDARD.encode(bytes)),
        }
    }

    fn into_bytes(self) -> Result<Bytes, Unreadable> {
        match self {
            Self::Text(text) => Ok(text.into()),
            Self::Base64(text) => STANDARD.decode(text).map(Bytes::from).map_err(unreadable),
        }
    }
}

fn header_texts(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| value.as_bytes().iter().copied().map(char::from).collect();
    headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}

fn header_values(texts: Vec<(String, String)>) -> Result<HeaderMap, Unreadable> {
    let mut headers = HeaderMap::with_capacity(texts.len());
    for (name, text) in texts {
        let bytes: Result<Vec<u8>, _> = text.chars().map(u8::try_from).collect();
        let value = HeaderValue::from_bytes(&bytes.map_err(unreadable)?).map_err(unreadable)?;
        headers.append(name.parse::<HeaderName>().map_err(unreadable)?, value);
    }
    Ok(headers)
}

fn unreadable(error: impl std::fmt::Display) -> Unreadable {
    Unreadable(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINARY: &[u8] = b"\xff\x00a";

    fn with_headers(headers: &mut HeaderMap) {
        headers.append("x-a", HeaderValue::from_bytes(b"caf\xe9 \xff").unwrap());
        headers.append("x-b", HeaderValue::from_static("1"));
        headers.append("x-b", HeaderValue::from_static("2"));
    }

    #[tokio::test]
    async fn a_request_survives() {
        for body in [&b""[..], b"na\xc3\xafve \"text\"", BINARY, &[0; 5_000]] {
            let mut request = Request::new(Bytes::from_static(body));
            *request.method_mut() = "PROPFIND".parse().unwrap();
            *request.uri_mut() = "http://a.example/x//y?z=%20".parse().unwrap();
            with_headers(request.headers_mut());
            let read = super::request(&input(&request)).unwrap();
            assert_eq!((read.method(), read.uri()), (request.method(), request.uri()));
            assert_eq!(read.headers(), request.headers());
            assert!(input(&request).len() < 300 + body.len() / 3 * 4 + 4);
            assert_eq!(read.into_body().collect().await.unwrap().to_bytes(), request.into_body());
        }
    }

    #[test]
    fn an_answer_survives_and_text_is_readable() {
        for (body, stored) in
            [(&b"hi \n"[..], r#""body":"hi \n""#), (BINARY, r#""bodyBase64":"/wBh""#)]
        {
            let mut answer = Response::new(Bytes::from_static(body));
            *answer.status_mut() = StatusCode::IM_A_TEAPOT;
            with_headers(answer.headers_mut());
            let output = output(&answer);
            assert!(output.as_str().contains(stored), "{}", output.as_str());
            let read = super::answer(&output).unwrap();
            assert_eq!((read.status(), read.headers()), (answer.status(), answer.headers()));
            assert_eq!(read.body(), answer.body());
        }
    }

    #[test]
    fn a_relative_location_is_that_of_the_request() {
        for (path, location, expected) in [
            ("/http/site/a/b", "next", "/http/site/a/next"),
            ("/a/b", "../c?d=e#f", "/c?d=e#f"),
            ("/a/b", "?c", "/a/b?c"),
            ("/a/b", "/c", "/c"),
            ("/a/b", "//other/c", "//other/c"),
            ("/a/b", "https://other/c", "https://other/c"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(LOCATION, HeaderValue::from_static(location));
            fix_location(&mut headers, path);
            assert_eq!(headers[LOCATION], expected, "{path} {location}");
        }
    }

    #[test]
    fn other_json_is_refused() {
        for text in [
            "7",
            r#"{"status":200,"headers":[]}"#,
            r#"{"status":2000,"headers":[],"body":""}"#,
            r#"{"status":200,"headers":[["a b","c"]],"body":""}"#,
            r#"{"status":200,"headers":[["a","\u0100"]],"body":""}"#,
            r#"{"status":200,"headers":[],"bodyBase64":"?"}"#,
        ] {
            assert!(answer(&Json::parse(text).unwrap()).is_err(), "{text}");
        }
        assert!(request(&Json::parse(r#"{"http":{}}"#).unwrap()).is_err());
    }
}
