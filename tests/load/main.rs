//! The load generator behind `make bench`: starts the real host on an empty directory, deploys the
//! echo handler, and prints what it measured with the machine that it ran on.

#![expect(
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a tool for the terminal, which may stop at the first surprise"
)]

mod connection;
mod host;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use hdrhistogram::Histogram;

use crate::connection::{Connection, request};
use crate::host::Host;

/// How long each figure is measured, after a warm-up of a fifth of it.
const SECONDS: u64 = 5;

/// Bytes of the echoed payload.
const PAYLOAD_BYTES: usize = 256;

/// What a measurement gives.
struct Figures {
    jobs_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    host_cpu_us: f64,
    fsyncs_per_job: f64,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(&arguments))
}

struct Arguments {
    host: PathBuf,
    handlers: PathBuf,
}

impl Arguments {
    fn parse() -> anyhow::Result<Self> {
        let (mut host, mut handlers) = (None, None);
        let mut arguments = std::env::args_os().skip(1);
        while let Some(name) = arguments.next() {
            let value = arguments.next().map(PathBuf::from);
            match name.to_str() {
                Some("--host") => host = value,
                Some("--handlers") => handlers = value,
                _ => anyhow::bail!("usage: load --host GRISTMILL --handlers DIRECTORY"),
            }
        }
        Ok(Self {
            host: host.context("--host is missing")?,
            handlers: handlers.context("--handlers is missing")?,
        })
    }
}

async fn measure(arguments: &Arguments) -> anyhow::Result<()> {
    let host = Host::start(&arguments.host)?;
    host.deploy(&arguments.handlers.join("echo.wasm"), "echo")?;
    println!("{}", host::machine());
    println!("{}", host.describe());
    println!("payload {PAYLOAD_BYTES} B, {SECONDS} s each, load generator on the same cores\n");
    println!("| Work | connections | jobs/s | p50 ms | p99 ms | host CPU µs/job | fsyncs/job |");
    println!("|---|---|---|---|---|---|---|");
    for connections in [1, 16, 64] {
        let figures = run(&host, "runsync", connections).await?;
        print_row("/runsync echo", connections, &figures);
    }
    let figures = run(&host, "run", 64).await?;
    print_row("/run echo, workers draining", 64, &figures);
    println!("\nhost memory after all of it: {} MiB", host.resident_mib()?);
    Ok(())
}

fn print_row(work: &str, connections: usize, figures: &Figures) {
    let Figures { jobs_per_s, p50_ms, p99_ms, host_cpu_us, fsyncs_per_job } = figures;
    println!(
        "| {work} | {connections} | {jobs_per_s:.0} | {p50_ms:.2} | {p99_ms:.2} | \
         {host_cpu_us:.1} | {fsyncs_per_job:.3} |"
    );
}

/// Keeps `connections` calls going for the measured time.
async fn run(host: &Host, operation: &str, connections: usize) -> anyhow::Result<Figures> {
    let text = "x".repeat(PAYLOAD_BYTES - r#"{"text":""}"#.len());
    let body = format!(r#"{{"input":{{"text":"{text}"}}}}"#);
    let path = format!("/v2/echo/{operation}");
    let request = request("POST", &path, &host.key, &body);
    let warm = Instant::now() + Duration::from_millis(SECONDS * 200);
    let end = warm + Duration::from_secs(SECONDS);
    let mut tasks = Vec::new();
    for _ in 0..connections {
        let mut connection = Connection::open(&host.addr).await?;
        let (request, is_sync) = (request.clone(), operation == "runsync");
        tasks.push(tokio::spawn(async move {
            let mut latencies = Histogram::<u64>::new_with_max(60_000_000, 3)?;
            loop {
                let sent = Instant::now();
                if sent >= end {
                    return anyhow::Ok(latencies);
                }
                let answer = connection.call(&request).await?;
                ensure!(
                    answer.status == 200 && (!is_sync || has(answer.body, b"\"COMPLETED\"")),
                    "{} {}",
                    answer.status,
                    String::from_utf8_lossy(answer.body)
                );
                if sent >= warm {
                    latencies.record(u64::try_from(sent.elapsed().as_micros())?)?;
                }
            }
        }));
    }
    tokio::time::sleep_until(warm.into()).await;
    let (cpu_before, commits_before) = (host.cpu()?, host.commits().await?);
    let mut latencies = Histogram::<u64>::new_with_max(60_000_000, 3)?;
    for task in tasks {
        latencies.add(task.await??)?;
    }
    let (cpu, commits) = (host.cpu()? - cpu_before, host.commits().await? - commits_before);
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let (jobs, commits) = (latencies.len() as f64, commits as f64);
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let quantile = |q| latencies.value_at_quantile(q) as f64 / 1e3;
    host.wait_until_idle("echo").await?;
    Ok(Figures {
        jobs_per_s: jobs / Duration::from_secs(SECONDS).as_secs_f64(),
        p50_ms: quantile(0.5),
        p99_ms: quantile(0.99),
        host_cpu_us: cpu.as_secs_f64() * 1e6 / jobs,
        fsyncs_per_job: commits / jobs,
    })
}

fn has(text: &[u8], what: &[u8]) -> bool {
    text.windows(what.len()).any(|window| window == what)
}
