//! Streams the tokens of a prompt, each with the numbers that a language model's client expects.

use std::time::Duration;

use gristmill_sdk::{Context, Error, handler};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Input {
    prompt: String,
    /// The most tokens to stream; by default all of them.
    #[serde(default)]
    max_tokens: Option<usize>,
    /// The pause before each token, in milliseconds.
    #[serde(default)]
    delay_ms: u64,
}

#[derive(Serialize)]
struct Metrics {
    /// Tokens in the prompt.
    input_tokens: usize,
    /// Tokens streamed so far, this one included.
    output_tokens: usize,
    /// Counts from 0.
    stream_index: usize,
}

/// Returns nothing, so the job's output is the list of its chunks.
fn stream(ctx: &Context, input: Input) -> Result<(), Error> {
    let tokens = tokenize(&input.prompt);
    let limit = input.max_tokens.unwrap_or(usize::MAX);
    for (stream_index, token) in tokens.iter().take(limit).enumerate() {
        ctx.check_cancelled()?;
        std::thread::sleep(Duration::from_millis(input.delay_ms));
        let metrics =
            Metrics { input_tokens: tokens.len(), output_tokens: stream_index + 1, stream_index };
        ctx.emit_with_metrics(token, &metrics)?;
    }
    Ok(())
}

/// Words and single punctuation marks, each with the white space before it: joined, they are the
/// text again, except for white space at its end.
fn tokenize(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_end();
    while !rest.is_empty() {
        let word = rest.trim_start();
        let letters = word.find(|c: char| !c.is_alphanumeric()).unwrap_or(word.len());
        let length =
            if letters > 0 { letters } else { word.chars().next().map_or(0, char::len_utf8) };
        let (token, tail) = rest.split_at(rest.len() - word.len() + length);
        tokens.push(token);
        rest = tail;
    }
    tokens
}

handler!(stream);

#[cfg(test)]
mod tests {
    use gristmill_sdk::testing::TestContext;
    use serde_json::json;

    use super::*;

    #[test]
    fn tokens_join_to_the_text() {
        let text = "  Grüße,\n world… 3.5€!";
        assert_eq!(tokenize(text), ["  Grüße", ",", "\n world", "…", " 3", ".", "5", "€", "!"]);
        assert_eq!(tokenize(text).concat(), text);
        assert!(tokenize(" \n").is_empty());
    }

    #[test]
    fn every_chunk_has_its_numbers() {
        let ctx = TestContext::new();
        let input = r#"{"prompt":"Hello, world","max_tokens":2}"#;
        assert_eq!(ctx.run_json(stream, input).unwrap(), "null");
        assert_eq!(ctx.outputs(), [json!("Hello"), json!(",")]);
        assert_eq!(
            ctx.chunks()[1].metrics(),
            Some(json!({ "input_tokens": 3, "output_tokens": 2, "stream_index": 1 }))
        );
    }

    #[test]
    fn a_cancelled_job_stops_between_tokens() {
        let ctx = TestContext::new().with_cancelled_after(1);
        let result = ctx.run_json(stream, r#"{"prompt":"a b c"}"#);
        assert!(matches!(result, Err(Error::Cancelled)));
        assert_eq!(ctx.outputs(), [json!("a")]);
    }
}
