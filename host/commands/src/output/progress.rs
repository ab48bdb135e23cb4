//! Progress of slow operations: drawn on a terminal. Elsewhere, such as in the log of a build
//! server, a slow operation is one line.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

/// Interval at which a spinner turns.
const TURN: Duration = Duration::from_millis(100);

/// Time after which an operation is slow enough for a line.
const SLOW: Duration = Duration::from_secs(1);

/// Does some work. Without a terminal, prints `line` once the work has taken a second.
pub async fn noted<T>(line: &str, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    if !output::is_terminal() {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = tokio::time::sleep(SLOW) => output::note(line),
        }
    }
    work.await
}

/// A bar that fills up with `len` bytes.
pub fn bytes_bar(len: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(len), target());
    bar.set_style(style("{msg} {wide_bar} {binary_bytes}/{binary_total_bytes}"));
    bar.set_message(output::plain(what));
    bar
}

/// A spinner beside a text.
pub fn spinner(what: &str) -> ProgressBar {
    let spinner = ProgressBar::with_draw_target(None, target());
    become_spinner(&spinner, what);
    spinner
}

/// Turns a bar into a spinner beside a text.
pub fn become_spinner(bar: &ProgressBar, what: &str) {
    bar.set_style(style("{spinner} {msg} {elapsed}"));
    bar.set_message(output::plain(what));
    bar.enable_steady_tick(TURN);
}

fn target() -> ProgressDrawTarget {
    if output::is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_is_done_whether_it_is_quick_or_slow() {
        for seconds in [0, 5] {
            let work = async {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                seconds
            };
            assert_eq!(noted("compiling", work).await, seconds);
        }
    }

    #[test]
    fn the_name_of_a_file_cannot_steer_the_terminal() {
        assert_eq!(bytes_bar(1, "a\x1b[2J").message(), "a[2J");
        assert_eq!(spinner("a\x1b[2J").message(), "a[2J");
    }

    #[test]
    fn the_templates_are_valid() {
        for template in
            ["{msg} {wide_bar} {binary_bytes}/{binary_total_bytes}", "{spinner} {msg} {elapsed}"]
        {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
