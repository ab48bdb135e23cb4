//! A store without a disk, with rules of its own: the reference for tests of the durable store, and
//! a quick substitute for it in tests of other crates.
//!
//! One lock, ordered maps, simple code. All changes are visible at once and lost at the end.

mod catalog_usage_webhooks;
mod job_actions;
mod outbox;
mod state;
mod submissions;

use std::sync::Arc;

use async_trait::async_trait;
use gristmill_core::billing::usage::{Bill, JobUsage, Metered};
use gristmill_core::id::{EndpointId, JobId, ShardId, SubmissionKind, WorkerId};
use gristmill_core::job::filter::{ErrorText, JobCandidate, JobSearch, Match};
use gristmill_core::job::idempotency::Idempotency;
use gristmill_core::job::listing::{Cursor, JobPage, JobQuery, Positions};
use gristmill_core::job::loss::{HostLoss, LossBounds, Losses};
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{
    CallStep, Chunk, ChunkPage, ClaimedJob, Demand, HostProcess, JobCounts, JobRecord, Lease,
    LeftAttempt, NewJob, Outcome, StreamPosition, TIMED_OUT_ERROR, queue_limit,
};
use gristmill_core::job::retention::HistoryMax;
use gristmill_core::job::retry::{FailedAttempt, JobRetry};
use gristmill_core::job::starts::StartLimits;
use gristmill_core::job::state::{Claim, JobEvent, JobState, JobStatus, ReleaseCause};
use gristmill_core::limits::{CRASHES_MAX, LOSSES_MAX, QUEUE_JOBS_MAX};
use gristmill_core::signals::Signals;
use gristmill_core::store::{
    Fenced, JobStore, NextExpiry, RetryAnswer, StoreError, StoreFull, StoreStats, SubmitAnswer,
    TriedAgain,
};
use gristmill_core::time::{Clock, Timestamp};
use parking_lot::Mutex;

use self::state::{ModelJob, Notifications, State, all_of};

/// Most jobs that one call of `expire` deletes.
const EXPIRE_JOBS_MAX: usize = 500;

/// Keeps jobs and the catalog in memory. Cheap to create; a lookup costs a search in an ordered
/// map.
#[derive(Debug)]
pub struct ModelStore {
    shard: ShardId,
    clock: Arc<dyn Clock>,
    signals: Arc<Signals>,
    queue_jobs_max: usize,
    state: Mutex<State>,
}

/// How often a job may lose its host.
const BOUNDS: LossBounds = LossBounds { crashes_max: CRASHES_MAX, losses_max: LOSSES_MAX };

impl ModelStore {
    /// An empty store.
    pub fn new(shard: ShardId, clock: Arc<dyn Clock>, signals: Arc<Signals>) -> Self {
        let state = Mutex::new(State::default());
        Self { shard, clock, signals, queue_jobs_max: QUEUE_JOBS_MAX, state }
    }

    /// An empty store with another bound on the waiting jobs of one endpoint.
    #[must_use]
    pub fn with_queue_jobs_max(mut self, queue_jobs_max: usize) -> Self {
        self.queue_jobs_max = queue_jobs_max;
        self
    }

    /// Moves all durable state into a store that reports to `signals`, as if the next process
    /// opened it; this store is empty then.
    #[must_use]
    pub fn reopen(&self, signals: Arc<Signals>) -> Self {
        let state = Mutex::new(std::mem::take(&mut *self.state.lock()));
        let (clock, queue_jobs_max) = (self.clock.clone(), self.queue_jobs_max);
        let next = Self { shard: self.shard, clock, signals, queue_jobs_max, state };
        next.restart();
        next
    }

    /// Refuses all calls, like a database that is away, or ends that.
    pub fn set_away(&self, is_away: bool) {
        self.state.lock().is_away = is_away;
    }

