//! The cost of one job in the sandbox alone: `cargo bench --workspace --bench instantiate`.
//!
//! One measurement is a whole attempt of the echo handler, which must be built (`make guests`):
//! permit, fresh store and instance, call, drop. The time is that of all threads divided by the
//! jobs, and each thread runs four jobs concurrently. `attempt` compares meterings, `pool` the
//! allocation of memory.

#![expect(clippy::unwrap_used, reason = "a benchmark stops at an error")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::deploy::endpoint::{Deployment, Endpoint, EndpointSettings, Metering};
use gristmill_core::deploy::template::Template;
use gristmill_core::id::{EndpointId, OwnerId, TemplateId};
use gristmill_core::incarnation::EndpointIncarnation;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::Chunk;
use gristmill_core::metrics::endpoint::RequestEnd;
use gristmill_core::runtime::{
    Attempt, AttemptEnd, AttemptKey, AttemptSink, HandlerHost, LogLevel, Runtime as _, SinkClosed,
    StackCall,
};
use gristmill_core::sharing::shares::Level;
use gristmill_core::time::Timestamp;
use gristmill_runtime::{Compiler, MemoryRecords, Pool, RuntimeSettings, WasmtimeRuntime};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

const JOBS_PER_THREAD: usize = 4;

criterion_main!(benches);
criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = meterings, pools
}

fn meterings(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("attempt");
    group.throughput(Throughput::Elements(1));
    for threads in [1, 2] {
        for metering in [Metering::Fuel, Metering::Epoch] {
            let mill = Mill::new(threads, metering, Pool::for_this_machine());
            let id = BenchmarkId::new(metering.as_str(), format!("{threads} threads"));
            let input = input(256);
            group.bench_function(id, |bencher| {
                bencher.iter_custom(|jobs| mill.run(jobs, &input));
            });
        }
    }
}

fn pools(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pool");
    group.throughput(Throughput::Elements(1));
    let slots = |kib: usize, scans| Pool::Slots { resident_bytes: kib << 10, scans };
    let choices = [0, 64, 512, 2_048].map(|kib| [slots(kib, true), slots(kib, false)]);
    for threads in [1, 2] {
        for pool in choices.concat().into_iter().chain([Pool::OnDemand]) {
            let mill = Mill::new(threads, Metering::Fuel, pool);
            for input_bytes in [256, 256 << 10] {
                let id = format!("{threads} threads, {input_bytes} B");
                let input = input(input_bytes);
                group.bench_function(BenchmarkId::new(pool.to_string(), id), |bencher| {
                    bencher.iter_custom(|jobs| mill.run(jobs, &input));
                });
            }
        }
    }
}

/// A sandbox with the echo handler, and threads.
struct Mill {
    _directory: TempDir,
    runtime: Runtime,
    threads: u64,
    sandbox: Arc<WasmtimeRuntime>,
    deployment: Arc<Deployment>,
}

impl Mill {
    fn new(threads: u8, metering: Metering, pool: Pool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut settings =
            RuntimeSettings::new(directory.path().to_owned(), Compiler::in_process());
        settings.running_jobs_max = 64;
        settings.pool = pool;
        let records = MemoryRecords::new();
        let sandbox = Arc::new(WasmtimeRuntime::open(settings, records.clone()).unwrap());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads.into())
            .enable_all()
            .build()
            .unwrap();
        let built = "../../handlers/target/wasm32-wasip2/release/echo.wasm";
        let bytes = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(built)).unwrap();
        let added = runtime.block_on(sandbox.add_component(bytes.into())).unwrap();
        let deployment = Arc::new(deployment(added.component.digest, metering));
        // The files are removed with `added` unless there is a record.
        records.put(added.component.clone());
        drop(added);
        Self { _directory: directory, runtime, threads: threads.into(), sandbox, deployment }
    }

    /// Runs some jobs, a few at a time, and returns the elapsed time.
    fn run(&self, jobs: u64, input: &Json) -> Duration {
        let loops = self.threads * JOBS_PER_THREAD as u64;
        let started = Instant::now();
        self.runtime.block_on(async {
            let running = (0..loops).map(|n| {
                let jobs = jobs / loops + u64::from(n < jobs % loops);
                let (sandbox, deployment) = (self.sandbox.clone(), self.deployment.clone());
                let input = input.clone();
                tokio::spawn(async move {
                    for _ in 0..jobs {
                        let attempt = attempt(&deployment, &input);
                        let reservation = sandbox.reserve(&deployment, Level::CLIENT).await;
                        let sink = Arc::new(NoSink);
                        let report = sandbox.perform(reservation, attempt, sink).await;
                        assert!(matches!(report.end, AttemptEnd::Returned(_)), "{:?}", report.end);
                    }
                })
            });
            for running in running.collect::<Vec<_>>() {
                running.await.unwrap();
            }
        });
        started.elapsed()
    }
}

fn input(bytes: usize) -> Json {
    Json::parse(format!("\"{}\"", "x".repeat(bytes - 2))).unwrap()
}

fn attempt(deployment: &Arc<Deployment>, input: &Json) -> Attempt {
    Attempt {
        key: AttemptKey::without_store(),
        number: 1,
        deployment: deployment.clone(),
        input: input.clone(),
        s3_config: None,
        trace: None,
        timeout_ms: 60_000,
        deadline: Instant::now() + Duration::from_secs(60),
        stop: CancellationToken::new(),
    }
}

fn deployment(component: ComponentDigest, metering: Metering) -> Deployment {
    let endpoint = Endpoint {
        settings: EndpointSettings {
            execution_timeout_ms: 60_000,
            metering,
            ..EndpointSettings::default()
        },
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
        input_schema: None,
        volume: None,
        incarnation: EndpointIncarnation::default(),
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
    async fn requested(&self, _: RequestEnd, _: u64) {}
    fn trapped(&self, _: Vec<StackCall>) {}
    fn host(&self) -> Option<&dyn HandlerHost> {
        None
    }
}
