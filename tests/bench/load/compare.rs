//! Compares two hosts on the same workloads, in turn: `make bench-against`.
//!
//! A machine's speed drifts within minutes, so the absolute figures of two runs cannot be compared.
//! Here both programs run a workload one right after the other, the order changes with each round,
//! and the ratio is computed for each round; the median of the ratios is printed with their spread.

#![expect(clippy::print_stdout, reason = "the figures are for the terminal")]

use crate::arguments::{Against, BenchArguments};
use crate::drive::Figures;
use crate::table::Row;
use crate::workloads::{Bench, asked_for};

/// Runs the workloads with both programs and prints the ratios of the new program to the base.
pub(crate) async fn run(arguments: &BenchArguments, against: &Against) -> anyhow::Result<()> {
    let new = Bench { host: &arguments.host, arguments };
    let base = Bench { host: &against.host, arguments };
    let works = asked_for(arguments)?;
    base.introduce()?;
    new.introduce()?;
    println!("{} rounds; each figure is the new program's, divided by the base's:", against.rounds);
    println!("median (lowest to highest)\n");
    println!("| Work | connections | jobs/s | host CPU µs/job | p50 | p99 |");
    println!("|---|---|---|---|---|---|");
    for work in works {
        let mut pairs = Vec::with_capacity(against.rounds);
        for round in 0..against.rounds {
            // The order changes, since the second run of a pair finds warmer caches.
            pairs.push(if round % 2 == 0 {
                let base = base.perform(work).await?.rows;
                (base, new.perform(work).await?.rows)
            } else {
                let new = new.perform(work).await?.rows;
                (base.perform(work).await?.rows, new)
            });
        }
        print_ratios(&pairs);
    }
    Ok(())
}

/// One line for each row of a workload; `pairs` has the rows of the base and of the new program for
/// each round.
fn print_ratios(pairs: &[(Vec<Row>, Vec<Row>)]) {
    for (at, row) in pairs[0].0.iter().enumerate() {
        let ratio = |figure: fn(&Figures) -> f64| {
            let of_round = |(base, new): &(Vec<Row>, Vec<Row>)| {
                figure(&new[at].figures) / figure(&base[at].figures)
            };
            spread(pairs.iter().map(of_round).collect())
        };
        let cpu = match row.figures.cost {
            Some(_) => ratio(|figures| figures.cost.as_ref().map_or(f64::NAN, |cost| cost.cpu_us)),
            None => String::new(),
        };
        println!(
            "| {} | {} | {} | {cpu} | {} | {} |",
            row.work,
            row.connections,
            ratio(|figures| figures.jobs_per_s),
            ratio(|figures| figures.p50_ms),
            ratio(|figures| figures.p99_ms),
        );
    }
}

/// The median with the lowest and the highest ratio.
fn spread(mut ratios: Vec<f64>) -> String {
    ratios.sort_by(f64::total_cmp);
    let middle = ratios.len() / 2;
    let median = if ratios.len() % 2 == 1 {
        ratios[middle]
    } else {
        f64::midpoint(ratios[middle - 1], ratios[middle])
    };
    format!("{median:.3} ({:.3} to {:.3})", ratios[0], ratios[ratios.len() - 1])
}
