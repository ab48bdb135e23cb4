//! Versions and releases: what a change of a template writes, and the share that it counts in.

use proptest::prelude::*;

use super::*;
use crate::catalog::View;

impl Fixture {
    /// The record of an endpoint, with all that its template has changed.
    fn endpoint(&self, id: &str) -> Arc<Endpoint> {
        let id = EndpointId::new(id).unwrap();
        self.catalog.deployment(&id).unwrap().endpoint.clone()
    }

    /// The versions and images of an endpoint's releases.
    fn releases(&self, endpoint: &str) -> Vec<(u32, String)> {
        let endpoint = self.endpoint(endpoint);
        let releases = endpoint.releases.iter();
        releases.map(|release| (release.version, release.image.to_string())).collect()
    }

    /// Lets the owner's `mill:latest` name these bytes.
    async fn upload(&self, of: &str, bytes: &[u8]) -> Result<(), String> {
        let uploader = owner(of);
        let change = |view: &View| {
            let stored = view.components.get(&ComponentDigest::of(bytes)).map(|stored| &**stored);
            let component = component(bytes, &[]).owned_by(&uploader, stored);
            let entries =
                [CatalogEntry::Component(component), CatalogEntry::Image(image(of, bytes))];
            Ok::<_, StoreError>((entries.map(CatalogChange::Put).into(), ()))
        };
        self.catalog.change(change).await.map_err(|error| error.to_string())
    }

    /// The kinds of the rows that were written since the last call.
    fn written(&self) -> Vec<&'static str> {
        let mut written = std::mem::take(&mut *self.rows.written.lock());
        written.sort_unstable();
        written
    }

    fn bounded(self, bounds: OwnerBounds) -> Self {
        Self { catalog: self.catalog.with_bounds(bounds), ..self }
    }
}

fn public(of: &str, id: &str, image: &str) -> CatalogEntry {
    CatalogEntry::Template(Template { is_public: true, ..template(of, id, image) })
}

#[tokio::test]
async fn a_change_of_a_template_writes_one_row_however_many_endpoints_run_it() {
    let t = Fixture::new().await;
    t.upload("a", b"0").await.unwrap();
    t.put([public("a", "t", "mill")]).await;
    let of_a = (0..300).map(|number| endpoint("a", &format!("a{number}"), "t"));
    t.put(of_a.chain((0..300).map(|number| endpoint("b", &format!("b{number}"), "t")))).await;
    let running = Arc::clone(&t.catalog.view().deployments[&EndpointId::new("b7").unwrap()]);
    t.written();
    for number in 1..30 {
        let readme = format!("{number}");
        let CatalogEntry::Template(changed) = public("a", "t", "mill") else { unreachable!() };
        t.put([CatalogEntry::Template(Template { readme, ..changed })]).await;
        assert_eq!(t.written(), ["template"]);
        t.upload("a", &[number]).await.unwrap();
        assert_eq!(t.written(), ["component", "image", "template"]);
    }
    // Every deployment shows its changes all the same.
    let current = t.catalog.deployment(&EndpointId::new("b7").unwrap()).unwrap();
    assert!(!Arc::ptr_eq(&running, &current));
    assert_eq!(current.component, Some(ComponentDigest::of(&[29])));
    assert_eq!((t.endpoint("a7").version, t.endpoint("b7").version), (59, 59));
    let versions: Vec<_> = t.releases("a7").iter().map(|(version, _)| *version).collect();
    assert_eq!(versions, (21..=59).step_by(2).collect::<Vec<_>>());
    assert_eq!(t.releases("b7"), [(1, "mill".to_owned())], "its owner cannot go back to others");
}

