//! Decisions: an event is applied to a job, and its effects are carried out in memory. Changes for
//! the disk are added to the job's pending change.

use gristmill_core::billing::usage::{JobUsage, Metered};
use gristmill_core::id::{EndpointId, JobId, OwnerId, TemplateId};
use gristmill_core::job::loss::Losses;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{
    CallStep, Chunk, HostProcess, Lease, Outcome, PastAttempt, RequeueCause, TIMED_OUT_ERROR,
};
use gristmill_core::job::retry::{AfterFailure, FailedAttempt, JobRetry};
use gristmill_core::job::state::{
    Effect, IllegalTransition, JobEvent, JobState, JobStatus, Verdict,
};
use gristmill_core::sharing::disk_share::DiskAccount;
use gristmill_core::signals::{EarlyEnd, EarlyEndCause};
use gristmill_core::store::TriedAgain;
use gristmill_core::time::Timestamp;

use crate::failure;
use crate::format::pages::stored_bytes;
use crate::state::backlog::Ack;
use crate::state::backlog::{Backlog, Urgency};
use crate::state::calendar::Calendar;
use crate::state::disk_usage::{DiskUsage, ResultsFull};
use crate::state::index::{Endpoint, Index, QueuedNotice};
use crate::state::job::{Change, Job, Lifetime, Pending};
use crate::state::owners::Owners;
use crate::state::room::Room;
use crate::state::slab::JobKey;

/// Most notifications of jobs without a result that wait for the end of a change; further ones are
/// not made.
const EARLY_ENDS_MAX: usize = 10_000;

