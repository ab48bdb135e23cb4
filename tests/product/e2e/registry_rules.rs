//! The host as a registry, by the rules of the distribution specification: remains of pushes,
//! lists, referrers, ranges and deletion.

use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use gristmill_tests::{Answer, TestHost, eventually, shared_host};
use reqwest::Method;
use serde_json::{Value, json};

use crate::handlers::echo;
use crate::hostile_uploads::{children_of, nested_types};
use crate::registry::{
    begin, call, digest, manifest, push_blob, push_manifest, refused, send, staged,
};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Pushes a config and a component, and their manifest with these further fields.
async fn push(host: &TestHost, name: &str, tag: &str, more: &Value) -> Answer {
    let component = echo(name);
    let layer = push_blob(host, name, &component).await;
    let config = push_blob(host, name, b"{}").await;
    let mut manifest = manifest((&config, 2), (&layer, component.len()));
    for (field, value) in more.as_object().unwrap() {
        manifest[field] = value.clone();
    }
    push_manifest(host, name, tag, &manifest).await
}

async fn get(host: &TestHost, path: &str) -> Answer {
    send(host, call(host, Method::GET, path)).await
}

async fn delete(host: &TestHost, path: &str) -> Answer {
    send(host, call(host, Method::DELETE, path)).await
}

#[tokio::test]
async fn refused_manifests_block_no_later_push() {
    let host = TestHost::start();
    for number in 0..20 {
        let bytes = format!("layer {number}");
        let layer = push_blob(&host, "mill", bytes.as_bytes()).await;
        let config = push_blob(&host, "mill", format!("{{\"n\":{number}}}").as_bytes()).await;
        let size = format!("{{\"n\":{number}}}").len();
        let mut image = manifest((&config, size), (&layer, bytes.len()));
        // Another type of layer, bytes that are not a component, an invalid tag, a digest as the
        // tag.
        let (tag, code) = match number % 4 {
            0 => ("1", "MANIFEST_INVALID"),
            1 => ("1", "MANIFEST_INVALID"),
            2 => ("-x", "MANIFEST_INVALID"),
            _ => (&*layer, "UNSUPPORTED"),
        };
        if number % 4 == 0 {
            image["layers"][0]["mediaType"] = "application/vnd.oci.image.layer.v1.tar".into();
        }
        refused(&push_manifest(&host, "mill", tag, &image).await, 400, code);
        assert_eq!(staged(&host), 0, "push {number}");
    }
    // Blobs that a manifest misses can be pushed after it.
    let component = echo("late");
    let config = push_blob(&host, "mill", b"{}").await;
    let image = manifest((&config, 2), (&digest(&component), component.len()));
    let early = push_manifest(&host, "mill", "1", &image).await;
    refused(&early, 404, "MANIFEST_BLOB_UNKNOWN");
    push_blob(&host, "mill", &component).await;
    assert_eq!(push_manifest(&host, "mill", "1", &image).await.status, 201);
    assert_eq!(staged(&host), 0);
}

