//! The newest lines that handlers have logged, to look at while they work. In memory alone: what is to be
//! kept for long is in the host's own log, which has the same lines.
//!
//! **Bounds.** [`ENDPOINT_BYTES_MAX`] for each endpoint, of which the oldest lines go first, and
//! [`ALL_BYTES_MAX`] for all of them: beyond it lines go of the endpoint that has the most. A line costs
//! its text and about a hundred bytes. A line wakes the [`Follower`]s of its own endpoint alone.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::endpoint::Endpoint;
use crate::id::{EndpointId, JobId, OwnerId};
use crate::runtime::LogLevel;
use crate::time::Timestamp;

/// Bytes of an endpoint's lines.
pub const ENDPOINT_BYTES_MAX: usize = 512 << 10;

/// Bytes of all lines.
pub const ALL_BYTES_MAX: usize = 32 << 20;

/// What a line costs beside its text.
const LINE_BYTES: usize = 100;

/// A line that a handler has logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Counts the lines of all endpoints since the host started; the first is 1.
    pub number: u64,
    /// When it came.
    pub at: Timestamp,
    /// The job.
    pub job: JobId,
    /// How much it matters.
    pub level: LogLevel,
    /// What the handler said, without control characters.
    pub text: Box<str>,
}

impl LogLine {
    fn bytes(&self) -> usize {
        self.text.len() + LINE_BYTES
    }
}

/// Which lines of an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogQuery {
    /// Only those after this number.
    pub after: u64,
    /// Only those of this job.
    pub job: Option<JobId>,
    /// The newest so many.
    pub count_max: usize,
}

/// The newest lines of all endpoints.
#[derive(Debug, Default)]
pub struct Logs {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last_number: u64,
    bytes: usize,
    sources: HashMap<LogSource, Lines>,
    /// The sources that have a [`Follower`].
    followed: HashMap<LogSource, Followed>,
}

/// The followers of one endpoint.
#[derive(Debug, Default)]
struct Followed {
    /// How many there are; at least one.
    count: usize,
    added: Arc<Notify>,
}

/// Whose lines they are. The owner is part of it because the id of a deleted endpoint can be taken
/// by another owner, while jobs of the deleted one still log.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LogSource {
    /// The endpoint whose handlers log.
    pub endpoint: EndpointId,
    /// Its owner.
    pub owner: OwnerId,
}

impl From<&Endpoint> for LogSource {
    fn from(endpoint: &Endpoint) -> Self {
        Self { endpoint: endpoint.id.clone(), owner: endpoint.owner.clone() }
    }
}

#[derive(Debug, Default)]
struct Lines {
    bytes: usize,
    lines: VecDeque<Arc<LogLine>>,
}

impl Lines {
    fn drop_oldest(&mut self) -> usize {
        let bytes = self.lines.pop_front().map_or(0, |line| line.bytes());
        self.bytes -= bytes;
        bytes
    }
}

impl Logs {
    /// Keeps a line. Never waits.
    pub fn add(&self, source: &LogSource, at: Timestamp, job: JobId, level: LogLevel, text: &str) {
        let mut state = self.state.lock();
        state.last_number += 1;
        let line = LogLine { number: state.last_number, at, job, level, text: text.into() };
        let bytes = line.bytes();
        // The key is shared text: a clone costs no allocation.
        let lines = state.sources.entry(source.clone()).or_default();
        lines.bytes += bytes;
        lines.lines.push_back(Arc::new(line));
        let mut freed = 0;
        while lines.bytes > ENDPOINT_BYTES_MAX {
            freed += lines.drop_oldest();
        }
        state.bytes = state.bytes + bytes - freed;
        while state.bytes > ALL_BYTES_MAX {
            let Some(most) = state.sources.values_mut().max_by_key(|lines| lines.bytes) else {
                break;
            };
            let freed = most.drop_oldest();
            state.bytes -= freed;
        }
        let followers = state.followers(source);
        drop(state);
        if let Some(followers) = followers {
            followers.notify_waiters();
        }
    }

    /// The lines that a query is for, the oldest first.
    pub fn read(&self, source: &LogSource, query: LogQuery) -> Vec<Arc<LogLine>> {
        let state = self.state.lock();
        let Some(Lines { lines, .. }) = state.sources.get(source) else { return vec![] };
        let newest = lines.iter().rev().take_while(|line| line.number > query.after);
        let of_job = newest.filter(|line| query.job.is_none_or(|job| line.job == job));
        let mut found: Vec<_> = of_job.take(query.count_max).cloned().collect();
        found.reverse();
        found
    }

    /// Follows the lines of one endpoint.
    pub fn follow(self: &Arc<Self>, source: &LogSource) -> Follower {
        let mut state = self.state.lock();
        let followed = state.followed.entry(source.clone()).or_default();
        followed.count += 1;
        Follower { logs: self.clone(), source: source.clone(), added: followed.added.clone() }
    }

    /// Forgets the lines of an endpoint that is deleted, and wakes its followers.
    pub fn forget(&self, source: &LogSource) {
        let mut state = self.state.lock();
        if let Some(lines) = state.sources.remove(source) {
            state.bytes -= lines.bytes;
        }
        let followers = state.followers(source);
        drop(state);
        if let Some(followers) = followers {
            followers.notify_waiters();
        }
    }
}

impl State {
    fn followers(&self, source: &LogSource) -> Option<Arc<Notify>> {
        self.followed.get(source).map(|followed| followed.added.clone())
    }
}

/// A reader who waits for the lines of one endpoint.
#[derive(Debug)]
pub struct Follower {
    logs: Arc<Logs>,
    source: LogSource,
    added: Arc<Notify>,
}

