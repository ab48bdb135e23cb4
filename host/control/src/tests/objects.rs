//! Endpoints, templates and reports: who may see and use what.

use gristmill_core::access::key::Scope;
use gristmill_core::billing::usage::{Hour, UsageFilter};
use gristmill_core::deploy::endpoint::Metering;
use gristmill_core::deploy::template::TemplateFilter;
use gristmill_wire::management::{RateLimit, Rollback, TemplateInput};

use super::*;
use crate::{BucketSize, Grouping, ReportQuery};

#[tokio::test]
async fn an_endpoint_takes_only_a_template_that_its_owner_may_see() {
    let bench = Bench::new().await;
    let (key, other) = (bench.key("a", Scope::Manage).await, bench.key("b", Scope::Manage).await);
    bench.template("a", "private", "i", false).await;
    bench.template("a", "public", "i", true).await;
    for template in ["private", "missing"] {
        let refused = bench.endpoint(&other, "e", template).await.unwrap_err();
        assert!(matches!(refused, ControlError::Invalid(_)), "{refused:?}");
        let expected = format!("`templateId`: template `{template}` not found");
        assert_eq!(refused.to_string(), expected, "another owner's is as if it were missing");
    }
    assert_eq!(bench.workers.take(), [], "nothing was created");
    bench.endpoint(&key, "mine", "private").await.unwrap();
    bench.endpoint(&other, "theirs", "public").await.unwrap();
    assert_eq!(bench.workers.take(), [endpoint_id("mine"), endpoint_id("theirs")]);
    let taken = bench.endpoint(&key, "theirs", "private").await;
    assert!(matches!(taken, Err(ControlError::Conflict(_))), "{taken:?}");
}

#[tokio::test]
async fn objects_of_another_owner_do_not_exist() {
    let bench = Bench::new().await;
    let admin = bench.key("default", Scope::Admin).await;
    let (key, other) = (bench.key("a", Scope::Manage).await, bench.key("b", Scope::Manage).await);
    bench.template("a", "t", "i", false).await;
    bench.endpoint(&key, "e", "t").await.unwrap();
    let (e, endpoints) = (endpoint_id("e"), &bench.control.endpoints);
    let is_missing = |found: Result<(), ControlError>| {
        matches!(found, Err(ControlError::NotFound { what: "endpoint", .. }))
    };
    assert!(is_missing(endpoints.get(&other, &e).map(drop)));
    assert!(is_missing(endpoints.logs(&other, &e).map(drop)));
    assert!(is_missing(endpoints.releases(&other, &e).map(drop)));
    assert!(is_missing(endpoints.deliveries(&other, &e).await.map(drop)));
    let (patch, target) = (EndpointInput::default(), Rollback::default());
    assert!(is_missing(endpoints.update(&other, e.clone(), patch, Extent::Whole).await.map(drop)));
    assert!(is_missing(endpoints.rotate_webhook_secret(&other, e.clone()).await.map(drop)));
    assert!(is_missing(endpoints.roll_back(&other, e.clone(), target).await.map(drop)));
    assert!(is_missing(endpoints.delete(&other, e.clone()).await));
    assert!(endpoints.deployment(&other, &e).is_none());
    assert_eq!(endpoints.list(&other).iter().count(), 0);
    assert_eq!(endpoints.list(&key).iter().count(), 1);
    assert_eq!(endpoints.list(&admin).iter().count(), 1);
    assert!(endpoints.get(&admin, &e).is_ok());
}