#[tokio::test]
async fn a_repeated_blob_takes_no_further_upload() {
    let host = TestHost::start();
    for _ in 0..20 {
        push_blob(&host, "mill", b"hello").await;
        push_blob(&host, "mill", b"{}").await;
    }
    assert!(staged(&host) <= 16, "{}", staged(&host));
    // Concurrent pushes that share their config and their component.
    let tags = ["1", "2", "3", "4"];
    let pushed = join_all(tags.map(async |tag| push(&host, "mill", tag, &json!({})).await)).await;
    assert!(pushed.iter().all(|pushed| pushed.status == 201), "{pushed:?}");
    while delete(&host, &format!("mill/blobs/{}", digest(b"hello"))).await.status == 202 {}
    assert_eq!(staged(&host), 0);
    // Blobs that an image has need no room.
    for _ in 0..20 {
        push_blob(&host, "mill", &echo("mill")).await;
        push_blob(&host, "mill", b"{}").await;
    }
    assert_eq!(staged(&host), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_is_refused_for_the_moment_can_be_pushed_again() {
    let host = TestHost::start();
    let component = echo("pushed again");
    let layer = push_blob(&host, "mill", &component).await;
    let config = push_blob(&host, "mill", b"{}").await;
    let image = manifest((&config, 2), (&layer, component.len()));
    // One upload is compiled for some seconds; as many wait as may wait, and one more is refused.
    let client = host.client();
    let slow = client.clone();
    let slow = tokio::spawn(async move { slow.upload("slow", nested_types(9)).await });
    eventually("a compile", async || children_of(host.pid()).pop()).await;
    let uploads = (0..17).map(|number| {
        let (name, bytes) = (format!("waiting{number}"), echo(&format!("waiting {number}")));
        let client = &client;
        async move { client.upload(&name, bytes).await }
    });
    let mut uploads: FuturesUnordered<_> = uploads.collect();
    uploads.next().await.unwrap().refused(429);
    let waiting = staged(&host);
    for _ in 0..2 {
        let answer = push_manifest(&host, "mill", "1", &image).await;
        refused(&answer, 429, "TOOMANYREQUESTS");
        assert!(answer.header("retry-after").is_some(), "{answer:?}");
        assert_eq!(staged(&host), waiting, "the blobs stay");
    }
    slow.await.unwrap().refused(400);
    while uploads.next().await.is_some() {}
    let pushed = push_manifest(&host, "mill", "1", &image).await;
    assert_eq!(pushed.status, 201, "{pushed:?}");
    assert_eq!(staged(&host), 0);
}

/// Clients skip the upload of a blob that the host has, so manifests share one copy of it.
#[tokio::test]
async fn concurrent_manifests_share_one_copy_of_their_blobs() {
    let host = TestHost::start();
    let component = echo("shared");
    let layer = push_blob(&host, "mill", &component).await;
    let config = push_blob(&host, "mill", b"{}").await;
    let image = manifest((&config, 2), (&layer, component.len()));
    let tags = ["1", "2", "3", "4", "5", "6", "7", "8"];
    let pushed = join_all(tags.map(|tag| push_manifest(&host, "mill", tag, &image))).await;
    assert!(pushed.iter().all(|pushed| pushed.status == 201), "{pushed:?}");
    assert_eq!(staged(&host), 0);
    // A manifest that waits for a refused one gets an answer too.
    let layer = push_blob(&host, "other", b"no component").await;
    let config = push_blob(&host, "other", b"{}").await;
    let image = manifest((&config, 2), (&layer, 12));
    let pushed = join_all(tags.map(|tag| push_manifest(&host, "other", tag, &image))).await;
    assert!(pushed.iter().all(|pushed| [400, 404].contains(&pushed.status)), "{pushed:?}");
    assert_eq!(staged(&host), 0);
    // One blob cannot be both.
    let blob = push_blob(&host, "mill", &component).await;
    let image = manifest((&blob, component.len()), (&blob, component.len()));
    let twice = push_manifest(&host, "mill", "9", &image).await;
    refused(&twice, 400, "MANIFEST_INVALID");
}

#[tokio::test]
async fn a_pushed_blob_is_at_its_location_at_once() {
    let host = TestHost::start();
    let blob: Vec<u8> = (0..5_000_000_u32).map(|i| (i % 251) as u8).collect();
    let name = digest(&blob);
    let path = format!("mill/blobs/uploads/?digest={name}");
    let pushed = send(&host, call(&host, Method::POST, &path).body(blob.clone())).await;
    let location = pushed.header("location").unwrap();
    let request = call(&host, Method::GET, location).send().await.unwrap();
    assert_eq!(request.status(), 200);
    assert_eq!(request.headers()["content-length"], &*blob.len().to_string());
    assert_eq!(request.headers()["docker-content-digest"], &*name);
    assert_eq!(request.bytes().await.unwrap(), blob);
    let head = send(&host, call(&host, Method::HEAD, location)).await;
    assert_eq!((head.status, head.header("content-length")), (200, Some("5000000")));
    refused(&get(&host, &format!("other/blobs/{name}")).await, 404, "BLOB_UNKNOWN");
    // It can be deleted.
    assert_eq!(delete(&host, location).await.status, 202);
    refused(&get(&host, location).await, 404, "BLOB_UNKNOWN");
    refused(&delete(&host, location).await, 404, "BLOB_UNKNOWN");
    assert_eq!(staged(&host), 0);
}

#[tokio::test]
async fn a_list_of_no_tags_is_empty() {
    let host = shared_host();
    for tag in ["1", "2"] {
        host.upload(&format!("counted:{tag}"), echo("counted")).await.ok();
    }
    let none = get(&host, "counted/tags/list?n=0").await;
    assert_eq!(none.ok(), json!({ "name": "counted", "tags": [] }));
    assert_eq!(none.header("link"), None);
    refused(&get(&host, "uncounted/tags/list?n=0").await, 404, "NAME_UNKNOWN");
}

#[tokio::test]
async fn manifests_are_listed_under_their_subject() {
    let host = shared_host();
    let subject = digest(b"a manifest that is not there");
    let list = async |query: &str| {
        let answer = get(&host, &format!("about/referrers/{subject}{query}")).await;
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, Some(INDEX)),
            "{answer:?}"
        );
        let index: Value = serde_json::from_str(&answer.text).unwrap();
        assert_eq!((&index["schemaVersion"], &index["mediaType"]), (&2.into(), &INDEX.into()));
        (index["manifests"].as_array().unwrap().clone(), answer)
    };
    assert!(list("").await.0.is_empty());
    for wrong in ["sha256", "x", "sha256:"] {
        let answer = get(&host, &format!("about/referrers/{wrong}")).await;
        refused(&answer, 400, "DIGEST_INVALID");
    }
    let about = json!({
        "subject": { "mediaType": INDEX, "digest": subject, "size": 3 },
        "annotations": { "org.example": "grain" },
    });
    let mut digests = vec![];
    for (tag, kind) in [("1", None), ("2", None), ("3", Some("application/vnd.example"))] {
        let mut about = about.clone();
        if let Some(kind) = kind {
            about["artifactType"] = kind.into();
        }
        let pushed = push(&host, "about", tag, &about).await;
        assert_eq!((pushed.status, pushed.header("oci-subject")), (201, Some(&*subject)));
        digests.push(pushed.header("docker-content-digest").unwrap().to_owned());
    }
    assert_eq!(digests[0], digests[1], "one manifest with two tags");
    let (found, _) = list("").await;
    assert_eq!(found.len(), 2, "{found:?}");
    for entry in &found {
        assert!(digests.iter().any(|digest| entry["digest"] == **digest), "{entry}");
        assert_eq!(entry["annotations"], about["annotations"]);
        let named = entry["digest"].as_str().unwrap();
        let text = get(&host, &format!("about/manifests/{named}")).await.text;
        assert_eq!(entry["size"], text.len());
    }
    let (found, answer) = list("?artifactType=application%2Fvnd.example").await;
    assert_eq!((found.len(), &found[0]["digest"]), (1, &digests[2].as_str().into()));
    assert_eq!(answer.header("oci-filters-applied"), Some("artifactType"));
    assert_eq!(delete(&host, &format!("about/manifests/{}", digests[0])).await.status, 202);
    assert_eq!(list("").await.0.len(), 1);
}

