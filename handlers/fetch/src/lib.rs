//! Fetches a URL, through the endpoint's list of allowed hosts.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gristmill_sdk::http::Request;
use gristmill_sdk::{Context, Error, handler};
use serde::{Deserialize, Serialize};

/// The headers that are returned; the others are left out.
const HEADERS: [&str; 6] =
    ["cache-control", "content-type", "date", "etag", "last-modified", "location"];

#[derive(Deserialize)]
struct Input {
    url: String,
    #[serde(default)]
    timeout_ms: Option<u64>,
}

#[derive(Serialize)]
struct Output {
    status: u16,
    headers: BTreeMap<&'static str, String>,
    /// The length of the body, in bytes.
    length: usize,
    #[serde(flatten)]
    body: Body,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Body {
    /// A body that is UTF-8.
    Text(String),
    /// Any other.
    Base64(String),
}

fn fetch(ctx: &Context, input: Input) -> Result<Output, Error> {
    let mut request = Request::get(input.url).with_header("user-agent", "gristmill-fetch");
    request.timeout = input.timeout_ms.map(Duration::from_millis);

    let response = ctx.http_send(request)?;
    let headers = HEADERS
        .into_iter()
        .filter_map(|name| Some((name, response.header(name)?.to_owned())))
        .collect();
    let body = match response.text() {
        Ok(text) => Body::Text(text.to_owned()),
        Err(_) => Body::Base64(STANDARD.encode(&response.body)),
    };
    Ok(Output { status: response.status, headers, length: response.body.len(), body })
}

handler!(fetch);

#[cfg(test)]
mod tests {
    use gristmill_sdk::http::{self, Response};
    use gristmill_sdk::testing::TestContext;
    use serde_json::{Value, json};

    use super::*;

    const INPUT: &str = r#"{"url":"https://example.com/","timeout_ms":1500}"#;

    fn run(answer: Result<Response, http::Error>) -> Result<Value, Error> {
        let ctx = TestContext::new().with_http("https://example.com/", answer);
        let output = ctx.run_json(fetch, INPUT)?;
        assert_eq!(ctx.requests()[0].timeout, Some(Duration::from_millis(1500)));
        Ok(serde_json::from_str(&output)?)
    }

    #[test]
    fn text_comes_as_text() {
        let response = Response::new(404, "no flour")
            .with_header("Content-Type", "text/plain")
            .with_header("Set-Cookie", "secret");
        assert_eq!(
            run(Ok(response)).unwrap(),
            json!({
                "status": 404, "headers": { "content-type": "text/plain" },
                "length": 8, "text": "no flour",
            })
        );
    }

    #[test]
    fn other_bodies_come_as_base64() {
        let output = run(Ok(Response::new(200, [0xff, 0x00]))).unwrap();
        assert_eq!(output, json!({ "status": 200, "headers": {}, "length": 2, "base64": "/wA=" }));
    }

    #[test]
    fn no_answer_fails_the_job() {
        let error = run(Err(http::Error::Timeout)).unwrap_err();
        assert_eq!(error.message(), "HTTP request timed out");
    }
}
