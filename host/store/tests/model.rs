//! Random operations on the store over each medium and on its model, including crashes and restored
//! backups where the medium is durable: both always give the same answers.

use std::sync::Arc;

use crate::support;
use crate::support::postgres::Database;
use crate::support::{
    START, chunk, delayed, endpoint, job, json, low_priority, restore, sync_job, with_ttl, worker,
};
use futures::FutureExt as _;
use gristmill_core::access::secrets::{RotateError, SecretsStore as _};
use gristmill_core::backup::BackupSource as _;
use gristmill_core::billing::usage::{KEPT_HOURS, Metered, UsageQuery, UsageRow, UsageStore};
use gristmill_core::catalog::CatalogStore;
use gristmill_core::id::{EndpointId, JobId, ShardId};
use gristmill_core::job::filter::{JobFilter, JobSearch};
use gristmill_core::job::idempotency::{Idempotency, KEY_LIFETIME_MS};
use gristmill_core::job::listing::JobQuery;
use gristmill_core::job::loss::HostLoss;
use gristmill_core::job::note::{ScheduleNote, ScheduleNumber, ScheduleStore as _};
use gristmill_core::job::record::{
    CallStep, Demand, HostProcess, Lease, LeftAttempt, NewJob, Outcome, S3Config,
};
use gristmill_core::job::retry::{FailedAttempt, FailureKind, Retry, RetryWish};
use gristmill_core::job::state::ReleaseCause;
use gristmill_core::job::tags::{Tag, Tags};
use gristmill_core::signals::Signals;
use gristmill_core::store::{JobStore, StoreError, StoreFull};
use gristmill_core::time::ManualClock;
use gristmill_store::{Settings, Store};
use gristmill_test_support::ModelStore;
use gristmill_test_support::{ClaimEach as _, EndAttempt as _};
use proptest::prelude::*;

const QUEUE_JOBS_MAX: usize = 6;
/// The time for which usage is kept.
const KEPT_MS: u64 = KEPT_HOURS as u64 * 3_600_000;
/// Large enough to stay in the journal.
const LARGE_BYTES: usize = 20_000;
const ENDPOINTS: [&str; 2] = ["a", "b"];
const TEMPLATES: [&str; 2] = ["s", "t"];

