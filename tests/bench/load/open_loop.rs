//! A load at a fixed rate, whether or not the host can follow. The time of a job counts from its
//! scheduled start, so that a host that stalls is charged for all delayed jobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::call::Call;
use crate::connection::Connection;
use crate::drive::latencies;

/// Most concurrent jobs. The next one is late then, and its time counts.
const CONNECTIONS: usize = 256;

/// The load; it ends when it is dropped.
pub(crate) struct OpenLoop {
    latencies: Vec<Arc<Mutex<Histogram<u64>>>>,
    tasks: JoinSet<anyhow::Result<()>>,
}

/// The scheduled times of the jobs.
struct Schedule {
    started: Instant,
    jobs_per_s: f64,
    next: AtomicU64,
}

impl Schedule {
    /// The number of the next job, and its scheduled time.
    #[expect(clippy::cast_precision_loss, reason = "exact for the first 9 * 10^15 jobs")]
    fn next(&self) -> (u64, Instant) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let after = Duration::from_secs_f64(number as f64 / self.jobs_per_s);
        (number, self.started + after)
    }
}

impl OpenLoop {
    pub(crate) async fn start(addr: &str, call: &Call, jobs_per_s: f64) -> anyhow::Result<Self> {
        let mut open = Vec::with_capacity(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            open.push(Connection::open(addr).await?);
        }
        let started = Instant::now();
        let schedule = Arc::new(Schedule { started, jobs_per_s, next: AtomicU64::new(0) });
        let mut load = Self { latencies: Vec::with_capacity(CONNECTIONS), tasks: JoinSet::new() };
        for connection in open {
            let own = Arc::new(Mutex::new(latencies()?));
            load.latencies.push(own.clone());
            load.tasks.spawn(keep_to(schedule.clone(), connection, call.clone(), own));
        }
        Ok(load)
    }

    /// Latencies in µs since the last call of this.
    pub(crate) fn take(&self) -> anyhow::Result<Histogram<u64>> {
        let mut all = latencies()?;
        for own in &self.latencies {
            let mut own = own.lock();
            all.add(&*own)?;
            own.reset();
        }
        Ok(all)
    }

    /// Waits until a job fails.
    pub(crate) async fn failure(&mut self) -> anyhow::Error {
        match self.tasks.join_next().await {
            Some(Ok(Err(error))) => error,
            Some(Err(error)) => error.into(),
            Some(Ok(Ok(()))) | None => anyhow::anyhow!("the load has ended"),
        }
    }
}

async fn keep_to(
    schedule: Arc<Schedule>,
    mut connection: Connection,
    call: Call,
    latencies: Arc<Mutex<Histogram<u64>>>,
) -> anyhow::Result<()> {
    loop {
        let (number, begins) = schedule.next();
        tokio::time::sleep_until(begins.into()).await;
        call.perform(&mut connection, usize::try_from(number)?).await?;
        latencies.lock().record(u64::try_from(begins.elapsed().as_micros())?)?;
    }
}
