//! A clock that a test controls, for tests of the whole host: it starts at the system's time or at
//! a given time, stands still, and moves by the number of milliseconds in each line on standard
//! input.
//!
//! Each move is answered on standard output with `{"clock":<ms since the Unix epoch>}`. When the
//! input ends, the clock stands still for ever. A handler's time limit (executionTimeout), the
//! waiting time of a call, and the limit of unauthenticated calls use real time, with any clock.

use std::io::{self, BufRead, Write};
use std::str::FromStr;
use std::sync::Arc;
use std::thread;

use anyhow::{Context as _, bail};
use gristmill_core::time::{Clock, ManualClock, SystemClock, Timestamp};
use tracing::error;

/// The first time that a manual clock shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManualClockStart {
    /// The system's time.
    Now,
    /// This time. It opens a recorded data directory as if no time had passed since.
    At(Timestamp),
}

impl ManualClockStart {
    /// The text of [`ManualClockStart::Now`].
    pub(crate) const NOW: &str = "now";
    /// The year 9999 in milliseconds since the Unix epoch: later times cannot be shown as dates.
    const MS_MAX: u64 = 253_370_764_800_000;
}

impl FromStr for ManualClockStart {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        if text == Self::NOW {
            return Ok(Self::Now);
        }
        match text.parse() {
            Ok(ms @ 0..=Self::MS_MAX) => Ok(Self::At(Timestamp::from_millis(ms))),
            _ => bail!(
                "it is `{}`, or a time from 0 to {} in milliseconds since the Unix epoch",
                Self::NOW,
                Self::MS_MAX
            ),
        }
    }
}

/// Starts the clock, and the thread that reads its moves.
///
/// # Errors
/// When the thread cannot be started.
pub(crate) fn start(at: ManualClockStart) -> anyhow::Result<Arc<dyn Clock>> {
    let clock = Arc::new(ManualClock::new(match at {
        ManualClockStart::Now => SystemClock.now(),
        ManualClockStart::At(time) => time,
    }));
    let moved = clock.clone();
    thread::Builder::new()
        .name("manual-clock".to_owned())
        .spawn(move || {
            // When either stream ends, the clock stands still.
            let _ = follow(&moved, io::stdin().lock(), io::stdout());
        })
        .context("cannot start the thread that moves the clock")?;
    Ok(clock)
}

fn follow(clock: &ManualClock, moves: impl BufRead, mut answers: impl Write) -> io::Result<()> {
    for line in moves.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        let ms_max = ManualClockStart::MS_MAX.saturating_sub(clock.now().as_millis());
        let Some(ms) = line.trim().parse().ok().filter(|ms| *ms <= ms_max) else {
            error!("the clock was not moved: `{line}` is no number of milliseconds up to {ms_max}");
            continue;
        };
        clock.advance(ms);
        writeln!(answers, "{{\"clock\":{}}}", clock.now().as_millis())?;
        answers.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_now_or_a_time_with_a_date() {
        let at = |ms| ManualClockStart::At(Timestamp::from_millis(ms));
        let max = ManualClockStart::MS_MAX;
        for (text, expected) in [
            ("now", Some(ManualClockStart::Now)),
            ("0", Some(at(0))),
            ("1700000000000", Some(at(1_700_000_000_000))),
            (&max.to_string(), Some(at(max))),
            (&(max + 1).to_string(), None),
            ("-1", None),
            ("", None),
            ("yesterday", None),
        ] {
            assert_eq!(text.parse().ok(), expected, "{text}");
        }
    }

    #[test]
    fn each_number_moves_the_clock_and_nothing_else_does() {
        let clock = ManualClock::new(Timestamp::from_millis(1_000));
        let mut answers = Vec::new();
        let moves = b"5\nsoon\n-1\n\xff\n\n253370764800000\n 20 \n";
        follow(&clock, &moves[..], &mut answers).unwrap();
        assert_eq!(String::from_utf8(answers).unwrap(), "{\"clock\":1005}\n{\"clock\":1025}\n");
    }
}