impl Index {
    /// Applies an event. This is the only place where a job's state changes.
    ///
    /// # Errors
    /// [`IllegalTransition`] when the event does not apply; then nothing has changed.
    pub(crate) fn decide(
        &mut self,
        key: JobKey,
        event: JobEvent,
        now: Timestamp,
    ) -> Result<Option<QueuedNotice>, IllegalTransition> {
        let removed = IllegalTransition { state: JobState::Removed.name(), event: event.name() };
        let Some(job) = self.jobs.get_mut(key) else { return Err(removed) };
        let Some(endpoint) = self.endpoints.get_mut(&job.endpoint) else { return Err(removed) };
        let (state, effects) = job.row.state().apply(event)?;
        if effects.is_empty() {
            return Ok(None);
        }

        let purge_at_before = job.purge_at();
        let usage_before = DiskUsage::of(job);
        let is_waiting = |job: &Job| job.row.status == Some(JobStatus::InQueue);
        let is_running = |job: &Job| job.row.status == Some(JobStatus::InProgress);
        let (waited, ran) = (is_waiting(job), is_running(job));
        // A claim is written no later than its result; no caller waits for the claim alone. A job
        // whose time is over is handled by `expire`, since the deletion of an endpoint has the same
        // event.
        let (urgency, early_end_cause) = match event {
            JobEvent::Claimed { .. } => (Urgency::Deferred, None),
            JobEvent::CancelRequested => (Urgency::Now, Some(EarlyEndCause::Cancelled)),
            JobEvent::Purged => (Urgency::Now, Some(EarlyEndCause::Purged)),
            JobEvent::Finished { .. }
            | JobEvent::AttemptFailed { .. }
            | JobEvent::Released { .. }
            | JobEvent::HostLost { .. }
            | JobEvent::RetryRequested
            | JobEvent::TtlElapsed
            | JobEvent::RetentionElapsed => (Urgency::Now, None),
        };
        let is_traced = job.trace().is_some_and(|trace| trace.is_sampled);
        if let Some(cause) = early_end_cause.filter(|_| waited && is_traced) {
            push(&mut self.early_ends, early_end(job, &endpoint.name, cause, now));
        }
        let ended = RequeueCause::of(event, job.row.status);
        let pending = touch(job, key, &mut self.backlog, urgency);
        pending.change.operations += 1;
        job.row.status = state.status();
        match event {
            JobEvent::Claimed { claim } => {
                let (rank, position) = ((job.rank(), job.flow()), job.row.queue_position);
                let holds = endpoint.ready.take(rank, position, key, now);
                endpoint.hold_tags(holds, job, &mut self.owners);
                job.row.last_claim = claim;
                job.row.attempt_mut().started_at = Some(now);
            }
            JobEvent::HostLost { loss, .. } => job.row.set_losses(job.row.losses().and(loss)),
            JobEvent::RetryRequested => {
                // A client retries the job: it waits like a new one, and neither crashes
                // of the host nor failed attempts count any more.
                job.row.set_losses(Losses::default());
                let rule = job.row.retry().rule;
                job.row.set_retry(JobRetry { rule, ..JobRetry::default() });
                if job.has_movable_ttl() {
                    job.row.ttl_at = job.times.ttl_after_retry(job.row.ttl_at, now);
                }
                job.row.queue_position = self.positions.next(job.priority(), now);
            }
            JobEvent::AttemptFailed { .. } => {
                let retry = job.row.retry();
                let failures = retry.failures.saturating_add(1);
                job.row.set_retry(JobRetry { failures, ..retry });
            }
            JobEvent::Finished { .. }
            | JobEvent::Released { .. }
            | JobEvent::CancelRequested
            | JobEvent::Purged
            | JobEvent::TtlElapsed
            | JobEvent::RetentionElapsed => {}
        }
        if state.status() != Some(JobStatus::InProgress) {
            job.row.forget_host();
        }
        // Progress belongs to a running attempt, and each event starts or ends one.
        if let Some(rare) = &mut job.rare {
            rare.progress = None;
        }

        let queued_at = match event {
            JobEvent::AttemptFailed { run_at, .. } => run_at,
            _ => now,
        };
        let times = EventTimes { now, queued_at };
        if ran && !is_running(job) {
            let released = endpoint.ready.ended(job.flow(), now);
            released.iter().for_each(|(owner, tags)| self.owners.release_tags(*owner, tags));
        }
        let queues = (&mut *endpoint, &mut self.due, &mut self.owners);
        let notice = carry_out(effects, job, key, queues, ended, times);
        if let Some(rare) = &mut job.rare
            && state.status().is_none_or(JobStatus::is_final)
        {
            rare.calls = 0;
        }
        let disk_usage = DiskUsage::of(job);
        endpoint.disk_usage.remove(usage_before);
        endpoint.disk_usage.add(disk_usage);
        self.owners.account(job.owner).replace(usage_before.bytes(), disk_usage.bytes());
        self.owners.recount_waiting(job.owner, waited, is_waiting(job));
        let has_limits = endpoint.ready.has_limits();
        if waited != is_waiting(job) || (ran && has_limits) {
            self.queue_changes.add(job.endpoint, &mut endpoint.queue_version);
        }
        let endpoint = job.endpoint;
        let purge_at = (!effects.contains(&Effect::Delete)).then(|| job.purge_at());
        if purge_at != Some(purge_at_before) {
            self.expiry.remove(purge_at_before, key);
            if let Some(at) = purge_at {
                self.expiry.insert(at, key);
            }
        }
        if has_limits {
            self.plan_opening(endpoint);
        }
        Ok(notice)
    }

    /// Counts a call that waits for a job, or waits no more. A job that waits changes its place in
    /// the queue.
    pub(crate) fn note_call(&mut self, id: JobId, step: CallStep, now: Timestamp) {
        let Some(key) = self.key_of(id) else { return };
        let Some(job) = self.jobs.get_mut(key) else { return };
        if job.row.status.is_none_or(JobStatus::is_final) {
            return;
        }
        let rank_before = job.rank();
        let calls = &mut job.rare_mut().calls;
        *calls = step.count(*calls);
        let rank = job.rank();
        if rank != rank_before
            && job.row.status == Some(JobStatus::InQueue)
            && !job.marks.is_delayed()
            && let Some(endpoint) = self.endpoints.get_mut(&job.endpoint)
        {
            let position = job.row.queue_position;
            endpoint.ready.remove(rank_before, position, key);
            let holds = endpoint.ready.insert(rank, position, key, now);
            endpoint.hold_tags(holds, job, &mut self.owners);
            self.queue_changes.add(job.endpoint, &mut endpoint.queue_version);
        }
    }

