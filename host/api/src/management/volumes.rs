//! `/v1/networkvolumes`: persistent directories for the handlers of endpoints.

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use gristmill_core::deploy::volume::Volume;
use gristmill_wire::management::{self as wire, NetworkVolumeInput, NewNetworkVolume};

use super::input::{self, Named};
use super::page::{Page, Paged};
use crate::answer::error::ApiError;
use crate::identity::caller::{Caller, Manage};
use crate::openapi::parameters::PageOfList;
use crate::openapi::refusals::{BodyRefused, Missing, Mistaken};
use crate::openapi::tag;

/// One network volume.
#[utoipa::path(
    get, path = "/networkvolumes/{id}", operation_id = "GetNetworkVolume", tag = tag::VOLUMES,
    responses((status = 200, description = "The network volume", body = wire::NetworkVolume), Mistaken, Missing),
)]
pub(crate) async fn get(
    Caller { state, key, .. }: Caller<Manage>,
    named: Named,
) -> Result<Json<wire::NetworkVolume>, ApiError> {
    let volume = state.control.volumes.get(&key, &named.id()?)?;
    Ok(Json(network_volume(&volume)))
}

/// All network volumes of the key's owner, by id; with an admin key those of all owners.
#[utoipa::path(
    get, path = "/networkvolumes", operation_id = "ListNetworkVolumes", tag = tag::VOLUMES,
    params(PageOfList),
    responses((status = 200, description = "By id", body = Vec<wire::NetworkVolume>), Mistaken),
)]
pub(crate) async fn list(
    Caller { state, key, .. }: Caller<Manage>,
    page: Page,
) -> Result<Paged, ApiError> {
    let own = state.control.volumes.list(&key);
    let select = move |page: Page| {
        page.of(own.iter(), |volume| volume.id.to_string(), |v| network_volume(v))
    };
    page.make(&state, &key, select).await
}

/// A new, empty network volume.
#[utoipa::path(
    post, path = "/networkvolumes", operation_id = "CreateNetworkVolume", tag = tag::VOLUMES,
    request_body = NewNetworkVolume,
    responses((status = 200, description = "The new network volume", body = wire::NetworkVolume), BodyRefused),
)]
pub(crate) async fn create(
    Caller { state, key, .. }: Caller<Manage>,
    request: Request,
) -> Result<Json<wire::NetworkVolume>, ApiError> {
    let input: NewNetworkVolume = input::json(&state, &key, request).await?;
    let volume = state.control.volumes.create(&key, input).await?;
    Ok(Json(network_volume(&volume)))
}

/// Changes the name, or makes the volume larger.
#[utoipa::path(
    patch, path = "/networkvolumes/{id}", operation_id = "UpdateNetworkVolume", tag = tag::VOLUMES,
    request_body = NetworkVolumeInput,
    responses((status = 200, description = "The changed network volume", body = wire::NetworkVolume), BodyRefused, Missing),
)]
pub(crate) async fn update(
    Caller { state, key, .. }: Caller<Manage>,
    named: Named,
    request: Request,
) -> Result<Json<wire::NetworkVolume>, ApiError> {
    let input: NetworkVolumeInput = input::json(&state, &key, request).await?;
    let volume = state.control.volumes.update(&key, &named.id()?, input).await?;
    Ok(Json(network_volume(&volume)))
}

/// Deletes a network volume that no endpoint uses, with all its files.
#[utoipa::path(
    delete, path = "/networkvolumes/{id}", operation_id = "DeleteNetworkVolume", tag = tag::VOLUMES,
    responses((status = 204, description = "Deleted"), Mistaken, Missing),
)]
pub(crate) async fn delete(
    Caller { state, key, .. }: Caller<Manage>,
    named: Named,
) -> Result<StatusCode, ApiError> {
    state.control.volumes.delete(&key, named.id()?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The only data center: this host.
pub(super) const DATA_CENTER: &str = "local";

/// The answer's form of a network volume.
pub(super) fn network_volume(volume: &Volume) -> wire::NetworkVolume {
    wire::NetworkVolume {
        id: volume.id.clone(),
        name: volume.name.clone(),
        size: volume.size_gb,
        data_center_id: DATA_CENTER.to_owned(),
    }
}
