//! Removals of network volumes, which a crash may interrupt.
//!
//! A deletion has four steps: a mark beside the volume's directory, the deletion of the catalog's
//! record, a new name for the directory, and the removal of the mark. The directory is wiped after
//! that. **Promises.** After a crash between any two steps, the next start either completes the
//! removal, or finds the record and removes only the mark. A directory without a mark is never
//! removed: its record may be lost by damage. **Costs.** An empty file for each deletion in
//! progress, and three syncs of the directory of all volumes.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use gristmill_core::id::VolumeId;
use tracing::{info, warn};

use crate::files;

/// The suffix of the mark of a volume that is being deleted.
const DELETING: &str = ".deleting";

/// The suffix of a deleted volume's directory.
pub(super) const REMOVED: &str = ".removed";

fn mark_of(volumes_dir: &Path, id: &VolumeId) -> PathBuf {
    volumes_dir.join(format!("{id}{DELETING}"))
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Marks a volume whose record is about to be deleted. Blocks on the disk.
///
/// # Errors
/// Those of the file system.
pub(super) fn mark(volumes_dir: &Path, id: &VolumeId) -> io::Result<()> {
    files::create_private_dir(volumes_dir)?;
    files::create_private(&mark_of(volumes_dir, id))?;
    sync(volumes_dir)
}

/// Removes the mark of a volume, if there is one. Blocks on the disk.
///
/// # Errors
/// Those of the file system.
pub(super) fn unmark(volumes_dir: &Path, id: &VolumeId) -> io::Result<()> {
    files::remove(&mark_of(volumes_dir, id))
}

/// Gives the directory of a deleted volume its last name, and removes the mark. Returns the new
/// path, whose content may be wiped; `None` when the volume was never used. Blocks on the disk.
///
/// # Errors
/// Those of the file system; then the mark stays, and the next start tries again.
pub(super) fn remove(volumes_dir: &Path, id: &VolumeId) -> io::Result<Option<PathBuf>> {
    let removed = volumes_dir.join(format!("{id}{REMOVED}"));
    let renamed = match fs::rename(volumes_dir.join(id.as_str()), &removed) {
        Ok(()) => {
            // Before the mark is removed.
            sync(volumes_dir)?;
            Some(removed)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    unmark(volumes_dir, id)?;
    Ok(renamed)
}

/// Continues the removals that a crash interrupted, of the volumes without a record. Returns the
/// directories that are left to be wiped. Blocks on the disk.
///
/// # Errors
/// Those of the file system, when the marks cannot be listed.
pub(super) fn resume(
    volumes_dir: &Path,
    has_record: impl Fn(&VolumeId) -> bool,
) -> io::Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for id in marked(volumes_dir)? {
        let done = match has_record(&id) {
            true => unmark(volumes_dir, &id),
            false => remove(volumes_dir, &id).map(|path| {
                info!("continuing the removal of network volume `{id}`");
                removed.extend(path);
            }),
        };
        if let Err(error) = done {
            warn!(%error, "the directory of network volume `{id}` cannot be removed: {error}");
        }
    }
    Ok(removed)
}

/// The volumes that are marked.
fn marked(volumes_dir: &Path) -> io::Result<Vec<VolumeId>> {
    let entries = match fs::read_dir(volumes_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut ids = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let id = name.to_str().and_then(|name| name.strip_suffix(DELETING));
        ids.extend(id.and_then(|id| VolumeId::new(id).ok()));
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> VolumeId {
        VolumeId::new(text).unwrap()
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn put(directory: &Path, volume: &str) {
        fs::create_dir_all(directory.join(volume)).unwrap();
        fs::write(directory.join(volume).join("file"), "rye").unwrap();
    }

    #[test]
    fn a_removal_can_be_interrupted_after_each_step() {
        for steps in 0..4 {
            let host = tempfile::tempdir().unwrap();
            let volumes = host.path().join("volumes");
            put(&volumes, "v");
            put(&volumes, "lost-record");
            let mut has_record = true;
            if steps > 0 {
                mark(&volumes, &id("v")).unwrap();
            }
            if steps > 1 {
                has_record = false;
            }
            if steps > 2 {
                fs::rename(volumes.join("v"), volumes.join("v.removed")).unwrap();
            }
            let left = resume(&volumes, |volume| has_record && *volume == id("v")).unwrap();
            let expected = if has_record { "v" } else { "v.removed" };
            assert_eq!(names(&volumes), ["lost-record", expected], "{steps}");
            assert_eq!(left.len(), usize::from(steps == 2), "{steps}");
            assert!(volumes.join(expected).join("file").exists(), "it is wiped later");
        }
    }

    #[test]
    fn a_link_of_the_operator_is_removed_without_its_target() {
        let host = tempfile::tempdir().unwrap();
        let (volumes, target) = (host.path().join("volumes"), host.path().join("target"));
        put(host.path(), "target");
        mark(&volumes, &id("v")).unwrap();
        std::os::unix::fs::symlink(&target, volumes.join("v")).unwrap();
        let left = resume(&volumes, |_| false).unwrap();
        assert_eq!(left, [volumes.join("v.removed")]);
        assert!(volumes.join("v.removed").is_symlink() && target.join("file").exists());
    }

    #[test]
    fn a_volume_that_was_never_used_leaves_nothing() {
        let host = tempfile::tempdir().unwrap();
        let volumes = host.path().join("volumes");
        assert_eq!(resume(&volumes, |_| false).unwrap(), [] as [PathBuf; 0]);
        mark(&volumes, &id("v")).unwrap();
        mark(&volumes, &id("v")).unwrap();
        assert_eq!(remove(&volumes, &id("v")).unwrap(), None);
        assert_eq!(names(&volumes), [] as [&str; 0]);
    }

    #[test]
    fn a_directory_that_cannot_be_renamed_keeps_its_mark() {
        let host = tempfile::tempdir().unwrap();
        put(host.path(), "v");
        put(host.path(), "v.removed");
        mark(host.path(), &id("v")).unwrap();
        assert_eq!(resume(host.path(), |_| false).unwrap(), [] as [PathBuf; 0]);
        assert_eq!(names(host.path()), ["v", "v.deleting", "v.removed"]);
    }
}
