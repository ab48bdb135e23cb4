//! The calls about jobs: each one decides in memory, and returns when the change is in the journal.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use futures::FutureExt as _;
use gristmill_core::billing::usage::{Bill, Metered};
use gristmill_core::id::{EndpointId, JobId, ShardId, WorkerId};
use gristmill_core::job::filter::JobSearch;
use gristmill_core::job::idempotency::Idempotency;
use gristmill_core::job::listing::{Cursor, JobPage};
use gristmill_core::job::loss::HostLoss;
use gristmill_core::job::payload::Json;
use gristmill_core::job::policy::Start;
use gristmill_core::job::record::{
    CallStep, Chunk, ChunkPage, ClaimedJob, Demand, HostProcess, JobCounts, JobRecord, Lease,
    LeftAttempt, NewJob, Outcome, StreamPosition,
};
use gristmill_core::job::retention::HistoryMax;
use gristmill_core::job::retry::FailedAttempt;
use gristmill_core::job::starts::StartLimits;
use gristmill_core::job::state::{JobEvent, JobStatus, ReleaseCause};
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use gristmill_core::store::{
    Fenced, JobStore, NextExpiry, RetryAnswer, StoreError, StoreFull, StoreStats, SubmitAnswer,
    TriedAgain,
};
use gristmill_core::time::Timestamp;
use tokio::sync::oneshot;

use super::{Store, fenced};
use crate::failure;
use crate::format::pages::stored_bytes;
use crate::format::payload::{Payload, PayloadKey};
use crate::shared::{answer, damaged};
use crate::state::bulk_removal::Purged;
use crate::state::claim::Claimed;
use crate::state::decide::End;
use crate::state::index::{Decided, Index, Submitted};
use crate::state::job::{Job, JobRow, SubmissionAck};
use crate::state::query::FoundChunks;
use crate::state::relay::Relayed;
use crate::state::requests::{ChunkRequest, DbRequest};
use crate::state::room::{Room, is_large};
use crate::state::starts::StartRules;

/// Most jobs that one call of `expire` deletes, and most idempotency records that it forgets.
const EXPIRE_JOBS_MAX: usize = 500;

/// Most jobs whose time has come that one hold of the lock adds to their queues: within 0.2 ms.
const FIRE_JOBS_MAX: usize = 500;

/// Bytes of a bill in the write buffer: about the memory that it takes until it is on disk.
const BILL_BYTES: usize = 256;

type FencedAnswer = Result<Fenced, StoreError>;

/// A claimed job whose input is still being read. If the caller's future is dropped meanwhile, it
/// is released, since no worker would ever run it.
struct ReleaseOnDrop<'a> {
    store: &'a Store,
    lease: Option<Lease>,
}

impl Drop for ReleaseOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(lease) = self.lease {
            // The store can only refuse this when it is closed, and then the next start releases
            // the job.
            let cause = ReleaseCause::Stopped;
            let event = JobEvent::Released { by: lease.claim, cause };
            let _ = self.store.requeue_now(lease, event);
        }
    }
}

impl Store {
    /// Reads the input of a claimed job that is not in memory; `None` if the job was deleted a
    /// moment ago, and [`StoreError::Damaged`] if its input is. The job is released if this ends
    /// early.
    async fn read_input(&self, job: &Claimed) -> Result<Option<Payload>, StoreError> {
        let mut unclaimed = ReleaseOnDrop { store: self, lease: Some(job.lease) };
        let read = self.read_payload(PayloadKey::Input(job.seq), job.location).await;
        if matches!(read, Ok(_) | Err(StoreError::Damaged(_))) {
            unclaimed.lease = None;
        }
        read
    }
}

#[async_trait]
impl JobStore for Store {
    fn shard(&self) -> ShardId {
        self.shared.shard
    }

    fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    async fn submit(&self, mut job: NewJob) -> Result<SubmitAnswer, StoreError> {
        let shared = &self.shared;
        shared.check_available()?;
        let body = std::mem::replace(&mut job.input, Json::null());
        let input = Payload { body, s3_config: job.s3_config.take() };
        let bytes = input.len();
        let turn = is_large(bytes).then(|| shared.turn(bytes, &job.owner, &job.endpoint));
        let admits = DiskSpaceGauge::admits_work;
        let Some(mut reserved) = shared.reserve_if(bytes, turn, admits).await? else {
            // A duplicate needs no room.
            if let Some(idempotency) = job.idempotency
                && let Some(first) = self.find_repeated(&job.endpoint, idempotency).await?
            {
                return Ok(first);
            }
            let shortage = shared.settings.disk_space.shortage();
            return Err(StoreFull::Disk(shortage).into());
        };
        let (sender, on_disk) = oneshot::channel();
        let is_delayed = job.policy.start != Start::Now;
        let ack = SubmissionAck { sender, wants_end: job.may_linger };
        let limit = shared.settings.endpoint_max();
        let new = Submitted { job, input, room: reserved.take_room(), ack };
        match shared.change(|index, now| index.submit(new, now, limit))?? {
            Decided::Queued(notice) => {
                reserved.hand_over();
                shared.notify_queued(Some(&notice));
                if is_delayed {
                    shared.signals.due_added();
                }
                let Relayed { message: completed, others } = answer(on_disk).await?;
                drop(others);
                let completed = completed.and_then(|write| write.into_job(&notice.endpoint));
                Ok(completed.map_or(SubmitAnswer::Queued, SubmitAnswer::Completed))
            }
            Decided::Repeated(first, on_disk) => {
                answer(on_disk).await?;
                Ok(first)
            }
        }
    }

    async fn find_repeated(
        &self,
        endpoint: &EndpointId,
        idempotency: Idempotency,
    ) -> Result<Option<SubmitAnswer>, StoreError> {
        self.shared.check_available()?;
        let (ack, on_disk) = oneshot::channel();
        let found =
            self.shared.change(|index, _| index.find_repeated(endpoint, idempotency, ack))?;
        if found.is_some() {
            answer(on_disk).await?;
        }
        Ok(found)
    }

