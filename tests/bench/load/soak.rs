//! `make soak`: the host at 70 % of its capacity for a long time, with results that expire all the
//! time. Its memory, its disk and its latencies must stay constant.

#![expect(clippy::print_stdout, reason = "the figures are for the terminal")]

use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::arguments::SoakArguments;
use crate::call::Call;
use crate::drive::{Drive, Figures};
use crate::host::{self, Host};
use crate::open_loop::OpenLoop;
use crate::samples::{Csv, Sample};
use crate::trend::{Flat, Trend};
use crate::workloads::{PAYLOAD_BYTES, echo_body, runsync};

/// The measurement of the capacity, which is the rate that the host can sustain: with a full
/// journal, so that every job is checkpointed into the database, and with results that expire.
const CLOSED_CONNECTIONS: usize = 64;
const CLOSED_WARM_UP: Duration = Duration::from_secs(75);
const CLOSED_LASTS: Duration = Duration::from_secs(15);

/// The load, as a part of the capacity.
const LOAD: f64 = 0.7;

/// Time between two observations of the host.
const PERIOD: Duration = Duration::from_secs(10);

/// Until then no result expires, and the journal is not full yet, so growth is normal.
const SETTLED_AFTER: Duration = Duration::from_secs(150);

/// Results of `/runsync` are kept for a minute; with this ttl so are those of `/run`.
const TTL_MS: u64 = 60_000;

const LARGE_BYTES: usize = 64 << 10;
const CHUNKS: usize = 20;

/// The mix: of 100 jobs these are polled, large and streamed; callers wait for the others.
const POLLED: usize = 6;
const LARGE: usize = 2;
const STREAMED: usize = 2;

/// The columns that must stay flat.
const COLUMNS: [(&str, Flat); 7] = [
    ("rss_mib", Flat { part: 0.05, beside: 8.0 }),
    ("journal_mib", Flat { part: 0.05, beside: 64.0 }),
    ("database_mib", Flat { part: 0.05, beside: 16.0 }),
    ("p99_ms", Flat { part: 0.2, beside: 1.0 }),
    ("open_files", Flat { part: 0.05, beside: 2.0 }),
    ("threads", Flat { part: 0.05, beside: 2.0 }),
    ("waiting_jobs", Flat { part: 0.0, beside: 100.0 }),
];

/// Measures the capacity, runs the load, observes the host, and reports the result.
pub(crate) async fn run(arguments: &SoakArguments) -> anyhow::Result<()> {
    let SoakArguments { host: binary, handlers, csv, lasts } = arguments;
    let deployed = || -> anyhow::Result<Host> {
        let host = Host::start(binary, &[], &[])?;
        for name in ["echo", "playground"] {
            host.deploy(&handlers.join(name).with_extension("wasm"), name, &[])?;
        }
        Ok(host)
    };
    let host = deployed()?;
    println!("{}\n{}", host::machine(), host.describe());
    let (mixed, warm_up) = (mix(&host), CLOSED_WARM_UP);
    let drive = Drive::start(&host.addr, &mixed, CLOSED_CONNECTIONS, warm_up, CLOSED_LASTS).await?;
    let closed = Figures::of(&drive.finish().await?, CLOSED_LASTS);
    drop(host);
    let jobs_per_s = closed.jobs_per_s * LOAD;
    println!(
        "capacity {:.0} jobs/s at {CLOSED_CONNECTIONS} connections (p50 {:.2} ms, p99 {:.2} ms); \
         load {jobs_per_s:.0} jobs/s for {} s",
        closed.jobs_per_s,
        closed.p50_ms,
        closed.p99_ms,
        lasts.as_secs()
    );

    let host = deployed()?;
    let samples = under_load(&host, jobs_per_s, *lasts, Csv::create(csv)?).await?;
    verdict(&samples, jobs_per_s)
}

async fn under_load(
    host: &Host,
    jobs_per_s: f64,
    lasts: Duration,
    mut csv: Csv,
) -> anyhow::Result<Vec<Sample>> {
    let mut load = OpenLoop::start(&host.addr, &mix(host), jobs_per_s).await?;
    let (started, mut last) = (Instant::now(), Instant::now());
    let mut samples = Vec::new();
    while started.elapsed() < lasts {
        tokio::select! {
            error = load.failure() => return Err(error),
            () = tokio::time::sleep_until((last + PERIOD).into()) => {}
        }
        let (latencies, period) = (load.take()?, last.elapsed());
        last = Instant::now();
        let endpoints = ["echo", "playground"];
        let sample = Sample::take(host, &endpoints, started.elapsed(), period, &latencies).await?;
        csv.write(&sample)?;
        samples.push(sample);
    }
    Ok(samples)
}

/// The jobs of one connection, in turn.
fn mix(host: &Host) -> Call {
    let policy = |input: &str| format!(r#"{{"input":{input},"policy":{{"ttl":{TTL_MS}}}}}"#);
    let small = runsync(host, "echo", &echo_body(PAYLOAD_BYTES));
    let large = runsync(host, "echo", &echo_body(LARGE_BYTES));
    let submit = host.request("POST", "/v2/echo/run", &policy(r#"{"grain":"wheat"}"#)).into();
    let polled = Call::Polled { submit, job: host.job_paths("echo") };
    let input = format!(r#"{{"op":"stream","count":{CHUNKS}}}"#);
    let submit = host.request("POST", "/v2/playground/run", &policy(&input)).into();
    let job = host.job_paths("playground");
    let streamed = Call::Streamed { submit, job, is_sse: true, chunks: CHUNKS };
    // The rare kinds are spread evenly.
    let calls = (0..100).map(|number| match number % 10 {
        3 if number / 10 < POLLED => polled.clone(),
        5 if number / 10 < LARGE => large.clone(),
        7 if number / 10 < STREAMED => streamed.clone(),
        _ => small.clone(),
    });
    Call::Mixed(calls.collect())
}

/// Prints the trends of the columns in the last two thirds of the time; in a short run, after the
/// host has settled.
fn verdict(samples: &[Sample], jobs_per_s: f64) -> anyhow::Result<()> {
    let grown = SETTLED_AFTER.as_secs() / PERIOD.as_secs();
    let skipped = (samples.len() / 3).max(usize::try_from(grown)?);
    ensure!(skipped < samples.len(), "too short: the host settles for {SETTLED_AFTER:?}");
    let settled = &samples[skipped..];
    println!(
        "\n| last {} of {} samples | first | last | mean | rise | flat up to | |",
        settled.len(),
        samples.len()
    );
    println!("|---|---|---|---|---|---|---|");
    let mut rising = Vec::new();
    for (column, flat) in COLUMNS {
        let points: Vec<_> =
            settled.iter().map(|sample| (sample.get("seconds"), sample.get(column))).collect();
        let trend = Trend::of(&points);
        let is_flat = trend.rise <= trend.bound(flat);
        let (first, last) = (points[0].1, points[points.len() - 1].1);
        println!(
            "| {column} | {first:.1} | {last:.1} | {:.1} | {:+.1} | {:.1} | {} |",
            trend.mean,
            trend.rise,
            trend.bound(flat),
            if is_flat { "flat" } else { "RISES" }
        );
        if !is_flat {
            rising.push(column);
        }
    }
    let least = settled.iter().map(|sample| sample.get("jobs_per_s")).fold(f64::MAX, f64::min);
    println!("\n{jobs_per_s:.0} jobs/s were asked for, in the slowest period {least:.0} were done");
    ensure!(least >= jobs_per_s * 0.9, "the host did not keep up with the load");
    ensure!(rising.is_empty(), "not flat: {}", rising.join(", "));
    Ok(())
}
