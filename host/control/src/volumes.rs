//! Network volumes: persistent directories for the handlers of endpoints.

use std::sync::Arc;

use gristmill_core::access::key::ApiKey;
use gristmill_core::catalog::{CatalogChange, CatalogEntry, CatalogKey, View};
use gristmill_core::deploy::volume::{MountPath, Volume};
use gristmill_core::id::{InvalidId, OwnerId, VolumeId};
use gristmill_core::limits::{Bounds, NAME_CHARS_MAX};
use gristmill_core::runtime::VolumeDirectories;

use gristmill_wire::management::{NetworkVolumeInput, NewNetworkVolume};
use gristmill_wire::settings::{check_name, check_text, number};

use crate::complete::complete;
use crate::deployed::Deployed;
use crate::error::ControlError;
use crate::owned::{Listed, find_owned, of_owner, random_id};

/// The service for network volumes.
#[derive(Debug, Clone)]
pub struct Volumes {
    pub(crate) deployed: Arc<Deployed>,
    pub(crate) files: Arc<dyn VolumeDirectories>,
}

impl Volumes {
    pub(crate) fn new(deployed: Arc<Deployed>, files: Arc<dyn VolumeDirectories>) -> Self {
        Self { deployed, files }
    }

    /// One network volume.
    ///
    /// # Errors
    /// [`ControlError::NotFound`].
    pub fn get(&self, caller: &ApiKey, id: &VolumeId) -> Result<Arc<Volume>, ControlError> {
        find_owned::<Volume>(&self.deployed.view(), caller, id).cloned()
    }

    /// The network volumes that the caller sees.
    pub fn list(&self, caller: &Arc<ApiKey>) -> Listed<Volume> {
        Listed::new(self.deployed.view(), caller)
    }

    /// A new, empty network volume of the caller's owner.
    ///
    /// # Errors
    /// [`ControlError::Invalid`] for values out of bounds, and those of every change.
    pub async fn create(
        &self,
        caller: &ApiKey,
        new: NewNetworkVolume,
    ) -> Result<Volume, ControlError> {
        check_name("name", &new.name)?;
        check_text(
            "dataCenterId",
            new.data_center_id.as_deref().unwrap_or_default(),
            NAME_CHARS_MAX,
        )?;
        let volume = Volume {
            id: random_id(),
            owner: caller.owner.clone(),
            name: new.name,
            size_gb: number("size", new.size, Volume::SIZE_GB)?,
            created_at: self.deployed.now(),
        };
        let change = put(&volume);
        self.deployed.change(caller, |_| Ok((change, ()))).await?;
        Ok(volume)
    }

    /// Changes the name, or makes the volume larger.
    ///
    /// # Errors
    /// [`ControlError::NotFound`], and those of [`create`](Self::create).
    pub async fn update(
        &self,
        caller: &ApiKey,
        id: &VolumeId,
        given: NetworkVolumeInput,
    ) -> Result<Volume, ControlError> {
        let update = |view: &View| {
            let current: &Arc<Volume> = find_owned(view, caller, id)?;
            let volume = changed(Volume::clone(current), given)?;
            Ok((put(&volume), volume))
        };
        self.deployed.change(caller, update).await
    }

    /// Deletes a network volume that no endpoint uses, with all its files.
    ///
    /// Neither a caller that stops waiting nor a crash leaves files without a volume: the next
    /// start removes the files of a deleted volume.
    ///
    /// # Errors
    /// [`ControlError::NotFound`]; [`ControlError::Conflict`] when an endpoint uses it;
    /// [`ControlError::FilesStay`]; and those of every change.
    pub async fn delete(&self, caller: &Arc<ApiKey>, id: VolumeId) -> Result<(), ControlError> {
        let (this, caller) = (self.clone(), caller.clone());
        complete(async move { this.delete_whole(&caller, &id).await }).await?
    }

    async fn delete_whole(&self, caller: &ApiKey, id: &VolumeId) -> Result<(), ControlError> {
        let Self { deployed, files } = self;
        check_unused(&deployed.view(), caller, id)?;
        if let Err(error) = files.mark_removal(id).await {
            // Only a crash within the next milliseconds would leave the directory behind, and a
            // full disk must not prevent a deletion.
            tracing::warn!(%error, "the removal of network volume `{id}` cannot be marked: {error}");
        }
        let delete = |view: &View| {
            check_unused(view, caller, id)?;
            Ok((vec![CatalogChange::Delete(CatalogKey::Volume(id.clone()))], ()))
        };
        if let Err(refused) = deployed.change(caller, delete).await {
            if deployed.view().volumes.contains_key(id)
                && let Err(error) = files.unmark_removal(id).await
            {
                tracing::warn!(%error, "the mark of network volume `{id}` stays: {error}");
            }
            return Err(refused);
        }
        files.remove_volume(id).await.map_err(|error| {
            tracing::error!("the directory of network volume `{id}` cannot be removed: {error}");
            ControlError::FilesStay
        })
    }
}

fn changed(mut volume: Volume, given: NetworkVolumeInput) -> Result<Volume, ControlError> {
    if let Some(name) = given.name {
        check_name("name", &name)?;
        volume.name = name;
    }
    if let Some(size) = given.size {
        // The size can only grow, so that the content stays within its bound.
        let bounds = Bounds { min: volume.size_gb.into(), ..Volume::SIZE_GB };
        volume.size_gb = number("size", size, bounds)?;
    }
    Ok(volume)
}

/// Refuses a volume that the caller does not have, or that an endpoint uses.
fn check_unused(view: &View, caller: &ApiKey, id: &VolumeId) -> Result<(), ControlError> {
    find_owned::<Volume>(view, caller, id)?;
    match view.user_of(id) {
        None => Ok(()),
        Some(user) => {
            let sentence = format!("network volume `{id}` is in use by endpoint `{user}`");
            Err(ControlError::conflict(sentence))
        }
    }
}

/// The volume for an endpoint; none when the id is empty.
pub(crate) fn attached(
    view: &View,
    owner: &OwnerId,
    field: &str,
    id: &str,
) -> Result<Option<VolumeId>, ControlError> {
    if id.is_empty() {
        return Ok(None);
    }
    let refused = |reason: String| ControlError::invalid(format!("`{field}`: {reason}"));
    let id: VolumeId = id.parse().map_err(|error: InvalidId| refused(error.to_string()))?;
    of_owner::<Volume>(view, owner, &id).map_err(|error| refused(error.to_string()))?;
    Ok(Some(id))
}

/// Refuses an invalid mount path of a template.
pub(crate) fn check_mount_path(path: &str) -> Result<(), ControlError> {
    match MountPath::parse(path) {
        Ok(_) => Ok(()),
        Err(error) => {
            Err(ControlError::invalid(format!("`volumeMountPath` must be empty or {error}")))
        }
    }
}

fn put(volume: &Volume) -> Vec<CatalogChange> {
    vec![CatalogChange::Put(CatalogEntry::Volume(volume.clone()))]
}
