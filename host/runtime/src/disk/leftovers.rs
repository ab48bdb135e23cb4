//! Directories that earlier processes left behind: scratch space of jobs that a crash ended, and
//! volumes that were deleted while jobs used them.
//!
//! **Promises.** [`Leftovers::find`] only reads names, so a host listens at once however many files
//! there are. [`Leftovers::wipe`] removes them on a thread of its own. A wipe that ends early, by a
//! stop or by a crash, leaves the rest to the next start.
//!
//! **Costs.** One open descriptor for each level of the tree. The thread has the lowest priority
//! and works at most half of the time, while the disk has room: removals share the file system's
//! journal with the commits of the store.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use tracing::{info, warn};

/// Time that the thread works before it rests for as long.
const WORK: Duration = Duration::from_millis(10);

/// The lowest priority.
const NICE: i32 = 19;

/// Directories that are not used any more.
#[derive(Debug, Default)]
pub(super) struct Leftovers(Vec<PathBuf>);

/// A wipe of what earlier processes left behind. Dropping it ends the wipe.
#[derive(Debug)]
#[must_use = "dropping it ends the wipe"]
pub struct Wiping {
    is_stopped: Arc<AtomicBool>,
}

impl Drop for Wiping {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }
}

impl Leftovers {
    /// Adds the entries of `directory`, if there is one, with these names. Blocks on the disk.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn find(
        &mut self,
        directory: &Path,
        is_left: impl Fn(&[u8]) -> bool,
    ) -> io::Result<()> {
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if is_left(entry.file_name().as_bytes()) {
                self.0.push(entry.path());
            }
        }
        Ok(())
    }

    /// Adds these paths.
    pub(super) fn add(&mut self, paths: Vec<PathBuf>) {
        self.0.extend(paths);
    }

    /// Removes them on a thread of its own.
    ///
    /// # Errors
    /// When no thread can be started; the next start wipes them then.
    pub(super) fn wipe(self, disk_space: Arc<DiskSpaceGauge>) -> io::Result<Wiping> {
        let is_stopped = Arc::new(AtomicBool::new(false));
        if !self.0.is_empty() {
            let is_stopped = is_stopped.clone();
            let run = move || {
                // Without it the wipe runs at the usual priority.
                let _ = rustix::process::nice(NICE);
                let mut removal =
                    Removal { disk_space, is_stopped, files: 0, began: Instant::now() };
                removal.run(&self.0);
            };
            thread::Builder::new().name("wipe".to_owned()).spawn(run)?;
        }
        Ok(Wiping { is_stopped })
    }
}

/// The work of the thread.
struct Removal {
    disk_space: Arc<DiskSpaceGauge>,
    is_stopped: Arc<AtomicBool>,
    /// Files and directories that were removed.
    files: u64,
    /// When the thread rested last.
    began: Instant,
}

/// A directory whose content is being removed.
struct Level {
    name: CString,
    entries: Dir,
}

impl Removal {
    fn run(&mut self, paths: &[PathBuf]) {
        let began = Instant::now();
        info!("removing {} directories that earlier processes left behind", paths.len());
        for path in paths {
            if let Err(error) = self.remove_tree(path) {
                warn!(%error, "cannot remove all of {}: {error}", path.display());
            }
            if self.is_stopped.load(Ordering::Relaxed) {
                return;
            }
        }
        info!(
            files = self.files,
            "removed directories of earlier processes: {} files in {:?}",
            self.files,
            began.elapsed()
        );
    }

