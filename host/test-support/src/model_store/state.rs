//! The state of a [`ModelStore`](super::ModelStore), and how events change it.
//!
//! All jobs are in one ordered map, so a change costs a few searches, and a list examines every
//! job.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use gristmill_core::billing::usage::{Hour, JobUsage, Metered, UsageKey, UsageSum};
use gristmill_core::catalog::CatalogEntry;
use gristmill_core::id::{EndpointId, JobActionId, JobId, OwnerId, TemplateId, WorkerId};
use gristmill_core::job::action::JobAction;
use gristmill_core::job::document::webhook_body;
use gristmill_core::job::loss::Losses;
use gristmill_core::job::note::ScheduleNumber;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{
    Chunk, ChunkPage, ClaimedJob, Demand, HostProcess, JobCounts, JobRecord, Lease, LeftAttempt,
    NewJob, PastAttempt, RequeueCause, StoreEpoch,
};
use gristmill_core::job::retry::{AfterFailure, FailedAttempt, JobRetry};
use gristmill_core::job::state::{Claim, Effect, JobEvent, JobState, JobStatus};
use gristmill_core::jobs::stream::OutputList;
use gristmill_core::limits::PAST_ATTEMPTS_MAX;
use gristmill_core::sharing::shares::Level;
use gristmill_core::store::{StoreError, TriedAgain};
use gristmill_core::time::Timestamp;
use gristmill_core::webhook::delivery::Delivery;

use super::outbox::Outbox;
use super::submissions::Submissions;

/// A chunk takes so many bytes on disk besides its text.
const CHUNK_HEADER_BYTES: usize = 16;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) is_closed: bool,
    pub(super) is_away: bool,
    /// How often the store was restarted.
    pub(super) restarts: u32,
    pub(super) jobs: BTreeMap<JobId, ModelJob>,
    /// Waiting jobs by rank, then by queue position.
    pub(super) ready: BTreeMap<(EndpointId, Rank, u64), JobId>,
    /// Changes of all queues.
    pub(super) queue_changes: u64,
    /// The number of the last change of each endpoint's queue.
    pub(super) queue_versions: BTreeMap<EndpointId, u64>,
    pub(super) last_queue_position: u64,
    pub(super) last_seq: u64,
    pub(super) submissions: Submissions,
    /// The counts over the life of each endpoint; those of waiting and running jobs are 0.
    pub(super) lifetime: BTreeMap<EndpointId, JobCounts>,
    pub(super) catalog: BTreeMap<(&'static str, String), CatalogEntry>,
    pub(super) operations: u64,
    pub(super) outbox: Outbox,
    pub(super) usage: BTreeMap<UsageKey, UsageSum>,
    pub(super) actions: BTreeMap<JobActionId, JobAction>,
    pub(super) schedules: BTreeMap<ScheduleNumber, String>,
}

/// Which jobs are claimed before others, whatever their positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// Calls wait for it. The deepest are first.
    Called(Reverse<Level>),
    Normal,
    Low,
}

#[derive(Debug)]
pub(super) struct ModelJob {
    pub(super) new: NewJob,
    /// Calls that wait for its end.
    pub(super) calls: u32,
    /// Grows from submission to submission.
    pub(super) seq: u64,
    pub(super) state: JobState,
    pub(super) queue_position: u64,
    /// It waits for its time, and is not in `ready`.
    pub(super) is_delayed: bool,
    pub(super) last_claim: Claim,
    pub(super) retries: u32,
    pub(super) losses: Losses,
    /// The process of another host that runs it.
    pub(super) host: Option<HostProcess>,
    pub(super) created_at: Timestamp,
    pub(super) queued_at: Timestamp,
    pub(super) ttl_at: Timestamp,
    /// Neither an end nor a retry moves `ttl_at` then.
    pub(super) has_shortened_ttl: bool,
    pub(super) started_at: Option<Timestamp>,
    pub(super) finished_at: Option<Timestamp>,
    pub(super) worker: Option<WorkerId>,
    pub(super) output: Option<Json>,
    pub(super) error: Option<String>,
    pub(super) progress: Option<Json>,
    pub(super) chunks: Vec<Chunk>,
    pub(super) chunks_delivered: u64,
    pub(super) past_attempts: Vec<PastAttempt>,
    pub(super) retry: JobRetry,
    pub(super) usage: JobUsage,
}

impl ModelJob {
    pub(super) fn purge_at(&self) -> Timestamp {
        match (self.finished_at, self.state.status()) {
            (Some(end), Some(status)) => self.new.retention.purge_at(status, end, self.ttl_at),
            _ => self.ttl_at,
        }
    }

