//! The log lines of handlers. The newest are in memory; with an [archive](LogArchive), older ones
//! are in files, and survive the process.
//!
//! **Bounds.** [`ENDPOINT_BYTES_MAX`] in memory for each endpoint, whose oldest lines are dropped
//! first, and [`ALL_BYTES_MAX`] for all endpoints. Beyond it, lines that the archive has are
//! dropped first, since readers still find them; then other lines. Each time the owner with the
//! most bytes of such lines loses the oldest of its largest endpoint, so that an owner with
//! thousands of small logs displaces its own lines and not the one larger log of another owner. A
//! line costs its text and about a hundred bytes. Lines that wait for the archive are those in
//! memory and no others: lines that memory drops before the archive has them are lost to the
//! archive, and counted.
//!
//! **Costs.** Adding a line is a lock, an allocation and a change of
//! [a ranking](crate::sharing::ranking), with or without an archive: it never waits for the disk.
//! While the memory is full, a line takes 1 µs with 9,900 endpoints. A line wakes the [`Follower`]s
//! of its own endpoint only. The thread of the archive wakes for the first line after a pause, and
//! once [`URGENT_BYTES`] of an endpoint wait.

mod archive;
mod line;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

pub use self::archive::{
    ArchivePage, ArchiveQuery, Batch, LogArchive, Lost, NEWEST_BYTES_MAX, NEXT_BYTES_MAX,
};
use self::line::LINE_BYTES;
pub use self::line::LogLine;
use crate::id::JobId;
use crate::incarnation::EndpointIncarnation;
use crate::runtime::LogLevel;
use crate::sharing::ranking::Ranking;
use crate::time::Timestamp;

/// Bytes of an endpoint's lines in memory.
pub const ENDPOINT_BYTES_MAX: usize = 512 << 10;

/// Bytes of all lines in memory.
pub const ALL_BYTES_MAX: usize = 32 << 20;

/// Bytes of an endpoint's lines that wait for the archive, at which they do not wait for its next
/// round: an eighth of what memory has room for.
pub const URGENT_BYTES: usize = 64 << 10;

/// Numbers that a start leaves out: a killed process may have shown so many lines to readers that
/// the archive does not have.
const RESTART_GAP: u64 = (ENDPOINT_BYTES_MAX / LINE_BYTES) as u64;

/// Selects lines of an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogQuery {
    /// Only lines after this number. A number beyond all lines comes from an earlier process whose
    /// clock was ahead; then all lines are newer, and the newest are selected.
    pub after: u64,
    /// Only lines of this job.
    pub job: Option<JobId>,
    /// Which of these lines.
    pub order: LogOrder,
    /// At most this many, if the newest are selected.
    pub count_max: usize,
}

/// Which lines are selected when there are many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogOrder {
    /// The newest.
    #[default]
    Newest,
    /// The next ones after the query's number, without a gap; about [`NEXT_BYTES_MAX`] of them.
    Next,
}

/// Selected lines.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LogPage {
    /// The oldest first.
    pub lines: Vec<Arc<LogLine>>,
    /// All lines up to this number were considered: a query for the next ones continues here.
    pub up_to: u64,
}

/// The answer to a query, as far as memory has it.
#[derive(Debug)]
pub enum LogAnswer {
    /// All of it.
    Complete(LogPage),
    /// The archive may have further lines.
    Partial(PartialPage),
}

/// The lines of a page that are in memory; the archive may have earlier ones.
#[derive(Debug)]
pub struct PartialPage {
    archive: Arc<dyn LogArchive>,
    endpoint: EndpointIncarnation,
    query: ArchiveQuery,
    in_memory: LogPage,
}

impl PartialPage {
    /// Adds the lines of the archive. Blocks for some milliseconds: it reads files.
    pub fn complete(self) -> LogPage {
        let ArchivePage { mut lines, is_cut } = self.archive.read(&self.endpoint, self.query);
        if is_cut && let Some(last) = lines.last() {
            return LogPage { up_to: last.number, lines };
        }
        let LogPage { lines: newer, up_to } = self.in_memory;
        lines.extend(newer);
        LogPage { lines, up_to }
    }
}

