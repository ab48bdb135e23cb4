//! The bounds of the store's memory, batches and disk, as its callers see them.

use std::sync::Arc;

use crate::support;
use crate::support::on_disk::OnDisk;
use crate::support::postgres::Database;
use crate::support::{START, chunk, endpoint, job, json, submit, worker};
use gristmill_core::billing::usage::{Bill, Hour, OWNER_ROWS_MAX, UsageFilter, UsageStore};
use gristmill_core::id::{JobId, OwnerId, TemplateId};
use gristmill_core::job::listing::JobQuery;
use gristmill_core::job::record::{Chunk, Lease, NewJob, Outcome};
use gristmill_core::job::state::{JobStatus, ReleaseCause};
use gristmill_core::job::tags::Tags;
use gristmill_core::limits::CRASHES_MAX;
use gristmill_core::sharing::disk_share::DiskAccount;
use gristmill_core::sharing::disk_space::{DiskSpaceGauge, Shortage};
use gristmill_core::sharing::tenancy::Tenancy;
use gristmill_core::store::{Fenced, JobStore, RetryAnswer, StoreError, StoreFull};
use gristmill_core::time::ManualClock;
use gristmill_core::trace::{TraceContext, TraceState};
use gristmill_core::webhook::delivery::{
    AfterAttempt, DeliveryOutcome, DeliveryState, DeliveryStore,
};
use gristmill_store::{Settings, Store};
use gristmill_test_support::{ClaimEach as _, EndAttempt as _};

/// The next start sets jobs that ran in three crashes to FAILED, and writes all their webhooks
/// before it serves any caller.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_divides_the_webhooks_that_it_writes_among_batches() {
    const JOBS: u64 = 30;
    let settings = Settings { batch_bytes_max: 256 << 10, ..support::settings() };
    let mut t = OnDisk::new(settings);
    let input = json(&format!("{{\"x\":\"{}\"}}", "x".repeat(100_000)));
    for _ in 0..JOBS {
        let webhook = Some("https://example.com/".to_owned());
        submit(t.store(), NewJob { webhook, input: input.clone(), ..job("a") }).await;
    }
    for _ in 0..CRASHES_MAX {
        assert!(t.store().deliveries(&endpoint("a"), 1).await.unwrap().is_empty());
        for _ in 0..JOBS {
            let lease = t.claim().await;
            let chunks = vec![chunk("1")];
            assert_eq!(t.store().append_chunks(lease, chunks).await, Ok(Fenced::Applied));
        }
        t.store().flush().await.unwrap();
        t.restart();
    }
    let log = t.store().deliveries(&endpoint("a"), 100).await.unwrap();
    assert_eq!(log.len() as u64, JOBS);
    assert!(log.iter().all(|delivery| delivery.body_bytes > 100_000));
    let commits = t.store().stats().commits;
    assert!((10..=JOBS).contains(&commits), "{commits} batches of 256 KiB");
}

fn bounded(waiting_bytes_max: u64, result_bytes_max: u64) -> OnDisk {
    let usual = support::settings();
    OnDisk::new(Settings { waiting_bytes_max, result_bytes_max, ..usual })
}

/// Chunks of almost 4 MiB.
fn chunks_of_4_mib() -> Vec<Chunk> {
    vec![chunk(&format!("\"{}\"", "x".repeat((4 << 20) - 1_000)))]
}

