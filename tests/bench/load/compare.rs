//! Compares two programs on the same workloads: `make bench-against`.
//!
//! A machine's speed drifts within seconds, so the absolute figures of two runs cannot be compared,
//! and neither can those of two hosts that were started in turn. Here both hosts run during the
//! whole comparison of a work, and short windows of load alternate between them. Each pair of
//! neighbouring windows gives one ratio. The output is the median of the ratios with the interval
//! that contains the true median with a probability of at least 95 %: a difference is real if the
//! interval excludes 1.
//!
//! With `--together` both hosts are under load in the same windows, so that a change of the
//! machine's speed affects both. Each window has processes of its own, since two processes of one
//! program differ by some percent for as long as they live, for example by the layout of their
//! memory. The hosts compete for the cores: the processor time of a job shows a difference best.

#![expect(clippy::print_stdout, reason = "the figures are for the terminal")]

use tokio::task::JoinSet;

use crate::arguments::{Against, BenchArguments};
use crate::beside::Beside;
use crate::drive::Figures;
use crate::workloads::{Bench, Prepared, Work, asked_for};

/// Runs the workloads with both programs and prints the ratios of the new program to the base.
pub(crate) async fn run(arguments: &BenchArguments, against: &Against) -> anyhow::Result<()> {
    let new = Bench { environment: &against.environment, ..Bench::new(arguments) };
    let base = Bench { host: &against.host, handlers: &against.handlers, ..Bench::new(arguments) };
    let works = asked_for(arguments)?;
    base.introduce()?;
    new.introduce()?;
    let seconds = arguments.measured.as_secs();
    let windows = if against.is_together { "windows of both programs" } else { "pairs of windows" };
    println!("{} {windows} of {seconds} s; each figure is the new program's,", against.pairs);
    println!("divided by the base's: median (interval of 95 %)\n");
    println!("| Work | connections | jobs/s | host CPU µs/job | p50 | p99 |");
    println!("|---|---|---|---|---|---|");
    for work in works {
        let mut hosts = start(work, &base, &new, 0).await?;
        let mut pairs = Vec::with_capacity(against.pairs);
        for turn in 0..=against.pairs {
            if against.is_together && turn > 0 {
                hosts = start(work, &base, &new, turn).await?;
            }
            let (base, new) = &hosts;
            // The order changes, since a window finds the caches of the window before it.
            let pair = if against.is_together {
                let base = window(work, base, arguments, None);
                tokio::try_join!(base, window(work, new, arguments, against.beside))?
            } else if turn % 2 == 0 {
                let base = window(work, base, arguments, None).await?;
                (base, window(work, new, arguments, against.beside).await?)
            } else {
                let new = window(work, new, arguments, against.beside).await?;
                (window(work, base, arguments, None).await?, new)
            };
            // The first pair warms both hosts up.
            if turn > 0 {
                pairs.push(pair);
            }
        }
        print_ratios(work, &pairs);
    }
    Ok(())
}

/// Starts both hosts, each of them first in every other turn.
async fn start(
    work: Work,
    base: &Bench<'_>,
    new: &Bench<'_>,
    turn: usize,
) -> anyhow::Result<(Prepared, Prepared)> {
    if turn.is_multiple_of(2) {
        let base = base.prepare(work).await?;
        return Ok((base, new.prepare(work).await?));
    }
    let new = new.prepare(work).await?;
    Ok((base.prepare(work).await?, new))
}

async fn window(
    work: Work,
    prepared: &Prepared,
    arguments: &BenchArguments,
    beside: Option<Beside>,
) -> anyhow::Result<Figures> {
    let Prepared { host, call, .. } = prepared;
    let mut observers = match beside {
        Some(beside) => beside.start(host).await?,
        None => JoinSet::new(),
    };
    let figures = Figures::measure(host, call, work.connections(), arguments.measured).await?;
    if let Some(ended) = observers.try_join_next() {
        return Err(ended?.context("an observer has ended"));
    }
    if matches!(work, Work::Run) {
        // Jobs that still wait would take time from the other host's window.
        host.wait_until_idle("echo").await?;
    }
    Ok(figures)
}

/// The line of a work; `pairs` has the figures of the base and of the new program.
fn print_ratios(work: Work, pairs: &[(Figures, Figures)]) {
    let ratio = |figure: fn(&Figures) -> f64| {
        interval(pairs.iter().map(|(base, new)| figure(new) / figure(base)).collect())
    };
    let cpu = if work.has_cost() {
        ratio(|figures| figures.cost.as_ref().map_or(f64::NAN, |cost| cost.cpu_us))
    } else {
        String::new()
    };
    println!(
        "| {} | {} | {} | {cpu} | {} | {} |",
        work.label(),
        work.connections(),
        ratio(|figures| figures.jobs_per_s),
        ratio(|figures| figures.p50_ms),
        ratio(|figures| figures.p99_ms),
    );
}

/// The median with its interval of 95 %.
///
/// The number of ratios below the true median is binomial with p = 1/2, whatever their
/// distribution. The interval therefore lies between two ranks, 1.96 of its standard deviations
/// around the middle. With fewer than six ratios it is the whole range, which contains the median
/// less often.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank of a few hundred ratios, at least 1"
)]
fn interval(mut ratios: Vec<f64>) -> String {
    ratios.sort_by(f64::total_cmp);
    let count = ratios.len();
    let median = f64::midpoint(ratios[(count - 1) / 2], ratios[count / 2]);
    let rank = (count as f64 / 2.0 - 0.98 * (count as f64).sqrt()).floor().max(1.0) as usize;
    format!("{median:.3} ({:.3} to {:.3})", ratios[rank - 1], ratios[count - rank])
}