    /// Removes a job whose time is over.
    pub(crate) fn expire(&mut self, key: JobKey, now: Timestamp) {
        let job = self.jobs.get(key);
        let is_ttl_over = job.is_some_and(|job| job.row.ttl_at <= now);
        let without_result = |job: &&Job| job.row.status.is_some_and(|status| !status.is_final());
        if let Some(job) = job.filter(without_result)
            && let Some(endpoint) = self.endpoints.get(&job.endpoint)
        {
            push(&mut self.early_ends, early_end(job, &endpoint.name, EarlyEndCause::Expired, now));
        }
        let event = if is_ttl_over { JobEvent::TtlElapsed } else { JobEvent::RetentionElapsed };
        let expired = self.decide(key, event, now);
        debug_assert!(expired.is_ok(), "a job in the expiry can expire");
    }

    /// The running job that the lease names, unless its ttl is over.
    pub(crate) fn leased(&mut self, lease: Lease, now: Timestamp) -> Option<(JobKey, &mut Job)> {
        let is_of_epoch = lease.epoch == self.epoch;
        let key = self.key_of(lease.job)?;
        let job = self.jobs.get_mut(key)?;
        let is_claimed = job.row.state() == JobState::InProgress { claim: lease.claim };
        (is_of_epoch && is_claimed && job.purge_at() > now).then_some((key, job))
    }

    /// The owner and the endpoint of a running job.
    pub(crate) fn owner_of(
        &mut self,
        lease: Lease,
        now: Timestamp,
    ) -> Option<(&OwnerId, &EndpointId)> {
        let (owner, endpoint) =
            self.leased(lease, now).map(|(_, job)| (job.owner, job.endpoint))?;
        Some((self.owners.name(owner), &self.endpoints.get(&endpoint)?.name))
    }

    /// Approximate bytes of the running job's webhook without its output; 0 if it has no webhook.
    pub(crate) fn webhook_bytes(&mut self, lease: Lease, now: Timestamp) -> usize {
        self.leased(lease, now).map_or(0, |(_, job)| job.webhook_bytes())
    }

    /// Ends an attempt that failed. If the job runs again, the attempt's usage is billed.
    pub(crate) fn try_again(
        &mut self,
        lease: Lease,
        failed: &FailedAttempt,
        metered: &Metered,
        now: Timestamp,
    ) -> (TriedAgain, Option<QueuedNotice>) {
        let stale = (TriedAgain::Stale, None);
        let Some((key, _)) = self.leased(lease, now) else { return stale };
        let Self { jobs, backlog, .. } = self;
        let Some(job) = jobs.get_mut(key) else { return stale };
        let retry = job.row.retry();
        let after = failed.decide(retry, job.purge_at(), now);
        let AfterFailure::RunsAgain(run_at) = after else {
            let is_exhausted = after == AfterFailure::EndsExhausted;
            if is_exhausted != retry.is_exhausted {
                touch(job, key, backlog, Urgency::Deferred).change.operations += 1;
                job.row.set_retry(JobRetry { is_exhausted, ..retry });
            }
            return (TriedAgain::Ends, None);
        };
        let used = used_by(job, metered, now);
        touch(job, key, backlog, Urgency::Now);
        job.row.attempt_mut().error = Some(PastAttempt::beginning(&failed.error).to_owned());
        let event = JobEvent::AttemptFailed { by: lease.claim, run_at };
        let Ok(notice) = self.decide(key, event, now) else { return stale };
        if let Some(job) = self.jobs.get_mut(key) {
            bill(job, metered.template.clone(), &used);
        }
        (TriedAgain::Queued, notice)
    }

