//! A journal with damaged segments. Damage that a crash cannot cause is refused; otherwise the
//! store opens with everything before it, as after a crash, and continues from there. With
//! corrected checksums the original content is unknown, and the store must only not panic, hang or
//! use unbounded memory.
//!
//! Input: the damage.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arbitrary::{Arbitrary, Unstructured};
use gristmill_core::id::{EndpointId, OwnerId, ShardId, WorkerId};
use gristmill_core::job::idempotency::Idempotency;
use gristmill_core::job::listing::JobQuery;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{Chunk, JobRecord, NewJob, Outcome};
use gristmill_core::job::retention::Retention;
use gristmill_core::job::state::JobStatus;
use gristmill_core::signals::Signals;
use gristmill_core::store::{JobStore as _, SubmitAnswer};
use gristmill_core::time::{ManualClock, Timestamp};
use gristmill_store::testing::fuzzing;
use gristmill_store::{OpenError, Settings, Store};
use gristmill_test_support::EndAttempt as _;
use gristmill_test_support::new_job;
use tempfile::TempDir;

/// Bytes of a segment: the journal below has several.
const SEGMENT_BYTES: u32 = 2 << 10;

/// Bytes of a segment's header, and of a frame's.
const HEADER: usize = 32;
const HEAD: usize = 16;

/// A change of the segments. Indices of segments and positions are taken modulo their number.
#[derive(Debug, Arbitrary)]
enum Edit {
    Set {
        segment: u8,
        at: u16,
        byte: u8,
    },
    Flip {
        segment: u8,
        at: u16,
        bit: u8,
    },
    Zero {
        segment: u8,
        at: u16,
        len: u8,
    },
    Copy {
        from: (u8, u16),
        to: (u8, u16),
        len: u8,
    },
    /// A little-endian number, as in the heads.
    Number {
        segment: u8,
        at: u16,
        number: u32,
    },
    Cut {
        segment: u8,
        at: u16,
    },
    Extend {
        segment: u8,
        bytes: u8,
    },
    Remove {
        segment: u8,
    },
}

#[derive(Debug, Arbitrary)]
struct Damage {
    reseals: bool,
    edits: Vec<Edit>,
}

type Segments = Vec<Vec<u8>>;

/// The jobs of a store, with their statuses.
type Found = BTreeMap<String, JobStatus>;

pub fn segment(data: &[u8]) {
    let Ok(damage) = Damage::arbitrary_take_rest(Unstructured::new(data)) else { return };
    let whole = Whole::get();
    let mut segments = whole.segments.clone();
    damage.edits.iter().for_each(|edit| edit.make(&mut segments));
    if damage.reseals {
        segments.iter_mut().for_each(|segment| fuzzing::reseal_segment(segment));
        let disk = whole.disk_with(&segments);
        // An opened store can be listed and written, or has ended with a reason. Payloads are not
        // checked, since damage with a correct checksum is not detectable.
        if let Ok(store) = disk.open() {
            store.list();
            store.submit();
        }
        return;
    }
    let disk = whole.disk_with(&segments);
    let opened = disk.open();
    match whole.first_damage(&segments) {
        Some((segment, _)) if segment + 1 < segments.len() => {
            assert!(opened.is_err(), "damage before the end is not noticed");
        }
        damaged => {
            let frames = damaged.map_or(whole.ends.len(), |damaged| whole.frames_before(damaged));
            let store = match opened {
                Ok(store) => store,
                Err(error) => {
                    let is_damage = matches!(error, OpenError::Damaged(_));
                    // An edit behind the end, in a file that was cleared for that, is not damage.
                    assert!(is_damage && segments != whole.segments, "{error}");
                    return;
                }
            };
            let mut expected = whole.found_after[frames].clone();
            assert_eq!(store.read_all(), expected);
            expected.insert(store.submit().unwrap(), JobStatus::InQueue);
            drop(store);
            assert_eq!(disk.open().unwrap().read_all(), expected);
        }
    }
}

