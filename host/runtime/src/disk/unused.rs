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
mod tests {
    use std::fs;
    use std::path::Path;

    use gristmill_core::sharing::disk_share::DiskAccount;
    use gristmill_core::sharing::disk_space::DiskSpaceGauge;
    use gristmill_core::sharing::tenancy::Tenancy;
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
    async fn volumes_of_an_earlier_process_count_before_the_owners_next_job_begins() {
        let host = tempfile::tempdir().unwrap();
        let [a, b, other] =
            [("a", "x"), ("b", "x"), ("other", "y")].map(|(id, owner)| volume(id, owner));
        write(host.path(), "a");
        write(host.path(), "other");
        let (disk_space, disks) = start(host.path());
        disks.restore_volumes([&a, &b, &other]);
        let mount = disks.counted_volume(&b).await.unwrap();
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

    #[tokio::test]
    async fn a_job_does_not_wait_for_the_count_if_its_files_have_room_in_any_case() {
        let host = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|id| volume(id, "x"));
        write(host.path(), "a");
        let (disk_space, disks) = start(host.path());
        disk_space.set(4 << 30, 0);
        disks.restore_volumes([&a, &b]);
        let mount = disks.counted_volume(&b).await.unwrap();
        assert_eq!(held(&disk_space, "x"), 0, "`a` is not counted");
        assert!(mount.space.take(500 * MIB).is_ok());
        disks.count_volumes().await;
        assert_eq!(held(&disk_space, "x"), file_charge(MIB) + 500 * MIB);
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_waits_for_a_long_count_for_a_moment_and_its_files_cannot_grow_then() {
        let host = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|id| volume(id, "x"));
        let (_, disks) = start(host.path());
        disks.restore_volumes([&a, &b]);
        let counted = disks.unused_volumes.owners.lock().get(&a.owner).unwrap().clone();
        let long = tokio::spawn(async move {
            counted.counted.get_or_init(std::future::pending).await;
        });
        tokio::task::yield_now().await;
        let mount = disks.counted_volume(&b).await.unwrap();
        assert!(mount.space.take(MIB).is_err());
        long.abort();
        assert!(long.await.is_err());
        drop(disks.counted_volume(&b).await.unwrap());
        assert!(mount.space.take(MIB).is_ok());
    }

    #[tokio::test]
    async fn files_on_another_file_system_take_nothing_from_the_owners_share() {
        let host = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|id| volume(id, "x"));
        write(host.path(), "a");
        let (disk_space, mut disks) = start(host.path());
        disks.disk = DataDisk::elsewhere(disk_space.clone());
        let dir = host.path().join("volumes");
        disks.unused_volumes = Arc::new(UnusedVolumes::new(dir, disks.disk.clone()));
        disks.restore_volumes([&a, &b]);
        let mount = disks.counted_volume(&b).await.unwrap();
        disks.count_volumes().await;
        let scratch = disks.scratch(&a.owner, 1 << 30).await.unwrap();
        for mount in [mount, scratch] {
            // The data directory's disk has 40 MiB.
            assert!(mount.space.take(100 * MIB).is_ok());
            mount.space.reallocated(0, 100 * MIB);
        }
        assert_eq!((held(&disk_space, "x"), disk_space.granted_bytes()), (0, 0));
    }
}
