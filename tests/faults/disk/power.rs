//! The power fails at any moment of a store's life: everything acknowledged is present, and the
//! store continues. `POWER_LOSSES` sets the number of losses, `POWER_SEED` the first workload.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

use gristmill_core::billing::usage::{UsageFilter, UsageRow, UsageStore as _};
use gristmill_core::catalog::{CatalogEntry, CatalogStore as _};
use gristmill_core::id::{EndpointId, JobId, WorkerId};
use gristmill_core::job::filter::{JobFilter, JobSearch};
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::Outcome;
use gristmill_core::job::state::JobStatus;
use gristmill_core::job::tags::Tag;
use gristmill_core::limits::CRASHES_MAX;
use gristmill_core::store::{Fenced, JobStore as _};
use gristmill_store::Store;
use gristmill_test_support::EndAttempt as _;
use gristmill_tests::disk_shim;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use crate::ledger::{End, KnownJob, Ledger, State};
use crate::log::{self, Event};
use crate::simulated::Disk;
use crate::workload::{NOTES, open, payload};

/// Losses of power in the lives of one workload's processes.
const PER_WORKLOAD: usize = 20;

/// Processes that use a directory one after the other, before the last loss of power.
const RUNS_MAX: u64 = 3;

#[tokio::test]
async fn acknowledged_changes_survive_a_loss_of_power() {
    let number = |name, default| env::var(name).map_or(default, |text| text.parse().unwrap());
    let losses = number("POWER_LOSSES", 120);
    let first_seed = number("POWER_SEED", u64::from(rand::random::<u16>()));
    println!("POWER_SEED={first_seed} POWER_LOSSES={losses}");
    let mut found = Found::default();
    for n in 0..losses.div_ceil(PER_WORKLOAD as u64) {
        run_and_lose_power(first_seed + n, &mut found).await;
    }
    println!("{losses} losses of power: {found:?}");
    assert!(found.completed > 0 && found.waiting > 0, "the workloads did nothing");
}

/// The findings after all losses.
#[derive(Debug, Default)]
struct Found {
    events: usize,
    kills: usize,
    waiting: usize,
    completed: usize,
    failed: usize,
    cancelled: usize,
    removed: usize,
    /// Operations that were only begun, and were completed.
    reached_states: usize,
}

async fn run_and_lose_power(seed: u64, found: &mut Found) {
    let mut folder = tempfile::Builder::new().prefix("gristmill-power-").tempdir().unwrap();
    // A failure keeps the evidence.
    folder.disable_cleanup(true);
    let (dir, log) = (folder.path().join("data"), folder.path().join("log"));
    fs::create_dir(&dir).unwrap();
    let mut process = Command::new(env::current_exe().unwrap());
    process.args(["--exact", "workload::workload", "--ignored", "--test-threads=1"]);
    process.env("LD_PRELOAD", disk_shim()).env("DISK_DIR", dir.canonicalize().unwrap());
    process.env("DISK_LOG", &log).env("WORKLOAD_SEED", seed.to_string()).stdout(Stdio::null());
    let mut rng = StdRng::seed_from_u64(seed);
    // Killed processes come first: the page cache outlives them.
    for run in 0..seed % RUNS_MAX {
        let call = ["write", "sync"].choose(&mut rng).unwrap();
        let file = ["journal/", "journal/", "store.db"].choose(&mut rng).unwrap();
        let kill = format!("{call}:{}:{file}", rng.random_range(1..120));
        process.env("DISK_KILL", &kill).env("WORKLOAD_LIFE", run.to_string());
        let status = process.status().unwrap();
        let is_killed = status.signal() == Some(libc::SIGKILL);
        assert!(is_killed || status.success(), "the workload of seed {seed}, life {run}: {status}");
        found.kills += usize::from(is_killed);
    }
    process.env_remove("DISK_KILL").env("WORKLOAD_LIFE", (seed % RUNS_MAX).to_string());
    assert!(process.status().unwrap().success(), "the workload of seed {seed}");
    let events = log::parse(&fs::read(&log).unwrap());
    found.events += events.len();

    let moments: BTreeSet<_> =
        (0..PER_WORKLOAD).map(|_| rng.random_range(0..=events.len())).collect();
    let (mut disk, mut ledger) = (Disk::default(), Ledger::default());
    for (n, event) in events.iter().enumerate() {
        if moments.contains(&n) {
            println!("seed {seed}: the power fails after {n} of {} events", events.len());
            let left = folder.path().join(format!("left-{n}"));
            disk.lose_power(&left, &mut rng);
            check(&left, seed, &ledger, found).await;
            fs::remove_dir_all(left).unwrap();
        }
        match event {
            Event::Write { path, bytes, .. } if path == Path::new(NOTES) => {
                ledger.note_all(bytes);
            }
            event => disk.apply(event),
        }
    }
    folder.disable_cleanup(false);
}