#[derive(Debug, Clone)]
enum Op {
    Submit {
        endpoint: usize,
        is_low: bool,
        is_sync: bool,
        ttl_ms: u64,
        delay_ms: u64,
        idempotency: Option<(u8, u8)>,
        is_large: bool,
        has_rule: bool,
    },
    Claim {
        endpoint: usize,
        count: usize,
    },
    Append {
        lease: usize,
        count: usize,
    },
    Progress {
        lease: usize,
    },
    Finish {
        lease: usize,
        outcome: u8,
        is_metered: bool,
        template: usize,
    },
    Fail {
        lease: usize,
        max_attempts: u32,
        wish: Option<u64>,
        kind: usize,
    },
    Bill {
        lease: usize,
        endpoint: usize,
        template: usize,
        wall_ms: u64,
    },
    BillRequests {
        templates: [usize; 2],
        wall_ms: u64,
    },
    Release {
        lease: usize,
    },
    LoseHost {
        lease: usize,
        is_crash: bool,
    },
    /// Another host runs the attempt; only the hosts of a database have others.
    NoteHost {
        lease: usize,
        host: u64,
    },
    Cancel {
        job: usize,
        endpoint: usize,
    },
    Retry {
        job: usize,
    },
    Call {
        job: usize,
        begins: bool,
    },
    Purge {
        endpoint: usize,
    },
    /// Deletes this job and the next one, if they have ended.
    DeleteEnded {
        job: usize,
        endpoint: usize,
    },
    ShortenTtl {
        job: usize,
        ttl_ms: u64,
    },
    MarkDelivered {
        job: usize,
        attempt: u32,
        next: u64,
    },
    ForgetSchedule {
        number: u64,
    },
    Expire,
    FireDue,
    Advance {
        ms: u64,
    },
    DeleteEndpoint {
        endpoint: usize,
    },
    Crash,
    Close,
    /// Continues with a backup, during which this many more jobs were submitted.
    Restore {
        later: usize,
    },
    /// Replaces the key of the durable store; later operations may interrupt the rotation.
    Rotate {
        is_awaited: bool,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let endpoint = 0..ENDPOINTS.len();
    let (lease, job) = (0..64_usize, 0..64_usize);
    let ttl_ms = prop_oneof![Just(86_400_000), 10_000..100_000_u64];
    let delay_ms = prop_oneof![3 => Just(0), 1 => 1..20_000_u64];
    let idempotency = prop::option::of((0..3_u8, 0..2_u8));
    prop_oneof![
        6 => (endpoint.clone(), any::<[bool; 4]>(), ttl_ms, delay_ms, idempotency).prop_map(
            |(endpoint, [is_low, is_sync, is_large, has_rule], ttl_ms, delay_ms, idempotency)| {
                Op::Submit { endpoint, is_low, is_sync, ttl_ms, delay_ms, idempotency, is_large, has_rule }
            }
        ),
        6 => (endpoint.clone(), 0..4_usize)
            .prop_map(|(endpoint, count)| Op::Claim { endpoint, count }),
        4 => (lease.clone(), 0..4_usize).prop_map(|(lease, count)| Op::Append { lease, count }),
        1 => lease.clone().prop_map(|lease| Op::Progress { lease }),
        8 => (lease.clone(), 0..5_u8, prop::bool::weighted(0.8), 0..TEMPLATES.len()).prop_map(
            |(lease, outcome, is_metered, template)| {
                Op::Finish { lease, outcome, is_metered, template }
            }
        ),
        6 => (lease.clone(), 1..4_u32, prop::option::of(0..9_000_u64), 0..4_usize).prop_map(
            |(lease, max_attempts, wish, kind)| Op::Fail { lease, max_attempts, wish, kind }
        ),
        2 => (lease.clone(), endpoint.clone(), 0..TEMPLATES.len(), 0..5_000_u64).prop_map(
            |(lease, endpoint, template, wall_ms)| Op::Bill { lease, endpoint, template, wall_ms }
        ),
        1 => ([0..TEMPLATES.len(), 0..TEMPLATES.len()], 0..5_000_u64)
            .prop_map(|(templates, wall_ms)| Op::BillRequests { templates, wall_ms }),
        2 => lease.clone().prop_map(|lease| Op::Release { lease }),
        3 => (lease.clone(), 0..3_u64).prop_map(|(lease, host)| Op::NoteHost { lease, host }),
        3 => (lease, any::<bool>())
            .prop_map(|(lease, is_crash)| Op::LoseHost { lease, is_crash }),
        2 => (job.clone(), endpoint.clone())
            .prop_map(|(job, endpoint)| Op::Cancel { job, endpoint }),
        4 => job.clone().prop_map(|job| Op::Retry { job }),
        3 => (job.clone(), prop::bool::weighted(0.7))
            .prop_map(|(job, begins)| Op::Call { job, begins }),
        1 => endpoint.clone().prop_map(|endpoint| Op::Purge { endpoint }),
        2 => (job.clone(), endpoint.clone())
            .prop_map(|(job, endpoint)| Op::DeleteEnded { job, endpoint }),
        1 => (job.clone(), 0..50_000_u64)
            .prop_map(|(job, ttl_ms)| Op::ShortenTtl { job, ttl_ms }),
        2 => (job, 1..4_u32, 0..6_u64)
            .prop_map(|(job, attempt, next)| Op::MarkDelivered { job, attempt, next }),
        1 => (0..2_u64).prop_map(|number| Op::ForgetSchedule { number }),
        2 => Just(Op::Expire),
        3 => Just(Op::FireDue),
        3 => prop_oneof![1..5_000_u64, Just(60_000), Just(1_800_000), Just(KEY_LIFETIME_MS), Just(KEPT_MS / 2)]
            .prop_map(|ms| Op::Advance { ms }),
        1 => endpoint.prop_map(|endpoint| Op::DeleteEndpoint { endpoint }),
        3 => Just(Op::Crash),
        1 => Just(Op::Close),
        2 => (0..8_usize).prop_map(|later| Op::Restore { later }),
        2 => any::<bool>().prop_map(|is_awaited| Op::Rotate { is_awaited }),
    ]
}

/// The bounds of the durable store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bounds {
    Usual,
    /// Small ones, so that everything is soon in the database.
    Small,
    /// Small ones, and ended jobs leave memory as soon as they are in the database.
    ArchivingAtOnce,
    /// Without a disk: a crash or a restored backup would lose everything.
    InMemory,
    /// In a database, whose backups and keys are not the store's.
    Postgres,
}