    /// Changes the store as a restart changes a durable one: jobs past their time are deleted,
    /// running jobs are queued again at their old position or given up, and state that is not
    /// durable is lost. A closed store opens again.
    pub fn restart(&self) {
        let mut notifications = Notifications::default();
        let mut state = self.state.lock();
        state.is_closed = false;
        state.restarts += 1;
        state.outbox.restart();
        let now = self.clock.now();
        let ids: Vec<_> = state.jobs.keys().copied().collect();
        for id in ids {
            state.set_calls(id, |_| 0, &mut notifications);
            let Some(job) = state.jobs.get_mut(&id) else { continue };
            job.chunks_delivered = 0;
            job.progress = None;
            let is_running = matches!(job.state, JobState::InProgress { .. });
            let loss = HostLoss::Crash;
            let is_last = job.losses.is_last(loss, BOUNDS);
            if job.purge_at() <= now {
                let event = State::expiry_of(job, now);
                state.apply(id, event, now, &mut notifications);
            } else if is_running && job.host.is_none() {
                if is_last {
                    job.error = Some(BOUNDS.error(loss));
                }
                state.apply(id, JobEvent::HostLost { loss, is_last }, now, &mut notifications);
            }
        }
        state.fire_due(now, &mut notifications);
    }

    /// Runs `change` under the lock, then sends its notifications.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut State, Timestamp, &mut Notifications) -> T,
    ) -> Result<T, StoreError> {
        let mut notifications = Notifications::default();
        let (answer, demands) = {
            let mut state = self.state.lock();
            state.check_available()?;
            let answer = change(&mut state, self.clock.now(), &mut notifications);
            let queues = std::mem::take(&mut notifications.queues).into_iter();
            let demands: Vec<_> = queues.map(|name| (state.demand(&name), name)).collect();
            (answer, demands)
        };
        for (demand, endpoint) in demands {
            self.signals.demand_changed(&endpoint, demand);
        }
        if let Some(job) = notifications.queued {
            self.signals.job_queued(job);
        }
        if notifications.has_deliveries {
            self.signals.delivery_added();
        }
        for id in notifications.changed {
            self.signals.changed(id);
        }
        Ok(answer)
    }

    fn read<T>(&self, read: impl FnOnce(&State, Timestamp) -> T) -> Result<T, StoreError> {
        let state = self.state.lock();
        state.check_available()?;
        Ok(read(&state, self.clock.now()))
    }
}

fn fenced(is_applied: bool) -> Fenced {
    if is_applied { Fenced::Applied } else { Fenced::Stale }
}