    /// Ends an attempt with its result, and bills its usage; `None` when the lease is not the
    /// current one.
    pub(crate) fn finish(
        &mut self,
        lease: Lease,
        end: End,
        metered: Option<Metered>,
        room: Room,
        now: Timestamp,
    ) -> Option<Finished> {
        let (key, job) = self.leased(lease, now)?;
        let endpoint = job.endpoint;
        let event = JobEvent::Finished { by: lease.claim, verdict: end.verdict };
        self.decide(key, event, now).ok()?;
        let job = self.jobs.get_mut(key)?;
        if let Some(metered) = metered {
            let used = used_by(job, &metered, now);
            bill(job, metered.template, &used);
        }
        let change = &mut job.pending.as_mut()?.change;
        change.room.add(room);
        let output_bytes = end.output.as_ref().map_or(0, |output| output.len() as u64);
        let ack = change.submission.as_ref();
        let is_sent = |output: &Json| ack.is_some_and(|ack| ack.takes(&job.row, output));
        let unsent = end.output.as_ref().filter(|output| !is_sent(output)).cloned();
        change.output = end.output;
        let attempt = job.row.attempt_mut();
        attempt.result_bytes += output_bytes;
        if let Some(endpoint) = self.endpoints.get_mut(&endpoint) {
            endpoint.disk_usage.add_result_of_ended(output_bytes);
        }
        self.owners.account(job.owner).add(output_bytes);
        attempt.error = end.error;
        Some(Finished { seq: job.seq, unsent })
    }

    /// Adds the usage of an attempt to its job, which was cancelled while it ran.
    pub(crate) fn add_usage_of_cancelled(&mut self, lease: Lease, used: &JobUsage) {
        let Some(key) = self.key_of(lease.job).filter(|_| lease.epoch == self.epoch) else {
            return;
        };
        let Some(job) = self.jobs.get_mut(key) else { return };
        let is_cancelled = job.row.status == Some(JobStatus::Cancelled);
        if !is_cancelled || job.row.last_claim != lease.claim {
            return;
        }
        touch(job, key, &mut self.backlog, Urgency::Deferred).change.operations += 1;
        let attempt = job.row.attempt_mut();
        attempt.past = attempt.past.with_usage(used);
    }

    /// Checks whether the endpoint and the owner of the running job may keep this many more bytes
    /// of results.
    ///
    /// # Errors
    /// The bound that is reached.
    pub(crate) fn check_results(
        &mut self,
        lease: Lease,
        bytes: usize,
        result_bytes_max: u64,
        now: Timestamp,
    ) -> Result<(), ResultsFull> {
        let Some((_, job)) = self.leased(lease, now) else { return Ok(()) };
        let (endpoint, owner) = (job.endpoint, job.owner);
        let Some(endpoint) = self.endpoints.get(&endpoint) else { return Ok(()) };
        check_kept(endpoint, self.owners.account(owner), bytes as u64, result_bytes_max)
    }

    /// Adds chunks to the stream of a running job. False when the lease is not the current one.
    ///
    /// # Errors
    /// Like [`check_results`](Self::check_results); nothing was added then.
    pub(crate) fn append_chunks(
        &mut self,
        lease: Lease,
        chunks: Vec<Chunk>,
        room: Room,
        result_bytes_max: u64,
        now: Timestamp,
    ) -> Result<bool, ResultsFull> {
        let Some((key, job)) = self.leased(lease, now) else { return Ok(false) };
        let (endpoint, owner) = (job.endpoint, job.owner);
        let Self { jobs, endpoints, owners, backlog, .. } = self;
        let (Some(job), Some(endpoint)) = (jobs.get_mut(key), endpoints.get_mut(&endpoint)) else {
            return Ok(false);
        };
        let bytes = stored_bytes(&chunks) as u64;
        let account = owners.account(owner);
        check_kept(endpoint, account, bytes, result_bytes_max)?;
        let first = job.row.chunk_count();
        let pending = touch(job, key, backlog, Urgency::Now);
        let change = &mut pending.change;
        if change.chunks.is_empty() {
            change.chunks_first = first;
        }
        change.operations += 1;
        change.room.add(room);
        let count = chunks.len() as u64;
        change.chunks.extend(chunks);
        let attempt = job.row.attempt_mut();
        attempt.chunk_count = first + count;
        attempt.result_bytes += bytes;
        endpoint.disk_usage.kept += bytes;
        account.add(bytes);
        Ok(true)
    }

    /// Replaces the progress value of a running job. False when the lease is not the current one.
    pub(crate) fn set_progress(&mut self, lease: Lease, value: Json, now: Timestamp) -> bool {
        let Some((_, job)) = self.leased(lease, now) else { return false };
        job.rare_mut().progress = Some(value);
        true
    }

