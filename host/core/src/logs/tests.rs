//! Lines in memory, with and without an archive: reads, followers, bounds, and what is dropped.

use proptest::prelude::*;

use super::*;
use crate::id::{OwnerId, ShardId, SubmissionKind};

/// An archive without files: a test does the work of its thread.
#[derive(Debug)]
struct NoFiles;

impl LogArchive for NoFiles {
    fn read(&self, _: &EndpointIncarnation, _: ArchiveQuery) -> ArchivePage {
        ArchivePage::default()
    }
}

fn with_archive() -> Logs {
    Logs::with_archive(Arc::new(NoFiles), [])
}

fn endpoint_of(owner: &str) -> EndpointIncarnation {
    EndpointIncarnation::new(OwnerId::new(owner).unwrap())
}

fn in_memory(logs: &Logs, endpoint: &EndpointIncarnation) -> usize {
    logs.state.lock().endpoints.get(endpoint).map_or(0, |lines| lines.lines.len())
}

fn job() -> JobId {
    JobId::generate(SubmissionKind::Async, ShardId(1))
}

fn add(logs: &Logs, endpoint: &EndpointIncarnation, job: JobId, text: &str) {
    logs.add(endpoint, Timestamp::from_millis(0), job, LogLevel::Info, text);
}

fn read(logs: &Logs, endpoint: &EndpointIncarnation, query: LogQuery) -> Vec<Arc<LogLine>> {
    match logs.read(endpoint, query) {
        LogAnswer::Complete(page) => page.lines,
        LogAnswer::Partial(_) => panic!("there is no archive"),
    }
}

fn texts(logs: &Logs, endpoint: &EndpointIncarnation, query: LogQuery) -> Vec<String> {
    read(logs, endpoint, query).iter().map(|line| line.text.to_string()).collect()
}

const ALL: LogQuery =
    LogQuery { after: 0, job: None, order: LogOrder::Newest, count_max: usize::MAX };

#[test]
fn lines_are_found_by_endpoint_job_and_number() {
    let (logs, mine, other) = (Logs::default(), job(), job());
    let [a, b, c] = [(); 3].map(|()| EndpointIncarnation::default());
    for (endpoint, job, text) in
        [(&a, mine, "1"), (&b, mine, "2"), (&a, other, "3"), (&a, mine, "4")]
    {
        add(&logs, endpoint, job, text);
    }
    assert_eq!(texts(&logs, &a, ALL), ["1", "3", "4"]);
    assert_eq!(texts(&logs, &a, LogQuery { job: Some(mine), ..ALL }), ["1", "4"]);
    assert_eq!(texts(&logs, &a, LogQuery { after: 1, ..ALL }), ["3", "4"]);
    assert_eq!(texts(&logs, &a, LogQuery { count_max: 1, ..ALL }), ["4"], "the newest");
    assert_eq!(texts(&logs, &c, ALL), [""; 0]);
    logs.forget(&a);
    assert_eq!((texts(&logs, &a, ALL).len(), texts(&logs, &b, ALL).len()), (0, 1));
}

#[test]
fn numbers_grow_by_endpoint_and_over_restarts() {
    let (job, numbered) = (job(), EndpointIncarnation::default());
    let line = |logs: &Logs, endpoint: &EndpointIncarnation, ms: u64| {
        logs.add(endpoint, Timestamp::from_millis(ms), job, LogLevel::Info, "x");
    };
    let numbers = |logs: &Logs, after: u64| -> Vec<u64> {
        let query = LogQuery { after, ..ALL };
        read(logs, &numbered, query).iter().map(|line| line.number).collect()
    };
    let logs = Logs::default();
    for ms in [1_000, 1_000, 990, 1_500] {
        line(&logs, &numbered, ms);
        // Another endpoint's lines change nothing.
        let other = EndpointIncarnation::default();
        (0..100).for_each(|_| line(&logs, &other, ms));
    }
    assert_eq!(numbers(&logs, 0), [1_000, 1_001, 1_002, 1_500]);
    // The next process continues after the last line that a reader has seen.
    let logs = Logs::default();
    line(&logs, &numbered, 1_500);
    line(&logs, &numbered, 2_000);
    assert_eq!(numbers(&logs, 1_499), [1_500, 2_000]);
    assert_eq!(numbers(&logs, 1_500), [2_000]);
    // The clock of the process before was ahead.
    assert_eq!(numbers(&logs, 2_001), [1_500, 2_000]);
}