/// The log lines of all endpoints.
#[derive(Debug, Default)]
pub struct Logs {
    state: Mutex<State>,
    archive: Option<Arc<dyn LogArchive>>,
    /// Notified when there is work for the archive's thread.
    has_work: Condvar,
}

#[derive(Debug, Default)]
struct State {
    bytes: usize,
    /// By the endpoints' incarnations: a new endpoint may have the id of a deleted one whose jobs
    /// still log.
    endpoints: HashMap<EndpointIncarnation, Lines>,
    rankings: Rankings,
    /// The endpoints that have a [`Follower`].
    followed: HashMap<EndpointIncarnation, Followed>,
    to_archive: ToArchive,
}

/// The order in which endpoints lose lines.
#[derive(Debug, Default)]
struct Rankings {
    /// By the lines that the archive has, or, without an archive, by all lines.
    written: Ranking,
    /// By the others.
    unwritten: Ranking,
    next_number: u64,
}

/// The work of the archive's thread.
#[derive(Debug, Default)]
struct ToArchive {
    /// Endpoints with lines that the archive does not have.
    waiting: HashSet<EndpointIncarnation>,
    /// Those with many of them.
    urgent: Vec<EndpointIncarnation>,
    /// Deleted endpoints, whose lines the archive deletes.
    deleted: Vec<EndpointIncarnation>,
    is_closing: bool,
    lost_lines: u64,
}

/// Work of the archive's thread.
#[derive(Debug, Default)]
pub struct ArchiveWork {
    /// Endpoints whose lines are to be written.
    pub endpoints: Vec<EndpointIncarnation>,
    /// Deleted endpoints, whose lines are to be deleted.
    pub deleted: Vec<EndpointIncarnation>,
    /// Whether these are all endpoints with waiting lines, and not only those with many.
    pub is_round: bool,
    /// Whether there is no work after this.
    pub is_last: bool,
}

/// The followers of one endpoint.
#[derive(Debug, Default)]
struct Followed {
    /// Their number; at least one.
    count: usize,
    added: Arc<Notify>,
}

#[derive(Debug)]
struct Lines {
    /// Its number in the rankings.
    number: u64,
    bytes: usize,
    last_number: u64,
    lines: VecDeque<Arc<LogLine>>,
    /// Memory has no line up to this number.
    dropped_to: u64,
    /// The archive has all lines up to this number, is about to write them, or has lost them. The
    /// greatest number without an archive.
    archived_to: u64,
    /// The same without the lines that are about to be written.
    written_to: u64,
    /// Bytes of the lines in memory after `archived_to`.
    waiting_bytes: usize,
    /// Bytes of the lines in memory after `written_to`.
    unwritten_bytes: usize,
    /// The bytes under which the rankings have it: of written lines, and of unwritten ones.
    ranked: [usize; 2],
    is_waiting: bool,
    is_urgent: bool,
    /// Lines that memory dropped before the archive had them, until their mark is written.
    lost: Option<Lost>,
}

/// The effect of dropping a line from memory.
#[derive(Debug)]
struct Dropped {
    bytes: usize,
    /// Lines that the archive has lost by it.
    lost: u64,
}

impl Lines {
    fn new(number: u64, has_archive: bool) -> Self {
        let archived_to = if has_archive { 0 } else { u64::MAX };
        Self {
            number,
            bytes: 0,
            last_number: 0,
            lines: VecDeque::new(),
            dropped_to: 0,
            archived_to,
            written_to: archived_to,
            waiting_bytes: 0,
            unwritten_bytes: 0,
            ranked: [0; 2],
            is_waiting: false,
            is_urgent: false,
            lost: None,
        }
    }

    fn drop_oldest(&mut self) -> Option<Dropped> {
        let line = self.lines.pop_front()?;
        let bytes = line.bytes();
        self.bytes -= bytes;
        self.dropped_to = line.number;
        if line.number > self.written_to {
            self.unwritten_bytes -= bytes;
        }
        if line.number <= self.archived_to {
            return Some(Dropped { bytes, lost: 0 });
        }
        self.waiting_bytes -= bytes;
        self.lost = Some(Lost::add(self.lost, &line));
        Some(Dropped { bytes, lost: 1 })
    }

