//! Events for the streams of several owners: changes, deletions, late streams, and shared texts.

use gristmill_core::access::key::{NewKey, Scope};
use gristmill_core::incarnation::EndpointIncarnation;
use gristmill_core::time::Timestamp;

use super::*;

fn owner(name: &str) -> OwnerId {
    OwnerId::new(name).unwrap()
}

fn key(of: &str, scope: Scope) -> ApiKey {
    let new = NewKey {
        name: String::new(),
        owner: owner(of),
        scopes: vec![scope],
        endpoints: None,
        expires_at: None,
    };
    ApiKey::generate(new, Timestamp::from_millis(0)).0
}

/// The values after `before`: of each endpoint its id, its owner and its submitted jobs.
fn after(before: &LiveValues, endpoints: &[(&str, &str, u64)]) -> LiveValues {
    let read = endpoints.iter().map(|(id, of, submitted)| {
        let values = LiveEndpoint { submitted: *submitted, ..LiveEndpoint::default() };
        (EndpointId::new(id).unwrap(), EndpointIncarnation::new(owner(of)), values)
    });
    before.next(Timestamp::from_millis(7), read)
}

/// The endpoints of an event, with their submitted jobs.
fn seen(values: &LiveValues, of: Option<&str>, since: u64) -> Vec<(String, Option<u64>)> {
    let event = difference(values, &Wanted { owner: of.map(owner), since });
    let one = |(id, values): (EndpointId, Option<LiveEndpoint>)| {
        (id.to_string(), values.map(|values| values.submitted))
    };
    event.endpoints.into_iter().map(one).collect()
}

#[test]
fn an_event_has_what_has_changed_and_what_the_key_sees() {
    let named = |name: &str, jobs| (name.to_owned(), jobs);
    let first = after(&LiveValues::none(), &[("a", "me", 1), ("b", "other", 2), ("c", "me", 3)]);
    let all = [named("a", Some(1)), named("c", Some(3))];
    assert_eq!(seen(&first, Some("me"), 0), all, "the first event has all endpoints");
    assert_eq!(seen(&first, None, 0).len(), 3, "an admin key sees all owners");
    assert_eq!(seen(&first, Some("nobody"), 0), []);
    let second = after(&first, &[("a", "me", 1), ("b", "other", 9), ("c", "me", 4)]);
    assert_eq!(seen(&second, Some("me"), 1), [named("c", Some(4))]);
    assert_eq!(seen(&second, Some("me"), 2), []);
    // Another owner's endpoint has the id now.
    let third = after(&second, &[("a", "other", 5), ("c", "me", 4)]);
    assert_eq!(seen(&third, Some("me"), 2), [named("a", None)]);
    assert_eq!(seen(&third, Some("me"), 1), [named("a", None), named("c", Some(4))]);
    assert_eq!(seen(&third, None, 2), [named("a", Some(5)), named("b", None)]);
    assert_eq!(seen(&third, Some("me"), 0), [named("c", Some(4))], "no deletions at first");
    let again = after(&third, &[("a", "me", 1), ("c", "me", 4)]);
    assert_eq!(seen(&again, Some("me"), 3), [named("a", Some(1))]);
}

/// One text serves all streams of an owner that have seen the same version.
#[tokio::test]
async fn an_event_is_made_once_for_all_streams() {
    let (events, pages) = (OverviewEvents::default(), Pages::default());
    let [me, other] = ["me", "other"].map(|of| key(of, Scope::Read));
    let first = Arc::new(after(&LiveValues::none(), &[("a", "me", 1), ("b", "other", 2)]));
    let event = async |key: &ApiKey, values: &Arc<LiveValues>, since| {
        events.event(&pages, key, values, since).await
    };
    let one = event(&me, &first, 0).await.unwrap();
    let same = event(&me, &first, 0).await.unwrap();
    assert_eq!(one.as_ptr(), same.as_ptr());
    assert_ne!(event(&other, &first, 0).await.unwrap(), one);
    assert_eq!(event(&me, &first, 1).await, Some(Bytes::new()), "nothing has changed");
    let mut last = first.clone();
    for jobs in 0..DELETED_VERSIONS {
        last = Arc::new(after(&last, &[("a", "me", jobs)]));
    }
    assert_eq!(event(&me, &last, 1).await, None, "it is too far behind");
    assert!(event(&me, &last, 2).await.is_some_and(|event| !event.is_empty()));
    assert_eq!(events.0.lock().events.len(), 1, "those of earlier versions are dropped");
    assert!(!event(&me, &first, 0).await.unwrap().is_empty(), "a stream that is late");
}