    /// Notes the process of another host that runs the attempt. Returns whether the lease is the
    /// current one.
    pub(crate) fn note_host(&mut self, lease: Lease, host: HostProcess, now: Timestamp) -> bool {
        let Some(key) = self.leased(lease, now).map(|(key, _)| key) else { return false };
        let Some(job) = self.jobs.get_mut(key) else { return false };
        let pending = touch(job, key, &mut self.backlog, Urgency::Deferred);
        pending.change.operations += 1;
        job.row.attempt_mut().host = Some(Box::new(host));
        true
    }

    /// Deletes the job at `ttl_at`, unless it is deleted earlier anyway. A chosen retention does
    /// not keep it longer.
    pub(crate) fn shorten_ttl(&mut self, key: JobKey, ttl_at: Timestamp, ack: Ack) {
        let Some(job) = self.jobs.get_mut(key) else { return };
        // The key of a job whose removal is decided belongs to another job once that is written.
        if job.row.status.is_some() && ttl_at < job.row.ttl_at {
            self.expiry.remove(job.purge_at(), key);
            let pending = touch(job, key, &mut self.backlog, Urgency::Now);
            pending.change.operations += 1;
            job.shorten_ttl(ttl_at);
            self.expiry.insert(job.purge_at(), key);
        }
        self.ack_job(key, ack);
    }
}

/// Checks whether the endpoint and the owner may keep `bytes` more of results.
fn check_kept(
    endpoint: &Endpoint,
    owner: &DiskAccount,
    bytes: u64,
    result_bytes_max: u64,
) -> Result<(), ResultsFull> {
    if endpoint.disk_usage.kept.saturating_add(bytes) > result_bytes_max {
        return Err(ResultsFull::Endpoint { mib: result_bytes_max >> 20 });
    }
    if !owner.admits_results(bytes) {
        return Err(ResultsFull::Owner { held_mib: owner.bytes() >> 20 });
    }
    Ok(())
}

/// A job after the end of its attempt.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The number of its rows.
    pub(crate) seq: u64,
    /// Its output, unless the caller of the submission is to get it with the acknowledgement, and
    /// will not read it.
    pub(crate) unsent: Option<Json>,
}

/// An attempt's end, as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct End {
    verdict: Verdict,
    /// The part of the error that stays in memory.
    error: Option<String>,
    /// The handler's output, or the stored progress of a FAILED job: see [`failure`].
    pub(crate) output: Option<Json>,
}

impl End {
    /// This end without its results, which may not be kept: a long error is cut, and any other
    /// result becomes a FAILED job with an error that says why.
    pub(crate) fn without_results(self, why: ResultsFull) -> Self {
        if self.error.is_some() {
            return Self { output: None, ..self };
        }
        Outcome::Failed(why.to_string()).into()
    }

    /// Size of its results in bytes.
    pub(crate) fn len(&self) -> usize {
        self.output.as_ref().map_or(0, Json::len) + self.error.as_ref().map_or(0, String::len)
    }
}

impl From<Outcome> for End {
    fn from(outcome: Outcome) -> Self {
        let (verdict, partial) = (outcome.verdict(), outcome.partial_output().cloned());
        let (error, output) = match outcome {
            Outcome::Completed(output) => (None, Some(output)),
            Outcome::Failed(error) | Outcome::FailedWith { error, .. } => {
                let (kept, stored) = failure::divide(error, partial);
                (Some(kept), stored)
            }
            Outcome::TimedOut => (Some(TIMED_OUT_ERROR.to_owned()), None),
        };
        Self { verdict, error, output }
    }
}

/// The time of an event, and that from which a job that is queued by it may run.
#[derive(Debug, Clone, Copy)]
struct EventTimes {
    now: Timestamp,
    queued_at: Timestamp,
}