    async fn claim(
        &self,
        endpoint: &EndpointId,
        worker: &WorkerId,
    ) -> Result<Option<ClaimedJob>, StoreError> {
        if !self.shared.settings.disk_space.may_start_jobs() {
            return Ok(None);
        }
        loop {
            let claim = self.shared.change(|index, now| index.claim(endpoint, worker, now))?;
            let mut job = match claim {
                ControlFlow::Break(Some(job)) => job,
                ControlFlow::Break(None) => return Ok(None),
                ControlFlow::Continue(()) => {
                    tokio::task::yield_now().await;
                    continue;
                }
            };
            let at_hand =
                job.input.take().or_else(|| self.shared.payloads.get(PayloadKey::Input(job.seq)));
            let read = match at_hand {
                Some(input) => Ok(Some(input)),
                // Boxed, so that the future of the usual claim stays small: it is copied for each
                // job.
                None => self.read_input(&job).boxed().await,
            };
            match read {
                Ok(Some(input)) => return Ok(Some(job.into_job(input))),
                // A job without input was deleted a moment ago; its lease is stale.
                Ok(None) => self.shared.signals.demand_changed(endpoint, job.left),
                // The job can never run. If it were released, a worker would claim it again at
                // once.
                Err(StoreError::Damaged(_)) => {
                    self.shared.signals.demand_changed(endpoint, job.left);
                    let outcome =
                        Outcome::Failed("the stored input of the job is damaged".to_owned());
                    self.finish_now(job.lease, outcome, None).boxed().await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn append_chunks(&self, lease: Lease, chunks: Vec<Chunk>) -> FencedAnswer {
        let bytes = stored_bytes(&chunks);
        let admits = DiskSpaceGauge::admits_chunks;
        let Some(mut reserved) = self.reserve_for(lease, bytes, admits).await? else {
            return Ok(Fenced::Stale);
        };
        let results_max = self.shared.settings.result_bytes_max;
        let is_applied = self.shared.change(|index, now| {
            if chunks.is_empty() {
                return index.leased(lease, now).is_some();
            }
            match index.append_chunks(lease, chunks, reserved.take_room(), results_max, now) {
                Ok(true) => reserved.hand_over(),
                Ok(false) => return false,
                Err(full) => {
                    // The job has ended, and its attempt is stopped like that of a cancelled job.
                    let end = End::from(Outcome::Completed(Json::null())).without_results(full);
                    let _ = index.finish(lease, end, None, Room::default(), now);
                    return false;
                }
            }
            true
        })?;
        Ok(fenced(is_applied))
    }

    async fn set_progress(&self, lease: Lease, value: Json) -> FencedAnswer {
        let is_applied =
            self.shared.change_live(|index, now| index.set_progress(lease, value, now))?;
        if is_applied {
            self.shared.signals.changed(lease.job);
        }
        Ok(fenced(is_applied))
    }

    async fn finish_deferred(
        &self,
        lease: Lease,
        outcome: Outcome,
        metered: Metered,
    ) -> FencedAnswer {
        Ok(fenced(self.finish_now(lease, outcome, Some(metered)).await?))
    }

    async fn try_again(
        &self,
        lease: Lease,
        failed: &FailedAttempt,
        metered: &Metered,
    ) -> Result<TriedAgain, StoreError> {
        let shared = &self.shared;
        let (tried, notice) =
            shared.change(|index, now| index.try_again(lease, failed, metered, now))?;
        if tried == TriedAgain::Queued {
            shared.notify_queued(notice.as_ref());
            shared.signals.due_added();
        }
        Ok(tried)
    }

    async fn bill(&self, lease: Lease, bill: Bill) -> Result<(), StoreError> {
        let mut reserved = self.shared.reserve(0).await?;
        self.shared.change(|index, _| {
            index.add_bill(lease, bill, reserved.take_room());
            reserved.hand_over();
        })
    }

    async fn bill_requests(&self, bills: Vec<Bill>) -> Result<(), StoreError> {
        if bills.is_empty() {
            return self.shared.read(|_, _| ());
        }
        let bytes = bills.len().saturating_mul(BILL_BYTES);
        let mut reserved = self.shared.reserve(bytes).await?;
        self.shared.change(|index, _| {
            index.add_bills(bills, reserved.take_room());
            reserved.hand_over();
        })
    }

    async fn flush(&self) -> Result<(), StoreError> {
        let (ack, on_disk) = oneshot::channel();
        self.shared.change(|index, _| index.ack_all(ack))?;
        answer(on_disk).await
    }

    async fn holds_lease(&self, lease: Lease) -> Result<bool, StoreError> {
        self.shared.change_live(|index, now| index.leased(lease, now).is_some())
    }

    fn note_call(&self, id: JobId, step: CallStep) {
        // The calls of a closed store end too.
        let _ = self.shared.change_live(|index, now| index.note_call(id, step, now));
    }

    async fn release(&self, lease: Lease, cause: ReleaseCause) -> FencedAnswer {
        let event = JobEvent::Released { by: lease.claim, cause };
        let (is_applied, on_disk) = self.requeue_now(lease, event)?;
        self.await_durable(is_applied, on_disk).await
    }

    async fn host_lost(&self, lease: Lease, loss: HostLoss) -> FencedAnswer {
        let losses = self
            .shared
            .change_live(|index, now| index.leased(lease, now).map(|(_, job)| job.row.losses()))?;
        let bounds = self.shared.settings.loss_bounds;
        if losses.is_some_and(|losses| losses.is_last(loss, bounds)) {
            // Like any failure it may need room for a webhook.
            let outcome = Outcome::Failed(bounds.error(loss));
            return Ok(fenced(self.finish_now(lease, outcome, None).await?));
        }
        let (is_applied, on_disk) =
            self.requeue_now(lease, JobEvent::HostLost { loss, is_last: false })?;
        self.await_durable(is_applied, on_disk).await
    }

    async fn note_host(&self, lease: Lease, host: HostProcess) -> FencedAnswer {
        Ok(fenced(self.shared.change(|index, now| index.note_host(lease, host, now))?))
    }

    fn left_attempts(&self) -> Result<Vec<LeftAttempt>, StoreError> {
        self.shared.read(|index, _| index.left_attempts())
    }

    async fn durable(&self, id: JobId) -> Result<(), StoreError> {
        let (ack, on_disk) = oneshot::channel();
        self.shared.change(|index, _| index.ack_id(id, ack))?;
        answer(on_disk).await
    }

    async fn cancel(
        &self,
        endpoint: &EndpointId,
        id: JobId,
    ) -> Result<Option<JobStatus>, StoreError> {
        let mut is_absent = false;
        loop {
            let decided = self.shared.change(|index, now| {
                if index.has_archived() && !index.has(id) && !is_absent {
                    return None;
                }
                let (ack, on_disk) = oneshot::channel();
                let found = index.find_of(endpoint, id, now).map(|(key, _)| key);
                let status = found.and_then(|key| {
                    // Whatever the result of the event, the answer is the job's state afterwards.
                    let _ = index.decide(key, JobEvent::CancelRequested, now);
                    index.decided_status(key)
                });
                index.ack_id(id, ack);
                Some((status, on_disk))
            })?;
            if let Some((status, on_disk)) = decided {
                answer(on_disk).await?;
                return Ok(status);
            }
            // An archived job has ended, and keeps its status. A job that has left the tables
            // meanwhile is decided in memory.
            match self.status(endpoint, id).await? {
                Some(status) if status.is_final() => return Ok(Some(status)),
                found => is_absent = found.is_none(),
            }
        }
    }

    async fn retry(
        &self,
        endpoint: &EndpointId,
        id: JobId,
        waiting_jobs_max: Option<u32>,
    ) -> Result<RetryAnswer, StoreError> {
        self.shared.check_available()?;
        let (ack, on_disk) = oneshot::channel();
        let max = self.shared.settings.endpoint_max().of(waiting_jobs_max);
        // Of the archived jobs, only those that can be retried come back to memory.
        let is_archived = self.shared.read(|index, _| index.has_archived() && !index.has(id))?;
        if is_archived
            && let Some(status) = self.status(endpoint, id).await?
            && matches!(status, JobStatus::Completed | JobStatus::Cancelled)
        {
            return Ok(RetryAnswer::WrongStatus(status));
        }
        let is_wanted = |index: &Index, job: &Job, now| index.is_job_of(endpoint, job, now);
        let retried = self.change_job(id, is_wanted, |index, now| {
            let retried = index.retry(endpoint, id, max, now)?;
            index.ack_id(id, ack);
            Ok::<_, StoreError>(retried)
        });
        let (retried, notice) = retried.await??;
        self.shared.wake_writer();
        self.shared.notify_queued(notice.as_ref());
        answer(on_disk).await?;
        Ok(retried)
    }

    async fn purge(&self, endpoint: &EndpointId) -> Result<u64, StoreError> {
        let (sender, receiver) = oneshot::channel();
        self.shared.change(|index, _| index.begin_purge(endpoint, sender))?;
        let Purged { removed, on_disk } = answer(receiver).await?;
        answer(on_disk).await?;
        Ok(removed)
    }

    async fn shorten_ttl(
        &self,
        endpoint: &EndpointId,
        id: JobId,
        ttl_ms: u64,
    ) -> Result<(), StoreError> {
        let (ack, on_disk) = oneshot::channel();
        let is_wanted = |index: &Index, job: &Job, now: Timestamp| {
            index.is_job_of(endpoint, job, now) && now.plus_millis(ttl_ms) < job.row.ttl_at
        };
        let shortened =
            self.change_job(id, is_wanted, |index, now| match index.find_of(endpoint, id, now) {
                Some((key, _)) => index.shorten_ttl(key, now.plus_millis(ttl_ms), ack),
                None => index.ack_id(id, ack),
            });
        shortened.await?;
        self.shared.wake_writer();
        answer(on_disk).await
    }

    fn limit_starts(&self, endpoint: &EndpointId, limits: &StartLimits) {
        let rules = StartRules::of(limits);
        // A closed store starts no job.
        let _ = self.shared.change(|index, now| index.limit_starts(endpoint, rules, now));
    }

    fn fire_due(&self) -> Result<Timestamp, StoreError> {
        self.shared.change(|index, now| index.fire_due(now, FIRE_JOBS_MAX))
    }

    async fn expire(&self) -> Result<NextExpiry, StoreError> {
        let (ack, on_disk) = oneshot::channel();
        let expire = |index: &mut Index, now| {
            let (next, is_change) = index.expire_due(now, EXPIRE_JOBS_MAX, ack);
            (next, is_change, now, index.next_archived_purge_at())
        };
        let (mut next, is_change, now, next_archived) = self.shared.change(expire)?;
        if next_archived <= now {
            let count_max = EXPIRE_JOBS_MAX;
            let expire = |answer| DbRequest::ExpireArchived { now, count_max, answer };
            next = next.min(self.shared.ask(expire).await?);
        } else {
            next = next.min(next_archived);
        }
        if is_change {
            answer(on_disk).await?;
        }
        Ok(NextExpiry(next))
    }

    async fn trim_history(&self, endpoint: &EndpointId, max: HistoryMax) -> Result<(), StoreError> {
        let excess = || self.shared.read(|index, _| index.history_excess(endpoint, max));
        while let Some((excess, true)) = excess()? {
            let endpoint = endpoint.clone();
            let trim = |answer| DbRequest::TrimArchived { endpoint, excess, answer };
            if self.shared.ask(trim).await? == 0 {
                break;
            }
        }
        let Some((mut excess, _)) = excess()? else { return Ok(()) };
        let mut from = Some(0);
        while let Some(begin) = from {
            let (ack, on_disk) = oneshot::channel();
            let trim =
                |index: &mut Index, now| index.trim_slice(endpoint, &mut excess, begin, now, ack);
            let trimmed = self.shared.change_live(trim)?;
            from = trimmed.next;
            // The backlog has the deletions of one slice at most.
            match trimmed.deleted {
                0 => tokio::task::yield_now().await,
                _ => {
                    self.shared.wake_writer();
                    answer(on_disk).await?;
                }
            }
        }
        Ok(())
    }

    async fn delete_ended(&self, endpoint: &EndpointId, ids: &[JobId]) -> Result<u64, StoreError> {
        let (mut deleted, mut left) = (0, ids.to_vec());
        loop {
            let (ack, on_disk) = oneshot::channel();
            let delete = |index: &mut Index, now| {
                let in_memory = index.delete_ended(endpoint, &mut left, now);
                index.ack_all(ack);
                (in_memory, index.has_archived())
            };
            let (in_memory, has_archived) = self.shared.change(delete)?;
            answer(on_disk).await?;
            deleted += in_memory;
            if left.is_empty() || !has_archived {
                return Ok(deleted);
            }
            let (endpoint, ids) = (endpoint.clone(), std::mem::take(&mut left));
            let delete = |answer| DbRequest::DeleteArchived { endpoint, ids, answer };
            let archived = self.shared.ask(delete).await??;
            deleted += archived.deleted;
            left = archived.in_memory;
        }
    }

    async fn job(
        &self,
        endpoint: &EndpointId,
        id: JobId,
    ) -> Result<Option<Box<JobRecord>>, StoreError> {
        let Some((mut record, long_error)) = self.find_record(endpoint, id).await? else {
            return Ok(None);
        };
        if let (Some(error), Some((key, location))) = (&mut record.error, long_error)
            && let Some(stored) = self.read_body(key, location).await?
            && let Some(whole) = failure::whole(error, &stored)
        {
            *error = whole;
        }
        Ok(Some(record))
    }

    async fn search(&self, search: &JobSearch) -> Result<JobPage, StoreError> {
        self.searched(search).await
    }

    fn end_position(&self) -> Result<Cursor, StoreError> {
        Ok(self.shared.seal.hide(self.shared.read(|index, _| index.next_seq())?))
    }

    async fn input(&self, id: JobId) -> Result<Option<Json>, StoreError> {
        let found = self.look(id, |_, job, now| {
            if !job.visible_at(now)?.needs_input() {
                return None;
            }
            let pending = job.pending.as_ref().and_then(|pending| pending.input.clone());
            Some((PayloadKey::Input(job.seq), pending, job.payload_locations.input))
        });
        let found = found.await?;
        match found {
            Some((_, Some(pending), _)) => Ok(Some(pending.body)),
            Some((key, None, location)) => self.read_body(key, location).await,
            None => Ok(None),
        }
    }

    async fn output(&self, id: JobId) -> Result<Option<Json>, StoreError> {
        let found = self.look(id, |_, job, now| {
            let row = job.visible_at(now)?;
            let is_cut = match row.status? {
                JobStatus::Completed => false,
                // Most jobs have no such error, and need no query of the database.
                JobStatus::Failed if row.result_bytes() > 0 => row.has_cut_error(),
                JobStatus::InQueue
                | JobStatus::InProgress
                | JobStatus::Failed
                | JobStatus::Cancelled
                | JobStatus::TimedOut => return None,
            };
            Some((is_cut, job.output_key(row), job.payload_locations.output()))
        });
        let Some((is_cut, key, location)) = found.await? else { return Ok(None) };
        let stored = self.read_body(key, location).await?;
        Ok(if is_cut { stored.and_then(|stored| failure::partial(&stored)) } else { stored })
    }

    async fn chunks(
        &self,
        id: JobId,
        from: u64,
        bytes_max: usize,
        count_max: usize,
    ) -> Result<ChunkPage, StoreError> {
        let request = ChunkRequest { from, bytes_max, count_max };
        let found = self.look(id, |_, job, now| FoundChunks::of(job, &request, now)).await?;
        let mut none = ChunkPage { first: from, ..ChunkPage::default() };
        let Some(FoundChunks { seq, query, begins_in_database, pages }) = found else {
            return Ok(none);
        };
        none.attempt = query.attempt;
        if from >= query.end {
            return Ok(none);
        }
        if let Some(page) = self.shared.chunks.read(seq, &query) {
            return Ok(page);
        }
        if !begins_in_database {
            let page = self.read_pages(pages.clone(), query, none.clone()).await?;
            if !page.chunks.is_empty() {
                return Ok(page);
            }
        }
        let read = |answer| DbRequest::Chunks { seq, query, answer };
        let page = self.shared.ask(read).await?.map_err(damaged)?;
        let page = match page.chunks.is_empty() {
            true => page,
            false => self.read_pages(pages, query, page).await?,
        };
        // The chunks of each attempt have the same numbers: the database may have read those of the
        // next attempt.
        let attempt = self.look(id, |_, job, now| Some(job.visible_at(now)?.stream_attempt()));
        let attempt = attempt.await?;
        Ok(if attempt == Some(query.attempt) { page } else { none })
    }

    async fn mark_delivered(&self, id: JobId, next: StreamPosition) -> Result<(), StoreError> {
        let has_chunk =
            |row: &JobRow| row.stream_attempt() == next.attempt && row.chunk_count() > 0;
        let has_chunk = |_: &Index, job: &Job, _| job.visible().is_some_and(has_chunk);
        self.change_job(id, has_chunk, |index, now| index.mark_delivered(id, next, now)).await
    }

    async fn counts(&self, endpoint: &EndpointId) -> Result<JobCounts, StoreError> {
        self.shared.read(|index, _| index.counts(endpoint))
    }

    async fn demand(&self, endpoint: &EndpointId) -> Result<Demand, StoreError> {
        self.shared.read(|index, _| index.demand(endpoint))
    }

    async fn delete_endpoint(&self, endpoint: &EndpointId) -> Result<(), StoreError> {
        let (ack, on_disk) = oneshot::channel();
        let forgotten = self.shared.change(|index, _| {
            let forgotten = index.forget(endpoint);
            index.ack_deletion(endpoint, ack);
            forgotten
        })?;
        self.shared.wake_medium();
        drop(forgotten);
        answer(on_disk).await
    }

    async fn await_deletion(&self, endpoint: &EndpointId) -> Result<(), StoreError> {
        let (ack, on_disk) = oneshot::channel();
        self.shared.change(|index, _| index.ack_deletion(endpoint, ack))?;
        answer(on_disk).await
    }

    fn stats(&self) -> StoreStats {
        let shared = &self.shared;
        let index = shared.index();
        let (jobs, archived_jobs) = (index.visible_jobs(), index.archived_jobs());
        let waiting_webhooks = index.waiting_webhooks();
        drop(index);
        StoreStats {
            commits: shared.commits.load(Ordering::Relaxed),
            operations: shared.operations.load(Ordering::Relaxed),
            jobs,
            archived_jobs,
            waiting_webhooks,
            commit: shared.commit_durations.totals(),
            checkpoint_backlog_bytes: shared.medium.backlog_bytes(),
        }
    }

    async fn close(&self) {
        let (ended, end) = oneshot::channel();
        if !self.shared.index().begin_close(ended) {
            return;
        }
        self.shared.wake_writer();
        // No value is ever sent: the channel closes when the index is dropped, after the file was
        // closed.
        let _ = end.await;
    }
}
