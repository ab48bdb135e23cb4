//! Usage: stored together with the results, summed by hour, and kept for 400 days.

use gristmill_core::billing::usage::{
    Hour, JobUsage, KEPT_HOURS, UsageFilter, UsageQuery, UsageSum,
};
use gristmill_core::id::{EndpointId, OwnerId, TemplateId};
use gristmill_core::job::record::{Lease, Outcome, StoreEpoch};
use gristmill_core::job::state::{JobStatus, ReleaseCause};
use gristmill_core::store::Fenced;

use crate::support::fixture::{Fixture, contract};
use crate::support::{START, all_usage, bill, endpoint, json, metered};

const HOUR_MS: u64 = 3_600_000;

contract!(
    usage_is_kept_with_the_results,
    a_job_that_is_cancelled_while_it_runs_gets_the_usage_of_its_attempt,
    usage_without_jobs_adds_up_in_the_hour_of_its_batch,
    usage_outlives_its_endpoint_and_not_its_time,
    usage_is_found_by_hour_and_by_name,
);

async fn usage_is_kept_with_the_results(t: Fixture) {
    let outcomes =
        [Outcome::Completed(json("1")), Outcome::Failed("no".to_owned()), Outcome::TimedOut];
    for outcome in outcomes {
        t.submit("a").await;
        let lease = t.claim("a").await.lease;
        t.clock.advance(250);
        let (first, again) = (outcome.clone(), outcome);
        let finished = t.store.finish_deferred(lease, first, metered("t")).await;
        assert_eq!(finished, Ok(Fenced::Applied));
        let late = t.store.finish_deferred(lease, again, metered("t")).await;
        assert_eq!(late, Ok(Fenced::Stale), "a late result is not billed");
        let record = t.record("a", lease.job).await.unwrap();
        assert_eq!(record.execution_ms(t.store.now()), 250);
    }
    // Not a job that waits again. A job without a result has the usage of its bill.
    t.submit("a").await;
    let lease = t.claim("a").await.lease;
    assert_eq!(t.store.release(lease, ReleaseCause::Stopped).await, Ok(Fenced::Applied));
    let lease = t.claim("a").await.lease;
    let cancelled = t.store.cancel(&endpoint("a"), lease.job).await;
    assert_eq!(cancelled, Ok(Some(JobStatus::Cancelled)));
    t.store.bill(lease, bill("a", "t", 50)).await.unwrap();
    t.flush().await;
    let rows = t.store.usage(&all_usage()).await.unwrap();
    assert_eq!(rows.len(), 1);
    let key = &rows[0].key;
    assert_eq!(key.hour, Hour::of(START));
    let names = [key.endpoint.as_str(), key.template.as_str(), key.owner.as_str()];
    assert_eq!(names, ["a", "t", "owner"]);
    let expected = UsageSum {
        jobs: 4,
        wall_ms: 800,
        cpu_us: 2_800,
        fuel: 4_000,
        memory_bytes_peak: 1_000_000,
        memory_mib_ms: 800,
        bytes_in: 40,
        bytes_out: 80,
        chunks: 8,
    };
    assert_eq!(rows[0].sum, expected);
}

async fn a_job_that_is_cancelled_while_it_runs_gets_the_usage_of_its_attempt(t: Fixture) {
    t.submit("a").await;
    let earlier = t.claim("a").await.lease;
    assert_eq!(t.store.release(earlier, ReleaseCause::Stopped).await, Ok(Fenced::Applied));
    let lease = t.claim("a").await.lease;
    let name = endpoint("a");
    assert_eq!(t.store.cancel(&name, lease.job).await, Ok(Some(JobStatus::Cancelled)));
    let before = t.record("a", lease.job).await.unwrap();
    assert_eq!(before.usage, JobUsage::default());
    let bill = bill("a", "t", 50);
    let of_another_life = Lease { epoch: StoreEpoch(lease.epoch.0.wrapping_add(1)), ..lease };
    for (ended, expected) in [
        (earlier, JobUsage::default()),
        (of_another_life, JobUsage::default()),
        (lease, JobUsage::of(&metered("t"), 50)),
    ] {
        t.store.bill(ended, bill.clone()).await.unwrap();
        t.flush().await;
        let record = t.record("a", lease.job).await.unwrap();
        assert_eq!(record.usage, expected);
        let ends = (record.status, record.finished_at, record.purge_at);
        assert_eq!(ends, (before.status, before.finished_at, before.purge_at), "the rest stays");
    }
    // A job without the cancel has its usage with its result.
    t.submit("a").await;
    let other = t.claim("a").await.lease;
    t.store.bill(other, bill).await.unwrap();
    t.flush().await;
    assert_eq!(t.record("a", other.job).await.unwrap().usage, JobUsage::default());
    let rows = t.store.usage(&all_usage()).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.sum.jobs).sum::<u64>(), 4, "each is billed");
}