    /// The lines that the archive does not have, or is not about to write.
    fn unarchived(&self) -> impl Iterator<Item = &Arc<LogLine>> {
        let from = self.lines.partition_point(|line| line.number <= self.archived_to);
        self.lines.range(from..)
    }

    /// The archive has, or has lost, all lines up to `archived_to`, and none is about to be
    /// written.
    fn settle(&mut self) {
        (self.written_to, self.unwritten_bytes) = (self.archived_to, self.waiting_bytes);
    }
}

impl Rankings {
    /// The lines of an endpoint without any.
    fn new_lines(&mut self, has_archive: bool) -> Lines {
        self.next_number += 1;
        Lines::new(self.next_number, has_archive)
    }

    /// Lines of an endpoint were added, dropped or written.
    fn update(&mut self, endpoint: &EndpointIncarnation, lines: &mut Lines) {
        let unwritten = lines.unwritten_bytes;
        self.set(endpoint, lines, [lines.bytes - unwritten, unwritten]);
    }

    fn set(&mut self, endpoint: &EndpointIncarnation, lines: &mut Lines, after: [usize; 2]) {
        let before = std::mem::replace(&mut lines.ranked, after);
        self.written.change(endpoint, lines.number, before[0], after[0]);
        self.unwritten.change(endpoint, lines.number, before[1], after[1]);
    }

    /// The endpoint whose oldest line is dropped next. Written lines are older than unwritten ones.
    fn first_to_drop(&self) -> Option<&EndpointIncarnation> {
        self.written.largest().or_else(|| self.unwritten.largest())
    }
}

impl Logs {
    /// Lines that `archive` keeps, too. `last_numbers` are those of its last lines.
    pub fn with_archive(
        archive: Arc<dyn LogArchive>,
        last_numbers: impl IntoIterator<Item = (EndpointIncarnation, u64)>,
    ) -> Self {
        let mut state = State::default();
        let restored = last_numbers.into_iter().map(|(endpoint, number)| {
            let lines = Lines {
                last_number: number.saturating_add(RESTART_GAP),
                dropped_to: number,
                archived_to: number,
                written_to: number,
                ..state.rankings.new_lines(true)
            };
            (endpoint, lines)
        });
        state.endpoints = restored.collect();
        Self { state: Mutex::new(state), archive: Some(archive), has_work: Condvar::new() }
    }

    /// Keeps a line of an endpoint, unless the endpoint was deleted. Never waits.
    pub fn add(
        &self,
        endpoint: &EndpointIncarnation,
        at: Timestamp,
        job: JobId,
        level: LogLevel,
        text: &str,
    ) {
        let mut locked = self.state.lock();
        // Under the lock of `forget`, which runs after the endpoint's deletion.
        if endpoint.has_ended() {
            return;
        }
        let has_archive = self.archive.is_some();
        let State { bytes: all_bytes, endpoints, rankings, to_archive, .. } = &mut *locked;
        let lines =
            endpoints.entry(endpoint.clone()).or_insert_with(|| rankings.new_lines(has_archive));
        let number = at.as_millis().max(lines.last_number.saturating_add(1));
        let line = LogLine { number, at, job, level, text: text.into() };
        let bytes = line.bytes();
        lines.last_number = number;
        lines.bytes += bytes;
        lines.lines.push_back(Arc::new(line));
        *all_bytes += bytes;
        let has_work = has_archive && to_archive.note(endpoint, lines, bytes);
        while lines.bytes > ENDPOINT_BYTES_MAX
            && let Some(dropped) = lines.drop_oldest()
        {
            *all_bytes -= dropped.bytes;
            to_archive.lost_lines += dropped.lost;
        }
        rankings.update(endpoint, lines);
        locked.drop_excess();
        let followers = locked.followers(endpoint);
        drop(locked);
        if has_work {
            self.has_work.notify_one();
        }
        if let Some(followers) = followers {
            followers.notify_waiters();
        }
    }

