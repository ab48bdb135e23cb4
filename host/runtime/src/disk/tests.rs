//! Volumes in a real directory: first use, removal, open files, and locks that other processes see.

use std::fs;

use gristmill_core::deploy::volume_files::{FilePath, VolumeFileError, VolumeFiles as _};
use gristmill_core::id::EndpointId;
use gristmill_core::time::Timestamp;

use super::recent::OPEN_MAX;
use super::*;

fn volume(id: &str) -> Volume {
    Volume {
        id: VolumeId::new(id).unwrap(),
        owner: OwnerId::operator(),
        name: id.to_owned(),
        size_gb: 1,
        created_at: Timestamp::from_millis(0),
    }
}

fn disks(data_dir: &Path) -> Disks {
    let gauge = Arc::new(DiskSpaceGauge::new(Tenancy::default()));
    Disks::open(data_dir, gauge, Tenancy::default()).unwrap()
}

/// Its job would write to a directory that no record and no start knows.
#[tokio::test]
async fn the_first_use_of_a_volume_does_not_create_it_after_its_removal() {
    let host = tempfile::tempdir().unwrap();
    let disks = disks(host.path());
    let mut used = 0;
    for number in 0..200 {
        let volume = volume(&format!("v{number}"));
        let (mount, removed) = tokio::join!(disks.volume(&volume), disks.remove_volume(&volume.id));
        removed.unwrap();
        used += usize::from(mount.is_ok());
    }
    let left = fs::read_dir(host.path().join(VOLUMES)).map_or(0, Iterator::count);
    assert_eq!(left, 0, "of 200 volumes, {used} of them used");
}

#[test]
fn removed_volumes_are_remembered_in_bounded_number() {
    let mut used = UsedVolumes::default();
    let id = |number: usize| volume(&format!("v{number}")).id;
    used.used(&id(0)).unwrap();
    for number in 0..=REMOVED_MAX {
        used.remove(&id(number));
        used.remove(&id(number));
    }
    assert_eq!((used.volumes.len(), used.removed.len()), (REMOVED_MAX, REMOVED_MAX));
    assert!(used.used(&id(1)).is_err());
}

/// The files and directories below this one that the process has open.
fn open_below(directory: &Path) -> usize {
    let directory = directory.canonicalize().unwrap();
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let paths = open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    paths.filter(|path| path.starts_with(&directory)).count()
}

/// Waits until so many are open: files are removed on threads of their own.
async fn are_open(directory: &Path, count: usize) {
    let closed = async {
        while open_below(directory) != count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), closed).await.unwrap();
}

/// Whether the lock of the directory shows no use of it to other processes.
fn looks_unused(directory: &Path) -> bool {
    locks::is_alone(&File::open(directory).unwrap())
}

#[tokio::test]
async fn volumes_that_are_not_in_use_do_not_stay_open() {
    let host = tempfile::tempdir().unwrap();
    let (disks, volumes_dir) = (disks(host.path()), host.path().join(VOLUMES));
    let volumes: Vec<_> = (0..600).map(|number| volume(&format!("v{number}"))).collect();
    let (first, first_dir) = (&volumes[0], volumes_dir.join("v0"));
    fs::create_dir_all(&first_dir).unwrap();
    fs::write(first_dir.join("before"), "rye").unwrap();
    let used = disks.volume(first).await.unwrap();
    let (path, counted) = (FilePath::parse("uploaded").unwrap(), used.space.used());
    let upload = disks.create_file(first, &path, None).await.unwrap();
    for volume in &volumes[1..] {
        assert_eq!(disks.list_files(volume, None, None, 10).await.unwrap(), []);
    }
    let open = open_below(&volumes_dir);
    assert!(open <= OPEN_MAX + 2, "{open} are open: of 599 volumes, and of the upload");
    upload.finish().await.unwrap();
    assert!(!looks_unused(&first_dir), "it is in use");
    drop(used);
    are_open(&first_dir, 0).await;
    assert!(looks_unused(&first_dir));

    // The next use opens it again, and counts no files.
    fs::write(first_dir.join("of the operator"), "oats").unwrap();
    let again = disks.volume(first).await.unwrap();
    assert!(!looks_unused(&first_dir));
    assert_eq!(again.space.used(), counted + space::file_charge(0));
    assert_eq!(disks.list_files(first, None, None, 10).await.unwrap().len(), 3);
    // A directory that stays open for its next use is closed when its volume is removed.
    for volume in &volumes {
        disks.remove_volume(&volume.id).await.unwrap();
    }
    are_open(&volumes_dir, 1).await;
    drop(again);
    are_open(&volumes_dir, 0).await;
    assert!(disks.volume(first).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_use_shows_itself_to_other_processes_however_many_begin_and_end_meanwhile() {
    let host = tempfile::tempdir().unwrap();
    let disks = Arc::new(disks(host.path()));
    disks.volumes.lock().recent = RecentVolumes::new(1);
    let volumes_dir = host.path().join(VOLUMES);
    let users = (0..8).map(|user| {
        let (disks, volumes_dir) = (disks.clone(), volumes_dir.clone());
        tokio::spawn(async move {
            for number in 0..300 {
                let volume = volume(&format!("v{}", (number * (user + 1)) % 3));
                let used = disks.volume(&volume).await.unwrap();
                assert!(!looks_unused(&volumes_dir.join(volume.id.as_str())), "{number}");
                drop(used);
            }
        })
    });
    for user in users.collect::<Vec<_>>() {
        user.await.unwrap();
    }
    assert!(open_below(&volumes_dir) <= 1);
}

#[tokio::test]
async fn a_call_for_a_volume_needs_one_of_the_open_files_of_its_owner() {
    let host = tempfile::tempdir().unwrap();
    let (disks, volume) = (disks(host.path()), volume("v"));
    let endpoint = EndpointId::new("e").unwrap();
    let of_job = || {
        let io_limits = disks.io_limits.job(&volume.owner, &endpoint);
        let open: Vec<_> = std::iter::from_fn(|| io_limits.open_file().ok()).collect();
        (!open.is_empty()).then_some(open)
    };
    let open: Vec<_> = std::iter::from_fn(of_job).collect();
    let refused = disks.list_files(&volume, None, None, 10).await.unwrap_err();
    assert!(matches!(refused, VolumeFileError::Busy), "{refused}");
    assert_eq!(open_below(host.path()), 0, "no directory was opened");
    drop(open);
    assert_eq!(disks.list_files(&volume, None, None, 10).await.unwrap(), []);
}
