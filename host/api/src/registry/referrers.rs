//! `/v2/{name}/referrers/{digest}`: the manifests that name another one as their `subject`.
//!
//! **Cost.** Each call reads all manifests of the name, on other threads than those that serve
//! calls.
//! **Bounds.** A page has [`PAGE_BYTES_MAX`] of text, or one manifest.

use std::collections::BTreeMap;

use axum::extract::{Path, RawQuery};
use axum::response::Response;
use gristmill_control::NamedImages;
use gristmill_core::deploy::image::{MANIFEST_TYPE, PushedManifest};
use gristmill_core::hex::is_lower_hex;
use serde::Deserialize;
use serde_json::{Value, json};
use url::form_urlencoded;

use super::answer;
use super::error::{OciCode, RegistryError};
use super::stored_images::manifest_of;
use crate::identity::caller::RegistryCaller;
use crate::request::query::Query;

/// Bytes of descriptors in one answer.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// The fields of a manifest about itself and its subject.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct About {
    subject: Option<Named>,
    artifact_type: Option<String>,
    config: Named,
    annotations: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    #[serde(default)]
    media_type: String,
    #[serde(default)]
    digest: String,
}

/// The digest that a manifest names as its subject.
pub(super) fn subject(manifest: &[u8]) -> Option<String> {
    let about: About = serde_json::from_slice(manifest).ok()?;
    about.subject.map(|subject| subject.digest)
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
        let Self { name, digest, query } = self;
        let query = Query(query);
        let (wanted, last) = (query.text("artifactType"), query.text("last").unwrap_or_default());
        // Several tags may have the same manifest.
        let found: BTreeMap<String, Value> = images
            .iter()
            .map(|(image, component)| manifest_of(image, component))
            .filter_map(|manifest| {
                let descriptor = descriptor(&manifest, digest, wanted.as_deref())?;
                Some((manifest.digest().oci(), descriptor))
            })
            .filter(|(digest, _)| **digest > *last)
            .collect();
        let mut bytes = 0;
        let fits = |descriptor: &Value| {
            let is_first = bytes == 0;
            bytes += descriptor.to_string().len();
            is_first || bytes <= PAGE_BYTES_MAX
        };
        let count = found.values().map(fits).take_while(|fits| *fits).count();
        let next = (count < found.len()).then(|| {
            let mut query = form_urlencoded::Serializer::new(String::new());
            query.extend_pairs(wanted.as_deref().map(|wanted| ("artifactType", wanted)));
            query.extend_pairs(found.keys().nth(count - 1).map(|last| ("last", last)));
            format!("/v2/{name}/referrers/{digest}?{}", query.finish())
        });
        let page: Vec<_> = found.into_values().take(count).collect();
        let index =
            json!({ "schemaVersion": 2, "mediaType": answer::INDEX_TYPE, "manifests": page });
        answer::index(index.to_string(), wanted.is_some(), next.as_deref())
    }
}

/// The descriptor of a manifest, if it has this subject and type.
fn descriptor(manifest: &PushedManifest, digest: &str, wanted: Option<&str>) -> Option<Value> {
    let about: About = serde_json::from_str(manifest.text()).ok()?;
    about.subject.filter(|subject| subject.digest == digest)?;
    let own_type = about.artifact_type.filter(|kind| !kind.is_empty());
    let kind = own_type.unwrap_or(about.config.media_type);
    if wanted.is_some_and(|wanted| wanted != kind) {
        return None;
    }
    let mut descriptor = json!({
        "mediaType": MANIFEST_TYPE,
        "digest": manifest.digest().oci(),
        "size": manifest.text().len(),
        "artifactType": kind,
    });
    if let (Some(annotations), Some(fields)) = (about.annotations, descriptor.as_object_mut()) {
        fields.insert("annotations".to_owned(), annotations);
    }
    Some(descriptor)
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
}