#[test]
fn late_lines_of_a_deleted_endpoint_are_kept_nowhere() {
    let (logs, job) = (Logs::default(), job());
    let (deleted, next) = (EndpointIncarnation::default(), EndpointIncarnation::default());
    add(&logs, &deleted, job, "before");
    deleted.end();
    add(&logs, &deleted, job, "late");
    logs.forget(&deleted);
    add(&logs, &deleted, job, "later");
    add(&logs, &next, job, "next");
    assert_eq!(texts(&logs, &deleted, ALL), [""; 0]);
    assert_eq!(texts(&logs, &next, ALL), ["next"]);
    let state = logs.state.lock();
    assert_eq!((state.endpoints.len(), state.bytes), (1, "next".len() + LINE_BYTES));
}

#[test]
fn an_endpoint_keeps_its_newest_lines_and_displaces_no_others() {
    let (logs, job) = (Logs::default(), job());
    let (quiet, loud) = (EndpointIncarnation::default(), EndpointIncarnation::default());
    add(&logs, &quiet, job, "here");
    let text = "x".repeat(1_000);
    for _ in 0..1_000 {
        add(&logs, &loud, job, &text);
    }
    assert_eq!(texts(&logs, &loud, ALL).len(), ENDPOINT_BYTES_MAX / 1_100);
    assert_eq!(texts(&logs, &quiet, ALL), ["here"]);
}

#[tokio::test]
async fn a_line_wakes_the_followers_of_its_own_endpoint_and_no_other() {
    let (logs, job) = (Arc::new(Logs::default()), job());
    let [quiet, loud, unheard] = [(); 3].map(|()| EndpointIncarnation::default());
    let followers = [&quiet, &quiet, &loud].map(|endpoint| logs.follow(endpoint));
    let mut added: Vec<_> = followers.iter().map(|each| Box::pin(each.added())).collect();
    let mut woken = |index: usize| added[index].as_mut().enable();
    assert_eq!([0, 1, 2].map(&mut woken), [false; 3]);
    for _ in 0..1_000 {
        add(&logs, &loud, job, "x");
        add(&logs, &unheard, job, "x");
    }
    assert_eq!([0, 1, 2].map(&mut woken), [false, false, true]);
    add(&logs, &quiet, job, "here");
    assert_eq!([0, 1].map(&mut woken), [true; 2]);
    assert_eq!(texts(&logs, &quiet, ALL), ["here"]);
    drop(added);

    let mut deleted = Box::pin(followers[0].added());
    assert!(!deleted.as_mut().enable());
    quiet.end();
    logs.forget(&quiet);
    assert!(deleted.as_mut().enable(), "a deleted endpoint has no more lines to wait for");
    assert!(followers[0].read(ALL).is_none());
    drop(deleted);
    let [first, second, third] = followers;
    drop((first, third));
    assert_eq!(logs.state.lock().followed.len(), 1, "the second follower is still there");
    drop(second);
    assert!(logs.state.lock().followed.is_empty(), "endpoints without followers take no memory");
}

#[test]
fn lines_beyond_the_common_bound_are_dropped_from_the_largest_log() {
    let (logs, job) = (Logs::default(), job());
    let quiet = EndpointIncarnation::default();
    add(&logs, &quiet, job, "here");
    let text = "x".repeat(100_000);
    for _ in 0..500 {
        add(&logs, &EndpointIncarnation::default(), job, &text);
    }
    let state = logs.state.lock();
    assert!(state.bytes <= ALL_BYTES_MAX, "{}", state.bytes);
    assert_eq!(state.bytes, state.endpoints.values().map(|lines| lines.bytes).sum::<usize>());
    drop(state);
    assert_eq!(texts(&logs, &quiet, ALL), ["here"]);
}

#[test]
fn an_owner_with_thousands_of_endpoints_displaces_no_lines_of_another() {
    let (job, line) = (job(), "x".repeat(3_300));
    for logs in [Logs::default(), with_archive()] {
        for _ in 0..9_900 {
            add(&logs, &endpoint_of("many"), job, &line);
        }
        let full = logs.state.lock().bytes;
        assert!(full > ALL_BYTES_MAX - 4_000, "{full}");
        // The endpoint with the most bytes, of the owner with the fewest.
        let burst = endpoint_of("burst");
        let begun = Instant::now();
        for _ in 0..100 {
            add(&logs, &burst, job, &line[..1_000]);
        }
        println!("100 lines while the memory is full: {:?}", begun.elapsed());
        assert_eq!(in_memory(&logs, &burst), 100);
        assert!(logs.state.lock().bytes <= ALL_BYTES_MAX);
        if logs.archive.is_some() {
            let batch = logs.take_unarchived(&burst).unwrap();
            assert_eq!((batch.lines.len(), batch.lost), (100, None));
        }
    }
}

