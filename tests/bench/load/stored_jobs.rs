//! The cost of waiting jobs: memory, start-up after a kill, and the rate of submissions on top of
//! them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::ensure;

use crate::call::Call;
use crate::connection::Connection;
use crate::host::Host;
use crate::table::{Measured, Row};
use crate::workloads::{Bench, PAYLOAD_BYTES, echo_body, runsync};

/// Connections that submit.
const CONNECTIONS: usize = 64;

/// An endpoint without workers: its jobs wait.
const PAUSED: &str = "paused";

/// Measures with no job, 10,000 and, in a long run, a million.
pub(crate) async fn measure(bench: &Bench<'_>) -> anyhow::Result<Measured> {
    let mut counts = vec![0, 10_000];
    if bench.arguments.is_long {
        counts.push(1_000_000);
    }
    let mut measured = Measured::default();
    for count in counts {
        let (row, waiting) = with_stored(bench, count).await?;
        measured.rows.push(row);
        measured.waiting.push(waiting);
    }
    Ok(measured)
}

/// The row of the submissions, and that of the second table.
async fn with_stored(bench: &Bench<'_>, count: usize) -> anyhow::Result<(Row, String)> {
    let host = bench.host(&[])?;
    host.deploy(&bench.handler("echo"), PAUSED, &["--workers-max", "0"])?;
    let first_job = runsync(&host, "echo", &echo_body(PAYLOAD_BYTES));
    first_job.perform(&mut Connection::open(&host.addr).await?, 0).await?;
    let empty_kib = host.resident_kib()?;
    let path = format!("/v2/{PAUSED}/run");
    let submit = host.request("POST", &path, &echo_body(PAYLOAD_BYTES));
    let call = Call::once(submit, "\"IN_QUEUE\"");
    fill(&host, &call, count).await?;
    let full_kib = host.resident_kib()?;

    let host = host.restart()?;
    let ready = Instant::now();
    first_job.perform(&mut Connection::open(&host.addr).await?, 0).await?;
    let first_after = host.ready_after + ready.elapsed();
    ensure!(host.jobs(PAUSED).await?["inQueue"] == count, "the kill has lost jobs");

    let work = format!("`/run` onto {count} waiting jobs, no worker");
    let row = bench.row(&host, &work, CONNECTIONS, &call).await?;

    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let each = match count {
        0 => String::new(),
        count => format!("{:.0}", (full_kib as f64 - empty_kib as f64) * 1024.0 / count as f64),
    };
    let waiting = format!(
        "| {count} | {} | {each} | {} | {} |",
        full_kib / 1024,
        host.ready_after.as_millis(),
        first_after.as_millis()
    );
    Ok((row, waiting))
}

/// Submits exactly `count` jobs.
async fn fill(host: &Host, call: &Call, count: usize) -> anyhow::Result<()> {
    let submitted = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        let mut connection = Connection::open(&host.addr).await?;
        let (call, submitted) = (call.clone(), Arc::clone(&submitted));
        tasks.push(tokio::spawn(async move {
            while submitted.fetch_add(1, Ordering::Relaxed) < count {
                call.perform(&mut connection, 0).await?;
            }
            anyhow::Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}
