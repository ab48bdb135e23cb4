//! `--junit`: the results as XML for build servers.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::report::{Failure, Outcome, Verdict};

/// Writes the file. `suite` is the name of the tested handler or endpoint. A case that could not
/// run, and ended the run, is an error; the cases behind it are left out.
///
/// # Errors
/// Errors of the file system.
pub(super) fn write(
    path: &Path,
    suite: &str,
    outcomes: &[Outcome<'_>],
    failure: Option<&Failure<'_>>,
    took: Duration,
) -> anyhow::Result<()> {
    let mut tests = TestSuite::new(suite);
    tests.set_time(took);
    tests.add_test_cases(outcomes.iter().map(|outcome| test_case(suite, outcome)));
    if let Some(Failure { case: Some(case), error }) = failure {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
        status.set_message(format!("{error:#}"));
        let mut case = TestCase::new(case.name.as_str(), status);
        case.set_classname(suite);
        tests.add_test_case(case);
    }
    let mut report = Report::new("gristmill test");
    report.set_time(took).add_test_suite(tests);
    let name = path.display();
    let text = report.to_string().with_context(|| format!("cannot write {name}"))?;
    std::fs::write(path, text).with_context(|| format!("cannot write {name}"))
}

fn test_case(suite: &str, outcome: &Outcome<'_>) -> TestCase {
    let status = match &outcome.verdict {
        Verdict::Passed => TestCaseStatus::success(),
        Verdict::Skipped(reason) => {
            let mut skipped = TestCaseStatus::skipped();
            skipped.set_message(reason.as_str());
            skipped
        }
        Verdict::Failed(differences) => {
            let mut failed = TestCaseStatus::non_success(NonSuccessKind::Failure);
            let lines: Vec<_> = differences.iter().map(ToString::to_string).collect();
            failed.set_message(lines.first().map_or("", String::as_str));
            failed.set_description(lines.join("\n"));
            failed
        }
    };
    let mut case = TestCase::new(outcome.case.name.as_str(), status);
    case.set_classname(suite);
    if let Some(seen) = &outcome.seen {
        case.set_time(Duration::from_micros(seen.run_us));
        if let Some(local) = seen.local.as_ref().filter(|local| !local.log.is_empty()) {
            case.set_system_err(local.log.join("\n"));
        }
    }
    case
}