    /// Removes a file, a link or a directory with its content. An entry that cannot be removed is
    /// skipped.
    ///
    /// # Errors
    /// Those of the file system, the last one.
    fn remove_tree(&mut self, path: &Path) -> io::Result<()> {
        let mut levels: Vec<Level> = Vec::new();
        let mut failure = None;
        let path = CString::new(path.as_os_str().as_bytes())?;
        let mut next = Some(path);
        loop {
            if !self.may_go_on() {
                return Ok(());
            }
            let removed = match next.take() {
                Some(name) => self.remove(&mut levels, name),
                None => match levels.last_mut().map(|level| level.entries.read()) {
                    Some(Some(Ok(entry))) => {
                        next = not_itself(entry.file_name());
                        Ok(())
                    }
                    Some(Some(Err(error))) => {
                        // The remaining entries keep this directory from being removed.
                        failure = Some(error);
                        self.leave(&mut levels)
                    }
                    Some(None) => self.leave(&mut levels),
                    None => break,
                },
            };
            failure = removed.err().or(failure);
        }
        failure.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Removes an entry of the lowest level, or descends into it.
    fn remove(&mut self, levels: &mut Vec<Level>, name: CString) -> Result<(), Errno> {
        let directory = match levels.last() {
            Some(level) => level.entries.fd()?,
            None => CWD.as_fd(),
        };
        match unlinkat(directory, &name, AtFlags::empty()) {
            Ok(()) => self.files += 1,
            Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let entries = Dir::new(openat(directory, &name, flags, Mode::empty())?)?;
                levels.push(Level { name, entries });
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Removes the lowest level, which is empty, and ascends.
    fn leave(&mut self, levels: &mut Vec<Level>) -> Result<(), Errno> {
        let Some(Level { name, entries }) = levels.pop() else { return Ok(()) };
        drop(entries);
        let directory = match levels.last() {
            Some(level) => level.entries.fd()?,
            None => CWD.as_fd(),
        };
        match unlinkat(directory, &name, AtFlags::REMOVEDIR) {
            Ok(()) => self.files += 1,
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Pauses when it is time to, unless the disk has no room. False when the wipe must end.
    fn may_go_on(&mut self) -> bool {
        let worked = self.began.elapsed();
        if worked >= WORK {
            if self.disk_space.admits_work() {
                thread::sleep(worked.min(10 * WORK));
            }
            self.began = Instant::now();
        }
        !self.is_stopped.load(Ordering::Relaxed)
    }
}

/// The name of an entry, unless it is the directory itself or the one above.
fn not_itself(name: &CStr) -> Option<CString> {
    (!matches!(name.to_bytes(), b"." | b"..")).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn removal() -> Removal {
        Removal {
            disk_space: Arc::default(),
            is_stopped: Arc::default(),
            files: 0,
            began: Instant::now(),
        }
    }

    #[test]
    fn a_tree_is_removed_with_long_paths_and_links_are_not_followed() {
        let host = tempfile::tempdir().unwrap();
        let (kept, left) = (host.path().join("kept"), host.path().join("left"));
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "rye").unwrap();
        fs::create_dir(&left).unwrap();
        symlink(&kept, left.join("link")).unwrap();
        fs::write(left.join("file"), "rye").unwrap();
        // 100 levels of 200 bytes are longer than any path that the kernel takes.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut below = openat(CWD, &left, flags, Mode::empty()).unwrap();
        let name = "d".repeat(200);
        for _ in 0..100 {
            rustix::fs::mkdirat(&below, &name, Mode::RWXU).unwrap();
            below = openat(&below, &name, flags, Mode::empty()).unwrap();
        }
        let mut removal = removal();
        removal.remove_tree(&left).unwrap();
        assert!(!left.exists() && kept.join("file").exists());
        assert_eq!(removal.files, 103);
        // A volume may be a link of the operator: the link is removed, but its target is not.
        symlink(&kept, &left).unwrap();
        removal.remove_tree(&left).unwrap();
        removal.remove_tree(&left).unwrap();
        assert!(!left.is_symlink() && kept.join("file").exists());
    }

    #[test]
    fn an_entry_that_cannot_be_removed_keeps_no_other() {
        if rustix::process::geteuid().is_root() {
            // Root may remove it.
            return;
        }
        let host = tempfile::tempdir().unwrap();
        for directory in ["a", "locked", "z"] {
            fs::create_dir_all(host.path().join("left").join(directory)).unwrap();
            fs::write(host.path().join("left").join(directory).join("file"), "rye").unwrap();
        }
        let locked = host.path().join("left/locked");
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).unwrap();
        assert!(removal().remove_tree(&host.path().join("left")).is_err());
        assert_eq!(fs::read_dir(host.path().join("left")).unwrap().count(), 1);
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o700)).unwrap();
        removal().remove_tree(&host.path().join("left")).unwrap();
        assert!(!host.path().join("left").exists());
    }

    #[test]
    fn a_wipe_that_was_stopped_is_completed_by_the_next() {
        let host = tempfile::tempdir().unwrap();
        let left = host.path().join("left");
        fs::create_dir(&left).unwrap();
        for number in 0..100 {
            fs::write(left.join(number.to_string()), []).unwrap();
        }
        let mut stopped = removal();
        stopped.is_stopped.store(true, Ordering::Relaxed);
        stopped.run(std::slice::from_ref(&left));
        assert_eq!(fs::read_dir(&left).unwrap().count(), 100);
        removal().run(std::slice::from_ref(&left));
        assert!(!left.exists());
    }
}
