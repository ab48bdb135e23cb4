//! The operations of a process on a store while its disk is watched: all operations of a host, by
//! several callers at the same time.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gristmill_core::billing::usage::Metered;
use gristmill_core::catalog::{CatalogChange, CatalogEntry, CatalogStore as _};
use gristmill_core::deploy::template::Template;
use gristmill_core::id::{
    EndpointId, JobId, OwnerId, ShardId, SubmissionKind, TemplateId, WorkerId,
};
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{Chunk, Lease, NewJob, Outcome};
use gristmill_core::job::state::JobStatus;
use gristmill_core::job::tags::Tags;
use gristmill_core::signals::Signals;
use gristmill_core::store::{Fenced, JobStore as _, RetryAnswer, SubmitAnswer};
use gristmill_core::time::{ManualClock, Timestamp};
use gristmill_store::{Settings, Store};
use gristmill_test_support::new_job;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use tokio::task::JoinSet;

use crate::ledger::{End, Ledger, Note, Operation, State};
use crate::power::is_known;

const CALLERS: usize = 4;
const OPERATIONS: usize = 60;

/// The file below the directory in which the process records its operations.
pub(crate) const NOTES: &str = "notes";

/// Small journals, so that checkpoints and the reuse of files happen all the time. In three
/// workloads of five, jobs leave memory at once.
pub(crate) fn settings(seed: u64) -> Settings {
    let segment_bytes = [512, 4 << 10, 64 << 10, 512 << 10][(seed % 4) as usize];
    Settings {
        journal_bytes: u64::from(segment_bytes) * (seed / 4 % 3),
        segment_bytes,
        payload_cache_bytes: 0,
        chunk_cache_bytes: 0,
        archive_after_ms: if seed % 5 < 3 { 0 } else { Settings::default().archive_after_ms },
        ..Settings::default()
    }
}

pub(crate) fn open(dir: &Path, seed: u64) -> Store {
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_700_000_000_000)));
    let opened = Store::open(dir, clock, Arc::new(Signals::default()), settings(seed));
    opened.unwrap_or_else(|error| panic!("{}: {error}", dir.display())).0
}

/// The JSON text of `bytes` that belongs to a job.
pub(crate) fn payload(job: &str, bytes: usize) -> Json {
    Json::parse(format!("\"{job} {}\"", "x".repeat(bytes))).unwrap()
}

/// The usage of each attempt; the template is named like its endpoint.
pub(crate) fn metered(endpoint: &str) -> Metered {
    Metered {
        template: TemplateId::new(endpoint).unwrap(),
        cpu_us: 3,
        fuel: 5,
        memory_bytes_peak: 1,
        bytes_in: 7,
        bytes_out: 11,
        chunks: 0,
        egress_bytes: 0,
    }
}

/// The process itself: the tests run it.
#[test]
#[ignore = "a process of its own, which other tests start"]
fn workload() {
    let dir = PathBuf::from(std::env::var("DISK_DIR").unwrap());
    let seed: u64 = std::env::var("WORKLOAD_SEED").unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let life: u64 = std::env::var("WORKLOAD_LIFE").unwrap().parse().unwrap();
        let store = Arc::new(open(&dir, seed));
        let mut ledger = Ledger::default();
        let earlier = fs::read(dir.join(NOTES)).unwrap_or_default();
        ledger.note_all(&earlier);
        let notes = OpenOptions::new().create(true).append(true).open(dir.join(NOTES)).unwrap();
        let notes = Arc::new(Mutex::new(notes));
        if life > 0 {
            let found = found_after_a_kill(&store, &ledger).await;
            found.iter().for_each(|note| ledger.note(note));
            write(&notes, &found);
        }
        let mut callers = JoinSet::new();
        for n in 0..CALLERS {
            let (store, notes) = (store.clone(), notes.clone());
            let rng = StdRng::seed_from_u64((seed * 100 + n as u64) * 10 + life);
            let endpoint = format!("e{n}");
            let of_state = |is_meant: fn(&State) -> bool| {
                let jobs = ledger.jobs.iter();
                let found = jobs.filter(|(_, it)| it.endpoint == endpoint && is_meant(&it.state));
                found.map(|(id, _)| id.parse().unwrap()).collect()
            };
            let open = of_state(|state| matches!(state, State::Open { .. }));
            let failed = of_state(|state| match state {
                State::Ended { end, .. } => !matches!(end, End::Completed { .. }),
                _ => false,
            });
            let leases = Vec::new();
            callers.spawn(Caller { store, notes, rng, life, endpoint, leases, open, failed }.run());
        }
        callers.join_all().await;
        if seed.is_multiple_of(2) {
            store.close().await;
        }
    });
}

