//! The store in memory with late answers: each operation happens at once, and its caller gets the
//! answer up to some milliseconds later, or never if the host crashes meanwhile.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use gristmill_core::billing::usage::{Bill, Metered};
use gristmill_core::id::{EndpointId, JobId, ShardId, WorkerId};
use gristmill_core::job::filter::JobSearch;
use gristmill_core::job::idempotency::Idempotency;
use gristmill_core::job::listing::{Cursor, JobPage, JobQuery};
use gristmill_core::job::loss::HostLoss;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{
    CallStep, Chunk, ChunkPage, ClaimedJob, Demand, HostProcess, JobCounts, JobRecord, Lease,
    LeftAttempt, NewJob, Outcome, StreamPosition,
};
use gristmill_core::job::retention::HistoryMax;
use gristmill_core::job::retry::FailedAttempt;
use gristmill_core::job::starts::StartLimits;
use gristmill_core::job::state::{JobStatus, ReleaseCause};
use gristmill_core::store::{
    Fenced, JobStore, NextExpiry, RetryAnswer, StoreError, StoreStats, SubmitAnswer, TriedAgain,
};
use gristmill_core::time::Timestamp;
use gristmill_test_support::ModelStore;
use parking_lot::Mutex;
use rand::RngExt as _;
use rand::rngs::StdRng;

use crate::scenario::{Trace, endpoint};

const DELAY_MS_MAX: u64 = 15;

#[derive(Debug)]
pub(crate) struct DelayedStore {
    pub(crate) store: Arc<ModelStore>,
    pub(crate) rng: Mutex<StdRng>,
    pub(crate) trace: Trace,
}

impl DelayedStore {
    async fn late<T>(&self, answer: T) -> T {
        let ms = self.rng.lock().random_range(0..DELAY_MS_MAX);
        if ms > DELAY_MS_MAX / 2 {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
        answer
    }
}

#[async_trait]
impl JobStore for DelayedStore {
    fn shard(&self) -> ShardId {
        self.store.shard()
    }

    fn now(&self) -> Timestamp {
        self.store.now()
    }

    async fn submit(&self, job: NewJob) -> Result<SubmitAnswer, StoreError> {
        let answer = self.store.submit(job).await;
        self.late(answer).await
    }

    async fn find_repeated(
        &self,
        endpoint: &EndpointId,
        idempotency: Idempotency,
    ) -> Result<Option<SubmitAnswer>, StoreError> {
        let answer = self.store.find_repeated(endpoint, idempotency).await;
        self.late(answer).await
    }

    async fn claim(
        &self,
        endpoint: &EndpointId,
        worker: &WorkerId,
    ) -> Result<Option<ClaimedJob>, StoreError> {
        let answer = self.store.claim(endpoint, worker).await;
        self.late(answer).await
    }

    async fn append_chunks(&self, lease: Lease, chunks: Vec<Chunk>) -> Result<Fenced, StoreError> {
        let answer = self.store.append_chunks(lease, chunks).await;
        self.late(answer).await
    }

    async fn set_progress(&self, lease: Lease, value: Json) -> Result<Fenced, StoreError> {
        let answer = self.store.set_progress(lease, value).await;
        self.late(answer).await
    }

    async fn finish_deferred(
        &self,
        lease: Lease,
        outcome: Outcome,
        metered: Metered,
    ) -> Result<Fenced, StoreError> {
        let verdict = outcome.verdict();
        let answer = self.store.finish_deferred(lease, outcome, metered).await;
        self.trace.finished(lease, &format!("{verdict:?}"), answer == Ok(Fenced::Applied));
        self.late(answer).await
    }

    async fn try_again(
        &self,
        lease: Lease,
        failed: &FailedAttempt,
        metered: &Metered,
    ) -> Result<TriedAgain, StoreError> {
        let answer = self.store.try_again(lease, failed, metered).await;
        if answer == Ok(TriedAgain::Queued) {
            let job = self.store.job(&endpoint(), lease.job).await?;
            self.trace.tried_again(lease, job.map(|job| job.queued_at));
        }
        self.late(answer).await
    }

    async fn bill(&self, lease: Lease, bill: Bill) -> Result<(), StoreError> {
        let answer = self.store.bill(lease, bill).await;
        self.trace.billed_without_result();
        self.late(answer).await
    }

    async fn bill_requests(&self, bills: Vec<Bill>) -> Result<(), StoreError> {
        let answer = self.store.bill_requests(bills).await;
        self.late(answer).await
    }

    async fn flush(&self) -> Result<(), StoreError> {
        let answer = self.store.flush().await;
        self.late(answer).await
    }

    async fn holds_lease(&self, lease: Lease) -> Result<bool, StoreError> {
        let answer = self.store.holds_lease(lease).await;
        self.late(answer).await
    }

