//! Keys: a key that was revoked, or has expired, changes nothing.

use gristmill_core::access::key::Scope;
use gristmill_wire::management::NewKey;

use super::*;

fn request(name: &str, scope: Scope, owner: &str) -> NewKey {
    NewKey {
        name: name.to_owned(),
        scopes: vec![scope],
        owner: Some(owner_id(owner)),
        endpoints: None,
        expires_in_seconds: Some(60),
    }
}

#[tokio::test]
async fn a_key_changes_nothing_after_its_end() {
    let bench = Bench::new().await;
    let admin = bench.key("default", Scope::Admin).await;
    bench.template("a", "t", "i", false).await;
    let keys = &bench.control.keys;
    let (revoked, text) = keys.create(&admin, request("k", Scope::Manage, "a")).await.unwrap();
    let (expired, _) = keys.create(&admin, request("l", Scope::Manage, "a")).await.unwrap();
    let (id, secret) = ApiKey::parse_text(text.reveal()).unwrap();
    assert_eq!(keys.accepted(&id, secret).as_deref(), Some(&revoked));
    assert!(keys.accepted(&id, "another").is_none());
    let (revoked, expired) = (Arc::new(revoked), Arc::new(expired));
    bench.endpoint(&revoked, "e", "t").await.unwrap();

    keys.revoke(&admin, id.as_str()).await.unwrap();
    assert!(keys.accepted(&id, secret).is_none());
    bench.clock.advance(60_000);
    for key in [&revoked, &expired] {
        assert!(matches!(keys.check(key), Err(ControlError::KeyEnded)));
        let refused = bench.endpoint(key, "f", "t").await;
        assert!(matches!(refused, Err(ControlError::KeyEnded)), "{refused:?}");
        let refused = bench.control.endpoints.delete(key, endpoint_id("e")).await;
        assert!(matches!(refused, Err(ControlError::KeyEnded)), "{refused:?}");
    }
    assert_eq!(bench.view().deployments.len(), 1);
}

#[tokio::test]
async fn only_the_operator_has_admin_keys() {
    let bench = Bench::new().await;
    let admin = bench.key("default", Scope::Admin).await;
    let refused = bench.control.keys.create(&admin, request("k", Scope::Admin, "a")).await;
    assert!(matches!(refused, Err(ControlError::Invalid(_))), "{refused:?}");
    let nameless = bench.control.keys.create(&admin, request("", Scope::Read, "a")).await;
    assert!(matches!(nameless, Err(ControlError::Invalid(_))), "{nameless:?}");
    assert_eq!(bench.view().keys.len(), 1);
}

#[tokio::test]
async fn keys_that_expired_long_ago_are_removed_with_the_next_key_of_their_owner() {
    const DAY_MS: u64 = 86_400_000;
    let bench = Bench::new().await;
    let admin = bench.key("default", Scope::Admin).await;
    let create = async |name: &str, owner: &str| {
        let request = request(name, Scope::Manage, owner);
        bench.control.keys.create(&admin, request).await.unwrap();
        let view = bench.view();
        let mut names: Vec<_> = view.keys.values().map(|key| key.name.clone()).collect();
        names.sort();
        names.join(" ")
    };
    create("old", "a").await;
    create("other", "b").await;
    bench.clock.advance(60_000 + 30 * DAY_MS);
    assert_eq!(create("recent", "a").await, "default old other recent");
    bench.clock.advance(1);
    assert_eq!(create("new", "a").await, "default new other recent");
}
