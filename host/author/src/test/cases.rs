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
//! A case has an `input`, and may have a `name`, a `timeout` in milliseconds, `env`, and the
//! expectations of [`CaseDocument`]. Unknown keys are refused, since a mistyped expectation would
//! never fail. Beside `tests` there may be a `config`, which describes machines of a hosted service
//! and is ignored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use gristmill_client::wire::settings::check_env;
use gristmill_commands::arguments::InputSource;
use gristmill_core::job::payload::Json;
use gristmill_core::job::state::JobStatus;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::expect::{Chunks, Expectation, regex, schema};
use crate::limits::TIMEOUT_MS;

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

/// One case.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) input: Json,
    pub(super) env: BTreeMap<String, String>,
    pub(super) expectation: Expectation,
    /// The position of the case's closing brace in the file.
    pub(super) end: usize,
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
    /// The status in which the job must end.
    expected_status: Option<String>,
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
    Ok((cases.collect::<anyhow::Result<_>>()?, file.config.is_some()))
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
        let input = case.input.context("`input` is missing")?;
        let input = Json::from_value(&InputSource::Text(input.get().to_owned()).read()?);
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
            status: case.expected_status.as_deref().map(status).transpose()?,
            max_ms: case.max_ms,
            max_fuel: case.max_fuel,
            timeout_ms: case.timeout,
        };
        expectation.check()?;
        Ok(Self { name, input, env: case.env, expectation, end })
    }
}

fn status(text: &str) -> anyhow::Result<JobStatus> {
    let found = text.parse().ok().filter(|status: &JobStatus| status.is_final());
    found.with_context(|| {
        let all = JobStatus::ALL.into_iter().filter(|status| status.is_final());
        let all: Vec<_> = all.map(JobStatus::as_str).collect();
        format!("`expected_status` must be one of {}, not `{text}`", all.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosted_services_file_is_read() {
        let text = r#"{"tests":[{"name":"a","input":{"n":9007199254740993},"timeout":10000},
            {"input":{},"expected_output":null}],"config":{"gpuTypeId":"x","env":[]}}"#;
        let (cases, has_config) = parse(text).unwrap();
        assert!(has_config);
        assert_eq!((cases[0].name.as_str(), cases[1].name.as_str()), ("a", "case 2"));
        assert_eq!(cases[0].input.as_str(), r#"{"n":9007199254740993}"#);
        assert_eq!(cases[0].expectation.timeout_ms, Some(10_000));
        assert!(!cases[0].expectation.is_about_result());
        assert_eq!(cases[1].expectation.output, Some(Value::Null));
        assert!(cases.iter().all(|case| text[case.end..].starts_with('}')));
    }

    #[test]
    fn errors_name_the_wrong_value_and_the_allowed_ones() {
        let of = |case: &str| format!(r#"{{"tests":[{{"name":"a","input":{{}}{case}}}]}}"#);
        let cases = [
            (String::new(), "the file is empty; it must be a JSON object such as {\"tests\""),
            ("[]".to_owned(), "expected struct"),
            (r#"{"test":[]}"#.to_owned(), "unknown field `test`, expected `tests` or `config`"),
            (r#"{"tests":[]}"#.to_owned(), "`tests` is empty"),
            (r#"{"tests":[{"name":"a"}]}"#.to_owned(), "case 1 (`a`): `input` is missing"),
            (r#"{"tests":[{"input":[1]}]}"#.to_owned(), "the input must be a JSON object"),
            (
                of(r#","expectedOutput":1"#),
                "unknown field `expectedOutput`, expected one of `name`",
            ),
            (of(r#","timeout":0"#), "`timeout` must be 1 to 604800000 ms, not 0"),
            (of(r#","expected_regex":"(""#), "`expected_regex` is not a regular expression"),
            (
                of(r#","expected_schema":{"type":"grain"}"#),
                "`expected_schema` is not a JSON Schema",
            ),
            (of(r#","expected_chunks":"2""#), "`expected_chunks` must be a list of outputs"),
            (
                of(r#","expected_status":"IN_QUEUE""#),
                "must be one of COMPLETED, FAILED, CANCELLED, TIMED_OUT, not `IN_QUEUE`",
            ),
            (of(r#","expected_error":"x","expected_output":1"#), "only a COMPLETED job has"),
            (of(r#","env":{"A=B":""}"#), "`env` has a variable `A=B`; a name has"),
            (of(r#","max_ms":-1"#), "expected u64"),
        ];
        for (text, expected) in cases {
            let error = format!("{:#}", parse(&text).unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
        }
        let missing = CaseFile::read(None, Path::new("/nonexistent")).unwrap_err().to_string();
        assert!(missing.contains("--cases FILE"), "{missing}");
    }
}
