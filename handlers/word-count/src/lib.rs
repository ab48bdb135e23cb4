//! Counts lines, words and characters, and finds the most common words.

use std::cmp::Reverse;
use std::collections::HashMap;

use gristmill_sdk::{Context, Error, handler};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Input {
    text: String,
    /// How many of the most common words to return.
    #[serde(default = "ten")]
    top: usize,
}

fn ten() -> usize {
    10
}

#[derive(Serialize)]
struct Output {
    lines: usize,
    words: usize,
    characters: usize,
    most_common: Vec<Frequency>,
}

#[derive(Serialize)]
struct Frequency {
    word: String,
    count: usize,
}

fn count(_ctx: &Context, input: Input) -> Result<Output, Error> {
    let mut counts = HashMap::<String, usize>::new();
    for word in input.text.split_whitespace() {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
        if !word.is_empty() {
            *counts.entry(word).or_default() += 1;
        }
    }

    let mut most_common: Vec<Frequency> =
        counts.into_iter().map(|(word, count)| Frequency { word, count }).collect();
    most_common.sort_by(|a, b| (Reverse(a.count), &a.word).cmp(&(Reverse(b.count), &b.word)));
    most_common.truncate(input.top);

    Ok(Output {
        lines: input.text.lines().count(),
        words: input.text.split_whitespace().count(),
        characters: input.text.chars().count(),
        most_common,
    })
}

handler!(count);

#[cfg(test)]
mod tests {
    use gristmill_sdk::testing::TestContext;
    use serde_json::{Value, json};

    use super::*;

    fn run(input: Value) -> Value {
        let output = TestContext::new().run_json(count, &input.to_string()).unwrap();
        serde_json::from_str(&output).unwrap()
    }

    #[test]
    fn words_count_without_case_and_punctuation() {
        assert_eq!(
            run(json!({ "text": "The mill, the mill!\nÜber — über", "top": 2 })),
            json!({
                "lines": 2, "words": 7, "characters": 31,
                "most_common": [{ "word": "mill", "count": 2 }, { "word": "the", "count": 2 }],
            })
        );
    }

    #[test]
    fn an_empty_text_has_none() {
        assert_eq!(
            run(json!({ "text": "" })),
            json!({ "lines": 0, "words": 0, "characters": 0, "most_common": [] })
        );
    }

    #[test]
    fn text_is_required() {
        let error = TestContext::new().run_json(count, r#"{"text":5}"#).unwrap_err();
        assert!(error.message().starts_with("text: invalid type: integer `5`"), "{error}");
    }
}