#[tokio::test]
async fn a_change_sets_the_given_properties_only() {
    let bench = Bench::new().await;
    let key = bench.key("a", Scope::Manage).await;
    bench.template("a", "t", "i", false).await;
    let created = bench.endpoint(&key, "e", "t").await.unwrap();
    let update =
        |patch| bench.control.endpoints.update(&key, endpoint_id("e"), patch, Extent::Whole);
    let patch = EndpointInput { workers_max: Some(7), ..EndpointInput::default() };
    let changed = update(patch).await.unwrap();
    assert_eq!(changed.settings.workers_max, 7);
    assert_eq!(
        (changed.settings.execution_timeout_ms, &changed.name),
        (created.settings.execution_timeout_ms, &created.name)
    );
    let paused = |paused| EndpointInput { paused: Some(paused), ..EndpointInput::default() };
    let pausing = update(paused(true)).await.unwrap().scaling();
    assert_eq!((pausing.workers_max, pausing.paused), (7, true), "it keeps the number of workers");
    assert_eq!(pausing.in_effect().workers_max, 0);
    assert_eq!(update(paused(false)).await.unwrap().scaling(), changed.scaling());
    let patch = EndpointInput { workers_min: Some(8), ..EndpointInput::default() };
    let refused = update(patch).await.unwrap_err();
    assert_eq!(refused.to_string(), "`workersMin` must be 0 to 7, which is `workersMax`, not 8");
    let limit = RateLimit { calls_per_10s: 1, concurrent: None, calls_per_worker: 0 };
    let limits = [("everything".to_owned(), limit)];
    let patch = EndpointInput { rate_limits: Some(limits.into()), ..EndpointInput::default() };
    let refused = update(patch).await.unwrap_err();
    assert!(refused.to_string().starts_with("`rateLimits` has `everything`;"), "{refused}");
    let rotated =
        bench.control.endpoints.rotate_webhook_secret(&key, endpoint_id("e")).await.unwrap();
    let secret = |endpoint: &Endpoint| endpoint.webhook_secrets.current().reveal();
    assert_ne!(secret(&rotated), secret(&changed));
}

#[tokio::test]
async fn a_bound_of_fuel_needs_metering_that_counts_it() {
    let bench = Bench::new().await;
    let key = bench.key("a", Scope::Manage).await;
    bench.template("a", "t", "i", false).await;
    bench.endpoint(&key, "e", "t").await.unwrap();
    let update = async |fuel_max, metering| {
        let patch = EndpointInput { max_fuel: fuel_max, metering, ..EndpointInput::default() };
        let endpoints = &bench.control.endpoints;
        let changed = endpoints.update(&key, endpoint_id("e"), patch, Extent::Whole).await;
        changed.map(|it| it.settings.max_fuel).map_err(|refused| refused.to_string())
    };
    let (fuel, epoch) = (Some(Metering::Fuel), Some(Metering::Epoch));
    let refused = update(Some(9), epoch).await.unwrap_err();
    assert!(
        refused.contains("choose the metering `fuel`, or no bound of fuel (0 for"),
        "{refused}"
    );
    assert_eq!(update(Some(9), None).await, Ok(Some(9)));
    assert_eq!(update(None, epoch).await, Err(refused.clone()), "it has a bound");
    assert_eq!(update(Some(0), epoch).await, Ok(None));
    assert_eq!(update(Some(9), None).await, Err(refused), "it counts no fuel");
    assert_eq!(update(Some(9), fuel).await, Ok(Some(9)));
}

#[tokio::test]
async fn an_endpoint_returns_to_an_earlier_handler_of_its_own_template() {
    let bench = Bench::new().await;
    let key = bench.key("a", Scope::Manage).await;
    let first = bench.image("a", "i", "1").await;
    let second = bench.image("a", "j", "2").await;
    bench.template("a", "t", "i", false).await;
    bench.endpoint(&key, "e", "t").await.unwrap();
    let (endpoints, e) = (&bench.control.endpoints, || endpoint_id("e"));
    let before = Rollback::default();
    let nowhere = endpoints.roll_back(&key, e(), before).await;
    assert!(matches!(nowhere, Err(ControlError::Conflict(_))), "{nowhere:?}");
    let patch = TemplateInput { image_name: Some("j".to_owned()), ..TemplateInput::default() };
    bench.control.templates.update(&key, template_id("t"), patch, Extent::Whole).await.unwrap();
    let running = || endpoints.deployment(&key, &e()).unwrap().component;
    assert_eq!(running(), Some(second));
    bench.workers.take();
    assert_eq!(endpoints.roll_back(&key, e(), before).await.unwrap().component, first);
    assert_eq!((running(), bench.workers.take()), (Some(first), vec![e()]));
    let unknown = Rollback { version: Some(99), ..before };
    let unknown = endpoints.roll_back(&key, e(), unknown).await;
    assert!(matches!(unknown, Err(ControlError::Invalid(_))), "{unknown:?}");
}

