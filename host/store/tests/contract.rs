//! The contract of every job store, tested with each of them. No test sleeps.

#[path = "contract/usage.rs"]
mod usage;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::support;
use crate::support::fixture::{Fixture, contract};
use crate::support::{
    QUEUE_JOBS_MAX, START, TIMEOUT_MS, TTL_MS, chunk, delayed, endpoint, job, json, low_priority,
    sync_job, with_ttl, worker,
};
use gristmill_core::catalog::{CatalogChange, CatalogEntry, Image};
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::id::{
    CallDepth, EndpointId, JobActionId, JobId, KeyId, OwnerId, ShardId, SubmissionKind,
};
use gristmill_core::job::action::{ActionCounts, JobAction, JobActionKind, JobActionState};
use gristmill_core::job::filter::JobFilter;
use gristmill_core::job::listing::Cursor;
use gristmill_core::job::loss::{HostLoss, LossBounds};
use gristmill_core::job::note::{ScheduleNote, ScheduleNumber};
use gristmill_core::job::record::{
    CallStep, Demand, HostProcess, Lease, NewJob, Outcome, Part, S3Config, StoreEpoch,
    TIMED_OUT_ERROR,
};
use gristmill_core::job::retention::{ChosenRetention, HistoryMax, Retention};
use gristmill_core::job::state::{Claim, JobStatus, ReleaseCause};
use gristmill_core::job::tags::{Tag, Tags};
use gristmill_core::limits::{CRASHES_MAX, LOSSES_MAX, RETENTION_ASYNC_MS, RETENTION_SYNC_MS_MIN};
use gristmill_core::sharing::shares::Level;
use gristmill_core::signals::QueueListener;
use gristmill_core::store::{Fenced, NextExpiry, RetryAnswer, StoreError, StoreFull, SubmitAnswer};
use gristmill_core::time::Timestamp;
use gristmill_core::trace::{TraceContext, TraceState};
use gristmill_test_support::{ClaimEach as _, EndAttempt as _};
use parking_lot::Mutex;

const HOST: HostProcess = HostProcess { directory: 1, instance: 2 };

contract!(
    a_submitted_job_waits,
    a_submission_returns_its_job_once_that_is_completed_or_before,
    payloads_survive_to_the_byte,
    an_input_is_kept_as_long_as_its_job_can_run,
    jobs_are_claimed_in_order_and_low_priority_last,
    a_job_waits_for_its_time,
    the_note_of_a_schedule_comes_with_its_job,
    a_job_that_waits_for_its_time_can_be_cancelled_purged_and_called,
    a_job_that_a_call_waits_for_is_claimed_first,
    the_deepest_called_job_is_claimed_first,
    a_claimed_job_carries_what_its_handler_needs,
    each_outcome_is_kept,
    a_stale_lease_changes_nothing,
    a_job_is_cancelled_wherever_it_is,
    either_cancel_or_finish_wins_and_both_callers_see_it,
    a_released_job_keeps_its_place_and_its_count,
    a_job_that_loses_its_host_runs_again_a_bounded_number_of_times,
    an_attempt_on_another_host_is_known_until_it_ends,
    a_call_that_is_sent_again_is_the_same_job,
    a_retry_clears_the_result_and_queues_at_the_end,
    only_failed_and_timed_out_jobs_can_be_retried,
    the_ttl_covers_waiting_and_running,
    a_job_past_its_ttl_is_not_handed_out,
    results_are_kept_for_their_retention,
    the_ttl_ends_a_retention,
    ended_jobs_beyond_the_bounds_of_a_history_are_deleted,
    ended_jobs_are_deleted_by_id,
    actions_are_kept_as_they_were_put_last,
    a_chosen_retention_replaces_the_default_and_the_ttl,
    a_retry_of_an_old_job_begins_another_ttl,
    a_ttl_is_shortened_and_never_lengthened,
    a_shortened_ttl_wins_over_a_chosen_retention,
    many_jobs_expire_in_slices,
    a_purge_removes_the_waiting_jobs,
    tags_stay_with_their_job,
    a_trace_stays_with_its_job,
    counts_follow_the_jobs,
    endpoints_do_not_see_each_other,
    a_full_queue_refuses,
    chunks_are_read_in_pages,
    progress_lasts_as_long_as_its_attempt,
    a_deleted_endpoint_is_forgotten,
    the_next_endpoint_of_a_name_shows_nothing_of_a_deleted_one,
    watchers_are_notified,
    each_change_of_a_queue_is_told_with_a_version,
    a_closed_store_refuses,
    the_catalog_keeps_the_last_entry_put,
);

