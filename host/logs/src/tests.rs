//! The directory with the lines in memory, as the host uses them.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gristmill_core::id::{JobId, OwnerId, ShardId, SubmissionKind};
use gristmill_core::incarnation::EndpointIncarnation;
use gristmill_core::logs::{
    LogAnswer, LogLine, LogOrder, LogPage, LogQuery, Logs, NEWEST_BYTES_MAX,
};
use gristmill_core::runtime::LogLevel;
use gristmill_core::sharing::disk_share::DiskAccount;
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use gristmill_core::sharing::tenancy::Tenancy;
use gristmill_core::time::Timestamp;
use proptest::prelude::*;

use crate::directory::Refusal;
use crate::{LogDirectory, LogSettings, LogWriter, Opened};

const KIB: u64 = 1 << 10;
const NO_BOUND: u64 = 1 << 40;

fn job() -> JobId {
    JobId::generate(SubmissionKind::Async, ShardId(1))
}

fn endpoint_of(owner: &str) -> EndpointIncarnation {
    EndpointIncarnation::new(OwnerId::new(owner).unwrap())
}

/// A host's lines, without the thread of the writer.
struct Bench {
    folder: tempfile::TempDir,
    settings: LogSettings,
    endpoints: Vec<EndpointIncarnation>,
    directory: Arc<LogDirectory>,
    logs: Arc<Logs>,
}

impl Bench {
    fn new(
        endpoint_bytes_max: u64,
        all_bytes_max: u64,
        endpoints: Vec<EndpointIncarnation>,
    ) -> Self {
        let disk_space = Arc::new(DiskSpaceGauge::default());
        let settings = LogSettings { endpoint_bytes_max, all_bytes_max, disk_space };
        let folder = tempfile::tempdir().unwrap();
        let (directory, logs) = open(&folder.path().join("logs"), &settings, &endpoints);
        Self { folder, settings, endpoints, directory, logs }
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("logs")
    }

    /// Ends the process without a last round, and starts the next one.
    fn restart(&mut self) {
        let endpoints = std::mem::take(&mut self.endpoints);
        (self.directory, self.logs) = open(&self.dir(), &self.settings, &endpoints);
        self.endpoints = endpoints;
    }

    fn add(&self, endpoint: usize, ms: u64, job: JobId, text: &str) {
        let at = Timestamp::from_millis(ms);
        self.logs.add(&self.endpoints[endpoint], at, job, LogLevel::Info, text);
    }

    fn write(&self, endpoint: usize) -> Result<(), Refusal> {
        write(&self.directory, &self.logs, &self.endpoints[endpoint])
    }

    fn lines(&self, endpoint: usize, query: LogQuery) -> Vec<Arc<LogLine>> {
        page(&self.logs, &self.endpoints[endpoint], query).lines
    }

    fn texts(&self, endpoint: usize, query: LogQuery) -> Vec<String> {
        self.lines(endpoint, query).iter().map(|line| line.text.to_string()).collect()
    }

    fn files(&self) -> Vec<PathBuf> {
        files(&self.dir())
    }
}

fn open(
    dir: &Path,
    settings: &LogSettings,
    endpoints: &[EndpointIncarnation],
) -> (Arc<LogDirectory>, Arc<Logs>) {
    let Opened { directory, last_numbers } = LogDirectory::open(dir, settings.clone(), endpoints);
    let logs = Arc::new(Logs::with_archive(directory.clone(), last_numbers));
    (directory, logs)
}

fn write(
    directory: &LogDirectory,
    logs: &Logs,
    endpoint: &EndpointIncarnation,
) -> Result<(), Refusal> {
    let put_back = |batch: &_, written_to| logs.put_back(endpoint, batch, written_to);
    directory.append(endpoint, || logs.take_unarchived(endpoint), put_back)
}

fn page(logs: &Logs, endpoint: &EndpointIncarnation, query: LogQuery) -> LogPage {
    match logs.read(endpoint, query) {
        LogAnswer::Complete(page) => page,
        LogAnswer::Partial(page) => page.complete(),
    }
}