/// The values of annotations take some twenty times the memory of their text.
#[tokio::test]
async fn a_list_of_referrers_takes_little_memory() {
    let host = TestHost::start();
    let component = echo("mill");
    let layer = push_blob(&host, "mill", &component).await;
    let config = push_blob(&host, "mill", b"{}").await;
    let mut image = manifest((&config, 2), (&layer, component.len()));
    let subject = digest(b"a manifest that is not there");
    image["subject"] = json!({ "mediaType": INDEX, "digest": subject, "size": 3 });
    for number in 0..200 {
        let names = (0..5_500).map(|name| (format!("{name:x}"), "".into()));
        image["annotations"] = Value::Object(names.collect());
        image["annotations"]["number"] = number.to_string().into();
        let pushed = push_manifest(&host, "mill", &format!("t{number}"), &image).await;
        assert_eq!(pushed.status, 201, "{pushed:?}");
    }
    host.forget_peak_memory();
    let before = host.peak_memory();
    let (mut path, mut found, mut pages) = (format!("mill/referrers/{subject}"), 0, 0);
    loop {
        let page = get(&host, &path).await;
        let index: Value = serde_json::from_str(&page.text).unwrap();
        found += index["manifests"].as_array().unwrap().len();
        pages += 1;
        let Some(next) = page.next_page() else { break };
        path = next;
    }
    assert_eq!(found, 200, "on {pages} pages");
    let more = host.peak_memory() - before;
    println!("{pages} pages took {} MiB", more >> 20);
    assert!(more < 32 << 20, "{} MiB", more >> 20);
    // Many clients can read no list with other annotations.
    image["annotations"] = json!([0, 0]);
    let other = push_manifest(&host, "mill", "other", &image).await;
    assert!(refused(&other, 400, "MANIFEST_INVALID").contains("annotations"), "{other:?}");
}

#[tokio::test]
async fn a_range_has_as_many_bytes_as_came() {
    let host = shared_host();
    let upload = begin(&host, "ranges").await;
    let add = async |range: &str, bytes: &'static str| {
        let request = call(&host, Method::PATCH, &upload).header("content-range", range);
        send(&host, request.body(bytes)).await
    };
    for range in ["0-99", "0-1", "0-18446744073709551615"] {
        let answer = add(range, "abc").await;
        let code = if range.len() > 5 { "BLOB_UPLOAD_INVALID" } else { "SIZE_INVALID" };
        refused(&answer, if range.len() > 5 { 416 } else { 400 }, code);
    }
    refused(&add("2-0", "abc").await, 416, "BLOB_UPLOAD_INVALID");
    assert_eq!(add("0-2", "abc").await.status, 202);
    let finish = format!("{upload}?digest={}", digest(b"abcdef"));
    let last = call(&host, Method::PUT, &finish).header("content-range", "3-5").body("def");
    assert_eq!(send(&host, last).await.status, 201);
}