    fn note_call(&self, id: JobId, step: CallStep) {
        self.store.note_call(id, step);
    }

    fn limit_starts(&self, endpoint: &EndpointId, limits: &StartLimits) {
        self.store.limit_starts(endpoint, limits);
    }

    async fn release(&self, lease: Lease, cause: ReleaseCause) -> Result<Fenced, StoreError> {
        let answer = self.store.release(lease, cause).await;
        self.late(answer).await
    }

    async fn note_host(&self, lease: Lease, host: HostProcess) -> Result<Fenced, StoreError> {
        self.store.note_host(lease, host).await
    }

    fn left_attempts(&self) -> Result<Vec<LeftAttempt>, StoreError> {
        self.store.left_attempts()
    }

    async fn durable(&self, id: JobId) -> Result<(), StoreError> {
        let answer = self.store.durable(id).await;
        self.late(answer).await
    }

    async fn host_lost(&self, lease: Lease, loss: HostLoss) -> Result<Fenced, StoreError> {
        let answer = self.store.host_lost(lease, loss).await;
        self.late(answer).await
    }

    async fn cancel(
        &self,
        endpoint: &EndpointId,
        id: JobId,
    ) -> Result<Option<JobStatus>, StoreError> {
        let answer = self.store.cancel(endpoint, id).await;
        self.late(answer).await
    }

    async fn retry(
        &self,
        endpoint: &EndpointId,
        id: JobId,
        waiting_jobs_max: Option<u32>,
    ) -> Result<RetryAnswer, StoreError> {
        let answer = self.store.retry(endpoint, id, waiting_jobs_max).await;
        self.late(answer).await
    }

    async fn purge(&self, endpoint: &EndpointId) -> Result<u64, StoreError> {
        let answer = self.store.purge(endpoint).await;
        self.late(answer).await
    }

    async fn trim_history(&self, endpoint: &EndpointId, max: HistoryMax) -> Result<(), StoreError> {
        let answer = self.store.trim_history(endpoint, max).await;
        self.late(answer).await
    }

    async fn delete_ended(&self, endpoint: &EndpointId, ids: &[JobId]) -> Result<u64, StoreError> {
        let answer = self.store.delete_ended(endpoint, ids).await;
        self.late(answer).await
    }

    async fn shorten_ttl(
        &self,
        endpoint: &EndpointId,
        id: JobId,
        ttl_ms: u64,
    ) -> Result<(), StoreError> {
        let answer = self.store.shorten_ttl(endpoint, id, ttl_ms).await;
        self.late(answer).await
    }

    fn fire_due(&self) -> Result<Timestamp, StoreError> {
        self.store.fire_due()
    }

    async fn expire(&self) -> Result<NextExpiry, StoreError> {
        self.store.expire().await
    }

    async fn job(
        &self,
        endpoint: &EndpointId,
        id: JobId,
    ) -> Result<Option<Box<JobRecord>>, StoreError> {
        self.store.job(endpoint, id).await
    }

    async fn list(&self, endpoint: &EndpointId, query: &JobQuery) -> Result<JobPage, StoreError> {
        self.store.list(endpoint, query).await
    }

    fn end_position(&self) -> Result<Cursor, StoreError> {
        self.store.end_position()
    }

    async fn search(&self, search: &JobSearch) -> Result<JobPage, StoreError> {
        let answer = self.store.search(search).await;
        self.late(answer).await
    }

    async fn input(&self, id: JobId) -> Result<Option<Json>, StoreError> {
        self.store.input(id).await
    }

    async fn output(&self, id: JobId) -> Result<Option<Json>, StoreError> {
        self.store.output(id).await
    }

    async fn chunks(
        &self,
        id: JobId,
        from: u64,
        bytes_max: usize,
        count_max: usize,
    ) -> Result<ChunkPage, StoreError> {
        self.store.chunks(id, from, bytes_max, count_max).await
    }

    async fn mark_delivered(&self, id: JobId, next: StreamPosition) -> Result<(), StoreError> {
        self.store.mark_delivered(id, next).await
    }

    async fn counts(&self, endpoint: &EndpointId) -> Result<JobCounts, StoreError> {
        self.store.counts(endpoint).await
    }

    async fn demand(&self, endpoint: &EndpointId) -> Result<Demand, StoreError> {
        let answer = self.store.demand(endpoint).await;
        self.late(answer).await
    }

    async fn delete_endpoint(&self, endpoint: &EndpointId) -> Result<(), StoreError> {
        self.store.delete_endpoint(endpoint).await
    }

    async fn await_deletion(&self, endpoint: &EndpointId) -> Result<(), StoreError> {
        self.store.await_deletion(endpoint).await
    }

    fn stats(&self) -> StoreStats {
        self.store.stats()
    }

    async fn close(&self) {
        self.store.close().await;
    }
}
