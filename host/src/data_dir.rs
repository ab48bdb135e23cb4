//! Checks which other users can access the data directory. The directory holds keys, and machine
//! code that the host runs, so only its owner may access it.
//!
//! **Refused** are a directory that belongs to another user (except root, who may do everything
//! anyway), a directory that every user of the machine can read or write, and a directory that its
//! group can. **Only warned about** is a group that a volume is shared with on purpose: the
//! directory has the set-group-ID bit, and its group is one of this process. Kubernetes prepares a
//! volume in this way for a pod with an `fsGroup` at every mount, so otherwise the host could not
//! start a second time.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use gristmill_commands::output;
use gristmill_core::backup::UNFINISHED;
use rustix::fs::{Access, access};

const SET_GROUP_ID: u32 = 0o2000;

/// A data directory that a restore or a repair fills. No host starts on it before
/// [`complete`](Self::complete), not even after a crash. If that is not reached, its content is
/// removed, and a new directory too: the corrected command finds the place as this one did.
pub(crate) struct Unfinished<'a> {
    dir: &'a Path,
    is_new: bool,
    is_complete: bool,
}

impl<'a> Unfinished<'a> {
    /// Takes an empty directory, or creates one, and marks it, durably.
    ///
    /// # Errors
    /// When other users can access the directory, it is not empty, or it cannot be written.
    pub(crate) fn begin(dir: &'a Path) -> anyhow::Result<Self> {
        let cannot_make = || format!("cannot create {}", dir.display());
        let is_new = !dir.try_exists().with_context(cannot_make)?;
        make(dir).with_context(cannot_make)?;
        if let Some(warning) = check(dir)? {
            output::note(&warning);
        }
        if fs::read_dir(dir).with_context(cannot_make)?.next().is_some() {
            bail!(
                "{} is not empty: name an empty directory, or one that does not exist yet",
                dir.display()
            );
        }
        let begun = Self { dir, is_new, is_complete: false };
        let mark = File::create(dir.join(UNFINISHED)).and_then(|mark| mark.sync_all());
        mark.and_then(|()| sync(dir)).with_context(cannot_make)?;
        Ok(begun)
    }

    /// Removes the mark, after all names in the directory are on stable storage.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn complete(mut self) -> io::Result<()> {
        sync(self.dir)?;
        // From now on a host may use the directory.
        self.is_complete = true;
        fs::remove_file(self.dir.join(UNFINISHED))?;
        sync(self.dir)
    }

    fn remove(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.dir)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(entry.path())?,
                false if entry.file_name() == UNFINISHED => {}
                false => fs::remove_file(entry.path())?,
            }
        }
        // Last: without the mark, a host would start beside the files of a damaged backup.
        let unmarked = fs::remove_file(self.dir.join(UNFINISHED));
        // A directory that could not be marked is empty, too.
        if self.is_new { fs::remove_dir(self.dir) } else { unmarked }
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.is_complete {
            // With the mark, what stays is not used.
            let _ = self.remove();
        }
    }
}

/// A warning about a key file that other users of the machine can read. It is no refusal:
/// Kubernetes mounts a secret with such modes by default, in a directory that only the pod reaches.
pub(crate) fn check_key_file(file: &Path) -> Option<String> {
    // A file that cannot be read is reported when the key is read.
    let mode = fs::metadata(file).ok()?.mode() & 0o777;
    (mode & 0o044 != 0).then(|| {
        format!(
            "other users of this machine can read {} (mode {mode:04o}): run `chmod 0600 {0}`",
            file.display()
        )
    })
}

/// Puts the names in a directory on stable storage.
///
/// # Errors
/// Errors of the file system.
pub(crate) fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Owner, group and mode of a directory.
#[derive(Debug, Clone, Copy)]
struct Found {
    user: u32,
    group: u32,
    mode: u32,
}

/// The user and the groups of this process.
#[derive(Debug)]
struct Process {
    user: u32,
    groups: Vec<u32>,
}

/// The decision about a directory.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Private,
    /// Usable, with a warning.
    Shared(String),
    /// The fault, and the command that fixes it, without its last word, the directory.
    Refused {
        fault: String,
        command: String,
    },
}

