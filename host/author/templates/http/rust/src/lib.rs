//! Answers HTTP requests: a greeting, and how many words a text has.

use serde::{Deserialize, Serialize};
use wstd::http::{Body, Error, Method, Request, Response, StatusCode};

#[derive(Deserialize)]
struct Input {
    text: String,
}

#[derive(Serialize)]
struct Output {
    words: usize,
}

#[wstd::http_server]
async fn main(request: Request<Body>) -> Result<Response<Body>, Error> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/") => Ok(Response::new("hello\n".into())),
        (&Method::POST, "/words") => {
            let mut body = request.into_body();
            match serde_json::from_slice::<Input>(body.contents().await?) {
                Ok(input) => json(StatusCode::OK, &count(&input)),
                Err(error) => json(StatusCode::BAD_REQUEST, &error.to_string()),
            }
        }
        (_, path) => json(StatusCode::NOT_FOUND, &format!("there is no {path}")),
    }
}

fn count(input: &Input) -> Output {
    Output { words: input.text.split_whitespace().count() }
}

fn json(status: StatusCode, value: &impl Serialize) -> Result<Response<Body>, Error> {
    let answer = Response::builder().status(status).header("content-type", "application/json");
    Ok(answer.body(serde_json::to_vec(value)?.into())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_counted() {
        assert_eq!(count(&Input { text: "to be or not".into() }).words, 4);
        assert_eq!(count(&Input { text: String::new() }).words, 0);
    }
}
