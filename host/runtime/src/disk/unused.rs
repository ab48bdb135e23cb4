//! The bytes of network volumes that no job has used since the start, in the disk shares of their
//! owners. A volume that is in use counts by its [`Mount`](super::mount::Mount).
//!
//! **Promises.** While the host has several owners, an owner's job gets its files only once all
//! volumes that the owner had at the start count: a restart frees no part of the owner's share. A
//! volume that cannot be read is left out, since no job can write to it either. The host counts all
//! volumes soon after the start, whether jobs use them or not.
//! **Bounds.** One volume of an owner is read at a time.
//! **Cost.** The metadata of each file is read once after a start. Some 200 bytes for each volume
//! until a job uses it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use gristmill_core::disk_share::{DiskAccount, DiskCharge};
use gristmill_core::disk_space::DiskSpaceGauge;
use gristmill_core::id::{OwnerId, VolumeId};
use gristmill_core::volume::Volume;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tracing::warn;

use super::mount;
use crate::artifacts::blocking;

/// The volumes that no job has used since the start.
#[derive(Debug)]
pub(super) struct UnusedVolumes {
    /// The directory with one directory for each volume.
    dir: PathBuf,
    disk_space: Arc<DiskSpaceGauge>,
    /// The owners of volumes that do not count yet.
    owners: Mutex<HashMap<OwnerId, Arc<Uncounted>>>,
    /// Without a charge until the volume is counted.
    charges: Mutex<HashMap<VolumeId, Option<DiskCharge>>>,
}

/// The volumes that an owner had at the start.
#[derive(Debug, Default)]
struct Uncounted {
    volumes: Vec<VolumeId>,
    counted: OnceCell<()>,
}

impl UnusedVolumes {
    /// No volumes, in this directory.
    pub(super) fn new(dir: PathBuf, disk_space: Arc<DiskSpaceGauge>) -> Self {
        Self { dir, disk_space, owners: Mutex::default(), charges: Mutex::default() }
    }

