//! A small text generator with OpenAI's format, for OpenAI's clients without modification. The
//! model is a Markov chain over a page about mills: it has no intelligence, but real tokens and
//! real counts.

mod answer;
mod chain;
mod generate;
mod refusal;
mod request;
mod stop;
mod tokens;

use std::time::{SystemTime, UNIX_EPOCH};

use answer::{Answer, Document, Usage};
use chain::{Chain, END};
use generate::{Start, generate};
use gristmill_sdk::{Context, Error, handler};
use refusal::Refusal;
use request::{Kind, Request};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The only model.
const MODEL: &str = "gristmill-markov";

/// When its corpus was written, in seconds since the Unix epoch.
const MODEL_CREATED: u64 = 1_795_219_200;

/// The input that the host makes from a call of `/openai/*`.
#[derive(Deserialize)]
struct Input {
    openai_route: String,
    #[serde(default)]
    openai_input: Map<String, Value>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Output {
    Document(Document),
    Model(Model),
    Models {
        object: &'static str,
        data: [Model; 1],
    },
    Refusal(Refusal),
    /// The stream has had the whole answer.
    Streamed,
}

#[derive(Serialize)]
struct Model {
    id: &'static str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
}

const THE_MODEL: Model =
    Model { id: MODEL, object: "model", created: MODEL_CREATED, owned_by: "gristmill" };

fn chat(ctx: &Context, input: Input) -> Result<Output, Error> {
    let kind = match input.openai_route.as_str() {
        "/v1/chat/completions" => Kind::Chat,
        "/v1/completions" => Kind::Completion,
        "/v1/models" => return Ok(Output::Models { object: "list", data: [THE_MODEL] }),
        route => return Ok(model(route)),
    };
    match Request::parse(kind, &input.openai_input) {
        Ok(request) => respond(ctx, kind, request),
        Err(refusal) => Ok(Output::Refusal(refusal)),
    }
}

fn model(route: &str) -> Output {
    match route.strip_prefix("/v1/models/") {
        Some(MODEL) => Output::Model(THE_MODEL),
        Some(name) => Output::Refusal(Refusal::unknown_model(name)),
        None => Output::Refusal(Refusal::unknown_route(route)),
    }
}

fn respond(ctx: &Context, kind: Kind, request: Request) -> Result<Output, Error> {
    let chain = Chain::train();
    let start = match kind {
        Kind::Chat => Start::New(chain.topic(&request.prompt)),
        Kind::Completion => continuation(&chain, &request.prompt),
    };
    let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let answer = Answer::new(kind, &request, ctx.job_id(), created);
    if !request.is_stream {
        let mut text = String::new();
        let drawn = generate(&chain, start, request.settings, |piece| {
            text.push_str(&piece);
            Ok(())
        })?;
        let usage = Usage::new(request.prompt_tokens, &drawn);
        return Ok(Output::Document(answer.whole(text, &drawn, usage)));
    }
    let mut is_first = true;
    let drawn = generate(&chain, start, request.settings, |piece| {
        ctx.check_cancelled()?;
        ctx.emit(&answer.piece(piece, std::mem::take(&mut is_first)))?;
        Ok(())
    })?;
    ctx.emit(&answer.finish(&drawn))?;
    if request.include_usage {
        ctx.emit(&answer.usage(Usage::new(request.prompt_tokens, &drawn)))?;
    }
    Ok(Output::Streamed)
}

/// A prompt continues after its last two tokens, or anywhere if the corpus does not have the last
/// one.
fn continuation(chain: &Chain, prompt: &str) -> Start {
    let mut known = [END, END];
    for token in tokens::tokenize(prompt) {
        known = [known[1], chain.find(token).unwrap_or(END)];
    }
    if known[1] == END { Start::New(None) } else { Start::After(known) }
}

handler!(chat);

#[cfg(test)]
mod tests;