#[tokio::test]
async fn a_template_in_use_is_not_deleted() {
    let bench = Bench::new().await;
    let (key, other) = (bench.key("a", Scope::Manage).await, bench.key("b", Scope::Manage).await);
    let templates = &bench.control.templates;
    let new = |id| TemplateInput {
        id: Some(template_id(id)),
        name: Some("t".to_owned()),
        image_name: Some("i".to_owned()),
        is_public: Some(true),
        ..TemplateInput::default()
    };
    templates.create(&key, new("t"), Extent::Whole).await.unwrap();
    let taken = templates.create(&key, new("u"), Extent::Whole).await;
    assert!(matches!(taken, Err(ControlError::Conflict(_))), "the name is taken: {taken:?}");
    bench.endpoint(&other, "e", "t").await.unwrap();
    let used = templates.delete(&key, template_id("t")).await.unwrap_err();
    assert_eq!(used.to_string(), "template `t` is in use by another owner's endpoint");
    bench.control.endpoints.delete(&other, endpoint_id("e")).await.unwrap();
    templates.delete(&key, template_id("t")).await.unwrap();
    assert_eq!(templates.list(&key, TemplateFilter::default()).iter().count(), 0);
}

#[tokio::test]
async fn a_platform_template_needs_an_admin_key_and_an_image_its_registry() {
    let bench = Bench::new().await;
    let admin = bench.key("default", Scope::Admin).await;
    let key = bench.key("default", Scope::Manage).await;
    let new = |image: &str| TemplateInput {
        name: Some("t".to_owned()),
        image_name: Some(image.to_owned()),
        is_platform: Some(true),
        ..TemplateInput::default()
    };
    let templates = &bench.control.templates;
    let refused = templates.create(&key, new("i"), Extent::Whole).await;
    assert!(matches!(refused, Err(ControlError::MissingScope(Scope::Admin))), "{refused:?}");
    let refused = templates.create(&admin, new("registry.example/i:1"), Extent::Whole).await;
    assert!(matches!(refused, Err(ControlError::Fetch { .. })), "{refused:?}");
    assert!(bench.view().templates.is_empty(), "an image that was not fetched changes nothing");
    templates.create(&admin, new("i"), Extent::Whole).await.unwrap();
}

#[tokio::test]
async fn a_report_shows_the_owner_of_the_key() {
    let bench = Bench::new().await;
    let admin = bench.key("default", Scope::Admin).await;
    let key = bench.key("a", Scope::Manage).await;
    let report = |owner: Option<&str>| ReportQuery {
        hours: Hour(0)..Hour(1),
        size: BucketSize::Day,
        grouping: Grouping::Owner,
        filter: UsageFilter { owner: owner.map(owner_id), ..UsageFilter::default() },
        templates: None,
    };
    let billing = &bench.control.billing;
    let refused = billing.report(&key, report(Some("b")), None, 1).await;
    assert!(matches!(refused, Err(ControlError::Invalid(_))), "{refused:?}");
    for (key, owner) in [(&key, Some("a")), (&key, None), (&admin, Some("b"))] {
        assert_eq!(billing.report(key, report(owner), None, 1).await.unwrap(), []);
    }
}
