//! A file of cases:
//!
//! ```json
//! {
//!   "tests": [
//!     {
//!       "name": "counts words",
//!       "input": { "text": "to be or not to be" },
//!       "expected_output": { "words": 6 },
//!       "timeout": 1000
//!     }
//!   ]
//! }
//! ```
//!
//! A case has an `input`, or a `request` for a handler of HTTP, which may have `headers` and a
//! `body`. It may have a `name`, a `timeout` in milliseconds, `env`, and the expectations of
//! [`CaseDocument`]. Unknown keys are refused, since a mistyped expectation would never fail.
//! Beside `tests` there may be a `config`, which describes machines of a hosted service and is
//! ignored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use gristmill_client::wire::settings::check_env;
use gristmill_commands::arguments::InputSource;
use gristmill_core::job::payload::Json;
use gristmill_core::job::state::JobStatus;
use http::{HeaderValue, StatusCode, header};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::expect::{AnswerExpectation, Chunks, Expectation, regex, schema};
use crate::limits::TIMEOUT_MS;
use crate::local::{GivenRequest, parse_header};

/// The name of the file when none is given.
pub(super) const FILE_NAME: &str = "tests.json";

/// A parsed file of cases.
#[derive(Debug)]
pub(super) struct CaseFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
    pub(super) cases: Vec<Case>,
    /// Whether it has a `config`.
    pub(super) has_config: bool,
}

impl CaseFile {
    /// Whether its cases are requests.
    pub(super) fn has_requests(&self) -> bool {
        self.cases.iter().any(|case| matches!(case.call, CaseCall::Request(_)))
    }
}

/// One case.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) call: CaseCall,
    pub(super) env: BTreeMap<String, String>,
    pub(super) expectation: Expectation,
    /// The position of the case's closing brace in the file.
    pub(super) end: usize,
}

/// What the handler is called with.
#[derive(Debug)]
pub(super) enum CaseCall {
    Job(Json),
    Request(GivenRequest),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileDocument<'a> {
    #[serde(borrow)]
    tests: Vec<&'a RawValue>,
    #[serde(borrow)]
    config: Option<&'a RawValue>,
}

/// The fields of a case in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseDocument<'a> {
    name: Option<String>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    /// The method and the path of a request.
    request: Option<String>,
    /// The headers of the request.
    headers: Option<BTreeMap<String, String>>,
    /// The body of the request: a string, or else its JSON.
    #[serde(borrow)]
    body: Option<&'a RawValue>,
    timeout: Option<u64>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// The output.
    #[serde(default, deserialize_with = "present")]
    expected_output: Option<Value>,
    /// A part of the output: each object must have at least these keys.
    #[serde(default, deserialize_with = "present")]
    expected_subset: Option<Value>,
    /// A JSON Schema of the output.
    #[serde(default, deserialize_with = "present")]
    expected_schema: Option<Value>,
    /// A regular expression for the output: a string, or else its JSON text.
    expected_regex: Option<String>,
    /// The outputs of all chunks, or their number.
    #[serde(default, deserialize_with = "present")]
    expected_chunks: Option<Value>,
    /// A regular expression for the error; the job must end FAILED.
    expected_error: Option<String>,
    /// The status in which the job must end, or the number of the answer's status.
    expected_status: Option<Value>,
    /// Headers of the answer; null for one that it must not have.
    expected_headers: Option<BTreeMap<String, Option<String>>>,
    /// Most milliseconds that it may run.
    max_ms: Option<u64>,
    /// Most fuel that it may use.
    max_fuel: Option<u64>,
}

/// A present value, even if it is null.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

impl CaseFile {
    /// Reads the file at `path`, or else the one in `dir`.
    ///
    /// # Errors
    /// When there is none, or it is invalid.
    pub(super) fn read(path: Option<PathBuf>, dir: &Path) -> anyhow::Result<Self> {
        let is_named = path.is_some();
        let path = path.unwrap_or_else(|| dir.join(FILE_NAME));
        let name = path.display();
        if !is_named && !path.exists() {
            bail!("there are no cases: name their file (--cases FILE), or call it {name}");
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
        let parsed = parse(&text).with_context(|| format!("cannot use {name}"));
        let (cases, has_config) = parsed?;
        Ok(Self { path, text, cases, has_config })
    }
}

fn parse(text: &str) -> anyhow::Result<(Vec<Case>, bool)> {
    ensure!(
        !text.trim().is_empty(),
        "the file is empty; it must be a JSON object such as {{\"tests\": [{{\"input\": {{}}}}]}}"
    );
    let file: FileDocument<'_> = serde_json::from_str(text)?;
    ensure!(
        !file.tests.is_empty(),
        "`tests` is empty: it needs one case at least, such as {{\"input\": {{}}}}"
    );
    let cases = file.tests.iter().enumerate().map(|(index, raw)| {
        let number = index + 1;
        // The raw value is a part of the text.
        let end = raw.get().as_ptr().addr() - text.as_ptr().addr() + raw.get().len() - 1;
        Case::parse(raw.get(), number, end)
    });
    let cases: Vec<Case> = cases.collect::<anyhow::Result<_>>()?;
    let requests = cases.iter().filter(|case| matches!(case.call, CaseCall::Request(_))).count();
    ensure!(
        requests == 0 || requests == cases.len(),
        "some cases have an `input`, and some a `request`: put them into two files"
    );
    Ok((cases, file.config.is_some()))
}

impl Case {
    fn parse(text: &str, number: usize, end: usize) -> anyhow::Result<Self> {
        let case: CaseDocument<'_> =
            serde_json::from_str(text).with_context(|| format!("case {number}"))?;
        let name = case.name.clone().unwrap_or_else(|| format!("case {number}"));
        let read = Self::read(case, name.clone(), end);
        read.with_context(|| format!("case {number} (`{name}`)"))
    }

