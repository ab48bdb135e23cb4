//! The text of an answer in a snapshot.

use gristmill_tests::Answer;
use serde_json::Value;

/// Headers that are a part of a document.
const HEADERS: [&str; 7] =
    ["allow", "content-type", "link", "retry-after", "x-job-id", "x-job-status", "x-stream-next"];

/// Fields with an id, and the ids that the tests choose.
const IDS: [&str; 3] = ["id", "jobId", "workerId"];
const CHOSEN_IDS: [&str; 3] = ["all", "flour", "mill"];

/// Fields whose numbers are measured, or depend on the machine or the compiler.
const MEASURED: [&str; 15] = [
    "chargedBytes",
    "codeBytes",
    "compileMs",
    "cpuMs",
    "cores",
    "diskReadBytes",
    "diskWrittenBytes",
    "executionMs",
    "freeBytes",
    "fuel",
    "journalBytes",
    "keptBytes",
    "memoryBytesPeak",
    "reserveBytes",
    "sizeInBytes",
];

/// Fields whose texts are chosen by the host at random, or name the build.
const CHOSEN: [&str; 6] = ["key", "link", "sha256", "digest", "version", "webhookSecret"];

/// Status, headers and body, with brackets in place of values that differ from run to run.
pub(super) fn answer(answer: &Answer) -> String {
    let mut text =
        format!("{} {}\n", answer.call.split(' ').next().unwrap_or_default(), answer.status);
    for name in HEADERS {
        if let Some(value) = answer.header(name) {
            text += &format!("{name}: {}\n", without_ids(value));
        }
    }
    text.push('\n');
    let is_json =
        answer.header("content-type").is_some_and(|kind| kind.starts_with("application/json"));
    text += &match is_json {
        true => document(answer.json()),
        false => without_ids(&answer.text),
    };
    text
}

/// A JSON document, with sorted fields.
pub(super) fn document(mut document: Value) -> String {
    redact(&mut document);
    document.sort_all_objects();
    serde_json::to_string_pretty(&document).unwrap()
}

fn redact(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(redact),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::Number(_) if MEASURED.contains(&name.as_str()) => {
                        *value = "[number]".into();
                    }
                    Value::String(_) if CHOSEN.contains(&name.as_str()) => {
                        *value = format!("[{name}]").into();
                    }
                    Value::String(id)
                        if IDS.contains(&name.as_str()) && !CHOSEN_IDS.contains(&id.as_str()) =>
                    {
                        *id = "[id]".to_owned();
                    }
                    other => redact(other),
                }
            }
        }
        Value::String(text) => *text = without_ids(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The text with `[id]` in place of each id of a job: a word of 12 characters or more with several
/// digits that is no time.
fn without_ids(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut shown = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_part) {
        let (before, word_on) = rest.split_at(start);
        let (word, after) =
            word_on.split_at(word_on.find(|c| !is_part(c)).unwrap_or(word_on.len()));
        shown += before;
        shown += if is_id(word) { "[id]" } else { word };
        rest = after;
    }
    shown + rest
}

fn is_id(word: &str) -> bool {
    let is_time = word.starts_with("2023-11-");
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    word.len() >= 12 && digits >= 2 && !is_time && !word.starts_with("17000000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_shown_as_such_and_times_as_they_are() {
        for (text, expected) in [
            ("0192f3a0-0000-7000-8000-000000000000-0001", "[id]"),
            ("job `sync-0192f3a0-0000-7000-8000-000000000000-0001` failed", "job `[id]` failed"),
            ("2023-11-14T22:13:20.000Z", "2023-11-14T22:13:20.000Z"),
            ("echo:latest and application/json", "echo:latest and application/json"),
        ] {
            assert_eq!(without_ids(text), expected);
        }
    }
}
