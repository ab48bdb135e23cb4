//! The newest requests of each endpoint that have ended.
//!
//! **Bounds.** [`REQUESTS_MAX`] of each endpoint, and [`ALL_BYTES_MAX`] for all endpoints. Beyond
//! it, the owner with the most bytes loses the oldest request of its largest endpoint, as in
//! [logs](crate::logs). A request has some 250 bytes, and [`PATH_BYTES_MAX`] of its path at most.
//! **Cost.** A lock, an allocation and a change of a ranking for each request that ends.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::id::{JobId, WorkerId};
use crate::incarnation::EndpointIncarnation;
use crate::sharing::ranking::Ranking;
use crate::time::Timestamp;

/// Most requests of an endpoint that are kept.
pub const REQUESTS_MAX: usize = 1_000;

/// Bytes of all requests that are kept.
pub const ALL_BYTES_MAX: usize = 32 << 20;

/// Longest part of a path that is kept.
const PATH_BYTES_MAX: usize = 256;

/// Longest part of a method that is kept; a client may invent longer ones.
const METHOD_BYTES_MAX: usize = 16;

/// Bytes of a request besides its method and path: itself, the id of its worker, and its places.
const ENTRY_BYTES: usize = size_of::<EndedRequest>() + 96;

/// A request that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedRequest {
    /// Its id.
    pub id: JobId,
    /// When it has arrived.
    pub at: Timestamp,
    /// One text takes one allocation.
    pub(super) method_and_path: Box<str>,
    /// The status of its answer; 499 if its client has left before.
    pub status: u16,
    /// The code of a refusal, or why the answer has broken off.
    pub code: Option<&'static str>,
    /// Milliseconds until a worker began to answer it, or until its end.
    pub waited_ms: u64,
    /// Milliseconds in which the worker answered it.
    pub ran_ms: u64,
    /// Bytes of its body that the handler has taken.
    pub bytes_in: u64,
    /// Bytes of the answer's body that went to the client.
    pub bytes_out: u64,
    /// The version of the endpoint that answered it; `None` without a worker.
    pub release: Option<u32>,
    /// The worker that answered it.
    pub worker: Option<WorkerId>,
}

impl EndedRequest {
    /// The method, a space, and the path, both cut to their bounds.
    pub(super) fn method_and_path(method: &str, path: &str) -> Box<str> {
        let method = cut(method, METHOD_BYTES_MAX);
        format!("{method} {}", cut(path, PATH_BYTES_MAX)).into()
    }

    /// The method.
    pub fn method(&self) -> &str {
        self.method_and_path.split_once(' ').unwrap_or_default().0
    }

    /// The handler's path without its query, cut if it is long.
    pub fn path(&self) -> &str {
        self.method_and_path.split_once(' ').unwrap_or_default().1
    }

    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.method_and_path.len()
    }
}

fn cut(text: &str, bytes_max: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or(text)
}

/// The newest requests of all endpoints.
#[derive(Debug, Default)]
pub struct NewestRequests(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    bytes: usize,
    /// By the endpoints' incarnations: a new endpoint may have the id of a deleted one whose
    /// requests still end.
    endpoints: HashMap<EndpointIncarnation, Kept>,
    ranking: Ranking,
    next_number: u64,
}

/// The requests of one endpoint.
#[derive(Debug)]
struct Kept {
    /// Its number in the ranking.
    number: u64,
    bytes: usize,
    /// The oldest first.
    requests: VecDeque<Arc<EndedRequest>>,
}

impl NewestRequests {
    /// Keeps a request that has ended, unless the endpoint was deleted.
    pub(super) fn add(&self, endpoint: &EndpointIncarnation, ended: EndedRequest) {
        let mut state = self.0.lock();
        // Under the lock of `forget`, which runs after the endpoint's deletion.
        if endpoint.has_ended() {
            return;
        }
        let State { bytes: all_bytes, endpoints, ranking, next_number } = &mut *state;
        let kept = endpoints.entry(endpoint.clone()).or_insert_with(|| {
            *next_number += 1;
            Kept { number: *next_number, bytes: 0, requests: VecDeque::new() }
        });
        let before = kept.bytes;
        kept.bytes += ended.bytes();
        kept.requests.push_back(Arc::new(ended));
        if kept.requests.len() > REQUESTS_MAX {
            kept.drop_oldest();
        }
        *all_bytes = *all_bytes - before + kept.bytes;
        ranking.change(endpoint, kept.number, before, kept.bytes);
        while state.bytes > ALL_BYTES_MAX && state.drop_one() {}
    }

