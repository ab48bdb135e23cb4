//! A clock that a test controls, for tests of the whole host: it starts at the system's time,
//! stands still, and moves by the number of milliseconds in each line on standard input.
//!
//! Each move is answered on standard output with `{"clock":<ms since the Unix epoch>}`. When the
//! input ends, the clock stands still for ever. A handler's time limit (executionTimeout), the
//! waiting time of a call, and the limit of unauthenticated calls use real time, with any clock.

use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::thread;

use anyhow::Context as _;
use gristmill_core::time::{Clock, ManualClock, SystemClock};
use tracing::error;

/// Starts the clock, and the thread that reads its moves.
///
/// # Errors
/// When the thread cannot be started.
pub(crate) fn start() -> anyhow::Result<Arc<dyn Clock>> {
    let clock = Arc::new(ManualClock::new(SystemClock.now()));
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
        let Ok(ms) = line.trim().parse() else {
            error!("the clock was not moved: `{line}` is not a number of milliseconds");
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
    use gristmill_core::time::Timestamp;

    use super::*;

    #[test]
    fn each_number_moves_the_clock_and_nothing_else_does() {
        let clock = ManualClock::new(Timestamp::from_millis(1_000));
        let mut answers = Vec::new();
        follow(&clock, &b"5\nsoon\n-1\n\xff\n\n 20 \n"[..], &mut answers).unwrap();
        assert_eq!(String::from_utf8(answers).unwrap(), "{\"clock\":1005}\n{\"clock\":1025}\n");
    }
}
