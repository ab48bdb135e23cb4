//! The images of the catalog as the registry shows them: their manifests and configs.

use std::borrow::Cow;

use gristmill_core::access::key::ApiKey;
use gristmill_core::catalog::{Component, Image};
use gristmill_core::deploy::image::{
    BlobDigest, CONFIG_TYPE, LAYER_TYPE, MANIFEST_TYPE, PushedManifest,
};
use serde_json::json;

use crate::answer::error::ApiError;
use crate::answer::wire_time::rfc3339_shortest;
use crate::state::ApiState;

/// The first finding among the manifests of a name, which may be 10,000: searched apart from the
/// threads that serve calls, when it is the caller's turn.
pub(super) async fn find<T: Send + 'static>(
    state: &ApiState,
    caller: &ApiKey,
    name: &str,
    look: impl Fn(&PushedManifest) -> Option<T> + Send + 'static,
) -> Result<Option<T>, ApiError> {
    let images = state.control.images.list(caller, Some(name.to_owned()));
    let search = move || {
        Ok(images.iter().find_map(|(image, component)| look(&manifest_of(image, component))))
    };
    state.pages.write(caller, search).await
}

/// The config with this digest, if an image with this name has it.
pub(super) async fn config_of_image(
    state: &ApiState,
    caller: &ApiKey,
    name: &str,
    digest: BlobDigest,
) -> Result<Option<String>, ApiError> {
    let look = move |manifest: &PushedManifest| {
        (manifest.config_digest() == digest).then(|| manifest.config().to_owned())
    };
    find(state, caller, name, look).await
}

/// The manifest of an image: the pushed one, or the one that the host generates for an upload.
pub(super) fn manifest_of<'i>(image: &'i Image, component: &Component) -> Cow<'i, PushedManifest> {
    if let Some(pushed) = &image.manifest {
        return Cow::Borrowed(pushed);
    }
    let digest = format!("{:?}", component.digest);
    let config = json!({
        "created": rfc3339_shortest(component.uploaded_at),
        "architecture": "wasm",
        "os": "wasip2",
        "layerDigests": [digest],
        "component": { "exports": component.exports, "imports": component.imports },
    })
    .to_string();
    let config_digest = format!("{:?}", BlobDigest::of(config.as_bytes()));
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": { "mediaType": CONFIG_TYPE, "digest": config_digest, "size": config.len() },
        "layers": [{ "mediaType": LAYER_TYPE, "digest": digest, "size": component.bytes }],
    });
    Cow::Owned(PushedManifest::new(manifest.to_string(), config))
}
