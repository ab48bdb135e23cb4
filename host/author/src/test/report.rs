//! The output about cases: a line for each as it ends, with its differences, and a sum; or one JSON
//! document.

use std::time::Duration;

use gristmill_commands::output;
use gristmill_core::job::payload::Json;
use serde::Serialize;
use serde_json::value::RawValue;

use super::cases::Case;
use super::diff::Difference;
use super::observed::Observed;
use crate::local::{describe_call, describe_stack};

/// Most differences of one case that are shown.
const DIFFERENCES_SHOWN: usize = 20;

/// Most lines of a failed case's log that are shown: the last ones.
const LOG_LINES_SHOWN: usize = 20;

/// The result of a case.
#[derive(Debug)]
pub(super) struct Outcome<'a> {
    pub(super) case: &'a Case,
    pub(super) verdict: Verdict,
    /// Its job, if there was one.
    pub(super) seen: Option<Observed>,
}

/// The failure that ended a run of cases early.
#[derive(Debug)]
pub(super) struct Failure<'a> {
    /// The case that could not run; `None` when a result could not be shown.
    pub(super) case: Option<&'a Case>,
    pub(super) error: anyhow::Error,
}

/// Whether a case met its expectations.
#[derive(Debug)]
pub(super) enum Verdict {
    /// All of them.
    Passed,
    /// Not these.
    Failed(Vec<Difference>),
    /// It was not run, for this reason.
    Skipped(String),
}

/// Number of cases of each verdict.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
    /// Those that did not run, because the run ended early.
    pub(super) without_result: usize,
}

impl<'a> Outcome<'a> {
    /// The result of a case with this job.
    pub(super) fn of(case: &'a Case, seen: Observed) -> Self {
        let differences = case.expectation.differences(&seen);
        let verdict = match differences.is_empty() {
            true => Verdict::Passed,
            false => Verdict::Failed(differences),
        };
        Self { case, verdict, seen: Some(seen) }
    }

    /// The result of a case that did not run.
    pub(super) fn skipped(case: &'a Case, reason: &str) -> Self {
        Self { case, verdict: Verdict::Skipped(reason.to_owned()), seen: None }
    }

    /// Prints it.
    ///
    /// # Errors
    /// When the reader has closed the output.
    pub(super) fn show(&self) -> anyhow::Result<()> {
        let (label, colour, rest) = match (&self.verdict, &self.seen) {
            (Verdict::Skipped(reason), _) => ("SKIP", "33", reason.clone()),
            (Verdict::Passed, Some(seen)) => ("PASS", "32", output::millis(seen.run_us)),
            (Verdict::Failed(_), Some(seen)) => ("FAIL", "31", output::millis(seen.run_us)),
            (Verdict::Passed | Verdict::Failed(_), None) => return Ok(()),
        };
        let name = output::plain(&self.case.name);
        output::result_labelled(label, colour, format_args!("{name} ({rest})"))?;
        for line in self.details() {
            output::result(format_args!("     {}", output::plain(&line)))?;
        }
        Ok(())
    }

    /// The lines that explain a failure.
    fn details(&self) -> Vec<String> {
        let Verdict::Failed(differences) = &self.verdict else { return Vec::new() };
        let mut lines: Vec<_> =
            differences.iter().take(DIFFERENCES_SHOWN).map(ToString::to_string).collect();
        if let Some(more) =
            differences.len().checked_sub(DIFFERENCES_SHOWN).filter(|more| *more > 0)
        {
            lines.push(format!("and {more} more differences"));
        }
        let Some(local) = self.seen.as_ref().and_then(|seen| seen.local.as_ref()) else {
            return lines;
        };
        lines.extend(describe_stack(&local.stack));
        let left_out = local.log.len().saturating_sub(LOG_LINES_SHOWN);
        if left_out > 0 {
            lines.push(format!("log: {left_out} lines before these"));
        }
        lines.extend(local.log.iter().skip(left_out).map(|line| format!("log {line}")));
        lines
    }
}