#[tokio::test]
async fn digests_by_another_algorithm_are_refused() {
    let host = shared_host();
    let sha512 = format!("sha512:{}", "0".repeat(128));
    for (method, path) in [
        (Method::POST, format!("mill/blobs/uploads/?digest={sha512}")),
        (Method::POST, "mill/blobs/uploads/?digest-algorithm=sha512".to_owned()),
        (Method::GET, format!("mill/blobs/{sha512}")),
        (Method::DELETE, format!("mill/blobs/{sha512}")),
    ] {
        refused(&send(&host, call(&host, method, &path)).await, 400, "DIGEST_INVALID");
    }
    // A digest without a known algorithm is not a tag either.
    refused(&get(&host, &format!("mill/manifests/{sha512}")).await, 404, "MANIFEST_UNKNOWN");
}

/// All tags of a manifest are deleted in one change: those of longer names, and of other owners,
/// stay.
#[tokio::test]
async fn a_digest_deletes_the_tags_of_its_own_name() {
    let host = TestHost::start();
    let mut named = String::new();
    for name in ["mill", "mil", "mill-2", "mill.b", "mill_"] {
        for tag in ["1", "2", "3"] {
            // The same component has the same manifest under each name.
            host.upload(&format!("{name}:{tag}"), echo("one")).await.ok();
        }
        let manifest = get(&host, &format!("{name}/manifests/2")).await;
        named = manifest.header("docker-content-digest").unwrap().to_owned();
    }
    let other = host.client_of("mill-owner").await;
    other.upload("mill:1", echo("one")).await.ok();
    assert_eq!(delete(&host, &format!("mill/manifests/{named}")).await.status, 202);
    refused(&get(&host, "mill/tags/list").await, 404, "NAME_UNKNOWN");
    refused(&get(&host, &format!("mill/manifests/{named}")).await, 404, "MANIFEST_UNKNOWN");
    for name in ["mil", "mill-2", "mill.b", "mill_"] {
        let tags = get(&host, &format!("{name}/tags/list")).await.ok();
        assert_eq!(tags["tags"], json!(["1", "2", "3"]), "{name}");
        let found = get(&host, &format!("{name}/manifests/{named}")).await;
        assert_eq!(found.status, 200, "{name}");
    }
    other.get("/v1/handlers/mill:1").await.ok();
}

#[tokio::test]
async fn tags_and_manifests_can_be_deleted() {
    let host = TestHost::start();
    let mut named = String::new();
    for tag in ["1", "2", "3"] {
        let pushed = push(&host, "mill", tag, &json!({})).await;
        named = pushed.header("docker-content-digest").unwrap().to_owned();
    }
    assert_eq!(delete(&host, "mill/manifests/1").await.status, 202);
    for answer in [get(&host, "mill/manifests/1").await, delete(&host, "mill/manifests/1").await] {
        refused(&answer, 404, "MANIFEST_UNKNOWN");
    }
    host.client().get("/v1/handlers/mill:1").await.refused(404);
    // Its blobs stay while an image has them.
    let layer = format!("mill/blobs/{}", digest(&echo("mill")));
    refused(&delete(&host, &layer).await, 400, "UNSUPPORTED");

    host.deploy_image("mill:2", "mill", json!({})).await;
    for reference in ["2", &*named] {
        let in_use = delete(&host, &format!("mill/manifests/{reference}")).await;
        assert!(refused(&in_use, 400, "DENIED").contains("`mill`"), "{in_use:?}");
        assert_eq!(get(&host, "mill/tags/list").await.ok()["tags"], json!(["2", "3"]));
    }
    host.client().delete("/v1/endpoints/mill").await;
    host.client().delete("/v1/templates/mill").await;
    assert_eq!(delete(&host, &format!("mill/manifests/{named}")).await.status, 202);
    refused(&get(&host, &format!("mill/manifests/{named}")).await, 404, "MANIFEST_UNKNOWN");
    refused(&get(&host, &layer).await, 404, "BLOB_UNKNOWN");
    // The same can be pushed again.
    assert_eq!(push(&host, "mill", "1", &json!({})).await.status, 201);
}
