//! Actions on many jobs.

use gristmill_core::id::{JobActionId, KeyId, WorkerId};
use gristmill_core::job::action::{JobAction, JobActionKind, JobActionState, JobActionStore as _};
use gristmill_core::job::filter::JobFilter;
use gristmill_core::job::record::Outcome;
use gristmill_core::job::state::JobStatus;
use gristmill_core::store::{Fenced, JobStore as _};
use gristmill_test_support::{ClaimEach as _, EndAttempt as _};

use super::deletions::abandon;
use super::*;
use crate::NewJobAction;

/// Two owners with a key and an endpoint each: `a` and `b`.
async fn two_owners() -> (Bench, Arc<ApiKey>, Arc<ApiKey>) {
    let bench = Bench::new().await;
    let mut keys = vec![];
    for owner in ["a", "b"] {
        let key = bench.key(owner, Scope::Manage).await;
        bench.template(owner, owner, "i", false).await;
        bench.endpoint(&key, owner, owner).await.unwrap();
        keys.push(key);
    }
    (bench, keys.remove(0), keys.remove(0))
}

/// Ends the oldest waiting job of the endpoint.
async fn end(bench: &Bench, id: &str, outcome: Outcome) {
    let worker = WorkerId::new("w").unwrap();
    let claimed = bench.store.claim_each(&endpoint_id(id), &[worker]).await.unwrap();
    assert_eq!(bench.store.finish(claimed[0].lease, outcome).await, Ok(Fenced::Applied));
}

async fn failed_jobs(bench: &Bench, key: &ApiKey, id: &str, count: usize) -> Vec<JobId> {
    let mut jobs = vec![];
    for _ in 0..count {
        jobs.push(bench.submit(key, id).await);
        end(bench, id, Outcome::Failed("no".to_owned())).await;
    }
    jobs
}

/// Permits so many waiting jobs on endpoint `a`.
async fn let_wait(bench: &Bench, key: &Arc<ApiKey>, jobs: u64) {
    let patch = EndpointInput { max_waiting_jobs: Some(jobs), ..EndpointInput::default() };
    let id = endpoint_id("a");
    bench.control.endpoints.update(key, id, patch, Extent::Whole).await.unwrap();
}

fn new(kind: JobActionKind, endpoints: &[&str], statuses: &[JobStatus]) -> NewJobAction {
    NewJobAction {
        kind,
        filter: JobFilter { statuses: statuses.to_vec(), ..JobFilter::default() },
        endpoints: endpoints.iter().map(|id| endpoint_id(id)).collect(),
        names_endpoints: true,
    }
}