impl Edit {
    fn make(&self, segments: &mut Segments) {
        let set = |bytes: &mut Vec<u8>, at: u16, new: &[u8]| {
            let at = usize::from(at) % bytes.len().max(1);
            let room = bytes.len().saturating_sub(at).min(new.len());
            bytes[at..at + room].copy_from_slice(&new[..room]);
        };
        match *self {
            Self::Set { segment, at, byte } => set(pick(segments, segment), at, &[byte]),
            Self::Flip { segment, at, bit } => {
                let bytes = pick(segments, segment);
                let at = usize::from(at) % bytes.len().max(1);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            Self::Zero { segment, at, len } => {
                set(pick(segments, segment), at, &vec![0; len.into()])
            }
            Self::Number { segment, at, number } => {
                set(pick(segments, segment), at, &number.to_le_bytes());
            }
            Self::Copy { from: (segment, at), to, len } => {
                let from = pick(segments, segment);
                let at = usize::from(at) % from.len().max(1);
                let end = from.len().min(at + usize::from(len));
                let copied = from[at.min(end)..end].to_vec();
                set(pick(segments, to.0), to.1, &copied);
            }
            Self::Cut { segment, at } => {
                let bytes = pick(segments, segment);
                bytes.truncate(usize::from(at) % bytes.len().max(1));
            }
            Self::Extend { segment, bytes } => {
                let segment = pick(segments, segment);
                segment.resize(segment.len() + usize::from(bytes), bytes);
            }
            Self::Remove { segment } => pick(segments, segment).clear(),
        }
    }
}

fn pick(segments: &mut Segments, segment: u8) -> &mut Vec<u8> {
    let count = segments.len();
    &mut segments[usize::from(segment) % count]
}

/// A killed store, with every kind of entry in its journal.
struct Whole {
    dir: TempDir,
    segments: Segments,
    /// The end of each frame: segment and byte.
    ends: Vec<(usize, usize)>,
    /// The expected jobs after this many frames.
    found_after: Vec<Found>,
}

impl Whole {
    fn get() -> &'static Self {
        static WHOLE: OnceLock<Whole> = OnceLock::new();
        WHOLE.get_or_init(Self::new)
    }

    fn new() -> Self {
        let disk = Disk { dir: tempfile::tempdir().unwrap() };
        let store = disk.open().unwrap();
        store.live();
        let found = store.read_all();
        drop(store);
        // It is opened below with fewer segments than it had.
        fuzzing::forget_newest_segment(disk.dir.path());
        let segments: Segments =
            (1..).map_while(|slot| fs::read(segment_file(disk.dir.path(), slot)).ok()).collect();
        let ends: Vec<_> =
            (0..).zip(&segments).flat_map(|(n, bytes)| frame_ends(n, bytes)).collect();
        assert!(segments.len() >= 4 && ends.len() >= 16, "{} {}", segments.len(), ends.len());
        let mut whole = Self { dir: disk.dir, segments, ends, found_after: Vec::new() };
        for frames in 0..=whole.ends.len() {
            let disk = whole.disk_with(&whole.first(frames));
            whole.found_after.push(disk.open().unwrap().read_all());
        }
        // Opening has queued the running job again.
        let repaired = |status| match status {
            JobStatus::InProgress => JobStatus::InQueue,
            status => status,
        };
        let found = found.into_iter().map(|(id, status)| (id, repaired(status))).collect();
        assert_eq!(whole.found_after.last(), Some(&found));
        whole
    }

    /// The segments as they were after some frames.
    fn first(&self, frames: usize) -> Segments {
        let Some(&(last, end)) = frames.checked_sub(1).map(|frame| &self.ends[frame]) else {
            return Vec::new();
        };
        let mut segments = self.segments[..=last].to_vec();
        segments[last][end..].fill(0);
        segments
    }

    /// A data directory with these segments.
    fn disk_with(&self, segments: &Segments) -> Disk {
        let dir = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(self.dir.path()).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
            }
        }
        fs::create_dir(dir.path().join("journal")).unwrap();
        for (slot, bytes) in (1..).zip(segments) {
            fs::write(segment_file(dir.path(), slot), bytes).unwrap();
        }
        Disk { dir }
    }

    /// The first changed byte in use: its segment and position.
    fn first_damage(&self, segments: &Segments) -> Option<(usize, usize)> {
        let used = |n: usize| {
            let ends = self.ends.iter().filter(|(segment, _)| *segment == n);
            ends.map(|(_, end)| *end).max().unwrap_or(HEADER)
        };
        (0..).zip(self.segments.iter().zip(segments)).find_map(|(n, (written, found))| {
            let at = (0..used(n)).find(|&at| found.get(at) != written.get(at))?;
            Some((n, at))
        })
    }

    fn frames_before(&self, damaged: (usize, usize)) -> usize {
        self.ends.iter().take_while(|end| **end <= damaged).count()
    }
}

fn segment_file(dir: &Path, slot: usize) -> PathBuf {
    dir.join("journal").join(format!("{slot:06}.seg"))
}

/// The ends of the frames of a segment as the store writes it.
fn frame_ends(segment: usize, bytes: &[u8]) -> Vec<(usize, usize)> {
    let (mut ends, mut at) = (Vec::new(), HEADER);
    while let Some(head) = bytes.get(at..at + HEAD) {
        let number = |from: usize| u32::from_le_bytes(head[from..from + 4].try_into().unwrap());
        let (says, payloads) = (number(8) as usize, number(12) as usize);
        if says == 0 {
            break;
        }
        at += HEAD + says + payloads;
        ends.push((segment, at));
    }
    ends
}