impl Follower {
    /// The next line of the endpoint that comes after this call, or the endpoint's deletion.
    pub fn added(&self) -> Notified<'_> {
        self.added.notified()
    }

    /// The lines that a query is for, the oldest first.
    pub fn read(&self, query: LogQuery) -> Vec<Arc<LogLine>> {
        self.logs.read(&self.source, query)
    }

    /// Whose lines they are.
    pub fn source(&self) -> &LogSource {
        &self.source
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut state = self.logs.state.lock();
        let Some(followed) = state.followed.get_mut(&self.source) else { return };
        followed.count -= 1;
        if followed.count == 0 {
            state.followed.remove(&self.source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{NodeId, Submission};

    fn endpoint(name: &str) -> LogSource {
        endpoint_of(name, "me")
    }

    fn endpoint_of(name: &str, owner: &str) -> LogSource {
        let endpoint = EndpointId::new(name).unwrap();
        LogSource { endpoint, owner: OwnerId::new(owner).unwrap() }
    }

    fn job() -> JobId {
        JobId::generate(Submission::Async, NodeId(1))
    }

    fn add(logs: &Logs, name: &str, job: JobId, text: &str) {
        logs.add(&endpoint(name), Timestamp::from_millis(0), job, LogLevel::Info, text);
    }

    fn texts(logs: &Logs, name: &str, query: LogQuery) -> Vec<String> {
        logs.read(&endpoint(name), query).iter().map(|line| line.text.to_string()).collect()
    }

    const ALL: LogQuery = LogQuery { after: 0, job: None, count_max: usize::MAX };

    #[test]
    fn lines_are_found_by_endpoint_job_and_number() {
        let (logs, mine, other) = (Logs::default(), job(), job());
        for (name, job, text) in
            [("a", mine, "1"), ("b", mine, "2"), ("a", other, "3"), ("a", mine, "4")]
        {
            add(&logs, name, job, text);
        }
        assert_eq!(texts(&logs, "a", ALL), ["1", "3", "4"]);
        assert_eq!(texts(&logs, "a", LogQuery { job: Some(mine), ..ALL }), ["1", "4"]);
        assert_eq!(texts(&logs, "a", LogQuery { after: 1, ..ALL }), ["3", "4"]);
        assert_eq!(texts(&logs, "a", LogQuery { count_max: 1, ..ALL }), ["4"], "the newest");
        assert_eq!(texts(&logs, "c", ALL), [""; 0]);
        logs.forget(&endpoint("a"));
        assert_eq!((texts(&logs, "a", ALL).len(), texts(&logs, "b", ALL).len()), (0, 1));
    }

    #[test]
    fn the_next_owner_of_an_id_never_reads_lines_of_the_one_before() {
        let (logs, job) = (Logs::default(), job());
        add(&logs, "a", job, "before");
        logs.forget(&endpoint("a"));
        add(&logs, "a", job, "late");
        assert_eq!(logs.read(&endpoint_of("a", "other"), ALL), []);
        assert_eq!(texts(&logs, "a", ALL), ["late"]);
    }

    #[test]
    fn an_endpoint_keeps_its_newest_lines_and_nobody_elses_go_for_them() {
        let (logs, job) = (Logs::default(), job());
        add(&logs, "quiet", job, "here");
        let text = "x".repeat(1_000);
        for _ in 0..1_000 {
            add(&logs, "loud", job, &text);
        }
        assert_eq!(texts(&logs, "loud", ALL).len(), ENDPOINT_BYTES_MAX / 1_100);
        assert_eq!(texts(&logs, "quiet", ALL), ["here"]);
    }

    #[tokio::test]
    async fn a_line_wakes_the_followers_of_its_own_endpoint_and_no_other() {
        let (logs, job) = (Arc::new(Logs::default()), job());
        let followers = ["quiet", "quiet", "loud"].map(|name| logs.follow(&endpoint(name)));
        let mut added: Vec<_> = followers.iter().map(|each| Box::pin(each.added())).collect();
        let mut woken = |index: usize| added[index].as_mut().enable();
        assert_eq!([0, 1, 2].map(&mut woken), [false; 3]);
        for _ in 0..1_000 {
            add(&logs, "loud", job, "x");
            add(&logs, "unheard", job, "x");
        }
        assert_eq!([0, 1, 2].map(&mut woken), [false, false, true]);
        add(&logs, "quiet", job, "here");
        assert_eq!([0, 1].map(&mut woken), [true; 2]);
        assert_eq!(followers[0].read(ALL).len(), 1);
        drop(added);

        let mut deleted = Box::pin(followers[0].added());
        assert!(!deleted.as_mut().enable());
        logs.forget(&endpoint("quiet"));
        assert!(deleted.as_mut().enable(), "a deleted endpoint has no more lines to wait for");
        drop(deleted);
        let [first, second, loud] = followers;
        drop((first, loud));
        assert_eq!(logs.state.lock().followed.len(), 1, "the second follower is still there");
        drop(second);
        assert!(logs.state.lock().followed.is_empty(), "what nobody follows takes no memory");
    }

    #[test]
    fn all_lines_together_have_a_bound_that_the_largest_pay() {
        let (logs, job) = (Logs::default(), job());
        add(&logs, "quiet", job, "here");
        let text = "x".repeat(100_000);
        for number in 0..500 {
            add(&logs, &format!("loud{number}"), job, &text);
        }
        let state = logs.state.lock();
        assert!(state.bytes <= ALL_BYTES_MAX, "{}", state.bytes);
        assert_eq!(state.bytes, state.sources.values().map(|lines| lines.bytes).sum::<usize>());
        drop(state);
        assert_eq!(texts(&logs, "quiet", ALL), ["here"]);
    }
}
