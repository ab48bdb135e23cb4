//! The bytes of network volumes that no job has used since the start, in the disk shares of their
//! owners. A volume that is in use counts by its [`Mount`](super::mount::Mount).
//!
//! **Promises.** While the host has several owners, the files of an owner grow only if they fit in
//! the owner's share however full its uncounted volumes are: a restart frees no part of the share.
//! The host counts all volumes soon after the start, whether jobs use them or not. **Bounds.** One
//! volume of an owner is read at a time. A worker waits [`WAIT`] at most before it claims a job,
//! and only if the job's files could not grow before the count. **Cost.** The metadata of each file
//! is read once after a start, and again when a job uses the volume. Some 200 bytes for each volume
//! until a job uses it.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gristmill_core::deploy::volume::Volume;
use gristmill_core::id::{OwnerId, VolumeId};
use gristmill_core::sharing::disk_share::{DiskCharge, UncountedFiles};
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tracing::warn;

use super::data_disk::DataDisk;
use super::mount;
use crate::files::blocking;

/// Longest wait of a worker for the count, before it claims a job: a million files take seconds.
const WAIT: Duration = Duration::from_secs(2);

/// The volumes that no job has used since the start.
#[derive(Debug)]
pub(super) struct UnusedVolumes {
    /// The directory with one directory for each volume.
    dir: PathBuf,
    disk: DataDisk,
    /// The owners of volumes that are not counted yet.
    owners: Mutex<HashMap<OwnerId, Arc<Uncounted>>>,
    charges: Mutex<HashMap<VolumeId, Charge>>,
}

/// The part that a volume has in its owner's share.
#[derive(Debug)]
enum Charge {
    /// Until the volume is counted.
    Uncounted {
        _files: UncountedFiles,
    },
    Counted {
        _bytes: DiskCharge,
    },
}

/// The volumes that an owner had at the start.
#[derive(Debug, Default)]
struct Uncounted {
    volumes: Vec<VolumeId>,
    counted: OnceCell<()>,
}

impl UnusedVolumes {
    /// No volumes, in this directory.
    pub(super) fn new(dir: PathBuf, disk: DataDisk) -> Self {
        Self { dir, disk, owners: Mutex::default(), charges: Mutex::default() }
    }

    /// Adds the volumes that exist at the start; their files are not read yet.
    pub(super) fn add<'a>(&self, volumes: impl IntoIterator<Item = &'a Volume>) {
        let mut by_owner: HashMap<OwnerId, Uncounted> = HashMap::new();
        let mut charges = self.charges.lock();
        for volume in volumes {
            let files = self.disk.account(&volume.owner).charge_uncounted(volume.bytes_max());
            charges.insert(volume.id.clone(), Charge::Uncounted { _files: files });
            by_owner.entry(volume.owner.clone()).or_default().volumes.push(volume.id.clone());
        }
        let by_owner = by_owner.into_iter().map(|(owner, found)| (owner, Arc::new(found)));
        self.owners.lock().extend(by_owner);
    }

    /// Counts the volumes of all owners, one after the other.
    pub(super) async fn count_all(self: Arc<Self>) {
        let owners: Vec<_> = self.owners.lock().keys().cloned().collect();
        for owner in owners {
            self.clone().count(owner).await;
        }
    }

    /// Called before a job of the owner is claimed. Returns when the volumes of the owner are
    /// counted, or after [`WAIT`]; at once if the job's files can grow in any case.
    pub(super) async fn prepare_growth(self: &Arc<Self>, owner: &OwnerId) {
        let can_grow = || self.disk.account(owner).admits_files(0);
        if !self.owners.lock().contains_key(owner) || can_grow() {
            return;
        }
        // A task of its own: attempts that end meanwhile do not make the next one begin again. It
        // fails only when the host ends.
        let count = tokio::spawn(self.clone().count(owner.clone()));
        let _ = tokio::time::timeout(WAIT, count).await;
    }

    /// The volume is used or removed: it has no charge here any more.
    pub(super) fn remove(&self, id: &VolumeId) {
        self.charges.lock().remove(id);
    }

    /// Counts the volumes of an owner, once for all callers.
    async fn count(self: Arc<Self>, owner: OwnerId) {
        let Some(found) = self.owners.lock().get(&owner).cloned() else { return };
        let count_each = || async {
            for id in &found.volumes {
                self.count_volume(id, &owner).await;
            }
        };
        found.counted.get_or_init(count_each).await;
        self.owners.lock().remove(&owner);
    }

    async fn count_volume(&self, id: &VolumeId, owner: &OwnerId) {
        if !matches!(self.charges.lock().get(id), Some(Charge::Uncounted { .. })) {
            return;
        }
        let (path, disk) = (self.dir.join(id.as_str()), self.disk.clone());
        let count = move || match disk.contains(&path) {
            Ok(true) => mount::volume_bytes(&path),
            // Its files take no space of the data directory's disk.
            Ok(false) => Ok(0),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        };
        let counted = blocking(count).await;
        let mut charges = self.charges.lock();
        // A volume that was used or removed meanwhile has no charge.
        let Some(charge) = charges.get_mut(id) else { return };
        let bytes = counted.unwrap_or_else(|error| {
            // No job can write to it either.
            warn!(%error, "network volume `{id}` cannot be counted: {error}");
            0
        });
        *charge = Charge::Counted { _bytes: self.disk.account(owner).charge_existing(bytes) };
    }
}

#[cfg(test)]
#[path = "unused_tests.rs"]
mod tests;
