//! Jobs that have ended, in memory and archived.

use gristmill_core::id::JobId;
use gristmill_core::job::listing::JobQuery;
use gristmill_core::job::record::{NewJob, Outcome};
use gristmill_core::job::state::JobStatus;
use gristmill_core::store::{Fenced, JobStore as _};
use gristmill_test_support::{ClaimEach as _, EndAttempt as _};

use super::on_disk::OnDisk;
use super::{endpoint, job, json, submit, worker};

/// Runs a job of endpoint `a` to this end.
pub(crate) async fn ended(t: &OnDisk, new: NewJob, outcome: Outcome) -> JobId {
    let name = new.endpoint.clone();
    let id = submit(t.store(), new).await;
    let claimed = t.store().claim_each(&name, &[worker("w")]).await.unwrap();
    let lease = claimed.iter().find(|claimed| claimed.lease.job == id).unwrap().lease;
    assert_eq!(t.store().finish(lease, outcome).await, Ok(Fenced::Applied));
    id
}

/// Waits until so many jobs have left memory: changes of another endpoint end the segment that they
/// are in.
pub(crate) async fn until_archived(t: &OnDisk, count: u64) {
    for _ in 0..10_000 {
        if t.store().archived_jobs() >= count {
            return;
        }
        let chaff = submit(t.store(), job("chaff")).await;
        t.store().cancel(&endpoint("chaff"), chaff).await.unwrap();
        t.store().delete_endpoint(&endpoint("chaff")).await.unwrap();
    }
    panic!("{} of {count} jobs are archived", t.store().archived_jobs());
}

pub(crate) fn completed(text: &str) -> Outcome {
    Outcome::Completed(json(text))
}

pub(crate) fn failed() -> Outcome {
    Outcome::Failed("no".to_owned())
}

pub(crate) async fn listed(
    t: &OnDisk,
    name: &str,
    status: Option<JobStatus>,
    count_max: usize,
) -> Vec<JobId> {
    let mut query = JobQuery { status, count_max, ..JobQuery::default() };
    let mut found = Vec::new();
    loop {
        let page = t.store().list(&endpoint(name), &query).await.unwrap();
        found.extend(page.jobs.iter().map(|job| job.id));
        query.after = page.next;
        if page.next.is_none() {
            return found;
        }
    }
}