/// A job with an input of this many bytes.
fn heavy(bytes: usize) -> NewJob {
    NewJob { input: json(&format!("\"{}\"", "x".repeat(bytes - 2))), ..job("a") }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inputs_that_wait_on_an_endpoint_are_bounded() {
    let mut t = bounded(10 << 20, u64::MAX);
    let full = StoreError::Full(StoreFull::WaitingBytes { limit_mib: 10 });
    let mut waiting = Vec::new();
    for _ in 0..9 {
        waiting.push(submit(t.store(), heavy(1 << 20)).await);
    }
    t.restart();
    assert_eq!(t.store().submit(heavy(3 << 20)).await, Err(full.clone()));
    submit(t.store(), NewJob { endpoint: endpoint("b"), ..heavy(3 << 20) }).await;
    waiting.push(submit(t.store(), heavy((1 << 20) - 1_000)).await);
    assert_eq!(t.store().submit(heavy(2_000)).await, Err(full.clone()));
    submit(t.store(), heavy(100)).await;

    // A running job does not count as waiting, and waits again when it is released.
    let lease = t.claim().await;
    submit(t.store(), heavy(1 << 20)).await;
    assert_eq!(t.store().release(lease, ReleaseCause::Stopped).await, Ok(Fenced::Applied));
    assert_eq!(t.store().submit(heavy(2_000)).await, Err(full));
    t.store().cancel(&endpoint("a"), waiting[3]).await.unwrap();
    t.store().cancel(&endpoint("a"), waiting[4]).await.unwrap();
    submit(t.store(), heavy(1 << 20)).await;
    t.store().purge(&endpoint("a")).await.unwrap();
    submit(t.store(), heavy(10 << 20)).await;
}

/// Submits a job with an input of this many bytes, and lets its attempt fail.
async fn failed(t: &OnDisk, bytes: usize) -> JobId {
    let id = submit(t.store(), heavy(bytes)).await;
    let lease = t.claim().await;
    let outcome = Outcome::Failed("no".to_owned());
    assert_eq!(t.store().finish(lease, outcome).await, Ok(Fenced::Applied));
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_passes_no_bound_of_bytes() {
    let t = bounded(2 << 20, u64::MAX);
    let ended = failed(&t, 1 << 20).await;
    let waiting = submit(t.store(), heavy((1 << 20) + 1)).await;
    let retry = async || t.store().retry(&endpoint("a"), ended, None).await;
    assert_eq!(retry().await, Err(StoreError::Full(StoreFull::WaitingBytes { limit_mib: 2 })));
    assert_eq!(t.error(ended).await.as_deref(), Some("no"), "the job stays as it was");
    t.store().cancel(&endpoint("a"), waiting).await.unwrap();
    assert_eq!(retry().await, Ok(RetryAnswer::Queued));

    // Inputs of failed jobs are kept. A retry frees its own, so what the others have counts.
    let t = bounded(u64::MAX, 1 << 20);
    let ended = [failed(&t, 600_000).await, failed(&t, 600_000).await];
    let full = Err(StoreError::Full(StoreFull::ResultBytes { limit_mib: 1 }));
    assert_eq!(t.store().submit(job("a")).await, full);
    assert_eq!(t.store().retry(&endpoint("a"), ended[0], None).await, Ok(RetryAnswer::Queued));
    submit(t.store(), job("a")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_results_that_an_endpoint_keeps_are_bounded() {
    let mut t = bounded(u64::MAX, 4 << 20);
    let output = || json(&format!("\"{}\"", "x".repeat(1 << 20)));
    let mut jobs = Vec::new();
    for _ in 0..6 {
        jobs.push(submit(t.store(), job("a")).await);
    }
    for &id in &jobs[..3] {
        let lease = t.claim().await;
        let finished = t.store().finish(lease, Outcome::Completed(output())).await;
        assert_eq!(finished, Ok(Fenced::Applied));
        assert_eq!(t.store().output(id).await.unwrap(), Some(output()));
    }
    t.restart();
    let reason = "the results of this endpoint would take more than 4 MiB";

    // The fourth result does not fit: the output is dropped, and the job's error says why.
    let lease = t.claim().await;
    let finished = t.store().finish(lease, Outcome::Completed(output())).await;
    assert_eq!(finished, Ok(Fenced::Applied));
    assert!(t.error(jobs[3]).await.unwrap().starts_with(reason));

    // A long error is cut, and still names the fault.
    let id = submit(t.store(), job("b")).await;
    let claimed = t.store().claim_each(&endpoint("b"), &[worker("w")]).await.unwrap();
    let filled = t.store().append_chunks(claimed[0].lease, chunks_of_4_mib()).await;
    assert_eq!(filled, Ok(Fenced::Applied));
    let outcome = Outcome::Failed("why ".repeat(1_000));
    assert_eq!(t.store().finish(claimed[0].lease, outcome).await, Ok(Fenced::Applied));
    let record = t.store().job(&endpoint("b"), id).await.unwrap().unwrap();
    assert!(record.error.unwrap().starts_with("why why "));

    // Chunks do not fit either: the attempt loses its job.
    let lease = t.claim().await;
    let half = chunk(&format!("\"{}\"", "x".repeat(600_000)));
    assert_eq!(t.store().append_chunks(lease, vec![half.clone()]).await, Ok(Fenced::Applied));
    assert_eq!(t.store().append_chunks(lease, vec![half]).await, Ok(Fenced::Stale));
    t.store().flush().await.unwrap();
    assert!(t.error(jobs[4]).await.unwrap().starts_with(reason));
    assert_eq!(t.store().holds_lease(lease).await, Ok(false));

    // A result of the size of an error message is kept.
    let lease = t.claim().await;
    let finished = t.store().finish(lease, Outcome::Completed(json("true"))).await;
    assert_eq!(finished, Ok(Fenced::Applied));
    assert_eq!(t.error(jobs[5]).await, None);

    // At the bound there are no new jobs, until results are deleted.
    let lease_of_more = async |t: &OnDisk| {
        submit(t.store(), job("a")).await;
        t.claim().await
    };
    let lease = lease_of_more(&t).await;
    let rest = chunk(&format!("\"{}\"", "x".repeat(448_000)));
    assert_eq!(t.store().append_chunks(lease, vec![rest]).await, Ok(Fenced::Applied));
    let mut leases = Vec::new();
    for _ in 0..4 {
        leases.push(lease_of_more(&t).await);
    }
    let tiny = json(&format!("\"{}\"", "x".repeat(400)));
    for lease in leases {
        let finished = t.store().finish(lease, Outcome::Completed(tiny.clone())).await;
        assert_eq!(finished, Ok(Fenced::Applied));
    }
    let full = Err(StoreError::Full(StoreFull::ResultBytes { limit_mib: 4 }));
    assert_eq!(t.store().submit(job("a")).await, full);
    t.restart();
    t.store().shorten_ttl(&endpoint("a"), jobs[0], 0).await.unwrap();
    t.store().expire().await.unwrap();
    submit(t.store(), job("a")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rows_of_usage_of_an_owner_are_bounded() {
    let mut t = OnDisk::new(support::settings());
    let template = TemplateId::new("t").unwrap();
    for number in 0..OWNER_ROWS_MAX + 7 {
        let bill = Bill {
            owner: OwnerId::new("a").unwrap(),
            ..support::bill(&format!("e{number}"), "t", 1)
        };
        t.store().bill(support::unknown_lease(), bill).await.unwrap();
    }
    t.store().flush().await.unwrap();
    let hours = Hour::of(START)..Hour(u32::MAX);
    let newest = |t: &OnDisk| {
        let sums = t.store().newest_of_template(&template, &hours);
        sums.iter().map(|(_, sum)| sum.jobs).sum::<u64>()
    };
    let all = (OWNER_ROWS_MAX + 7) as u64;
    for _ in 0..2 {
        let query = gristmill_test_support::usage_of_all_hours(UsageFilter::default(), usize::MAX);
        let rows = t.store().usage(&query).await.unwrap();
        assert_eq!(rows.len(), OWNER_ROWS_MAX + 1);
        assert_eq!(rows.iter().map(|row| row.sum.jobs).sum::<u64>(), all);
        assert_eq!((rows[0].key.endpoint.as_str(), rows[0].sum.jobs), ("_others", 7));
        assert_eq!(newest(&t), all);
        t.restart();
    }
}

/// The resident memory of this process, in bytes.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}

/// Prints the memory of a waiting job with a webhook of 2,020 bytes.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures the memory of the whole process, so it must run alone"]
async fn a_waiting_job_with_a_webhook() {
    const JOBS: u64 = 10_000;
    let settings = Settings { queue_jobs_max: 1 << 20, ..support::with_small_segments() };
    let mut t = OnDisk::new(settings);
    let url = format!("https://hooks.example/{}", "x".repeat(2_000));
    let waits = |store: Arc<Store>| {
        let new = NewJob { webhook: Some(url.clone()), ..job("a") };
        async move { submit(&*store, new).await }
    };
    t.restart();
    let store = Arc::new(t.store.take().unwrap());
    futures::future::join_all((0..1_000).map(|_| waits(store.clone()))).await;
    let before = resident_bytes();
    for _ in 0..JOBS / 1_000 {
        futures::future::join_all((0..1_000).map(|_| waits(store.clone()))).await;
    }
    let each = resident_bytes().saturating_sub(before) / JOBS;
    println!("a waiting job with a webhook of 2,020 bytes: {each} bytes");
}

/// A job of this owner on an endpoint of this name, with an input of one MiB.
fn heavy_of(owner: &str, name: &str) -> NewJob {
    NewJob { owner: OwnerId::new(owner).unwrap(), endpoint: endpoint(name), ..heavy(1 << 20) }
}

/// A store on a disk with so many free MiB, which several owners share.
fn shared_disk(mib: u64) -> (OnDisk, Arc<DiskSpaceGauge>, Tenancy) {
    shared_disk_with(mib, support::settings())
}

/// The same with these settings.
fn shared_disk_with(mib: u64, settings: Settings) -> (OnDisk, Arc<DiskSpaceGauge>, Tenancy) {
    let tenancy = Tenancy::default();
    tenancy.set_several_owners(true);
    let disk_space = Arc::new(DiskSpaceGauge::new(tenancy.clone()));
    disk_space.set(mib << 20, 0);
    (OnDisk::new(Settings { disk_space: disk_space.clone(), ..settings }), disk_space, tenancy)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_of_many_endpoints_leaves_room_on_the_disk_to_others() {
    let (mut t, disk_space, tenancy) = shared_disk(80);
    let mut mib = 0;
    let refused = loop {
        let new = heavy_of("a", &format!("a-{}", mib % 7));
        match t.store().submit(new).await {
            Ok(_) => mib += 1,
            Err(refused) => break refused,
        }
        assert!(mib < 80, "nothing was refused");
        disk_space.set((80 - mib) << 20, 0);
    };
    // Three quarters, less the bytes that the store still copies from the journal to the tables: at
    // most as many again.
    assert_eq!(refused, StoreError::Full(StoreFull::OwnerDisk { held_mib: mib }));
    assert!((30..=60).contains(&mib), "{mib}");
    t.restart();
    assert!(t.store().submit(heavy_of("a", "new")).await.is_err(), "a start counts the same");
    for _ in 0..15 {
        submit(t.store(), heavy_of("b", "b")).await;
    }

    // Removed jobs make room for other ones.
    for number in 0..7 {
        t.store().purge(&endpoint(&format!("a-{number}"))).await.unwrap();
    }
    disk_space.set(65 << 20, 0);
    submit(t.store(), heavy_of("a", "a-0")).await;
    // Without a second owner there is no share.
    disk_space.set(1 << 20, 0);
    for _ in 0..17 {
        tenancy.set_several_owners(false);
        submit(t.store(), heavy_of("a", "a-1")).await;
        tenancy.set_several_owners(true);
    }
    assert!(t.store().submit(heavy_of("a", "a-1")).await.is_err());
}

/// Submits jobs to the endpoints of an owner until one is refused; returns their number and the
/// refusal.
async fn fill(t: &OnDisk, owner: &str) -> (usize, StoreError) {
    let mut count = 0;
    loop {
        let name = endpoint(&format!("{owner}-{}", count % 7));
        let new = NewJob { owner: OwnerId::new(owner).unwrap(), endpoint: name, ..job("a") };
        match t.store().submit(new).await {
            Ok(_) => count += 1,
            Err(refused) => return (count, refused),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_jobs_have_a_bound_for_the_host_and_a_share_for_each_owner() {
    let settings = Settings { host_waiting_jobs_max: 64, ..support::settings() };
    let (mut t, _, tenancy) = shared_disk_with(1 << 20, settings);
    assert_eq!(fill(&t, "a").await, (48, StoreError::Full(StoreFull::OwnerQueue { waiting: 48 })));
    assert_eq!(fill(&t, "b").await, (12, StoreError::Full(StoreFull::OwnerQueue { waiting: 12 })));
    t.restart();
    assert_eq!(fill(&t, "a").await.0, 0, "a start counts the same");

    // Jobs that wait no longer make room, whatever ends their wait.
    let claimed =
        t.store().claim_each(&endpoint("a-0"), &[worker("w"), worker("v")]).await.unwrap();
    t.store().cancel(&endpoint("a-1"), listed(&t, "a-1").await).await.unwrap();
    t.store().purge(&endpoint("a-2")).await.unwrap();
    t.store().delete_endpoint(&endpoint("a-3")).await.unwrap();
    // 48 - 2 - 1 - 7 - 7 + 8: with 12 of the other owner, 13 are left free.
    assert_eq!(fill(&t, "a").await, (8, StoreError::Full(StoreFull::OwnerQueue { waiting: 39 })));
    // A job of a worker that ends waits again, whatever the bound; a retry is refused.
    let [first, second] = &claimed[..] else { panic!("{claimed:?}") };
    assert_eq!(t.store().release(first.lease, ReleaseCause::Stopped).await, Ok(Fenced::Applied));
    let failed = Outcome::Failed("no".to_owned());
    assert_eq!(t.store().finish(second.lease, failed).await, Ok(Fenced::Applied));
    let retried = t.store().retry(&endpoint("a-0"), second.lease.job, None).await;
    assert!(matches!(retried, Err(StoreError::Full(StoreFull::OwnerQueue { .. }))), "{retried:?}");

    // Without a second owner there is no share.
    tenancy.set_several_owners(false);
    assert_eq!(fill(&t, "a").await.1, StoreError::Full(StoreFull::HostQueue { limit: 64 }));
    let retried = t.store().retry(&endpoint("a-0"), second.lease.job, None).await;
    assert_eq!(retried, Err(StoreError::Full(StoreFull::HostQueue { limit: 64 })));
}

/// Claims and completes all waiting jobs of the endpoints that [`fill`] uses.
async fn complete_all(t: &OnDisk, owner: &str) {
    for number in 0..7 {
        let name = endpoint(&format!("{owner}-{number}"));
        loop {
            let claimed = t.store().claim_each(&name, &[worker("w")]).await.unwrap();
            let Some(job) = claimed.first() else { break };
            let ended = t.store().finish(job.lease, Outcome::Completed(json("1"))).await;
            assert_eq!(ended, Ok(Fenced::Applied));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_jobs_have_a_bound_for_the_host_and_a_share_for_each_owner() {
    let settings = Settings { host_jobs_max: 64, ..support::settings() };
    let (mut t, _, tenancy) = shared_disk_with(1 << 20, settings);
    assert_eq!(fill(&t, "a").await, (48, StoreError::Full(StoreFull::OwnerJobs { jobs: 48 })));
    complete_all(&t, "a").await;
    assert_eq!(fill(&t, "a").await.0, 0, "ended jobs count until they are deleted");
    assert_eq!(fill(&t, "b").await, (12, StoreError::Full(StoreFull::OwnerJobs { jobs: 12 })));
    t.restart();
    assert_eq!(fill(&t, "a").await.0, 0, "a start counts the same");

    // Jobs that are deleted make room, whatever deletes them.
    for name in ["a-0", "a-1"] {
        t.store().delete_endpoint(&endpoint(name)).await.unwrap();
    }
    t.store().purge(&endpoint("b-0")).await.unwrap();
    // 48 - 7 - 7 + 6: with 10 of the other owner, 14 are left free.
    assert_eq!(fill(&t, "a").await, (6, StoreError::Full(StoreFull::OwnerJobs { jobs: 40 })));
    t.clock.advance(1_000 * 3_600_000);
    t.store().expire().await.unwrap();
    assert_eq!(t.store().stats().jobs, 0);
    tenancy.set_several_owners(false);
    assert_eq!(fill(&t, "a").await, (64, StoreError::Full(StoreFull::HostJobs { limit: 64 })));
}

/// A job of the endpoint.
async fn listed(t: &OnDisk, name: &str) -> JobId {
    let query = JobQuery { count_max: 1, ..JobQuery::default() };
    t.store().list(&endpoint(name), &query).await.unwrap().jobs[0].id
}

#[tokio::test(flavor = "multi_thread")]
async fn results_beyond_an_owners_share_of_the_disk_are_not_kept() {
    let (t, disk_space, _) = shared_disk(1 << 10);
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(submit(t.store(), NewJob { owner: OwnerId::new("a").unwrap(), ..job("a") }).await);
    }
    let finish = async |text: &str| {
        let lease = t.claim().await;
        let outcome = Outcome::Completed(json(&format!("\"{text}\"")));
        assert_eq!(t.store().finish(lease, outcome).await, Ok(Fenced::Applied));
    };
    let mib = "x".repeat(1 << 20);
    for _ in 0..17 {
        finish(&mib).await;
    }
    // The owner has 17 MiB, nine times what is free then.
    disk_space.set(2 << 20, 0);
    finish(&mib).await;
    finish("short").await;
    assert_eq!(t.error(ids[16]).await, None);
    let error = t.error(ids[17]).await.unwrap();
    assert!(error.contains("take 17 MiB of the host's disk"), "{error}");
    assert_eq!(t.error(ids[18]).await, None, "short results are always kept");
    let lease = t.claim().await;
    let chunk = chunk(&format!("\"{mib}\""));
    assert_eq!(t.store().append_chunks(lease, vec![chunk]).await, Ok(Fenced::Stale));
}

/// Submits a job of the owner `a` with a webhook.
async fn submit_with_webhook(t: &OnDisk, new: NewJob) -> Result<JobId, StoreError> {
    let (id, webhook) = (new.id, Some("https://hooks.example/".to_owned()));
    let new = NewJob { webhook, owner: OwnerId::new("a").unwrap(), ..new };
    t.store().submit(new).await.map(|_| id)
}

/// Records each pending delivery as delivered.
async fn deliver_all(t: &OnDisk) {
    let mut ended = Vec::new();
    loop {
        let due = t.store().begin_attempts(&ended, &|_| None).await.unwrap().due;
        if due.is_empty() {
            break;
        }
        ended = due.iter().map(|delivery| delivery.id).collect();
        for id in &ended {
            let recorded =
                t.store().record_attempt(*id, DeliveryOutcome::default(), AfterAttempt::Delivered);
            recorded.await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_webhooks_count_for_their_owner_until_their_deliveries_end() {
    let (mut t, disk_space, _) = shared_disk(80);
    let held = || DiskAccount::new(&disk_space, &OwnerId::new("a").unwrap()).bytes();
    let mut mib = 0;
    let refused = loop {
        match submit_with_webhook(&t, heavy(1 << 20)).await {
            Ok(id) => t.store().cancel(&endpoint("a"), id).await.unwrap(),
            Err(refused) => break refused,
        };
        mib += 1;
        assert!(mib < 80, "nothing was refused");
        disk_space.set((80 - mib) << 20, 0);
    };
    // Three quarters, less the bytes that the store still copies from the journal to the tables: at
    // most as many again.
    assert_eq!(refused, StoreError::Full(StoreFull::OwnerDisk { held_mib: mib }));
    assert!((30..=60).contains(&mib), "{mib}");
    submit(t.store(), heavy_of("b", "b")).await;
    t.restart();
    assert_eq!(held() >> 20, mib, "a start counts the same");

    deliver_all(&t).await;
    assert!(held() < 1 << 20, "{}", held());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_beyond_its_owners_share_of_the_disk_is_given_up_with_the_reason() {
    let (t, disk_space, _) = shared_disk(1 << 10);
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(submit_with_webhook(&t, heavy(1 << 20)).await.unwrap());
    }
    let short = submit_with_webhook(&t, job("a")).await.unwrap();
    disk_space.set(2 << 20, 0);
    for id in [ids[0], short] {
        t.store().cancel(&endpoint("a"), id).await.unwrap();
    }
    let log = t.store().deliveries(&endpoint("a"), 9).await.unwrap();
    let [of_short, of_large] = &log[..] else { panic!("{log:?}") };
    assert!(matches!(of_short.state, DeliveryState::Pending { .. }), "{of_short:?}");
    assert!(matches!(of_large.state, DeliveryState::GivenUp { .. }), "{of_large:?}");
    let error = of_large.last.error.clone().unwrap();
    assert!(error.starts_with("not sent: this webhook takes 1026 KiB"), "{error}");
    assert_eq!(t.store().delivery_body(of_large.id).await, Ok(None));
    // With 16 MiB or less an owner is not refused because of others.
    for id in &ids[1..] {
        t.store().cancel(&endpoint("a"), *id).await.unwrap();
    }
    let log = t.store().deliveries(&endpoint("a"), 1).await.unwrap();
    assert!(matches!(log[0].state, DeliveryState::Pending { .. }), "{log:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tags_of_all_jobs_have_a_bound_in_memory() {
    let settings = Settings { host_webhook_bytes_max: 100_000, ..support::settings() };
    let mut t = OnDisk::new(settings);
    let with_tags = |n: usize| {
        let (number, text) = (n.to_string(), "x".repeat(256));
        let pairs = [("a", &text), ("b", &text), ("c", &text), ("n", &number)];
        NewJob { tags: Tags::new(pairs).unwrap(), ..job("a") }
    };
    let fill = async |t: &OnDisk| {
        for n in 0..1_000 {
            if let Err(refused) = t.store().submit(with_tags(n)).await {
                let is_expected =
                    matches!(refused, StoreError::Full(StoreFull::HostWebhooks { .. }));
                assert!(is_expected, "{refused}");
                return n;
            }
        }
        panic!("the tags have no bound")
    };
    assert!((90..130).contains(&fill(&t).await));
    submit(t.store(), with_tags(0)).await;
    submit(t.store(), job("a")).await;
    t.restart();
    assert!(t.store().submit(with_tags(999)).await.is_err(), "a start counts the same");
    t.store().purge(&endpoint("a")).await.unwrap();
    assert!((90..130).contains(&fill(&t).await), "jobs that are removed make room");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tracestates_of_all_jobs_have_a_bound_in_memory_and_refuse_no_job() {
    let settings = Settings { host_webhook_bytes_max: 100_000, ..support::settings() };
    let mut t = OnDisk::new(settings);
    let traced = |n: usize| {
        let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        let context = TraceContext::from_header(header).unwrap();
        let state = format!("n={n},x={}", "x".repeat(250));
        let state = TraceState::from_headers([state.as_str()]);
        NewJob { trace: Some(TraceContext { state, ..context }), ..job("a") }
    };
    let mut jobs = Vec::new();
    for n in 0..1_000 {
        jobs.push(submit(t.store(), traced(n)).await);
    }
    let kept = async |t: &OnDisk| {
        let mut kept = 0;
        for id in &jobs {
            let record = t.store().job(&endpoint("a"), *id).await.unwrap().unwrap();
            kept += usize::from(record.trace.unwrap().state.as_str().is_some());
        }
        kept
    };
    let first = kept(&t).await;
    assert!((110..140).contains(&first), "{first}: half of the bound");
    // The other half is left for webhooks.
    submit(t.store(), NewJob { webhook: Some("https://h.example/".to_owned()), ..job("a") }).await;
    t.restart();
    assert_eq!(kept(&t).await, first, "a start holds the same");
    t.store().purge(&endpoint("a")).await.unwrap();
    let id = submit(t.store(), traced(7)).await;
    let record = t.store().job(&endpoint("a"), id).await.unwrap().unwrap();
    assert_eq!(record.trace, traced(7).trace, "jobs that are removed make room");
}

/// Submits jobs with different webhook URLs until one is refused; returns their number and the
/// refusal.
async fn fill_with_urls(t: &OnDisk, owner: &str) -> (usize, StoreError) {
    for count in 0.. {
        let webhook = Some(format!("https://hooks.example/{owner}/{count}"));
        let owner = OwnerId::new(owner).unwrap();
        let name = endpoint(&format!("{owner}-{}", count % 7));
        let new = NewJob { webhook, owner, endpoint: name, ..job("a") };
        if let Err(refused) = t.store().submit(new).await {
            return (count, refused);
        }
    }
    unreachable!("the loop has no end")
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_have_a_bound_in_memory_for_the_host_and_a_share_for_each_owner() {
    let settings = Settings { host_webhook_bytes_max: 100_000, ..support::settings() };
    let (mut t, _, tenancy) = shared_disk_with(1 << 20, settings);
    let (count, refused) = fill_with_urls(&t, "a").await;
    assert!(matches!(refused, StoreError::Full(StoreFull::OwnerWebhooks { .. })), "{refused}");
    assert!((300..600).contains(&count), "{count}");
    assert!(t.store().submit(job("a")).await.is_ok(), "a job without a webhook");
    assert!(fill_with_urls(&t, "b").await.0 > 50);
    t.restart();
    assert_eq!(fill_with_urls(&t, "a").await.0, 0, "a start counts the same");

    // Jobs that are removed make room, and a single owner has no share.
    for number in 0..7 {
        t.store().purge(&endpoint(&format!("a-{number}"))).await.unwrap();
    }
    assert!(fill_with_urls(&t, "a").await.0 > 200);
    tenancy.set_several_owners(false);
    let (more, refused) = fill_with_urls(&t, "a").await;
    assert!(
        matches!(refused, StoreError::Full(StoreFull::HostWebhooks { .. })) && more > 0,
        "{more} {refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_without_room_in_memory_is_given_up_with_the_reason() {
    let settings = Settings { host_webhook_bytes_max: 20_000, ..support::settings() };
    let (mut t, ..) = shared_disk_with(1 << 20, settings);
    let mut ids = Vec::new();
    for _ in 0..40 {
        ids.push(submit_with_webhook(&t, job("a")).await.unwrap());
    }
    for id in ids {
        t.store().cancel(&endpoint("a"), id).await.unwrap();
    }
    let pending = async |t: &OnDisk| -> (usize, Vec<String>) {
        let log = t.store().deliveries(&endpoint("a"), 99).await.unwrap();
        let (pending, ended): (Vec<_>, Vec<_>) = log
            .into_iter()
            .partition(|delivery| matches!(delivery.state, DeliveryState::Pending { .. }));
        (pending.len(), ended.into_iter().filter_map(|delivery| delivery.last.error).collect())
    };
    let (count, errors) = pending(&t).await;
    assert!((12..20).contains(&count) && count + errors.len() == 40, "{count} {errors:?}");
    assert!(errors[0].contains("of the host's memory, and there is no room"), "{errors:?}");
    t.restart();
    assert_eq!(pending(&t).await.0, count);
    assert!(submit_with_webhook(&t, job("a")).await.is_err(), "a start counts the same");

    deliver_all(&t).await;
    assert_eq!(pending(&t).await.0, 0);
    assert!(submit_with_webhook(&t, job("a")).await.is_ok());
}

/// Adds chunks of so many bytes to a running job until one is refused. Returns the number of chunks
/// that were accepted, and the error of the job.
async fn stream_until_refused(t: &OnDisk, lease: Lease, bytes: usize) -> (usize, String) {
    for count in 0..10_000 {
        let chunk = chunk(&format!("\"{}\"", "x".repeat(bytes - 2)));
        if t.store().append_chunks(lease, vec![chunk]).await.unwrap() == Fenced::Stale {
            t.store().flush().await.unwrap();
            return (count, t.error(lease.job).await.unwrap());
        }
    }
    panic!("no chunk was refused");
}

/// A handler emits its words one by one, so each of its chunks is small.
#[tokio::test(flavor = "multi_thread")]
async fn small_chunks_are_refused_at_the_bounds_of_results() {
    let settings = Settings { result_bytes_max: 17 << 10, ..support::settings() };
    let (t, disk_space, _) = shared_disk_with(1 << 20, settings.clone());
    for (bytes, most) in [(400, 42), (100, 151), (3, 917)] {
        submit(t.store(), job("a")).await;
        let (count, error) = stream_until_refused(&t, t.claim().await, bytes).await;
        assert!(error.contains("the results of this endpoint would take more than"), "{error}");
        assert!((most - 1..=most).contains(&count), "{count} chunks of {bytes} bytes");
        t.clock.advance(1_000 * 3_600_000);
        t.store().expire().await.unwrap();
    }
    let settings = Settings { result_bytes_max: 1 << 30, ..settings };
    let t = OnDisk::new(Settings { disk_space: disk_space.clone(), ..settings });
    submit(t.store(), job("a")).await;
    let lease = t.claim().await;
    // Results may take nine times the free bytes.
    let _others = DiskAccount::new(&disk_space, &job("a").owner).charge_existing(17 << 20);
    disk_space.set((17 << 20) / 9 + 800, 0);
    let (count, error) = stream_until_refused(&t, lease, 100).await;
    assert!(count < 100 && error.contains("would exceed the owner's share"), "{count} {error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_is_refused_at_the_owners_share_of_the_disk() {
    let (t, disk_space, _) = shared_disk(80);
    let id = submit(t.store(), job("a")).await;
    let failed = Outcome::Failed("no".to_owned());
    assert_eq!(t.store().finish(t.claim().await, failed).await, Ok(Fenced::Applied));
    let others = DiskAccount::new(&disk_space, &job("a").owner).charge_existing(20 << 20);
    disk_space.set(1 << 20, 0);
    let refused = t.store().retry(&endpoint("a"), id, None).await;
    assert_eq!(refused, Err(StoreError::Full(StoreFull::OwnerDisk { held_mib: 20 })));
    drop(others);
    assert_eq!(t.store().retry(&endpoint("a"), id, None).await, Ok(RetryAnswer::Queued));
}

/// The rest of the reserve is for ends, cancels and deletes.
#[tokio::test(flavor = "multi_thread")]
async fn chunks_wait_while_the_disk_has_no_space_to_start_jobs() {
    let disk_space = Arc::new(DiskSpaceGauge::default());
    let t = OnDisk::new(Settings { disk_space: disk_space.clone(), ..support::settings() });
    let ids = [submit(t.store(), job("a")).await, submit(t.store(), job("a")).await];
    let leases = [t.claim().await, t.claim().await];
    disk_space.set(100 << 10, 1_000 << 10);
    let first = t.store().append_chunks(leases[0], vec![chunk("1")]);
    let second = t.store().append_chunks(leases[1], vec![chunk("2")]);
    let cancel_and_free = async {
        t.store().cancel(&endpoint("a"), ids[0]).await.unwrap();
        while t.store().holds_lease(leases[0]).await.unwrap() {}
        assert_eq!(t.store().job(&endpoint("a"), ids[1]).await.unwrap().unwrap().chunk_count, 0);
        disk_space.set(2_000 << 10, 1_000 << 10);
    };
    let (first, second, ()) = tokio::join!(first, second, cancel_and_free);
    assert_eq!((first, second), (Ok(Fenced::Stale), Ok(Fenced::Applied)));
}

/// A large result that found no space would keep the writer, and cancels and deletes behind it.
#[tokio::test(flavor = "multi_thread")]
async fn large_results_wait_for_space_and_let_the_rest_pass() {
    let disk_space = Arc::new(DiskSpaceGauge::default());
    let t = OnDisk::new(Settings { disk_space: disk_space.clone(), ..support::settings() });
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(submit(t.store(), job("a")).await);
    }
    let leases = [t.claim().await, t.claim().await, t.claim().await];
    let large = || Outcome::Completed(heavy(100 << 10).input);
    disk_space.set(100 << 10, 1 << 20);
    let first = t.store().finish(leases[0], large());
    let second = t.store().finish(leases[1], large());
    let status = async |id| t.store().job(&endpoint("a"), id).await.unwrap().unwrap().status;
    let the_rest = async {
        let small = t.store().finish(leases[2], Outcome::Completed(json("1"))).await;
        assert_eq!(small, Ok(Fenced::Applied));
        t.store().cancel(&endpoint("a"), ids[1]).await.unwrap();
        assert_eq!(t.store().purge(&endpoint("a")).await, Ok(1));
        assert_eq!(status(ids[0]).await, JobStatus::InProgress);
        disk_space.set(10 << 20, 1 << 20);
    };
    let (first, second, ()) = tokio::join!(first, second, the_rest);
    assert_eq!((first, second), (Ok(Fenced::Applied), Ok(Fenced::Stale)));
    assert_eq!(status(ids[0]).await, JobStatus::Completed);
    assert_eq!(t.store().output(ids[0]).await.unwrap(), Some(heavy(100 << 10).input));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_submissions_at_one_time_those_are_accepted_that_have_space() {
    let disk_space = Arc::new(DiskSpaceGauge::default());
    // Most of them wait for the write buffer.
    let settings = Settings { write_buffer_bytes: 4 << 20, ..support::settings() };
    let t = OnDisk::new(Settings { disk_space: disk_space.clone(), ..settings });
    disk_space.set(20 << 20, 10 << 20);
    let all = (0..20).map(|_| t.store().submit(heavy(2 << 20)));
    let answers = futures::future::join_all(all).await;
    let accepted = answers.iter().filter(|answer| answer.is_ok()).count();
    assert!((1..=4).contains(&accepted), "{accepted} of 2 MiB each, and 10 MiB are free");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_disk_space_new_work_is_refused_and_the_rest_continues() {
    let disk_space = Arc::new(DiskSpaceGauge::default());
    let t = OnDisk::new(Settings { disk_space: disk_space.clone(), ..support::settings() });
    let running = submit(t.store(), job("a")).await;
    let lease = t.claim().await;
    let waiting = submit(t.store(), job("a")).await;
    let workers = [worker("w")];
    disk_space.set(900 << 10, 1_000 << 10);
    let refused = t.store().submit(job("a")).await;
    assert_eq!(refused, Err(StoreError::Full(StoreFull::Disk(Shortage::Bytes))));
    let started = t.store().claim_each(&endpoint("a"), &workers).await.unwrap();
    assert_eq!(started[0].lease.job, waiting);
    assert_eq!(
        t.store().release(started[0].lease, ReleaseCause::Stopped).await,
        Ok(Fenced::Applied)
    );
    disk_space.set(100 << 10, 1_000 << 10);
    assert!(t.store().claim_each(&endpoint("a"), &workers).await.unwrap().is_empty());
    let finished = t.store().finish(lease, Outcome::Failed("no".to_owned())).await;
    assert_eq!(finished, Ok(Fenced::Applied));
    assert_eq!(t.error(running).await.as_deref(), Some("no"));
    assert_eq!(t.store().retry(&endpoint("a"), running, None).await, Ok(RetryAnswer::Queued));
    let cancelled = t.store().cancel(&endpoint("a"), running).await;
    assert_eq!(cancelled, Ok(Some(JobStatus::Cancelled)));
    disk_space.set(5_000 << 10, 1_000 << 10);
    disk_space.set_inodes(9, 10);
    let refused = t.store().submit(job("a")).await.unwrap_err();
    assert_eq!(refused, StoreError::Full(StoreFull::Disk(Shortage::Inodes)));
    assert!(refused.to_string().contains("no free inodes"), "{refused}");
    disk_space.set_inodes(20, 10);
    assert!(disk_space.may_start_again());
    assert_eq!(t.store().claim_each(&endpoint("a"), &workers).await.unwrap().len(), 1);
    submit(t.store(), job("a")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_years_ahead_for_a_while_deletes_no_bill() {
    let dir = tempfile::tempdir().unwrap();
    let open = |clock: &Arc<ManualClock>| {
        support::open_with(Settings::default(), dir.path(), clock, &Arc::default()).0
    };
    put_the_clock_ahead_for_a_while(open).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_years_ahead_for_a_while_deletes_no_bill_on_postgresql() {
    let Some(database) = Database::new() else { return };
    let open = |clock: &Arc<ManualClock>| {
        support::open_postgres(Settings::default(), &database, clock, &Arc::default())
    };
    put_the_clock_ahead_for_a_while(open).await;
}

async fn put_the_clock_ahead_for_a_while(open: impl Fn(&Arc<ManualClock>) -> Store) {
    const HOUR_MS: u64 = 3_600_000;
    const YEARS_MS: i64 = 500 * 24 * HOUR_MS as i64;
    let clock = Arc::new(ManualClock::new(START));
    let mut store = open(&clock);
    let bill = async |store: &Store| {
        let id = submit(store, job("a")).await;
        let lease = store.claim(&endpoint("a"), &worker("w")).await.unwrap().unwrap().lease;
        assert_eq!(lease.job, id);
        let metered = support::metered("t");
        let finished = store.finish_deferred(lease, Outcome::Completed(json("1")), metered).await;
        assert_eq!(finished, Ok(Fenced::Applied));
        store.flush().await.unwrap();
        store.usage(&support::all_usage()).await.unwrap().len()
    };
    for hours in 1..=10 {
        assert_eq!(bill(&store).await, hours);
        clock.advance(HOUR_MS);
    }
    clock.jump(YEARS_MS);
    assert_eq!(bill(&store).await, 1, "the rest is too old to be shown");
    store.close().await;
    drop(store);
    store = open(&clock);
    assert_eq!(bill(&store).await, 1);
    clock.jump(-YEARS_MS);
    let rows = store.usage(&support::all_usage()).await.unwrap();
    // Each run of the store may delete two hours. One row is of the time that the clock was ahead.
    assert!(rows.len() > 10 - 4, "{rows:?}");
}