/// Writes notes in one call, which is one event, so that no loss of power divides it.
fn write(notes: &Mutex<File>, some: &[Note]) {
    let lines = some.iter().map(|note| serde_json::to_string(note).unwrap() + "\n");
    notes.lock().write_all(lines.collect::<String>().as_bytes()).unwrap();
}

/// The outcome of operations that a kill interrupted; the process shows it, so it must stay.
async fn found_after_a_kill(store: &Store, ledger: &Ledger) -> Vec<Note> {
    let note = |endpoint: &str, operation| Note {
        endpoint: endpoint.to_owned(),
        is_done: true,
        operation,
    };
    let restart = note("", Operation::Restart);
    let (mut before, mut after) = (ledger.clone(), ledger.with_begun());
    before.note(&restart);
    after.note(&restart);
    let mut found = vec![restart];
    for (id, known) in &after.jobs {
        if before.jobs.get(id).map(|known| &known.state) == Some(&known.state) {
            continue;
        }
        let is_after = is_known(store, id, known).await;
        let state = match (is_after, before.jobs.get(id)) {
            (Ok(()), _) => known.state.clone(),
            (Err(error), Some(known)) => {
                let is_before = is_known(store, id, known).await;
                is_before.unwrap_or_else(|other| panic!("{id}: neither {error}\nnor {other}"));
                continue;
            }
            (Err(_), None) => continue,
        };
        let (job, bytes) = (id.clone(), known.input_bytes);
        found.push(note(&known.endpoint, Operation::Find { job, bytes, state }));
    }
    for entry in store.load_catalog().await.unwrap() {
        let CatalogEntry::Template(Template { id, image, .. }) = entry else { continue };
        if before.images.get(id.as_str()) != Some(&image) {
            for is_done in [false, true] {
                let (endpoint, operation) =
                    (id.to_string(), Operation::Deploy { image: image.clone() });
                found.push(Note { endpoint, is_done, operation });
            }
        }
    }
    found
}

/// Uses one endpoint.
struct Caller {
    store: Arc<Store>,
    notes: Arc<Mutex<File>>,
    rng: StdRng,
    /// The number of its process on this directory.
    life: u64,
    endpoint: String,
    leases: Vec<Lease>,
    /// Jobs that wait or run, and jobs that can be retried.
    open: Vec<JobId>,
    failed: Vec<JobId>,
}

impl Caller {
    async fn run(mut self) {
        for n in 0..OPERATIONS {
            match self.rng.random_range(0..100) {
                0..32 => self.submit().await,
                32..52 => self.claim().await,
                52..60 => self.append().await,
                60..80 => self.finish().await,
                80..86 => self.cancel().await,
                86..92 => self.retry().await,
                92..94 => self.purge().await,
                94..95 => self.delete_endpoint().await,
                _ => self.deploy(n).await,
            }
        }
    }

    fn note(&self, is_done: bool, operation: &Operation) {
        let note = Note { endpoint: self.endpoint.clone(), is_done, operation: operation.clone() };
        write(&self.notes, &[note]);
    }

    fn endpoint(&self) -> EndpointId {
        EndpointId::new(&self.endpoint).unwrap()
    }

    /// Payloads that move to the database, that stay in the journal, and that bypass the page
    /// cache.
    fn bytes(&mut self) -> usize {
        match self.rng.random_range(0..20) {
            0..12 => 10,
            12..15 => 3_000,
            15..18 => 20_000,
            18 => 100_000,
            _ => 1_200_000,
        }
    }

    async fn submit(&mut self) {
        let is_sync = self.rng.random();
        let kind = if is_sync { SubmissionKind::Sync } else { SubmissionKind::Async };
        let id = JobId::generate(kind, ShardId(7));
        let bytes = self.bytes();
        let job = NewJob {
            id,
            input: payload(&id.to_string(), bytes),
            may_linger: is_sync,
            tags: Tags::new([("job", id.to_string())]).unwrap(),
            ..new_job(ShardId(7), OwnerId::new("owner").unwrap(), self.endpoint())
        };
        let operation = Operation::Submit { job: id.to_string(), bytes };
        self.note(false, &operation);
        assert_eq!(self.store.submit(job).await, Ok(SubmitAnswer::Queued));
        self.note(true, &operation);
        self.open.push(id);
    }

