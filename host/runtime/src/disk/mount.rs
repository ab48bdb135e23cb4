//! One directory of the host that handlers see: a volume, or the scratch space of one attempt.
//!
//! A [`Mount`] is known from its first use until its removal, so that its files are counted once.
//! Its directory is open while an [`OpenMount`] exists, which each use has: jobs with the mount,
//! their open files and locks, and calls for it. All uses share one descriptor.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use gristmill_core::limits::VOLUME_TRANSFERS_MAX;
use gristmill_core::sharing::disk_share::DiskAccount;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Semaphore};
use tracing::warn;

use super::locks::{self, Locks};
use super::marks::remove_temporary;
use super::path::DEPTH_MAX;
use super::space::{Space, charge};
use crate::files::create_private_dir;

/// Deepest level of directories that are counted: an operator may have created deeper ones than
/// handlers can.
const COUNTED_DEPTH_MAX: usize = 4 * DEPTH_MAX;

/// A directory with its space. Its users hold it, and a directory that must be wiped is wiped after
/// the last one.
#[derive(Debug)]
pub(crate) struct Mount {
    path: PathBuf,
    /// The directory itself, while it is open.
    root: parking_lot::Mutex<Weak<File>>,
    pub(crate) space: Space,
    /// Held by the one operation that changes the mount, so that nothing else changes meanwhile.
    pub(crate) change: Arc<Mutex<()>>,
    /// The directories by which instances lock files.
    pub(super) locks: Locks,
    /// Permits for files that are read or written for callers outside of handlers.
    pub(super) transfers: Arc<Semaphore>,
    is_volume: bool,
    /// The directory that is removed with the mount.
    wiped: OnceLock<PathBuf>,
}

/// A mount whose directory is open, for one use.
#[derive(Debug, Clone)]
pub(crate) struct OpenMount {
    mount: Arc<Mount>,
    /// The directory itself.
    pub(super) root: Arc<File>,
}

impl Deref for OpenMount {
    type Target = Mount;

    fn deref(&self) -> &Mount {
        &self.mount
    }
}

impl OpenMount {
    fn new(root: File, path: PathBuf, space: Space, is_volume: bool) -> Self {
        let root = Arc::new(root);
        let mount = Mount {
            path,
            root: parking_lot::Mutex::new(Arc::downgrade(&root)),
            space,
            change: Arc::default(),
            locks: Locks::default(),
            transfers: Arc::new(Semaphore::new(VOLUME_TRANSFERS_MAX)),
            is_volume,
            wiped: OnceLock::new(),
        };
        Self { mount: Arc::new(mount), root }
    }

    /// The mount, which does not keep its directory open.
    pub(super) fn mount(&self) -> &Arc<Mount> {
        &self.mount
    }
}

impl Mount {
    /// Opens a volume's directory, and creates it if it is missing. Counts its files in the account
    /// of the volume's owner, which reads the metadata of each file, and removes the locks and
    /// incomplete files that an earlier process left behind. Blocks on the disk.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn volume(
        path: &Path,
        bytes_max: u64,
        account: DiskAccount,
    ) -> io::Result<OpenMount> {
        create_private_dir(path)?;
        let root = File::open(path)?;
        let leftovers = if locks::is_alone(&root) { Found::Remove } else { Found::Keep };
        let used = count(root.as_fd().try_clone_to_owned()?, 0, leftovers)?;
        locks::show_use(&root);
        let space = Space::new(used, bytes_max, account);
        Ok(OpenMount::new(root, path.to_owned(), space, true))
    }

    /// Creates an empty directory in an existing one; it is wiped with the mount. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// Those of the file system; one is that the directory exists.
    pub(crate) fn scratch(
        path: PathBuf,
        bytes_max: u64,
        account: DiskAccount,
    ) -> io::Result<OpenMount> {
        rustix::fs::mkdir(&path, Mode::RWXU)?;
        let (root, space) = (File::open(&path)?, Space::new(0, bytes_max, account));
        let mount = OpenMount::new(root, path.clone(), space, false);
        mount.wipe_at_end(path);
        Ok(mount)
    }

    /// One more use of the mount, if its directory is open.
    pub(super) fn if_open(self: &Arc<Self>) -> Option<OpenMount> {
        let root = self.root.lock().upgrade()?;
        Some(OpenMount { mount: self.clone(), root })
    }

    /// One more use of a volume. Opens its directory if that is closed, and never creates it: then
    /// the volume was removed. Blocks on the disk.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn open(self: &Arc<Self>) -> io::Result<OpenMount> {
        if let Some(open) = self.if_open() {
            return Ok(open);
        }
        let opened = Arc::new(File::open(&self.path)?);
        locks::show_use(&opened);
        let mut known = self.root.lock();
        let root = known.upgrade().unwrap_or_else(|| {
            *known = Arc::downgrade(&opened);
            opened.clone()
        });
        Ok(OpenMount { mount: self.clone(), root })
    }

    /// Whether it outlasts the instances that use it.
    pub(super) fn is_volume(&self) -> bool {
        self.is_volume
    }

    /// Removes the mount's directory, `path`, after its last use.
    pub(crate) fn wipe_at_end(&self, path: PathBuf) {
        // Only the first counts; nothing is wiped twice.
        let _ = self.wiped.set(path);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let Some(path) = self.wiped.take() else { return };
        // Without a runtime the host is ending: its next start wipes the rest.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn_blocking(move || wipe(&path));
        }
    }
}

