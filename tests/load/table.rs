//! The output of the figures.

#![expect(clippy::print_stdout, reason = "the figures are for the terminal")]

use crate::drive::{Cost, Figures};

/// Prints the head of the table of workloads.
pub(crate) fn print_head() {
    println!("| Work | connections | jobs/s | p50 ms | p99 ms | host CPU µs/job | fsyncs/job |");
    println!("|---|---|---|---|---|---|---|");
}

/// One row of it.
pub(crate) fn print_row(work: &str, connections: usize, figures: &Figures) {
    let Figures { jobs_per_s, p50_ms, p99_ms, cost } = figures;
    // Slow workloads have few jobs per second.
    let digits = if *jobs_per_s < 100.0 { 1 } else { 0 };
    let cost = cost.as_ref().map_or_else(
        || "| | |".to_owned(),
        |Cost { cpu_us, fsyncs }| format!("| {cpu_us:.1} | {fsyncs:.3} |"),
    );
    println!("| {work} | {connections} | {jobs_per_s:.digits$} | {p50_ms:.2} | {p99_ms:.2} {cost}");
}

/// One JSON object, for programs.
pub(crate) fn print_json(figures: &Figures) {
    let Figures { jobs_per_s, p50_ms, p99_ms, .. } = figures;
    println!("{}", serde_json::json!({ "jobsPerS": jobs_per_s, "p50Ms": p50_ms, "p99Ms": p99_ms }));
}