    pub(super) fn attempt(&self) -> Claim {
        if self.started_at.is_none() { self.last_claim.next() } else { self.last_claim }
    }

    pub(super) fn result_bytes(&self) -> u64 {
        let chunks = self.chunks.iter().map(|chunk| chunk.len() + CHUNK_HEADER_BYTES);
        (chunks.sum::<usize>() + self.output.as_ref().map_or(0, Json::len)) as u64
    }

    /// The bytes that an ended job keeps.
    pub(super) fn kept_bytes(&self) -> u64 {
        let input = match self.state.status() {
            Some(JobStatus::Failed | JobStatus::TimedOut) => self.new.input.len() as u64,
            _ => 0,
        };
        self.result_bytes() + input
    }

    fn rank(&self) -> Rank {
        match self.new.policy.low_priority {
            _ if self.calls > 0 => Rank::Called(Reverse(self.level())),
            true => Rank::Low,
            false => Rank::Normal,
        }
    }

    fn level(&self) -> Level {
        match self.calls {
            0 => Level::CLIENT,
            _ => Level::called(self.new.id.submission()),
        }
    }

    pub(super) fn ready_key(&self) -> (EndpointId, Rank, u64) {
        (self.new.endpoint.clone(), self.rank(), self.queue_position)
    }

    pub(super) fn record(&self, status: JobStatus) -> JobRecord {
        JobRecord {
            id: self.new.id,
            endpoint: self.new.endpoint.clone(),
            status,
            created_at: self.created_at,
            queued_at: self.queued_at,
            started_at: self.started_at,
            finished_at: self.finished_at,
            worker: self.worker.clone(),
            retries: self.retries,
            error: self.error.clone(),
            blocked: None,
            is_exhausted: matches!(status, JobStatus::Failed | JobStatus::TimedOut)
                && self.retry.is_exhausted,
            progress: self.progress.clone(),
            attempt: self.attempt(),
            chunk_count: self.chunks.len() as u64,
            result_bytes: if status == JobStatus::Completed { self.result_bytes() } else { 0 },
            chunks_delivered: self.chunks_delivered,
            purge_at: self.purge_at(),
            past_attempts: self.past_attempts.clone(),
            usage: self.usage,
            tags: self.new.tags.clone(),
            trace: self.new.trace.clone(),
        }
    }

    /// Adds the last attempt to the earlier ones.
    fn end_attempt(&mut self, end: RequeueCause, now: Timestamp) {
        let Some(started_at) = self.started_at else { return };
        self.past_attempts.push(PastAttempt {
            queued_at: self.queued_at,
            started_at,
            ended_at: self.finished_at.unwrap_or(now),
            end,
            error: self.error.as_deref().map(|error| PastAttempt::beginning(error).to_owned()),
        });
        let dropped = self.past_attempts.len().saturating_sub(PAST_ATTEMPTS_MAX);
        self.past_attempts.drain(..dropped);
    }
}

/// Notifications to send once the lock is released.
#[derive(Debug, Default)]
pub(super) struct Notifications {
    pub(super) changed: Vec<JobId>,
    pub(super) queued: Option<JobId>,
    pub(super) has_deliveries: bool,
    /// The endpoints whose queues have changed.
    pub(super) queues: BTreeSet<EndpointId>,
}

/// The queue positions of an endpoint's jobs that wait.
pub(super) fn all_of(endpoint: &EndpointId) -> RangeInclusive<(EndpointId, Rank, u64)> {
    let deepest = Level::all().last().expect("there are levels");
    (endpoint.clone(), Rank::Called(Reverse(deepest)), 0)..=(endpoint.clone(), Rank::Low, u64::MAX)
}

impl State {
    pub(super) fn check_available(&self) -> Result<(), StoreError> {
        match (self.is_closed, self.is_away) {
            (true, _) => Err(StoreError::Closed),
            (false, true) => Err(StoreError::Unavailable),
            (false, false) => Ok(()),
        }
    }

    /// Counts a change of an endpoint's queue.
    pub(super) fn change_queue(
        &mut self,
        endpoint: &EndpointId,
        notifications: &mut Notifications,
    ) {
        self.queue_changes += 1;
        self.queue_versions.insert(endpoint.clone(), self.queue_changes);
        notifications.queues.insert(endpoint.clone());
    }

