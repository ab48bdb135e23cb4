//! An upload: a [staged file](StagedFile) that can become a [component](Artifacts::add).

use std::fs::File;
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::id::OwnerId;
use gristmill_core::runtime::{AddComponentError, AddedComponent, StageError, Staged};
use gristmill_core::time::{Clock as _, SystemClock};

use crate::components::artifacts::{AddError, Artifacts};
use crate::components::staging::StagedFile;
use crate::files::{self, blocking};

/// An upload that can become a component.
#[derive(Debug)]
pub(crate) struct StagedComponent {
    pub(crate) file: Arc<StagedFile>,
    pub(crate) artifacts: Arc<Artifacts>,
}

#[async_trait]
impl Staged for StagedComponent {
    async fn write(&self, piece: Bytes) -> Result<(), StageError> {
        self.file.write(piece).await
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn digest(&self) -> ComponentDigest {
        self.file.digest()
    }

    async fn read(&self, bytes_max: usize) -> io::Result<Bytes> {
        let path = self.file.path().to_owned();
        blocking(move || files::read_capped(&path, bytes_max).map(Bytes::from)).await
    }

    fn open(&self) -> io::Result<File> {
        File::open(self.file.path())
    }

    async fn add(&self, owner: &OwnerId) -> Result<AddedComponent, AddComponentError> {
        // Boxed: the future holds a compile and its files.
        let added = Box::pin(self.artifacts.add(self.file.clone(), owner, SystemClock.now())).await;
        added.map_err(AddError::into)
    }
}
