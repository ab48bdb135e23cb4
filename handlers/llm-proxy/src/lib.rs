//! Passes calls of OpenAI's clients on to a server with OpenAI's API, and its events back at once.

use std::env;
use std::io::{BufRead, Read};

use gristmill_sdk::http::{Body, Request, Response};
use gristmill_sdk::{Context, Error, RawValue, handler};
use serde::Deserialize;
use serde_json::{Value, json};

/// The input that the host makes of a call of `/openai/*`.
#[derive(Deserialize)]
struct Input {
    openai_route: String,
    openai_input: Option<Box<RawValue>>,
}

/// The server, whose keys the clients do not have.
struct Upstream {
    /// Such as `https://api.example.com/v1`.
    url: String,
    key: Option<String>,
}

type Document = Box<RawValue>;

fn proxy(ctx: &Context, input: Input) -> Result<Option<Document>, Error> {
    let url = env::var("UPSTREAM_URL")
        .map_err(|_| Error::failed("set UPSTREAM_URL in the endpoint's environment"))?;
    pass_on(ctx, &input, &Upstream { url, key: env::var("UPSTREAM_KEY").ok() })
}

fn pass_on(ctx: &Context, input: &Input, to: &Upstream) -> Result<Option<Document>, Error> {
    let path = input.openai_route.strip_prefix("/v1").unwrap_or(&input.openai_route);
    let url = format!("{}{path}", to.url);
    let mut request = match &input.openai_input {
        Some(body) => {
            Request::post(url, body.get()).with_header("content-type", "application/json")
        }
        None => Request::get(url),
    };
    if let Some(key) = &to.key {
        request = request.with_header("authorization", format!("Bearer {key}"));
    }
    let answer = ctx.http_stream(request)?;
    let kind = answer.header("content-type").unwrap_or_default();
    if kind.starts_with("text/event-stream") {
        pass_events(ctx, answer.body)?;
        return Ok(None);
    }
    document(answer).map(Some)
}

/// Emits each event, with all its lines and the empty line at its end: a chunk that is a string is
/// sent to the client as it is.
fn pass_events(ctx: &Context, body: Body) -> Result<(), Error> {
    let mut event = String::new();
    // Some servers end without the last empty line.
    for line in body.lines().chain([Ok(String::new())]) {
        let line = line?;
        if !line.is_empty() {
            event += &line;
            event.push('\n');
        } else if !event.is_empty() {
            ctx.check_cancelled()?;
            event.push('\n');
            ctx.emit(&event)?;
            event.clear();
        }
    }
    Ok(())
}

/// The server's document, or an error object, from which the host takes the status code.
fn document(mut answer: Response<Body>) -> Result<Document, Error> {
    let mut text = Vec::new();
    answer.body.read_to_end(&mut text)?;
    let is_success = (200..300).contains(&answer.status);
    let is_refusal = || {
        let read = serde_json::from_slice::<Value>(&text);
        read.is_ok_and(|document| document.get("error").is_some_and(Value::is_object))
    };
    if (is_success || is_refusal())
        && let Ok(document) = serde_json::from_slice(&text)
    {
        return Ok(document);
    }
    let code = if is_success { 502 } else { answer.status };
    let message = format!("the upstream server answered {}", answer.status);
    let error = json!({ "message": message, "type": "upstream_error", "code": code });
    Ok(serde_json::value::to_raw_value(&json!({ "error": error }))?)
}

handler!(proxy);

#[cfg(test)]
mod tests {
    use gristmill_sdk::http;
    use gristmill_sdk::testing::TestContext;

    use super::*;

    const CHAT: &str = r#"{"openai_route":"/v1/chat/completions","openai_input":{"stream":true}}"#;

    fn run(ctx: &TestContext, input: &str) -> Result<Value, Error> {
        let to = Upstream { url: "http://upstream/v1".to_owned(), key: Some("k".to_owned()) };
        let handler = |ctx: &Context, input: Input| pass_on(ctx, &input, &to);
        Ok(serde_json::from_str(&ctx.run_json(handler, input)?)?)
    }

    fn streams(pieces: Vec<Result<Vec<u8>, http::Error>>) -> TestContext {
        let head = Response::new(200, "").with_header("content-type", "text/event-stream");
        TestContext::new().with_http_stream("http://upstream/v1/chat/completions", head, pieces)
    }

    fn answers(response: Response) -> Value {
        let ctx = TestContext::new().with_http("http://upstream/v1/models", Ok(response));
        run(&ctx, r#"{"openai_route":"/v1/models"}"#).unwrap()
    }

    #[test]
    fn an_event_keeps_its_lines_wherever_the_pieces_end() {
        let expected =
            [": begin\n\n", "event: token\ndata: {\"a\":\"\u{2028}\"}\n\n", "data: x\n\n"];
        for line_end in ["\n", "\r\n"] {
            let stream = expected.concat().replace('\n', line_end);
            for text in [stream.as_str(), stream.trim_end()] {
                for size in [1, 2, 3, 7, text.len()] {
                    let pieces = text.as_bytes().chunks(size);
                    let ctx = streams(pieces.map(|piece| Ok(piece.to_vec())).collect());
                    assert_eq!(run(&ctx, CHAT).unwrap(), Value::Null);
                    assert_eq!(ctx.outputs(), expected, "{size}");
                }
            }
        }
    }

    #[test]
    fn a_stream_that_breaks_off_fails_the_job() {
        let ctx = streams(vec![Ok(b"data: 1\n\ndata".to_vec()), Err(http::Error::Timeout)]);
        assert_eq!(run(&ctx, CHAT).unwrap_err().message(), "HTTP request timed out");
        assert_eq!(ctx.outputs(), ["data: 1\n\n"]);
    }

    #[test]
    fn the_request_has_the_key_and_the_body() {
        let ctx = streams(vec![]);
        run(&ctx, CHAT).unwrap();
        let request = &ctx.requests()[0];
        assert_eq!(
            (request.method.as_str(), &request.body[..]),
            ("POST", &br#"{"stream":true}"#[..])
        );
        assert!(request.headers.contains(&("authorization".to_owned(), "Bearer k".to_owned())));
    }

    #[test]
    fn documents_are_passed_on_and_errors_have_their_status() {
        assert_eq!(answers(Response::new(200, r#"{"data":[]}"#)), json!({ "data": [] }));
        let refusal = json!({ "error": { "message": "no", "type": "rate_limit_error" } });
        assert_eq!(answers(Response::new(429, refusal.to_string())), refusal);
        for (status, body, code) in
            [(503, "<html>", 503), (400, r#"{"error":"no"}"#, 400), (200, "x", 502)]
        {
            assert_eq!(answers(Response::new(status, body))["error"]["code"], code, "{body}");
        }
    }
}