fn bounds() -> impl Strategy<Value = Bounds> {
    prop_oneof![
        Just(Bounds::Usual),
        Just(Bounds::Small),
        Just(Bounds::ArchivingAtOnce),
        Just(Bounds::InMemory),
        Just(Bounds::Postgres)
    ]
}

/// The model and a store on one clock, and the results that were observed.
struct Pair {
    clock: Arc<ManualClock>,
    model: ModelStore,
    store: Option<Store>,
    bounds: Bounds,
    jobs: Vec<(EndpointId, JobId)>,
    leases: Vec<Lease>,
    /// The last field: a rotation may continue until the store is dropped, and needs the directory.
    dir: tempfile::TempDir,
    database: Option<Database>,
}

impl Pair {
    fn new(bounds: Bounds) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let signals = Arc::new(Signals::default());
        let model =
            ModelStore::new(ShardId(7), clock.clone(), signals).with_queue_jobs_max(QUEUE_JOBS_MAX);
        let dir = tempfile::tempdir().unwrap();
        let (jobs, leases) = (Vec::new(), Vec::new());
        let database = (bounds == Bounds::Postgres).then(Database::new).flatten();
        // Where the tests may skip PostgreSQL.
        let bounds = match bounds {
            Bounds::Postgres if database.is_none() => Bounds::Usual,
            bounds => bounds,
        };
        let mut pair = Self { clock, model, store: None, bounds, jobs, leases, dir, database };
        pair.reopen();
        pair
    }

    fn reopen(&mut self) {
        self.store = None;
        let mut settings = Settings { queue_jobs_max: QUEUE_JOBS_MAX, ..Settings::default() };
        if self.bounds == Bounds::ArchivingAtOnce {
            settings.archive_after_ms = 0;
        }
        if matches!(self.bounds, Bounds::Small | Bounds::ArchivingAtOnce) {
            settings.batch_jobs_max = 1;
            settings.payload_cache_bytes = 0;
            settings.chunk_cache_bytes = 0;
            settings.write_buffer_bytes = 600;
            settings.journal_bytes = 0;
            settings.segment_bytes = 512;
        }
        // The next answer differs from the model's, so that the case is made as short as possible.
        settings.on_fatal = Arc::new(|reason| println!("the store failed: {reason}"));
        let signals = Arc::new(Signals::default());
        let clock = self.clock.clone();
        self.store = Some(match self.bounds {
            Bounds::InMemory => Store::in_memory(ShardId(7), clock, signals, settings).unwrap(),
            Bounds::Postgres => {
                settings.payload_cache_bytes = 0;
                settings.chunk_cache_bytes = 0;
                let database = self.database.as_ref().unwrap();
                settings.secrets_key = Some(database.key_file());
                Store::open_postgres(&database.url().parse().unwrap(), clock, signals, settings)
                    .unwrap()
                    .0
            }
            Bounds::Usual | Bounds::Small | Bounds::ArchivingAtOnce => {
                Store::open(self.dir.path(), clock, signals, settings).unwrap().0
            }
        });
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    /// A start deletes all jobs past their time, except the archived ones.
    async fn expire_archived(&self) {
        if self.bounds == Bounds::ArchivingAtOnce {
            self.model.expire().await.unwrap();
            while self.store().expire().await.unwrap().0 <= self.model.now() {}
        }
    }

    /// Waits until the durable store has written all pending changes.
    async fn flush(&self) {
        self.store().write_catalog(Vec::new()).await.unwrap();
    }

    /// Changes only the durable store: its backup does not know these changes.
    async fn live_on(&self, jobs: usize) {
        let store = self.store();
        for n in 0..jobs {
            let endpoint = endpoint(ENDPOINTS[n % 2]);
            let input = json(&format!("[{:LARGE_BYTES$}]", n));
            let submitted = store.submit(NewJob { input, ..job(ENDPOINTS[n % 2]) }).await;
            assert!(
                matches!(submitted, Ok(_) | Err(StoreError::Full(StoreFull::Queue { .. }))),
                "{submitted:?}"
            );
            for claimed in store.claim_each(&endpoint, &[worker("later")]).await.unwrap() {
                let outcome = Outcome::Completed(json(&format!("[{:LARGE_BYTES$}]", n)));
                let _ = store.finish(claimed.lease, outcome).await.unwrap();
            }
            if n == 5 {
                store.purge(&endpoint).await.unwrap();
            }
            store.expire().await.unwrap();
        }
        self.flush().await;
    }

    /// Runs an operation on both stores and compares the answers.
    async fn run(&mut self, op: &Op) {
        let (expected, found) = match op {
            Op::Crash | Op::Close | Op::Restore { .. } | Op::Rotate { .. }
                if self.bounds == Bounds::InMemory =>
            {
                return;
            }
            Op::Restore { .. } | Op::Rotate { .. } if self.bounds == Bounds::Postgres => return,
            Op::Crash | Op::Close => {
                self.flush().await;
                if matches!(op, Op::Close) {
                    self.store().close().await;
                }
                self.reopen();
                self.model.restart();
                self.expire_archived().await;
                // The next active host goes on with them.
                self.leases.extend(left(&self.model).iter().map(|left| left.lease));
                return;
            }
            Op::Restore { later } => {
                self.flush().await;
                let files = self.store().backup(true).await.unwrap();
                self.live_on(*later).await;
                let dir = restore(files);
                self.store = None;
                self.dir = dir;
                self.reopen();
                self.model.restart();
                self.expire_archived().await;
                return;
            }
            Op::Rotate { is_awaited } => {
                let mut rotated = self.store().rotate_secrets_key();
                let rotated = match is_awaited {
                    true => Some(rotated.await),
                    false => rotated.as_mut().now_or_never(),
                };
                // The rotation of an earlier operation may continue, also after a crash.
                let is_allowed = matches!(rotated, None | Some(Ok(_) | Err(RotateError::Busy)));
                assert!(is_allowed, "{rotated:?}");
                return;
            }
            Op::Advance { ms } => {
                self.clock.advance(*ms);
                return;
            }
            Op::Submit {
                endpoint,
                is_low,
                is_sync,
                ttl_ms,
                delay_ms,
                idempotency,
                is_large,
                has_rule,
            } => {
                let name = ENDPOINTS[*endpoint];
                let job = if *is_sync { sync_job(name) } else { job(name) };
                let job = if *is_low { low_priority(job) } else { job };
                let length = if *is_large { LARGE_BYTES } else { 1 };
                let input = json(&format!("[{:length$}]", self.jobs.len()));
                let idempotency = idempotency
                    .map(|(key, content)| Idempotency { key: [key; 16], content: [content; 16] });
                let access_secret = format!("secret {}", self.jobs.len());
                let s3_config = Some(Arc::new(S3Config { access_secret, ..S3Config::default() }));
                let s3_config = s3_config.filter(|_| self.jobs.len().is_multiple_of(2));
                let number = self.jobs.len();
                let pairs = [("third", (number % 3).to_string()), ("n", number.to_string())];
                let tags = Tags::new(pairs.into_iter().take(number % 4)).unwrap();
                let note = number.is_multiple_of(3).then(|| ScheduleNote {
                    schedule: ScheduleNumber(number as u64 % 2),
                    text: format!("{{\"n\":{number}}}"),
                });
                let job = NewJob { input, idempotency, s3_config, tags, note, ..job };
                let mut job = delayed(with_ttl(job, *ttl_ms), *delay_ms);
                job.policy.retry = has_rule.then(|| rule(2, 4_000));
                self.jobs.push((job.endpoint.clone(), job.id));
                both(self, async |store| format!("{:?}", store.submit(job.clone()).await)).await
            }
            Op::Claim { endpoint, count } => {
                let endpoint = support::endpoint(ENDPOINTS[*endpoint]);
                let workers: Vec<_> = (0..*count).map(|n| worker(&n.to_string())).collect();
                let mut claimed = self.model.claim_each(&endpoint, &workers).await;
                let mut found = self.store().claim_each(&endpoint, &workers).await;
                // Each store counts the changes of its queues by itself.
                for job in claimed.iter_mut().chain(&mut found).flatten() {
                    job.left.version = 0;
                }
                self.leases.extend(claimed.iter().flatten().map(|claimed| claimed.lease));
                for (one, other) in claimed.iter().flatten().zip(found.iter().flatten()) {
                    assert_eq!(one.s3_config, other.s3_config);
                }
                (format!("{claimed:?}"), format!("{found:?}"))
            }
            Op::ForgetSchedule { number } => {
                let schedules = vec![ScheduleNumber(*number)];
                let forget = self.model.forget_schedules(schedules.clone()).await;
                let found = self.store().forget_schedules(schedules).await;
                (format!("{forget:?}"), format!("{found:?}"))
            }
            op => {
                let this = &*self;
                both(this, async |store| this.answer(op, store).await).await
            }
        };
        assert_eq!(expected, found, "{op:?}");
    }

    async fn answer(&self, op: &Op, store: &dyn JobStore) -> String {
        let lease_at = |n: usize| self.leases.get(n % self.leases.len().max(1)).copied();
        let job_at = |n: usize| self.jobs.get(n % self.jobs.len().max(1)).cloned();
        match *op {
            Op::Append { lease, count } => {
                let Some(lease) = lease_at(lease) else { return String::new() };
                // No two attempts have the same chunks.
                let text = |n| format!("\"{} {} {n}\"", lease.job, lease.claim.0);
                let chunks = (0..count).map(|n| chunk(&text(n))).collect();
                format!("{:?}", store.append_chunks(lease, chunks).await)
            }
            Op::Progress { lease } => {
                let Some(lease) = lease_at(lease) else { return String::new() };
                format!("{:?}", store.set_progress(lease, json("1")).await)
            }
            Op::Bill { lease, endpoint, template, wall_ms } => {
                // An archived job gets no usage, and the model archives none.
                let lease = lease_at(lease).filter(|_| self.bounds != Bounds::ArchivingAtOnce);
                let lease = lease.unwrap_or_else(support::unknown_lease);
                let bill = support::bill(ENDPOINTS[endpoint], TEMPLATES[template], wall_ms);
                format!("{:?}", store.bill(lease, bill).await)
            }
            Op::BillRequests { templates, wall_ms } => {
                let bills = ENDPOINTS.into_iter().zip(templates).map(|(endpoint, template)| {
                    support::bill(endpoint, TEMPLATES[template], wall_ms)
                });
                format!("{:?}", store.bill_requests(bills.collect()).await)
            }
            Op::Finish { lease, outcome, is_metered, template } => {
                let Some(lease) = lease_at(lease) else { return String::new() };
                let outcome = match outcome {
                    0 => Outcome::Completed(json("[3]")),
                    3 => Outcome::Completed(json(&format!("[{:LARGE_BYTES$}]", 3))),
                    1 => Outcome::Failed("no".into()),
                    4 => {
                        let output = json(&format!("\"{} {}\"", lease.job, lease.claim.0));
                        Outcome::FailedWith { error: "no".into(), output }
                    }
                    _ => Outcome::TimedOut,
                };
                if is_metered {
                    format!("{:?}", store.finish_deferred(lease, outcome, metered(template)).await)
                } else {
                    format!("{:?}", store.finish(lease, outcome).await)
                }
            }
            Op::Fail { lease, max_attempts, wish, kind } => {
                let Some(lease) = lease_at(lease) else { return String::new() };
                let kinds = [
                    FailureKind::Error,
                    FailureKind::InvalidInput,
                    FailureKind::Timeout,
                    FailureKind::OutOfMemory,
                ];
                let failed = FailedAttempt {
                    kind: kinds[kind],
                    error: "no".repeat(50),
                    wish: wish.map(|ms| match ms {
                        0..1_000 => RetryWish::Never,
                        ms => RetryWish::After(ms),
                    }),
                    endpoint_rule: rule(max_attempts, 1_000),
                    random: 1 << 31,
                };
                format!("{:?}", store.try_again(lease, &failed, &metered(0)).await)
            }
            Op::Release { lease } => {
                let Some(lease) = lease_at(lease) else { return String::new() };
                format!("{:?}", store.release(lease, ReleaseCause::Stopped).await)
            }
            Op::LoseHost { lease, is_crash } => {
                let loss = if is_crash { HostLoss::Crash } else { HostLoss::Unreachable };
                let Some(lease) = lease_at(lease) else { return String::new() };
                format!("{:?}", store.host_lost(lease, loss).await)
            }
            Op::NoteHost { lease, host } => {
                let lease = lease_at(lease).filter(|_| self.bounds == Bounds::Postgres);
                let Some(lease) = lease else { return String::new() };
                let host = HostProcess { directory: host, instance: host };
                format!("{:?}", store.note_host(lease, host).await)
            }
            Op::Cancel { job, endpoint } => {
                let Some((_, id)) = job_at(job) else { return String::new() };
                let endpoint = support::endpoint(ENDPOINTS[endpoint]);
                format!("{:?}", store.cancel(&endpoint, id).await)
            }
            Op::Retry { job } => {
                let Some((endpoint, id)) = job_at(job) else { return String::new() };
                format!("{:?}", store.retry(&endpoint, id, None).await)
            }
            Op::Call { job, begins } => {
                let Some((endpoint, id)) = job_at(job) else { return String::new() };
                store.note_call(id, if begins { CallStep::Begins } else { CallStep::Ends });
                let demand = store.demand(&endpoint).await.unwrap();
                format!("{:?}", Demand { version: 0, ..demand })
            }
            Op::Purge { endpoint } => {
                format!("{:?}", store.purge(&support::endpoint(ENDPOINTS[endpoint])).await)
            }
            Op::DeleteEnded { job, endpoint } => {
                let ids: Vec<_> =
                    [job, job + 1].into_iter().filter_map(|n| Some(job_at(n)?.1)).collect();
                let endpoint = support::endpoint(ENDPOINTS[endpoint]);
                format!("{:?}", store.delete_ended(&endpoint, &ids).await)
            }
            Op::ShortenTtl { job, ttl_ms } => {
                let Some((endpoint, id)) = job_at(job) else { return String::new() };
                format!("{:?}", store.shorten_ttl(&endpoint, id, ttl_ms).await)
            }
            Op::MarkDelivered { job, attempt, next } => {
                let Some((_, id)) = job_at(job) else { return String::new() };
                format!(
                    "{:?}",
                    store.mark_delivered(id, support::stream_position(attempt, next)).await
                )
            }
            Op::Expire => format!("{:?}", store.expire().await),
            Op::FireDue => format!("{:?}", store.fire_due()),
            Op::DeleteEndpoint { endpoint } => {
                let endpoint = support::endpoint(ENDPOINTS[endpoint]);
                format!("{:?}", store.delete_endpoint(&endpoint).await)
            }
            Op::Submit { .. }
            | Op::Claim { .. }
            | Op::ForgetSchedule { .. }
            | Op::Advance { .. }
            | Op::Crash
            | Op::Close
            | Op::Restore { .. }
            | Op::Rotate { .. } => unreachable!("is done in `run`"),
        }
    }

    /// Compares all readable state.
    async fn compare(&self) {
        self.flush().await;
        for name in ENDPOINTS {
            let endpoint = endpoint(name);
            let expected = self.model.counts(&endpoint).await;
            assert_eq!(self.store().counts(&endpoint).await, expected, "{name}");
            let (expected, found) = both(self, async |store| list(store, &endpoint).await).await;
            assert_eq!(expected, found, "{name}");
        }
        for third in ["0", "1", "2"] {
            let (expected, found) = both(self, async |store| tagged(store, third).await).await;
            assert_eq!(expected, found, "{third}");
        }
        assert_eq!(self.store().schedule_notes(), self.model.schedule_notes());
        assert_eq!(usage(self.store()).await, usage(&self.model).await);
        assert_eq!(format!("{:?}", left(self.store())), format!("{:?}", left(&self.model)));
        assert_eq!(self.store().stats().jobs, self.model.stats().jobs);
        for (endpoint, id) in &self.jobs {
            let (expected, found) = both(self, async |store| {
                let record = store.job(endpoint, *id).await.unwrap();
                let input = store.input(*id).await.unwrap().map(|input| input.as_str().to_owned());
                let output = store.output(*id).await.unwrap().map(|json| json.as_str().to_owned());
                let count = record.as_ref().map_or(0, |record| record.chunk_count);
                let expected = count.saturating_sub(1).min(2);
                let mut chunks = Vec::new();
                // A page that moves to the tables during a read ends the answer early.
                for _ in 0..100 {
                    chunks = store.chunks(*id, 1, 1 << 20, 2).await.unwrap().chunks;
                    if chunks.len() as u64 == expected {
                        break;
                    }
                }
                let chunks: Vec<_> = chunks.iter().map(|chunk| chunk.output.as_str()).collect();
                format!("{record:?} {input:?} {output:?} {chunks:?}")
            })
            .await;
            assert_eq!(expected, found);
        }
    }
}

