//! Streams the words of a text, and returns how many there are.

use std::thread;
use std::time::Duration;

use gristmill_sdk::{Context, Error, handler};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Input {
    text: String,
    /// The pause before each word, in milliseconds.
    #[serde(default)]
    pause_ms: u64,
}

#[derive(Serialize)]
struct Output {
    words: usize,
}

fn stream(ctx: &Context, input: Input) -> Result<Output, Error> {
    let mut words = 0;
    for word in input.text.split_whitespace() {
        ctx.check_cancelled()?;
        thread::sleep(Duration::from_millis(input.pause_ms));
        ctx.emit(word)?;
        words += 1;
    }
    ctx.info(format_args!("{words} words"));
    Ok(Output { words })
}

handler!(stream);

#[cfg(test)]
mod tests {
    use gristmill_sdk::testing::TestContext;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_word_is_a_chunk() {
        let ctx = TestContext::new();
        let output = ctx.run_json(stream, r#"{"text":"to be or not"}"#).unwrap();
        assert_eq!(output, r#"{"words":4}"#);
        assert_eq!(ctx.outputs(), [json!("to"), json!("be"), json!("or"), json!("not")]);
    }

    #[test]
    fn a_cancelled_job_stops_between_words() {
        let ctx = TestContext::new().with_cancelled_after(1);
        let result = ctx.run_json(stream, r#"{"text":"to be or not"}"#);
        assert!(matches!(result, Err(Error::Cancelled)));
        assert_eq!(ctx.outputs(), [json!("to")]);
    }

    #[test]
    fn the_text_is_needed() {
        let result = TestContext::new().run_json(stream, "{}");
        assert!(matches!(result, Err(Error::InvalidInput(_))));
    }
}