    /// The lines that match a query, as far as memory has them.
    pub fn read(&self, endpoint: &EndpointIncarnation, query: LogQuery) -> LogAnswer {
        let state = self.state.lock();
        let Some(kept) = state.endpoints.get(endpoint) else {
            return LogAnswer::Complete(LogPage::default());
        };
        let LogQuery { mut after, job, mut order, count_max } = query;
        let up_to = kept.last_number;
        if after > up_to {
            (after, order) = (0, LogOrder::Newest);
        }
        let newest = (order == LogOrder::Newest).then_some(count_max);
        let mark = kept.lost.map(|lost| Arc::new(lost.mark()));
        let in_order = kept.lines.iter().rev().chain(&mark).take_while(|line| line.number > after);
        let of_job = in_order.filter(|line| job.is_none_or(|job| line.job == job));
        let mut lines: Vec<_> = of_job.take(newest.unwrap_or(usize::MAX)).cloned().collect();
        lines.reverse();
        let left = newest.map(|count_max| count_max - lines.len());
        let in_memory = LogPage { lines, up_to };
        // The mark of lost lines is not in the archive yet, which has all lines before them.
        let up_to = if mark.is_some() { kept.archived_to } else { kept.dropped_to };
        match &self.archive {
            Some(archive) if up_to > after && left != Some(0) => LogAnswer::Partial(PartialPage {
                archive: archive.clone(),
                endpoint: endpoint.clone(),
                query: ArchiveQuery { after, up_to, job, newest: left },
                in_memory,
            }),
            Some(_) | None => LogAnswer::Complete(in_memory),
        }
    }

    /// Follows the lines of one endpoint.
    pub fn follow(self: &Arc<Self>, endpoint: &EndpointIncarnation) -> Follower {
        let mut state = self.state.lock();
        let followed = state.followed.entry(endpoint.clone()).or_default();
        followed.count += 1;
        Follower { logs: self.clone(), endpoint: endpoint.clone(), added: followed.added.clone() }
    }

    /// Deletes the lines of a deleted endpoint, and wakes its followers. The archive deletes its
    /// lines a moment later.
    pub fn forget(&self, endpoint: &EndpointIncarnation) {
        let mut state = self.state.lock();
        if let Some(mut lines) = state.endpoints.remove(endpoint) {
            state.bytes -= lines.bytes;
            state.rankings.set(endpoint, &mut lines, [0; 2]);
        }
        if self.archive.is_some() {
            state.to_archive.waiting.remove(endpoint);
            state.to_archive.deleted.push(endpoint.clone());
        }
        let followers = state.followers(endpoint);
        drop(state);
        self.has_work.notify_one();
        if let Some(followers) = followers {
            followers.notify_waiters();
        }
    }

    /// Lines that memory had to drop before the archive had them, since the start.
    pub fn lost_lines(&self) -> u64 {
        self.state.lock().to_archive.lost_lines
    }

    /// Waits for work for the archive's thread: at `round_at`, or later, when lines wait, and
    /// before that only for urgent lines, deletions, and the [close](Self::close).
    pub fn await_archive_work(&self, round_at: Instant) -> ArchiveWork {
        let mut state = self.state.lock();
        loop {
            let work = &mut state.to_archive;
            let deleted = std::mem::take(&mut work.deleted);
            let is_round = !work.waiting.is_empty() && Instant::now() >= round_at;
            if is_round || work.is_closing {
                work.urgent.clear();
                let endpoints = work.waiting.drain().collect();
                return ArchiveWork { endpoints, deleted, is_round, is_last: work.is_closing };
            }
            let endpoints = std::mem::take(&mut work.urgent);
            if !endpoints.is_empty() || !deleted.is_empty() {
                endpoints.iter().for_each(|endpoint| {
                    work.waiting.remove(endpoint);
                });
                return ArchiveWork { endpoints, deleted, ..ArchiveWork::default() };
            }
            if work.waiting.is_empty() {
                self.has_work.wait(&mut state);
            } else {
                let _ = self.has_work.wait_until(&mut state, round_at);
            }
        }
    }

