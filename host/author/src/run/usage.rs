//! The usage of a run, in words.

use gristmill_commands::output;
use gristmill_core::runtime::Usage;

/// The job's usage, on one line.
pub(crate) fn summary(usage: &Usage) -> String {
    described(usage, Some(usage.chunks))
}

/// The usage of an attempt, on one line, with the number of chunks that a job has.
pub(super) fn described(usage: &Usage, chunks: Option<u64>) -> String {
    let mut parts = vec![
        format!("ran {}", output::millis(usage.run_us)),
        format!("cpu {}", output::millis(usage.cpu_us)),
        format!("start {}", output::millis(usage.instantiate_us)),
    ];
    parts.extend(usage.fuel.map(|fuel| format!("fuel {}", output::grouped(fuel))));
    parts.push(format!("peak memory {}", output::size(usage.memory_bytes_peak)));
    parts.extend(chunks.map(|chunks| format!("chunks {chunks}")));
    if usage.log_lines_dropped > 0 {
        parts.push(format!("log lines dropped {}", usage.log_lines_dropped));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_shows_the_usage() {
        let usage = Usage {
            instantiate_us: 90,
            run_us: 12_345,
            cpu_us: 1_000,
            fuel: Some(1_234_567),
            memory_bytes_peak: 3 << 19,
            chunks: 2,
            ..Usage::default()
        };
        let expected = "ran 12.3 ms, cpu 1.000 ms, start 0.090 ms, fuel 1 234 567, \
                        peak memory 1.5 MiB, chunks 2";
        assert_eq!(summary(&usage), expected);
        let unmetered = summary(&Usage { fuel: None, log_lines_dropped: 3, ..usage });
        assert!(!unmetered.contains("fuel") && unmetered.ends_with("log lines dropped 3"));
    }
}
