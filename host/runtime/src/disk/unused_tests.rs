//! Volumes of an earlier process after a start: their count, and the jobs that come before its end.

use std::fs;
use std::path::Path;

use gristmill_core::runtime::VolumeDirectories as _;
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
