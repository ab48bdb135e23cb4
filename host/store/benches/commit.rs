//! The cost of a durable job: `cargo bench --workspace --bench commit`. Compare ratios; absolute
//! figures depend on the machine and its disk.
//!
//! A measured job is submitted, claimed and finished by one task. `wall` is the time from the
//! first to the last job divided by the number of jobs, `cpu` the processor time of the whole
//! process, including its submitters. Each row has its own fresh store in the temporary directory
//! (`TMPDIR`).

#![allow(clippy::unwrap_used, reason = "a benchmark stops at an error")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{
    BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
};
use gristmill_core::id::{EndpointId, JobId, OwnerId, SubmissionKind, WorkerId};
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{NewJob, Outcome};
use gristmill_core::signals::Signals;
use gristmill_core::store::JobStore;
use gristmill_core::time::SystemClock;
use gristmill_store::{Settings, Store};
use gristmill_test_support::EndAttempt as _;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

criterion_main!(wall, cpu);
criterion_group! {
    name = wall;
    config = settings(Criterion::default());
    targets = wall_time
}
criterion_group! {
    name = cpu;
    config = settings(Criterion::default().with_measurement(ProcessorTime));
    targets = processor_time
}

fn settings<M: Measurement>(criterion: Criterion<M>) -> Criterion<M> {
    let criterion = criterion.sample_size(10).warm_up_time(Duration::from_millis(500));
    criterion.measurement_time(Duration::from_secs(2))
}

fn wall_time(criterion: &mut Criterion<WallTime>) {
    measure(criterion, "wall", |run| {
        let started = Instant::now();
        run();
        started.elapsed()
    });
}

fn processor_time(criterion: &mut Criterion<ProcessorTime>) {
    measure(criterion, "cpu", |run| {
        let before = ProcessorTime.start();
        run();
        ProcessorTime.end(before)
    });
}

/// The processor time that this process has used.
struct ProcessorTime;

impl Measurement for ProcessorTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
    }

    fn end(&self, before: Duration) -> Duration {
        self.start() - before
    }

    fn add(&self, one: &Duration, other: &Duration) -> Duration {
        *one + *other
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        WallTime.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

#[derive(Clone, Copy)]
enum Work {
    Submit,
    Life,
}

fn measure<M: Measurement<Value = Duration>>(
    criterion: &mut Criterion<M>,
    name: &str,
    time: impl Fn(&dyn Fn()) -> Duration,
) {
    let mut group = criterion.benchmark_group(name);
    group.sampling_mode(SamplingMode::Flat).throughput(Throughput::Elements(1));
    for (work, name) in [(Work::Submit, "submit"), (Work::Life, "life")] {
        for payload_bytes in [256, 16 << 10] {
            for submitters in [1, 8, 64] {
                let bench = Bench::new(work, payload_bytes, submitters);
                let id = format!("{payload_bytes} B, {submitters} submitters");
                group.bench_function(BenchmarkId::new(name, id), |bencher| {
                    bencher.iter_custom(|jobs| time(&|| bench.run(jobs)));
                });
            }
        }
    }
}

/// A store with its submitters.
struct Bench {
    runtime: Runtime,
    store: Arc<Store>,
    work: Work,
    payload: Json,
    submitters: u64,
    _dir: TempDir,
}

impl Bench {
    fn new(work: Work, payload_bytes: usize, submitters: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (clock, signals) = (Arc::new(SystemClock), Arc::new(Signals::default()));
        let opened = Store::open(dir.path(), clock, signals, Settings::default());
        let store = Arc::new(opened.unwrap().0);
        let payload = Json::parse(format!("\"{}\"", "x".repeat(payload_bytes - 2))).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
        Self { runtime: runtime.unwrap(), store, work, payload, submitters, _dir: dir }
    }

    /// Runs this many jobs.
    fn run(&self, jobs: u64) {
        let mut tasks = JoinSet::new();
        for n in 0..self.submitters {
            let jobs = jobs / self.submitters + u64::from(n < jobs % self.submitters);
            let (store, payload, work) = (self.store.clone(), self.payload.clone(), self.work);
            let task = async move {
                let worker = WorkerId::new(&format!("w{n}")).unwrap();
                for _ in 0..jobs {
                    match work {
                        Work::Submit => {
                            let _ = store.submit(new_job(&store, &payload)).await.unwrap();
                        }
                        Work::Life => life(&store, &worker, &payload).await,
                    }
                }
            };
            tasks.spawn_on(task, self.runtime.handle());
        }
        self.runtime.block_on(tasks.join_all());
    }
}

/// Runs the job while its submission is being written, as the platform does.
async fn life(store: &Store, worker: &WorkerId, payload: &Json) {
    let submit = store.submit(new_job(store, payload));
    let perform = async {
        let Some(job) = store.claim(&endpoint(), worker).await.unwrap() else { return };
        let _ = store.finish(job.lease, Outcome::Completed(job.input)).await.unwrap();
    };
    let (submitted, ()) = tokio::join!(submit, perform);
    let _ = submitted.unwrap();
}

fn new_job(store: &Store, payload: &Json) -> NewJob {
    NewJob {
        id: JobId::generate(SubmissionKind::Sync, store.shard()),
        input: payload.clone(),
        ..gristmill_test_support::new_job(store.shard(), OwnerId::new("owner").unwrap(), endpoint())
    }
}

fn endpoint() -> EndpointId {
    EndpointId::new("bench").unwrap()
}