#[tokio::test]
async fn other_owners_do_not_see_how_often_a_private_template_changes() {
    let t = Fixture::new().await;
    t.upload("a", b"0").await.unwrap();
    t.put([public("a", "t", "mill")]).await;
    t.put([endpoint("a", "ea", "t"), endpoint("b", "eb", "t")]).await;
    let versions = |t: &Fixture| ["ea", "eb"].map(|id| t.endpoint(id).version);
    let private = |readme: &str| {
        let readme = readme.to_owned();
        CatalogEntry::Template(Template { readme, ..template("a", "t", "mill") })
    };
    t.put([private("")]).await;
    assert_eq!(versions(&t), [2, 2], "it has lost its template");
    for number in 1..=3 {
        t.put([private(&number.to_string())]).await;
        t.upload("a", &[number]).await.unwrap();
    }
    assert_eq!(versions(&t), [8, 2]);
    t.put([public("a", "t", "mill")]).await;
    assert_eq!(versions(&t), [9, 3], "it has another template now");
    t.upload("a", &[9]).await.unwrap();
    assert_eq!(versions(&t), [10, 4]);
    let next = Fixture::on(t.rows.clone()).await;
    assert_eq!(versions(&next), versions(&t));
}

#[tokio::test]
async fn releases_count_for_the_owner_of_the_template_that_ran_them() {
    let bounds = OwnerBounds { record_bytes_max: 40_000, ..OwnerBounds::default() };
    let t = Fixture::new().await.bounded(bounds);
    t.upload("a", b"0").await.unwrap();
    t.put([public("a", "t", "mill")]).await;
    // `b` fills its share with endpoints on the public template of `a`.
    write_template(&t.catalog, "b", "padding", 0).await.unwrap();
    let try_put = async |entry: CatalogEntry| {
        let change = vec![CatalogChange::Put(entry)];
        let changed = t.catalog.change(|_| Ok::<_, StoreError>((change, ()))).await;
        changed.map_err(|error| error.to_string())
    };
    let mut made = 0;
    while try_put(endpoint("b", &format!("b{made}"), "t")).await.is_ok() {
        made += 1;
    }
    assert!(made > 5, "{made}");
    let mut padding = 0;
    while write_template(&t.catalog, "b", "padding", padding).await.is_ok() {
        padding += 1;
    }
    for number in 1..=40 {
        t.upload("a", &[number]).await.unwrap();
    }
    // `b` may still change all that it has, and the operator may make keys for `b`.
    for number in 0..made {
        let CatalogEntry::Endpoint(mut changed) = endpoint("b", &format!("b{number}"), "t") else {
            unreachable!()
        };
        changed.settings.workers_max = 99;
        let present = t.endpoint(&changed.id.to_string());
        changed.webhook_secrets = present.webhook_secrets.clone();
        changed.incarnation = present.incarnation;
        try_put(CatalogEntry::Endpoint(changed)).await.unwrap();
    }
    try_put(CatalogEntry::Key(key_of("b"))).await.unwrap();
    // `a` pays for the releases of its templates, on which nothing of `b` is needed any more.
    let mut templates = 0;
    let refused = loop {
        let CatalogEntry::Template(more) = public("a", &format!("t{templates}"), "mill") else {
            unreachable!()
        };
        if let Err(refused) = try_put(CatalogEntry::Template(more)).await {
            break refused;
        }
        templates += 1;
    };
    assert!(refused.contains("MiB of records"), "{refused}");
    let refused = t.upload("a", b"and one for each template").await.unwrap_err();
    assert!(refused.contains("MiB of records"), "{refused}");
}

#[tokio::test]
async fn keys_have_a_bound_of_their_own() {
    let bounds = OwnerBounds { records_max: 3, ..OwnerBounds::default() };
    let t = Fixture::new().await.bounded(bounds);
    t.put(["t1", "t2", "t3"].map(|id| CatalogEntry::Template(template("a", id, "mill")))).await;
    let keys = [(); 3].map(|()| CatalogEntry::Key(key_of("a")));
    t.put(keys).await;
    let one_more = vec![CatalogChange::Put(CatalogEntry::Key(key_of("a")))];
    let refused = t.catalog.change(|_| Ok::<_, StoreError>((one_more, ()))).await.unwrap_err();
    assert!(refused.to_string().contains("4 keys, and may have 3"), "{refused}");
}

