//! Endpoints whose template was another owner's and was deleted, and later templates with its id.

use gristmill_core::access::key::Scope;
use gristmill_core::deploy::template::TemplateFilter;

use super::*;

/// The endpoint `e` of the owner `b`, whose key is returned. Its template `t` was a public one of
/// the owner `a`, and was deleted.
async fn without_template() -> (Bench, Arc<ApiKey>) {
    let bench = Bench::new().await;
    let (a, b) = (bench.key("a", Scope::Manage).await, bench.key("b", Scope::Manage).await);
    bench.template("a", "t", "i", true).await;
    bench.endpoint(&b, "e", "t").await.unwrap();
    bench.template("a", "t", "i", false).await;
    bench.control.templates.delete(&a, template_id("t")).await.unwrap();
    (bench, b)
}

/// Sends the endpoint back with a template and another number of workers.
async fn send_back(
    bench: &Bench,
    caller: &Arc<ApiKey>,
    template: &str,
    workers_max: u64,
) -> Arc<Endpoint> {
    let patch = EndpointInput {
        template_id: Some(template_id(template)),
        workers_max: Some(workers_max),
        ..EndpointInput::default()
    };
    let endpoints = &bench.control.endpoints;
    endpoints.update(caller, endpoint_id("e"), patch, Extent::Whole).await.unwrap()
}

#[tokio::test]
async fn a_third_owner_cannot_take_the_id_of_a_deleted_template() {
    let (bench, key) = without_template().await;
    let changed = send_back(&bench, &key, "t", 2).await;
    assert!(changed.template_is_deleted, "there is no template with this id");
    let theirs = bench.image("c", "i", "of the third owner").await;
    bench.template("c", "t", "i", true).await;
    let bench = bench.restarted().await;
    let changed = send_back(&bench, &key, "t", 3).await;
    assert_eq!((changed.settings.workers_max, changed.template_is_deleted), (3, true));
    let deployment = bench.control.endpoints.deployment(&key, &endpoint_id("e")).unwrap();
    assert_eq!(deployment.component, None);
    let reason = deployment.missing_component();
    assert!(reason.starts_with("template `t` of another owner was deleted; set"), "{reason}");

    // The owner chooses the new template on purpose, in two steps.
    bench.template("b", "own", "i", false).await;
    assert!(!send_back(&bench, &key, "own", 4).await.template_is_deleted);
    let changed = send_back(&bench, &key, "t", 5).await;
    assert_eq!((changed.template_is_deleted, &changed.deleted_template_owner), (false, &None));
    let deployment = bench.control.endpoints.deployment(&key, &endpoint_id("e")).unwrap();
    assert_eq!(deployment.component, Some(theirs));
}

#[tokio::test]
async fn a_deleted_template_that_its_owner_makes_again_takes_its_place() {
    for owner in ["a", "b", "default"] {
        let (bench, key) = without_template().await;
        let component = bench.image(owner, "i", owner).await;
        bench.template(owner, "t", "i", true).await;
        let patch = EndpointInput { workers_max: Some(2), ..EndpointInput::default() };
        let endpoints = &bench.control.endpoints;
        let changed = endpoints.update(&key, endpoint_id("e"), patch, Extent::Whole).await.unwrap();
        assert!(changed.template_is_deleted, "{owner}: the change does not name the template");
        let changed = send_back(&bench, &key, "t", 3).await;
        assert_eq!(
            (changed.template_is_deleted, &changed.deleted_template_owner),
            (false, &None),
            "{owner}"
        );
        let deployment = endpoints.deployment(&key, &endpoint_id("e")).unwrap();
        assert_eq!(deployment.component, Some(component), "{owner}");
    }
    // A private one is not for other owners.
    let (bench, key) = without_template().await;
    bench.template("a", "t", "i", false).await;
    assert!(send_back(&bench, &key, "t", 2).await.template_is_deleted);
}

#[tokio::test]
async fn lists_and_lookups_show_the_same_templates() {
    let (bench, key) = without_template().await;
    // The endpoint `e` does not use this template, although it names the id.
    bench.template("b", "t", "i", false).await;
    bench.template("b", "unused", "i", false).await;
    bench.template("b", "used", "i", false).await;
    bench.endpoint(&key, "f", "used").await.unwrap();
    let templates = &bench.control.templates;
    let cases: [(bool, &[&str]); 2] = [(false, &["t", "unused"]), (true, &["t", "unused", "used"])];
    for (endpoint_bound, expected) in cases {
        let filter = TemplateFilter { endpoint_bound, ..TemplateFilter::default() };
        let list = templates.list(&key, filter);
        let mut listed: Vec<_> = list.iter().map(|template| template.id.to_string()).collect();
        listed.sort_unstable();
        assert_eq!(listed, expected, "{filter:?}");
        let is_found = |id: &&str| templates.get(&key, &template_id(id), filter).is_ok();
        let found: Vec<_> = ["t", "unused", "used"].into_iter().filter(is_found).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
}
