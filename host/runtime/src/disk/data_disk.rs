//! The file system of the data directory, whose free space the host measures and its owners share.
//!
//! An operator may put volumes or scratch space on another file system: files there take nothing
//! from the data directory's disk, so they count in no owner's share of it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use gristmill_core::id::OwnerId;
use gristmill_core::sharing::disk_share::DiskAccount;
use gristmill_core::sharing::disk_space::DiskSpaceGauge;

/// The file system of the data directory. A clone refers to the same one.
#[derive(Debug, Clone)]
pub(super) struct DataDisk {
    device: u64,
    disk_space: Arc<DiskSpaceGauge>,
}

impl DataDisk {
    /// The file system that contains this directory, whose free space `disk_space` has.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn of(data_dir: &Path, disk_space: Arc<DiskSpaceGauge>) -> io::Result<Self> {
        Ok(Self { device: fs::metadata(data_dir)?.dev(), disk_space })
    }

    /// Its free space.
    pub(super) fn disk_space(&self) -> &Arc<DiskSpaceGauge> {
        &self.disk_space
    }

    /// The account of this owner.
    pub(super) fn account(&self, owner: &OwnerId) -> DiskAccount {
        DiskAccount::new(&self.disk_space, owner)
    }

    /// Whether files in this directory take space of this file system. Blocks on the disk.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn contains(&self, directory: &Path) -> io::Result<bool> {
        Ok(fs::metadata(directory)?.dev() == self.device)
    }

    /// The account in which this owner's files in this directory count: without any effect if the
    /// directory is on another file system. Blocks on the disk.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn account_at(&self, directory: &Path, owner: &OwnerId) -> io::Result<DiskAccount> {
        Ok(if self.contains(directory)? { self.account(owner) } else { DiskAccount::default() })
    }

    /// Test only: this directory is on another file system.
    #[cfg(test)]
    pub(super) fn elsewhere(disk_space: Arc<DiskSpaceGauge>) -> Self {
        Self { device: u64::MAX, disk_space }
    }
}
