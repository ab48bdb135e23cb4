//! Images by the rules of the Open Container Initiative: references to images in registries, and
//! the manifests with which components are pushed and fetched.
//!
//! An image of a component has one layer, the component's bytes, as `wkg` and `oras` push it.
//! [`Registries`](crate::registries::Registries) is the trait for calls to registries.

use std::fmt;
use std::str::FromStr;

pub use gristmill_wire::{InvalidRegistryHost, RegistryHost};
use serde::{Deserialize, Serialize};

use crate::deploy::digest::ComponentDigest;
use crate::limits::{COMPONENT_BYTES_MAX, IMAGE_CONFIG_BYTES_MAX, NAME_BYTES_MAX};

/// Media type of a manifest.
pub const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// Media type of a component's config.
pub const CONFIG_TYPE: &str = "application/vnd.wasm.config.v0+json";

/// Media type of a component's bytes.
pub const LAYER_TYPE: &str = "application/wasm";

/// Media types of documents that are not the manifest of one image: an index of several, or its
/// Docker form.
const INDEX_TYPES: [&str; 2] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];

/// Longest name of a repository, in bytes: the limit that the specification recommends.
const REPOSITORY_BYTES_MAX: usize = 255;

/// SHA-256 of a blob or a manifest; like a component, it is named by its bytes.
pub type BlobDigest = ComponentDigest;

/// Reads a digest as registries write it: `sha256:` and 64 hexadecimal digits.
pub fn parse_digest(text: &str) -> Option<BlobDigest> {
    text.strip_prefix("sha256:")?.parse().ok()
}

/// Whether a text is a valid tag.
pub fn is_tag(text: &str) -> bool {
    text.len() <= NAME_BYTES_MAX
        && text.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// An image in a registry: `registry.example:5000/team/mill:1.2`, with a tag, a manifest's digest,
/// or both; then the digest counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteImage {
    registry: String,
    repository: String,
    tag: String,
    digest: Option<BlobDigest>,
}

/// The error for a text that is not an image in a registry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` names no image in a registry: write `registry.example/name:tag` or \
     `registry.example:5000/team/name@sha256:…`, the name in lower case"
)]
pub struct InvalidRemoteImage(String);

impl RemoteImage {
    /// Whether a reference names a registry, by Docker's rule: the text before the first slash has
    /// a dot or a port, or is `localhost`.
    pub fn names_registry(reference: &str) -> bool {
        reference.split_once('/').is_some_and(|(host, _)| RegistryHost::looks_like_one(host))
    }

    /// Whether this registry has the image.
    pub fn is_at(&self, registry: &RegistryHost) -> bool {
        registry.as_str().eq_ignore_ascii_case(&self.registry)
    }

    /// The registry's host, with its port if one was given.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The image's name at the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The reference for the request to the registry: the digest, or else the tag.
    pub fn tag_or_digest(&self) -> String {
        self.digest.map_or_else(|| self.tag.clone(), |digest| digest.oci())
    }

    /// The digest that the manifest must have.
    pub fn digest(&self) -> Option<BlobDigest> {
        self.digest
    }
}

impl FromStr for RemoteImage {
    type Err = InvalidRemoteImage;

    fn from_str(text: &str) -> Result<Self, InvalidRemoteImage> {
        let invalid = || InvalidRemoteImage(text.to_owned());
        let (registry, rest) = text.split_once('/').ok_or_else(invalid)?;
        let (rest, digest) = match rest.split_once('@') {
            Some((rest, digest)) => (rest, Some(parse_digest(digest).ok_or_else(invalid)?)),
            None => (rest, None),
        };
        let (repository, tag) = rest.split_once(':').unwrap_or((rest, "latest"));
        if !Self::names_registry(text)
            || registry.parse::<RegistryHost>().is_err()
            || !is_repository(repository)
            || !is_tag(tag)
        {
            return Err(invalid());
        }
        // Docker Hub's own images, which have one name, are in `library` there.
        let is_of_library =
            registry.eq_ignore_ascii_case(RegistryHost::DEFAULT) && !repository.contains('/');
        let repository = match is_of_library {
            true => format!("library/{repository}"),
            false => repository.to_owned(),
        };
        let [registry, tag] = [registry, tag].map(str::to_owned);
        Ok(Self { registry, repository, tag, digest })
    }
}

impl fmt::Display for RemoteImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { registry, repository, tag, digest } = self;
        match digest {
            Some(digest) => write!(f, "{registry}/{repository}@{}", digest.oci()),
            None => write!(f, "{registry}/{repository}:{tag}"),
        }
    }
}

