//! Keeps a number of connections busy for a while, and measures them.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::task::JoinHandle;

use crate::call::Call;
use crate::connection::Connection;
use crate::host::Host;

/// Connections that are busy; each sends its next job when it has the answer to the one before.
pub(crate) struct Drive {
    warm: Instant,
    tasks: Vec<JoinHandle<anyhow::Result<Histogram<u64>>>>,
}

/// The results of a measurement.
pub(crate) struct Figures {
    pub(crate) jobs_per_s: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// The host's cost of each job; none if the server is not ours.
    pub(crate) cost: Option<Cost>,
}

/// The host's cost of a job.
pub(crate) struct Cost {
    pub(crate) cpu_us: f64,
    pub(crate) fsyncs: f64,
}

impl Drive {
    /// Starts the warm-up, which the measured time follows.
    pub(crate) async fn start(
        addr: &str,
        call: &Call,
        connections: usize,
        warm_up: Duration,
        measured: Duration,
    ) -> anyhow::Result<Self> {
        let mut open = Vec::with_capacity(connections);
        for _ in 0..connections {
            open.push(Connection::open(addr).await?);
        }
        let warm = Instant::now() + warm_up;
        let end = warm + measured;
        let tasks = open.into_iter().enumerate().map(|(first_turn, connection)| {
            tokio::spawn(keep_busy(connection, call.clone(), first_turn, warm, end))
        });
        Ok(Self { warm, tasks: tasks.collect() })
    }

    /// Waits for the end of the warm-up.
    async fn warmed_up(&self) {
        tokio::time::sleep_until(self.warm.into()).await;
    }

    /// Latencies in µs of the jobs that were begun in the measured time.
    pub(crate) async fn finish(self) -> anyhow::Result<Histogram<u64>> {
        let mut latencies = latencies()?;
        for task in self.tasks {
            latencies.add(task.await??)?;
        }
        Ok(latencies)
    }
}

async fn keep_busy(
    mut connection: Connection,
    call: Call,
    first_turn: usize,
    warm: Instant,
    end: Instant,
) -> anyhow::Result<Histogram<u64>> {
    let mut latencies = latencies()?;
    let mut turn = first_turn;
    loop {
        let begun = Instant::now();
        if begun >= end {
            return Ok(latencies);
        }
        call.perform(&mut connection, turn).await?;
        turn += 1;
        if begun >= warm {
            latencies.record(u64::try_from(begun.elapsed().as_micros())?)?;
        }
    }
}

/// Up to ten minutes.
pub(crate) fn latencies() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_max(600_000_000, 3)?)
}

impl Figures {
    /// The figures of `latencies` in this time.
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    pub(crate) fn of(latencies: &Histogram<u64>, measured: Duration) -> Self {
        let quantile = |q| latencies.value_at_quantile(q) as f64 / 1e3;
        Self {
            jobs_per_s: latencies.len() as f64 / measured.as_secs_f64(),
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
            cost: None,
        }
    }

    /// Drives the host, after a warm-up of a fifth of `measured`, and measures its cost.
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    pub(crate) async fn measure(
        host: &Host,
        call: &Call,
        connections: usize,
        measured: Duration,
    ) -> anyhow::Result<Self> {
        let drive = Drive::start(&host.addr, call, connections, measured / 5, measured).await?;
        drive.warmed_up().await;
        let (cpu_before, commits_before) = (host.cpu()?, host.commits().await?);
        let latencies = drive.finish().await?;
        let cpu = host.cpu()? - cpu_before;
        let commits = host.commits().await? - commits_before;
        let jobs = latencies.len().max(1) as f64;
        let cost = Cost { cpu_us: cpu.as_secs_f64() * 1e6 / jobs, fsyncs: commits as f64 / jobs };
        Ok(Self { cost: Some(cost), ..Self::of(&latencies, measured) })
    }
}
