//! Reads of the state, for clients, the dispatcher and the store's threads.
//!
//! **Cost.** A call holds the lock for 50 µs at most: a list examines a bounded number of jobs, and
//! continues with the next call.

use gristmill_core::id::EndpointId;
use gristmill_core::job::record::{Demand, JobCounts};
use gristmill_core::job::starts::Blocked;
use gristmill_core::job::state::JobStatus;
use gristmill_core::time::Timestamp;

use crate::format::EndpointKey;
use crate::format::pages::Query;
use crate::medium::PayloadLocation;
use crate::state::index::{Endpoint, Index};
use crate::state::job::Job;
use crate::state::requests::ChunkRequest;
use crate::state::slab::JobKey;

/// Most pages of chunks that one answer reads.
const PAGES_MAX: usize = 256;

/// Locations of chunks.
#[derive(Debug)]
pub(crate) struct FoundChunks {
    /// The number of the job's rows.
    pub(crate) seq: u64,
    pub(crate) query: Query,
    /// Whether the first chunk is in the database, or does not exist.
    pub(crate) begins_in_database: bool,
    /// The pages in the journal with the chunks that are not in the database.
    pub(crate) pages: Vec<(u64, PayloadLocation)>,
}

impl Index {
    /// Number of jobs that clients can see.
    pub(crate) fn visible_jobs(&self) -> u64 {
        self.visible_jobs
    }

    /// The number of webhooks that are still to be sent.
    pub(crate) fn waiting_webhooks(&self) -> u64 {
        self.outbox.waiting()
    }

    /// The endpoints that are not being deleted, with the number of their jobs.
    pub(crate) fn endpoints_with_jobs(&self) -> Vec<(EndpointId, u64)> {
        let jobs = |endpoint: &Endpoint| endpoint.history.len() as u64 + endpoint.archived;
        let jobs = |key| self.endpoints.get(key).map_or(0, jobs);
        self.names.iter().map(|(name, key)| (name.clone(), jobs(key))).collect()
    }

    /// The limit that keeps a waiting job from being claimed.
    pub(crate) fn blocked(&self, job: &Job, now: Timestamp) -> Option<Blocked> {
        let waits = job.row.status == Some(JobStatus::InQueue) && !job.marks.is_delayed();
        let endpoint = self.endpoints.get(&job.endpoint).filter(|_| waits)?;
        endpoint.ready.blocked(job.rank(), now)
    }

    /// The decided status of a job; `None` once it is removed.
    pub(crate) fn decided_status(&self, key: JobKey) -> Option<JobStatus> {
        self.jobs.get(key)?.row.status
    }

    /// The endpoint's jobs that wait for a worker.
    pub(crate) fn demand(&self, endpoint: &EndpointId) -> Demand {
        self.endpoint(endpoint).map(|(_, endpoint)| self.demand_of(endpoint)).unwrap_or_default()
    }

    fn demand_of(&self, endpoint: &Endpoint) -> Demand {
        let first = endpoint.ready.oldest_normal().and_then(|key| self.jobs.get(key));
        let since = first.map(Job::queued_at);
        let claimable = endpoint.ready.open() as u64;
        let jobs = endpoint.ready.normal_open() as u64;
        let called = endpoint.ready.called_open() as u64;
        let (version, level) = (endpoint.queue_version.number, endpoint.ready.level());
        Demand { version, jobs, since, claimable, called, level }
    }

    /// The queues that have changed since the last call, for the notifications after the lock is
    /// released. A deleted endpoint's queue is none of them: the next endpoint of its name has a
    /// queue of its own.
    pub(crate) fn take_demands(&mut self) -> impl Iterator<Item = (EndpointId, Demand)> + use<> {
        // Usually there is one, which needs no list.
        let first = self.next_demand();
        let more: Vec<_> = std::iter::from_fn(|| self.next_demand()).collect();
        first.into_iter().chain(more)
    }

    /// The demand of an endpoint. It takes the place of the notification of the claim.
    pub(crate) fn demand_of_claim(&mut self, key: EndpointKey) -> Demand {
        let Some(endpoint) = self.endpoints.get_mut(&key) else { return Demand::default() };
        self.queue_changes.remove(key, &mut endpoint.queue_version);
        self.endpoints.get(&key).map_or_else(Demand::default, |endpoint| self.demand_of(endpoint))
    }

    fn next_demand(&mut self) -> Option<(EndpointId, Demand)> {
        loop {
            let key = self.queue_changes.pop()?;
            let Some(endpoint) = self.endpoints.get_mut(&key) else { continue };
            endpoint.queue_version.notified();
            if !self.is_deleting(key) {
                let endpoint = self.endpoints.get(&key)?;
                return Some((endpoint.name.clone(), self.demand_of(endpoint)));
            }
        }
    }
}

impl FoundChunks {
    /// Locations of the visible chunks of a job for `request`: the job's rows, its claim, and the
    /// query.
    pub(crate) fn of(job: &Job, request: &ChunkRequest, now: Timestamp) -> Option<Self> {
        let row = job.visible_at(now)?;
        let query = Query {
            attempt: row.stream_attempt(),
            from: request.from,
            end: row.chunk_count(),
            bytes_max: request.bytes_max,
            count_max: request.count_max,
        };
        let pages = job.payload_locations.pages();
        let before = pages.partition_point(|(first, _)| *first <= request.from);
        let pages = pages.iter().skip(before.saturating_sub(1)).take(PAGES_MAX).copied();
        Some(Self { seq: job.seq, query, begins_in_database: before == 0, pages: pages.collect() })
    }
}

impl Index {
    /// The visible counts of an endpoint.
    pub(crate) fn counts(&self, endpoint: &EndpointId) -> JobCounts {
        self.endpoint(endpoint).map(|(_, endpoint)| endpoint.counts).unwrap_or_default()
    }

    /// Some jobs from the `from`th on, and where the next ones begin, if there are more.
    pub(crate) fn slice_of_jobs(
        &self,
        from: usize,
        count_max: usize,
    ) -> (impl Iterator<Item = (JobKey, &Job)>, Option<usize>) {
        let end = self.jobs.end();
        let to = (from + count_max).min(end);
        (self.jobs.range(from..to), (to < end).then_some(to))
    }
}
