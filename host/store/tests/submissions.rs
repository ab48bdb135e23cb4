//! The contract of both stores about duplicate submissions and lists. No test sleeps.

use crate::support::fixture::{Fixture, contract};
use crate::support::{QUEUE_JOBS_MAX, TTL_MS, endpoint, job};
use gristmill_core::id::{JobId, OwnerId};
use gristmill_core::job::idempotency::{Idempotency, KEY_LIFETIME_MS};
use gristmill_core::job::listing::JobQuery;
use gristmill_core::job::record::{NewJob, Outcome};
use gristmill_core::job::state::JobStatus;
use gristmill_core::store::{RetryAnswer, StoreError, StoreFull, SubmitAnswer};
use gristmill_test_support::EndAttempt as _;

contract!(
    a_repeated_submission_is_the_same_job,
    a_key_belongs_to_one_submission,
    an_idempotency_key_outlives_its_job,
    a_key_is_forgotten_after_its_time_and_with_its_endpoint,
    keys_are_forgotten_after_a_clock_that_was_ahead_is_right_again,
    a_full_queue_still_answers_repeated_submissions,
    submissions_at_one_time_make_one_job,
    a_repeated_submission_is_found_without_submitting_it,
    a_retry_waits_within_the_bounds_of_submissions,
    jobs_are_listed_newest_first_in_pages,
    a_list_shows_one_status_of_one_endpoint,
);

fn with_key(key: &str, body: &str) -> NewJob {
    let owner = OwnerId::new("owner").unwrap();
    let idempotency = Some(Idempotency::new(&owner, key, "run", body.as_bytes()));
    NewJob { idempotency, ..job("a") }
}

async fn list(t: &Fixture, query: JobQuery) -> (Vec<JobId>, Option<JobQuery>) {
    t.flush().await;
    let page = t.store.list(&endpoint("a"), &query).await.unwrap();
    let next = page.next.map(|after| JobQuery { after: Some(after), ..query });
    (page.jobs.iter().map(|job| job.id).collect(), next)
}

async fn a_repeated_submission_is_the_same_job(t: Fixture) {
    let first = with_key("k", "{}");
    assert_eq!(t.store.submit(first.clone()).await, Ok(SubmitAnswer::Queued));
    assert_eq!(t.store.submit(with_key("k", "{}")).await, Ok(SubmitAnswer::Repeated(first.id)));
    let lease = t.claim("a").await.lease;
    let _ = t.store.finish(lease, Outcome::Failed("no".into())).await.unwrap();
    assert_eq!(t.store.submit(with_key("k", "{}")).await, Ok(SubmitAnswer::Repeated(first.id)));
    assert!(t.claim_many("a", 9).await.is_empty());
}

async fn a_key_belongs_to_one_submission(t: Fixture) {
    t.submit_job(with_key("k", "{}")).await;
    assert_eq!(t.store.submit(with_key("k", "{ }")).await, Ok(SubmitAnswer::KeyReused));
    t.submit_job(with_key("l", "{ }")).await;
    // Another endpoint has separate keys.
    t.submit_job(NewJob { endpoint: endpoint("b"), ..with_key("k", "{ }") }).await;
    assert_eq!(t.claim_many("a", 9).await.len(), 2);
}

async fn an_idempotency_key_outlives_its_job(t: Fixture) {
    let id = t.submit_job(with_key("k", "{}")).await;
    assert_eq!(t.store.purge(&endpoint("a")).await, Ok(1));
    assert_eq!(t.store.submit(with_key("k", "{}")).await, Ok(SubmitAnswer::Repeated(id)));
    assert_eq!(t.store.counts(&endpoint("a")).await.unwrap().in_queue, 0);
}

