//! Live values: they are read while there are watchers, and are those of the endpoint that exists.

use std::time::Duration;

use gristmill_core::metrics::endpoint::{FinishedAs, SubmittedBy};
use gristmill_core::metrics::failure_reason::FailureReason;
use gristmill_wire::management::LiveEndpoint;

use super::*;

#[tokio::test(start_paused = true)]
async fn values_are_read_only_while_there_are_watchers() {
    let bench = Bench::new().await;
    let live = &bench.control.live;
    assert!(!live.is_read());
    let (mut one, mut other) = (live.watch(), live.watch());
    one.changed().await.unwrap();
    other.changed().await.unwrap();
    // A watcher that comes during the first read does not see the empty values before it.
    assert_eq!(other.borrow().at, bench.clock.now());
    // A later watcher gets the present values at once.
    tokio::time::timeout(Duration::ZERO, live.watch().changed()).await.unwrap().unwrap();
    drop(one);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(live.is_read());
    drop(other);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(!live.is_read());
    live.watch().changed().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_values_are_those_of_the_endpoint_that_exists() {
    let bench = Bench::new().await;
    let key = bench.key("a", Scope::Manage).await;
    bench.template("a", "t", "i", false).await;
    bench.endpoint(&key, "e", "t").await.unwrap();
    let owner = key.owner.clone();
    let mut watcher = bench.control.live.watch();
    let mut next = async || {
        watcher.changed().await.unwrap();
        watcher.borrow_and_update().of(&owner, &endpoint_id("e")).map(|value| value.values)
    };
    let first = LiveEndpoint { version: 1, ..LiveEndpoint::default() };
    assert_eq!(next().await, Some(first));
    let of_endpoint = bench.view().deployments[&endpoint_id("e")].incarnation.clone();
    let metrics = of_endpoint.metrics();
    (0..5).for_each(|_| metrics.submitted(SubmittedBy::Run));
    metrics.submitted(SubmittedBy::RunSync);
    metrics.finished(FinishedAs::Completed);
    metrics.finished(FinishedAs::TimedOut);
    metrics.finished(FinishedAs::Failed(FailureReason::Trap));
    metrics.finished(FinishedAs::Failed(FailureReason::Host));
    metrics.cancelled(3);
    let expected =
        LiveEndpoint { submitted: 6, completed: 1, failed: 2, timed_out: 1, cancelled: 3, ..first };
    assert_eq!(next().await, Some(expected));
    bench.control.endpoints.delete(&key, endpoint_id("e")).await.unwrap();
    assert_eq!(next().await, None);
    bench.endpoint(&key, "e", "t").await.unwrap();
    assert_eq!(next().await, Some(first), "it is another endpoint");
}