/// Carries out the effects of a transition in memory.
fn carry_out(
    effects: &[Effect],
    job: &mut Job,
    key: JobKey,
    (endpoint, due, owners): (&mut Endpoint, &mut Calendar, &mut Owners),
    ended: Option<RequeueCause>,
    EventTimes { now, queued_at }: EventTimes,
) -> Option<QueuedNotice> {
    let mut notice = None;
    for effect in effects {
        match effect {
            Effect::Enqueue => {
                job.row.attempt_mut().queued_at = Some(queued_at);
                endpoint.add_waiting(job, key, (due, owners), now);
                notice = Some(QueuedNotice { endpoint: endpoint.name.clone(), job: job.id });
            }
            Effect::Dequeue => endpoint.remove_waiting(job, key, due),
            Effect::StartRetention => {
                job.row.attempt_mut().finished_at = Some(now);
                if let Some(status) = job.row.status
                    && job.has_movable_ttl()
                {
                    let retention = job.times.retention();
                    job.row.ttl_at = retention.ttl_after_end(status, job.row.ttl_at, now);
                }
            }
            Effect::ClearResult => clear_result(job, ended, now),
            Effect::CountCompleted => lifetime(job).completed += 1,
            Effect::CountFailed => lifetime(job).failed += 1,
            Effect::CountRetried => {
                lifetime(job).retried += 1;
                job.row.retries = job.row.retries.saturating_add(1);
            }
            // The batch makes a delivery of it, unless the job is removed or queued again before.
            Effect::SendWebhook => {
                let has_webhook = job.webhook.is_some();
                change(job).sends_webhook = has_webhook;
            }
            // The batch deletes the rows of a job that is REMOVED.
            Effect::Delete => {}
            // The attempt sees that its lease is stale when the change is published.
            Effect::StopAttempt => {}
            // All listeners are notified when the change is published.
            Effect::WakeWaiters => {}
        }
    }
    notice
}

/// Adds an end, unless many wait for their notifications, as at the start after a long pause.
fn push(early_ends: &mut Vec<EarlyEnd>, end: EarlyEnd) {
    if early_ends.len() < EARLY_ENDS_MAX {
        early_ends.push(end);
    }
}

/// The end of a job that has no result yet.
fn early_end(job: &Job, endpoint: &EndpointId, cause: EarlyEndCause, now: Timestamp) -> EarlyEnd {
    let is_waiting = job.row.status == Some(JobStatus::InQueue);
    EarlyEnd {
        endpoint: endpoint.clone(),
        job: job.id,
        cause,
        waited_ms: is_waiting.then(|| now.millis_since(job.queued_at())),
        trace: job.trace().cloned(),
    }
}

/// Makes the job's next change part of the next batch, and keeps the present state visible until
/// then. Must be called before the row changes.
fn touch<'a>(
    job: &'a mut Job,
    key: JobKey,
    backlog: &mut Backlog,
    urgency: Urgency,
) -> &'a mut Pending {
    let row = &job.row;
    let pending = job.pending.get_or_insert_with(|| {
        let visible = Some(row.clone());
        Box::new(Pending { visible, queued: None, change: Change::default(), input: None })
    });
    backlog.push_job(key, &mut pending.queued, urgency);
    pending
}

/// The usage of the last attempt, which ends now.
fn used_by(job: &Job, metered: &Metered, now: Timestamp) -> JobUsage {
    let started_at = job.row.attempt.as_ref().and_then(|attempt| attempt.started_at);
    JobUsage::of(metered, now.millis_since(started_at.unwrap_or(now)))
}

/// Adds usage to a job that is being changed.
fn bill(job: &mut Job, template: TemplateId, used: &JobUsage) {
    change(job).bills.add(template, &used.billed);
    let attempt = job.row.attempt_mut();
    attempt.past = attempt.past.with_usage(used);
}

fn change(job: &mut Job) -> &mut Change {
    let pending = job.pending.as_mut().expect("a job that is being changed has a pending change");
    &mut pending.change
}

fn lifetime(job: &mut Job) -> &mut Lifetime {
    &mut change(job).counts
}

/// Removes the results of the last attempt, which `ended` so: its chunks, and its stored output. A
/// COMPLETED job is never queued again.
fn clear_result(job: &mut Job, ended: Option<RequeueCause>, now: Timestamp) {
    let had_result = job.row.chunk_count() > 0 || job.row.result_bytes() > 0;
    let past = ended.map(|end| job.row.past_after(end, job.created_at, now));
    let losses = job.row.losses();
    job.row.attempt = None;
    job.row.attempt_mut().past = past.unwrap_or_default();
    job.row.set_losses(losses);
    if let Some(pending) = &mut job.pending {
        pending.change.chunks.clear();
        pending.change.output = None;
        pending.change.clear_result |= had_result;
        pending.change.rewind = true;
    }
}
