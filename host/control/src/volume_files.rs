//! The files of network volumes. Handlers change the same files at the same time: a file that is
//! written here appears whole or not at all.

use std::sync::Arc;

use bytes::Bytes;
use gristmill_core::access::key::ApiKey;
use gristmill_core::deploy::volume::Volume;
use gristmill_core::deploy::volume_files::{
    FileEntry, FilePath, InvalidFilePath, NewFile, OpenFile,
};
use gristmill_core::id::VolumeId;

use crate::complete::complete;
use crate::error::ControlError;
use crate::owned::find_owned;
use crate::volumes::Volumes;

/// A file of a network volume that a caller sends. Dropping it leaves nothing of it.
#[derive(Debug)]
pub struct FileUpload {
    volumes: Volumes,
    caller: Arc<ApiKey>,
    id: VolumeId,
    file: Box<dyn NewFile>,
}

impl Volumes {
    /// The entries of a directory by name, from the one after `after`, `count_max` at most. Without
    /// a path, those of the volume's root.
    ///
    /// # Errors
    /// [`ControlError::NotFound`] and [`ControlError::VolumeFile`].
    pub async fn list_files(
        &self,
        caller: &ApiKey,
        id: &VolumeId,
        directory: Option<&FilePath>,
        after: Option<&str>,
        count_max: usize,
    ) -> Result<Vec<FileEntry>, ControlError> {
        let volume = self.find(caller, id)?;
        Ok(self.files.list_files(&volume, directory, after, count_max).await?)
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// Those of [`list_files`](Self::list_files).
    pub async fn open_file(
        &self,
        caller: &ApiKey,
        id: &VolumeId,
        path: &FilePath,
    ) -> Result<OpenFile, ControlError> {
        let volume = self.find(caller, id)?;
        Ok(self.files.open_file(&volume, path).await?)
    }

    /// Begins to write a file, whose size is known or not.
    ///
    /// # Errors
    /// Those of [`list_files`](Self::list_files).
    pub async fn create_file(
        &self,
        caller: &Arc<ApiKey>,
        id: VolumeId,
        path: &FilePath,
        bytes: Option<u64>,
    ) -> Result<FileUpload, ControlError> {
        let volume = self.find(caller, &id)?;
        let file = self.files.create_file(&volume, path, bytes).await?;
        Ok(FileUpload { volumes: self.clone(), caller: caller.clone(), id, file })
    }

    /// Creates a directory, and missing directories of its path. A directory that exists stays as
    /// it is.
    ///
    /// # Errors
    /// Those of [`list_files`](Self::list_files).
    pub async fn create_directory(
        &self,
        caller: &ApiKey,
        id: &VolumeId,
        path: &FilePath,
    ) -> Result<(), ControlError> {
        let volume = self.find(caller, id)?;
        Ok(self.files.create_directory(&volume, path).await?)
    }

    /// Removes a file or an empty directory, or with `recursive` a directory with its content.
    ///
    /// # Errors
    /// Those of [`list_files`](Self::list_files).
    pub async fn remove_file(
        &self,
        caller: &ApiKey,
        id: &VolumeId,
        path: &FilePath,
        recursive: bool,
    ) -> Result<(), ControlError> {
        let volume = self.find(caller, id)?;
        Ok(self.files.remove_file(&volume, path, recursive).await?)
    }

    fn find(&self, caller: &ApiKey, id: &VolumeId) -> Result<Arc<Volume>, ControlError> {
        let view = self.deployed.view();
        // A body may have been on its way since the key was checked.
        self.deployed.check_key(caller, &view)?;
        find_owned::<Volume>(&view, caller, id).cloned()
    }
}

impl FileUpload {
    /// Appends bytes.
    ///
    /// # Errors
    /// [`ControlError::VolumeFile`].
    pub async fn write(&mut self, piece: Bytes) -> Result<(), ControlError> {
        Ok(self.file.write(piece).await?)
    }

    /// Gives the file its name, if the caller's key is still valid and the volume exists.
    ///
    /// # Errors
    /// [`ControlError::KeyEnded`], [`ControlError::NotFound`] and [`ControlError::VolumeFile`];
    /// then a file of this name is unchanged.
    pub async fn finish(self) -> Result<(), ControlError> {
        let Self { volumes, caller, id, file } = self;
        let view = volumes.deployed.view();
        volumes.deployed.check_key(&caller, &view)?;
        find_owned::<Volume>(&view, &caller, &id)?;
        Ok(complete(file.finish()).await??)
    }
}

/// Parses the path of a file on a volume.
///
/// # Errors
/// [`ControlError::Invalid`] says what is allowed.
pub fn file_path(text: &str) -> Result<FilePath, ControlError> {
    FilePath::parse(text)
        .map_err(|error: InvalidFilePath| ControlError::invalid(format!("`path` must be {error}")))
}