struct Disk {
    dir: TempDir,
}

impl Disk {
    fn open(&self) -> Result<OpenStore, OpenError> {
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = has_ended.clone();
        let settings = Settings {
            segment_bytes: SEGMENT_BYTES,
            payload_cache_bytes: 0,
            chunk_cache_bytes: 0,
            on_fatal: Arc::new(move |_| ended.store(true, Ordering::Relaxed)),
            ..Settings::default()
        };
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_700_000_000_000)));
        let signals = Arc::new(Signals::default());
        let (store, _) = Store::open(self.dir.path(), clock, signals, settings)?;
        Ok(OpenStore { store, tokio, has_ended, endpoint: EndpointId::new("e").unwrap() })
    }
}

struct OpenStore {
    store: Store,
    tokio: tokio::runtime::Runtime,
    /// Whether the store has ended itself after it was opened.
    has_ended: Arc<AtomicBool>,
    endpoint: EndpointId,
}

impl OpenStore {
    /// The jobs, each with all its data.
    fn read_all(&self) -> Found {
        let jobs = self.list().expect("the store goes on");
        self.tokio.block_on(async {
            for job in &jobs {
                let input = self.store.input(job.id).await.unwrap();
                assert_eq!(input.is_some(), job.status.needs_input(), "{job:?}");
                let output = self.store.output(job.id).await.unwrap();
                assert_eq!(output.is_some(), job.status == JobStatus::Completed, "{job:?}");
                let page = self.store.chunks(job.id, 0, 1 << 20, 100).await.unwrap();
                assert_eq!(page.next(), job.chunk_count, "{job:?}");
            }
        });
        jobs.iter().map(|job| (job.id.to_string(), job.status)).collect()
    }

    /// The jobs; `None` when the store has ended.
    fn list(&self) -> Option<Vec<JobRecord>> {
        let query = JobQuery { status: None, after: None, count_max: 1_000 };
        let page = self.tokio.block_on(self.store.list(&self.endpoint, &query));
        assert!(page.is_ok() || self.has_ended.load(Ordering::Relaxed), "{page:?}");
        page.ok().map(|page| page.jobs)
    }

    /// Adds a job, and returns its id once it is on disk; `None` when the store has ended.
    fn submit(&self) -> Option<String> {
        let job = self.new_job("{}");
        let id = job.id.to_string();
        let answer = self.tokio.block_on(self.store.submit(job));
        assert!(answer.is_ok() || self.has_ended.load(Ordering::Relaxed), "{answer:?}");
        answer.is_ok().then_some(id)
    }

    fn new_job(&self, input: &str) -> NewJob {
        NewJob {
            input: Json::parse(input.to_owned()).unwrap(),
            retention: Retention::by_default(1_800_000),
            ..new_job(ShardId(7), OwnerId::new("o").unwrap(), self.endpoint.clone())
        }
    }

    /// Runs every operation that writes to a journal.
    fn live(&self) {
        let json = |text: &str| Json::parse(text.to_owned()).unwrap();
        let owner = OwnerId::new("o").unwrap();
        self.tokio.block_on(async {
            for n in 0..12 {
                // Inputs of 16 KiB and more stay in the journal.
                let bytes = if n == 5 { 17_000 } else { 40 * n };
                let job = NewJob {
                    webhook: (n % 3 == 0).then(|| "http://receiver.invalid/".to_owned()),
                    s3_config: (n % 4 == 0).then(Arc::default),
                    idempotency: (n % 2 == 0)
                        .then(|| Idempotency::new(&owner, &n.to_string(), "run", b"body")),
                    ..self.new_job(&format!("{{\"text\":\"{}\"}}", "x".repeat(bytes)))
                };
                assert_eq!(self.store.submit(job).await, Ok(SubmitAnswer::Queued));
                if n % 4 == 3 {
                    continue; // it waits
                }
                let worker = WorkerId::new("w").unwrap();
                let claimed = self.store.claim(&self.endpoint, &worker).await.unwrap();
                let lease = claimed.unwrap().lease;
                let chunk =
                    Chunk { output: json("\"chunk\""), metrics: Some(json("{}")), part: None };
                let _ = self.store.append_chunks(lease, vec![chunk; n % 3]).await.unwrap();
                let outcome = match n % 5 {
                    0 | 1 => Outcome::Completed(json("[1,2,3]")),
                    2 => Outcome::Failed("on purpose".to_owned()),
                    3 => Outcome::TimedOut,
                    _ => continue, // it runs
                };
                let _ = self.store.finish(lease, outcome).await.unwrap();
            }
            self.store.flush().await.unwrap();
        });
    }
}
