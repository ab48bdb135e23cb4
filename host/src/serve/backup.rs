//! All parts of this host's backup: the store's files, and the components.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use gristmill_core::backup::{BackupError, BackupFile, BackupSource, COMPONENTS};
use gristmill_core::catalog::Catalog;
use gristmill_store::Store;

/// The sources of a backup. Compiled components are not included, since they can be compiled again.
#[derive(Debug)]
pub(super) struct HostBackup {
    pub(super) store: Arc<Store>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) data_dir: PathBuf,
}

#[async_trait]
impl BackupSource for HostBackup {
    async fn backup(&self, with_secrets_key: bool) -> Result<Vec<BackupFile>, BackupError> {
        let mut files = self.store.backup(with_secrets_key).await?;
        // After the store: components that its tables name are in the catalog by then, and stay
        // there.
        let view = self.catalog.view();
        files.extend(view.components.values().map(|component| {
            let name = format!("{COMPONENTS}/{}.wasm", component.digest);
            let content = Box::new(LazyFile::Named(self.data_dir.join(&name)));
            BackupFile { name, bytes: component.bytes, content }
        }));
        Ok(files)
    }
}

/// A file that is opened at its first read, so that few of many files are open at one time.
enum LazyFile {
    Named(PathBuf),
    Open(File),
}

impl Read for LazyFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self {
                Self::Named(path) => *self = Self::Open(File::open(path)?),
                Self::Open(file) => return file.read(into),
            }
        }
    }
}
