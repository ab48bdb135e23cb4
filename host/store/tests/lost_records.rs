//! A repair of a catalog that has lost records: readable records are saved, no record is replaced,
//! and a host starts on the result with all jobs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::support;
use crate::support::{START, chunk, endpoint, job, json, submit, worker};
use gristmill_core::catalog::{Catalog, CatalogChange, CatalogEntry, CatalogStore as _, Image};
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::deploy::endpoint::Endpoint;
use gristmill_core::deploy::template::Template;
use gristmill_core::deploy::volume::Volume;
use gristmill_core::id::{JobId, OwnerId, TemplateId, VolumeId};
use gristmill_core::job::record::Outcome;
use gristmill_core::signals::Signals;
use gristmill_core::store::{Fenced, JobStore as _, StoreError};
use gristmill_core::time::ManualClock;
use gristmill_store::{Repaired, Store, check, repair};
use gristmill_test_support::{ClaimEach as _, EndAttempt as _};
use tempfile::TempDir;

const PAGE: usize = 8_192;

fn open(dir: &Path) -> Store {
    let clock = Arc::new(ManualClock::new(START));
    support::open(dir, &clock, &Arc::new(Signals::default())).0
}

fn template_id(id: &str) -> TemplateId {
    TemplateId::new(id).unwrap()
}

fn owner(id: &str) -> OwnerId {
    OwnerId::new(id).unwrap()
}

fn endpoint_on(id: &str, template: &str, of: &str) -> CatalogEntry {
    CatalogEntry::Endpoint(Endpoint::new(endpoint(id), owner(of), template_id(template), START))
}

fn template(id: &str, of: &str) -> Template {
    Template::new(template_id(id), owner(of), "mill")
}

fn component() -> CatalogEntry {
    CatalogEntry::Component(
        serde_json::from_value(serde_json::json!({
            "digest": ComponentDigest::of(b"mill"), "bytes": 4, "imports": [], "exports": [],
            "uploaded_at": START, "compile_ms": 1, "artifacts": {}, "owners": ["owner"],
            "compiled_bytes": 1, "producers": { "languages": [], "tools": [] },
        }))
        .unwrap(),
    )
}

fn image(name: &str, of: &str) -> CatalogEntry {
    CatalogEntry::Image(Image {
        name: name.to_owned(),
        tag: "latest".to_owned(),
        digest: ComponentDigest::of(b"mill"),
        owner: owner(of),
        updated_at: START,
        manifest: None,
    })
}

/// A closed directory with these records, and with a waiting job of each of these endpoints.
async fn directory(entries: Vec<CatalogEntry>, with_jobs: &[&str]) -> (TempDir, Vec<JobId>) {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()));
    let catalog = Catalog::open(store.clone(), Arc::new(ManualClock::new(START))).await.unwrap();
    let changes = entries.into_iter().map(CatalogChange::Put).collect();
    catalog.change(|_| Ok::<_, StoreError>((changes, ()))).await.unwrap();
    let mut jobs = vec![];
    for name in with_jobs {
        jobs.push(submit(&*store, job(name)).await);
    }
    store.close().await;
    (dir, jobs)
}

/// The entries of a directory, on which a host can start.
async fn entries(dir: &Path) -> Vec<CatalogEntry> {
    assert_eq!(check(dir, None).unwrap().damage, []);
    let store = Arc::new(open(dir));
    let catalog = Catalog::open(store.clone(), Arc::new(ManualClock::new(START))).await.unwrap();
    for (name, jobs) in store.endpoints().unwrap() {
        assert!(catalog.deployment(&name).is_some() || jobs == 0, "{name} has {jobs} jobs");
    }
    let entries = store.load_catalog().await.unwrap();
    store.close().await;
    entries
}

fn endpoint_of<'e>(entries: &'e [CatalogEntry], name: &str) -> &'e Endpoint {
    let is_it = |entry: &'e CatalogEntry| match entry {
        CatalogEntry::Endpoint(endpoint) if endpoint.id.as_str() == name => Some(endpoint),
        _ => None,
    };
    entries.iter().find_map(is_it).unwrap()
}

