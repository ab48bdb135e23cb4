//! Streams the lines of a URL, with the client of the crate `wstd`: a library that speaks
//! `wasi:http` and knows nothing of this platform.

#![cfg(target_arch = "wasm32")]

use gristmill_sdk::{Context, Error, handler};
use serde::Deserialize;
use wstd::http::body::util::BodyExt;
use wstd::http::{Body, Client, Request};
use wstd::runtime::block_on;

#[derive(Deserialize)]
struct Input {
    url: String,
    /// The body of a `POST`; without it the request is a `GET`.
    #[serde(default)]
    body: Option<String>,
}

fn stream(ctx: &Context, input: Input) -> Result<(), Error> {
    block_on(lines(ctx, input))
}

/// Emits each line when it arrives.
async fn lines(ctx: &Context, input: Input) -> Result<(), Error> {
    let request = match input.body {
        Some(body) => Request::post(input.url).body(Body::from(body)),
        None => Request::get(input.url).body(Body::empty()),
    };
    let answer = Client::new().send(request?).await.map_err(Error::failed)?;
    let mut body = answer.into_body().into_boxed_body();
    let mut rest = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(Error::failed)?.into_data() else { continue };
        rest.extend_from_slice(&piece);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            ctx.emit(std::str::from_utf8(&line)?.trim_end())?;
        }
    }
    Ok(())
}

handler!(stream);
