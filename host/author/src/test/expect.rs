//! The expectations of a case, and their comparison with a job or a request.

use anyhow::{Context as _, bail};
use gristmill_core::job::payload::Json;
use gristmill_core::job::state::JobStatus;
use gristmill_json_schema::{Budget, InputSchema, NotChecked};
use http::{HeaderMap, HeaderName, StatusCode};
use regex::Regex;
use serde_json::Value;

use super::diff::{Difference, Extent, compare, cut, shown};
use super::observed::{CHUNKS_BYTES_MAX, Observed, ObservedHead};

/// The expectations of a case. Without any, the job must complete; a request is complete with its
/// answer, whose body is the output.
#[derive(Debug, Default)]
pub(super) struct Expectation {
    pub(super) output: Option<Value>,
    pub(super) subset: Option<Value>,
    pub(super) schema: Option<InputSchema>,
    pub(super) regex: Option<Regex>,
    pub(super) chunks: Option<Chunks>,
    pub(super) error: Option<Regex>,
    pub(super) status: Option<JobStatus>,
    /// For a request.
    pub(super) answer: Option<AnswerExpectation>,
    pub(super) max_ms: Option<u64>,
    pub(super) max_fuel: Option<u64>,
    /// The case's own timeout, which applies wherever the job runs.
    pub(super) timeout_ms: Option<u64>,
}

/// The head of an answer.
#[derive(Debug, Default)]
pub(super) struct AnswerExpectation {
    /// Without one, the status must be below 400.
    pub(super) status: Option<StatusCode>,
    /// The values of these headers; `None` for one that the answer must not have.
    pub(super) headers: Vec<(HeaderName, Option<String>)>,
}

impl AnswerExpectation {
    fn compare(&self, head: &ObservedHead, found: &mut Vec<Difference>) {
        let got = head.status.as_u16().to_string();
        match self.status {
            Some(expected) if expected == head.status => {}
            Some(expected) => {
                found.push(Difference::new("status", expected.as_u16().to_string(), got));
            }
            None if head.status.as_u16() < 400 => {}
            None => found.push(Difference::new("status", "one below 400", got)),
        }
        for (name, expected) in &self.headers {
            let got = values(&head.headers, name);
            if *expected != got {
                let shown =
                    |value: &Option<String>| value.as_deref().unwrap_or("nothing").to_owned();
                let at = format!("header {name}");
                found.push(Difference::new(&at, shown(expected), cut(&shown(&got))));
            }
        }
    }
}