/// Opens the remaining data as the next start would.
async fn check(dir: &Path, seed: u64, ledger: &Ledger, found: &mut Found) {
    fs::create_dir_all(dir).unwrap();
    let store = open(dir, seed);
    let after = ledger.with_begun();
    for (id, known) in &after.jobs {
        let before = ledger.jobs.get(id);
        let is = is_known(&store, id, known).await;
        let Err(error) = is else {
            found.reached_states += usize::from(before != Some(known));
            found.count(&known.state);
            continue;
        };
        let state = match before {
            Some(before) => is_known(&store, id, before).await.map(|()| &before.state),
            None => match job(&store, id, known).await {
                None => Ok(&State::Removed),
                Some(record) => Err(format!("{record:?}")),
            },
        };
        match state {
            Ok(state) => found.count(state),
            Err(other) => panic!("{id}: neither {known:?}: {error}\nnor {before:?}: {other}"),
        }
    }
    let templates =
        store.load_catalog().await.unwrap().into_iter().filter_map(|entry| match entry {
            CatalogEntry::Template(template) => Some((template.id.to_string(), template.image)),
            _ => None,
        });
    for (endpoint, image) in templates {
        let of = |ledger: &Ledger| ledger.images.get(&endpoint) == Some(&image);
        assert!(of(ledger) || of(&after), "{endpoint} has the image {image}");
    }
    check_bills(&store, ledger).await;
    finish_all(&store, &after).await;
    let billed = all_usage(&store).await;
    drop(store);
    let store = open(dir, seed);
    assert_eq!(all_usage(&store).await, billed);
    for (id, known) in &after.jobs {
        let status = job(&store, id, known).await.map(|record| record.status);
        assert!(status.is_none_or(JobStatus::is_final), "{id} is {status:?}");
        let filter = JobFilter { tags: vec![Tag::new("job", id).unwrap()], ..JobFilter::default() };
        let endpoints = vec![EndpointId::new(&known.endpoint).unwrap()];
        let search = JobSearch { endpoints, filter, after: None, count_max: 9 };
        let page = store.search(&search).await.unwrap();
        let tagged: Vec<_> = page.jobs.iter().map(|job| (job.id.to_string(), job.status)).collect();
        let expected: Vec<_> = status.map(|status| (id.clone(), status)).into_iter().collect();
        assert_eq!(tagged, expected, "found by its tag");
        assert_eq!(page.next, None);
    }
}

/// Exactly the existing results are billed.
async fn check_bills(store: &Store, ledger: &Ledger) {
    let mut expected = ledger.billed.clone();
    for (id, known) in &ledger.jobs {
        if ledger.begun_result(&known.endpoint) == Some(id) {
            let record = job(store, id, known).await;
            // A job that was given up has no result.
            let is_given_up = |error: &String| error.starts_with("the host died");
            let has_ended = record.is_some_and(|record| {
                record.status.is_final() && !record.error.as_ref().is_some_and(is_given_up)
            });
            *expected.entry(known.endpoint.clone()).or_default() += u64::from(has_ended);
        }
    }
    let mut found = BTreeMap::new();
    for UsageRow { key, sum } in all_usage(store).await {
        *found.entry(key.endpoint.to_string()).or_default() += sum.jobs;
        assert_eq!(
            (sum.cpu_us, sum.fuel, sum.bytes_in),
            (3 * sum.jobs, 5 * sum.jobs, 7 * sum.jobs)
        );
    }
    expected.retain(|_, jobs| *jobs > 0);
    assert_eq!(found, expected);
}

