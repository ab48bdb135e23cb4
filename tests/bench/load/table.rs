//! The output of the figures.

#![expect(clippy::print_stdout, reason = "the figures are for the terminal")]

use crate::drive::{Cost, Figures};

/// One row of the table of workloads.
pub(crate) struct Row {
    /// The workload in words, the same in every run.
    pub(crate) work: String,
    pub(crate) connections: usize,
    pub(crate) figures: Figures,
}

/// The head of the table of workloads.
pub(crate) fn print_head() {
    println!("| Work | connections | jobs/s | p50 ms | p99 ms | host CPU µs/job | fsyncs/job |");
    println!("|---|---|---|---|---|---|---|");
}

/// One row of that table.
pub(crate) fn print_row(row: &Row) {
    let Row { work, connections, figures: Figures { jobs_per_s, p50_ms, p99_ms, cost } } = row;
    // Slow works have few jobs in a second.
    let digits = if *jobs_per_s < 100.0 { 1 } else { 0 };
    let cost = cost.as_ref().map_or_else(
        || "| | |".to_owned(),
        |Cost { cpu_us, fsyncs }| format!("| {cpu_us:.1} | {fsyncs:.3} |"),
    );
    println!("| {work} | {connections} | {jobs_per_s:.digits$} | {p50_ms:.2} | {p99_ms:.2} {cost}");
}

/// The second table: the cost of waiting jobs.
pub(crate) fn print_waiting(rows: &[String]) {
    if rows.is_empty() {
        return;
    }
    println!("\n| Waiting jobs | memory MiB | B for each | ready ms | first job done ms |");
    println!("|---|---|---|---|---|");
    for row in rows {
        println!("{row}");
    }
}

/// One JSON object, for programs.
pub(crate) fn print_json(figures: &Figures) {
    let Figures { jobs_per_s, p50_ms, p99_ms, .. } = figures;
    println!("{}", serde_json::json!({ "jobsPerS": jobs_per_s, "p50Ms": p50_ms, "p99Ms": p99_ms }));
}