fn template_of<'e>(entries: &'e [CatalogEntry], id: &TemplateId) -> &'e Template {
    let is_it = |entry: &'e CatalogEntry| match entry {
        CatalogEntry::Template(template) if template.id == *id => Some(template),
        _ => None,
    };
    entries.iter().find_map(is_it).unwrap()
}

/// Flips a bit of the encrypted body of a record.
fn damage_record(dir: &Path, kind: &str, name: &str) {
    let tables = rusqlite::Connection::open(dir.join("store.db")).unwrap();
    let sql = "SELECT body FROM catalog WHERE kind = ?1 AND name = ?2";
    let mut body: Vec<u8> = tables.query_row(sql, [kind, name], |row| row.get(0)).unwrap();
    let middle = body.len() / 2;
    body[middle] ^= 1;
    let sql = "UPDATE catalog SET body = ?1 WHERE kind = ?2 AND name = ?3";
    assert_eq!(tables.execute(sql, rusqlite::params![body, kind, name]).unwrap(), 1);
}

fn sentences(repaired: &Repaired) -> Vec<String> {
    repaired.losses.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_lost_endpoint_with_the_longest_name_gets_a_placeholder_and_keeps_its_jobs() {
    for length in [123, 124, 128] {
        let name = "n".repeat(length);
        let records =
            vec![endpoint_on(&name, "t", "owner"), CatalogEntry::Template(template("t", "owner"))];
        let (dir, jobs) = directory(records, &[&name]).await;
        damage_record(dir.path(), "endpoint", &name);
        let new = tempfile::tempdir().unwrap();
        let repaired = repair(dir.path(), new.path(), None).unwrap();
        let said = sentences(&repaired);
        assert!(said.iter().any(|said| said.contains("has a placeholder")), "{said:?}");
        let saved = entries(new.path()).await;
        let placeholder = endpoint_of(&saved, &name);
        assert!(placeholder.settings.paused, "its jobs wait for the operator");
        assert_eq!(placeholder.owner, owner("owner"), "who submitted its job");
        assert_eq!(template_of(&saved, &placeholder.template).owner, owner("owner"));
        let store = open(new.path());
        assert!(store.job(&endpoint(&name), jobs[0]).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_placeholder_replaces_no_template() {
    let env = [("A".to_owned(), "1".to_owned())].into_iter().collect();
    let kept = Template { env, ..template("lost-e", "b") };
    let named = Template { name: "lost-f".to_owned(), ..template("other", "owner") };
    let records = vec![
        CatalogEntry::Template(kept.clone()),
        CatalogEntry::Template(named),
        CatalogEntry::Template(template("t", "owner")),
        endpoint_on("of-b", "lost-e", "b"),
        endpoint_on("e", "t", "owner"),
        endpoint_on("f", "t", "owner"),
    ];
    let (mut dir, _) = directory(records, &["e", "f"]).await;
    let mut placeholders = BTreeSet::new();
    // The second repair loses the placeholder of the first one.
    for round in 0..2 {
        for name in ["e", "f"] {
            damage_record(dir.path(), "endpoint", name);
        }
        let new = tempfile::tempdir().unwrap();
        repair(dir.path(), new.path(), None).unwrap();
        let saved = entries(new.path()).await;
        let found = template_of(&saved, &kept.id);
        assert_eq!((&found.env, &found.owner), (&kept.env, &kept.owner), "round {round}");
        assert_eq!(endpoint_of(&saved, "of-b").template, kept.id);
        for name in ["e", "f"] {
            let template = endpoint_of(&saved, name).template.to_string();
            assert!(template.starts_with(&format!("lost-{name}-")), "{template}");
            assert!(placeholders.insert(template), "{placeholders:?}");
        }
        dir = new;
    }
}

/// A placeholder for a lost endpoint has another template than the lost one of another endpoint.
#[tokio::test]
async fn a_placeholder_is_not_taken_for_a_lost_template_of_its_id() {
    let records = vec![
        CatalogEntry::Template(template("lost-e", "b")),
        CatalogEntry::Template(template("t", "owner")),
        endpoint_on("of-b", "lost-e", "b"),
        endpoint_on("e", "t", "owner"),
    ];
    let (dir, _) = directory(records, &["e"]).await;
    damage_record(dir.path(), "endpoint", "e");
    damage_record(dir.path(), "template", "lost-e");
    let new = tempfile::tempdir().unwrap();
    repair(dir.path(), new.path(), None).unwrap();
    let saved = entries(new.path()).await;
    let of_b = endpoint_of(&saved, "of-b");
    assert_eq!(template_of(&saved, &of_b.template).owner, owner("b"));
    assert!(of_b.settings.paused);
    assert_eq!(endpoint_of(&saved, "e").template, template_id("lost-e-2"));
}

/// The pages of the catalog's records, without those that lead to other pages, and with the kinds
/// in each.
fn pages_of_records(bytes: &[u8]) -> Vec<(usize, Vec<&'static str>)> {
    const LEAF_OF_AN_INDEX: u8 = 10;
    let pages = (1..bytes.len() / PAGE).map(|number| (number, &bytes[number * PAGE..][..PAGE]));
    let leaves = pages.filter(|(_, page)| page[0] == LEAF_OF_AN_INDEX);
    let kinds = |page: &[u8]| {
        let has = |kind: &&str| {
            let key = format!("{kind}grain");
            page.windows(key.len()).any(|window| window == key.as_bytes())
        };
        ["image", "template", "volume"].into_iter().filter(has).collect::<Vec<_>>()
    };
    leaves.map(|(number, page)| (number, kinds(page))).collect()
}

#[tokio::test]
async fn a_damaged_page_of_the_catalog_costs_the_records_in_it() {
    const EACH: usize = 150;
    let mut records = vec![component(), endpoint_on("e", "t", "owner")];
    records.push(CatalogEntry::Template(template("t", "owner")));
    for number in 0..EACH {
        let name = format!("grain{number:03}");
        let readme = "x".repeat(900);
        records.push(CatalogEntry::Template(Template { readme, ..template(&name, "owner") }));
        records.push(image(&format!("{name}{}", "x".repeat(100)), "grain"));
        records.push(CatalogEntry::Volume(Volume {
            id: VolumeId::new(&name).unwrap(),
            owner: owner("owner"),
            name: "x".repeat(100),
            size_gb: 1,
            created_at: START,
        }));
    }
    let all = records.len();
    let (dir, jobs) = directory(records, &["e"]).await;
    let file = dir.path().join("store.db");
    // Full pages, without remains of records that were moved to another page.
    let tables = rusqlite::Connection::open(&file).unwrap();
    tables.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(tables);
    let mut bytes = fs::read(&file).unwrap();
    let pages = pages_of_records(&bytes);
    // One page of each of two kinds, in the middle of the kind's records.
    for kind in ["image", "template"] {
        let of_kind: Vec<_> = pages.iter().filter(|(_, kinds)| *kinds == [kind]).collect();
        assert!(of_kind.len() > 2, "{kind}: {pages:?}");
        bytes[of_kind[of_kind.len() / 2].0 * PAGE] = 0x77;
    }
    fs::write(&file, bytes).unwrap();

    let new = tempfile::tempdir().unwrap();
    let repaired = repair(dir.path(), new.path(), None).unwrap();
    let said = sentences(&repaired);
    assert_eq!(said.len(), 2, "{said:?}");
    for (said, kind) in said.iter().zip(["image", "template"]) {
        assert!(said.contains(&format!("of the kind `{kind}` between `")), "{said}");
    }
    let saved = entries(new.path()).await;
    // A page has at most 30 of these images and at most 9 of these templates.
    let lost = all - saved.len();
    assert!((2..40).contains(&lost), "{lost} of {all} records are lost");
    assert_eq!(repaired.kept_components, Some([ComponentDigest::of(b"mill")].into()));
    let store = open(new.path());
    assert!(store.job(&endpoint("e"), jobs[0]).await.unwrap().is_some());
}

/// The catalog of a small host is one page.
#[tokio::test]
async fn a_lost_catalog_of_one_page_costs_no_job() {
    let records = vec![
        component(),
        image("mill", "owner"),
        CatalogEntry::Template(template("t", "owner")),
        endpoint_on("e", "t", "owner"),
    ];
    let (dir, jobs) = directory(records, &["e"]).await;
    let file = dir.path().join("store.db");
    let tables = rusqlite::Connection::open(&file).unwrap();
    let sql = "SELECT rootpage FROM sqlite_master WHERE name = 'catalog'";
    let page: u32 = tables.query_row(sql, (), |row| row.get(0)).unwrap();
    let page = usize::try_from(page).unwrap();
    drop(tables);
    let mut bytes = fs::read(&file).unwrap();
    bytes[(page - 1) * PAGE] = 0x77;
    fs::write(&file, bytes).unwrap();

    let new = tempfile::tempdir().unwrap();
    let repaired = repair(dir.path(), new.path(), None).unwrap();
    assert_eq!(repaired.jobs, 1, "{:?}", sentences(&repaired));
    assert_eq!(repaired.kept_components, Some(BTreeSet::new()), "a start would delete all of them");
    let saved = entries(new.path()).await;
    assert_eq!(endpoint_of(&saved, "e").owner, owner("owner"));
    let store = open(new.path());
    assert!(store.job(&endpoint("e"), jobs[0]).await.unwrap().is_some());
}

/// A FAILED job counts the bytes of its chunks as its result, and has no output unless its error is
/// long or it had progress.
#[tokio::test]
async fn failed_jobs_with_chunks_are_kept_with_their_inputs() {
    let records =
        vec![endpoint_on("e", "t", "owner"), CatalogEntry::Template(template("t", "owner"))];
    let (dir, _) = directory(records, &[]).await;
    let long = "stone ".repeat(2_000);
    let partial = json(r#"{"ground":7}"#);
    let outcomes = [
        Outcome::Failed("the stone broke".to_owned()),
        Outcome::FailedWith { error: "the stone broke".to_owned(), output: partial.clone() },
        Outcome::Failed(long.clone()),
        Outcome::FailedWith { error: long, output: partial },
    ];
    let store = open(dir.path());
    let mut jobs = vec![];
    for outcome in outcomes {
        let id = submit(&store, job("e")).await;
        let claimed = store.claim_each(&endpoint("e"), &[worker("w")]).await.unwrap();
        let lease = claimed[0].lease;
        let chunks = vec![chunk("1"), chunk("2")];
        assert_eq!(store.append_chunks(lease, chunks).await, Ok(Fenced::Applied));
        assert_eq!(store.finish(lease, outcome).await, Ok(Fenced::Applied));
        jobs.push(id);
    }
    let read = async |store: &Store, id| {
        let record = store.job(&endpoint("e"), id).await.unwrap().unwrap();
        let chunks = store.chunks(id, 0, usize::MAX, usize::MAX).await.unwrap();
        let (input, output) = (store.input(id).await.unwrap(), store.output(id).await.unwrap());
        (format!("{record:?}"), chunks.chunks, input, output)
    };
    let mut before = vec![];
    for id in &jobs {
        before.push(read(&store, *id).await);
    }
    store.close().await;

    let new = tempfile::tempdir().unwrap();
    let repaired = repair(dir.path(), new.path(), None).unwrap();
    assert_eq!((sentences(&repaired), repaired.jobs), (vec![], 4));
    assert_eq!(check(new.path(), None).unwrap().damage, []);
    let store = open(new.path());
    for (id, before) in jobs.iter().zip(before) {
        assert_eq!(read(&store, *id).await, before);
        assert!(before.2.is_some() && before.1.len() == 2, "{before:?}");
    }
    store.close().await;
}