    /// The newest requests of an endpoint that are wanted, the newest first.
    pub fn read(
        &self,
        endpoint: &EndpointIncarnation,
        count_max: usize,
        is_wanted: impl Fn(&EndedRequest) -> bool,
    ) -> Vec<Arc<EndedRequest>> {
        let state = self.0.lock();
        let kept = state.endpoints.get(endpoint).into_iter();
        let newest_first = kept.flat_map(|kept| kept.requests.iter().rev());
        newest_first.filter(|ended| is_wanted(ended)).take(count_max).cloned().collect()
    }

    /// Deletes the requests of a deleted endpoint.
    pub fn forget(&self, endpoint: &EndpointIncarnation) {
        let mut state = self.0.lock();
        if let Some(kept) = state.endpoints.remove(endpoint) {
            state.bytes -= kept.bytes;
            state.ranking.change(endpoint, kept.number, kept.bytes, 0);
        }
    }
}

impl State {
    /// Drops the oldest request of the endpoint whose turn it is. Returns whether there was one.
    fn drop_one(&mut self) -> bool {
        let Self { bytes: all_bytes, endpoints, ranking, .. } = self;
        let Some(largest) = ranking.largest().cloned() else { return false };
        let Some(kept) = endpoints.get_mut(&largest) else { return false };
        let before = kept.bytes;
        kept.drop_oldest();
        *all_bytes = *all_bytes - before + kept.bytes;
        ranking.change(&largest, kept.number, before, kept.bytes);
        kept.bytes < before
    }
}

impl Kept {
    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.requests.pop_front() {
            self.bytes -= oldest.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{OwnerId, ShardId, SubmissionKind};

    fn endpoint_of(owner: &str) -> EndpointIncarnation {
        EndpointIncarnation::new(OwnerId::new(owner).unwrap())
    }

    fn end(newest: &NewestRequests, endpoint: &EndpointIncarnation, path: &str) {
        let ended = EndedRequest {
            id: JobId::generate(SubmissionKind::Sync, ShardId(0)),
            at: Timestamp::from_millis(0),
            method_and_path: EndedRequest::method_and_path("GET", path),
            status: 200,
            code: None,
            waited_ms: 0,
            ran_ms: 0,
            bytes_in: 0,
            bytes_out: 0,
            release: None,
            worker: None,
        };
        newest.add(endpoint, ended);
    }

    fn count(newest: &NewestRequests, endpoint: &EndpointIncarnation) -> usize {
        newest.read(endpoint, usize::MAX, |_| true).len()
    }

    #[test]
    fn an_endpoint_keeps_its_newest_requests() {
        let newest = NewestRequests::default();
        let endpoint = endpoint_of("a");
        for number in 0..REQUESTS_MAX + 5 {
            end(&newest, &endpoint, &format!("/{number}"));
        }
        let kept = newest.read(&endpoint, usize::MAX, |_| true);
        assert_eq!(kept.len(), REQUESTS_MAX);
        assert_eq!(kept[0].path(), format!("/{}", REQUESTS_MAX + 4));
        assert_eq!(newest.read(&endpoint, 2, |one| one.path() < "/3").len(), 2);
        newest.forget(&endpoint);
        assert_eq!((count(&newest, &endpoint), newest.0.lock().bytes), (0, 0));
        endpoint.end();
        end(&newest, &endpoint, "/late");
        assert_eq!(count(&newest, &endpoint), 0, "nobody could read it");
    }

    #[test]
    fn a_thousand_endpoints_with_a_thousand_long_paths_stay_within_the_budget() {
        let newest = NewestRequests::default();
        let small = endpoint_of("small");
        end(&newest, &small, "/");
        let large: Vec<_> = (0..1_000).map(|_| endpoint_of("large")).collect();
        let path = format!("/{}", "ä".repeat(4_000));
        for endpoint in &large {
            (0..1_000).for_each(|_| end(&newest, endpoint, &path));
        }
        let state = newest.0.lock();
        let sum = state.endpoints.values().map(|kept| kept.bytes).sum::<usize>();
        assert_eq!(state.bytes, sum);
        assert!((ALL_BYTES_MAX / 2..=ALL_BYTES_MAX).contains(&sum), "{sum}");
        drop(state);
        assert_eq!(count(&newest, &small), 1, "the owner with the most loses first");
        let kept: Vec<_> = large.iter().map(|endpoint| count(&newest, endpoint)).collect();
        assert!(kept.iter().all(|count| (10..500).contains(count)), "{kept:?}");
        let one = newest.read(&large[0], 1, |_| true);
        assert_eq!(one[0].path().len(), PATH_BYTES_MAX - 1, "whole characters");
    }

    #[test]
    fn methods_and_paths_are_cut() {
        let text = EndedRequest::method_and_path(&"X".repeat(99), "/a b");
        assert_eq!(&*text, "XXXXXXXXXXXXXXXX /a b");
    }
}