async fn a_key_is_forgotten_after_its_time_and_with_its_endpoint(t: Fixture) {
    let first = t.submit_job(with_key("k", "{}")).await;
    t.clock.advance(KEY_LIFETIME_MS - 1);
    let next = t.store.expire().await.unwrap().0;
    assert_eq!(next, t.store.now().plus_millis(1));
    assert_eq!(t.store.submit(with_key("k", "{}")).await, Ok(SubmitAnswer::Repeated(first)));
    t.clock.advance(1);
    t.store.expire().await.unwrap();
    let second = t.submit_job(with_key("k", "{ }")).await;
    assert_eq!(t.store.submit(with_key("k", "{ }")).await, Ok(SubmitAnswer::Repeated(second)));
    t.store.delete_endpoint(&endpoint("a")).await.unwrap();
    t.submit_job(with_key("k", "{}")).await;
}

async fn keys_are_forgotten_after_a_clock_that_was_ahead_is_right_again(t: Fixture) {
    const YEAR_MS: i64 = 365 * 86_400_000;
    t.clock.jump(YEAR_MS);
    let ahead = t.submit_job(with_key("k", "{}")).await;
    t.submit_job(with_key("l", "{}")).await;
    t.clock.jump(-YEAR_MS);
    t.submit_job(with_key("m", "{}")).await;
    let next = t.store.expire().await.unwrap().0;
    assert!(next <= t.store.now().plus_millis(KEY_LIFETIME_MS), "{next:?}");
    t.clock.advance(KEY_LIFETIME_MS - 1);
    t.store.expire().await.unwrap();
    assert_eq!(t.store.submit(with_key("k", "{}")).await, Ok(SubmitAnswer::Repeated(ahead)));
    t.clock.advance(1);
    t.store.expire().await.unwrap();
    for key in ["k", "l", "m"] {
        t.submit_job(with_key(key, "{ }")).await;
    }
}

async fn a_full_queue_still_answers_repeated_submissions(t: Fixture) {
    let first = t.submit_job(with_key("k", "{}")).await;
    for _ in 1..QUEUE_JOBS_MAX {
        t.submit("a").await;
    }
    let full = Err(StoreError::Full(StoreFull::Queue { limit: QUEUE_JOBS_MAX }));
    assert_eq!(t.store.submit(with_key("l", "{}")).await, full);
    assert_eq!(t.store.submit(with_key("k", "{}")).await, Ok(SubmitAnswer::Repeated(first)));
    t.store.purge(&endpoint("a")).await.unwrap();
    // A refused submission is not recorded.
    t.submit_job(with_key("l", "{ }")).await;
}

async fn a_repeated_submission_is_found_without_submitting_it(t: Fixture) {
    let found = async |id: &str, key: &str, body: &str| {
        let idempotency = with_key(key, body).idempotency.unwrap();
        t.store.find_repeated(&endpoint(id), idempotency).await.unwrap()
    };
    assert_eq!(found("a", "k", "{}").await, None);
    let first = t.submit_job(with_key("k", "{}")).await;
    assert_eq!(found("a", "k", "{}").await, Some(SubmitAnswer::Repeated(first)));
    assert_eq!(found("a", "k", "{ }").await, Some(SubmitAnswer::KeyReused));
    assert_eq!((found("a", "l", "{}").await, found("b", "k", "{}").await), (None, None));
    // It adds no job and no key.
    assert_eq!(t.claim_many("a", 9).await.len(), 1);
    t.submit_job(with_key("l", "{ }")).await;
    t.clock.advance(KEY_LIFETIME_MS);
    t.store.expire().await.unwrap();
    assert_eq!(found("a", "k", "{}").await, None);
}