#[async_trait]
impl JobStore for ModelStore {
    fn shard(&self) -> ShardId {
        self.shard
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn find_repeated(
        &self,
        endpoint: &EndpointId,
        idempotency: Idempotency,
    ) -> Result<Option<SubmitAnswer>, StoreError> {
        self.read(|state, _| state.submissions.find(endpoint, idempotency))
    }

    async fn submit(&self, new: NewJob) -> Result<SubmitAnswer, StoreError> {
        let limit = new.queue_limit(self.queue_jobs_max);
        self.change(|state, now, notifications| {
            if new.incarnation.has_ended() {
                return Err(StoreError::EndpointDeleted);
            }
            let idempotency = new.idempotency;
            let is_call = matches!(new.id.submission(), SubmissionKind::Handler(_));
            let sent_before = is_call && state.jobs.contains_key(&new.id);
            let repeated = idempotency
                .and_then(|idempotency| state.submissions.find(&new.endpoint, idempotency))
                .or_else(|| sent_before.then_some(SubmitAnswer::Repeated(new.id)));
            if let Some(repeated) = repeated {
                return Ok(repeated);
            }
            if state.waiting(&new.endpoint) >= limit {
                return Err(StoreError::Full(StoreFull::Queue { limit }));
            }
            state.last_queue_position += 1;
            state.last_seq += 1;
            state.operations += 1;
            if let Some(idempotency) = idempotency {
                state.submissions.insert(new.endpoint.clone(), idempotency, new.id, now);
            }
            if let Some(note) = &new.note {
                state.schedules.insert(note.schedule, note.text.clone());
            }
            let due = new.policy.start.due(now);
            let job = ModelJob {
                seq: state.last_seq,
                state: JobState::InQueue,
                queue_position: state.last_queue_position,
                is_delayed: due.is_some(),
                last_claim: Claim::default(),
                retries: 0,
                losses: Losses::default(),
                host: None,
                created_at: now,
                queued_at: due.unwrap_or(now),
                ttl_at: due.unwrap_or(now).plus_millis(new.policy.ttl_ms),
                has_shortened_ttl: false,
                started_at: None,
                finished_at: None,
                worker: None,
                output: None,
                error: None,
                progress: None,
                chunks: Vec::new(),
                chunks_delivered: 0,
                past_attempts: Vec::new(),
                retry: JobRetry { rule: new.policy.retry, ..JobRetry::default() },
                usage: JobUsage::default(),
                calls: 0,
                new,
            };
            let id = job.new.id;
            notifications.queued = Some(id);
            notifications.changed.push(id);
            match job.is_delayed {
                true => self.signals.due_added(),
                false => drop(state.ready.insert(job.ready_key(), id)),
            }
            state.change_queue(&job.new.endpoint, notifications);
            let replaced = state.jobs.insert(id, job);
            debug_assert!(replaced.is_none(), "job ids are unique");
            Ok(SubmitAnswer::Queued)
        })?
    }

    async fn claim(
        &self,
        endpoint: &EndpointId,
        worker: &WorkerId,
    ) -> Result<Option<ClaimedJob>, StoreError> {
        self.change(|state, now, notifications| {
            state.claim_next(endpoint, worker, now, notifications)
        })
    }

    async fn append_chunks(&self, lease: Lease, chunks: Vec<Chunk>) -> Result<Fenced, StoreError> {
        self.change(|state, now, notifications| {
            let Some(job) = state.leased(lease, now) else { return Fenced::Stale };
            job.chunks.extend(chunks);
            notifications.changed.push(lease.job);
            Fenced::Applied
        })
    }

    async fn set_progress(&self, lease: Lease, value: Json) -> Result<Fenced, StoreError> {
        self.change(|state, now, notifications| {
            let Some(job) = state.leased(lease, now) else { return Fenced::Stale };
            job.progress = Some(value);
            notifications.changed.push(lease.job);
            Fenced::Applied
        })
    }

    async fn finish_deferred(
        &self,
        lease: Lease,
        outcome: Outcome,
        metered: Metered,
    ) -> Result<Fenced, StoreError> {
        self.change(|state, now, notifications| {
            let Some(job) = state.leased(lease, now) else { return Fenced::Stale };
            let used = JobUsage::of(&metered, now.millis_since(job.started_at.unwrap_or(now)));
            job.usage.add(&used);
            let (endpoint, owner) = (job.new.endpoint.clone(), job.new.owner.clone());
            let verdict = outcome.verdict();
            let partial_output = outcome.partial_output().cloned();
            match outcome {
                Outcome::Completed(output) => job.output = Some(output),
                Outcome::Failed(error) => job.error = Some(error),
                Outcome::FailedWith { error, .. } => {
                    job.error = Some(error);
                    job.output = partial_output;
                }
                Outcome::TimedOut => job.error = Some(TIMED_OUT_ERROR.to_owned()),
            }
            let event = JobEvent::Finished { by: lease.claim, verdict };
            let is_applied = state.apply(lease.job, event, now, notifications);
            if is_applied {
                state.bill(endpoint, metered.template, owner, &used.billed, now);
            }
            fenced(is_applied)
        })
    }

    async fn try_again(
        &self,
        lease: Lease,
        failed: &FailedAttempt,
        metered: &Metered,
    ) -> Result<TriedAgain, StoreError> {
        self.change(|state, now, notifications| {
            let tried = state.try_again(lease, failed, metered, now, notifications);
            if tried == TriedAgain::Queued {
                self.signals.due_added();
            }
            tried
        })
    }

    async fn bill(&self, lease: Lease, bill: Bill) -> Result<(), StoreError> {
        self.change(|state, now, _| {
            let Bill { endpoint, template, owner, used } = bill;
            state.add_usage_of_cancelled(lease, &used);
            state.bill(endpoint, template, owner, &used.billed, now);
        })
    }

    async fn bill_requests(&self, bills: Vec<Bill>) -> Result<(), StoreError> {
        self.change(|state, now, _| {
            for Bill { endpoint, template, owner, used } in bills {
                state.bill(endpoint, template, owner, &used.billed, now);
            }
        })
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.read(|_, _| ())
    }

    async fn holds_lease(&self, lease: Lease) -> Result<bool, StoreError> {
        self.change(|state, now, _| state.leased(lease, now).is_some())
    }

    fn note_call(&self, id: JobId, step: CallStep) {
        let count = |calls| step.count(calls);
        // The calls of a closed store end too.
        let _ = self.change(|state, _, notifications| state.set_calls(id, count, notifications));
    }

    /// Has no effect: this store starts jobs without limits.
    fn limit_starts(&self, _: &EndpointId, _: &StartLimits) {}

    async fn release(&self, lease: Lease, cause: ReleaseCause) -> Result<Fenced, StoreError> {
        self.change(|state, now, notifications| {
            let is_leased = state.leased(lease, now).is_some();
            let event = JobEvent::Released { by: lease.claim, cause };
            fenced(is_leased && state.apply(lease.job, event, now, notifications))
        })
    }

    async fn host_lost(&self, lease: Lease, loss: HostLoss) -> Result<Fenced, StoreError> {
        self.change(|state, now, notifications| {
            let Some(job) = state.leased(lease, now) else { return Fenced::Stale };
            let is_last = job.losses.is_last(loss, BOUNDS);
            if is_last {
                job.error = Some(BOUNDS.error(loss));
            }
            let event = JobEvent::HostLost { loss, is_last };
            fenced(state.apply(lease.job, event, now, notifications))
        })
    }

    async fn note_host(&self, lease: Lease, host: HostProcess) -> Result<Fenced, StoreError> {
        self.change(|state, now, _| {
            let Some(job) = state.leased(lease, now) else { return Fenced::Stale };
            job.host = Some(host);
            Fenced::Applied
        })
    }

    fn left_attempts(&self) -> Result<Vec<LeftAttempt>, StoreError> {
        self.read(|state, _| state.left_attempts())
    }

    async fn durable(&self, _: JobId) -> Result<(), StoreError> {
        self.read(|_, _| ())
    }

    async fn cancel(
        &self,
        endpoint: &EndpointId,
        id: JobId,
    ) -> Result<Option<JobStatus>, StoreError> {
        self.change(|state, now, notifications| {
            state.live(Some(endpoint), id, now)?;
            state.apply(id, JobEvent::CancelRequested, now, notifications);
            state.jobs.get(&id)?.state.status()
        })
    }

    async fn retry(
        &self,
        endpoint: &EndpointId,
        id: JobId,
        waiting_jobs_max: Option<u32>,
    ) -> Result<RetryAnswer, StoreError> {
        let limit = queue_limit(waiting_jobs_max, self.queue_jobs_max);
        self.change(|state, now, notifications| {
            let job = state.live(Some(endpoint), id, now);
            let Some((job, status)) = job.and_then(|job| Some((job, job.state.status()?))) else {
                return Ok(RetryAnswer::NotFound);
            };
            if job.state.apply(JobEvent::RetryRequested).is_err() {
                return Ok(RetryAnswer::WrongStatus(status));
            }
            if state.waiting(endpoint) >= limit {
                return Err(StoreError::Full(StoreFull::Queue { limit }));
            }
            state.apply(id, JobEvent::RetryRequested, now, notifications);
            Ok(RetryAnswer::Queued)
        })?
    }

    async fn purge(&self, endpoint: &EndpointId) -> Result<u64, StoreError> {
        self.change(|state, now, notifications| {
            let ready = state.ready.range(all_of(endpoint)).map(|(_, id)| *id);
            let waiting: Vec<_> = ready.chain(state.delayed(endpoint)).collect();
            let removed = waiting
                .iter()
                .filter(|&&id| state.apply(id, JobEvent::Purged, now, notifications))
                .count();
            removed as u64
        })
    }

    async fn shorten_ttl(
        &self,
        endpoint: &EndpointId,
        id: JobId,
        ttl_ms: u64,
    ) -> Result<(), StoreError> {
        self.change(|state, now, notifications| {
            if state.live(Some(endpoint), id, now).is_some()
                && let Some(job) = state.jobs.get_mut(&id)
            {
                let ttl_at = now.plus_millis(ttl_ms);
                if ttl_at < job.ttl_at {
                    job.ttl_at = ttl_at;
                    job.has_shortened_ttl = true;
                }
                notifications.changed.push(id);
            }
        })
    }

    fn fire_due(&self) -> Result<Timestamp, StoreError> {
        self.change(|state, now, notifications| state.fire_due(now, notifications))
    }

    async fn expire(&self) -> Result<NextExpiry, StoreError> {
        self.change(|state, now, notifications| {
            let due: Vec<_> = state
                .jobs
                .iter()
                .filter(|(_, job)| job.purge_at() <= now)
                .map(|(id, job)| (*id, State::expiry_of(job, now)))
                .take(EXPIRE_JOBS_MAX)
                .collect();
            for (id, event) in due {
                state.apply(id, event, now, notifications);
            }
            state.submissions.expire(now);
            let next =
                state.jobs.values().map(ModelJob::purge_at).min().unwrap_or(Timestamp::NEVER);
            NextExpiry(next.min(state.submissions.next()))
        })
    }

    async fn trim_history(&self, endpoint: &EndpointId, max: HistoryMax) -> Result<(), StoreError> {
        self.change(|state, now, notifications| {
            let mut ended: Vec<_> = (state.jobs.iter())
                .filter(|(_, job)| job.new.endpoint == *endpoint && job.finished_at.is_some())
                .map(|(id, job)| (job.seq, *id, job.kept_bytes(), job.finished_at))
                .collect();
            ended.sort_unstable();
            let bytes = ended.iter().map(|(_, _, bytes, _)| bytes).sum();
            let mut excess = max.excess(ended.len() as u64, bytes).unwrap_or_default();
            for (_, id, bytes, ended_at) in ended {
                if !excess.is_none() && !HistoryMax::spares(ended_at, now) {
                    state.apply(id, JobEvent::RetentionElapsed, now, notifications);
                    excess.delete_job(bytes);
                }
            }
        })
    }

    async fn delete_ended(&self, endpoint: &EndpointId, ids: &[JobId]) -> Result<u64, StoreError> {
        self.change(|state, now, notifications| {
            let mut deleted = 0;
            for id in ids {
                let job = state.live(Some(endpoint), *id, now);
                let status = job.and_then(|job| job.state.status());
                if status.is_some_and(JobStatus::is_final) {
                    state.apply(*id, JobEvent::RetentionElapsed, now, notifications);
                    deleted += 1;
                }
            }
            deleted
        })
    }

    async fn job(
        &self,
        endpoint: &EndpointId,
        id: JobId,
    ) -> Result<Option<Box<JobRecord>>, StoreError> {
        self.read(|state, now| {
            let job = state.live(Some(endpoint), id, now)?;
            Some(Box::new(job.record(job.state.status()?)))
        })
    }

    async fn list(&self, endpoint: &EndpointId, query: &JobQuery) -> Result<JobPage, StoreError> {
        self.read(|state, now| {
            let before = query.after.map_or(u64::MAX, |Cursor(seq)| seq);
            let is_asked_for = |job: &&ModelJob| {
                job.new.endpoint == *endpoint && job.seq < before && job.purge_at() > now
            };
            let mut jobs: Vec<_> = state.jobs.values().filter(is_asked_for).collect();
            jobs.sort_by_key(|job| std::cmp::Reverse(job.seq));
            let mut page = JobPage::default();
            let mut last = None;
            for job in jobs {
                if page.jobs.len() >= query.count_max {
                    page.next = last.map(Cursor);
                    break;
                }
                last = Some(job.seq);
                let status = job.state.status();
                let is_wanted = query.status.is_none() || query.status == status;
                page.jobs.extend(status.filter(|_| is_wanted).map(|status| job.record(status)));
            }
            page
        })
    }

    fn end_position(&self) -> Result<Cursor, StoreError> {
        self.read(|state, _| Cursor(state.last_seq + 1))
    }

    async fn search(&self, search: &JobSearch) -> Result<JobPage, StoreError> {
        self.read(|state, now| {
            let before = search.after.map_or(u64::MAX, |Cursor(seq)| seq);
            let is_asked_for = |job: &&ModelJob| {
                search.endpoints.contains(&job.new.endpoint)
                    && job.seq < before
                    && job.purge_at() > now
            };
            let mut jobs: Vec<_> = state.jobs.values().filter(is_asked_for).collect();
            jobs.sort_by_key(|job| std::cmp::Reverse(job.seq));
            let (mut page, mut numbers) = (JobPage::default(), Vec::new());
            let mut last = None;
            for job in jobs {
                if page.jobs.len() >= search.count_max {
                    page.next = last.map(Cursor);
                    break;
                }
                last = Some(job.seq);
                let Some(status) = job.state.status() else { continue };
                let candidate = JobCandidate {
                    id: job.new.id,
                    status,
                    created_at: job.created_at,
                    tags: job.new.tags.as_ref(),
                    error: job.error.as_deref().map_or(ErrorText::None, ErrorText::Whole),
                };
                if search.filter.matches(&candidate) == Match::Yes {
                    page.jobs.push(job.record(status));
                    numbers.push(job.seq);
                }
            }
            page.positions = Positions::new(numbers, None);
            page
        })
    }

    async fn input(&self, id: JobId) -> Result<Option<Json>, StoreError> {
        self.read(|state, now| {
            let job = state.live(None, id, now)?;
            job.state.status()?.needs_input().then(|| job.new.input.clone())
        })
    }

    async fn output(&self, id: JobId) -> Result<Option<Json>, StoreError> {
        self.read(|state, now| state.live(None, id, now)?.output.clone())
    }

    async fn chunks(
        &self,
        id: JobId,
        from: u64,
        bytes_max: usize,
        count_max: usize,
    ) -> Result<ChunkPage, StoreError> {
        self.read(|state, now| {
            let mut page = ChunkPage { first: from, ..ChunkPage::default() };
            let Some(job) = state.live(None, id, now) else { return page };
            page.attempt = job.attempt();
            let mut bytes = 0;
            for chunk in job.chunks.iter().skip(usize::try_from(from).unwrap_or(usize::MAX)) {
                bytes += chunk.len();
                let is_full = bytes > bytes_max || page.chunks.len() >= count_max;
                if is_full && !page.chunks.is_empty() {
                    break;
                }
                page.chunks.push(chunk.clone());
            }
            page
        })
    }

    async fn mark_delivered(&self, id: JobId, next: StreamPosition) -> Result<(), StoreError> {
        self.change(|state, _, _| {
            if let Some(job) = state.jobs.get_mut(&id)
                && job.attempt() == next.attempt
            {
                let visible = job.chunks.len() as u64;
                job.chunks_delivered = job.chunks_delivered.max(next.index.min(visible));
            }
        })
    }

    async fn counts(&self, endpoint: &EndpointId) -> Result<JobCounts, StoreError> {
        self.read(|state, _| {
            let mut counts = state.lifetime.get(endpoint).copied().unwrap_or_default();
            for job in state.jobs.values().filter(|job| job.new.endpoint == *endpoint) {
                match job.state {
                    JobState::InQueue => counts.in_queue += 1,
                    JobState::InProgress { .. } => counts.in_progress += 1,
                    JobState::Completed
                    | JobState::Failed
                    | JobState::Cancelled
                    | JobState::TimedOut
                    | JobState::Removed => {}
                }
            }
            counts
        })
    }

    async fn demand(&self, endpoint: &EndpointId) -> Result<Demand, StoreError> {
        self.read(|state, _| state.demand(endpoint))
    }

    async fn delete_endpoint(&self, endpoint: &EndpointId) -> Result<(), StoreError> {
        self.change(|state, now, notifications| state.forget_endpoint(endpoint, now, notifications))
    }

    async fn await_deletion(&self, _: &EndpointId) -> Result<(), StoreError> {
        self.read(|_, _| ())
    }

    fn stats(&self) -> StoreStats {
        let state = self.state.lock();
        StoreStats {
            commits: state.operations,
            operations: state.operations,
            jobs: state.jobs.len() as u64,
            waiting_webhooks: state.outbox.waiting(),
            ..StoreStats::default()
        }
    }

    async fn close(&self) {
        self.state.lock().is_closed = true;
    }
}