#[test]
fn lines_that_the_archive_has_are_dropped_first() {
    // Memory has room for 335 such lines.
    let (logs, job, line) = (with_archive(), job(), "x".repeat(100_000));
    let [written, taken] = ["one", "another"].map(endpoint_of);
    let add_some = |endpoint: &EndpointIncarnation, count: usize| {
        (0..count).for_each(|_| add(&logs, endpoint, job, &line));
    };
    add_some(&written, 4);
    add_some(&taken, 3);
    logs.take_unarchived(&written).unwrap();
    logs.confirm(&written);
    let batch = logs.take_unarchived(&taken).unwrap();
    let wait = |count: usize| (0..count).for_each(|_| add_some(&endpoint_of("most"), 1));
    wait(328);
    assert_eq!(in_memory(&logs, &written), 4, "there is room for all");
    wait(4);
    assert_eq!((in_memory(&logs, &written), in_memory(&logs, &taken)), (0, 3));
    assert_eq!(logs.lost_lines(), 0, "the archive has all that were dropped");
    assert!(matches!(logs.read(&written, ALL), LogAnswer::Partial(_)));
    wait(10);
    assert_eq!((in_memory(&logs, &taken), logs.lost_lines()), (3, 10), "of the owner `most`");
    logs.put_back(&taken, &batch, None);
    wait(10);
    assert_eq!(in_memory(&logs, &taken), 3, "they could not be written");
    let batch = logs.take_unarchived(&taken).unwrap();
    assert_eq!((batch.lines.len(), batch.lost, logs.lost_lines()), (3, None, 20));
}

#[derive(Debug, Clone)]
enum Op {
    Add(usize),
    Take(usize),
    Confirm(usize),
    /// The first half of the lines were written, or none.
    PutBack(usize, bool),
    Forget(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let endpoint = || 0..120_usize;
    prop_oneof![
        20 => endpoint().prop_map(Op::Add),
        5 => endpoint().prop_map(Op::Take),
        4 => endpoint().prop_map(Op::Confirm),
        1 => (endpoint(), any::<bool>()).prop_map(|(of, half)| Op::PutBack(of, half)),
        1 => endpoint().prop_map(Op::Forget),
    ]
}

/// The bytes of lines that the archive has, and of the others.
fn sums(lines: &Lines) -> [usize; 2] {
    let sum = |is_written: bool| {
        let of = lines.lines.iter().filter(|line| (line.number <= lines.written_to) == is_written);
        of.map(|line| line.bytes()).sum()
    };
    [true, false].map(sum)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn rankings_agree_with_the_lines_after_any_changes(
        ops in prop::collection::vec(op(), 1..800)
    ) {
        let (logs, job, line) = (with_archive(), job(), "x".repeat(200_000));
        let endpoints: Vec<_> =
            (0..120).map(|number| endpoint_of(["a", "b", "c"][number % 3])).collect();
        let mut batches: HashMap<usize, Batch> = HashMap::new();
        for op in ops {
            match op {
                Op::Add(number) => add(&logs, &endpoints[number], job, &line),
                Op::Take(number) if !batches.contains_key(&number) => {
                    let batch = logs.take_unarchived(&endpoints[number]);
                    batches.extend(batch.map(|batch| (number, batch)));
                }
                Op::Take(_) => {}
                Op::Confirm(number) => {
                    batches.remove(&number);
                    logs.confirm(&endpoints[number]);
                }
                Op::PutBack(number, half) => {
                    let Some(batch) = batches.remove(&number) else { continue };
                    let middle = batch.lines.get(batch.lines.len() / 2).filter(|_| half);
                    logs.put_back(&endpoints[number], &batch, middle.map(|line| line.number));
                }
                Op::Forget(number) => {
                    batches.remove(&number);
                    logs.forget(&endpoints[number]);
                }
            }
        }
        let state = logs.state.lock();
        prop_assert!(state.bytes <= ALL_BYTES_MAX);
        let bytes = state.endpoints.values().map(|lines| lines.bytes).sum::<usize>();
        prop_assert_eq!(state.bytes, bytes);
        for lines in state.endpoints.values() {
            prop_assert_eq!(lines.ranked, sums(lines));
        }
        let Rankings { written, unwritten, .. } = &state.rankings;
        for (part, ranking) in [written, unwritten].into_iter().enumerate() {
            let endpoints = state.endpoints.iter();
            ranking.check(endpoints.map(|(of, lines)| (of, lines.number, sums(lines)[part])));
        }
    }
}
