//! The output of `gristmill run --json`: one document for the whole run.

use std::time::Duration;

use data_encoding::BASE64;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{Chunk, TIMED_OUT_ERROR};
use gristmill_core::runtime::{AttemptEnd, AttemptReport, StackCall, Usage};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::local::{NoAnswer, WholeAnswer, describe_call};

/// A run, with the field names of the status document.
#[derive(Debug, Serialize)]
pub(super) struct RunDocument {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    stream: Vec<ChunkDocument>,
    /// The handler's stack when it trapped, the innermost call first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stack: Vec<String>,
    usage: UsageDocument,
}

/// One request.
#[derive(Debug, Serialize)]
pub(super) struct RequestDocument {
    /// `COMPLETED`: the answer is whole, whatever its status is.
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<AnswerDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stack: Vec<String>,
    usage: UsageDocument,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AnswerDocument {
    status: u16,
    headers: Vec<(String, String)>,
    /// The body, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
}

#[derive(Debug, Serialize)]
struct ChunkDocument {
    output: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<Box<RawValue>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct UsageDocument {
    instantiate_us: u64,
    run_us: u64,
    cpu_us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    fuel: Option<u64>,
    memory_bytes_peak: u64,
    log_lines_dropped: u64,
}

impl RunDocument {
    /// The document of a run that ended with `report` after emitting `chunks`, with this stack.
    pub(super) fn new(
        report: &AttemptReport,
        chunks: &[Chunk],
        stack: &[StackCall],
        timeout: Duration,
    ) -> Self {
        let (status, output, error) = match &report.end {
            AttemptEnd::Returned(value) => ("COMPLETED", raw(value), None),
            AttemptEnd::Failed { error, .. } => ("FAILED", None, Some(error.clone())),
            AttemptEnd::DeadlineReached => {
                let error = format!("{TIMED_OUT_ERROR} after {} ms", timeout.as_millis());
                ("TIMED_OUT", None, Some(error))
            }
            AttemptEnd::Stopped
            | AttemptEnd::NoMemory
            | AttemptEnd::HostLost(_)
            | AttemptEnd::Left => ("CANCELLED", None, None),
        };
        let chunk = |chunk: &Chunk| ChunkDocument {
            output: raw(&chunk.output),
            metrics: chunk.metrics.as_ref().and_then(raw),
        };
        Self {
            status,
            output,
            error,
            stream: chunks.iter().map(chunk).collect(),
            stack: stack.iter().map(describe_call).collect(),
            usage: (&report.usage).into(),
        }
    }
}

impl RequestDocument {
    /// The document of a request with this end, usage and stack.
    pub(super) fn new(
        end: Result<WholeAnswer, NoAnswer>,
        usage: &Usage,
        stack: &[StackCall],
    ) -> Self {
        let (status, answer, error) = match end {
            Ok(answer) => ("COMPLETED", Some(answer.into()), None),
            Err(NoAnswer::Failed(status, error)) => (status.as_str(), None, Some(error)),
            Err(NoAnswer::Interrupted) => ("CANCELLED", None, None),
        };
        let stack = stack.iter().map(describe_call).collect();
        Self { status, answer, error, stack, usage: usage.into() }
    }
}

impl From<WholeAnswer> for AnswerDocument {
    fn from(answer: WholeAnswer) -> Self {
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let headers = answer.headers.iter();
        let headers = headers.map(|(name, value)| (name.to_string(), text(value.as_bytes())));
        let body = String::from_utf8(answer.body.to_vec());
        Self {
            status: answer.status.as_u16(),
            headers: headers.collect(),
            body_base64: body.is_err().then(|| BASE64.encode(&answer.body)),
            body: body.ok(),
        }
    }
}

impl From<&Usage> for UsageDocument {
    fn from(usage: &Usage) -> Self {
        Self {
            instantiate_us: usage.instantiate_us,
            run_us: usage.run_us,
            cpu_us: usage.cpu_us,
            fuel: usage.fuel,
            memory_bytes_peak: usage.memory_bytes_peak,
            log_lines_dropped: usage.log_lines_dropped,
        }
    }
}

/// The unchanged text, so that the order of keys and large integers survive.
fn raw(json: &Json) -> Option<Box<RawValue>> {
    RawValue::from_string(json.as_str().to_owned()).ok()
}

#[cfg(test)]
mod tests {
    use gristmill_core::runtime::FailureReason;

    use super::*;

    #[test]
    fn a_body_is_text_or_base64() {
        let document = |body: &'static [u8]| {
            let headers = [("a".parse().unwrap(), "b".parse().unwrap())].into_iter().collect();
            let answer =
                WholeAnswer { status: http::StatusCode::CREATED, headers, body: body.into() };
            let document = RequestDocument::new(Ok(answer), &Usage::default(), &[]);
            serde_json::to_string(&document).unwrap()
        };
        let text = document(b"rye");
        let expected =
            r#"{"status":"COMPLETED","answer":{"status":201,"headers":[["a","b"]],"body":"rye"}"#;
        assert!(text.starts_with(expected), "{text}");
        assert!(document(b"\xff").contains(r#""headers":[["a","b"]],"bodyBase64":"/w=="}"#));
    }

    #[test]
    fn each_end_has_its_status() {
        let ends = [
            (AttemptEnd::Returned(Json::null()), r#""status":"COMPLETED","output":null,"#),
            (
                AttemptEnd::Failed { reason: FailureReason::Handler, error: "no".into() },
                r#""status":"FAILED","error":"no","#,
            ),
            (
                AttemptEnd::DeadlineReached,
                r#""status":"TIMED_OUT","error":"executionTimeout exceeded after 5 ms","#,
            ),
            (AttemptEnd::Stopped, r#""status":"CANCELLED","stream":[{"output":1}],"#),
        ];
        let chunks = [Chunk { output: Json::from_value(&1), metrics: None, part: None }];
        for (end, expected) in ends {
            let report = end.into();
            let document = RunDocument::new(&report, &chunks, &[], Duration::from_millis(5));
            let text = serde_json::to_string(&document).unwrap();
            assert!(text.contains(expected), "{text}");
        }
    }
}
