//! `/v1/networkvolumes`: persistent directories for the handlers of endpoints.

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use gristmill_core::catalog::{CatalogChange, CatalogEntry, CatalogKey, View};
use gristmill_core::id::{OwnerId, TemplateId, VolumeId};
use gristmill_core::key::ApiKey;
use gristmill_core::limits::{Bounds, NAME_CHARS_MAX};
use gristmill_core::volume::{MountPath, Volume};

use super::dto::{self, NetworkVolumeInput, NewNetworkVolume};
use super::input::{self, Named};
use super::owned::{find_owned, of_owner, random_id};
use super::page::{Page, Paged};
use crate::caller::{Caller, Manage};
use crate::error::{ApiError, ErrorCode};
use crate::openapi::parameters::PageOfList;
use crate::openapi::refusals::{BodyRefused, Missing, Mistaken};
use crate::openapi::tag;

/// One network volume.
#[utoipa::path(
    get, path = "/networkvolumes/{id}", operation_id = "GetNetworkVolume", tag = tag::VOLUMES,
    responses((status = 200, description = "The network volume", body = dto::NetworkVolume), Mistaken, Missing),
)]
pub(crate) async fn get(
    Caller { state, key, .. }: Caller<Manage>,
    Named(id): Named,
) -> Result<Json<dto::NetworkVolume>, ApiError> {
    let view = state.catalog.view();
    let volume: &Volume = find_owned(&view, &key, &id)?;
    Ok(Json(volume.into()))
}

/// All network volumes of the key's owner, by id; with an admin key those of all owners.
#[utoipa::path(
    get, path = "/networkvolumes", operation_id = "ListNetworkVolumes", tag = tag::VOLUMES,
    params(PageOfList),
    responses((status = 200, description = "By id", body = Vec<dto::NetworkVolume>), Mistaken),
)]
pub(crate) async fn list(
    Caller { state, key, .. }: Caller<Manage>,
    page: Page,
) -> Result<Paged, ApiError> {
    let view = state.catalog.view();
    let select = move |page: Page, caller: &ApiKey| {
        let own = view.volumes.values().filter(|volume| caller.sees(&volume.owner));
        page.of(own, |volume| volume.id.to_string(), |volume| dto::NetworkVolume::from(&**volume))
    };
    page.make(&state, &key, select).await
}

/// A new, empty network volume.
#[utoipa::path(
    post, path = "/networkvolumes", operation_id = "CreateNetworkVolume", tag = tag::VOLUMES,
    request_body = NewNetworkVolume,
    responses((status = 200, description = "The new network volume", body = dto::NetworkVolume), BodyRefused),
)]
pub(crate) async fn create(
    Caller { state, key, .. }: Caller<Manage>,
    request: Request,
) -> Result<Json<dto::NetworkVolume>, ApiError> {
    let input: NewNetworkVolume = input::json(&state, &key, request).await?;
    input::check_name(&input.name)?;
    let data_center = input.data_center_id.as_deref().unwrap_or_default();
    input::check_text("dataCenterId", data_center, NAME_CHARS_MAX)?;
    let volume = Volume {
        id: random_id(),
        owner: key.owner.clone(),
        name: input.name,
        size_gb: input::bounded_u32("size", Volume::SIZE_GB, input.size)?,
        created_at: state.jobs.now(),
    };
    let change = upsert(&volume);
    state.change(&key, |_| Ok::<_, ApiError>((change, ()))).await?;
    Ok(Json((&volume).into()))
}

/// Changes the name, or makes the volume larger.
#[utoipa::path(
    patch, path = "/networkvolumes/{id}", operation_id = "UpdateNetworkVolume", tag = tag::VOLUMES,
    request_body = NetworkVolumeInput,
    responses((status = 200, description = "The changed network volume", body = dto::NetworkVolume), BodyRefused, Missing),
)]
pub(crate) async fn update(
    Caller { state, key, .. }: Caller<Manage>,
    Named(id): Named,
    request: Request,
) -> Result<Json<dto::NetworkVolume>, ApiError> {
    let input: NetworkVolumeInput = input::json(&state, &key, request).await?;
    let volume = state
        .change(&key, |view| {
            let volume = apply_patch(find_owned::<Volume>(view, &key, &id)?.clone(), input)?;
            Ok::<_, ApiError>((upsert(&volume), volume))
        })
        .await?;
    Ok(Json((&volume).into()))
}

