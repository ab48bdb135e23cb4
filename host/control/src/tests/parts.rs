//! The parts of a host that the services call: they remember the calls, and do nothing else.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use gristmill_core::backup::{BackupError, BackupFile, BackupSource};
use gristmill_core::digest::ComponentDigest;
use gristmill_core::endpoint::Deployment;
use gristmill_core::id::{EndpointId, OwnerId, VolumeId};
use gristmill_core::image::RemoteImage;
use gristmill_core::registries::{FetchError, Registries};
use gristmill_core::registry_auth::RegistryAuth;
use gristmill_core::runtime::{
    AddedComponent, Attempt, AttemptReport, AttemptSink, Components, Reservation, Runtime,
    RuntimeLoad, StageError, Staged, Volumes,
};
use gristmill_core::volume::Volume;
use gristmill_core::volume_files::{
    FileEntry, FilePath, NewFile, OpenFile, VolumeFileError, VolumeFiles,
};
use gristmill_core::workers::{WorkerCounts, Workers};
use parking_lot::Mutex;
use tokio::io::AsyncRead;

/// Workers that remember the endpoints of which they were notified.
#[derive(Debug, Default)]
pub(super) struct SeenWorkers(Mutex<Vec<EndpointId>>);

impl SeenWorkers {
    /// The endpoints since the last call of this.
    pub(super) fn take(&self) -> Vec<EndpointId> {
        std::mem::take(&mut self.0.lock())
    }
}

impl Workers for SeenWorkers {
    fn refresh(&self, endpoint: &EndpointId) {
        self.0.lock().push(endpoint.clone());
    }

    fn counts(&self, _: &EndpointId) -> WorkerCounts {
        WorkerCounts::default()
    }

    fn waiting_reason(&self, _: &EndpointId) -> Option<String> {
        None
    }
}

/// The files of components and volumes: the names of the calls.
#[derive(Debug, Default)]
pub(super) struct Disk(Mutex<Vec<String>>);

impl Disk {
    /// The calls since the last call of this.
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }

    fn note(&self, call: &str, name: impl std::fmt::Display) {
        self.0.lock().push(format!("{call} {name}"));
    }
}

#[async_trait]
impl Components for Disk {
    async fn stage(&self, _: &OwnerId) -> Result<Box<dyn Staged>, StageError> {
        Err(StageError::Full)
    }

    async fn open_component(
        &self,
        _: ComponentDigest,
    ) -> io::Result<Box<dyn AsyncRead + Send + Unpin>> {
        Err(io::ErrorKind::NotFound.into())
    }

    async fn remove_components(&self, components: Vec<ComponentDigest>) -> io::Result<()> {
        components.iter().for_each(|component| self.note("remove component", component));
        Ok(())
    }
}

#[async_trait]
impl Volumes for Disk {
    async fn mark_removal(&self, volume: &VolumeId) -> io::Result<()> {
        self.note("mark", volume);
        Ok(())
    }

    async fn unmark_removal(&self, volume: &VolumeId) -> io::Result<()> {
        self.note("unmark", volume);
        Ok(())
    }

    async fn remove_volume(&self, volume: &VolumeId) -> io::Result<()> {
        self.note("remove", volume);
        Ok(())
    }
}

#[async_trait]
impl VolumeFiles for Disk {
    async fn list_files(
        &self,
        volume: &Volume,
        _: Option<&FilePath>,
        _: Option<&str>,
        _: usize,
    ) -> Result<Vec<FileEntry>, VolumeFileError> {
        self.note("list", &volume.id);
        Ok(Vec::new())
    }

    async fn open_file(&self, _: &Volume, path: &FilePath) -> Result<OpenFile, VolumeFileError> {
        Err(VolumeFileError::NotFound(path.to_string()))
    }

    async fn create_file(
        &self,
        _: &Volume,
        path: &FilePath,
        _: Option<u64>,
    ) -> Result<Box<dyn NewFile>, VolumeFileError> {
        Err(VolumeFileError::IsDirectory(path.to_string()))
    }

    async fn remove_file(
        &self,
        _: &Volume,
        path: &FilePath,
        _: bool,
    ) -> Result<(), VolumeFileError> {
        Err(VolumeFileError::NotFound(path.to_string()))
    }
}

/// A network without registries.
#[derive(Debug)]
pub(super) struct NoRegistries;

#[async_trait]
impl Registries for NoRegistries {
    async fn fetch(
        &self,
        _: &RemoteImage,
        _: Option<&RegistryAuth>,
        _: &OwnerId,
    ) -> Result<AddedComponent, FetchError> {
        Err(FetchError::Refused("there is no network".to_owned()))
    }
}

/// A host without files to copy.
#[derive(Debug)]
pub(super) struct NoBackup;

#[async_trait]
impl BackupSource for NoBackup {
    async fn backup(&self, _: bool) -> Result<Vec<BackupFile>, BackupError> {
        Ok(vec![])
    }
}

/// A host without sandboxes.
#[derive(Debug)]
pub(super) struct NoRuntime;

#[async_trait]
impl Runtime for NoRuntime {
    async fn prepare(&self, _: &Deployment) -> Result<(), String> {
        Ok(())
    }

    fn try_reserve(&self, _: &Arc<Deployment>) -> Option<Reservation> {
        None
    }

    async fn reserve(&self, _: &Arc<Deployment>) -> Reservation {
        std::future::pending().await
    }

    fn retire(&self, _: &EndpointId, _: Option<&Arc<Deployment>>) {}

    fn load(&self) -> RuntimeLoad {
        RuntimeLoad::default()
    }

    async fn perform(&self, _: Reservation, _: Attempt, _: Arc<dyn AttemptSink>) -> AttemptReport {
        unreachable!("there are no reservations")
    }
}