#[tokio::test]
async fn a_release_of_another_owners_template_keeps_no_component() {
    let bounds = OwnerBounds { component_bytes_max: 40, ..OwnerBounds::default() };
    let t = Fixture::new().await.bounded(bounds);
    let bytes = |number: u8| [number; 15];
    t.upload("a", &bytes(0)).await.unwrap();
    t.put([public("a", "t", "mill")]).await;
    t.put([endpoint("b", "eb", "t")]).await;
    for number in 1..10 {
        t.upload("a", &bytes(number)).await.unwrap();
        let unused = t.catalog.remove_unused_components().await.unwrap();
        assert_eq!(unused, [ComponentDigest::of(&bytes(number - 1))]);
    }
    // An endpoint of the template's own owner keeps them, for its owner.
    t.put([endpoint("a", "ea", "t")]).await;
    t.upload("a", &bytes(10)).await.unwrap();
    assert_eq!(t.catalog.remove_unused_components().await.unwrap(), []);
    let refused = t.upload("a", &bytes(11)).await.unwrap_err();
    assert!(refused.contains("MiB of components"), "{refused}");
    assert_eq!((t.owners(&bytes(9)), t.owners(&bytes(10))), (vec!["a".into()], vec!["a".into()]));
}

#[tokio::test]
async fn an_endpoint_that_moves_to_another_template_keeps_its_releases() {
    let t = Fixture::new().await;
    t.upload("a", b"0").await.unwrap();
    let by_digest = format!("other@{}", ComponentDigest::of(b"0").oci());
    t.put(
        [("t", "mill"), ("u", &*by_digest)]
            .map(|(id, image)| CatalogEntry::Template(template("a", id, image))),
    )
    .await;
    t.put([endpoint("a", "e", "t")]).await;
    t.upload("a", b"1").await.unwrap();
    t.upload("a", b"2").await.unwrap();
    t.put([endpoint("a", "e", "u")]).await;
    let named = |versions: &[(u32, &str)]| -> Vec<_> {
        versions.iter().map(|(version, image)| (*version, (*image).to_owned())).collect()
    };
    let expected = named(&[(1, "mill"), (2, "mill"), (3, "mill"), (4, &by_digest)]);
    assert_eq!(t.releases("e"), expected);
    // Later changes of the first template are not the endpoint's.
    t.upload("a", b"3").await.unwrap();
    assert_eq!((t.releases("e"), t.endpoint("e").version), (expected.clone(), 4));
    // A template that is made again under its id begins with a revision of its own.
    t.put([endpoint("a", "e", "t")]).await;
    assert_eq!((t.releases("e").len(), t.endpoint("e").version), (5, 5));
    t.put([CatalogEntry::Template(Template { readme: "x".into(), ..template("a", "t", "mill") })])
        .await;
    assert_eq!((t.releases("e").len(), t.endpoint("e").version), (5, 6));
}

#[derive(Debug, Clone)]
enum Op {
    Upload(usize, u8),
    DeleteImage(usize),
    Template {
        of: usize,
        id: usize,
        image: u8,
        is_public: bool,
    },
    DeleteTemplate(usize),
    Endpoint {
        of: usize,
        template: usize,
        workers: u32,
    },
    DeleteEndpoint(usize),
    RemoveUnused,
    /// The records are loaded into a new catalog.
    Start,
}

const OWNERS: [&str; 3] = ["a", "b", "c"];

fn op() -> impl Strategy<Value = Op> {
    let of = 0..OWNERS.len();
    prop_oneof![
        6 => (of.clone(), 0..6_u8).prop_map(|(of, bytes)| Op::Upload(of, bytes)),
        1 => of.clone().prop_map(Op::DeleteImage),
        4 => (of.clone(), 0..2_usize, 0..8_u8, any::<bool>())
            .prop_map(|(of, id, image, is_public)| Op::Template { of, id, image, is_public }),
        1 => (0..6_usize).prop_map(Op::DeleteTemplate),
        4 => (of.clone(), 0..6_usize, 0..3_u32)
            .prop_map(|(of, template, workers)| Op::Endpoint { of, template, workers }),
        1 => of.prop_map(Op::DeleteEndpoint),
        3 => Just(Op::RemoveUnused),
        2 => Just(Op::Start),
    ]
}