/// Removes a directory with its content. The next start removes the rest if an entry cannot be
/// removed now.
pub(crate) fn wipe(path: &Path) {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            warn!(%error, "cannot remove {}: {error}", path.display());
        }
        Ok(()) | Err(_) => {}
    }
}

/// The bytes that the files of a volume count; none if the volume has no directory yet. Reads the
/// metadata of each file, and blocks on the disk.
///
/// # Errors
/// Those of the file system.
pub(crate) fn volume_bytes(path: &Path) -> io::Result<u64> {
    match File::open(path) {
        Ok(root) => count(root.into(), 0, Found::Keep),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// Removes what carries the mark of things that end with their process. Returns whether it did.
fn remove_left(at: BorrowedFd<'_>, name: &CStr, stat: &Stat, depth: usize) -> bool {
    locks::remove_left(at, name, stat) || (depth == 0 && remove_temporary(at, name, stat))
}

/// What a count does with locks and incomplete files that carry the mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Keep,
    Remove,
}

/// The bytes that the content of a directory counts.
fn count(directory: OwnedFd, depth: usize, leftovers: Found) -> io::Result<u64> {
    if depth > COUNTED_DEPTH_MAX {
        let sentence = format!("directories lie deeper than {COUNTED_DEPTH_MAX} levels");
        return Err(io::Error::other(sentence));
    }
    let mut sum = 0_u64;
    let mut entries = Dir::new(directory)?;
    while let Some(entry) = entries.read() {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let stat = match statat(entries.fd()?, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // Removed meanwhile, by a person or program on the host.
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(error.into()),
        };
        if leftovers == Found::Remove && remove_left(entries.fd()?, name, &stat, depth) {
            continue;
        }
        sum = sum.saturating_add(charge(&stat));
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let below = openat(entries.fd()?, name, flags, Mode::empty())?;
            sum = sum.saturating_add(count(below, depth + 1, leftovers)?);
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::space::{NODE_BYTES, file_charge};
    use super::*;

    #[test]
    fn all_that_is_in_a_volume_is_counted_and_links_are_not_followed() {
        let host = tempfile::tempdir().unwrap();
        let path = host.path().join("volumes/v");
        let volume = Mount::volume(&path, 1 << 30, DiskAccount::default()).unwrap();
        assert_eq!(volume.space.used(), 0, "nothing but its own directory");
        fs::create_dir_all(path.join("a/b")).unwrap();
        fs::write(path.join("a/b/file"), [0; 5_000]).unwrap();
        fs::write(path.join("empty"), []).unwrap();
        std::os::unix::fs::symlink("/", path.join("link")).unwrap();
        let again = Mount::volume(&path, 1 << 30, DiskAccount::default()).unwrap();
        assert_eq!(again.space.used(), 4 * NODE_BYTES + file_charge(5_000));
    }

    #[test]
    fn a_tree_without_end_is_not_counted() {
        let host = tempfile::tempdir().unwrap();
        let levels = "d/".repeat(COUNTED_DEPTH_MAX + 2);
        fs::create_dir_all(host.path().join(levels)).unwrap();
        let error = Mount::volume(host.path(), 1 << 30, DiskAccount::default()).unwrap_err();
        assert_eq!(error.to_string(), "directories lie deeper than 256 levels");
    }

    #[tokio::test]
    async fn scratch_is_wiped_after_its_last_use() {
        let host = tempfile::tempdir().unwrap();
        let path = host.path().join("s");
        let scratch =
            Arc::new(Mount::scratch(path.clone(), 1 << 30, DiskAccount::default()).unwrap());
        fs::create_dir_all(path.join("a/b")).unwrap();
        fs::write(path.join("a/b/file"), "grain").unwrap();
        let user = scratch.clone();
        drop(scratch);
        assert!(path.exists());
        drop(user);
        let wiped = async {
            while path.exists() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), wiped).await.unwrap();
    }
}
