//! What one job costs in the sandbox alone: `cargo bench -p gristmill-runtime -- ECHO.wasm`.
//!
//! Prints jobs per second and microseconds per job for a handler that returns its input, with a
//! fresh store and instance each time, by metering and by threads.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark has nobody to report an error to but its terminal"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use gristmill_core::endpoint::SandboxLimits;
use gristmill_core::endpoint::{ComponentDigest, Deployment, Endpoint, Metering};
use gristmill_core::id::{EndpointId, JobId, NodeId, OwnerId, Submission, TemplateId};
use gristmill_core::payload::Json;
use gristmill_core::record::Chunk;
use gristmill_core::runtime::{
    Attempt, AttemptEnd, AttemptSink, Components as _, LogLevel, Runtime as _, SinkClosed,
};
use gristmill_core::template::Template;
use gristmill_core::time::Timestamp;
use gristmill_runtime::{Compiler, MemoryRecords, Sandbox, SandboxSettings};
use tokio_util::sync::CancellationToken;

const WARM_UP: Duration = Duration::from_millis(500);
const MEASURE: Duration = Duration::from_secs(3);
const JOBS_PER_THREAD: usize = 4;

fn main() {
    let guest = std::env::args().skip(1).find(|arg| arg.ends_with(".wasm")).map(PathBuf::from);
    let guest = guest.unwrap_or_else(|| {
        let built = "../../handlers/target/wasm32-wasip2/release/echo.wasm";
        Path::new(env!("CARGO_MANIFEST_DIR")).join(built)
    });
    println!("guest: {}", guest.file_name().unwrap().display());
    for threads in [1, 2] {
        for metering in [Metering::Fuel, Metering::Epoch] {
            measure(&guest, threads, metering);
        }
    }
}

fn measure(guest: &Path, threads: usize, metering: Metering) {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = SandboxSettings::new(directory.path().to_owned(), Compiler::in_process());
    settings.running_jobs_max = 64;
    let records = MemoryRecords::new();
    let sandbox = Arc::new(Sandbox::open(settings, records.clone()).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .unwrap();
    let bytes = std::fs::read(guest).unwrap();
    let component = runtime.block_on(sandbox.add_component(bytes.into())).unwrap();
    let deployment = Arc::new(deployment(component.digest, metering));
    records.put(component);

    runtime.block_on(run_for(&sandbox, &deployment, threads, WARM_UP));
    let started = Instant::now();
    let cpu_before = cpu_time();
    let jobs = runtime.block_on(run_for(&sandbox, &deployment, threads, MEASURE));
    let wall = started.elapsed().as_secs_f64();
    let cpu = (cpu_time() - cpu_before).as_secs_f64();
    let jobs = jobs as f64;
    println!(
        "{threads} thread(s), {:5}: {:7.0} jobs/s, {:5.1} us wall x thread, {:5.1} us cpu per job",
        metering.as_str(),
        jobs / wall,
        wall * threads as f64 / jobs * 1e6,
        cpu / jobs * 1e6,
    );
}

/// Runs jobs for a while, a few at a time, and counts them.
async fn run_for(
    sandbox: &Arc<Sandbox>,
    deployment: &Arc<Deployment>,
    threads: usize,
    time: Duration,
) -> u64 {
    let until = Instant::now() + time;
    let loops = (0..threads * JOBS_PER_THREAD).map(|_| {
        let (sandbox, deployment) = (sandbox.clone(), deployment.clone());
        tokio::spawn(async move {
            let mut jobs = 0;
            while Instant::now() < until {
                let report = sandbox.perform(attempt(&deployment), Arc::new(NoSink)).await;
                assert!(matches!(report.end, AttemptEnd::Returned(_)), "{:?}", report.end);
                jobs += 1;
            }
            jobs
        })
    });
    let mut jobs = 0;
    for running in loops.collect::<Vec<_>>() {
        jobs += running.await.unwrap();
    }
    jobs
}

/// Processor time of this process.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

fn attempt(deployment: &Arc<Deployment>) -> Attempt {
    Attempt {
        job: JobId::generate(Submission::Async, NodeId(0)),
        number: 1,
        deployment: deployment.clone(),
        input: Json::parse(r#"{"hello":"mill","n":1}"#).unwrap(),
        s3_config: None,
        timeout_ms: 60_000,
        deadline: Instant::now() + Duration::from_secs(60),
        stop: CancellationToken::new(),
    }
}

fn deployment(component: ComponentDigest, metering: Metering) -> Deployment {
    let endpoint = Endpoint {
        execution_timeout_ms: 60_000,
        limits: SandboxLimits { metering, ..SandboxLimits::default() },
        ..Endpoint::new(
            EndpointId::new("bench").unwrap(),
            OwnerId::new("bench").unwrap(),
            TemplateId::new("bench").unwrap(),
            Timestamp::from_millis(0),
        )
    };
    let template = Template::new(endpoint.template.clone(), endpoint.owner.clone(), "bench:latest");
    Deployment {
        endpoint: Arc::new(endpoint),
        template: Arc::new(template),
        component: Some(component),
    }
}

struct NoSink;

#[async_trait]
impl AttemptSink for NoSink {
    async fn emit(&self, _: Vec<Chunk>) -> Result<(), SinkClosed> {
        Ok(())
    }
    fn progress(&self, _: Json) {}
    fn log(&self, _: LogLevel, _: &str) {}
}