impl Sum {
    pub(super) fn of(outcomes: &[Outcome<'_>]) -> Self {
        outcomes.iter().fold(Self::default(), |mut sum, outcome| {
            match outcome.verdict {
                Verdict::Passed => sum.passed += 1,
                Verdict::Failed(_) => sum.failed += 1,
                Verdict::Skipped(_) => sum.skipped += 1,
            }
            sum
        })
    }

    /// The closing line.
    pub(super) fn describe(self, took: Duration) -> String {
        let Self { passed, failed, skipped, without_result } = self;
        let mut parts = vec![format!("{passed} passed")];
        parts.extend((failed > 0).then(|| format!("{failed} failed")));
        parts.extend((skipped > 0).then(|| format!("{skipped} skipped")));
        parts.extend((without_result > 0).then(|| format!("{without_result} without a result")));
        format!("{} in {:.1} s", parts.join(", "), took.as_secs_f64())
    }
}

/// The document of `--json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    passed: usize,
    failed: usize,
    skipped: usize,
    duration_ms: u128,
    /// Why the run ended early, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    tests: Vec<TestDocument<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TestDocument<'a> {
    name: &'a str,
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    differences: &'a [Difference],
    #[serde(flatten)]
    job: Option<JobDocument<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct JobDocument<'a> {
    status: &'static str,
    run_us: u64,
    /// The status of the answer to a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    http_status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fuel: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes_peak: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stack: Vec<String>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    log: &'a [String],
}

/// All outcomes as one JSON document.
///
/// # Errors
/// None, in practice.
pub(super) fn document(
    outcomes: &[Outcome<'_>],
    failure: Option<&Failure<'_>>,
    took: Duration,
) -> anyhow::Result<String> {
    let Sum { passed, failed, skipped, .. } = Sum::of(outcomes);
    let tests = outcomes.iter().map(test_document).collect();
    let error = failure.map(|failure| format!("{:#}", failure.error));
    let duration_ms = took.as_millis();
    let document = Document { passed, failed, skipped, duration_ms, error, tests };
    Ok(serde_json::to_string(&document)?)
}

fn test_document<'a>(outcome: &'a Outcome<'_>) -> TestDocument<'a> {
    let (result, reason, differences): (_, _, &[Difference]) = match &outcome.verdict {
        Verdict::Passed => ("passed", None, &[]),
        Verdict::Failed(differences) => ("failed", None, differences),
        Verdict::Skipped(reason) => ("skipped", Some(reason.as_str()), &[]),
    };
    let job = outcome.seen.as_ref().map(job_document);
    TestDocument { name: &outcome.case.name, result, reason, differences, job }
}

fn job_document(seen: &Observed) -> JobDocument<'_> {
    // The same text, so that large integers survive.
    let raw = |json: &Json| RawValue::from_string(json.as_str().to_owned()).ok();
    let local = seen.local.as_ref();
    JobDocument {
        status: seen.status.as_str(),
        run_us: seen.run_us,
        http_status: seen.head.as_ref().map(|head| head.status.as_u16()),
        output: seen.output.as_ref().and_then(raw),
        error: seen.error.as_deref(),
        fuel: local.and_then(|local| local.fuel),
        memory_bytes_peak: local.map(|local| local.memory_bytes_peak),
        stack: local
            .map(|local| local.stack.iter().map(describe_call).collect())
            .unwrap_or_default(),
        log: local.map_or(&[], |local| local.log.as_slice()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_counts_the_cases() {
        let took = Duration::from_millis(349);
        let sum = |passed, failed, skipped| {
            Sum { passed, failed, skipped, without_result: 0 }.describe(took)
        };
        assert_eq!(sum(5, 1, 0), "5 passed, 1 failed in 0.3 s");
        assert_eq!(sum(5, 0, 0), "5 passed in 0.3 s");
        assert_eq!(sum(0, 2, 1), "0 passed, 2 failed, 1 skipped in 0.3 s");
        let early = Sum { passed: 2, without_result: 3, ..Sum::default() };
        assert_eq!(early.describe(took), "2 passed, 3 without a result in 0.3 s");
    }
}
