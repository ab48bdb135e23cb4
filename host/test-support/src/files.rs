//! Components, volumes, registries and backups without files.

use std::fmt::Display;
use std::io;

use async_trait::async_trait;
use gristmill_core::backup::{BackupError, BackupFile, BackupSource};
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::deploy::image::RemoteImage;
use gristmill_core::deploy::registry_auth::RegistryAuth;
use gristmill_core::deploy::volume::Volume;
use gristmill_core::deploy::volume_files::{
    FileEntry, FilePath, NewFile, OpenFile, VolumeFileError, VolumeFiles,
};
use gristmill_core::id::{OwnerId, VolumeId};
use gristmill_core::registries::{FetchError, Registries};
use gristmill_core::runtime::{
    AddedComponent, Components, EndUpload, StageError, Staged, VolumeDirectories,
};
use parking_lot::Mutex;
use tokio::io::AsyncRead;

/// The files of components and volumes: the names of the calls. Uploads are refused.
#[derive(Debug, Default)]
pub struct RecordedFiles {
    calls: Mutex<Vec<String>>,
    removals: tokio::sync::Mutex<()>,
}

impl RecordedFiles {
    /// The calls since the last call of this.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock())
    }

    /// Lets all removals of components wait until the guard is dropped.
    pub async fn block_removals(&self) -> impl Drop {
        self.removals.lock().await
    }

    fn note(&self, call: &str, name: impl Display) {
        self.calls.lock().push(format!("{call} {name}"));
    }
}

#[async_trait]
impl Components for RecordedFiles {
    fn end_uploads_by(&self, _: EndUpload) {}

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
        let _turn = self.removals.lock().await;
        components.iter().for_each(|component| self.note("remove component", component));
        Ok(())
    }
}

#[async_trait]
impl VolumeDirectories for RecordedFiles {
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
impl VolumeFiles for RecordedFiles {
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

    async fn create_directory(&self, _: &Volume, path: &FilePath) -> Result<(), VolumeFileError> {
        Err(VolumeFileError::NotDirectory(path.to_string()))
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
#[derive(Debug, Clone, Copy, Default)]
pub struct NoRegistries;

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
#[derive(Debug, Clone, Copy, Default)]
pub struct NoBackup;

#[async_trait]
impl BackupSource for NoBackup {
    async fn backup(&self, _: bool) -> Result<Vec<BackupFile>, BackupError> {
        Ok(vec![])
    }
}