/// Deletes a network volume that no endpoint uses, with all its files.
#[utoipa::path(
    delete, path = "/networkvolumes/{id}", operation_id = "DeleteNetworkVolume", tag = tag::VOLUMES,
    responses((status = 204, description = "Deleted"), Mistaken, Missing),
)]
pub(crate) async fn delete(
    Caller { state, key, .. }: Caller<Manage>,
    Named(id): Named,
) -> Result<StatusCode, ApiError> {
    let id = deletable(&state.catalog.view(), &key, &id)?;
    if let Err(error) = state.volumes.mark_removal(&id).await {
        // Only a crash within the next milliseconds would leave the directory behind, and a full disk
        // must not prevent a deletion.
        tracing::warn!(%error, "the removal of network volume `{id}` cannot be marked: {error}");
    }
    let deleted = state.change(&key, |view| {
        deletable(view, &key, id.as_str())?;
        Ok::<_, ApiError>((vec![CatalogChange::Delete(CatalogKey::Volume(id.clone()))], ()))
    });
    if let Err(refused) = deleted.await {
        if state.catalog.view().volumes.contains_key(&id)
            && let Err(error) = state.volumes.unmark_removal(&id).await
        {
            tracing::warn!(%error, "the mark of network volume `{id}` stays: {error}");
        }
        return Err(refused);
    }
    state.volumes.remove_volume(&id).await.map_err(|error| {
        tracing::error!("the directory of network volume `{id}` cannot be removed: {error}");
        let sentence = "the volume is deleted, but its files cannot be removed before the host's next \
                        start; see its log";
        ApiError::new(ErrorCode::Internal, sentence)
    })?;
    Ok(StatusCode::NO_CONTENT)
}

/// The id of the caller's volume with this id, if no endpoint uses it.
fn deletable(view: &View, caller: &ApiKey, id: &str) -> Result<VolumeId, ApiError> {
    let id = find_owned::<Volume>(view, caller, id)?.id.clone();
    match view.user_of(&id) {
        None => Ok(id),
        Some(user) => {
            let sentence = format!("network volume `{id}` is in use by endpoint `{user}`");
            Err(ApiError::conflict(sentence))
        }
    }
}

/// The volume for an endpoint with this template; none when the id is empty.
pub(super) fn attached(
    view: &View,
    owner: &OwnerId,
    template: &TemplateId,
    id: &str,
) -> Result<Option<VolumeId>, ApiError> {
    if id.is_empty() {
        return Ok(None);
    }
    let volume = of_owner::<Volume>(view, owner, id).map_err(|error| {
        ApiError::bad_request(format!("`networkVolumeId`: {}", error.sentence()))
    })?;
    let path = view.templates.get(template).map(|template| &*template.volume_mount_path);
    check_mount_path(path.unwrap_or_default())?;
    Ok(Some(volume.id.clone()))
}

/// Refuses an invalid mount path of a template.
pub(super) fn check_mount_path(path: &str) -> Result<(), ApiError> {
    match MountPath::parse(path) {
        Ok(_) => Ok(()),
        Err(error) => {
            Err(ApiError::bad_request(format!("`volumeMountPath` must be empty or {error}")))
        }
    }
}

fn upsert(volume: &Volume) -> Vec<CatalogChange> {
    vec![CatalogChange::Put(CatalogEntry::Volume(volume.clone()))]
}

fn apply_patch(mut volume: Volume, input: NetworkVolumeInput) -> Result<Volume, ApiError> {
    if let Some(name) = input.name {
        input::check_name(&name)?;
        volume.name = name;
    }
    if let Some(size) = input.size {
        // The size can only grow, so that the content stays within its bound.
        let bounds = Bounds { min: volume.size_gb.into(), ..Volume::SIZE_GB };
        volume.size_gb = input::bounded_u32("size", bounds, size)?;
    }
    Ok(volume)
}