/// Refuses a path that is no directory, for commands that read the data directory of a host.
///
/// # Errors
/// A sentence with the path, and what it should be.
pub(crate) fn check_exists(dir: &Path) -> anyhow::Result<()> {
    match fs::metadata(dir) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => bail!(not_a_directory(dir)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("there is no directory {}: --data-dir names that of a host", dir.display())
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", dir.display())),
    }
}

fn not_a_directory(dir: &Path) -> String {
    format!("{} is not a directory: --data-dir names the directory of a host's data", dir.display())
}

/// Refuses a data directory that other users can access; a missing one is fine. Returns the warning
/// for a directory that is used nevertheless.
///
/// # Errors
/// A sentence with the mode or the owner, and the command that fixes it.
pub(crate) fn check(dir: &Path) -> anyhow::Result<Option<String>> {
    let found = match fs::metadata(dir) {
        Ok(metadata) if !metadata.is_dir() => bail!(not_a_directory(dir)),
        Ok(metadata) => Found::from(&metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => bail!(not_permitted(dir)),
        Err(error) => {
            return Err(error)
                .with_context(|| format!("cannot read the metadata of {}", dir.display()));
        }
    };
    let is_usable = || access(dir, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).is_ok();
    match found.judge(&Process::this()?) {
        // It belongs to root.
        Verdict::Private if !is_usable() => bail!(not_permitted(dir)),
        Verdict::Private => Ok(None),
        Verdict::Shared(with) => Ok(Some(format!("the data directory {} {with}", dir.display()))),
        Verdict::Refused { fault, command } => bail!(
            "the data directory {dir} {fault}; it holds keys and machine code, and must be the \
             host's alone: run `{command} {dir}`, or name a directory that does not exist yet, such \
             as {dir}/gristmill, which the host makes with mode 0700",
            dir = dir.display()
        ),
    }
}

/// The sentence for a data directory that this process may not create or use.
pub(crate) fn not_permitted(dir: &Path) -> String {
    let (dir, user) = (dir.display(), rustix::process::geteuid().as_raw());
    format!(
        "user {user}, who runs this, may not use {dir} as the data directory: name another one with \
         --data-dir, or let root run `install -d -m 0700 -o {user} {dir}`"
    )
}

/// Creates a directory that only its owner can access, with its parents, if there is none.
pub(crate) fn make(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

impl From<&Metadata> for Found {
    fn from(metadata: &Metadata) -> Self {
        let mode = metadata.mode() & 0o7777;
        Self { user: metadata.uid(), group: metadata.gid(), mode }
    }
}

impl Process {
    fn this() -> io::Result<Self> {
        let mut groups: Vec<_> =
            rustix::process::getgroups()?.into_iter().map(|group| group.as_raw()).collect();
        groups.push(rustix::process::getegid().as_raw());
        Ok(Self { user: rustix::process::geteuid().as_raw(), groups })
    }
}

impl Found {
    fn judge(self, process: &Process) -> Verdict {
        let Self { user, group, mode } = self;
        if user != process.user && user != 0 {
            return Verdict::Refused {
                fault: format!(
                    "belongs to user {user}, not to user {}, who runs this",
                    process.user
                ),
                command: format!("chown -R {}", process.user),
            };
        }
        let (who, rights) = match (mode >> 3 & 0o007, mode & 0o007) {
            (0, 0) => return Verdict::Private,
            (rights, 0) => (format!("group {group}"), rights),
            (_, rights) => ("every user of this machine".to_owned(), rights),
        };
        let may = if rights & 0o002 != 0 { "write" } else { "read" };
        let is_volume = mode & SET_GROUP_ID != 0 && process.groups.contains(&group);
        if mode & 0o007 == 0 && is_volume {
            return Verdict::Shared(format!(
                "has mode {mode:04o}: {who} can {may} what it holds, keys and machine code too"
            ));
        }
        Verdict::Refused {
            fault: format!("has mode {mode:04o}, with which {who} can {may} it"),
            command: "chmod 0700".to_owned(),
        }
    }
}

#[cfg(test)]
#[path = "data_dir_tests.rs"]
mod tests;
