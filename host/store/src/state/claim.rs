//! Claims of jobs by workers. A claim is decided at once in memory, and written to disk no later
//! than the job's result.

use std::ops::ControlFlow;

use gristmill_core::id::{EndpointId, OwnerId, WorkerId};
use gristmill_core::job::record::{ClaimedJob, Demand, Lease};
use gristmill_core::job::state::JobEvent;
use gristmill_core::sharing::shares::Level;
use gristmill_core::time::Timestamp;
use gristmill_core::trace::TraceContext;

use crate::format::payload::Payload;
use crate::medium::PayloadLocation;
use crate::state::index::Index;
use crate::state::slab::JobKey;

/// Most jobs past their ttl that are removed under one hold of the lock.
const EXPIRED_MAX: usize = 500;

/// A claimed job, perhaps without its input.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) seq: u64,
    pub(crate) lease: Lease,
    worker: WorkerId,
    owner: OwnerId,
    queued_at: Timestamp,
    execution_timeout_ms: Option<u64>,
    ttl_at: Timestamp,
    trace: Option<TraceContext>,
    level: Level,
    pub(crate) left: Demand,
    pub(crate) input: Option<Payload>,
    /// The location of the input, when it is in the journal.
    pub(crate) location: Option<PayloadLocation>,
}

impl Claimed {
    pub(crate) fn into_job(self, input: Payload) -> ClaimedJob {
        ClaimedJob {
            lease: self.lease,
            worker: self.worker,
            owner: self.owner,
            attempt: self.lease.claim.0,
            input: input.body,
            s3_config: input.s3_config,
            queued_at: self.queued_at,
            execution_timeout_ms: self.execution_timeout_ms,
            ttl_at: self.ttl_at,
            trace: self.trace,
            level: self.level,
            left: self.left,
        }
    }
}

impl Index {
    /// Takes the oldest waiting job for `worker`, or none if no job waits. The claim continues when
    /// many jobs were past their ttl: the caller releases the lock for other callers, and calls
    /// again.
    pub(crate) fn claim(
        &mut self,
        endpoint: &EndpointId,
        worker: &WorkerId,
        now: Timestamp,
    ) -> ControlFlow<Option<Claimed>> {
        let Some((endpoint, _)) = self.endpoint(endpoint) else { return ControlFlow::Break(None) };
        for _ in 0..EXPIRED_MAX {
            let first = self.endpoints.get(&endpoint).and_then(|endpoint| endpoint.ready.first());
            let Some(key) = first else { return ControlFlow::Break(None) };
            if self.jobs.get(key).is_some_and(|job| now < job.purge_at()) {
                return ControlFlow::Break(self.claim_job(key, worker, now));
            }
            self.expire(key, now);
        }
        ControlFlow::Continue(())
    }

    fn claim_job(&mut self, key: JobKey, worker: &WorkerId, now: Timestamp) -> Option<Claimed> {
        let job = self.jobs.get(key)?;
        let (claim, queued_at) = (job.row.last_claim.next(), job.queued_at());
        let level = job.rank().level();
        let decided = self.decide(key, JobEvent::Claimed { claim }, now);
        debug_assert!(decided.is_ok(), "a job in the queue can be claimed");
        let left = self.demand_of_claim(self.jobs.get(key)?.endpoint);
        let job = self.jobs.get_mut(key)?;
        let attempt = job.row.attempt_mut();
        attempt.worker = Some(worker.clone());
        Some(Claimed {
            seq: job.seq,
            lease: Lease { job: job.id, claim, epoch: self.epoch },
            worker: worker.clone(),
            owner: self.owners.name(job.owner).clone(),
            queued_at,
            execution_timeout_ms: job.times.execution_timeout_ms(),
            ttl_at: job.row.ttl_at,
            trace: job.trace().cloned(),
            level,
            left,
            input: job.pending.as_ref().and_then(|pending| pending.input.clone()),
            location: job.payload_locations.input,
        })
    }
}
