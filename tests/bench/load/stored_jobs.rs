//! The cost of waiting jobs: memory, start-up after a kill, and the rate of submissions on top of
//! them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::ensure;

use crate::call::Call;
use crate::connection::Connection;
use crate::host::Host;
use crate::workloads::{Bench, CONNECTIONS, PAYLOAD_BYTES, Prepared, echo_body, runsync};

/// An endpoint without workers: its jobs wait.
const PAUSED: &str = "paused";

/// A host on which so many jobs wait, after a kill and a start, and the call that adds one.
pub(crate) async fn prepare(bench: &Bench<'_>, count: usize) -> anyhow::Result<Prepared> {
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
    Ok(Prepared { waiting: Some(waiting), ..Prepared::new(host, call) })
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