async fn usage_without_jobs_adds_up_in_the_hour_of_its_batch(t: Fixture) {
    t.store.bill_requests(Vec::new()).await.unwrap();
    // Not every endpoint with usage has a job, or exists any more.
    for wall_ms in [7, 8] {
        let bills = vec![bill("a", "t", wall_ms), bill("gone", "t", 1), bill("a", "u", 2)];
        t.store.bill_requests(bills).await.unwrap();
    }
    t.flush().await;
    t.clock.advance(HOUR_MS);
    t.store.bill_requests(vec![bill("a", "t", 9)]).await.unwrap();
    t.flush().await;
    let rows = t.store.usage(&all_usage()).await.unwrap();
    let shown = rows.iter().map(|row| {
        let hour = row.key.hour.0 - Hour::of(START).0;
        let names = (row.key.endpoint.as_str(), row.key.template.as_str());
        (hour, names, row.sum.jobs, row.sum.wall_ms)
    });
    let expected = [
        (0, ("a", "t"), 2, 15),
        (0, ("a", "u"), 2, 4),
        (0, ("gone", "t"), 2, 2),
        (1, ("a", "t"), 1, 9),
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
    let template = TemplateId::new("t").unwrap();
    let newest = t.store.newest_of_template(&template, &(Hour::of(START)..Hour(u32::MAX)));
    assert_eq!(newest.iter().map(|(_, sum)| sum.wall_ms).sum::<u64>(), 26);
}

async fn usage_outlives_its_endpoint_and_not_its_time(t: Fixture) {
    finish_metered(&t, "a").await;
    t.store.delete_endpoint(&endpoint("a")).await.unwrap();
    assert_eq!(t.store.usage(&all_usage()).await.unwrap()[0].sum.jobs, 1);
    // An endpoint of the same name in the same hour continues the sums.
    finish_metered(&t, "a").await;
    assert_eq!(t.store.usage(&all_usage()).await.unwrap()[0].sum.jobs, 2);
    t.clock.advance(u64::from(KEPT_HOURS) * HOUR_MS);
    assert_eq!(t.store.usage(&all_usage()).await.unwrap().len(), 1);
    t.clock.advance(HOUR_MS);
    assert_eq!(t.store.usage(&all_usage()).await.unwrap(), []);
    finish_metered(&t, "b").await;
    assert_eq!(t.store.usage(&all_usage()).await.unwrap().len(), 1);
}

async fn usage_is_found_by_hour_and_by_name(t: Fixture) {
    for name in ["a", "b", "a", "c"] {
        finish_metered(&t, name).await;
        t.clock.advance(HOUR_MS);
    }
    let hour = |n: u32| Hour(Hour::of(START).0 + n);
    let names = async |query: UsageQuery| {
        let rows = t.store.usage(&query).await.unwrap();
        rows.iter().map(|row| row.key.endpoint.to_string()).collect::<Vec<_>>().join("")
    };
    assert_eq!(names(all_usage()).await, "abac");
    assert_eq!(names(UsageQuery { hours: hour(1)..hour(3), ..all_usage() }).await, "ba");
    assert_eq!(names(UsageQuery { rows_max: 2, ..all_usage() }).await, "ab");
    let second = t.store.usage(&UsageQuery { rows_max: 2, ..all_usage() }).await.unwrap();
    let after = Some(second[1].key.clone());
    assert_eq!(names(UsageQuery { after, ..all_usage() }).await, "ac");
    let of = |endpoint: Option<&str>, template: Option<&str>, owner: Option<&str>| {
        let filter = UsageFilter {
            endpoint: endpoint.map(|id| EndpointId::new(id).unwrap()),
            template: template.map(|id| TemplateId::new(id).unwrap()),
            owner: owner.map(|id| OwnerId::new(id).unwrap()),
        };
        names(UsageQuery { filter, ..all_usage() })
    };
    assert_eq!(of(Some("a"), None, None).await, "aa");
    assert_eq!(of(None, Some("t"), None).await, "abac");
    assert_eq!(of(None, Some("u"), None).await, "");
    assert_eq!(of(None, None, Some("owner")).await, "abac");
    assert_eq!(of(None, None, Some("other")).await, "");
}

/// Runs one job to its end, on disk.
async fn finish_metered(t: &Fixture, name: &str) {
    t.submit(name).await;
    let lease = t.claim(name).await.lease;
    let finished =
        t.store.finish_deferred(lease, Outcome::Completed(json("1")), metered("t")).await;
    assert_eq!(finished, Ok(Fenced::Applied));
    t.flush().await;
}
