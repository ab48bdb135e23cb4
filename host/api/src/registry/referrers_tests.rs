//! Referrers: digests, subjects and types of manifests, pages of a list, and annotations.

use axum::http::header;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::*;

#[test]
fn digests_have_an_algorithm_and_digits() {
    let [hex, upper] = ["0f", "0F"].map(|digits| digits.repeat(32));
    for text in [&format!("sha256:{hex}"), &format!("sha512:{hex}{hex}"), "multihash+base58:QmRZ"] {
        assert!(is_digest(text), "{text}");
    }
    let wrong = [format!("sha256:{upper}"), format!("sha512:{hex}"), format!("sha256:{hex}00")];
    let wrong = wrong.iter().map(String::as_str);
    for text in ["", "sha256", "sha256:", ":00", "sha256:00ff", "a b:00"].into_iter().chain(wrong) {
        assert!(!is_digest(text), "{text}");
    }
}

#[test]
fn a_manifest_is_listed_under_its_subject_with_its_type() {
    let text = |own_type: &str| {
        let config = json!({ "mediaType": "application/config", "digest": "sha256:0" });
        let subject = json!({ "digest": "sha256:1" });
        json!({
            "config": config, "subject": subject, "artifactType": own_type, "annotations": { "a": "b" },
        })
    };
    for (own_type, kind) in [("application/own", "application/own"), ("", "application/config")] {
        let manifest = PushedManifest::new(text(own_type).to_string(), String::new());
        let found = descriptor(&manifest, "sha256:1", None).unwrap();
        let found: Value = serde_json::from_str(found.get()).unwrap();
        assert_eq!(
            (&found["artifactType"], &found["annotations"]["a"]),
            (&kind.into(), &"b".into())
        );
        assert!(descriptor(&manifest, "sha256:1", Some(kind)).is_some());
        assert!(descriptor(&manifest, "sha256:1", Some("application/other")).is_none());
        assert!(descriptor(&manifest, "sha256:2", None).is_none());
    }
    let without = PushedManifest::new(json!({ "config": {} }).to_string(), String::new());
    assert!(descriptor(&without, "", None).is_none());
}

#[tokio::test]
async fn pages_have_each_manifest_once_in_the_order_of_the_digests() {
    let manifests: Vec<_> = (0..40)
        .map(|number| {
            let manifest = json!({
                "config": { "mediaType": if number % 2 == 0 { "even" } else { "odd" } },
                "subject": { "digest": "sha256:1" },
                "annotations": { "number": number.to_string(), "rest": "x".repeat(60_000) },
            });
            PushedManifest::new(manifest.to_string(), String::new())
        })
        .collect();
    for (mut query, count) in [(String::new(), 40), ("artifactType=even".to_owned(), 20)] {
        let mut found = vec![];
        loop {
            let (name, digest) = ("mill".to_owned(), "sha256:1".to_owned());
            // Each manifest has two tags.
            let twice = manifests.iter().chain(&manifests);
            let answer = Listing { name, digest, query }.page(twice);
            let next = answer.headers().get(header::LINK).cloned();
            let text = answer.into_body().collect().await.unwrap().to_bytes();
            assert!(text.len() < PAGE_BYTES_MAX + 1_000, "{}", text.len());
            let index: Value = serde_json::from_slice(&text).unwrap();
            let digests = index["manifests"].as_array().unwrap().iter();
            found.extend(digests.map(|entry| entry["digest"].as_str().unwrap().to_owned()));
            let Some(next) = next else { break };
            let next = next.to_str().unwrap().split_once('?').unwrap().1;
            query = next.split_once('>').unwrap().0.to_owned();
        }
        assert_eq!(found.len(), count);
        assert!(found.is_sorted_by(|a, b| a < b), "{found:?}");
    }
}

#[test]
fn annotations_are_texts_with_names() {
    for valid in ["{}", r#"{"annotations":null}"#, r#"{"annotations":{"a":"b","c":""}}"#] {
        assert!(has_valid_annotations(valid), "{valid}");
    }
    for invalid in ["[0,0]", r#""a""#, r#"{"a":0}"#, r#"{"a":null}"#, r#"{"a":{}}"#] {
        assert!(!has_valid_annotations(&format!("{{\"annotations\":{invalid}}}")), "{invalid}");
    }
}
