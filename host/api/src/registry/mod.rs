//! The host as a registry: the part of the OCI distribution API that `wkg`, `oras` and other hosts
//! need to push and fetch components. A component that is pushed as `name:tag` becomes a handler
//! with this name, as if it had been uploaded; uploaded handlers can be fetched.
//!
//! The paths are the specification's, below `/v2` like the queue API's. The two cannot be confused:
//! the name is followed by `blobs`, `manifests`, `referrers` or `tags`, which are not operations of
//! an endpoint. Refusals have the specification's format. The OpenAPI document does not have these
//! routes, which the [specification] describes.
//!
//! **Bounds.** A blob has at most the size of a component, a manifest and a config 64 KiB;
//! [`BlobUploads`](gristmill_control::BlobUploads) bounds the uploads in progress.
//!
//! [specification]: https://github.com/opencontainers/distribution-spec/blob/v1.1.0/spec.md

mod answer;
mod blobs;
mod error;
mod manifests;
mod name;
mod referrers;
mod stored_images;

use axum::Router;
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::{get, post, put};

pub(crate) use self::error::{RegistryError, reshape_refusal};
use crate::fallback;
use crate::identity::caller::{Guarded, RegistryCaller};

/// The routes.
pub(crate) fn routes() -> Router<Guarded> {
    Router::new()
        .route("/v2", get(base))
        .route("/v2/{name}/blobs/uploads", post(blobs::begin))
        .route(
            "/v2/{name}/blobs/uploads/{upload}",
            put(blobs::finish).patch(blobs::add).get(blobs::progress).delete(blobs::cancel),
        )
        .route("/v2/{name}/blobs/{digest}", get(blobs::get).delete(blobs::delete))
        .route(
            "/v2/{name}/manifests/{reference}",
            get(manifests::get).put(manifests::push).delete(manifests::delete),
        )
        .route("/v2/{name}/referrers/{digest}", get(referrers::list))
        .route("/v2/{name}/tags/list", get(manifests::tags))
        .method_not_allowed_fallback(fallback::method_not_allowed)
        .route_layer(map_response(reshape_refusal))
}

/// Whether an unknown path was meant for a registry: a path with a name of several parts.
pub(crate) fn is_registry_path(path: &str) -> bool {
    let rest = path.strip_prefix("/v2/").unwrap_or_default();
    ["/blobs/", "/manifests/", "/referrers/", "/tags/list"].iter().any(|part| rest.contains(part))
}

/// Confirms to a caller with a key that this is a registry.
async fn base(_: RegistryCaller) -> Response {
    answer::empty_object()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_several_parts_are_seen() {
        for path in ["/v2/a/b/blobs/uploads", "/v2/a/b/manifests/1", "/v2/a/b/c/tags/list"] {
            assert!(is_registry_path(path), "{path}");
        }
        for path in ["/v2/a/status/j", "/v1/a/b/manifests/1", "/v2/blobs", "/"] {
            assert!(!is_registry_path(path), "{path}");
        }
    }
}
