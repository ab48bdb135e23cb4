//! References to images and their registries, and manifests of components with one change each.

use serde_json::{Value, json};

use super::*;

const HEX: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

#[test]
fn a_registry_is_named_as_images_name_it() {
    let image = |text: &str| text.parse::<RemoteImage>().unwrap();
    for (host, has, has_not) in [
        ("GHCR.io", "ghcr.io/a/b:1", "ghcr.io:443/a/b:1"),
        ("registry.example:5000", "Registry.Example:5000/a", "registry.example/a"),
        ("localhost", "localhost/a", "localhost:1/a"),
        ("[::1]:5000", "[::1]:5000/a", "[::1]:500/a"),
        (RegistryHost::DEFAULT, "docker.io/library/a", "docker.io.evil.example/a"),
    ] {
        let host: RegistryHost = host.parse().unwrap();
        assert!(image(has).is_at(&host), "{host} {has}");
        assert!(!image(has_not).is_at(&host), "{host} {has_not}");
    }
}

#[test]
fn a_reference_means_a_registry_when_its_host_looks_like_one() {
    let digest = format!("@sha256:{HEX}");
    let pinned = format!("[::1]:5000/a/b.c-d__e{digest}");
    for (text, registry, repository, tag_or_digest) in [
        ("registry.example/mill", "registry.example", "mill", "latest"),
        ("registry.example:5000/team/mill:1.2", "registry.example:5000", "team/mill", "1.2"),
        ("localhost/mill:v1", "localhost", "mill", "v1"),
        (&pinned, "[::1]:5000", "a/b.c-d__e", &digest[1..]),
    ] {
        let image: RemoteImage = text.parse().unwrap();
        assert_eq!((image.registry(), image.repository()), (registry, repository));
        assert_eq!(image.tag_or_digest(), tag_or_digest);
    }
    for text in ["mill", "mill:1", "team/mill:1", &format!("mill{digest}"), "a:5000"] {
        assert!(!RemoteImage::names_registry(text), "{text}");
    }
    for text in [
        "user@registry.example/mill",
        "registry.example:0/mill",
        "registry.example:5000x/mill",
        "registry.example:1:2/mill",
        "registry.example/",
        "registry.example/Mill",
        "registry.example//mill",
        "registry.example/../mill",
        "registry.example/a/./b",
        "registry.example/mill?x=1",
        "registry.example/mill#x",
        "registry.example/mill:",
        "registry.example/mill:-x",
        "registry.example/mill:a/b",
        "registry.example/mill@sha256:abc",
        "registry.example/mill@md5:abc",
        "regis\\try.example/mill",
        "[::1/mill",
        "[x]:5000/mill",
    ] {
        assert!(text.parse::<RemoteImage>().is_err(), "{text}");
    }
}

#[test]
fn names_of_one_part_are_in_the_library_of_docker_hub() {
    for (text, expected) in [
        ("docker.io/mill", "library/mill"),
        ("Docker.io/mill:1", "library/mill"),
        ("docker.io/team/mill", "team/mill"),
        ("docker.io/library/mill", "library/mill"),
        ("registry.example/mill", "mill"),
        ("docker.io:443/mill", "mill"),
    ] {
        let image: RemoteImage = text.parse().unwrap();
        assert_eq!(image.repository(), expected, "{text}");
    }
}

fn manifest(change: impl FnOnce(&mut Value)) -> Result<ComponentManifest, String> {
    let digest = format!("sha256:{HEX}");
    let mut manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": { "mediaType": CONFIG_TYPE, "digest": digest, "size": 2 },
        "layers": [{ "mediaType": LAYER_TYPE, "digest": digest, "size": 9 }],
    });
    change(&mut manifest);
    let text = manifest.to_string();
    ComponentManifest::parse(text.as_bytes()).map_err(|error| error.to_string())
}

#[test]
fn a_manifest_of_a_component_has_one_layer_of_wasm() {
    let read = manifest(|_| {}).unwrap();
    assert_eq!((read.config.bytes, read.component.bytes), (2, 9));
    assert_eq!(read.component.digest.to_string(), HEX);
    // Fields that `oras` leaves out or adds.
    assert!(manifest(|m| drop(m.as_object_mut().unwrap().remove("mediaType"))).is_ok());
    assert!(
        manifest(|m| m["config"]["mediaType"] = "application/vnd.oci.empty.v1+json".into()).is_ok()
    );
    let layer = |m: &Value| m["layers"][0].clone();
    type Change = Box<dyn FnOnce(&mut Value)>;
    let mut cases: Vec<(&str, Change)> = vec![];
    let mut case = |word, change: Change| cases.push((word, change));
    case("index", Box::new(|m| m["manifests"] = json!([])));
    case("index", Box::new(|m| m["mediaType"] = INDEX_TYPES[0].into()));
    case("the manifest is invalid", Box::new(|m| m["schemaVersion"] = 1.into()));
    case("the manifest is invalid", Box::new(|m| m["layers"] = "x".into()));
    case("no config", Box::new(|m| m["config"] = Value::Null));
    case("0 layers", Box::new(|m| m["layers"] = json!([])));
    case("2 layers", Box::new(move |m| m["layers"] = json!([layer(m), layer(m)])));
    case(
        "type `application/x-tar`",
        Box::new(|m| {
            m["layers"][0]["mediaType"] = "application/x-tar".into();
        }),
    );
    case("`sha512:00`", Box::new(|m| m["layers"][0]["digest"] = "sha512:00".into()));
    case("config has", Box::new(|m| m["config"]["size"] = (1_u64 << 40).into()));
    case("component has", Box::new(|m| m["layers"][0]["size"] = (1_u64 << 40).into()));
    for (word, change) in cases {
        let refused = manifest(change).unwrap_err();
        assert!(refused.contains(word), "{refused}");
    }
    assert!(ComponentManifest::parse(b"\xff").is_err());
}