/// Carries an operation out, if the API would permit it.
async fn carry_out(t: &Fixture, op: &Op) {
    let view = t.catalog.view();
    let template_id = |number: usize| TemplateId::new(&format!("t{number}")).unwrap();
    match *op {
        Op::Upload(of, bytes) => t.upload(OWNERS[of], &[bytes]).await.unwrap(),
        Op::DeleteImage(of) => {
            t.delete(CatalogKey::Image(ImageKey::new(&owner(OWNERS[of]), "mill"))).await;
        }
        Op::Template { of, id, image, is_public } => {
            let image = match image {
                6.. => "mill".to_owned(),
                byte => format!("mill@{}", ComponentDigest::of(&[byte]).oci()),
            };
            let id = format!("t{}", of * 2 + id);
            let put = Template { is_public, ..template(OWNERS[of], &id, &image) };
            t.put([CatalogEntry::Template(put)]).await;
        }
        Op::DeleteTemplate(id) => {
            let id = template_id(id);
            if view.bound_to(&id).next().is_none() {
                t.delete(CatalogKey::Template(id)).await;
            }
        }
        Op::Endpoint { of, template, workers } => {
            let usable = view.templates.get(&template_id(template));
            if usable.is_none_or(|template| !template.is_usable_by(&owner(OWNERS[of]))) {
                return;
            }
            let CatalogEntry::Endpoint(mut put) =
                endpoint(OWNERS[of], &format!("e{of}"), template_id(template).as_str())
            else {
                unreachable!()
            };
            put.settings.workers_max = workers;
            if let Some(current) = view.deployments.get(&put.id) {
                put.webhook_secrets = current.endpoint.webhook_secrets.clone();
            }
            t.put([CatalogEntry::Endpoint(put)]).await;
        }
        Op::DeleteEndpoint(of) => {
            t.delete(CatalogKey::Endpoint(EndpointId::new(&format!("e{of}")).unwrap())).await;
        }
        Op::RemoveUnused => {
            t.catalog.remove_unused_components().await.unwrap();
        }
        Op::Start => {}
    }
}

/// Whether each deployment has what its parts say, and each version has grown with each change.
fn check(before: &View, after: &View) {
    for (id, current) in &after.deployments {
        let Some(earlier) = before.deployments.get(id) else { continue };
        let (was, is) = (earlier.endpoint.version, current.endpoint.version);
        if earlier.incarnation != current.incarnation {
            continue;
        }
        let is_changed = earlier.component != current.component
            || earlier.endpoint.template != current.endpoint.template
            || earlier.endpoint.settings != current.endpoint.settings;
        assert!(is >= was && is <= was + 1, "{id}: {was} to {is}");
        assert!(is > was || !is_changed, "{id} has changed in version {was}");
    }
    for current in after.deployments.values() {
        let versions: Vec<_> = current.endpoint.releases.iter().map(|r| r.version).collect();
        assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
        assert!(versions.iter().all(|version| *version <= current.endpoint.version));
        if current.template.owner == current.endpoint.owner
            && let Some(component) = current.component
        {
            assert_eq!(current.endpoint.releases.last().map(|r| r.component), Some(component));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn versions_releases_and_shares_are_those_of_the_next_start(
        ops in prop::collection::vec(op(), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut t = Fixture::new().await;
            for op in &ops {
                let before = t.catalog.view();
                carry_out(&t, op).await;
                let after = t.catalog.view();
                check(&before, &after);
                let loaded = Fixture::on(t.rows.clone()).await;
                let next = loaded.catalog.view();
                assert_eq!(after.templates, next.templates);
                for (id, current) in &after.deployments {
                    let next = &next.deployments[id];
                    assert_eq!(current.endpoint, next.endpoint);
                    assert_eq!(current.component, next.component);
                }
                assert_eq!(after.shares, next.shares);
                if matches!(op, Op::RemoveUnused) {
                    assert!(after.components.values().all(|component| !component.owners.is_empty()));
                }
                if matches!(op, Op::Start) {
                    t = loaded;
                }
            }
        });
    }
}