    /// The jobs that wait on an endpoint.
    pub(super) fn demand(&self, endpoint: &EndpointId) -> Demand {
        let waits = |job: &&ModelJob| {
            job.new.endpoint == *endpoint && job.state == JobState::InQueue && !job.is_delayed
        };
        let waiting = || self.jobs.values().filter(waits);
        let normal = || waiting().filter(|job| job.rank() != Rank::Low);
        let first = normal().min_by_key(|job| job.ready_key());
        Demand {
            version: self.queue_versions.get(endpoint).copied().unwrap_or_default(),
            jobs: normal().count() as u64,
            since: first.map(|job| job.queued_at),
            claimable: waiting().count() as u64,
            called: waiting().filter(|job| job.calls > 0).count() as u64,
            level: waiting().map(ModelJob::level).max().unwrap_or_default(),
        }
    }

    /// Sets the number of calls that wait for a job.
    pub(super) fn set_calls(
        &mut self,
        id: JobId,
        calls: impl FnOnce(u32) -> u32,
        notifications: &mut Notifications,
    ) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.state.status().is_none_or(JobStatus::is_final) {
            return;
        }
        let key_before = job.ready_key();
        job.calls = calls(job.calls);
        let (key, endpoint) = (job.ready_key(), job.new.endpoint.clone());
        if key != key_before && self.ready.remove(&key_before).is_some() {
            self.ready.insert(key, id);
            self.change_queue(&endpoint, notifications);
        }
    }

    /// How many jobs wait on an endpoint.
    pub(super) fn waiting(&self, endpoint: &EndpointId) -> usize {
        self.ready.range(all_of(endpoint)).count() + self.delayed(endpoint).len()
    }

    /// The jobs of an endpoint that wait for their time.
    pub(super) fn delayed(&self, endpoint: &EndpointId) -> Vec<JobId> {
        let delayed = self.jobs.values().filter(|job| job.is_delayed);
        delayed.filter(|job| job.new.endpoint == *endpoint).map(|job| job.new.id).collect()
    }

    /// Adds the jobs to their queues whose time has come. Returns the time of the next one.
    pub(super) fn fire_due(
        &mut self,
        now: Timestamp,
        notifications: &mut Notifications,
    ) -> Timestamp {
        let mut fired = Vec::new();
        for (id, job) in self.jobs.iter_mut().filter(|(_, job)| job.is_delayed) {
            if job.queued_at <= now {
                job.is_delayed = false;
                self.ready.insert(job.ready_key(), *id);
                fired.push(job.new.endpoint.clone());
            }
        }
        for endpoint in fired {
            self.change_queue(&endpoint, notifications);
        }
        let delayed = self.jobs.values().filter(|job| job.is_delayed);
        delayed.map(|job| job.queued_at).min().unwrap_or(Timestamp::NEVER)
    }

    /// The job, unless it is deleted, due, or another endpoint's.
    pub(super) fn live(
        &self,
        endpoint: Option<&EndpointId>,
        id: JobId,
        now: Timestamp,
    ) -> Option<&ModelJob> {
        let job = self.jobs.get(&id)?;
        let is_asked_for = endpoint.is_none_or(|endpoint| *endpoint == job.new.endpoint);
        (is_asked_for && job.purge_at() > now).then_some(job)
    }

    /// The epoch, like that of a durable store.
    fn epoch(&self) -> StoreEpoch {
        StoreEpoch(1 + self.restarts)
    }

    /// The running job that the lease names.
    pub(super) fn leased(&mut self, lease: Lease, now: Timestamp) -> Option<&mut ModelJob> {
        if lease.epoch != self.epoch() {
            return None;
        }
        self.live(None, lease.job, now)?;
        let job = self.jobs.get_mut(&lease.job)?;
        (job.state == JobState::InProgress { claim: lease.claim }).then_some(job)
    }

    /// Applies an event and carries out its effects. False when the event does not apply.
    pub(super) fn apply(
        &mut self,
        id: JobId,
        event: JobEvent,
        now: Timestamp,
        notifications: &mut Notifications,
    ) -> bool {
        let Some(job) = self.jobs.get_mut(&id) else { return false };
        let ended = RequeueCause::of(event, job.state.status());
        let waited = job.state == JobState::InQueue;
        let Ok((state, effects)) = job.state.apply(event) else { return false };
        self.operations += 1;
        job.state = state;
        if let JobEvent::Claimed { claim } = event {
            self.ready.remove(&job.ready_key());
            job.last_claim = claim;
            job.started_at = Some(now);
        } else {
            job.progress = None;
            job.host = None;
        }
        if let JobEvent::HostLost { loss, .. } = event {
            job.losses = job.losses.and(loss);
        }
        let mut queued_at = now;
        if let JobEvent::AttemptFailed { run_at, .. } = event {
            queued_at = run_at;
            job.retry.failures += 1;
        }
        if event == JobEvent::RetryRequested {
            self.last_queue_position += 1;
            job.queue_position = self.last_queue_position;
            job.losses = Losses::default();
            job.retry = JobRetry { rule: job.retry.rule, ..JobRetry::default() };
            if !job.has_shortened_ttl {
                let ttl_ms = job.new.policy.ttl_ms;
                job.ttl_at = job.new.retention.ttl_after_retry(ttl_ms, job.ttl_at, now);
            }
        }
        let lifetime = self.lifetime.entry(job.new.endpoint.clone()).or_default();
        let mut is_gone = false;
        for effect in effects {
            match effect {
                Effect::Enqueue => {
                    job.queued_at = queued_at;
                    job.is_delayed = queued_at > now;
                    if !job.is_delayed {
                        self.ready.insert(job.ready_key(), id);
                    }
                    notifications.queued = Some(id);
                }
                Effect::Dequeue => {
                    job.is_delayed = false;
                    self.ready.remove(&job.ready_key());
                }
                Effect::StartRetention => {
                    job.finished_at = Some(now);
                    if let Some(status) = state.status()
                        && !job.has_shortened_ttl
                    {
                        job.ttl_at = job.new.retention.ttl_after_end(status, job.ttl_at, now);
                    }
                }
                Effect::ClearResult => {
                    if let Some(end) = ended {
                        job.end_attempt(end, now);
                    }
                    job.started_at = None;
                    job.finished_at = None;
                    job.worker = None;
                    job.output = None;
                    job.error = None;
                    job.chunks.clear();
                    job.chunks_delivered = 0;
                }
                Effect::Delete => is_gone = true,
                Effect::CountCompleted => lifetime.completed += 1,
                Effect::CountFailed => lifetime.failed += 1,
                Effect::CountRetried => {
                    lifetime.retried += 1;
                    job.retries += 1;
                }
                // The attempt sees that its lease is stale.
                Effect::StopAttempt => {}
                Effect::SendWebhook => {
                    notifications.has_deliveries |= deliver(job, &mut self.outbox);
                }
                Effect::WakeWaiters => notifications.changed.push(id),
            }
        }
        if state.status().is_none_or(JobStatus::is_final) {
            job.calls = 0;
        }
        let endpoint = (waited != (state == JobState::InQueue)).then(|| job.new.endpoint.clone());
        if is_gone {
            self.jobs.remove(&id);
        }
        if let Some(endpoint) = endpoint {
            self.change_queue(&endpoint, notifications);
        }
        true
    }

    /// Ends an attempt that failed.
    pub(super) fn try_again(
        &mut self,
        lease: Lease,
        failed: &FailedAttempt,
        metered: &Metered,
        now: Timestamp,
        notifications: &mut Notifications,
    ) -> TriedAgain {
        let Some(job) = self.leased(lease, now) else { return TriedAgain::Stale };
        let after = failed.decide(job.retry, job.purge_at(), now);
        let AfterFailure::RunsAgain(run_at) = after else {
            job.retry.is_exhausted = after == AfterFailure::EndsExhausted;
            return TriedAgain::Ends;
        };
        let used = JobUsage::of(metered, now.millis_since(job.started_at.unwrap_or(now)));
        job.usage.add(&used);
        job.error = Some(failed.error.clone());
        let (endpoint, owner) = (job.new.endpoint.clone(), job.new.owner.clone());
        let event = JobEvent::AttemptFailed { by: lease.claim, run_at };
        self.apply(lease.job, event, now, notifications);
        self.bill(endpoint, metered.template.clone(), owner, &used.billed, now);
        TriedAgain::Queued
    }

    /// Adds the usage of an attempt to its job, which was cancelled while it ran.
    pub(super) fn add_usage_of_cancelled(&mut self, lease: Lease, used: &JobUsage) {
        // The attempts of an earlier life of the host have ended with it.
        let is_of_this_life = lease.epoch == self.epoch();
        let job = self.jobs.get_mut(&lease.job).filter(|_| is_of_this_life);
        let job = job.filter(|job| job.state.status() == Some(JobStatus::Cancelled));
        if let Some(job) = job.filter(|job| job.last_claim == lease.claim) {
            job.usage.add(used);
        }
    }

    pub(super) fn bill(
        &mut self,
        endpoint: EndpointId,
        template: TemplateId,
        owner: OwnerId,
        used: &UsageSum,
        now: Timestamp,
    ) {
        let key = UsageKey { hour: Hour::of(now), endpoint, template, owner };
        self.usage.entry(key).or_default().add(used);
    }

    /// Which of a job's times has passed.
    pub(super) fn expiry_of(job: &ModelJob, now: Timestamp) -> JobEvent {
        if job.ttl_at <= now { JobEvent::TtlElapsed } else { JobEvent::RetentionElapsed }
    }

    /// Takes the first waiting job of the endpoint that is not due for deletion; due ones are
    /// deleted.
    pub(super) fn claim_next(
        &mut self,
        endpoint: &EndpointId,
        worker: &WorkerId,
        now: Timestamp,
        notifications: &mut Notifications,
    ) -> Option<ClaimedJob> {
        let epoch = self.epoch();
        loop {
            let (_, &id) = self.ready.range(all_of(endpoint)).next()?;
            let job = self.jobs.get_mut(&id)?;
            if job.purge_at() <= now {
                self.apply(id, JobEvent::TtlElapsed, now, notifications);
                continue;
            }
            let claim = job.last_claim.next();
            job.worker = Some(worker.clone());
            let mut claimed = ClaimedJob {
                lease: Lease { job: id, claim, epoch },
                worker: worker.clone(),
                owner: job.new.owner.clone(),
                attempt: claim.0,
                input: job.new.input.clone(),
                s3_config: job.new.s3_config.clone(),
                queued_at: job.queued_at,
                execution_timeout_ms: job.new.policy.execution_timeout_ms,
                ttl_at: job.ttl_at,
                trace: job.new.trace.clone(),
                level: job.level(),
                left: Demand::default(),
            };
            self.apply(id, JobEvent::Claimed { claim }, now, notifications);
            claimed.left = self.demand(endpoint);
            notifications.queues.remove(endpoint);
            return Some(claimed);
        }
    }

    /// The attempts of running jobs that other hosts have had since before this start.
    pub(super) fn left_attempts(&self) -> Vec<LeftAttempt> {
        let left = |job: &ModelJob| {
            let JobState::InProgress { claim } = job.state else { return None };
            Some(LeftAttempt {
                endpoint: job.new.endpoint.clone(),
                lease: Lease { job: job.new.id, claim, epoch: self.epoch() },
                worker: job.worker.clone()?,
                host: job.host?,
                owner: job.new.owner.clone(),
                attempt: claim.0,
                started_at: job.started_at?,
                execution_timeout_ms: job.new.policy.execution_timeout_ms,
                ttl_at: job.ttl_at,
                trace: job.new.trace.clone(),
                input_bytes: job.new.input.len() as u64,
                chunks: job.chunks.len() as u64,
                chunk_bytes: job.chunks.iter().map(|chunk| chunk.len() as u64).sum(),
            })
        };
        self.jobs.values().filter_map(left).collect()
    }

    /// Deletes all data of an endpoint, except its usage.
    pub(super) fn forget_endpoint(
        &mut self,
        endpoint: &EndpointId,
        now: Timestamp,
        notifications: &mut Notifications,
    ) {
        let of_it = self.jobs.values().filter(|job| job.new.endpoint == *endpoint);
        let ids: Vec<_> = of_it.map(|job| job.new.id).collect();
        for id in ids {
            self.apply(id, JobEvent::TtlElapsed, now, notifications);
        }
        self.lifetime.remove(endpoint);
        self.submissions.forget_endpoint(endpoint);
        self.outbox.forget(endpoint);
    }
}

/// Adds the delivery of a job that has just ended. False if it has no webhook.
fn deliver(job: &ModelJob, outbox: &mut Outbox) -> bool {
    let (Some(url), Some(status)) = (job.new.webhook.clone(), job.state.status()) else {
        return false;
    };
    let record = job.record(status);
    let output = match &job.output {
        Some(value) if value.is_null() && !job.chunks.is_empty() => {
            let mut list = OutputList::default();
            list.add(ChunkPage { chunks: job.chunks.clone(), ..ChunkPage::default() });
            list.finish()
        }
        other => other.clone(),
    };
    let body = webhook_body(&record, output.as_ref(), &job.new.input, &url);
    let bytes = body.len() as u64;
    outbox.add(Json::from_stored(body), |id| Delivery::pending(id, &record, url, bytes));
    true
}