    /// Adds the volumes that exist at the start; their files are not read yet.
    pub(super) fn add<'a>(&self, volumes: impl IntoIterator<Item = &'a Volume>) {
        let mut by_owner: HashMap<OwnerId, Uncounted> = HashMap::new();
        let mut charges = self.charges.lock();
        for Volume { id, owner, .. } in volumes {
            charges.insert(id.clone(), None);
            by_owner.entry(owner.clone()).or_default().volumes.push(id.clone());
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

    /// Returns when the volumes of the owner count. Returns at once while the host has one owner,
    /// which has no share.
    pub(super) async fn counted(self: &Arc<Self>, owner: &OwnerId) {
        if !self.disk_space.has_several_owners() || !self.owners.lock().contains_key(owner) {
            return;
        }
        // A task of its own: attempts that end meanwhile do not make the next one begin again. It
        // fails only when the host ends.
        let _ = tokio::spawn(self.clone().count(owner.clone())).await;
    }

    /// The volume is used or removed: it has no charge here any more.
    pub(super) fn remove(&self, id: &VolumeId) {
        self.charges.lock().remove(id);
    }

    /// Counts the volumes of an owner, once for all callers.
    async fn count(self: Arc<Self>, owner: OwnerId) {
        let Some(found) = self.owners.lock().get(&owner).cloned() else { return };
        let account = DiskAccount::new(&self.disk_space, &owner);
        let count_each = || async {
            for id in &found.volumes {
                self.count_volume(id, &account).await;
            }
        };
        found.counted.get_or_init(count_each).await;
        self.owners.lock().remove(&owner);
    }

    async fn count_volume(&self, id: &VolumeId, account: &DiskAccount) {
        let needs_charge = || matches!(self.charges.lock().get(id), Some(None));
        if !needs_charge() {
            return;
        }
        let path = self.dir.join(id.as_str());
        match blocking(move || mount::volume_bytes(&path)).await {
            Ok(bytes) => {
                if let Some(charge) = self.charges.lock().get_mut(id) {
                    *charge = Some(account.charge_existing(bytes));
                }
            }
            Err(error) if needs_charge() => {
                warn!(%error, "network volume `{id}` cannot be counted: {error}");
            }
            // It was removed meanwhile.
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use gristmill_core::tenancy::Tenancy;
    use gristmill_core::time::Timestamp;

    use super::super::Disks;
    use super::super::space::file_charge;
    use super::*;

    const MIB: u64 = 1 << 20;

    fn volume(id: &str, owner: &str) -> Volume {
        Volume {
            id: VolumeId::new(id).unwrap(),
            owner: OwnerId::new(owner).unwrap(),
            name: id.to_owned(),
            size_gb: 1,
            created_at: Timestamp::from_millis(0),
        }
    }

    fn write(host: &Path, volume: &str) {
        let directory = host.join("volumes").join(volume);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("file"), vec![7; 1 << 20]).unwrap();
    }

    /// The host's disk with 40 MiB, and the mounts of a process that has just started on it.
    fn start(host: &Path) -> (Arc<DiskSpaceGauge>, Disks) {
        let tenancy = Tenancy::default();
        tenancy.set_several_owners(true);
        let disk_space = Arc::new(DiskSpaceGauge::new(tenancy.clone()));
        disk_space.set(40 * MIB, 0);
        let disks = Disks::open(host, disk_space.clone(), tenancy).unwrap();
        (disk_space, disks)
    }

    fn held(disk_space: &Arc<DiskSpaceGauge>, owner: &str) -> u64 {
        DiskAccount::new(disk_space, &OwnerId::new(owner).unwrap()).bytes()
    }

    #[tokio::test]
    async fn volumes_of_an_earlier_process_count_before_the_owners_next_job_has_its_files() {
        let host = tempfile::tempdir().unwrap();
        let [a, b, other] =
            [("a", "x"), ("b", "x"), ("other", "y")].map(|(id, owner)| volume(id, owner));
        write(host.path(), "a");
        write(host.path(), "other");
        let (disk_space, disks) = start(host.path());
        disks.restore_volumes([&a, &b, &other]);
        let mount = disks.volume(&b).await.unwrap();
        assert_eq!(held(&disk_space, "x"), file_charge(MIB));
        assert_eq!(held(&disk_space, "y"), 0, "no job of this owner waits for a count");
        assert!(mount.space.take(40 * MIB).is_err() && mount.space.take(20 * MIB).is_ok());
        // The volume counts once when it is used, and not at all once it is removed.
        let used = disks.volume(&a).await.unwrap();
        assert_eq!(held(&disk_space, "x"), file_charge(MIB) + 20 * MIB);
        disks.remove_volume(&a.id).await.unwrap();
        drop(used);
        disks.remove_volume(&other.id).await.unwrap();
        assert_eq!((held(&disk_space, "x"), held(&disk_space, "y")), (20 * MIB, 0));
    }

    #[tokio::test]
    async fn a_start_counts_the_volumes_that_no_job_uses() {
        let host = tempfile::tempdir().unwrap();
        let volumes = [("a", "x"), ("deep", "x"), ("b", "y"), ("never-used", "y")]
            .map(|(id, owner)| volume(id, owner));
        write(host.path(), "a");
        write(host.path(), "b");
        fs::create_dir_all(host.path().join("volumes/deep").join("d/".repeat(300))).unwrap();
        let (disk_space, disks) = start(host.path());
        disks.restore_volumes(&volumes);
        disks.count_volumes().await;
        assert_eq!(held(&disk_space, "x"), file_charge(MIB), "without the unreadable volume");
        assert_eq!(held(&disk_space, "y"), file_charge(MIB));
        let [a, _, b, _] = &volumes;
        disks.remove_volume(&b.id).await.unwrap();
        assert_eq!(held(&disk_space, "y"), 0);
        drop(disks.volume(a).await.unwrap());
        assert_eq!(held(&disk_space, "x"), file_charge(MIB));
    }
}
