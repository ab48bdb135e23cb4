//! The files of network volumes for callers outside of handlers.

use async_trait::async_trait;
use gristmill_core::deploy::volume::Volume;
use gristmill_core::deploy::volume_files::{
    FileEntry, FilePath, NewFile, OpenFile, VolumeFileError, VolumeFiles,
};

use super::WasmtimeRuntime;

#[async_trait]
impl VolumeFiles for WasmtimeRuntime {
    async fn list_files(
        &self,
        volume: &Volume,
        directory: Option<&FilePath>,
        after: Option<&str>,
        count_max: usize,
    ) -> Result<Vec<FileEntry>, VolumeFileError> {
        self.disks.list_files(volume, directory, after, count_max).await
    }

    async fn open_file(
        &self,
        volume: &Volume,
        path: &FilePath,
    ) -> Result<OpenFile, VolumeFileError> {
        self.disks.open_file(volume, path).await
    }

    async fn create_file(
        &self,
        volume: &Volume,
        path: &FilePath,
        bytes: Option<u64>,
    ) -> Result<Box<dyn NewFile>, VolumeFileError> {
        self.disks.create_file(volume, path, bytes).await
    }

    async fn create_directory(
        &self,
        volume: &Volume,
        path: &FilePath,
    ) -> Result<(), VolumeFileError> {
        self.disks.create_directory(volume, path).await
    }

    async fn remove_file(
        &self,
        volume: &Volume,
        path: &FilePath,
        recursive: bool,
    ) -> Result<(), VolumeFileError> {
        self.disks.remove_file(volume, path, recursive).await
    }
}
