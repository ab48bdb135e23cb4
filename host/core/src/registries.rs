//! The calls to registries: fetching the images that templates name.

use std::fmt;

use async_trait::async_trait;

use crate::deploy::image::RemoteImage;
use crate::deploy::registry_auth::RegistryAuth;
use crate::id::OwnerId;
use crate::runtime::AddedComponent;
use crate::sharing::disk_space::Shortage;

/// Fetches images from registries.
#[async_trait]
pub trait Registries: Send + Sync + fmt::Debug {
    /// The image's component, checked, compiled and kept for the owner. Takes minutes at most.
    ///
    /// # Errors
    /// [`FetchError`]; then nothing is stored.
    async fn fetch(
        &self,
        image: &RemoteImage,
        auth: Option<&RegistryAuth>,
        owner: &OwnerId,
    ) -> Result<AddedComponent, FetchError>;
}

/// Why an image was not fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// It may not be fetched, does not exist, or is not a component that runs here; one sentence.
    #[error("{0}")]
    Refused(String),
    /// Too many uploads are in progress.
    #[error("too many uploads are in progress; try again shortly")]
    Full,
    /// Too many components of the owner wait to be compiled; one sentence.
    #[error("{0}")]
    TooManyWaiting(String),
    /// The image would exceed its owner's share of the disk; one sentence.
    #[error("{0}")]
    OwnerDiskFull(String),
    /// The host's disk has no room.
    #[error("{0}; it takes no images until there is room")]
    NoSpace(Shortage),
    /// The host's fault.
    #[error("{0}")]
    Host(String),
}