/// All lines, page by page.
fn walk(logs: &Logs, endpoint: &EndpointIncarnation, mut query: LogQuery) -> Vec<Arc<LogLine>> {
    let mut all = vec![];
    query.order = LogOrder::Next;
    loop {
        let LogPage { lines, up_to } = page(logs, endpoint, query);
        if lines.is_empty() {
            return all;
        }
        assert!(lines.iter().all(|line| line.number > query.after && line.number <= up_to));
        query.after = up_to;
        all.extend(lines);
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn bytes(files: &[PathBuf]) -> u64 {
    files.iter().map(|file| fs::metadata(file).unwrap().len()).sum()
}

const ALL: LogQuery =
    LogQuery { after: 0, job: None, order: LogOrder::Newest, count_max: usize::MAX };

#[test]
fn lines_are_found_after_a_restart_by_number_and_by_job() {
    let mut bench = Bench::new(64 * KIB, NO_BOUND, vec![endpoint_of("a"), endpoint_of("a")]);
    let (mine, other) = (job(), job());
    for (endpoint, job, text) in
        [(0, mine, "one"), (1, mine, "elsewhere"), (0, other, "two"), (0, mine, "three")]
    {
        bench.add(endpoint, 1_000, job, text);
    }
    for endpoint in [0, 1] {
        bench.write(endpoint).unwrap();
    }
    bench.add(0, 1_000, mine, "not written");
    bench.restart();
    // The clock has gone back.
    bench.add(0, 5, mine, "four");
    for _ in 0..2 {
        assert_eq!(bench.texts(0, ALL), ["one", "two", "three", "four"]);
        assert_eq!(bench.texts(0, LogQuery { count_max: 2, ..ALL }), ["three", "four"]);
        let of_job = LogQuery { job: Some(mine), ..ALL };
        assert_eq!(bench.texts(0, of_job), ["one", "three", "four"]);
        assert_eq!(bench.texts(0, LogQuery { count_max: 2, ..of_job }), ["three", "four"]);
        assert_eq!(bench.texts(0, LogQuery { job: Some(job()), ..ALL }), [""; 0]);
        let numbers: Vec<_> = bench.lines(0, ALL).iter().map(|line| line.number).collect();
        assert!(numbers.is_sorted() && numbers[2] == 1_002, "{numbers:?}");
        // A reader has seen the line that was not written, which had the next number.
        for (after, expected) in [(1_001, &["three", "four"][..]), (1_003, &["four"])] {
            let query = LogQuery { after, order: LogOrder::Next, ..ALL };
            assert_eq!(bench.texts(0, query), expected);
        }
        bench.write(0).unwrap();
        bench.restart();
    }
    assert_eq!(bench.texts(1, ALL), ["elsewhere"]);
    let [first, second] = &bench.files()[..] else { panic!("{:?}", bench.files()) };
    for file in [first, second] {
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(fs::metadata(bench.dir()).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn an_endpoint_keeps_its_newest_lines_within_its_bound() {
    let mut bench = Bench::new(64 * KIB, NO_BOUND, vec![endpoint_of("a"), endpoint_of("a")]);
    bench.add(1, 0, job(), "quiet");
    bench.write(1).unwrap();
    let job = job();
    for number in 0..4_000 {
        bench.add(0, number, job, &format!("line {number}"));
        if number % 100 == 99 {
            bench.write(0).unwrap();
            assert!(bytes(&bench.files()) <= 65 * KIB && bench.files().len() <= 10);
        }
        if number % 1_000 == 999 {
            bench.restart();
        }
    }
    let texts = bench.texts(0, ALL);
    let expected: Vec<_> =
        (4_000 - texts.len()..4_000).map(|number| format!("line {number}")).collect();
    assert_eq!(texts, expected);
    assert!(bytes(&bench.files()) > 48 * KIB, "most of the bound is used");
    assert_eq!(bench.texts(1, ALL), ["quiet"]);
    // A smaller bound counts from the next start.
    bench.settings.endpoint_bytes_max = 32 * KIB;
    bench.restart();
    assert!(bytes(&bench.files()) <= 33 * KIB);
    assert!(bench.texts(0, ALL).len() < texts.len());
}

#[test]
fn the_owner_with_the_most_lines_loses_its_oldest() {
    let owners = ["quiet", "loud", "loud"];
    let bench = Bench::new(256 * KIB, 512 * KIB, owners.map(endpoint_of).into());
    let (job, text) = (job(), "x".repeat(1_000));
    bench.add(0, 0, job, "first");
    bench.write(0).unwrap();
    for number in 0..3_000 {
        bench.add(0, number, job, "");
        for loud in [1, 2] {
            bench.add(loud, number, job, &text);
        }
        if number % 50 == 49 {
            for endpoint in 0..3 {
                bench.write(endpoint).unwrap();
            }
            assert!(bytes(&bench.files()) <= 512 * KIB);
        }
    }
    assert_eq!(bench.texts(0, LogQuery { count_max: 10_000, ..ALL })[0], "first");
    for loud in [1, 2] {
        let lines = bench.lines(loud, ALL);
        let newest = lines.last().unwrap().at;
        assert!(lines.len() > 100 && newest == Timestamp::from_millis(2_999), "{}", lines.len());
    }
}

#[test]
fn thousands_of_endpoints_with_a_line_each_have_one_file_each_and_start_quickly() {
    const ENDPOINTS: usize = 6_000;
    let endpoints = (0..ENDPOINTS).map(|_| endpoint_of("a")).collect();
    let mut bench = Bench::new(16 << 20, NO_BOUND, endpoints);
    for endpoint in 0..ENDPOINTS {
        bench.add(endpoint, 0, job(), "the only line");
        bench.write(endpoint).unwrap();
    }
    assert_eq!(bench.files().len(), ENDPOINTS);
    let begun = std::time::Instant::now();
    bench.restart();
    println!("a start with {ENDPOINTS} endpoints: {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(20));
    for endpoint in [0, ENDPOINTS - 1] {
        assert_eq!(bench.texts(endpoint, ALL), ["the only line"]);
        bench.add(endpoint, 0, job(), "another");
        bench.write(endpoint).unwrap();
    }
    assert_eq!(bench.files().len(), ENDPOINTS, "the files are continued");
}

#[test]
fn a_read_ends_after_its_bound_and_the_next_continues() {
    const LINES: usize = 3_000;
    let mut bench = Bench::new(64 << 20, NO_BOUND, vec![endpoint_of("a")]);
    let (mine, other, text) = (job(), job(), "x".repeat(4_000));
    for number in 0..LINES {
        bench.add(0, 0, if number % 2 == 0 { mine } else { other }, &text);
        if number % 100 == 99 {
            bench.write(0).unwrap();
        }
    }
    bench.restart();
    let newest = bench.lines(0, ALL);
    let bytes: usize = newest.iter().map(|line| line.bytes()).sum();
    assert!((NEWEST_BYTES_MAX..=NEWEST_BYTES_MAX + 5_000).contains(&bytes), "{bytes}");
    let all = walk(&bench.logs, &bench.endpoints[0], ALL);
    assert_eq!((all.len(), &all[LINES - newest.len()..]), (LINES, &newest[..]));
    let of_job = LogQuery { job: Some(mine), ..ALL };
    assert_eq!(walk(&bench.logs, &bench.endpoints[0], of_job).len(), LINES / 2);
}

#[test]
fn files_of_endpoints_that_do_not_exist_are_deleted_and_other_files_are_not() {
    let mut bench = Bench::new(64 * KIB, NO_BOUND, vec![endpoint_of("a"), endpoint_of("a")]);
    for endpoint in [0, 1] {
        bench.add(endpoint, 0, job(), "here");
        bench.write(endpoint).unwrap();
    }
    fs::write(bench.dir().join("README"), "of the operator").unwrap();
    // A crash between the deletion of the endpoint and that of its files.
    bench.endpoints.remove(0);
    bench.restart();
    assert_eq!((bench.files().len(), bench.texts(0, ALL)), (2, vec!["here".to_owned()]));
    bench.logs.forget(&bench.endpoints[0]);
    let work = bench.logs.await_archive_work(std::time::Instant::now());
    work.deleted.iter().for_each(|endpoint| bench.directory.remove(endpoint));
    assert_eq!(files(&bench.dir()), [bench.dir().join("README")]);
    LogDirectory::clear(&bench.dir());
    assert!(bench.dir().join("README").exists());
}

#[test]
fn damage_costs_the_damaged_lines_and_no_start() {
    let mut bench = Bench::new(64 * KIB, NO_BOUND, vec![endpoint_of("a")]);
    let job = job();
    let add = |bench: &Bench, from: u64| {
        for number in from..from + 100 {
            bench.add(0, number, job, &format!("line {number:04}"));
        }
        bench.write(0).unwrap();
    };
    add(&bench, 1_000);
    let file = bench.files()[0].clone();
    let whole = fs::read(&file).unwrap();
    // A block in the middle, with the end of one line and the beginning of another one.
    File::options().write(true).open(&file).unwrap().write_all_at(&[0xff; 300], 3_000).unwrap();
    bench.restart();
    let texts = bench.texts(0, ALL);
    assert!(texts.len() >= 94 && texts.len() < 100, "{}", texts.len());
    assert_eq!((&texts[0][..], &texts[texts.len() - 1][..]), ("line 1000", "line 1099"));
    assert_eq!(walk(&bench.logs, &bench.endpoints[0], ALL).len(), texts.len());
    assert_eq!(bench.texts(0, LogQuery { job: Some(job), ..ALL }), texts);

    type Replace = fn(&Path, &[u8]);
    let replaced: [(&str, Replace); 6] = [
        ("garbage", |file, _| fs::write(file, "garbage\n".repeat(500)).unwrap()),
        ("nothing", |file, _| fs::write(file, "").unwrap()),
        ("zeros", |file, whole| fs::write(file, vec![0; whole.len()]).unwrap()),
        ("a directory", |file, _| {
            fs::remove_file(file).unwrap();
            fs::create_dir(file).unwrap();
        }),
        ("a link", |file, _| {
            fs::remove_file(file).unwrap();
            symlink("/etc/passwd", file).unwrap();
        }),
        ("a newer version", |file, _| fs::write(file, "gristmill-log 2\nother\n").unwrap()),
    ];
    for (what, replace) in replaced {
        for restarts in [true, false] {
            let mut bench = Bench::new(64 * KIB, NO_BOUND, vec![endpoint_of("a")]);
            add(&bench, 1_000);
            replace(&bench.files()[0], &whole);
            if restarts {
                bench.restart();
            }
            add(&bench, 2_000);
            bench.restart();
            let texts = bench.texts(0, ALL);
            // A running host appends to zeros of the same length: the first line is behind them.
            let lost = usize::from(what == "zeros" && !restarts);
            assert_eq!(texts.len(), 100 - lost, "{what} {restarts}");
            assert_eq!(texts[0], format!("line {}", 2_000 + lost), "{what}");
        }
    }
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    assert!(!passwd.contains("line 2000"));
}

#[test]
fn without_room_lines_stay_in_memory_and_missing_ones_are_counted() {
    let bench = Bench::new(16 << 20, NO_BOUND, vec![endpoint_of("a")]);
    let job = job();
    bench.add(0, 1, job, "before");
    bench.write(0).unwrap();
    bench.settings.disk_space.set(10, 1 << 30);
    for number in 2..100 {
        bench.add(0, number, job, "full");
    }
    assert!(matches!(bench.write(0), Err(Refusal::NoRoom)));
    assert_eq!((bench.lines(0, ALL).len(), bench.logs.lost_lines()), (99, 0));
    assert_eq!(fs::read_to_string(&bench.files()[0]).unwrap().lines().count(), 2);
    bench.settings.disk_space.set(1 << 40, 1 << 30);
    bench.write(0).unwrap();
    assert_eq!(fs::read_to_string(&bench.files()[0]).unwrap().lines().count(), 100);

    // More than memory has room for.
    bench.settings.disk_space.set(10, 1 << 30);
    let text = "x".repeat(1_000);
    for number in 100..2_100 {
        bench.add(0, number, job, &text);
        if number % 100 == 0 {
            assert!(matches!(bench.write(0), Err(Refusal::NoRoom)));
        }
    }
    let lost = bench.logs.lost_lines();
    assert!(lost > 1_000 && lost < 2_000, "{lost}");
    let before = bench.lines(0, ALL);
    bench.settings.disk_space.set(1 << 40, 1 << 30);
    bench.write(0).unwrap();
    let lines = bench.lines(0, ALL);
    let mark = &lines[99];
    let expected = format!("{lost} lines up to here are missing");
    assert!(mark.text.starts_with(&expected) && mark.level == LogLevel::Warn, "{mark:?}");
    assert_eq!(mark.number, 99 + lost);
    assert_eq!(lines.len() as u64, 99 + 1 + 2_000 - lost);
    assert_eq!(lines, before, "the mark is shown before it is written");
    assert_eq!(walk(&bench.logs, &bench.endpoints[0], ALL), lines);
    assert_eq!(bench.logs.lost_lines(), lost);
}

#[test]
fn a_directory_that_cannot_be_written_costs_no_line_in_memory() {
    let bench = Bench::new(64 * KIB, NO_BOUND, vec![endpoint_of("a")]);
    fs::write(bench.dir(), "a file in the place of the directory").unwrap();
    for number in 0..3 {
        bench.add(0, number, job(), "here");
        assert!(matches!(bench.write(0), Err(Refusal::Io(_))));
    }
    let Opened { last_numbers, .. } =
        LogDirectory::open(&bench.dir(), bench.settings.clone(), &bench.endpoints);
    assert!(last_numbers.is_empty());
    assert_eq!(bench.texts(0, ALL), ["here"; 3]);
    fs::remove_file(bench.dir()).unwrap();
    bench.write(0).unwrap();
    // The operator removes everything.
    fs::remove_dir_all(bench.dir()).unwrap();
    bench.add(0, 3, job(), "again");
    bench.write(0).unwrap();
    assert_eq!(fs::read_to_string(&bench.files()[0]).unwrap().lines().count(), 2);
    assert_eq!(bench.texts(0, ALL), ["here", "here", "here", "again"]);
}

#[test]
fn files_count_for_the_owner_of_the_endpoint_whose_share_bounds_them() {
    const MIB: u64 = 1 << 20;
    let tenancy = Tenancy::default();
    tenancy.set_several_owners(true);
    let mut bench = Bench::new(64 * MIB, NO_BOUND, vec![endpoint_of("a"), endpoint_of("b")]);
    bench.settings.disk_space = Arc::new(DiskSpaceGauge::new(tenancy));
    bench.restart();
    bench.settings.disk_space.set(100 * MIB, 0);
    let account = |bench: &Bench, owner| {
        DiskAccount::new(&bench.settings.disk_space, &OwnerId::new(owner).unwrap())
    };
    bench.add(0, 0, job(), "x");
    bench.write(0).unwrap();
    assert_eq!(account(&bench, "a").bytes(), 4 * KIB);
    bench.restart();
    assert_eq!(account(&bench, "a").bytes(), 4 * KIB);
    // The owner has used up the share in other ways.
    account(&bench, "a").add_existing(400 * MIB);
    for endpoint in [0, 1] {
        bench.add(endpoint, 1, job(), "y");
    }
    assert!(matches!(bench.write(0), Err(Refusal::NoRoom)));
    bench.write(1).unwrap();
    account(&bench, "a").remove(400 * MIB);
    bench.logs.forget(&bench.endpoints[0]);
    bench.directory.remove(&bench.endpoints[0]);
    assert_eq!(account(&bench, "a").bytes(), 0);
}

#[test]
fn followers_see_each_line_once_while_many_are_written() {
    const LINES: u64 = 100_000;
    let bench = Bench::new(64 << 20, NO_BOUND, vec![endpoint_of("a")]);
    let writer = LogWriter::start(bench.logs.clone(), bench.directory.clone()).unwrap();
    let (endpoint, logs) = (&bench.endpoints[0], &bench.logs);
    thread::scope(|scope| {
        scope.spawn(|| {
            let job = job();
            for number in 1..=LINES {
                let at = Timestamp::from_millis(number);
                logs.add(endpoint, at, job, LogLevel::Info, &number.to_string());
            }
        });
        let mut query = LogQuery { order: LogOrder::Next, ..ALL };
        let mut seen = 0;
        while seen < LINES {
            for line in page(logs, endpoint, query).lines {
                match line.text.split_once(" line") {
                    None => assert_eq!(line.text.parse(), Ok(seen + 1)),
                    // Some of them may have been seen in memory.
                    Some((missing, _)) => {
                        assert!(seen + missing.parse::<u64>().unwrap() >= line.number);
                    }
                }
                seen = line.number;
            }
            query.after = query.after.max(seen);
        }
    });
    writer.close(Duration::from_secs(60));
    println!("{} of {LINES} lines were lost to the disk", bench.logs.lost_lines());
    let kept = walk(logs, endpoint, ALL);
    let missing = |line: &LogLine| -> Option<u64> { line.text.split_once(" line")?.0.parse().ok() };
    let marked: u64 = kept.iter().filter_map(|line| missing(line)).sum();
    assert_eq!(marked, bench.logs.lost_lines());
    let whole = kept.iter().filter(|line| missing(line).is_none()).count() as u64;
    assert_eq!(whole + marked, LINES);
}

#[test]
fn lines_that_memory_drops_for_those_of_another_owner_are_read_from_the_files() {
    let owners = ["a"].into_iter().chain(std::iter::repeat_n("b", 350));
    let bench = Bench::new(16 << 20, NO_BOUND, owners.map(endpoint_of).collect());
    let job = job();
    for number in 1..=50 {
        bench.add(0, number, job, &number.to_string());
    }
    bench.write(0).unwrap();
    bench.logs.confirm(&bench.endpoints[0]);
    let follower = bench.logs.follow(&bench.endpoints[0]);
    // More than the 32 MiB of all lines, none of them written.
    let text = "x".repeat(100_000);
    for endpoint in 1..=350 {
        bench.add(endpoint, 100, job, &text);
    }
    bench.add(0, 200, job, "last");
    let lost = bench.logs.lost_lines();
    let next = LogQuery { after: 40, order: LogOrder::Next, ..ALL };
    let Some(LogAnswer::Partial(rest)) = follower.read(next) else { panic!("not in memory") };
    let rest: Vec<_> = rest.complete().lines.iter().map(|line| line.number).collect();
    assert_eq!(rest, (41..=50).chain([200]).collect::<Vec<_>>());
    assert_eq!(walk(&bench.logs, &bench.endpoints[0], ALL).len(), 51);
    bench.write(0).unwrap();
    assert_eq!((bench.lines(0, ALL).len(), bench.logs.lost_lines()), (51, lost));
}

#[derive(Debug, Clone)]
enum Op {
    Add { endpoint: usize, job: usize, ms: u64, len: usize },
    Write { endpoint: usize },
    Restart,
    Fill,
    Free,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        20 => (0..3_usize, 0..4_usize, 0..1_000_u64, 0..6_000_usize)
            .prop_map(|(endpoint, job, ms, len)| Op::Add { endpoint, job, ms, len }),
        10 => (0..3_usize).prop_map(|endpoint| Op::Write { endpoint }),
        1 => Just(Op::Restart),
        1 => Just(Op::Fill),
        1 => Just(Op::Free),
    ]
}

proptest! {
    /// For any order of lines, rounds, restarts, full disks and jumps of the clock: numbers grow,
    /// the found lines are the newest that were written or are in memory, and every way to read
    /// finds the same.
    #[test]
    fn every_way_to_read_finds_the_newest_lines(ops in prop::collection::vec(op(), 1..300)) {
        let jobs = [(); 4].map(|()| job());
        let mut bench =
            Bench::new(64 * KIB, NO_BOUND, (0..3).map(|_| endpoint_of("a")).collect());
        // Lines as a reader sees them, and how many of them are only in memory.
        let mut expected: [Vec<(JobId, String)>; 3] = Default::default();
        let mut unwritten = [0; 3];
        for (step, op) in ops.into_iter().enumerate() {
            match op {
                Op::Add { endpoint, job, ms, len } => {
                    let text = format!("{step} {}", "x".repeat(len.min(4_000)));
                    bench.add(endpoint, ms, jobs[job], &text);
                    expected[endpoint].push((jobs[job], text));
                    unwritten[endpoint] += 1;
                }
                Op::Write { endpoint } => {
                    if bench.write(endpoint).is_ok() {
                        unwritten[endpoint] = 0;
                    }
                }
                Op::Restart => {
                    bench.restart();
                    for (lines, unwritten) in expected.iter_mut().zip(&mut unwritten) {
                        lines.truncate(lines.len() - std::mem::take(unwritten));
                    }
                }
                Op::Fill => bench.settings.disk_space.set(0, 1 << 30),
                Op::Free => bench.settings.disk_space.set(1 << 40, 1 << 30),
            }
        }
        for (number, expected) in expected.iter().enumerate() {
            let all = bench.lines(number, ALL);
            let found: Vec<_> =
                all.iter().map(|line| (line.job, line.text.to_string())).collect();
            prop_assert!(found.len() >= expected.len().min(8), "{} {}", found.len(), expected.len());
            prop_assert_eq!(&found[..], &expected[expected.len() - found.len()..]);
            let numbers: HashSet<_> = all.iter().map(|line| line.number).collect();
            prop_assert!(numbers.len() == all.len() && all.is_sorted_by_key(|line| line.number));
            prop_assert_eq!(&walk(&bench.logs, &bench.endpoints[number], ALL), &all);
            for job in jobs {
                let of_job: Vec<_> = all.iter().filter(|line| line.job == job).cloned().collect();
                let query = LogQuery { job: Some(job), ..ALL };
                prop_assert_eq!(&bench.lines(number, query), &of_job);
                prop_assert_eq!(&walk(&bench.logs, &bench.endpoints[number], query), &of_job);
            }
            for count_max in [1, 3] {
                let tail = &all[all.len().saturating_sub(count_max)..];
                prop_assert_eq!(&bench.lines(number, LogQuery { count_max, ..ALL })[..], tail);
            }
            if let Some(middle) = all.get(all.len() / 2) {
                let query = LogQuery { after: middle.number, ..ALL };
                prop_assert_eq!(&bench.lines(number, query)[..], &all[all.len() / 2 + 1..]);
            }
        }
    }
}