/// Waits until the action has ended. The pauses of an action take no time.
async fn ended(bench: &Bench, key: &ApiKey, action: &JobAction) -> JobAction {
    loop {
        let now = bench.control.job_actions.get(key, action.id.as_str()).unwrap();
        if now.state != JobActionState::Running {
            return now;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// Waits until the action has found no room.
async fn until_it_waits(bench: &Bench, key: &ApiKey, action: &JobAction) {
    while bench.control.job_actions.get(key, action.id.as_str()).unwrap().reason.is_none() {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// Clients must not see the end of an action that the next process would continue.
#[tokio::test(start_paused = true)]
async fn an_action_ends_once_its_end_is_recorded() {
    let (bench, a, _) = two_owners().await;
    failed_jobs(&bench, &a, "a", 1).await;
    // There is no room for its retry.
    let_wait(&bench, &a, 1).await;
    bench.submit(&a, "a").await;
    let actions = &bench.control.job_actions;
    let retry = new(JobActionKind::Retry, &["a"], &[JobStatus::Failed]);
    let action = actions.begin(&a, retry).await.unwrap();
    bench.actions.next_refused.store(4, SeqCst);
    let id = action.id.as_str();
    assert!(actions.abort(&a, id).await.is_err(), "it is not recorded");
    loop {
        let seen = actions.get(&a, id).unwrap().state;
        let recorded = bench.store.actions().await.unwrap().remove(0).state;
        assert!(seen == JobActionState::Running || seen == recorded, "{seen:?}, {recorded:?}");
        if seen == JobActionState::Aborted {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(bench.actions.next_refused.load(SeqCst), 0, "the end was recorded again and again");
}

async fn status(bench: &Bench, id: &str, job: JobId) -> Option<JobStatus> {
    bench.store.job(&endpoint_id(id), job).await.unwrap().map(|job| job.status)
}

fn counts(action: &JobAction) -> (JobActionState, [u64; 3]) {
    let counts = action.counts;
    (action.state, [counts.matched, counts.changed, counts.skipped])
}

#[tokio::test(start_paused = true)]
async fn each_operation_changes_the_jobs_that_match_and_no_others() {
    let (bench, a, b) = two_owners().await;
    let failed = failed_jobs(&bench, &a, "a", 600).await;
    let theirs = failed_jobs(&bench, &b, "b", 3).await;
    let actions = &bench.control.job_actions;
    let retry = new(JobActionKind::Retry, &["a"], &[JobStatus::Failed]);
    let retry = actions.begin(&a, retry).await.unwrap();
    assert_eq!(
        counts(&ended(&bench, &a, &retry).await),
        (JobActionState::Completed, [600, 600, 0])
    );
    for job in &failed {
        assert_eq!(status(&bench, "a", *job).await, Some(JobStatus::InQueue));
    }
    assert_eq!(status(&bench, "b", theirs[0]).await, Some(JobStatus::Failed));

    end(&bench, "a", Outcome::Failed("again".to_owned())).await;
    let cancel = actions.begin(&a, new(JobActionKind::Cancel, &["a"], &[])).await.unwrap();
    let ended_cancel = ended(&bench, &a, &cancel).await;
    assert_eq!(counts(&ended_cancel), (JobActionState::Completed, [600, 599, 1]));
    assert_eq!(bench.store.counts(&endpoint_id("a")).await.unwrap().in_queue, 0);

    let waiting = bench.submit(&a, "a").await;
    let delete = actions.begin(&a, new(JobActionKind::Delete, &["a"], &[])).await.unwrap();
    assert_eq!(
        counts(&ended(&bench, &a, &delete).await),
        (JobActionState::Completed, [601, 600, 1])
    );
    assert_eq!(status(&bench, "a", waiting).await, Some(JobStatus::InQueue));
    assert_eq!(status(&bench, "a", failed[599]).await, None);
    assert_eq!(status(&bench, "b", theirs[2]).await, Some(JobStatus::Failed));
}

#[tokio::test(start_paused = true)]
async fn an_owner_sees_its_own_actions_only() {
    let (bench, a, b) = two_owners().await;
    let admin = bench.key("default", Scope::Admin).await;
    let actions = &bench.control.job_actions;
    let begun = actions.begin(&a, new(JobActionKind::Delete, &["a"], &[])).await.unwrap();
    assert_eq!(actions.list(&b), []);
    let id = begun.id.as_str();
    for refused in [actions.get(&b, id).map(drop), actions.abort(&b, id).await] {
        let refused = refused.unwrap_err();
        assert!(
            matches!(&refused, ControlError::NotFound { what: "job action", name } if name == id),
            "{refused:?}"
        );
    }
    assert!(actions.get(&a, "no such/id").is_err());
    assert_eq!((actions.list(&a).len(), actions.list(&admin).len()), (1, 1));
    assert_eq!(actions.get(&admin, id).unwrap().owner, owner_id("a"));
}

/// A full queue does not end an action: it waits until there is room.
#[tokio::test(start_paused = true)]
async fn an_action_waits_while_the_queue_is_full() {
    let (bench, a, _) = two_owners().await;
    let jobs = failed_jobs(&bench, &a, "a", 5).await;
    let_wait(&bench, &a, 2).await;
    let retry = new(JobActionKind::Retry, &["a"], &[JobStatus::Failed]);
    let retry = bench.control.job_actions.begin(&a, retry).await.unwrap();
    let waiting = loop {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        let now = bench.control.job_actions.get(&a, retry.id.as_str()).unwrap();
        if now.counts.changed == 2 && now.reason.is_some() {
            break now;
        }
    };
    assert_eq!(waiting.reason.as_deref(), Some("the queue is full: 2 jobs wait on this endpoint"));
    assert_eq!(counts(&waiting), (JobActionState::Running, [5, 2, 0]));
    for _ in 0..5 {
        while bench.store.counts(&endpoint_id("a")).await.unwrap().in_queue == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        end(&bench, "a", Outcome::Completed(Json::null())).await;
    }
    let done = ended(&bench, &a, &retry).await;
    assert_eq!(counts(&done), (JobActionState::Completed, [5, 5, 0]));
    assert_eq!(done.reason, None);
    for job in jobs {
        assert_eq!(status(&bench, "a", job).await, Some(JobStatus::Completed));
    }
}

#[tokio::test(start_paused = true)]
async fn an_aborted_action_ends_and_so_does_that_of_a_revoked_key() {
    let (bench, a, _) = two_owners().await;
    failed_jobs(&bench, &a, "a", 5).await;
    let_wait(&bench, &a, 1).await;
    let actions = &bench.control.job_actions;
    let retry = || new(JobActionKind::Retry, &["a"], &[JobStatus::Failed]);
    let aborted = actions.begin(&a, retry()).await.unwrap();
    actions.abort(&a, aborted.id.as_str()).await.unwrap();
    let aborted = ended(&bench, &a, &aborted).await;
    let reason = aborted.reason.as_deref();
    assert_eq!((aborted.state, reason), (JobActionState::Aborted, Some("a client aborted it")));
    // The abort of an action that has ended changes nothing.
    actions.abort(&a, aborted.id.as_str()).await.unwrap();
    assert_eq!(actions.get(&a, aborted.id.as_str()).unwrap(), aborted);

    let other = bench.key("a", Scope::Manage).await;
    let revoked = actions.begin(&other, retry()).await.unwrap();
    let admin = bench.key("default", Scope::Admin).await;
    bench.control.keys.revoke(&admin, other.id.as_str()).await.unwrap();
    let revoked = ended(&bench, &a, &revoked).await;
    assert_eq!(revoked.state, JobActionState::Aborted);
    assert!(revoked.reason.as_deref().unwrap().contains("was revoked"), "{revoked:?}");
    let refused = actions.begin(&other, retry()).await;
    assert!(matches!(refused, Err(ControlError::KeyEnded)), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn an_owner_has_four_running_actions_and_keeps_the_newest_fifty() {
    let (bench, a, b) = two_owners().await;
    failed_jobs(&bench, &a, "a", 2).await;
    let_wait(&bench, &a, 1).await;
    bench.submit(&a, "a").await;
    let actions = &bench.control.job_actions;
    let mut running = vec![];
    for _ in 0..4 {
        let retry = new(JobActionKind::Retry, &["a"], &[JobStatus::Failed]);
        running.push(actions.begin(&a, retry).await.unwrap());
    }
    let delete = || new(JobActionKind::Delete, &["a"], &[JobStatus::TimedOut]);
    let refused = actions.begin(&a, delete()).await;
    assert!(matches!(refused, Err(ControlError::Conflict(_))), "{refused:?}");
    // Another owner may begin.
    actions.begin(&b, new(JobActionKind::Delete, &["b"], &[])).await.unwrap();
    actions.abort(&a, running[0].id.as_str()).await.unwrap();
    let first = ended(&bench, &a, &running[0]).await;
    for _ in 0..60 {
        bench.clock.advance(1);
        let begun = actions.begin(&a, delete()).await.unwrap();
        ended(&bench, &a, &begun).await;
    }
    assert_eq!(actions.list(&a).len(), 50);
    assert!(actions.get(&a, first.id.as_str()).is_err(), "the oldest that has ended is deleted");
    let kept = actions.get(&a, running[3].id.as_str()).unwrap();
    assert_eq!(kept.state, JobActionState::Running);
    assert_eq!(actions.list(&b).len(), 1);
}

/// An endpoint that is created again under the same id keeps its jobs.
#[tokio::test(start_paused = true)]
async fn an_action_leaves_out_the_next_endpoint_with_the_same_id() {
    let (bench, a, _) = two_owners().await;
    failed_jobs(&bench, &a, "a", 2).await;
    let_wait(&bench, &a, 1).await;
    bench.submit(&a, "a").await;
    let actions = &bench.control.job_actions;
    let retry = new(JobActionKind::Retry, &["a"], &[JobStatus::Failed]);
    let retry = actions.begin(&a, retry).await.unwrap();
    until_it_waits(&bench, &a, &retry).await;
    bench.control.endpoints.delete(&a, endpoint_id("a")).await.unwrap();
    bench.endpoint(&a, "a", "a").await.unwrap();
    let next = failed_jobs(&bench, &a, "a", 1).await;
    let done = ended(&bench, &a, &retry).await;
    assert_eq!(counts(&done), (JobActionState::Completed, [2, 0, 2]));
    assert_eq!(status(&bench, "a", next[0]).await, Some(JobStatus::Failed));
}

/// A running action continues after a restart, and leaves out jobs that were submitted after its
/// begin.
#[tokio::test(start_paused = true)]
async fn a_running_action_continues_in_the_next_process() {
    let (bench, a, _) = two_owners().await;
    let jobs = failed_jobs(&bench, &a, "a", 3).await;
    let_wait(&bench, &a, 1).await;
    let retry = new(JobActionKind::Retry, &["a"], &[JobStatus::Failed]);
    let retry = bench.control.job_actions.begin(&a, retry).await.unwrap();
    let aborted = new(JobActionKind::Retry, &["a"], &[JobStatus::Failed]);
    let aborted = bench.control.job_actions.begin(&a, aborted).await.unwrap();
    bench.control.job_actions.abort(&a, aborted.id.as_str()).await.unwrap();
    until_it_waits(&bench, &a, &retry).await;
    // The next process has the same records, and no tasks.
    bench.clock.advance(1_000);
    let bench = bench.restarted().await;
    let (id, key) = (JobActionId::new("lost").unwrap(), KeyId::new("revoked").unwrap());
    let lost = JobAction { id, key, ..retry.clone() };
    bench.store.put_action(lost.clone()).await.unwrap();
    end(&bench, "a", Outcome::Completed(Json::null())).await;
    let later = failed_jobs(&bench, &a, "a", 1).await[0];
    bench.control.job_actions.resume().await.unwrap();
    let lost = ended(&bench, &a, &lost).await;
    assert_eq!(lost.state, JobActionState::Aborted, "its key is not valid any more");
    assert_eq!(ended(&bench, &a, &aborted).await.state, JobActionState::Aborted);
    loop {
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        if bench.store.counts(&endpoint_id("a")).await.unwrap().in_queue == 0 {
            break;
        }
        end(&bench, "a", Outcome::Completed(Json::null())).await;
    }
    let done = ended(&bench, &a, &retry).await;
    assert_eq!(done.state, JobActionState::Completed);
    for job in jobs {
        assert_eq!(status(&bench, "a", job).await, Some(JobStatus::Completed));
    }
    assert_eq!(status(&bench, "a", later).await, Some(JobStatus::Failed));
}

/// The records of the action and its task must not part: it could not be aborted, and the next
/// process would carry it out.
#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_does_not_split_the_begin_of_an_action() {
    let (bench, a, _) = two_owners().await;
    let job = failed_jobs(&bench, &a, "a", 1).await[0];
    abandon(bench.control.job_actions.begin(&a, new(JobActionKind::Delete, &["a"], &[]))).await;
    let begun = loop {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        if let [action] = &*bench.control.job_actions.list(&a) {
            break action.clone();
        }
    };
    assert_eq!(counts(&ended(&bench, &a, &begun).await), (JobActionState::Completed, [1, 1, 0]));
    assert_eq!(status(&bench, "a", job).await, None);
}

/// The record of such an action may be in the database.
#[tokio::test(start_paused = true)]
async fn an_action_whose_begin_may_be_stored_ends_without_a_change() {
    let (bench, a, _) = two_owners().await;
    let job = failed_jobs(&bench, &a, "a", 1).await[0];
    let actions = &bench.control.job_actions;
    bench.actions.next_refused.store(3, SeqCst);
    let refused = actions.begin(&a, new(JobActionKind::Delete, &["a"], &[])).await;
    assert!(matches!(refused, Err(ControlError::Store(StoreError::Unavailable))), "{refused:?}");
    let left = actions.list(&a).remove(0);
    let left = ended(&bench, &a, &left).await;
    assert_eq!(counts(&left), (JobActionState::Aborted, [0, 0, 0]));
    assert_eq!(left.reason.as_deref(), Some("its begin could not be recorded"));
    assert_eq!(bench.store.actions().await.unwrap(), [left]);
    assert_eq!(status(&bench, "a", job).await, Some(JobStatus::Failed));
}

#[tokio::test(start_paused = true)]
async fn an_action_waits_while_the_database_is_away() {
    let (bench, a, _) = two_owners().await;
    failed_jobs(&bench, &a, "a", 3_000).await;
    let actions = &bench.control.job_actions;
    let action = actions.begin(&a, new(JobActionKind::Delete, &["a"], &[])).await.unwrap();
    let now = || actions.get(&a, action.id.as_str()).unwrap();
    while now().counts.changed == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    bench.store.set_away(true);
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(
        (now().state, now().reason),
        (JobActionState::Running, Some(StoreError::Unavailable.to_string()))
    );
    bench.store.set_away(false);
    let done = ended(&bench, &a, &action).await;
    assert_eq!(
        (counts(&done), done.reason),
        ((JobActionState::Completed, [3_000, 3_000, 0]), None)
    );
}

/// Other actions may have their turns before the first page, so that jobs are submitted meanwhile.
#[tokio::test(start_paused = true)]
async fn an_action_examines_the_jobs_that_were_submitted_before_it_began_and_no_others() {
    let (bench, a, b) = two_owners().await;
    failed_jobs(&bench, &b, "b", 2_000).await;
    let actions = &bench.control.job_actions;
    let long = actions.begin(&b, new(JobActionKind::Retry, &["b"], &[JobStatus::Failed])).await;
    let before = bench.submit(&a, "a").await;
    let cancel = actions.begin(&a, new(JobActionKind::Cancel, &["a"], &[])).await.unwrap();
    let after = bench.submit(&a, "a").await;
    let begun = actions.get(&a, cancel.id.as_str()).unwrap();
    assert_eq!(counts(&begun), (JobActionState::Running, [0, 0, 0]), "the other one has its turn");
    assert_eq!(counts(&ended(&bench, &a, &cancel).await), (JobActionState::Completed, [1, 1, 0]));
    assert_eq!(status(&bench, "a", before).await, Some(JobStatus::Cancelled));
    assert_eq!(status(&bench, "a", after).await, Some(JobStatus::InQueue));
    ended(&bench, &b, &long.unwrap()).await;
}