/// All jobs of the endpoint, from its pages.
async fn list(store: &dyn JobStore, endpoint: &EndpointId) -> String {
    let mut query = JobQuery { count_max: 3, ..JobQuery::default() };
    let mut jobs = Vec::new();
    loop {
        let page = store.list(endpoint, &query).await.unwrap();
        jobs.extend(page.jobs);
        query.after = page.next;
        if page.next.is_none() {
            return format!("{jobs:?}");
        }
    }
}

/// The attempts on other hosts, in the order of their jobs.
fn left(store: &dyn JobStore) -> Vec<LeftAttempt> {
    let mut left = store.left_attempts().unwrap();
    left.sort_by_key(|left| left.lease.job);
    // A durable store knows about how much it is.
    left.iter_mut().for_each(|left| left.input_bytes = 0);
    left
}

/// All jobs with a tag, from the pages of a search.
async fn tagged(store: &dyn JobStore, third: &str) -> String {
    let tags = vec![Tag::new("third", third).unwrap()];
    let filter = JobFilter { tags, ..JobFilter::default() };
    let endpoints = ENDPOINTS.map(endpoint).to_vec();
    let mut search = JobSearch { endpoints, filter, after: None, count_max: 2 };
    let mut jobs = Vec::new();
    loop {
        let page = store.search(&search).await.unwrap();
        jobs.extend(page.jobs);
        search.after = page.next;
        if page.next.is_none() {
            return format!("{jobs:?}");
        }
    }
}

