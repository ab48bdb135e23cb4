//! Deletions of ended jobs before the end of their retention: those beyond the bounds of an
//! endpoint's history, and those that a client deletes. The contract suite has what all stores
//! promise; these are the order and the size of the steps, and archived jobs.

use gristmill_core::job::retention::HistoryMax;
use gristmill_core::store::JobStore as _;

use crate::support::ended::{completed, ended, failed, listed, until_archived};
use crate::support::on_disk::OnDisk;
use crate::support::{archiving_at_once, endpoint, job, settings, submit};

/// The bounds of a history: archived jobs are deleted in the order of their submission, also in
/// more than one slice, and before jobs in memory. A job that has just ended stays.
#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_archived_jobs_beyond_the_bounds_of_a_history_are_deleted() {
    let t = OnDisk::new(archiving_at_once());
    let mut archived = vec![];
    for n in 0..600 {
        let outcome = if n % 3 == 0 { failed() } else { completed("12345") };
        archived.push(ended(&t, job("a"), outcome).await);
    }
    until_archived(&t, 600).await;
    t.clock.advance(HistoryMax::SPARED_MS);
    let newest = ended(&t, job("a"), completed("12345")).await;
    let trim = async |jobs, bytes| {
        t.store().trim_history(&endpoint("a"), HistoryMax { jobs, bytes }).await.unwrap();
    };
    trim(Some(11), None).await;
    let left = listed(&t, "a", None, 100).await;
    let expected: Vec<_> =
        [newest].into_iter().chain(archived[590..].iter().rev().copied()).collect();
    assert_eq!(left, expected);
    // A completed job keeps 5 bytes, a failed one its 7 of input, and the newest is spared.
    trim(None, Some(5)).await;
    assert_eq!(listed(&t, "a", None, 100).await, [newest]);
    trim(Some(0), None).await;
    assert_eq!(listed(&t, "a", None, 100).await, [newest]);
    t.clock.advance(HistoryMax::SPARED_MS);
    trim(Some(0), None).await;
    assert_eq!(listed(&t, "a", None, 100).await, []);
    assert_eq!(t.store().archived_jobs(), 0);
}

/// Jobs in memory leave a history in the order of their submission, also when there are more than
/// one slice examines; and jobs that have not ended stay.
#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_jobs_in_memory_beyond_the_bounds_of_a_history_are_deleted() {
    let t = OnDisk::new(settings());
    let mut ended = vec![];
    for n in 0..2_500 {
        let id = submit(t.store(), job("a")).await;
        if n % 5 != 0 {
            t.store().cancel(&endpoint("a"), id).await.unwrap();
            ended.push(id);
        }
    }
    t.clock.advance(HistoryMax::SPARED_MS);
    let max = HistoryMax { jobs: Some(100), bytes: None };
    t.store().trim_history(&endpoint("a"), max).await.unwrap();
    for (n, id) in ended.iter().enumerate() {
        let found = t.store().job(&endpoint("a"), *id).await.unwrap();
        assert_eq!(found.is_some(), n >= ended.len() - 100, "{n}");
    }
    assert_eq!(t.store().counts(&endpoint("a")).await.unwrap().in_queue, 500);
}

/// Jobs in memory and in the tables are deleted in one call, also while others leave memory, and
/// stay deleted after a start.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_in_memory_and_archived_jobs_are_deleted_together() {
    let mut t = OnDisk::new(archiving_at_once());
    let mut ids = vec![];
    for n in 0..300 {
        let outcome = if n % 3 == 0 { failed() } else { completed("12345") };
        ids.push(ended(&t, job("a"), outcome).await);
    }
    until_archived(&t, 300).await;
    for _ in 0..20 {
        ids.push(ended(&t, job("a"), completed("12345")).await);
    }
    // This one comes back to memory, and waits.
    t.store().retry(&endpoint("a"), ids[0], None).await.unwrap();
    let (newest, kept) = (ids[319], ids[7]);
    let deleted: Vec<_> = ids[..319].iter().copied().filter(|id| *id != kept).collect();
    let calls = deleted
        .chunks(100)
        .map(|part| async { t.store().delete_ended(&endpoint("a"), part).await });
    let counts = futures::future::try_join_all(calls).await.unwrap();
    assert_eq!(counts.iter().sum::<u64>(), 317);
    t.restart();
    assert_eq!(listed(&t, "a", None, 100).await, [newest, kept, ids[0]]);
}