    /// From now on the archive's thread gets its last work.
    pub fn close(&self) {
        self.state.lock().to_archive.is_closing = true;
        self.has_work.notify_one();
    }

    /// The lines of an endpoint that the archive does not have. `None`: it has all. They are to be
    /// written now, and then [confirmed](Self::confirm) or [put back](Self::put_back).
    pub fn take_unarchived(&self, endpoint: &EndpointIncarnation) -> Option<Batch> {
        let mut state = self.state.lock();
        let kept = state.endpoints.get_mut(endpoint)?;
        (kept.is_waiting, kept.is_urgent, kept.waiting_bytes) = (false, false, 0);
        let (lost, after) = (kept.lost.take(), kept.archived_to);
        let lines: Vec<_> = kept.unarchived().cloned().collect();
        let last = lines.last().map(|line| line.number).or_else(|| lost.map(|lost| lost.number))?;
        kept.archived_to = last;
        Some(Batch { lines, lost, after })
    }

    /// All lines of an endpoint that were taken are written: memory drops such lines before others.
    pub fn confirm(&self, endpoint: &EndpointIncarnation) {
        let mut state = self.state.lock();
        let State { endpoints, rankings, .. } = &mut *state;
        let Some(kept) = endpoints.get_mut(endpoint) else { return };
        kept.settle();
        rankings.update(endpoint, kept);
    }

    /// Lines that were taken and could not be written, except those up to `written_to`. They wait
    /// again, as far as memory still has them.
    pub fn put_back(&self, endpoint: &EndpointIncarnation, batch: &Batch, written_to: Option<u64>) {
        let mut state = self.state.lock();
        let State { endpoints, rankings, to_archive, .. } = &mut *state;
        let Some(kept) = endpoints.get_mut(endpoint) else { return };
        let archived_to = written_to.unwrap_or(batch.after);
        let mut lost = batch.lost.filter(|_| written_to.is_none());
        for line in &batch.lines {
            if line.number > archived_to && line.number <= kept.dropped_to {
                lost = Some(Lost::add(lost, line));
                to_archive.lost_lines += 1;
            }
        }
        kept.lost = Lost::join(lost, kept.lost.take());
        kept.archived_to = archived_to;
        kept.waiting_bytes = kept.unarchived().map(|line| line.bytes()).sum();
        kept.settle();
        rankings.update(endpoint, kept);
        // They wait for the next round, however many they are: the disk has no room at present.
        (kept.is_waiting, kept.is_urgent) = (true, true);
        to_archive.waiting.insert(endpoint.clone());
    }
}

impl ToArchive {
    /// A line with so many bytes was added. Returns whether the archive's thread has to know.
    fn note(&mut self, endpoint: &EndpointIncarnation, lines: &mut Lines, bytes: usize) -> bool {
        lines.waiting_bytes += bytes;
        lines.unwritten_bytes += bytes;
        let mut is_news = false;
        if !lines.is_waiting {
            lines.is_waiting = true;
            is_news = self.waiting.is_empty();
            self.waiting.insert(endpoint.clone());
        }
        if lines.waiting_bytes >= URGENT_BYTES && !lines.is_urgent {
            lines.is_urgent = true;
            is_news = true;
            self.urgent.push(endpoint.clone());
        }
        is_news
    }
}

impl State {
    /// Drops lines until all of them are within their bound.
    fn drop_excess(&mut self) {
        while self.bytes > ALL_BYTES_MAX {
            let State { bytes, endpoints, rankings, to_archive, .. } = self;
            let Some(next) = rankings.first_to_drop().cloned() else { break };
            let Some(lines) = endpoints.get_mut(&next) else { break };
            let Some(dropped) = lines.drop_oldest() else { break };
            *bytes -= dropped.bytes;
            to_archive.lost_lines += dropped.lost;
            rankings.update(&next, lines);
        }
    }

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

    /// The lines that match a query, as far as memory has them. `None`: the endpoint was deleted.
    pub fn read(&self, query: LogQuery) -> Option<LogAnswer> {
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
mod tests;