/// Parts of lower-case letters and digits, with single separators inside.
fn is_repository(text: &str) -> bool {
    let is_alphanumeric = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9');
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        bytes.first().is_some_and(is_alphanumeric)
            && bytes.last().is_some_and(is_alphanumeric)
            && bytes.iter().all(|byte| is_alphanumeric(byte) || b"._-".contains(byte))
            && !part.contains("..")
    };
    text.len() <= REPOSITORY_BYTES_MAX && text.split('/').all(is_part)
}

/// The content of a component's manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComponentManifest {
    /// The config: a small document that describes the component.
    pub config: Blob,
    /// The one layer: the component's bytes.
    pub component: Blob,
}

/// A blob that a manifest names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blob {
    /// Its digest.
    pub digest: BlobDigest,
    /// Its size.
    pub bytes: u64,
}

/// Why a manifest does not describe a component.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidManifest {
    /// It is not a valid manifest.
    #[error("the manifest is invalid: {0}")]
    Malformed(String),
    /// It names several images.
    #[error("it is an index of several images; name one of them by its digest")]
    Index,
    /// It has no layer, or several.
    #[error("the image has {0} layers; that of a component has one, of type {LAYER_TYPE}")]
    Layers(usize),
    /// The layer has another type, such as a part of a container.
    #[error("the image's layer has the type `{0}`; that of a component is {LAYER_TYPE}")]
    LayerType(String),
    /// A digest with another algorithm than SHA-256, or an invalid digest.
    #[error("`{0}` is not a supported digest: write `sha256:` and 64 hexadecimal digits")]
    Digest(String),
    /// A blob over its bound.
    #[error("the image's {what} has {bytes} bytes, limit: {max} bytes")]
    TooLarge {
        /// The kind of blob: config or component.
        what: &'static str,
        /// Its size, as the manifest has it.
        bytes: u64,
        /// The bound.
        max: usize,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManifestText {
    schema_version: u32,
    media_type: Option<String>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: String,
    digest: String,
    size: u64,
}

impl Descriptor {
    fn blob(&self, what: &'static str, max: usize) -> Result<Blob, InvalidManifest> {
        let digest = parse_digest(&self.digest);
        let digest = digest.ok_or_else(|| InvalidManifest::Digest(self.digest.clone()))?;
        if self.size > max as u64 {
            return Err(InvalidManifest::TooLarge { what, bytes: self.size, max });
        }
        Ok(Blob { digest, bytes: self.size })
    }
}

impl ComponentManifest {
    /// Parses a manifest.
    ///
    /// # Errors
    /// [`InvalidManifest`] when it is not the manifest of a component within its bounds.
    pub fn parse(text: &[u8]) -> Result<Self, InvalidManifest> {
        let malformed = |reason: &dyn fmt::Display| InvalidManifest::Malformed(reason.to_string());
        let manifest: ManifestText =
            serde_json::from_slice(text).map_err(|error| malformed(&error))?;
        let kind = manifest.media_type.as_deref().unwrap_or(MANIFEST_TYPE);
        if manifest.manifests.is_some() || INDEX_TYPES.contains(&kind) {
            return Err(InvalidManifest::Index);
        }
        if manifest.schema_version != 2 || kind != MANIFEST_TYPE {
            return Err(malformed(&format_args!("it must be an {MANIFEST_TYPE} of version 2")));
        }
        let config = manifest.config.ok_or_else(|| malformed(&"it has no config"))?;
        let layers = manifest.layers.unwrap_or_default();
        let [layer] = layers.as_slice() else {
            return Err(InvalidManifest::Layers(layers.len()));
        };
        if layer.media_type != LAYER_TYPE {
            return Err(InvalidManifest::LayerType(layer.media_type.clone()));
        }
        Ok(Self {
            config: config.blob("config", IMAGE_CONFIG_BYTES_MAX)?,
            component: layer.blob("component", COMPONENT_BYTES_MAX)?,
        })
    }
}

/// A manifest with its config, byte for byte as they were pushed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushedManifest {
    text: String,
    digest: BlobDigest,
    config: String,
    config_digest: BlobDigest,
}

impl PushedManifest {
    /// The manifest with these texts.
    pub fn new(text: String, config: String) -> Self {
        let [digest, config_digest] = [&text, &config].map(|text| BlobDigest::of(text.as_bytes()));
        Self { text, digest, config, config_digest }
    }

    /// The manifest.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The manifest's digest.
    pub fn digest(&self) -> BlobDigest {
        self.digest
    }

    /// The config.
    pub fn config(&self) -> &str {
        &self.config
    }

    /// The config's digest.
    pub fn config_digest(&self) -> BlobDigest {
        self.config_digest
    }
}

#[cfg(test)]
#[path = "image_tests.rs"]
mod tests;