    fn read(case: CaseDocument<'_>, name: String, end: usize) -> anyhow::Result<Self> {
        let answer = answer_expectation(&case)?;
        let call = call(case.input, case.request, case.headers, case.body)?;
        if let Some(timeout) = case.timeout.filter(|ms| !TIMEOUT_MS.contains(*ms)) {
            let (min, max) = (TIMEOUT_MS.min, TIMEOUT_MS.max);
            bail!("`timeout` must be {min} to {max} ms, not {timeout}");
        }
        check_env("env", &case.env)?;
        let pattern =
            |field: &str, text: Option<String>| text.map(|text| regex(field, &text)).transpose();
        let expectation = Expectation {
            output: case.expected_output,
            subset: case.expected_subset,
            schema: case.expected_schema.as_ref().map(schema).transpose()?,
            regex: pattern("expected_regex", case.expected_regex)?,
            chunks: case.expected_chunks.map(Chunks::new).transpose()?,
            error: pattern("expected_error", case.expected_error)?,
            status: case.expected_status.as_ref().map(job_status).transpose()?.flatten(),
            answer,
            max_ms: case.max_ms,
            max_fuel: case.max_fuel,
            timeout_ms: case.timeout,
        };
        expectation.check()?;
        Ok(Self { name, call, env: case.env, expectation, end })
    }
}

/// The input of a case, or its request.
fn call(
    input: Option<&RawValue>,
    request: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    body: Option<&RawValue>,
) -> anyhow::Result<CaseCall> {
    let Some(request) = request else {
        ensure!(headers.is_none() && body.is_none(), "`headers` and `body` belong to a `request`");
        let input = input.context("`input` is missing; a handler of HTTP has a `request`")?;
        let input = InputSource::Text(input.get().to_owned()).read()?;
        return Ok(CaseCall::Job(Json::from_value(&input)));
    };
    ensure!(input.is_none(), "it has an `input` and a `request`: a case has one of them");
    let mut given = GivenRequest { target: request.parse()?, ..GivenRequest::default() };
    for (name, value) in headers.unwrap_or_default() {
        let (name, value) = parse_header(&name, &value)?;
        given.headers.insert(name, value);
    }
    if let Some(body) = body {
        given.body = match serde_json::from_str::<String>(body.get()) {
            Ok(text) => text.into(),
            Err(_) => {
                let json = HeaderValue::from_static("application/json");
                given.headers.entry(header::CONTENT_TYPE).or_insert(json);
                body.get().to_owned().into()
            }
        };
    }
    Ok(CaseCall::Request(given))
}

/// What a case expects of an answer, if it is a request.
fn answer_expectation(case: &CaseDocument<'_>) -> anyhow::Result<Option<AnswerExpectation>> {
    let status = case.expected_status.as_ref().filter(|value| value.is_number());
    if case.request.is_none() {
        ensure!(
            status.is_none() && case.expected_headers.is_none(),
            "a number as `expected_status`, and `expected_headers`, belong to a `request`"
        );
        return Ok(None);
    }
    ensure!(
        case.expected_chunks.is_none(),
        "a `request` has no chunks: leave `expected_chunks` out"
    );
    let status = status.map(|status| {
        let code = status.as_u64().and_then(|code| u16::try_from(code).ok());
        let code = code.and_then(|code| StatusCode::from_u16(code).ok());
        code.with_context(|| format!("`expected_status` must be 200 to 599, not {status}"))
    });
    let headers = case.expected_headers.iter().flatten().map(|(name, value)| {
        let (name, _) = parse_header(name, "")?;
        Ok((name, value.clone()))
    });
    let headers = headers.collect::<anyhow::Result<_>>()?;
    Ok(Some(AnswerExpectation { status: status.transpose()?, headers }))
}

/// The status of a job; `None` for the number of an answer's one.
fn job_status(value: &Value) -> anyhow::Result<Option<JobStatus>> {
    if value.is_number() {
        return Ok(None);
    }
    let text = value.as_str();
    let found = text.and_then(|text| text.parse().ok());
    let found = found.filter(|status: &JobStatus| status.is_final());
    let found = found.with_context(|| {
        let all = JobStatus::ALL.into_iter().filter(|status| status.is_final());
        let all: Vec<_> = all.map(JobStatus::as_str).collect();
        let text = text.map_or_else(|| value.to_string(), str::to_owned);
        format!("`expected_status` must be one of {}, not `{text}`", all.join(", "))
    })?;
    Ok(Some(found))
}

#[cfg(test)]
#[path = "cases_tests.rs"]
mod tests;
