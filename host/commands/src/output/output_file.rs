//! Files that appear once they are complete.
//!
//! **Promises.** Until a file is complete, an older file with its name stays as it is. Two writers
//! of one name do not see each other's bytes; the last one to end is kept. A link stays a link: the
//! file that it names is replaced. Devices, pipes and directories are never replaced.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// The permissions that a file can have without the rights of another user.
const MODE_BITS: u32 = 0o777;

/// A file that is being written. Dropped, it is removed.
#[derive(Debug)]
pub struct OutputFile {
    file: NamedTempFile,
    path: PathBuf,
}

impl OutputFile {
    /// Begins a file that will have this path, and these permissions less what the user's mask
    /// takes away.
    ///
    /// # Errors
    /// When something other than a file has the path, and errors of the file system.
    pub fn begin(path: &Path, mode: u32) -> io::Result<Self> {
        if is_open_file(path) {
            return Err(io::Error::other("it is an open file of a process, not a name for a file"));
        }
        let path = behind_link(path)?;
        match fs::metadata(&path) {
            Ok(older) if older.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(older) if !older.is_file() => {
                return Err(io::Error::other("it is a device or a pipe, not a file"));
            }
            Ok(_) | Err(_) => {}
        }
        // The bytes can only be moved to their name from the same file system.
        let file = tempfile::Builder::new()
            .prefix(".gristmill-")
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(parent(&path))
            .map_err(|error| of_directory(&error, parent(&path)))?;
        Ok(Self { file, path })
    }

    /// The same file, with the permissions of the older one that it will replace, if there is one.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn like_older(self) -> io::Result<Self> {
        if let Ok(older) = fs::metadata(&self.path) {
            let mode = older.permissions().mode() & MODE_BITS;
            self.file.as_file().set_permissions(Permissions::from_mode(mode))?;
        }
        Ok(self)
    }

    /// The file to write to.
    pub fn file(&mut self) -> &mut File {
        self.file.as_file_mut()
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// Errors of the file system; then there is no new file.
    pub fn complete(self) -> io::Result<()> {
        self.file.persist(&self.path).map_err(|failed| failed.error)?;
        Ok(())
    }

    /// The same for a file that must survive a loss of power once this returns.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn complete_durably(self) -> io::Result<()> {
        self.file.as_file().sync_all()?;
        let directory = File::open(parent(&self.path))?;
        self.complete()?;
        directory.sync_all()
    }
}

/// An error of a new file in a directory, without the name of the temporary file, which no user
/// knows.
fn of_directory(error: &io::Error, directory: &Path) -> io::Error {
    let kind = error.kind();
    let directory = directory.display();
    match kind {
        io::ErrorKind::NotFound => {
            io::Error::new(kind, format!("the directory {directory} does not exist"))
        }
        _ => io::Error::new(
            kind,
            format!("no file can be created in the directory {directory}: {kind}"),
        ),
    }
}

/// Links in a path that the system follows.
const LINKS_MAX: usize = 40;

/// Whether the path is that of an open file of a process, as `/dev/stdout` is. A new file in its
/// place would hide the bytes that others write to it.
pub(crate) fn is_open_file(path: &Path) -> bool {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(directory) = parent(&path).canonicalize() else { return false };
        if directory.starts_with("/proc") && directory.ends_with("fd") {
            return true;
        }
        let Ok(target) = fs::read_link(&path) else { return false };
        path = directory.join(target);
    }
    false
}

/// The path that a link leads to; any other path as it is.
fn behind_link(path: &Path) -> io::Result<PathBuf> {
    if !path.is_symlink() {
        return Ok(path.to_owned());
    }
    fs::canonicalize(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            io::Error::new(error.kind(), "it is a link to a path that does not exist")
        }
        _ => error,
    })
}

fn parent(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or_else(|| Path::new("."))
}

#[cfg(test)]
#[path = "output_file_tests.rs"]
mod tests;