async fn all_usage(store: &Store) -> Vec<UsageRow> {
    let query = gristmill_test_support::usage_of_all_hours(UsageFilter::default(), 1_000);
    store.usage(&query).await.unwrap()
}

impl Found {
    fn count(&mut self, state: &State) {
        *match state {
            State::Open { .. } => &mut self.waiting,
            State::Ended { end: End::Completed { .. }, .. } => &mut self.completed,
            State::Ended { .. } => &mut self.failed,
            State::Cancelled => &mut self.cancelled,
            State::Removed => &mut self.removed,
        } += 1;
    }
}

async fn job(
    store: &Store,
    id: &str,
    known: &KnownJob,
) -> Option<Box<gristmill_core::job::record::JobRecord>> {
    let endpoint = EndpointId::new(&known.endpoint).unwrap();
    store.job(&endpoint, id.parse::<JobId>().unwrap()).await.unwrap()
}

/// Whether the job is in its expected state; otherwise the difference.
pub(crate) async fn is_known(store: &Store, id: &str, known: &KnownJob) -> Result<(), String> {
    let record = job(store, id, known).await;
    let id_of = id.parse::<JobId>().unwrap();
    let (input, output) = (store.input(id_of).await, store.output(id_of).await);
    let (input, output) = (input.unwrap(), output.unwrap());
    let expected_input = payload(id, known.input_bytes);
    let has_input = input.as_ref() == Some(&expected_input);
    let is = match (&known.state, &record) {
        (State::Removed, None) => true,
        (_, None) | (State::Removed, Some(_)) => false,
        (State::Open { is_claimed, .. }, Some(record)) => {
            // It has run in so many processes that it is given up.
            let crashes = known.crashes + u32::from(*is_claimed);
            let is_given_up =
                crashes >= u32::from(CRASHES_MAX) && record.status == JobStatus::Failed;
            let waits = record.status == JobStatus::InQueue && record.chunk_count == 0;
            (waits || is_given_up) && has_input
        }
        (State::Cancelled, Some(record)) => record.status == JobStatus::Cancelled,
        (State::Ended { end, chunks }, Some(record)) => {
            let (status, expected) = match end {
                End::Completed { bytes } => (JobStatus::Completed, Some(payload(id, *bytes))),
                End::Failed => (JobStatus::Failed, None),
                End::TimedOut => (JobStatus::TimedOut, None),
            };
            let streamed = store.chunks(id_of, 0, usize::MAX, usize::MAX).await.unwrap().chunks;
            record.status == status
                && output == expected
                && has_input == (status != JobStatus::Completed)
                && record.chunk_count == *chunks
                && streamed.len() as u64 == *chunks
                && streamed.iter().all(|chunk| chunk.output == payload(id, 50))
        }
    };
    let show = |json: &Option<Json>| json.as_ref().map(|json| json.as_str().len());
    let details = || format!("{record:?}, input {:?}, output {:?}", show(&input), show(&output));
    is.then_some(()).ok_or_else(details)
}

/// All waiting jobs can be claimed and finished.
async fn finish_all(store: &Store, ledger: &Ledger) {
    let endpoints: BTreeSet<_> = ledger.jobs.values().map(|known| &known.endpoint).collect();
    let worker = WorkerId::new("after").unwrap();
    for endpoint in endpoints {
        let endpoint = EndpointId::new(endpoint).unwrap();
        loop {
            let Some(claimed) = store.claim(&endpoint, &worker).await.unwrap() else { break };
            let known = &ledger.jobs[&claimed.lease.job.to_string()];
            assert_eq!(claimed.input, payload(&claimed.lease.job.to_string(), known.input_bytes));
            let finished = store.finish(claimed.lease, Outcome::Completed(claimed.input)).await;
            assert_eq!(finished, Ok(Fenced::Applied));
        }
        assert_eq!(store.counts(&endpoint).await.unwrap().in_queue, 0);
    }
}