    async fn claim(&mut self) {
        let worker = WorkerId::new("w").unwrap();
        self.note(false, &Operation::ClaimOldest);
        let claimed = self.store.claim(&self.endpoint(), &worker).await.unwrap();
        let Some(claimed) = claimed else {
            self.note(true, &Operation::ClaimOldest);
            return;
        };
        let operation = Operation::Claim { job: claimed.lease.job.to_string() };
        self.note(false, &operation);
        self.note(true, &operation);
        self.leases.push(claimed.lease);
    }

    async fn append(&mut self) {
        let Some(&lease) = self.leases.choose(&mut self.rng) else { return };
        let count = self.rng.random_range(1..4);
        let output = payload(&lease.job.to_string(), 50);
        let chunk = Chunk { output, metrics: None, part: None };
        let operation = Operation::Append { job: lease.job.to_string(), chunks: count };
        self.note(false, &operation);
        let chunks = vec![chunk; usize::try_from(count).unwrap()];
        assert_eq!(self.store.append_chunks(lease, chunks).await, Ok(Fenced::Applied));
        self.note(true, &operation);
    }

    async fn finish(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let lease = self.leases.swap_remove(self.rng.random_range(0..self.leases.len()));
        let job = lease.job.to_string();
        let (end, outcome) = match self.rng.random_range(0..4) {
            0 => (End::Failed, Outcome::Failed("no".to_owned())),
            1 => (End::TimedOut, Outcome::TimedOut),
            _ => {
                let bytes = self.bytes();
                (End::Completed { bytes }, Outcome::Completed(payload(&job, bytes)))
            }
        };
        let can_retry = !matches!(end, End::Completed { .. });
        let operation = Operation::Finish { job, end };
        self.note(false, &operation);
        let metered = metered(&self.endpoint);
        let finished = self.store.finish_deferred(lease, outcome, metered).await;
        assert_eq!(finished, Ok(Fenced::Applied));
        self.store.flush().await.unwrap();
        self.note(true, &operation);
        self.open.retain(|open| *open != lease.job);
        if can_retry {
            self.failed.push(lease.job);
        }
    }

    async fn cancel(&mut self) {
        let Some(&job) = self.open.choose(&mut self.rng) else { return };
        let operation = Operation::Cancel { job: job.to_string() };
        self.note(false, &operation);
        let cancelled = self.store.cancel(&self.endpoint(), job).await;
        assert_eq!(cancelled, Ok(Some(JobStatus::Cancelled)));
        self.note(true, &operation);
        self.open.retain(|open| *open != job);
        self.leases.retain(|lease| lease.job != job);
    }

    async fn retry(&mut self) {
        if self.failed.is_empty() {
            return;
        }
        let job = self.failed.swap_remove(self.rng.random_range(0..self.failed.len()));
        let operation = Operation::Retry { job: job.to_string() };
        self.note(false, &operation);
        assert_eq!(self.store.retry(&self.endpoint(), job, None).await, Ok(RetryAnswer::Queued));
        self.note(true, &operation);
        self.open.push(job);
    }

    async fn purge(&mut self) {
        self.note(false, &Operation::Purge);
        let _ = self.store.purge(&self.endpoint()).await.unwrap();
        self.note(true, &Operation::Purge);
        let leased: Vec<_> = self.leases.iter().map(|lease| lease.job).collect();
        self.open.retain(|open| leased.contains(open));
    }

    async fn delete_endpoint(&mut self) {
        self.note(false, &Operation::DeleteEndpoint);
        self.store.delete_endpoint(&self.endpoint()).await.unwrap();
        self.note(true, &Operation::DeleteEndpoint);
        self.leases.clear();
        self.open.clear();
        self.failed.clear();
    }

    async fn deploy(&mut self, n: usize) {
        let image = format!("image:{}-{n}", self.life);
        let (id, owner) = (TemplateId::new(&self.endpoint), OwnerId::new("owner"));
        let template = Template::new(id.unwrap(), owner.unwrap(), &image);
        let operation = Operation::Deploy { image };
        self.note(false, &operation);
        let change = CatalogChange::Put(CatalogEntry::Template(template));
        self.store.write_catalog(vec![change]).await.unwrap();
        self.note(true, &operation);
    }
}
