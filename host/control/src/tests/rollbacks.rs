//! Repeated rollbacks.

use gristmill_core::access::key::Scope;
use gristmill_wire::management::{Rollback, TemplateInput};

use super::*;

#[tokio::test]
async fn a_rollback_that_names_its_version_or_the_one_that_was_seen_can_be_repeated() {
    let bench = Bench::new().await;
    let key = bench.key("a", Scope::Manage).await;
    let first = bench.image("a", "i", "1").await;
    let second = bench.image("a", "j", "2").await;
    bench.template("a", "t", "i", false).await;
    bench.endpoint(&key, "e", "t").await.unwrap();
    let patch = TemplateInput { image_name: Some("j".to_owned()), ..TemplateInput::default() };
    bench.control.templates.update(&key, template_id("t"), patch, Extent::Whole).await.unwrap();
    let endpoints = &bench.control.endpoints;
    let version = || endpoints.get(&key, &endpoint_id("e")).unwrap().version;
    let running = || endpoints.deployment(&key, &endpoint_id("e")).unwrap().component;
    let roll_back = |to| endpoints.roll_back(&key, endpoint_id("e"), to);
    assert_eq!((version(), running()), (2, Some(second)));

    let to = Rollback { version: None, from: Some(2) };
    assert_eq!(roll_back(to).await.unwrap().component, first);
    let refused = roll_back(to).await.unwrap_err();
    assert!(matches!(refused, ControlError::Conflict(_)), "{refused:?}");
    let sentence = "endpoint `e` has version 3, not 2 as in `from`: ";
    assert!(refused.to_string().starts_with(sentence), "{refused}");
    assert_eq!((version(), running()), (3, Some(first)));

    let to = Rollback { version: Some(2), from: None };
    for _ in 0..2 {
        assert_eq!(roll_back(to).await.unwrap().component, second);
        assert_eq!((version(), running()), (4, Some(second)));
    }
    let both = Rollback { version: Some(1), from: Some(4) };
    assert_eq!(roll_back(both).await.unwrap().component, first);
    // The short form returns to the handler that the call before it replaced.
    assert_eq!(roll_back(Rollback::default()).await.unwrap().component, second);
}
