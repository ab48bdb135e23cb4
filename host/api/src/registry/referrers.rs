//! `/v2/{name}/referrers/{digest}`: the manifests that name another one as their `subject`.
//!
//! **Cost.** Each call reads all manifests of the name, on other threads than those that serve
//! calls.
//! **Bounds.** A page has [`PAGE_BYTES_MAX`] of text, or one manifest. One manifest at a time is
//! parsed, and its annotations stay text: as values, those of a manifest of 64 KiB may take more
//! than a MiB.

use std::collections::BTreeMap;

use axum::extract::{Path, RawQuery};
use axum::response::Response;
use gristmill_control::NamedImages;
use gristmill_core::deploy::image::{BlobDigest, MANIFEST_TYPE, PushedManifest};
use gristmill_core::hex::is_lower_hex;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use url::form_urlencoded;

use super::answer;
use super::error::{OciCode, RegistryError};
use crate::identity::caller::RegistryCaller;
use crate::request::query::Query;

/// Bytes of descriptors in one answer.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// The fields of a manifest about itself and its subject.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct About<'m> {
    subject: Option<Named>,
    artifact_type: Option<String>,
    config: Named,
    #[serde(borrow)]
    annotations: Option<&'m RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    #[serde(default)]
    media_type: String,
    #[serde(default)]
    digest: String,
}

/// An entry of a list of referrers.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor<'m> {
    media_type: &'static str,
    digest: String,
    size: usize,
    artifact_type: &'m str,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<&'m RawValue>,
}

/// A list of referrers.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    schema_version: u32,
    media_type: &'static str,
    manifests: Vec<Box<RawValue>>,
}

/// The digest that a manifest names as its subject.
pub(super) fn subject(manifest: &[u8]) -> Option<String> {
    let about: About<'_> = serde_json::from_slice(manifest).ok()?;
    about.subject.map(|subject| subject.digest)
}

/// Whether the annotations of a manifest are texts with names, as the specification requires: many
/// clients cannot read a list with an entry that has other annotations.
pub(super) fn has_valid_annotations(manifest: &str) -> bool {
    #[derive(Deserialize)]
    struct Annotated {
        #[serde(rename = "annotations")]
        _annotations: Option<BTreeMap<String, String>>,
    }
    serde_json::from_str::<Annotated>(manifest).is_ok()
}

/// The manifests with one subject, which need not exist, in the order of their own digests;
/// `?artifactType=` selects one type, and `?last=` continues after a manifest.
pub(super) async fn list(
    RegistryCaller { state, key, .. }: RegistryCaller,
    Path((name, digest)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Result<Response, RegistryError> {
    if !is_digest(&digest) {
        let sentence = format!("`{digest}` is not a digest: write `<algorithm>:<digits>`");
        return Err(RegistryError::invalid(OciCode::DigestInvalid, sentence));
    }
    let listing = Listing { name, digest, query: query.unwrap_or_default() };
    let images = state.control.images.list(&key, Some(listing.name.clone()));
    Ok(state.pages.write(&key, move || Ok(listing.answer(&images))).await?)
}

/// One call of [`list`].
struct Listing {
    name: String,
    digest: String,
    query: String,
}

impl Listing {
    fn answer(&self, images: &NamedImages) -> Response {
        // A generated manifest has no subject.
        self.page(images.iter().filter_map(|(image, _)| image.manifest.as_ref()))
    }

    fn page<'m>(&self, manifests: impl Iterator<Item = &'m PushedManifest>) -> Response {
        let Self { name, digest, query } = self;
        let query = Query(query);
        let (wanted, last) = (query.text("artifactType"), query.text("last").unwrap_or_default());
        // Several tags may have the same manifest.
        let manifests: BTreeMap<BlobDigest, &PushedManifest> = manifests
            .map(|manifest| (manifest.digest(), manifest))
            .filter(|(own, _)| *own.oci() > *last)
            .collect();
        let (mut entries, mut bytes, mut last) = (vec![], 0, None);
        let mut next = None;
        for (own, manifest) in manifests {
            let Some(entry) = descriptor(manifest, digest, wanted.as_deref()) else { continue };
            bytes += entry.get().len();
            if !entries.is_empty() && bytes > PAGE_BYTES_MAX {
                let mut query = form_urlencoded::Serializer::new(String::new());
                query.extend_pairs(wanted.as_deref().map(|wanted| ("artifactType", wanted)));
                query.extend_pairs(last.map(|last: BlobDigest| ("last", last.oci())));
                next = Some(format!("/v2/{name}/referrers/{digest}?{}", query.finish()));
                break;
            }
            entries.push(entry);
            last = Some(own);
        }
        let index = Index { schema_version: 2, media_type: answer::INDEX_TYPE, manifests: entries };
        let text = serde_json::to_string(&index).expect("an index is plain data");
        answer::index(text, wanted.is_some(), next.as_deref())
    }
}

/// The descriptor of a manifest, if it has this subject and type.
fn descriptor(
    manifest: &PushedManifest,
    digest: &str,
    wanted: Option<&str>,
) -> Option<Box<RawValue>> {
    let about: About<'_> = serde_json::from_str(manifest.text()).ok()?;
    about.subject.filter(|subject| subject.digest == digest)?;
    let own_type = about.artifact_type.filter(|kind| !kind.is_empty());
    let kind = own_type.unwrap_or(about.config.media_type);
    if wanted.is_some_and(|wanted| wanted != kind) {
        return None;
    }
    let descriptor = Descriptor {
        media_type: MANIFEST_TYPE,
        digest: manifest.digest().oci(),
        size: manifest.text().len(),
        artifact_type: &kind,
        annotations: about.annotations,
    };
    Some(to_raw_value(&descriptor).expect("a descriptor is plain data"))
}

/// Whether a text is a digest, by any algorithm: a subject need not exist here.
fn is_digest(text: &str) -> bool {
    let is_word = |word: &str, more: &[u8]| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || more.contains(&b))
    };
    text.split_once(':').is_some_and(|(algorithm, encoded)| match algorithm {
        "sha256" => is_lower_hex(encoded.as_bytes(), 64),
        "sha512" => is_lower_hex(encoded.as_bytes(), 128),
        _ => is_word(algorithm, b"+._-") && is_word(encoded, b"=_-"),
    })
}

#[cfg(test)]
mod tests {
    use axum::http::header;
    use http_body_util::BodyExt as _;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn digests_have_an_algorithm_and_digits() {
        let [hex, upper] = ["0f", "0F"].map(|digits| digits.repeat(32));
        for text in
            [&format!("sha256:{hex}"), &format!("sha512:{hex}{hex}"), "multihash+base58:QmRZ"]
        {
            assert!(is_digest(text), "{text}");
        }
        let wrong = [format!("sha256:{upper}"), format!("sha512:{hex}"), format!("sha256:{hex}00")];
        let wrong = wrong.iter().map(String::as_str);
        for text in
            ["", "sha256", "sha256:", ":00", "sha256:00ff", "a b:00"].into_iter().chain(wrong)
        {
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
        for (own_type, kind) in [("application/own", "application/own"), ("", "application/config")]
        {
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
}