/// All values of a header, as one.
fn values(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let values = headers.get_all(name).iter();
    let values: Vec<_> =
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

/// The chunks of a stream.
#[derive(Debug, PartialEq)]
pub(super) enum Chunks {
    /// These outputs.
    Outputs(Vec<Value>),
    /// Their number.
    Count(u64),
}

impl Chunks {
    /// Reads a list of outputs, or their number.
    pub(super) fn new(value: Value) -> anyhow::Result<Self> {
        match value {
            Value::Array(outputs) => Ok(Self::Outputs(outputs)),
            value => match value.as_u64() {
                Some(count) => Ok(Self::Count(count)),
                None => bail!(
                    "`expected_chunks` must be a list of outputs, or how many there are, not {}",
                    shown(&value)
                ),
            },
        }
    }
}

/// Parses a JSON Schema, by the same rules as the schema of a handler's input.
pub(super) fn schema(value: &Value) -> anyhow::Result<InputSchema> {
    InputSchema::parse(&value.to_string())
        .context("`expected_schema` is not a JSON Schema that Gristmill can check")
}

/// Reads a regular expression.
pub(super) fn regex(field: &str, text: &str) -> anyhow::Result<Regex> {
    Regex::new(text).with_context(|| format!("`{field}` is not a regular expression"))
}

impl Expectation {
    /// Whether there is an expectation about the job's result, besides budgets.
    pub(super) fn is_about_result(&self) -> bool {
        self.is_about_output()
            || self.chunks.is_some()
            || self.error.is_some()
            || self.status.is_some()
    }

    fn is_about_output(&self) -> bool {
        self.output.is_some()
            || self.subset.is_some()
            || self.schema.is_some()
            || self.regex.is_some()
    }

    /// Refuses contradictory expectations.
    ///
    /// # Errors
    /// One sentence that names the two expectations.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let status = self.status();
        if self.is_about_output() && status != JobStatus::Completed {
            let because =
                if self.error.is_some() { "`expected_error`" } else { "`expected_status`" };
            bail!("it expects an output, which only a COMPLETED job has, and {because}");
        }
        if self.error.is_some() && status != JobStatus::Failed {
            bail!("it expects an error, which ends a job FAILED, and the status {status}");
        }
        Ok(())
    }

    /// The expected status of the job.
    fn status(&self) -> JobStatus {
        match (self.status, &self.error) {
            (Some(status), _) => status,
            (None, Some(_)) => JobStatus::Failed,
            (None, None) => JobStatus::Completed,
        }
    }

    /// All differences between the job and the expectations.
    pub(super) fn differences(&self, seen: &Observed) -> Vec<Difference> {
        let mut found = Vec::new();
        self.compare_end(seen, &mut found);
        if seen.status == JobStatus::Completed && self.is_about_output() {
            let output = seen.output.as_ref().map_or(Ok(Value::Null), |output| output.read());
            match output {
                Ok(output) => self.compare_output(&output, &mut found),
                Err(error) => found.push(Difference::new("output", "JSON", error.to_string())),
            }
        }
        self.compare_chunks(seen, &mut found);
        self.compare_budgets(seen, &mut found);
        found
    }

    fn compare_end(&self, seen: &Observed, found: &mut Vec<Difference>) {
        let expected = self.status();
        if seen.status != expected {
            let got = match &seen.error {
                Some(error) => format!("{}: {error}", seen.status),
                None => seen.status.to_string(),
            };
            found.push(Difference::new("status", expected.to_string(), got));
        } else if let Some(regex) = &self.error {
            let error = seen.error.as_deref().unwrap_or_default();
            if !regex.is_match(error) {
                found.push(Difference::new("error", matching(regex), cut(error)));
            }
        }
        if let (Some(expected), Some(head)) = (&self.answer, &seen.head) {
            expected.compare(head, found);
        }
    }

    fn compare_output(&self, output: &Value, found: &mut Vec<Difference>) {
        if let Some(expected) = &self.output {
            compare("$", expected, output, Extent::Whole, found);
        }
        if let Some(expected) = &self.subset {
            compare("$", expected, output, Extent::Subset, found);
        }
        if let Some(schema) = &self.schema {
            let why = match schema.check_value("$", output, Budget::FULL) {
                Ok(()) => None,
                Err(NotChecked::Invalid(why)) => Some(why),
                Err(NotChecked::Exhausted) => Some("the check takes too many steps".to_owned()),
            };
            found.extend(why.map(|why| {
                let expected = format!("a value that `expected_schema` allows ({why})");
                Difference::new("$", expected, shown(output))
            }));
        }
        if let Some(regex) = &self.regex {
            let text = match output {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            if !regex.is_match(&text) {
                found.push(Difference::new("$", matching(regex), cut(&text)));
            }
        }
    }

    fn compare_chunks(&self, seen: &Observed, found: &mut Vec<Difference>) {
        let (Some(expected), Some(chunks)) = (&self.chunks, &seen.chunks) else { return };
        match expected {
            Chunks::Count(count) if chunks.count() == *count => {}
            Chunks::Count(count) => {
                let got = chunks.count().to_string();
                found.push(Difference::new("number of chunks", count.to_string(), got));
            }
            Chunks::Outputs(outputs) => {
                let Some(kept) = chunks.outputs() else {
                    let expected = format!("at most {} MiB", CHUNKS_BYTES_MAX >> 20);
                    let got = format!("{} chunks that are too large to compare", chunks.count());
                    return found.push(Difference::new("chunks", expected, got));
                };
                let read = |chunk: &Json| chunk.read::<Value>();
                match kept.iter().map(read).collect() {
                    Ok(got) => {
                        let expected = Value::from(outputs.clone());
                        let got = Value::Array(got);
                        compare("chunks", &expected, &got, Extent::Whole, found);
                    }
                    Err(error) => found.push(Difference::new("chunks", "JSON", error.to_string())),
                }
            }
        }
    }

    fn compare_budgets(&self, seen: &Observed, found: &mut Vec<Difference>) {
        let fuel = seen.local.as_ref().and_then(|local| local.fuel);
        let is_over = |max: Option<u64>, used: Option<u64>| {
            Some((max?, used?)).filter(|(max, used)| used > max)
        };
        // A timeout has been reported already.
        let run_ms = (seen.status != JobStatus::TimedOut).then(|| seen.run_ms());
        for (what, max, used, unit) in [
            ("max_ms", self.max_ms, Some(seen.run_ms()), " ms"),
            ("timeout", self.timeout_ms, run_ms, " ms"),
            ("max_fuel", self.max_fuel, fuel, ""),
        ] {
            if let Some((max, used)) = is_over(max, used) {
                let (most, used) = (format!("at most {max}{unit}"), format!("{used}{unit}"));
                found.push(Difference::new(what, most, used));
            }
        }
    }
}

fn matching(regex: &Regex) -> String {
    format!("a match of /{regex}/")
}

#[cfg(test)]
#[path = "expect_tests.rs"]
mod tests;
