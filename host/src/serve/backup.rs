//! All that a backup of this host is made of: the store's files, and the components.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use gristmill_core::backup::{BackupError, BackupFile, BackupSource, COMPONENTS};
use gristmill_core::catalog::Catalog;
use gristmill_store::SqliteStore;

/// What a backup is taken of. Compiled components are not in it: they are made again.
#[derive(Debug)]
pub(super) struct Everything {
    pub(super) store: Arc<SqliteStore>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) data_dir: PathBuf,
}

#[async_trait]
impl BackupSource for Everything {
    async fn backup(&self, with_secrets_key: bool) -> Result<Vec<BackupFile>, BackupError> {
        let mut files = self.store.backup(with_secrets_key).await?;
        // After the store: what its tables name is in the catalog by then, and stays there.
        let view = self.catalog.view();
        files.extend(view.components.values().map(|component| {
            let name = format!("{COMPONENTS}/{}.wasm", component.digest);
            let content = Box::new(ReadLater::Named(self.data_dir.join(&name)));
            BackupFile { name, bytes: component.bytes, content }
        }));
        Ok(files)
    }
}

/// A file that is opened by the first who reads it: of many there are few open at one time.
enum ReadLater {
    Named(PathBuf),
    Open(File),
}

impl Read for ReadLater {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self {
                Self::Named(path) => *self = Self::Open(File::open(path)?),
                Self::Open(file) => return file.read(into),
            }
        }
    }
}
