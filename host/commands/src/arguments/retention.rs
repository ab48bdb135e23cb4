//! `--keep-completed`, `--keep-failed`, `--keep-cancelled`, `--keep-max-jobs` and `--keep-max-mib`:
//! how long an endpoint keeps jobs after their end, and how many.

use clap::Args;
use gristmill_client::wire::bounds::{Bounds, RETENTION_MS};
use gristmill_client::wire::management::RetentionInput;
use jiff::{Span, SpanRelativeTo, Unit};

/// The given retentions.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Endpoint")]
pub(crate) struct RetentionOptions {
    /// How long jobs are kept after they complete, from 1m to 30d; `default` restores the default
    /// [default: 30m, or 1m for runsync].
    #[arg(long, value_name = "TIME", value_parser = retention)]
    keep_completed: Option<Retention>,
    /// How long jobs are kept, with their inputs, after they fail or time out [default: the same].
    #[arg(long, value_name = "TIME", value_parser = retention)]
    keep_failed: Option<Retention>,
    /// How long jobs are kept after they are cancelled [default: the same].
    #[arg(long, value_name = "TIME", value_parser = retention)]
    keep_cancelled: Option<Retention>,
    /// Most ended jobs; the oldest ones beyond are deleted earlier; 0 removes the bound [default:
    /// no bound].
    #[arg(long, value_name = "JOBS")]
    keep_max_jobs: Option<u64>,
    /// Most MiB of results, and of inputs of failed jobs; the oldest jobs beyond are deleted
    /// earlier; 0 removes the bound [default: no bound].
    #[arg(long, value_name = "MIB")]
    keep_max_mib: Option<u64>,
}

/// Milliseconds; 0 stands for the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Retention(u64);

impl RetentionOptions {
    /// The given fields; `None` without any.
    pub(crate) fn document(self) -> Option<RetentionInput> {
        let Self {
            keep_completed,
            keep_failed,
            keep_cancelled,
            keep_max_jobs: max_jobs,
            keep_max_mib: max_mib,
        } = self;
        let [completed, failed, cancelled] =
            [keep_completed, keep_failed, keep_cancelled].map(|given| given.map(|it| it.0));
        let given = RetentionInput { completed, failed, cancelled, max_jobs, max_mib };
        (given != RetentionInput::default()).then_some(given)
    }
}

fn retention(text: &str) -> Result<Retention, String> {
    if text == "default" {
        return Ok(Retention(0));
    }
    let Bounds { min, max, .. } = RETENTION_MS;
    let wrong = || "write a time from 1m to 30d, such as 90s, 12h or 7d, or `default`".to_owned();
    let span: Span = text.parse().map_err(|_| wrong())?;
    let ms = span.total((Unit::Millisecond, SpanRelativeTo::days_are_24_hours()));
    let ms = ms.map_err(|_| wrong())?;
    #[expect(clippy::cast_precision_loss, reason = "30 days have far fewer than 2^53 milliseconds")]
    let (min, max) = (min as f64, max as f64);
    if !(min..=max).contains(&ms) {
        return Err(wrong());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is within the bounds"
    )]
    Ok(Retention(ms as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units() {
        for (text, ms) in [
            ("1m", 60_000),
            ("90s", 90_000),
            ("1h30m", 5_400_000),
            ("7d", 604_800_000),
            ("2w", 1_209_600_000),
            ("30d", 2_592_000_000),
            ("default", 0),
        ] {
            assert_eq!(retention(text), Ok(Retention(ms)), "{text}");
        }
        for text in ["", "59s", "31d", "30d1s", "-7d", "7", "0", "1mo", "1y", "soon", "60000ms x"] {
            let error = retention(text).unwrap_err();
            assert!(error.contains("from 1m to 30d"), "{text}: {error}");
        }
    }
}
