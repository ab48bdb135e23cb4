//! Deletions: each is one operation, which its caller cannot split.

use gristmill_core::access::key::Scope;
use gristmill_core::runtime::LogLevel;
use gristmill_core::store::JobStore as _;
use gristmill_core::time::{Clock as _, Timestamp};
use gristmill_wire::management::{NetworkVolumeInput, NewNetworkVolume};

use super::*;

/// Begins an operation, and stops waiting for it at its first step.
pub(super) async fn abandon(operation: impl Future) {
    let is_done = tokio::select! {
        biased;
        _ = operation => true,
        () = std::future::ready(()) => false,
    };
    assert!(!is_done, "the operation has several steps");
}

#[tokio::test]
async fn a_caller_that_leaves_does_not_split_the_deletion_of_an_endpoint() {
    let bench = Bench::new().await;
    let key = bench.key("a", Scope::Manage).await;
    bench.template("a", "t", "i", false).await;
    bench.endpoint(&key, "e", "t").await.unwrap();
    let job = bench.submit(&key, "e").await;
    let deployment = bench.control.endpoints.deployment(&key, &endpoint_id("e")).unwrap();
    let (at, incarnation) = (bench.clock.now(), &deployment.incarnation);
    bench.logs.add(incarnation, at, job, LogLevel::Info, "a line");
    assert_eq!(bench.lines(incarnation), 1);
    bench.workers.take();

    abandon(bench.control.endpoints.delete(&key, endpoint_id("e"))).await;
    // Their rows are deleted last.
    while bench.store.job(&endpoint_id("e"), job).await.unwrap().is_some() {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.lines(incarnation), 0);
    assert!(bench.view().deployments.is_empty());
    assert_eq!(bench.workers.take(), [endpoint_id("e")]);
    bench.logs.add(incarnation, at, job, LogLevel::Info, "of a job that still runs");
    assert_eq!(bench.lines(incarnation), 0);
}

#[tokio::test]
async fn an_endpoint_that_is_created_again_has_nothing_of_the_deleted_one() {
    let bench = Bench::new().await;
    let key = bench.key("a", Scope::Manage).await;
    bench.template("a", "t", "i", false).await;
    bench.endpoint(&key, "e", "t").await.unwrap();
    let job = bench.submit(&key, "e").await;
    bench.control.endpoints.delete(&key, endpoint_id("e")).await.unwrap();
    bench.endpoint(&key, "e", "t").await.unwrap();
    assert!(bench.store.job(&endpoint_id("e"), job).await.unwrap().is_none());
    let gone = bench.control.endpoints.delete(&key, endpoint_id("other")).await;
    assert!(matches!(gone, Err(ControlError::NotFound { what: "endpoint", .. })), "{gone:?}");
}

#[tokio::test]
async fn a_network_volume_is_marked_before_its_record_is_deleted() {
    let bench = Bench::new().await;
    let key = bench.key("a", Scope::Manage).await;
    let new = || NewNetworkVolume { name: "v".to_owned(), size: 2, data_center_id: None };
    let volume = bench.control.volumes.create(&key, new()).await.unwrap();
    let id = &volume.id;
    let smaller = NetworkVolumeInput { size: Some(1), name: None };
    let refused = bench.control.volumes.update(&key, id, smaller).await;
    assert!(matches!(refused, Err(ControlError::Invalid(_))), "{refused:?}");

    bench.template("a", "t", "i", false).await;
    bench.endpoint(&key, "e", "t").await.unwrap();
    let with = |network_volume: &str| EndpointInput {
        network_volume_id: Some(network_volume.to_owned()),
        ..EndpointInput::default()
    };
    let endpoints = &bench.control.endpoints;
    endpoints.update(&key, endpoint_id("e"), with(id.as_str()), Extent::Whole).await.unwrap();
    let refused = bench.control.volumes.delete(&key, id.clone()).await;
    assert!(matches!(refused, Err(ControlError::Conflict(_))), "{refused:?}");
    assert_eq!(bench.disk.take(), [""; 0], "a volume in use is not marked");

    endpoints.update(&key, endpoint_id("e"), with(""), Extent::Whole).await.unwrap();
    bench.control.volumes.delete(&key, id.clone()).await.unwrap();
    assert_eq!(bench.disk.take(), [format!("mark {id}"), format!("remove {id}")]);

    // A deletion that is refused at the last moment leaves no mark.
    let volume = bench.control.volumes.create(&key, new()).await.unwrap();
    let id = &volume.id;
    let mut expired = ApiKey::clone(&key);
    expired.expires_at = Some(Timestamp::from_millis(0));
    bench.put([CatalogEntry::Key(expired)]).await;
    let refused = bench.control.volumes.delete(&key, id.clone()).await;
    assert!(matches!(refused, Err(ControlError::KeyEnded)), "{refused:?}");
    assert_eq!(bench.disk.take(), [format!("mark {id}"), format!("unmark {id}")]);
    assert!(bench.view().volumes.contains_key(id));
}
