//! The newest log lines of handlers. They are only in memory; the host's own log has the same
//! lines.
//!
//! **Bounds.** [`ENDPOINT_BYTES_MAX`] for each endpoint, whose oldest lines are dropped first, and
//! [`ALL_BYTES_MAX`] for all endpoints: beyond it, lines of the endpoint with the most bytes are
//! dropped. A line costs its text and about a hundred bytes. A line wakes the [`Follower`]s of its
//! own endpoint only.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::endpoint::EndpointIncarnation;
use crate::id::JobId;
use crate::runtime::LogLevel;
use crate::time::Timestamp;

/// Bytes of an endpoint's lines.
pub const ENDPOINT_BYTES_MAX: usize = 512 << 10;

/// Bytes of all lines.
pub const ALL_BYTES_MAX: usize = 32 << 20;

/// Bytes of a line besides its text.
const LINE_BYTES: usize = 100;

/// A line that a handler has logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Grows from line to line of the endpoint: the time of the line in milliseconds, or one more
    /// than the line before. It reveals nothing about other endpoints, and usually grows after a
    /// restart, too.
    pub number: u64,
    /// When it was logged.
    pub at: Timestamp,
    /// The job.
    pub job: JobId,
    /// Its severity.
    pub level: LogLevel,
    /// The handler's message, without control characters.
    pub text: Box<str>,
}

impl LogLine {
    fn bytes(&self) -> usize {
        self.text.len() + LINE_BYTES
    }
}

/// Selects lines of an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogQuery {
    /// Only lines after this number. A number beyond all lines comes from an earlier process whose
    /// clock was ahead; then all lines are newer.
    pub after: u64,
    /// Only lines of this job.
    pub job: Option<JobId>,
    /// At most this many, the newest.
    pub count_max: usize,
}

/// The newest lines of all endpoints.
#[derive(Debug, Default)]
pub struct Logs {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    bytes: usize,
    /// By the endpoints' incarnations: a new endpoint may have the id of a deleted one whose jobs
    /// still log.
    endpoints: HashMap<EndpointIncarnation, Lines>,
    /// The endpoints that have a [`Follower`].
    followed: HashMap<EndpointIncarnation, Followed>,
}