async fn submissions_at_one_time_make_one_job(t: Fixture) {
    for n in 0..20 {
        let submit = |_| {
            let (store, job) = (t.store.clone(), with_key(&n.to_string(), "{}"));
            tokio::spawn(async move {
                let id = job.id;
                match store.submit(job).await.unwrap() {
                    SubmitAnswer::Queued | SubmitAnswer::Completed(_) => id,
                    SubmitAnswer::Repeated(first) => {
                        // A duplicate submission is answered only when its job can be found.
                        assert!(store.job(&endpoint("a"), first).await.unwrap().is_some());
                        first
                    }
                    SubmitAnswer::KeyReused => unreachable!("the bodies are the same"),
                }
            })
        };
        let answers = futures::future::join_all((0..8).map(submit)).await;
        let ids: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        assert_eq!(t.claim_many("a", 9).await.len(), 1);
    }
}

async fn a_retry_waits_within_the_bounds_of_submissions(t: Fixture) {
    let mut failed = Vec::new();
    for _ in 0..4 {
        failed.push(t.submit("a").await);
        let lease = t.claim("a").await.lease;
        let _ = t.store.finish(lease, Outcome::Failed("no".into())).await.unwrap();
    }
    let retry = async |n: usize, max| t.store.retry(&endpoint("a"), failed[n], max).await;
    // The endpoint's own bound.
    assert_eq!(retry(0, Some(2)).await, Ok(RetryAnswer::Queued));
    assert_eq!(retry(1, Some(2)).await, Ok(RetryAnswer::Queued));
    assert_eq!(retry(2, Some(2)).await, Err(StoreError::Full(StoreFull::Queue { limit: 2 })));
    let job = t.record("a", failed[2]).await.unwrap();
    assert_eq!((job.status, job.error.as_deref()), (JobStatus::Failed, Some("no")), "as it was");
    let waits = Ok(RetryAnswer::WrongStatus(JobStatus::InQueue));
    assert_eq!(retry(0, Some(2)).await, waits, "the status comes before the bound");
    // The store's bound, which holds without the endpoint's and beyond it.
    for _ in 2..QUEUE_JOBS_MAX {
        t.submit("a").await;
    }
    for max in [None, Some(u32::MAX)] {
        let full = Err(StoreError::Full(StoreFull::Queue { limit: QUEUE_JOBS_MAX }));
        assert_eq!(retry(2, max).await, full);
    }
    t.claim("a").await;
    assert_eq!(retry(2, None).await, Ok(RetryAnswer::Queued));
}

async fn jobs_are_listed_newest_first_in_pages(t: Fixture) {
    let query = JobQuery { count_max: 2, ..JobQuery::default() };
    assert_eq!(list(&t, query).await, (vec![], None));
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(t.submit("a").await);
    }
    let (page, next) = list(&t, query).await;
    assert_eq!(page, [ids[4], ids[3]]);
    // Jobs that arrive meanwhile are on none of the next pages; deleted jobs are missing.
    t.submit("a").await;
    t.store.shorten_ttl(&endpoint("a"), ids[1], 0).await.unwrap();
    t.clock.advance(1);
    let (page, next) = list(&t, next.unwrap()).await;
    assert_eq!(page, [ids[2], ids[0]]);
    assert_eq!(next, None);
    t.clock.advance(TTL_MS);
    assert_eq!(list(&t, query).await.0, []);
}

async fn a_list_shows_one_status_of_one_endpoint(t: Fixture) {
    let (done, waiting) = (t.submit("a").await, t.submit("a").await);
    t.submit("b").await;
    let lease = t.claim("a").await.lease;
    let _ = t.store.finish(lease, Outcome::TimedOut).await.unwrap();
    let of = async |status| list(&t, JobQuery { status, after: None, count_max: 9 }).await.0;
    assert_eq!(of(None).await, [waiting, done]);
    assert_eq!(of(Some(JobStatus::TimedOut)).await, [done]);
    assert_eq!(of(Some(JobStatus::InQueue)).await, [waiting]);
    assert_eq!(of(Some(JobStatus::Completed)).await, []);
    t.store.retry(&endpoint("a"), done, None).await.unwrap();
    assert_eq!(of(None).await, [waiting, done], "the order is that of the submissions");
}