async fn a_submitted_job_waits(t: Fixture) {
    let id = t.submit("a").await;
    let record = t.store.job(&endpoint("a"), id).await.unwrap().expect("a durable job is visible");
    assert_eq!(record.id, id);
    assert_eq!(record.status, JobStatus::InQueue);
    assert_eq!(record.created_at, START);
    assert_eq!(record.purge_at, START.plus_millis(TTL_MS));
    assert_eq!((record.started_at, record.finished_at), (None, None));
    assert_eq!((record.retries, record.chunk_count, record.chunks_delivered), (0, 0, 0));
    assert!(record.worker.is_none() && record.error.is_none() && record.progress.is_none());
    t.clock.advance(250);
    assert_eq!(record.delay_ms(t.store.now()), 250);
    assert_eq!(t.store.input(id).await.unwrap(), Some(json(r#"{"n":1}"#)));
    assert_eq!(t.store.output(id).await.unwrap(), None);
}

async fn a_submission_returns_its_job_once_that_is_completed_or_before(t: Fixture) {
    for _ in 0..20 {
        let new = NewJob { may_linger: true, ..sync_job("a") };
        let (store, id) = (t.store.clone(), new.id);
        let submitting = tokio::spawn(async move { store.submit(new).await });
        let lease = loop {
            match t.claim_many("a", 1).await.pop() {
                Some(claimed) => break claimed.lease,
                None => tokio::task::yield_now().await,
            }
        };
        let finished = t.store.finish(lease, Outcome::Completed(json("[1]"))).await;
        assert_eq!(finished, Ok(Fenced::Applied));
        match submitting.await.unwrap().unwrap() {
            SubmitAnswer::Completed(job) => {
                assert_eq!(Some(job.record), t.store.job(&endpoint("a"), id).await.unwrap());
                assert_eq!(job.output, json("[1]"));
            }
            answer => assert_eq!(answer, SubmitAnswer::Queued),
        }
    }
}

async fn payloads_survive_to_the_byte(t: Fixture) {
    for bytes in [1, 4_000, 9_000, 5 << 20] {
        let text = format!(r#"{{"z":9007199254740993,"a":"{}"}}"#, "é".repeat(bytes / 2));
        let id = t.submit_job(NewJob { input: json(&text), ..job("a") }).await;
        assert_eq!(t.store.input(id).await.unwrap().unwrap().as_str(), text);
        let claimed = t.claim("a").await;
        assert_eq!(claimed.input.as_str(), text);
        let finished = t.store.finish(claimed.lease, Outcome::Completed(json(&text))).await;
        assert_eq!(finished, Ok(Fenced::Applied));
        assert_eq!(t.store.output(id).await.unwrap().unwrap().as_str(), text);
    }
}

async fn an_input_is_kept_as_long_as_its_job_can_run(t: Fixture) {
    let outcomes = [
        (Outcome::Failed("no".to_owned()), true),
        (Outcome::TimedOut, true),
        (Outcome::Completed(json("2")), false),
    ];
    for (outcome, is_kept) in outcomes {
        let id = t.submit("a").await;
        let lease = t.claim("a").await.lease;
        assert!(t.store.input(id).await.unwrap().is_some());
        assert_eq!(t.store.finish(lease, outcome).await, Ok(Fenced::Applied));
        assert_eq!(t.store.input(id).await.unwrap().is_some(), is_kept);
    }
    let id = t.submit("a").await;
    let _ = t.store.cancel(&endpoint("a"), id).await.unwrap();
    assert_eq!(t.store.input(id).await, Ok(None));
}

async fn jobs_are_claimed_in_order_and_low_priority_last(t: Fixture) {
    let low = t.submit_job(low_priority(job("a"))).await;
    let first = t.submit("a").await;
    let second = t.submit("a").await;
    let later = t.submit_job(low_priority(job("a"))).await;
    let claimed = t.claim_many("a", 3).await;
    let ids: Vec<_> = claimed.iter().map(|job| job.lease.job).collect();
    assert_eq!(ids, [first, second, low]);
    let workers: Vec<_> = claimed.iter().map(|job| job.worker.as_str()).collect();
    assert_eq!(workers, ["w0", "w1", "w2"]);
    let urgent = t.submit("a").await;
    assert_eq!(t.claim("a").await.lease.job, urgent);
    assert_eq!(t.claim("a").await.lease.job, later);
    assert!(t.claim_many("a", 5).await.is_empty());
}

async fn the_note_of_a_schedule_comes_with_its_job(t: Fixture) {
    let [one, other] = [ScheduleNumber(7), ScheduleNumber(u64::MAX >> 1)];
    let note = |schedule, n: u32| ScheduleNote { schedule, text: format!("{{\"n\":{n}}}") };
    assert_eq!(t.store.schedule_notes(), Ok(vec![]));
    let new = NewJob { note: Some(note(one, 1)), ..job("a") };
    t.submit_job(new).await;
    assert_eq!(t.store.schedule_notes(), Ok(vec![note(one, 1)]));
    t.store.note_schedule(note(other, 2)).await.unwrap();
    t.store.note_schedule(note(one, 3)).await.unwrap();
    assert_eq!(t.store.schedule_notes(), Ok(vec![note(one, 3), note(other, 2)]));
    t.store.forget_schedules(vec![other]).await.unwrap();
    assert_eq!(t.store.schedule_notes(), Ok(vec![note(one, 3)]));
    // A refused submission notes nothing.
    for _ in 1..QUEUE_JOBS_MAX {
        t.submit("a").await;
    }
    let refused = t.store.submit(NewJob { note: Some(note(one, 4)), ..job("a") }).await;
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
    assert_eq!(t.store.schedule_notes(), Ok(vec![note(one, 3)]));
}

async fn a_job_waits_for_its_time(t: Fixture) {
    let a = endpoint("a");
    let late = t.submit_job(delayed(with_ttl(job("a"), 10_000), 60_000)).await;
    let soon = t.submit_job(delayed(job("a"), 5_000)).await;
    let at_once = t.submit("a").await;
    assert_eq!(t.store.counts(&a).await.unwrap().in_queue, 3);
    assert_eq!(t.store.demand(&a).await.unwrap().claimable, 1);
    assert_eq!(t.store.fire_due(), Ok(START.plus_millis(5_000)));
    assert_eq!(t.claim_many("a", 3).await.len(), 1);
    assert_eq!(t.record("a", at_once).await.unwrap().status, JobStatus::InProgress);
    t.clock.advance(4_999);
    let _ = t.store.fire_due().unwrap();
    assert!(t.claim_many("a", 3).await.is_empty());
    t.clock.advance(1);
    assert_eq!(t.store.fire_due(), Ok(START.plus_millis(60_000)));
    let claimed = t.claim("a").await;
    assert_eq!((claimed.lease.job, claimed.queued_at), (soon, START.plus_millis(5_000)));
    // Its ttl begins at its time.
    t.clock.advance(64_999);
    assert_eq!(t.record("a", late).await.unwrap().purge_at, START.plus_millis(70_000));
    assert_eq!(t.store.fire_due(), Ok(Timestamp::NEVER));
    assert_eq!(t.claim("a").await.lease.job, late);
}

async fn a_job_that_waits_for_its_time_can_be_cancelled_purged_and_called(t: Fixture) {
    let a = endpoint("a");
    let mut jobs = vec![];
    for _ in 0..4 {
        jobs.push(t.submit_job(delayed(job("a"), 5_000)).await);
    }
    assert_eq!(t.store.cancel(&a, jobs[0]).await, Ok(Some(JobStatus::Cancelled)));
    t.store.shorten_ttl(&a, jobs[1], 1_000).await.unwrap();
    t.store.note_call(jobs[3], CallStep::Begins);
    t.clock.advance(1_000);
    let _ = t.store.expire().await.unwrap();
    assert!(t.record("a", jobs[1]).await.is_none());
    assert_eq!(t.store.fire_due(), Ok(START.plus_millis(5_000)));
    assert!(t.claim_many("a", 3).await.is_empty());
    t.clock.advance(4_000);
    assert_eq!(t.store.fire_due(), Ok(Timestamp::NEVER));
    assert_eq!(t.claim("a").await.lease.job, jobs[3], "a call waits for it");
    let later = t.submit_job(delayed(job("a"), 5_000)).await;
    assert_eq!(t.store.purge(&a).await, Ok(2));
    for job in [jobs[2], later] {
        assert!(t.record("a", job).await.is_none());
    }
    assert_eq!(t.store.fire_due(), Ok(Timestamp::NEVER));
}

async fn a_job_that_a_call_waits_for_is_claimed_first(t: Fixture) {
    let first = t.submit("a").await;
    let called = t.submit_job(low_priority(job("a"))).await;
    let forgotten = t.submit("a").await;
    for id in [forgotten, called, called] {
        t.store.note_call(id, CallStep::Begins);
    }
    for id in [forgotten, called] {
        t.store.note_call(id, CallStep::Ends);
    }
    let demand = t.store.demand(&endpoint("a")).await.unwrap();
    assert_eq!((demand.called, demand.jobs, demand.claimable), (1, 3, 3));
    let lease = t.claim("a").await.lease;
    assert_eq!(lease.job, called);
    // Its call waits until it ends, also when it waits again.
    let _ = t.store.release(lease, ReleaseCause::Stopped).await.unwrap();
    let lease = t.claim("a").await.lease;
    assert_eq!(lease.job, called);
    let _ = t.store.finish(lease, Outcome::TimedOut).await.unwrap();
    t.store.note_call(called, CallStep::Begins);
    t.store.retry(&endpoint("a"), called, None).await.unwrap();
    assert_eq!(t.store.demand(&endpoint("a")).await.unwrap().called, 0, "it had ended");
    let claimed = t.claim_many("a", 3).await;
    let ids: Vec<_> = claimed.iter().map(|job| job.lease.job).collect();
    assert_eq!(ids, [first, forgotten, called]);
}

/// Shallower ones may have no sandbox before the deeper ones end.
async fn the_deepest_called_job_is_claimed_first(t: Fixture) {
    let of_depth = |depth: usize| {
        let below = |depth: &CallDepth| CallDepth::below(SubmissionKind::Handler(*depth));
        let depths = std::iter::successors(CallDepth::below(SubmissionKind::Async), below);
        let submission = depths.skip(depth - 1).map(SubmissionKind::Handler).next().unwrap();
        NewJob { id: JobId::generate(submission, t.store.shard()), ..job("a") }
    };
    let client = t.submit("a").await;
    let mut called = vec![];
    for depth in [2, 1, 8, 2] {
        let job = t.submit_job(of_depth(depth)).await;
        t.store.note_call(job, CallStep::Begins);
        called.push(job);
    }
    // No call waits for it.
    let submitted = t.submit_job(of_depth(5)).await;
    let expected = [
        (called[2], 8),
        (called[0], 2),
        (called[3], 2),
        (called[1], 1),
        (client, 0),
        (submitted, 0),
    ];
    for (job, level) in expected {
        let next = t.store.demand(&endpoint("a")).await.unwrap().level;
        let claimed = t.claim("a").await;
        let levels = [next, claimed.level];
        assert_eq!((claimed.lease.job, levels), (job, [Level::of_number(level); 2]));
    }
    assert_eq!(t.store.demand(&endpoint("a")).await.unwrap().level, Level::CLIENT);
}

async fn a_claimed_job_carries_what_its_handler_needs(t: Fixture) {
    let s3_config = Arc::new(S3Config {
        access_id: "id".into(),
        access_secret: "s".into(),
        ..S3Config::default()
    });
    let new = NewJob { s3_config: Some(s3_config.clone()), ..job("a") };
    let id = t.submit_job(new).await;
    t.clock.advance(40);
    let claimed = t.claim("a").await;
    assert_eq!((claimed.lease.job, claimed.lease.claim), (id, Claim(1)));
    assert_eq!(claimed.attempt, 1);
    assert_eq!(claimed.input, json(r#"{"n":1}"#));
    assert_eq!(claimed.s3_config, Some(s3_config));
    assert_eq!(claimed.execution_timeout_ms, Some(TIMEOUT_MS));
    assert_eq!(claimed.ttl_at, START.plus_millis(TTL_MS));
    let record = t.record("a", id).await.unwrap();
    assert_eq!(record.status, JobStatus::InProgress);
    assert_eq!(record.started_at, Some(START.plus_millis(40)));
    assert_eq!(record.worker, Some(worker("w0")));
    t.clock.advance(5);
    assert_eq!((record.delay_ms(t.store.now()), record.execution_ms(t.store.now())), (40, 5));
    // A job without a time of its own has that of its endpoint, which may change until the claim.
    let mut new = job("a");
    new.policy.execution_timeout_ms = None;
    t.submit_job(new).await;
    assert_eq!(t.claim("a").await.execution_timeout_ms, None);
}

async fn each_outcome_is_kept(t: Fixture) {
    let cases = [
        (Outcome::Completed(json("[1]")), JobStatus::Completed, None, Some(json("[1]"))),
        (Outcome::Failed("no".into()), JobStatus::Failed, Some("no"), None),
        (Outcome::TimedOut, JobStatus::TimedOut, Some(TIMED_OUT_ERROR), None),
    ];
    for (outcome, status, error, output) in cases {
        let id = t.submit("a").await;
        let claimed = t.claim("a").await;
        t.clock.advance(30);
        assert_eq!(t.store.finish(claimed.lease, outcome).await, Ok(Fenced::Applied));
        let record = t.store.job(&endpoint("a"), id).await.unwrap().unwrap();
        assert_eq!(record.status, status);
        assert_eq!(record.error.as_deref(), error);
        assert_eq!(record.finished_at, Some(t.store.now()));
        assert_eq!(record.execution_ms(t.store.now().plus_millis(99)), 30);
        assert_eq!(t.store.output(id).await.unwrap(), output);
    }
}

async fn assert_stale(t: &Fixture, lease: Lease) {
    let before = format!("{:?}", t.record("a", lease.job).await);
    assert_eq!(t.store.finish(lease, Outcome::TimedOut).await, Ok(Fenced::Stale));
    assert_eq!(t.store.finish(lease, Outcome::Completed(json("9"))).await, Ok(Fenced::Stale));
    assert_eq!(t.store.release(lease, ReleaseCause::Stopped).await, Ok(Fenced::Stale));
    assert_eq!(t.store.append_chunks(lease, vec![chunk("9")]).await, Ok(Fenced::Stale));
    assert_eq!(t.store.append_chunks(lease, vec![]).await, Ok(Fenced::Stale));
    assert_eq!(t.store.set_progress(lease, json("9")).await, Ok(Fenced::Stale));
    assert_eq!(format!("{:?}", t.record("a", lease.job).await), before);
}

async fn a_stale_lease_changes_nothing(t: Fixture) {
    // Never claimed, and unknown.
    let id = t.submit("a").await;
    t.submit("b").await;
    let epoch = t.claim("b").await.lease.epoch;
    let lease = |job, claim| Lease { job, claim: Claim(claim), epoch };
    assert_stale(&t, lease(id, 0)).await;
    assert_stale(&t, lease(id, 1)).await;
    let unknown = JobId::generate(SubmissionKind::Async, ShardId(7));
    assert_stale(&t, lease(unknown, 1)).await;
    // Claimed again.
    let first = t.claim("a").await;
    assert_stale(&t, Lease { epoch: StoreEpoch(epoch.0 + 1), ..first.lease }).await;
    assert_eq!(t.store.release(first.lease, ReleaseCause::Stopped).await, Ok(Fenced::Applied));
    assert_stale(&t, first.lease).await;
    let second = t.claim("a").await;
    assert_eq!((second.lease.claim, second.attempt), (Claim(2), 2));
    assert_stale(&t, first.lease).await;
    // Ended.
    let failed = t.store.finish(second.lease, Outcome::Failed("x".into())).await;
    assert_eq!(failed, Ok(Fenced::Applied));
    assert_stale(&t, second.lease).await;
    // Retried: the claim number continues to grow.
    assert_eq!(t.store.retry(&endpoint("a"), id, None).await, Ok(RetryAnswer::Queued));
    let third = t.claim("a").await;
    assert_eq!(third.lease.claim, Claim(3));
    assert_stale(&t, second.lease).await;
    // Cancelled.
    let cancelled = t.store.cancel(&endpoint("a"), id).await;
    assert_eq!(cancelled, Ok(Some(JobStatus::Cancelled)));
    assert_stale(&t, third.lease).await;
    // Past its ttl, and deleted.
    t.submit("a").await;
    let fourth = t.claim("a").await;
    t.clock.advance(TTL_MS);
    assert_stale(&t, fourth.lease).await;
    t.store.expire().await.unwrap();
    assert_stale(&t, fourth.lease).await;
}

async fn a_job_is_cancelled_wherever_it_is(t: Fixture) {
    let a = endpoint("a");
    let (running, waiting) = (t.submit("a").await, t.submit("a").await);
    t.claim("a").await;
    for id in [running, waiting] {
        assert_eq!(t.store.cancel(&endpoint("b"), id).await, Ok(None));
        t.clock.advance(10);
        assert_eq!(t.store.cancel(&a, id).await, Ok(Some(JobStatus::Cancelled)));
        let record = t.store.job(&a, id).await.unwrap().unwrap();
        assert_eq!(record.status, JobStatus::Cancelled);
        assert_eq!(record.finished_at, Some(t.store.now()));
        t.clock.advance(10);
        assert_eq!(t.store.cancel(&a, id).await, Ok(Some(JobStatus::Cancelled)), "again");
        let again = t.store.job(&a, id).await.unwrap().unwrap();
        assert_eq!(again.finished_at, record.finished_at);
    }
    assert!(t.claim_many("a", 9).await.is_empty());
    let done = t.submit("a").await;
    let lease = t.claim("a").await.lease;
    let _ = t.store.finish(lease, Outcome::Completed(json("1"))).await.unwrap();
    assert_eq!(t.store.cancel(&a, done).await, Ok(Some(JobStatus::Completed)), "too late");
    let unknown = JobId::generate(SubmissionKind::Async, ShardId(7));
    assert_eq!(t.store.cancel(&a, unknown).await, Ok(None));
}

async fn either_cancel_or_finish_wins_and_both_callers_see_it(t: Fixture) {
    let a = endpoint("a");
    for _ in 0..50 {
        let id = t.submit("a").await;
        let lease = t.claim("a").await.lease;
        let finish = tokio::spawn({
            let (store, a) = (t.store.clone(), a.clone());
            async move {
                let answer = store.finish(lease, Outcome::Completed(json("1"))).await.unwrap();
                (answer, store.job(&a, id).await.unwrap().unwrap().status)
            }
        });
        let cancelled = t.store.cancel(&a, id).await.unwrap().unwrap();
        let seen = t.store.job(&a, id).await.unwrap().unwrap().status;
        let (finished, seen_by_finish) = finish.await.unwrap();
        assert_eq!(seen, cancelled, "an answer is true of what is visible");
        assert_eq!(seen_by_finish, cancelled);
        match finished {
            Fenced::Applied => assert_eq!(cancelled, JobStatus::Completed),
            Fenced::Stale => assert_eq!(cancelled, JobStatus::Cancelled),
        }
    }
}

async fn a_released_job_keeps_its_place_and_its_count(t: Fixture) {
    let (first, _second) = (t.submit("a").await, t.submit("a").await);
    let claimed = t.claim("a").await;
    let _ = t.store.append_chunks(claimed.lease, vec![chunk("1")]).await.unwrap();
    assert_eq!(t.store.release(claimed.lease, ReleaseCause::Stopped).await, Ok(Fenced::Applied));
    let record = t.store.job(&endpoint("a"), first).await.unwrap().unwrap();
    assert_eq!((record.status, record.retries), (JobStatus::InQueue, 0));
    assert_eq!((record.started_at, record.worker, record.chunk_count), (None, None, 0));
    let again = t.claim("a").await;
    assert_eq!((again.lease.job, again.attempt), (first, 2));
    assert_eq!(t.store.counts(&endpoint("a")).await.unwrap().retried, 0);
}

async fn a_job_that_loses_its_host_runs_again_a_bounded_number_of_times(t: Fixture) {
    let webhook = Some("https://example.com/".to_owned());
    let first = t.submit_job(NewJob { webhook, ..job("a") }).await;
    let _second = t.submit("a").await;
    // Losses that are no crashes have a bound of their own.
    for _ in 1..LOSSES_MAX {
        let lease = t.claim("a").await.lease;
        assert_eq!(t.store.note_host(lease, HOST).await, Ok(Fenced::Applied));
        assert_eq!(t.store.host_lost(lease, HostLoss::Unreachable).await, Ok(Fenced::Applied));
        assert_eq!(t.store.note_host(lease, HOST).await, Ok(Fenced::Stale));
    }
    let losses = u32::from(LOSSES_MAX - 1);
    for crash in 1..=CRASHES_MAX {
        let claimed = t.claim("a").await;
        assert_eq!(claimed.lease.job, first, "it keeps its position");
        let _ = t.store.append_chunks(claimed.lease, vec![chunk("1")]).await.unwrap();
        let loss = HostLoss::Crash;
        assert_eq!(t.store.host_lost(claimed.lease, loss).await, Ok(Fenced::Applied));
        assert_eq!(t.store.host_lost(claimed.lease, loss).await, Ok(Fenced::Stale));
        t.store.flush().await.unwrap();
        let record = t.record("a", first).await.unwrap();
        if crash < CRASHES_MAX {
            let expected = (JobStatus::InQueue, losses + u32::from(crash), 0);
            assert_eq!((record.status, record.retries, record.chunk_count), expected);
        } else {
            let error = record.error.as_deref().unwrap();
            let expected = LossBounds::default().error(loss);
            assert_eq!((record.status, error), (JobStatus::Failed, &*expected));
        }
    }
    assert_eq!(t.store.stats().waiting_webhooks, 1, "that of the failure");
    // A retry by a client begins to count anew.
    assert_eq!(t.store.retry(&endpoint("a"), first, None).await, Ok(RetryAnswer::Queued));
    assert_ne!(t.claim("a").await.lease.job, first);
    for loss in 1..=LOSSES_MAX {
        let again = t.claim("a").await.lease;
        assert_eq!(t.store.host_lost(again, HostLoss::Unreachable).await, Ok(Fenced::Applied));
        t.store.flush().await.unwrap();
        let record = t.record("a", first).await.unwrap();
        if loss < LOSSES_MAX {
            assert_eq!(record.status, JobStatus::InQueue);
        } else {
            let expected = LossBounds::default().error(HostLoss::Unreachable);
            assert_eq!((record.status, record.error), (JobStatus::Failed, Some(expected)));
        }
    }
}

async fn an_attempt_on_another_host_is_known_until_it_ends(t: Fixture) {
    let jobs = [t.submit("a").await, t.submit("a").await];
    let left = || t.store.left_attempts().unwrap();
    for job in jobs {
        let claimed = t.claim("a").await;
        assert!(left().is_empty(), "it runs here");
        assert_eq!(t.store.note_host(claimed.lease, HOST).await, Ok(Fenced::Applied));
        let chunks = vec![chunk("1"), chunk("22")];
        assert_eq!(t.store.append_chunks(claimed.lease, chunks).await, Ok(Fenced::Applied));
        t.store.durable(job).await.unwrap();
        let known = left();
        assert_eq!((known[0].lease, known[0].host), (claimed.lease, HOST));
        assert_eq!((known[0].chunks, known[0].chunk_bytes), (2, 3));
        assert_eq!((&known[0].worker, &known[0].owner), (&claimed.worker, &claimed.owner));
        if job == jobs[0] {
            let applied = t.store.release(claimed.lease, ReleaseCause::Stopped).await;
            assert_eq!(applied, Ok(Fenced::Applied));
            // The next attempt at it runs here.
            let again = t.claim("a").await;
            assert_eq!(again.lease.job, job);
        } else {
            t.store.cancel(&endpoint("a"), job).await.unwrap();
        }
    }
    assert!(left().is_empty());
}

async fn a_call_that_is_sent_again_is_the_same_job(t: Fixture) {
    let id = JobId::generate(SubmissionKind::Async, ShardId(1)).of_call().unwrap();
    let call = || NewJob { id, ..job("a") };
    assert_eq!(t.store.submit(call()).await, Ok(SubmitAnswer::Queued));
    assert_eq!(t.store.submit(call()).await, Ok(SubmitAnswer::Repeated(id)));
    let claimed = t.claim("a").await;
    assert_eq!(t.store.submit(call()).await, Ok(SubmitAnswer::Repeated(id)));
    let finished = t.store.finish(claimed.lease, Outcome::Completed(json("1"))).await;
    assert_eq!(finished, Ok(Fenced::Applied));
    assert_eq!(t.store.submit(call()).await, Ok(SubmitAnswer::Repeated(id)));
    assert!(t.store.claim(&endpoint("a"), &worker("w")).await.unwrap().is_none());
}

async fn a_retry_clears_the_result_and_queues_at_the_end(t: Fixture) {
    let a = endpoint("a");
    let id = t.submit_job(NewJob { input: json("[7]"), ..job("a") }).await;
    let lease = t.claim("a").await.lease;
    let _ = t.store.append_chunks(lease, vec![chunk("1"), chunk("2")]).await.unwrap();
    t.clock.advance(1_000);
    let _ = t.store.finish(lease, Outcome::Failed("x".into())).await.unwrap();
    t.store.mark_delivered(id, support::stream_position(1, 2)).await.unwrap();
    assert_eq!(t.record("a", id).await.unwrap().chunks_delivered, 2);
    let other = t.submit("a").await;

    assert_eq!(t.store.retry(&a, id, None).await, Ok(RetryAnswer::Queued));
    let record = t.store.job(&a, id).await.unwrap().unwrap();
    assert_eq!((record.status, record.retries), (JobStatus::InQueue, 1));
    assert_eq!((record.error, record.started_at, record.finished_at), (None, None, None));
    assert_eq!((record.chunk_count, record.chunks_delivered), (0, 0));
    assert_eq!(record.purge_at, START.plus_millis(TTL_MS), "the ttl goes on");
    assert!(t.store.chunks(id, 0, 99, 99).await.unwrap().chunks.is_empty());
    assert_eq!(t.store.input(id).await.unwrap(), Some(json("[7]")));

    assert_eq!(t.claim("a").await.lease.job, other);
    let again = t.claim("a").await;
    assert_eq!((again.lease.job, again.lease.claim, &again.input), (id, Claim(2), &json("[7]")));
    let _ = t.store.append_chunks(again.lease, vec![chunk("3")]).await.unwrap();
    let _ = t.store.finish(again.lease, Outcome::Completed(json("8"))).await.unwrap();
    let page = t.store.chunks(id, 0, 99, 99).await.unwrap();
    assert_eq!(page.chunks, [chunk("3")]);
    assert_eq!(t.store.output(id).await.unwrap(), Some(json("8")));
}

async fn only_failed_and_timed_out_jobs_can_be_retried(t: Fixture) {
    let a = endpoint("a");
    let id = t.submit("a").await;
    let wrong = |status| Ok(RetryAnswer::WrongStatus(status));
    assert_eq!(t.store.retry(&a, id, None).await, wrong(JobStatus::InQueue));
    let lease = t.claim("a").await.lease;
    assert_eq!(t.store.retry(&a, id, None).await, wrong(JobStatus::InProgress));
    let _ = t.store.finish(lease, Outcome::TimedOut).await.unwrap();
    assert_eq!(t.store.retry(&endpoint("b"), id, None).await, Ok(RetryAnswer::NotFound));
    assert_eq!(t.store.retry(&a, id, None).await, Ok(RetryAnswer::Queued));
    let lease = t.claim("a").await.lease;
    let _ = t.store.finish(lease, Outcome::Completed(json("1"))).await.unwrap();
    assert_eq!(t.store.retry(&a, id, None).await, wrong(JobStatus::Completed));
    let cancelled = t.submit("a").await;
    t.store.cancel(&a, cancelled).await.unwrap();
    assert_eq!(t.store.retry(&a, cancelled, None).await, wrong(JobStatus::Cancelled));
    let unknown = JobId::generate(SubmissionKind::Async, ShardId(7));
    assert_eq!(t.store.retry(&a, unknown, None).await, Ok(RetryAnswer::NotFound));

    let failed = t.submit("a").await;
    let lease = t.claim("a").await.lease;
    let _ = t.store.finish(lease, Outcome::Failed("x".into())).await.unwrap();
    t.clock.advance(RETENTION_ASYNC_MS);
    assert_eq!(
        t.store.retry(&a, failed, None).await,
        Ok(RetryAnswer::NotFound),
        "its time is over"
    );
}

async fn the_ttl_covers_waiting_and_running(t: Fixture) {
    let waiting = t.submit_job(with_ttl(job("b"), 10_000)).await;
    let running = t.submit_job(with_ttl(job("a"), 10_000)).await;
    t.clock.advance(4_000);
    let lease = t.claim("a").await.lease;
    t.clock.advance(5_999);
    assert_eq!(t.store.expire().await, Ok(NextExpiry(START.plus_millis(10_000))));
    assert!(t.record("a", running).await.is_some());
    t.clock.advance(1);
    assert!(t.record("a", running).await.is_none(), "gone on time, even before expire runs");
    assert_eq!(t.store.expire().await, Ok(NextExpiry(Timestamp::NEVER)));
    for (name, id) in [("a", running), ("b", waiting)] {
        assert!(t.record(name, id).await.is_none());
        assert_eq!(t.store.input(id).await, Ok(None));
        assert_eq!(t.store.cancel(&endpoint(name), id).await, Ok(None));
        let counts = t.store.counts(&endpoint(name)).await.unwrap();
        assert_eq!((counts.in_queue, counts.in_progress, counts.failed), (0, 0, 0));
    }
    let late = t.store.finish(lease, Outcome::Completed(json("1"))).await;
    assert_eq!(late, Ok(Fenced::Stale));
    assert_eq!(t.store.stats().jobs, 0);
}

async fn a_job_past_its_ttl_is_not_handed_out(t: Fixture) {
    for _ in 0..1_200 {
        // Enough for several slices; the answers are awaited together.
        let (store, new) = (t.store.clone(), with_ttl(job("a"), 10_000));
        drop(tokio::spawn(async move { store.submit(new).await }));
    }
    while t.store.counts(&endpoint("a")).await.unwrap().in_queue < 1_200 {
        tokio::task::yield_now().await;
    }
    let long = t.submit("a").await;
    t.clock.advance(10_000);
    assert_eq!(t.claim("a").await.lease.job, long);
    assert!(t.claim_many("a", 3).await.is_empty());
}

async fn results_are_kept_for_their_retention(t: Fixture) {
    for (new, kept_ms) in [(job("a"), RETENTION_ASYNC_MS), (sync_job("a"), RETENTION_SYNC_MS_MIN)] {
        let id = t.submit_job(new).await;
        t.clock.advance(500);
        let lease = t.claim("a").await.lease;
        let _ = t.store.finish(lease, Outcome::Completed(json("1"))).await.unwrap();
        let gone_at = t.store.now().plus_millis(kept_ms);
        assert_eq!(t.record("a", id).await.unwrap().purge_at, gone_at);
        t.clock.advance(kept_ms - 1);
        assert_eq!(t.store.expire().await, Ok(NextExpiry(gone_at)));
        assert_eq!(t.store.output(id).await.unwrap(), Some(json("1")));
        t.clock.advance(1);
        assert_eq!(t.store.expire().await, Ok(NextExpiry(Timestamp::NEVER)));
        assert!(t.record("a", id).await.is_none());
        assert_eq!(t.store.output(id).await, Ok(None));
    }
    let counts = t.store.counts(&endpoint("a")).await.unwrap();
    assert_eq!(counts.completed, 2, "the counts outlive the jobs");
}

async fn ended_jobs_beyond_the_bounds_of_a_history_are_deleted(t: Fixture) {
    let submit = async || t.submit_job(NewJob { input: json("[1,2,3]"), ..job("a") }).await;
    let mut ended = vec![];
    // Jobs that keep 5 bytes, 7 bytes as their inputs, and nothing.
    for outcome in [
        Outcome::Completed(json("12345")),
        Outcome::Failed("no".to_owned()),
        Outcome::TimedOut,
        Outcome::Completed(json("12345")),
    ] {
        ended.push(submit().await);
        let lease = t.claim("a").await.lease;
        assert_eq!(t.store.finish(lease, outcome).await, Ok(Fenced::Applied));
    }
    ended.push(submit().await);
    let _ = t.store.cancel(&endpoint("a"), ended[4]).await.unwrap();
    let other = t.submit("b").await;
    let lease = t.claim("b").await.lease;
    assert_eq!(t.store.finish(lease, Outcome::Completed(json("12345"))).await, Ok(Fenced::Applied));
    let (running, waiting) = (submit().await, submit().await);
    assert_eq!(t.claim("a").await.lease.job, running);
    let left = async || {
        let mut left = 0;
        for id in &ended {
            left += usize::from(t.record("a", *id).await.is_some());
        }
        left
    };
    let trim = async |jobs, bytes| {
        t.store.trim_history(&endpoint("a"), HistoryMax { jobs, bytes }).await.unwrap();
    };
    trim(None, None).await;
    trim(Some(5), Some(24)).await;
    assert_eq!(left().await, 5, "nothing exceeds the bounds");
    t.clock.advance(HistoryMax::SPARED_MS);
    trim(Some(5), Some(24)).await;
    assert_eq!(left().await, 5, "nothing exceeds the bounds");
    trim(Some(3), None).await;
    assert_eq!(left().await, 3);
    trim(Some(3), None).await;
    assert_eq!(left().await, 3);
    trim(Some(5), Some(0)).await;
    assert!(left().await <= 1, "the job that keeps nothing may stay");
    trim(Some(0), None).await;
    assert_eq!(left().await, 0);
    for (name, id) in [("a", running), ("a", waiting), ("b", other)] {
        assert!(
            t.record(name, id).await.is_some(),
            "{name}: it has not ended, or is of another endpoint"
        );
    }
    assert_eq!(t.store.trim_history(&endpoint("unknown"), HistoryMax::default()).await, Ok(()));
}

async fn ended_jobs_are_deleted_by_id(t: Fixture) {
    let mut ended = vec![];
    for outcome in [Outcome::Completed(json("1")), Outcome::Failed("no".into()), Outcome::TimedOut]
    {
        ended.push(t.submit("a").await);
        let lease = t.claim("a").await.lease;
        assert_eq!(t.store.finish(lease, outcome).await, Ok(Fenced::Applied));
    }
    ended.push(t.submit("a").await);
    let _ = t.store.cancel(&endpoint("a"), ended[3]).await.unwrap();
    let kept = t.submit("a").await;
    let _ = t.store.cancel(&endpoint("a"), kept).await.unwrap();
    let (running, waiting) = (t.submit("a").await, t.submit("a").await);
    assert_eq!(t.claim("a").await.lease.job, running);
    let unknown = JobId::generate(SubmissionKind::Async, ShardId(7));
    // A job that is named twice is deleted and counted once.
    let all = ended.iter().copied().chain([running, waiting, unknown, ended[0], ended[1]]);
    let all: Vec<_> = all.collect();
    // Not by another endpoint, whether that has jobs or not.
    t.submit("b").await;
    for other in ["b", "nothing"] {
        assert_eq!(t.store.delete_ended(&endpoint(other), &all).await, Ok(0), "{other}");
    }
    assert_eq!(t.store.delete_ended(&endpoint("a"), &all).await, Ok(4));
    assert_eq!(t.store.delete_ended(&endpoint("a"), &all).await, Ok(0));
    assert_eq!(t.store.delete_ended(&endpoint("a"), &[]).await, Ok(0));
    for id in &ended {
        assert!(t.store.job(&endpoint("a"), *id).await.unwrap().is_none());
    }
    for id in [kept, running, waiting] {
        assert!(t.record("a", id).await.is_some());
    }
    let counts = t.store.counts(&endpoint("a")).await.unwrap();
    assert_eq!((counts.in_queue, counts.in_progress), (1, 1));
    assert_eq!(counts.completed, 1, "the counts outlive the jobs");
}

async fn actions_are_kept_as_they_were_put_last(t: Fixture) {
    let action = |id: &str, state| JobAction {
        id: JobActionId::new(id).unwrap(),
        owner: OwnerId::new("owner").unwrap(),
        key: KeyId::new("key").unwrap(),
        kind: JobActionKind::Retry,
        filter: JobFilter {
            statuses: vec![JobStatus::Failed],
            tags: vec![Tag::new("env", "é = %").unwrap()],
            from: Some(START),
            ..JobFilter::default()
        },
        endpoints: vec![endpoint("a")],
        names_endpoints: true,
        state,
        counts: ActionCounts { matched: 3, changed: 2, skipped: 1 },
        has_begun_again: false,
        position: Some(Cursor(u64::MAX)),
        is_aborted: false,
        created_at: START,
        ended_at: None,
        reason: Some("the queue is full".to_owned()),
    };
    assert_eq!(t.store.actions().await, Ok(vec![]));
    let (first, second) =
        (action("x", JobActionState::Running), action("y", JobActionState::Aborted));
    t.store.put_action(first.clone()).await.unwrap();
    t.store.put_action(second.clone()).await.unwrap();
    assert_eq!(t.store.actions().await, Ok(vec![first, second.clone()]));
    let first = action("x", JobActionState::Completed);
    t.store.put_action(first.clone()).await.unwrap();
    assert_eq!(t.store.actions().await, Ok(vec![first, second.clone()]));
    for name in ["x", "unknown"] {
        t.store.delete_action(JobActionId::new(name).unwrap()).await.unwrap();
    }
    assert_eq!(t.store.actions().await, Ok(vec![second]));
}

async fn the_ttl_ends_a_retention(t: Fixture) {
    let id = t.submit_job(with_ttl(job("a"), 60_000)).await;
    let lease = t.claim("a").await.lease;
    t.clock.advance(50_000);
    let _ = t.store.finish(lease, Outcome::Completed(json("1"))).await.unwrap();
    assert_eq!(t.record("a", id).await.unwrap().purge_at, START.plus_millis(60_000));
}

async fn tags_stay_with_their_job(t: Fixture) {
    let tags = Tags::new([("env", "prod"), ("run", "7 = é")]).unwrap();
    let id = t.submit_job(NewJob { tags: tags.clone(), ..job("a") }).await;
    let without = t.submit("a").await;
    for n in 0..3 {
        assert_eq!(t.record("a", id).await.unwrap().tags, tags, "waiting, {n}");
        let claimed = t.claim_many("a", 2).await;
        let lease = claimed.iter().find(|claimed| claimed.lease.job == id).unwrap().lease;
        assert_eq!(t.record("a", id).await.unwrap().tags, tags, "running, {n}");
        let _ = t.store.finish(lease, Outcome::Failed("no".to_owned())).await.unwrap();
        assert_eq!(t.record("a", id).await.unwrap().tags, tags, "failed, {n}");
        assert_eq!(t.store.retry(&endpoint("a"), id, None).await, Ok(RetryAnswer::Queued));
    }
    assert_eq!(t.record("a", without).await.unwrap().tags, None);
}

async fn a_trace_stays_with_its_job(t: Fixture) {
    let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let state = TraceState::from_headers(["congo=t61rcWkgMzE"]);
    let trace = TraceContext::from_header(header).map(|context| TraceContext { state, ..context });
    let id = t.submit_job(NewJob { trace: trace.clone(), ..job("a") }).await;
    for n in 0..2 {
        assert_eq!(t.record("a", id).await.unwrap().trace, trace, "waiting, {n}");
        let claimed = t.claim("a").await;
        assert_eq!(claimed.trace, trace, "claimed, {n}");
        // A progress value, which is dropped with the attempt, must not take the trace with it.
        let _ = t.store.set_progress(claimed.lease, json("1")).await.unwrap();
        let _ = t.store.finish(claimed.lease, Outcome::Failed("no".to_owned())).await.unwrap();
        assert_eq!(t.record("a", id).await.unwrap().trace, trace, "failed, {n}");
        assert_eq!(t.store.retry(&endpoint("a"), id, None).await, Ok(RetryAnswer::Queued));
    }
    let without = t.submit("b").await;
    assert_eq!(t.record("b", without).await.unwrap().trace, None);
    assert_eq!(t.claim("b").await.trace, None);
}

/// A month for failed jobs, an hour for completed ones; cancelled jobs have the default.
fn with_chosen_retention(new: NewJob) -> NewJob {
    let chosen = ChosenRetention {
        completed_ms: Some(3_600_000),
        failed_ms: Some(MONTH_MS),
        cancelled_ms: None,
    };
    NewJob { retention: Retention { chosen, ..new.retention }, ..new }
}

const MONTH_MS: u64 = 2_592_000_000;

async fn a_chosen_retention_replaces_the_default_and_the_ttl(t: Fixture) {
    let a = endpoint("a");
    let new = || with_chosen_retention(with_ttl(job("a"), 60_000));
    for (outcome, kept_ms) in [
        (Some(Outcome::Completed(json("1"))), 3_600_000),
        (Some(Outcome::Failed("no".to_owned())), MONTH_MS),
        (Some(Outcome::TimedOut), MONTH_MS),
        // The rest of the ttl.
        (None, 10_000),
    ] {
        let id = t.submit_job(new()).await;
        let lease = t.claim("a").await.lease;
        t.clock.advance(50_000);
        match outcome {
            Some(outcome) => drop(t.store.finish(lease, outcome).await.unwrap()),
            None => drop(t.store.cancel(&a, id).await.unwrap()),
        }
        let purge_at = t.store.now().plus_millis(kept_ms);
        assert_eq!(t.record("a", id).await.unwrap().purge_at, purge_at);
        t.clock.advance(kept_ms - 1);
        t.store.expire().await.unwrap();
        assert!(t.record("a", id).await.is_some());
        t.clock.advance(1);
        assert!(t.record("a", id).await.is_none());
        t.store.expire().await.unwrap();
        assert_eq!(t.store.stats().jobs, 0);
    }
    // A caller can still delete such a job early.
    let id = t.submit_job(new()).await;
    let lease = t.claim("a").await.lease;
    let _ = t.store.finish(lease, Outcome::Failed("no".to_owned())).await.unwrap();
    t.store.shorten_ttl(&a, id, 5_000).await.unwrap();
    assert_eq!(t.record("a", id).await.unwrap().purge_at, t.store.now().plus_millis(5_000));
}

async fn a_retry_of_an_old_job_begins_another_ttl(t: Fixture) {
    let a = endpoint("a");
    let id = t.submit_job(with_chosen_retention(with_ttl(job("a"), 60_000))).await;
    let lease = t.claim("a").await.lease;
    let _ = t.store.finish(lease, Outcome::Failed("no".to_owned())).await.unwrap();
    t.clock.advance(MONTH_MS - 1);
    assert_eq!(t.store.retry(&a, id, None).await, Ok(RetryAnswer::Queued));
    assert_eq!(t.record("a", id).await.unwrap().purge_at, t.store.now().plus_millis(60_000));
    let claimed = t.claim("a").await;
    assert_eq!(claimed.input, job("a").input, "the input is kept as long as the job");
    t.clock.advance(59_999);
    let _ = t.store.finish(claimed.lease, Outcome::Failed("no".to_owned())).await.unwrap();
    assert_eq!(t.record("a", id).await.unwrap().purge_at, t.store.now().plus_millis(MONTH_MS));
}

async fn a_ttl_is_shortened_and_never_lengthened(t: Fixture) {
    let a = endpoint("a");
    let id = t.submit("a").await;
    t.clock.advance(1_000);
    t.store.shorten_ttl(&endpoint("b"), id, 1).await.unwrap();
    t.store.shorten_ttl(&a, id, TTL_MS).await.unwrap();
    assert_eq!(t.record("a", id).await.unwrap().purge_at, START.plus_millis(TTL_MS));
    t.store.shorten_ttl(&a, id, 6_000).await.unwrap();
    let record = t.store.job(&a, id).await.unwrap().unwrap();
    assert_eq!(record.purge_at, START.plus_millis(7_000));
    t.store.shorten_ttl(&a, id, 60_000).await.unwrap();
    assert_eq!(t.record("a", id).await.unwrap().purge_at, START.plus_millis(7_000));
    assert_eq!(t.store.expire().await, Ok(NextExpiry(START.plus_millis(7_000))));
    t.store.shorten_ttl(&a, id, 0).await.unwrap();
    assert!(t.record("a", id).await.is_none());
    assert!(t.claim_many("a", 1).await.is_empty());
    t.store.shorten_ttl(&a, id, u64::MAX).await.unwrap();
}

async fn a_shortened_ttl_wins_over_a_chosen_retention(t: Fixture) {
    let a = endpoint("a");
    let failed = || Outcome::Failed("no".to_owned());
    // While the job waits, while it runs, after its end, and after a retry.
    for step in 0..4 {
        let id = t.submit_job(with_chosen_retention(with_ttl(job("a"), 60_000))).await;
        let ends_at = t.store.now().plus_millis(20_000);
        let shorten = async |at: i32| {
            if at == step {
                t.store.shorten_ttl(&a, id, 20_000).await.unwrap();
            }
        };
        shorten(0).await;
        let lease = t.claim("a").await.lease;
        shorten(1).await;
        let _ = t.store.finish(lease, failed()).await.unwrap();
        shorten(2).await;
        assert_eq!(t.store.retry(&a, id, None).await, Ok(RetryAnswer::Queued));
        shorten(3).await;
        assert_eq!(t.record("a", id).await.unwrap().purge_at, ends_at, "waiting, {step}");
        let lease = t.claim("a").await.lease;
        let _ = t.store.finish(lease, failed()).await.unwrap();
        assert_eq!(t.record("a", id).await.unwrap().purge_at, ends_at, "failed, {step}");
        t.clock.advance(20_000);
        assert!(t.record("a", id).await.is_none());
        t.store.expire().await.unwrap();
    }
}

async fn many_jobs_expire_in_slices(t: Fixture) {
    for _ in 0..1_100 {
        let (store, new) = (t.store.clone(), with_ttl(job("a"), 10_000));
        drop(tokio::spawn(async move { store.submit(new).await }));
    }
    while t.store.stats().jobs < 1_100 {
        tokio::task::yield_now().await;
    }
    t.clock.advance(10_000);
    let mut left = Vec::new();
    loop {
        let NextExpiry(next) = t.store.expire().await.unwrap();
        left.push(t.store.stats().jobs);
        if next > t.store.now() {
            break;
        }
    }
    assert_eq!(left, [600, 100, 0]);
}

async fn a_purge_removes_the_waiting_jobs(t: Fixture) {
    let a = endpoint("a");
    assert_eq!(t.store.purge(&a).await, Ok(0));
    let (running, done) = (t.submit("a").await, t.submit("a").await);
    let leases: Vec<_> = t.claim_many("a", 2).await.iter().map(|job| job.lease).collect();
    let _ = t.store.finish(leases[1], Outcome::Completed(json("1"))).await.unwrap();
    let waiting = [t.submit("a").await, t.submit_job(low_priority(job("a"))).await];
    let elsewhere = t.submit("b").await;
    assert_eq!(t.store.purge(&a).await, Ok(2));
    for id in waiting {
        assert!(t.store.job(&a, id).await.unwrap().is_none());
        assert_eq!(t.store.input(id).await, Ok(None));
        assert_eq!(t.store.cancel(&a, id).await, Ok(None));
    }
    assert_eq!(t.record("a", running).await.unwrap().status, JobStatus::InProgress);
    assert_eq!(t.record("a", done).await.unwrap().status, JobStatus::Completed);
    assert!(t.record("b", elsewhere).await.is_some());
    assert_eq!(t.store.purge(&a).await, Ok(0));
    let later = t.submit("a").await;
    assert_eq!(t.claim("a").await.lease.job, later);
    let finished = t.store.finish(leases[0], Outcome::Completed(json("1"))).await;
    assert_eq!(finished, Ok(Fenced::Applied));
}

async fn counts_follow_the_jobs(t: Fixture) {
    let a = endpoint("a");
    let counts = async |t: &Fixture| {
        t.flush().await;
        let c = t.store.counts(&a).await.unwrap();
        [c.in_queue, c.in_progress, c.completed, c.failed, c.retried]
    };
    assert_eq!(counts(&t).await, [0; 5]);
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(t.submit("a").await);
    }
    assert_eq!(counts(&t).await, [5, 0, 0, 0, 0]);
    let claimed = t.claim_many("a", 4).await;
    assert_eq!(counts(&t).await, [1, 4, 0, 0, 0]);
    let outcomes = [Outcome::Completed(json("1")), Outcome::Failed("x".into()), Outcome::TimedOut];
    for (claimed, outcome) in claimed.iter().zip(outcomes) {
        let _ = t.store.finish(claimed.lease, outcome).await.unwrap();
    }
    assert_eq!(counts(&t).await, [1, 1, 1, 2, 0], "timed out counts as failed");
    t.store.cancel(&a, ids[3]).await.unwrap();
    assert_eq!(counts(&t).await, [1, 0, 1, 2, 0]);
    t.store.retry(&a, ids[1], None).await.unwrap();
    assert_eq!(counts(&t).await, [2, 0, 1, 2, 1]);
    t.store.purge(&a).await.unwrap();
    assert_eq!(counts(&t).await, [0, 0, 1, 2, 1]);
}

async fn endpoints_do_not_see_each_other(t: Fixture) {
    let id = t.submit("a").await;
    let b = endpoint("b");
    assert!(t.store.job(&b, id).await.unwrap().is_none());
    assert!(t.claim_many("b", 1).await.is_empty());
    assert_eq!(t.store.purge(&b).await, Ok(0));
    assert_eq!(t.store.counts(&b).await.unwrap().in_queue, 0);
    assert!(t.record("a", id).await.is_some());
}

async fn a_full_queue_refuses(t: Fixture) {
    for _ in 0..QUEUE_JOBS_MAX {
        let store = t.store.clone();
        drop(tokio::spawn(async move { store.submit(job("a")).await }));
    }
    while t.store.stats().jobs < QUEUE_JOBS_MAX as u64 {
        tokio::task::yield_now().await;
    }
    let full = Err(StoreError::Full(StoreFull::Queue { limit: QUEUE_JOBS_MAX }));
    assert_eq!(t.store.submit(job("a")).await, full);
    assert_eq!(t.store.submit(low_priority(job("a"))).await, full);
    t.submit("b").await;
    t.claim("a").await;
    t.submit("a").await;
    assert_eq!(t.store.submit(job("a")).await, full);
}

async fn chunks_are_read_in_pages(t: Fixture) {
    let id = t.submit("a").await;
    let lease = t.claim("a").await.lease;
    let mut all = Vec::new();
    for n in 0..10 {
        let mut chunks = vec![chunk(&format!("\"{n:04}\"")), chunk("[]")];
        chunks[0].metrics = (n % 2 == 0).then(|| json(r#"{"t":1}"#));
        chunks[1].part = (n % 3 == 0).then_some(Part { index: n, count: 10 });
        all.extend(chunks.clone());
        assert_eq!(t.store.append_chunks(lease, chunks).await, Ok(Fenced::Applied));
        if n == 4 {
            t.flush().await;
        }
    }
    assert_eq!(t.record("a", id).await.unwrap().chunk_count, 20);
    let read = async |from, bytes_max, count_max| {
        let page = t.store.chunks(id, from, bytes_max, count_max).await.unwrap();
        assert_eq!(page.first, from);
        let from = usize::try_from(from).unwrap().min(20);
        assert_eq!(page.chunks, all[from..from + page.chunks.len()]);
        page.chunks.len()
    };
    for from in 0..20_u64 {
        let left = 20 - usize::try_from(from).unwrap();
        assert_eq!(read(from, usize::MAX, usize::MAX).await, left);
        assert_eq!(read(from, usize::MAX, 3).await, left.min(3));
        assert_eq!(read(from, 0, 3).await, 1, "at least one");
        assert_eq!(read(from, usize::MAX, 0).await, 1, "at least one");
        let bytes =
            all[20 - left..].iter().take(4).map(gristmill_core::job::record::Chunk::len).sum();
        assert_eq!(read(from, bytes, usize::MAX).await, left.min(4));
    }
    assert_eq!(read(20, 99, 99).await, 0);
    assert_eq!(t.store.chunks(id, 77, 99, 99).await.unwrap().next(), 77);
    let _ = t.store.finish(lease, Outcome::Completed(json("null"))).await.unwrap();
    assert_eq!(read(0, usize::MAX, usize::MAX).await, 20);
    let unknown = JobId::generate(SubmissionKind::Async, ShardId(7));
    assert!(t.store.chunks(unknown, 0, 99, 99).await.unwrap().chunks.is_empty());
}

async fn progress_lasts_as_long_as_its_attempt(t: Fixture) {
    let id = t.submit("a").await;
    let lease = t.claim("a").await.lease;
    for value in ["1", "2"] {
        assert_eq!(t.store.set_progress(lease, json(value)).await, Ok(Fenced::Applied));
        assert_eq!(t.record("a", id).await.unwrap().progress, Some(json(value)));
    }
    let _ = t.store.release(lease, ReleaseCause::Stopped).await.unwrap();
    assert_eq!(t.record("a", id).await.unwrap().progress, None);
    let lease = t.claim("a").await.lease;
    assert_eq!(t.record("a", id).await.unwrap().progress, None);
    let _ = t.store.set_progress(lease, json("3")).await.unwrap();
    let _ = t.store.finish(lease, Outcome::Completed(json("4"))).await.unwrap();
    assert_eq!(t.record("a", id).await.unwrap().progress, None);
}

async fn a_deleted_endpoint_is_forgotten(t: Fixture) {
    let a = endpoint("a");
    t.store.delete_endpoint(&a).await.unwrap();
    let (waiting, running, done) = (t.submit("a").await, t.submit("a").await, t.submit("a").await);
    let other = t.submit("b").await;
    let leases: Vec<_> = t.claim_many("a", 2).await.iter().map(|job| job.lease).collect();
    let _ = t.store.finish(leases[0], Outcome::Completed(json("1"))).await.unwrap();
    t.store.delete_endpoint(&a).await.unwrap();
    for id in [waiting, running, done] {
        assert!(t.store.job(&a, id).await.unwrap().is_none());
    }
    assert_eq!(t.store.counts(&a).await.unwrap(), Default::default());
    let late = t.store.finish(leases[1], Outcome::Completed(json("1"))).await;
    assert_eq!(late, Ok(Fenced::Stale));
    assert_eq!(t.store.stats().jobs, 1);
    assert!(t.record("b", other).await.is_some());
    // The name can be used again.
    let again = t.submit("a").await;
    assert_eq!(t.claim("a").await.lease.job, again);
    assert_eq!(t.store.expire().await, Ok(NextExpiry(START.plus_millis(TTL_MS))));
}

async fn the_next_endpoint_of_a_name_shows_nothing_of_a_deleted_one(t: Fixture) {
    let a = endpoint("a");
    // More than one slice of a deletion.
    let old = futures::future::join_all((0..1_400).map(|_| t.submit("a"))).await;
    let lease = t.claim("a").await.lease;
    let _ = t.store.finish(lease, Outcome::TimedOut).await.unwrap();
    t.store.forget_endpoints(std::slice::from_ref(&a));
    // The jobs are being removed.
    assert_eq!(t.store.counts(&a).await.unwrap(), Default::default());
    let new = t.submit("a").await;
    assert_eq!(t.store.counts(&a).await.unwrap().in_queue, 1);
    for id in &old {
        assert!(t.store.job(&a, *id).await.unwrap().is_none());
        assert_eq!(t.store.cancel(&a, *id).await, Ok(None));
        assert_eq!(t.store.retry(&a, *id, None).await, Ok(RetryAnswer::NotFound));
    }
    assert_eq!(t.claim_many("a", 9).await.len(), 1);
    t.store.await_deletion(&a).await.unwrap();
    assert_eq!(t.store.stats().jobs, 1);
    assert!(t.record("a", new).await.is_some(), "the deletion has left the next endpoint alone");
}

async fn watchers_are_notified(t: Fixture) {
    let new = job("a");
    let (id, a) = (new.id, endpoint("a"));
    let watch = t.signals.watch(id);
    let changed = watch.changed();
    t.submit_job(new).await;
    changed.await;
    let changed = watch.changed();
    let lease = t.claim("a").await.lease;
    changed.await;
    let changed = watch.changed();
    let _ = t.store.append_chunks(lease, vec![chunk("1")]).await.unwrap();
    changed.await;
    assert_eq!(t.store.job(&a, id).await.unwrap().unwrap().chunk_count, 1);
    let changed = watch.changed();
    let _ = t.store.set_progress(lease, json("1")).await.unwrap();
    changed.await;
    let changed = watch.changed();
    let _ = t.store.finish(lease, Outcome::Failed("x".into())).await.unwrap();
    changed.await;
    let changed = watch.changed();
    t.store.retry(&a, id, None).await.unwrap();
    changed.await;
    let changed = watch.changed();
    t.claim("a").await;
    changed.await;
    // A running attempt is notified of the end of its job's time.
    let changed = watch.changed();
    t.clock.advance(TTL_MS);
    t.store.expire().await.unwrap();
    changed.await;
    let purged = job("a");
    let watch = t.signals.watch(purged.id);
    t.submit_job(purged).await;
    let changed = watch.changed();
    t.store.purge(&a).await.unwrap();
    changed.await;
}

/// The last call for each endpoint, by version, whatever the order of the calls.
#[derive(Default)]
struct Demands(Mutex<HashMap<EndpointId, Demand>>);

impl QueueListener for Demands {
    fn demand_changed(&self, endpoint: &EndpointId, demand: Demand) {
        let mut newest = self.0.lock();
        let newest = newest.entry(endpoint.clone()).or_default();
        assert_ne!(newest.version, demand.version, "each change is told once");
        if demand.version > newest.version {
            *newest = demand;
        }
    }
}

/// After each call that changes a queue, the newest notification says what waits: after those that
/// add a job, and after those that remove one.
async fn each_change_of_a_queue_is_told_with_a_version(t: Fixture) {
    let listener = Arc::new(Demands::default());
    t.signals.set_queue_listener(listener.clone());
    let (a, store) = (endpoint("a"), t.store.clone());
    let versions = Mutex::new(vec![0]);
    let check = async |jobs: u64, claimable: u64| {
        let newest = eventually_told(&listener, &a, claimable).await;
        assert_eq!((newest.jobs, newest.claimable), (jobs, claimable));
        assert_eq!(store.demand(&a).await, Ok(newest), "a read has the same version");
        let mut versions = versions.lock();
        assert!(newest.version > *versions.last().unwrap(), "it grows");
        versions.push(newest.version);
    };
    // The answer of a claim has the demand.
    let claim = async || {
        let claimed = t.claim("a").await;
        listener.demand_changed(&a, claimed.left);
        claimed.lease
    };
    let first = t.submit("a").await;
    check(1, 1).await;
    let low = t.submit_job(low_priority(job("a"))).await;
    check(1, 2).await;
    t.store.note_call(low, CallStep::Begins);
    check(2, 2).await;
    t.store.note_call(low, CallStep::Ends);
    check(1, 2).await;
    let lease = claim().await;
    check(0, 1).await;
    let _ = t.store.release(lease, ReleaseCause::Stopped).await.unwrap();
    check(1, 2).await;
    let lease = claim().await;
    check(0, 1).await;
    let _ = t.store.host_lost(lease, HostLoss::Crash).await.unwrap();
    check(1, 2).await;
    let lease = claim().await;
    check(0, 1).await;
    let _ = t.store.finish(lease, Outcome::TimedOut).await.unwrap();
    t.store.retry(&a, first, None).await.unwrap();
    check(1, 2).await;
    t.store.cancel(&a, first).await.unwrap();
    check(0, 1).await;
    t.store.purge(&a).await.unwrap();
    check(0, 0).await;
    t.submit("a").await;
    check(1, 1).await;
    t.clock.advance(TTL_MS);
    t.store.expire().await.unwrap();
    check(0, 0).await;
    t.submit("a").await;
    check(1, 1).await;
    // The next endpoint of the name has a queue of its own, whose versions are greater.
    t.store.delete_endpoint(&a).await.unwrap();
    t.submit("a").await;
    check(1, 1).await;
    t.store.await_deletion(&a).await.unwrap();
    assert_eq!(t.store.demand(&a).await.unwrap().claimable, 1);
    assert_eq!(listener.0.lock().get(&a).map(|demand| demand.claimable), Some(1));
}

/// The newest demand, once `claimable` jobs wait: the notification may be later than the answer of
/// the call.
async fn eventually_told(listener: &Demands, endpoint: &EndpointId, claimable: u64) -> Demand {
    for _ in 0..10_000 {
        let newest = listener.0.lock().get(endpoint).copied().unwrap_or_default();
        if newest.claimable == claimable {
            return newest;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("not told: {:?}", listener.0.lock());
}

async fn a_closed_store_refuses(t: Fixture) {
    let a = endpoint("a");
    let id = t.submit("a").await;
    let lease = t.claim("a").await.lease;
    t.store.close().await;
    t.store.close().await;
    assert_eq!(t.store.submit(job("a")).await, Err(StoreError::Closed));
    assert_eq!(t.store.claim_each(&a, &[worker("w")]).await.err(), Some(StoreError::Closed));
    let chunks = vec![chunk("1")];
    assert_eq!(t.store.append_chunks(lease, chunks).await, Err(StoreError::Closed));
    assert_eq!(t.store.set_progress(lease, json("1")).await, Err(StoreError::Closed));
    assert_eq!(t.store.finish(lease, Outcome::TimedOut).await, Err(StoreError::Closed));
    assert_eq!(t.store.release(lease, ReleaseCause::Stopped).await, Err(StoreError::Closed));
    assert_eq!(t.store.cancel(&a, id).await, Err(StoreError::Closed));
    assert_eq!(t.store.retry(&a, id, None).await, Err(StoreError::Closed));
    assert_eq!(t.store.purge(&a).await, Err(StoreError::Closed));
    assert_eq!(t.store.expire().await, Err(StoreError::Closed));
    assert_eq!(t.store.job(&a, id).await.err(), Some(StoreError::Closed));
    assert_eq!(t.store.counts(&a).await, Err(StoreError::Closed));
    assert_eq!(t.store.write_catalog(vec![]).await, Err(StoreError::Closed));
}

async fn the_catalog_keeps_the_last_entry_put(t: Fixture) {
    let image = |name: &str, digit: char| {
        let digest: ComponentDigest = String::from(digit).repeat(64).parse().unwrap();
        let owner = OwnerId::new("owner").unwrap();
        let (name, tag) = (name.to_owned(), "latest".to_owned());
        CatalogEntry::Image(Image { name, tag, digest, owner, updated_at: START, manifest: None })
    };
    assert_eq!(t.store.load_catalog().await.unwrap(), []);
    let put = |entry: &CatalogEntry| CatalogChange::Put(entry.clone());
    let (x, y, newer_x) = (image("x", '1'), image("y", '2'), image("x", '3'));
    t.store.write_catalog(vec![put(&x), put(&y)]).await.unwrap();
    assert_eq!(t.store.load_catalog().await.unwrap(), [x, y.clone()]);
    let changes = vec![put(&newer_x), CatalogChange::Delete(y.key())];
    t.store.write_catalog(changes).await.unwrap();
    assert_eq!(t.store.load_catalog().await.unwrap(), std::slice::from_ref(&newer_x));
    t.store.write_catalog(vec![CatalogChange::Delete(y.key())]).await.unwrap();
    assert_eq!(t.store.load_catalog().await.unwrap(), [newer_x]);
}