/// The followers of one endpoint.
#[derive(Debug, Default)]
struct Followed {
    /// Their number; at least one.
    count: usize,
    added: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Lines {
    bytes: usize,
    last_number: u64,
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
    /// Keeps a line of an endpoint, unless the endpoint was deleted. Never waits.
    pub fn add(
        &self,
        endpoint: &EndpointIncarnation,
        at: Timestamp,
        job: JobId,
        level: LogLevel,
        text: &str,
    ) {
        let mut state = self.state.lock();
        // Under the lock of `forget`, which runs after the endpoint's deletion.
        if endpoint.has_ended() {
            return;
        }
        let lines = state.endpoints.entry(endpoint.clone()).or_default();
        let number = at.as_millis().max(lines.last_number + 1);
        let line = LogLine { number, at, job, level, text: text.into() };
        let bytes = line.bytes();
        lines.last_number = number;
        lines.bytes += bytes;
        lines.lines.push_back(Arc::new(line));
        let mut freed = 0;
        while lines.bytes > ENDPOINT_BYTES_MAX {
            freed += lines.drop_oldest();
        }
        state.bytes = state.bytes + bytes - freed;
        while state.bytes > ALL_BYTES_MAX {
            let Some(most) = state.endpoints.values_mut().max_by_key(|lines| lines.bytes) else {
                break;
            };
            let freed = most.drop_oldest();
            state.bytes -= freed;
        }
        let followers = state.followers(endpoint);
        drop(state);
        if let Some(followers) = followers {
            followers.notify_waiters();
        }
    }

    /// The lines that match a query, the oldest first.
    pub fn read(&self, endpoint: &EndpointIncarnation, query: LogQuery) -> Vec<Arc<LogLine>> {
        let state = self.state.lock();
        let Some(Lines { lines, last_number, .. }) = state.endpoints.get(endpoint) else {
            return vec![];
        };
        let after = if query.after > *last_number { 0 } else { query.after };
        let newest = lines.iter().rev().take_while(|line| line.number > after);
        let of_job = newest.filter(|line| query.job.is_none_or(|job| line.job == job));
        let mut found: Vec<_> = of_job.take(query.count_max).cloned().collect();
        found.reverse();
        found
    }

    /// Follows the lines of one endpoint.
    pub fn follow(self: &Arc<Self>, endpoint: &EndpointIncarnation) -> Follower {
        let mut state = self.state.lock();
        let followed = state.followed.entry(endpoint.clone()).or_default();
        followed.count += 1;
        Follower { logs: self.clone(), endpoint: endpoint.clone(), added: followed.added.clone() }
    }

    /// Deletes the lines of a deleted endpoint, and wakes its followers.
    pub fn forget(&self, endpoint: &EndpointIncarnation) {
        let mut state = self.state.lock();
        if let Some(lines) = state.endpoints.remove(endpoint) {
            state.bytes -= lines.bytes;
        }
        let followers = state.followers(endpoint);
        drop(state);
        if let Some(followers) = followers {
            followers.notify_waiters();
        }
    }
}

impl State {
    fn followers(&self, endpoint: &EndpointIncarnation) -> Option<Arc<Notify>> {
        self.followed.get(endpoint).map(|followed| followed.added.clone())
    }
}

/// A reader who waits for the lines of one endpoint.
#[derive(Debug)]
pub struct Follower {
    logs: Arc<Logs>,
    endpoint: EndpointIncarnation,
    added: Arc<Notify>,
}

impl Follower {
    /// The next line of the endpoint that comes after this call, or the endpoint's deletion.
    pub fn added(&self) -> Notified<'_> {
        self.added.notified()
    }

    /// The lines that match a query, the oldest first. `None`: the endpoint was deleted.
    pub fn read(&self, query: LogQuery) -> Option<Vec<Arc<LogLine>>> {
        (!self.endpoint.has_ended()).then(|| self.logs.read(&self.endpoint, query))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut state = self.logs.state.lock();
        let Some(followed) = state.followed.get_mut(&self.endpoint) else { return };
        followed.count -= 1;
        if followed.count == 0 {
            state.followed.remove(&self.endpoint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{NodeId, Submission};

    fn job() -> JobId {
        JobId::generate(Submission::Async, NodeId(1))
    }

    fn add(logs: &Logs, endpoint: &EndpointIncarnation, job: JobId, text: &str) {
        logs.add(endpoint, Timestamp::from_millis(0), job, LogLevel::Info, text);
    }

    fn texts(logs: &Logs, endpoint: &EndpointIncarnation, query: LogQuery) -> Vec<String> {
        logs.read(endpoint, query).iter().map(|line| line.text.to_string()).collect()
    }

    const ALL: LogQuery = LogQuery { after: 0, job: None, count_max: usize::MAX };

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
            logs.read(&numbered, query).iter().map(|line| line.number).collect()
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
        assert_eq!(followers[0].read(ALL).unwrap().len(), 1);
        drop(added);

        let mut deleted = Box::pin(followers[0].added());
        assert!(!deleted.as_mut().enable());
        quiet.end();
        logs.forget(&quiet);
        assert!(deleted.as_mut().enable(), "a deleted endpoint has no more lines to wait for");
        assert_eq!(followers[0].read(ALL), None);
        drop(deleted);
        let [first, second, third] = followers;
        drop((first, third));
        assert_eq!(logs.state.lock().followed.len(), 1, "the second follower is still there");
        drop(second);
        assert!(
            logs.state.lock().followed.is_empty(),
            "endpoints without followers take no memory"
        );
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
}
