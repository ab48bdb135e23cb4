//! Ownership in the catalog: images by their owner, and components by the owners who uploaded them.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::json;

use crate::access::key::{ApiKey, NewKey, Scope};
use crate::catalog::{
    ArtifactDigest, Catalog, CatalogChange, CatalogEntry, CatalogKey, CatalogStore, Component,
    Image, ImageKey, OwnerBounds,
};
use crate::deploy::digest::ComponentDigest;
use crate::deploy::endpoint::Endpoint;
use crate::deploy::template::Template;
use crate::id::{EndpointId, KeyId, OwnerId, RegistryAuthId, ScheduleId, TemplateId, VolumeId};
use crate::store::StoreError;
use crate::time::{ManualClock, Timestamp};

mod disk_share;
mod releases;
mod turns;

const NOW: Timestamp = Timestamp::from_millis(1_000);

/// Keeps rows by kind and name, as a store does.
#[derive(Debug, Default)]
struct Rows {
    stored: Mutex<Vec<((&'static str, String), CatalogEntry)>>,
    /// The kinds of all rows that were ever written.
    written: Mutex<Vec<&'static str>>,
}

#[async_trait]
impl CatalogStore for Rows {
    async fn load_catalog(&self) -> Result<Vec<CatalogEntry>, StoreError> {
        Ok(self.stored.lock().iter().map(|(_, entry)| entry.clone()).collect())
    }

    async fn write_catalog(&self, changes: Vec<CatalogChange>) -> Result<(), StoreError> {
        let mut rows = self.stored.lock();
        for change in changes {
            let (key, entry) = match change {
                CatalogChange::Put(entry) => (entry.key(), Some(entry)),
                CatalogChange::Delete(key) => (key, None),
            };
            self.written.lock().push(key.kind());
            let row_key = (key.kind(), key.name());
            rows.retain(|(other, _)| *other != row_key);
            rows.extend(entry.map(|entry| (row_key, entry)));
        }
        Ok(())
    }

    fn forget_endpoints(&self, _: &[EndpointId]) {}
}

struct Fixture {
    rows: Arc<Rows>,
    catalog: Catalog,
}

impl Fixture {
    async fn new() -> Self {
        Self::on(Arc::default()).await
    }

    async fn on(rows: Arc<Rows>) -> Self {
        let clock = Arc::new(ManualClock::new(NOW));
        let catalog = Catalog::open(rows.clone(), clock).await.unwrap();
        Self { rows, catalog }
    }

    async fn put(&self, entries: impl IntoIterator<Item = CatalogEntry>) {
        let changes = entries.into_iter().map(CatalogChange::Put).collect();
        self.catalog.change(|_| Ok::<_, StoreError>((changes, ()))).await.unwrap();
    }

    async fn delete(&self, key: CatalogKey) {
        let changes = vec![CatalogChange::Delete(key)];
        self.catalog.change(|_| Ok::<_, StoreError>((changes, ()))).await.unwrap();
    }

    /// The component that an endpoint runs.
    fn component(&self, endpoint: &str) -> Option<ComponentDigest> {
        let id = EndpointId::new(endpoint).unwrap();
        self.catalog.deployment(&id).unwrap().component
    }

    fn owners(&self, bytes: &[u8]) -> Vec<String> {
        let view = self.catalog.view();
        let component = view.components.get(&ComponentDigest::of(bytes)).unwrap();
        component.owners.iter().map(OwnerId::to_string).collect()
    }
}

fn owner(name: &str) -> OwnerId {
    OwnerId::new(name).unwrap()
}

fn key_of(name: &str) -> ApiKey {
    let new = NewKey {
        name: name.into(),
        owner: owner(name),
        scopes: vec![Scope::Submit],
        endpoints: None,
        expires_at: None,
    };
    ApiKey::generate(new, NOW).0
}

fn component(bytes: &[u8], owners: &[&str]) -> Component {
    let record = json!({
        "digest": ComponentDigest::of(bytes), "bytes": bytes.len(), "imports": [], "exports": [],
        "uploaded_at": NOW, "compile_ms": 1, "artifacts": {}, "owners": owners,
        "compiled_bytes": 3 * bytes.len(), "producers": { "languages": [], "tools": [] },
    });
    serde_json::from_value(record).unwrap()
}

/// `mill:latest` of this owner.
fn image(of: &str, bytes: &[u8]) -> Image {
    Image {
        name: "mill".to_owned(),
        tag: "latest".to_owned(),
        digest: ComponentDigest::of(bytes),
        owner: owner(of),
        updated_at: NOW,
        manifest: None,
    }
}

fn template(of: &str, id: &str, image: &str) -> Template {
    Template::new(TemplateId::new(id).unwrap(), owner(of), image)
}

fn endpoint(of: &str, id: &str, template: &str) -> CatalogEntry {
    let template = TemplateId::new(template).unwrap();
    CatalogEntry::Endpoint(Endpoint::new(EndpointId::new(id).unwrap(), owner(of), template, NOW))
}

/// Shares of what all owners use begin before the second owner has an endpoint, which could not
/// start a job by then.
#[tokio::test]
async fn an_owner_exists_as_soon_as_a_key_names_it() {
    let t = Fixture::new().await;
    let tenancy = t.catalog.tenancy();
    let (first, second) = (key_of("a"), key_of("b"));
    t.put([CatalogEntry::Key(first)]).await;
    assert!(!tenancy.has_several_owners());
    t.put([CatalogEntry::Key(second.clone())]).await;
    assert!(tenancy.has_several_owners());
    t.delete(CatalogKey::Key(second.id)).await;
    assert!(!tenancy.has_several_owners());
}

/// Jobs of an endpoint leave sandboxes to the other endpoints of its owner, if there are any.
#[tokio::test]
async fn an_owner_of_several_endpoints_and_an_endpoint_that_calls_are_known() {
    let t = Fixture::new().await;
    let tenancy = t.catalog.tenancy();
    let answers = || ["a", "b"].map(|of| tenancy.has_several_endpoints(&owner(of)));
    t.put([CatalogEntry::Template(template("a", "t", "i:1"))]).await;
    t.put([endpoint("a", "first", "t"), endpoint("b", "of-b", "t")]).await;
    assert_eq!((answers(), tenancy.has_calls()), ([false, false], false));
    let CatalogEntry::Endpoint(mut calling) = endpoint("a", "second", "t") else { unreachable!() };
    calling.settings.call_endpoints = vec![EndpointId::new("first").unwrap()];
    t.put([CatalogEntry::Endpoint(calling)]).await;
    assert_eq!((answers(), tenancy.has_calls()), ([true, false], true));
    let later = crate::sharing::tenancy::Tenancy::default();
    let Fixture { catalog, .. } = t;
    drop(catalog.with_tenancy(later.clone()));
    assert!(later.has_several_endpoints(&owner("a")) && later.has_calls());
}

#[tokio::test]
async fn deleting_an_endpoint_may_leave_its_owner_with_one() {
    let t = Fixture::new().await;
    let tenancy = t.catalog.tenancy();
    t.put([CatalogEntry::Template(template("a", "t", "i:1"))]).await;
    t.put([endpoint("a", "first", "t"), endpoint("a", "second", "t")]).await;
    assert!(tenancy.has_several_endpoints(&owner("a")));
    t.delete(CatalogKey::Endpoint(EndpointId::new("second").unwrap())).await;
    assert!(!tenancy.has_several_endpoints(&owner("a")));
}

#[tokio::test]
async fn an_endpoint_that_is_created_again_has_the_owner_of_its_new_incarnation() {
    let t = Fixture::new().await;
    for of in ["a", "b"] {
        let of_template = template(of, &format!("template-{of}"), "i:1");
        let of_endpoint = endpoint(of, "e", &format!("template-{of}"));
        t.put([CatalogEntry::Template(of_template), of_endpoint]).await;
        let id = EndpointId::new("e").unwrap();
        let deployment = t.catalog.deployment(&id).unwrap();
        assert_eq!(*deployment.incarnation.owner(), owner(of));
        t.delete(CatalogKey::Endpoint(id)).await;
        assert!(deployment.incarnation.has_ended());
    }
}

#[tokio::test]
async fn each_owner_has_image_names_of_their_own() {
    let t = Fixture::new().await;
    let [a, b] = [&b"a's"[..], b"b's"];
    t.put([
        CatalogEntry::Component(component(a, &["a"])),
        CatalogEntry::Component(component(b, &["b"])),
        CatalogEntry::Image(image("a", a)),
        CatalogEntry::Image(image("b", b)),
        CatalogEntry::Template(template("a", "ta", "mill")),
        CatalogEntry::Template(template("b", "tb", "mill:latest")),
        CatalogEntry::Template(template("c", "tc", "mill:latest")),
    ])
    .await;
    t.put([endpoint("a", "ea", "ta"), endpoint("b", "eb", "tb"), endpoint("c", "ec", "tc")]).await;
    let digest = |bytes| Some(ComponentDigest::of(bytes));
    assert_eq!(
        [t.component("ea"), t.component("eb"), t.component("ec")],
        [digest(a), digest(b), None]
    );
    t.delete(CatalogKey::Image(ImageKey::new(&owner("a"), "mill"))).await;
    assert_eq!([t.component("ea"), t.component("eb")], [None, digest(b)]);
    let again = Fixture::on(t.rows.clone()).await;
    assert_eq!([again.component("ea"), again.component("eb")], [None, digest(b)]);
}

#[tokio::test]
async fn a_digest_names_a_component_for_its_uploaders() {
    let t = Fixture::new().await;
    let by_digest = format!("mill@{}", ComponentDigest::of(b"x").oci());
    t.put([
        CatalogEntry::Component(component(b"x", &["a"])),
        CatalogEntry::Template(template("a", "ta", &by_digest)),
        CatalogEntry::Template(template("b", "tb", &by_digest)),
    ])
    .await;
    t.put([endpoint("a", "ea", "ta"), endpoint("b", "eb", "tb")]).await;
    assert_eq!(t.component("ea"), Some(ComponentDigest::of(b"x")));
    assert_eq!(t.component("eb"), None);
    // The same bytes from another owner are the same component.
    let view = t.catalog.view();
    let stored = view.components.values().next().unwrap();
    let both = component(b"x", &[]).owned_by(&owner("b"), Some(stored));
    t.put([CatalogEntry::Component(both)]).await;
    assert_eq!(t.component("eb"), t.component("ea"));
}

#[tokio::test]
async fn an_owner_without_references_does_not_own_a_component() {
    let t = Fixture::new().await;
    t.put([
        CatalogEntry::Component(component(b"x", &["a", "b"])),
        CatalogEntry::Image(image("a", b"x")),
        CatalogEntry::Image(image("b", b"x")),
    ])
    .await;
    assert_eq!(t.catalog.remove_unused_components().await.unwrap(), []);
    assert_eq!(t.owners(b"x"), ["a", "b"]);
    t.delete(CatalogKey::Image(image("a", b"x").key())).await;
    assert_eq!(t.catalog.remove_unused_components().await.unwrap(), []);
    assert_eq!(t.owners(b"x"), ["b"]);
    t.delete(CatalogKey::Image(image("b", b"x").key())).await;
    assert_eq!(t.catalog.remove_unused_components().await.unwrap(), [ComponentDigest::of(b"x")]);
}

/// With the public template `t` of the owner `a`, which runs the component `x`.
async fn with_public_template() -> (Fixture, Template) {
    let t = Fixture::new().await;
    let public = Template { is_public: true, ..template("a", "t", "mill") };
    t.put([
        CatalogEntry::Component(component(b"x", &["a"])),
        CatalogEntry::Image(image("a", b"x")),
        CatalogEntry::Template(public.clone()),
    ])
    .await;
    (t, public)
}

#[tokio::test]
async fn a_template_that_is_private_again_runs_for_its_owner_alone() {
    let (t, public) = with_public_template().await;
    t.put([endpoint("a", "ea", "t"), endpoint("b", "eb", "t")]).await;
    assert!(t.component("eb").is_some());
    let users = |t: &Fixture| t.catalog.view().users_of([&image("a", b"x")]).len();
    assert_eq!(users(&t), 2);
    t.put([CatalogEntry::Template(Template { is_public: false, ..public })]).await;
    assert_eq!((t.component("ea").is_some(), t.component("eb")), (true, None));
    assert_eq!(users(&t), 1, "it is no obstacle to deleting the handler");
    let deployment = t.catalog.deployment(&EndpointId::new("eb").unwrap()).unwrap();
    assert!(deployment.missing_component().contains("no longer public"));
}

#[tokio::test]
async fn a_template_is_deleted_although_others_could_use_it_once() {
    let (t, public) = with_public_template().await;
    t.put([endpoint("b", "eb", "t")]).await;
    let (id, eb) = (TemplateId::new("t").unwrap(), EndpointId::new("eb").unwrap());
    let bound = |t: &Fixture| t.catalog.view().bound_to(&id).count();
    assert_eq!(bound(&t), 1);
    t.put([CatalogEntry::Template(Template { is_public: false, ..public.clone() })]).await;
    assert_eq!(bound(&t), 0);
    t.delete(CatalogKey::Template(id.clone())).await;
    // The next start finds the endpoint, and knows that nothing was lost.
    for catalog in [t.catalog, Fixture::on(t.rows.clone()).await.catalog] {
        let kept = catalog.deployment(&eb).unwrap();
        assert!(kept.endpoint.template_is_deleted && kept.component.is_none());
        assert_eq!(kept.endpoint.deleted_template_owner, Some(owner("a")));
        assert!(kept.missing_component().contains("template `t` of another owner was deleted"));
        // Another owner's template of the same id was not meant.
        let theirs = Template { owner: OwnerId::new("c").unwrap(), ..public.clone() };
        let change = vec![CatalogChange::Put(CatalogEntry::Template(theirs))];
        catalog.change(|_| Ok::<_, StoreError>((change, ()))).await.unwrap();
        let same = catalog.deployment(&eb).unwrap();
        assert!(Arc::ptr_eq(&kept, &same) && catalog.view().bound_to(&id).count() == 0);
        // The bytes of the endpoint's record are counted as they are.
        let delete = vec![CatalogChange::Delete(CatalogKey::Endpoint(eb.clone()))];
        let put = vec![CatalogChange::Put(CatalogEntry::Endpoint((*kept.endpoint).clone()))];
        for change in [delete, put] {
            catalog.change(|_| Ok::<_, StoreError>((change, ()))).await.unwrap();
        }
        let delete = vec![CatalogChange::Delete(CatalogKey::Template(id.clone()))];
        catalog.change(|_| Ok::<_, StoreError>((delete, ()))).await.unwrap();
    }
}

#[test]
fn the_row_of_an_image_names_its_owner_unless_that_is_the_operator() {
    assert_eq!(image(OwnerId::OPERATOR, b"x").key(), ImageKey::new(&OwnerId::operator(), "mill"));
    let row = |of| CatalogKey::Image(image(of, b"x").key()).name();
    assert_eq!([row(OwnerId::OPERATOR), row("a")], ["mill:latest", "a/mill:latest"]);
}

/// Tries to write a template with a readme of this many bytes.
async fn write_template(catalog: &Catalog, of: &str, id: &str, bytes: usize) -> Result<(), String> {
    let template = Template { readme: "x".repeat(bytes), ..template(of, id, "mill") };
    let change = vec![CatalogChange::Put(CatalogEntry::Template(template))];
    let changed = catalog.change(|_| Ok::<_, StoreError>((change, ()))).await;
    changed.map_err(|error| error.to_string())
}

#[tokio::test]
async fn an_owner_has_a_bounded_part_of_the_catalog() {
    let bounds =
        OwnerBounds { records_max: 3, record_bytes_max: 1 << 20, ..OwnerBounds::default() };
    let catalog = Fixture::new().await.catalog.with_bounds(bounds);
    for id in ["t1", "t2", "t3"] {
        write_template(&catalog, "a", id, 10).await.unwrap();
    }
    let refused = write_template(&catalog, "a", "t4", 10).await.unwrap_err();
    assert!(
        refused.contains("4 records, and may have 3 (`serve --max-owner-records`)"),
        "{refused}"
    );
    // A neighbour has a part of their own, and what is there can be changed.
    write_template(&catalog, "b", "t4", 10).await.unwrap();
    write_template(&catalog, "a", "t3", 900_000).await.unwrap();
    let refused = write_template(&catalog, "a", "t2", 900_000).await.unwrap_err();
    assert!(refused.contains("2 MiB of records, and may have 1"), "{refused}");
    // Room comes back with a smaller record, and with a deletion.
    write_template(&catalog, "a", "t3", 10).await.unwrap();
    write_template(&catalog, "a", "t2", 900_000).await.unwrap();
    let delete = vec![CatalogChange::Delete(CatalogKey::Template(TemplateId::new("t2").unwrap()))];
    catalog.change(|_| Ok::<_, StoreError>((delete, ()))).await.unwrap();
    write_template(&catalog, "a", "t5", 900_000).await.unwrap();
}

#[tokio::test]
async fn an_owner_over_the_limit_can_still_delete() {
    let rows = Arc::new(Rows::default());
    let t = Fixture::on(rows.clone()).await;
    for id in ["t1", "t2"] {
        write_template(&t.catalog, "a", id, 1 << 20).await.unwrap();
    }
    // The next start has a lower bound.
    let bounds = OwnerBounds { record_bytes_max: 1 << 10, ..OwnerBounds::default() };
    let catalog = Fixture::on(rows).await.catalog.with_bounds(bounds);
    write_template(&catalog, "a", "t1", 1 << 19).await.unwrap();
    write_template(&catalog, "a", "t1", 1 << 20).await.unwrap_err();
    t.delete(CatalogKey::Template(TemplateId::new("t1").unwrap())).await;
}

#[tokio::test]
async fn the_workers_that_an_owner_keeps_are_bounded() {
    let rows = Arc::new(Rows::default());
    let t = Fixture::on(rows.clone()).await;
    write_template(&t.catalog, "a", "t", 10).await.unwrap();
    write_template(&t.catalog, "b", "u", 10).await.unwrap();
    let keep = async |catalog: &Catalog, owner: &str, id: &str, template: &str, min: u32| {
        let CatalogEntry::Endpoint(mut endpoint) = endpoint(owner, id, template) else {
            panic!("it is an endpoint")
        };
        endpoint.settings.workers_min = min;
        let change = vec![CatalogChange::Put(CatalogEntry::Endpoint(endpoint))];
        catalog.change(|_| Ok::<_, StoreError>((change, ()))).await.map_err(|e| e.to_string())
    };
    keep(&t.catalog, "a", "first", "t", 60).await.unwrap();
    let refused = keep(&t.catalog, "a", "second", "t", 37).await.unwrap_err();
    let sentence = "97 sandboxes reserved by `workersMin`, of the half of all that owners share, \
                    and may have 96 (`serve --max-running-jobs`)";
    assert!(refused.contains(sentence), "{refused}");
    keep(&t.catalog, "a", "second", "t", 36).await.unwrap();
    keep(&t.catalog, "b", "theirs", "u", 25).await.unwrap_err();
    keep(&t.catalog, "b", "theirs", "u", 24).await.unwrap();
    // The next start runs fewer jobs: what is stored stays, and may become less.
    let bounds = OwnerBounds { kept_workers_max: 8, ..OwnerBounds::default() };
    let catalog = Fixture::on(rows).await.catalog.with_bounds(bounds);
    keep(&catalog, "a", "second", "t", 10).await.unwrap();
    keep(&catalog, "a", "second", "t", 11).await.unwrap_err();
    keep(&catalog, "a", "second", "t", 0).await.unwrap();
}

#[tokio::test]
async fn components_count_for_each_of_their_owners() {
    let bounds = OwnerBounds { component_bytes_max: 1 << 20, ..OwnerBounds::default() };
    let catalog = Fixture::new().await.catalog.with_bounds(bounds);
    let write = async |bytes: u64, content: &[u8], owners: &[&str]| {
        let component = Component { bytes, ..component(content, owners) };
        let change = vec![CatalogChange::Put(CatalogEntry::Component(component))];
        catalog.change(|_| Ok::<_, StoreError>((change, ()))).await.map_err(|e| e.to_string())
    };
    write(700_000, b"x", &["a"]).await.unwrap();
    write(700_000, b"x", &["a", "b"]).await.unwrap();
    let refused = write(700_000, b"y", &["b"]).await.unwrap_err();
    assert!(refused.contains("2 MiB of components, and may have 1"), "{refused}");
    write(700_000, b"y", &["c"]).await.unwrap();
    // An owner who leaves a component has its room again.
    write(700_000, b"x", &["a"]).await.unwrap();
    write(700_000, b"y", &["b", "c"]).await.unwrap();
}

/// An owner whose share is full does not keep others from components that both have.
#[tokio::test]
async fn another_owner_of_a_component_does_not_change_the_share_of_the_first() {
    let rows = Arc::new(Rows::default());
    let write = async |catalog: &Catalog, component: Component| {
        let change = vec![CatalogChange::Put(CatalogEntry::Component(component))];
        catalog.change(|_| Ok::<_, StoreError>((change, ()))).await.map_err(|e| e.to_string())
    };
    let t = Fixture::on(rows.clone()).await;
    for content in [b"1", b"2", b"3", b"4", b"5"] {
        write(&t.catalog, component(content, &["full"])).await.unwrap();
    }
    let bounds = OwnerBounds { record_bytes_max: 1_500, ..OwnerBounds::default() };
    let catalog = Fixture::on(rows).await.catalog.with_bounds(bounds);
    let stored = component(b"1", &["full"]);
    let other = OwnerId::new("other").unwrap();
    let mut both = component(b"1", &[]).owned_by(&other, Some(&stored));
    write(&catalog, both.clone()).await.unwrap();
    both.artifacts.insert("an engine".to_owned(), ArtifactDigest("digest".to_owned()));
    write(&catalog, both.clone()).await.unwrap();
    let refused = write(&catalog, component(b"6", &["full"])).await.unwrap_err();
    assert!(refused.contains("MiB of records"), "{refused}");

    // A file that was recorded since the copy was made is kept, and an owner that has left is not.
    let copy = component(b"1", &["left"]);
    let merged = copy.owned_by(&other, Some(&both));
    assert_eq!((merged.artifacts, merged.owners), (both.artifacts, both.owners));
}

#[tokio::test]
async fn a_catalog_without_the_template_of_an_endpoint_is_not_opened() {
    let Fixture { rows, catalog } = Fixture::new().await;
    let templates = ["kept", "lost"].map(|id| CatalogEntry::Template(template("me", id, "mill")));
    let changes = templates.into_iter().chain([
        endpoint("me", "whole", "kept"),
        endpoint("me", "broken", "lost"),
        endpoint("me", "other", "lost"),
    ]);
    let changes = changes.map(CatalogChange::Put).collect();
    catalog.change(|_| Ok::<_, StoreError>((changes, ()))).await.unwrap();
    let open = async || Catalog::open(rows.clone(), Arc::new(ManualClock::new(NOW))).await;
    assert!(open().await.is_ok());
    // A row that is lost on the disk.
    let lost = CatalogKey::Template(TemplateId::new("lost").unwrap());
    rows.write_catalog(vec![CatalogChange::Delete(lost)]).await.unwrap();
    let refused = open().await.unwrap_err().to_string();
    let named = "endpoint `broken` uses template `lost`, which is not in the catalog, and 1 more";
    assert!(refused.contains(named) && refused.contains("gristmill repair"), "{refused}");
    let kept = CatalogKey::Endpoint(EndpointId::new("broken").unwrap());
    assert!(rows.stored.lock().iter().any(|(_, entry)| entry.key() == kept), "nothing is deleted");
}

#[test]
fn all_kinds_of_records_are_listed() {
    let keys = [
        CatalogKey::Component(ComponentDigest::of(b"x")),
        CatalogKey::Endpoint(EndpointId::new("x").unwrap()),
        CatalogKey::Image(ImageKey::new(&OwnerId::operator(), "x")),
        CatalogKey::Key(KeyId::new("x").unwrap()),
        CatalogKey::RegistryAuth(RegistryAuthId::new("x").unwrap()),
        CatalogKey::Schedule(ScheduleId::new("x").unwrap()),
        CatalogKey::Template(TemplateId::new("x").unwrap()),
        CatalogKey::Volume(VolumeId::new("x").unwrap()),
    ];
    assert_eq!(keys.map(|key| key.kind()), CatalogKey::KINDS);
}
