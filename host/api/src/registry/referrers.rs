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
#[path = "referrers_tests.rs"]
mod tests;