fn rule(max_attempts: u32, initial_delay_ms: u64) -> Retry {
    Retry { max_attempts, initial_delay_ms, out_of_memory: true, ..Retry::default() }
}

fn metered(template: usize) -> Metered {
    support::metered(TEMPLATES[template])
}

/// All usage, from its pages.
async fn usage(store: &dyn UsageStore) -> Vec<UsageRow> {
    let mut query = UsageQuery { rows_max: 3, ..support::all_usage() };
    let mut all = Vec::new();
    loop {
        let rows = store.usage(&query).await.unwrap();
        query.after = rows.last().map(|row| row.key.clone());
        let is_last = rows.len() < query.rows_max;
        all.extend(rows);
        if is_last {
            return all;
        }
    }
}

async fn both(pair: &Pair, ask: impl AsyncFn(&dyn JobStore) -> String) -> (String, String) {
    let expected = ask(&pair.model).await;
    (expected, ask(pair.store()).await)
}

proptest! {
    #![proptest_config(ProptestConfig {
        // A fifth of the usual number (set PROPTEST_CASES for more): a case syncs the disk often.
        cases: ProptestConfig::default().cases / 5,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_stores_agree(ops in prop::collection::vec(op(), 1..120), bounds in bounds()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut pair = Pair::new(bounds);
            for op in &ops {
                pair.run(op).await;
                pair.compare().await;
            }
        });
    }
}
