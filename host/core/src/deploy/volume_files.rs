//! The files of network volumes, as callers of the management API see them: [`FilePath`] names one,
//! and [`VolumeFiles`] reads, writes, lists and removes them. Handlers see the same files.

use std::fmt;
use std::io;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

use crate::deploy::volume::Volume;
use crate::limits::{
    VOLUME_FILE_NAME_BYTES_MAX, VOLUME_LEVELS_MAX, VOLUME_PATH_BYTES_MAX, VOLUME_TRANSFERS_MAX,
};
use crate::sharing::disk_space::Shortage;
use crate::time::Timestamp;

/// The path of a file or directory below the root of a volume, such as `models/small.bin`. No path
/// leads out of its volume: it has no `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePath(String);

/// The error for a text that is no such path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a path below the volume's root such as `models/small.bin`: names of up to \
     {VOLUME_FILE_NAME_BYTES_MAX} bytes divided by single `/`, none of them `.` or `..` or with a NUL, of \
     {VOLUME_LEVELS_MAX} levels and {VOLUME_PATH_BYTES_MAX} bytes at most"
)]
pub struct InvalidFilePath;

impl FilePath {
    /// Parses a path.
    ///
    /// # Errors
    /// [`InvalidFilePath`] says what is allowed.
    pub fn parse(text: &str) -> Result<Self, InvalidFilePath> {
        let is_name = |name: &str| {
            !matches!(name, "" | "." | "..")
                && name.len() <= VOLUME_FILE_NAME_BYTES_MAX
                && !name.contains('\0')
        };
        let levels = text.split('/').count();
        let is_path = text.len() <= VOLUME_PATH_BYTES_MAX && levels <= VOLUME_LEVELS_MAX;
        match is_path && text.split('/').all(is_name) {
            true => Ok(Self(text.to_owned())),
            false => Err(InvalidFilePath),
        }
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The directories that contain it, the outermost first.
    pub fn parents(&self) -> impl Iterator<Item = &str> {
        let ends = self.0.match_indices('/').map(|(end, _)| end);
        ends.filter_map(|end| self.0.get(..end))
    }

    /// Its last name.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The type of an entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A link, a device or the like, which the operator has created. It can only be removed.
    Other,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// Its name in its directory.
    pub name: String,
    /// Its type.
    pub kind: FileKind,
    /// The size of a file, in bytes; 0 for anything else.
    pub bytes: u64,
    /// When its content was changed last.
    pub modified_at: Timestamp,
}

/// A file that is being read.
pub struct OpenFile {
    /// Its size when it was opened: as many bytes are read.
    pub bytes: u64,
    /// When its content was changed last.
    pub modified_at: Timestamp,
    /// Reads its content.
    pub content: Box<dyn FileContent>,
}

/// The content of a file that is open for reading.
pub trait FileContent: Send {
    /// Reads these bytes of the file, piece by piece. An error if the file becomes shorter
    /// meanwhile.
    fn read(self: Box<Self>, bytes: Range<u64>) -> BoxStream<'static, io::Result<Bytes>>;
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenFile").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// A file that is being written under a temporary name. Dropping it removes it, unless it was
/// [finished](Self::finish).
#[async_trait]
pub trait NewFile: Send + fmt::Debug {
    /// Appends bytes.
    ///
    /// # Errors
    /// [`VolumeFileError`]; then the file can only be dropped.
    async fn write(&mut self, piece: Bytes) -> Result<(), VolumeFileError>;

    /// Gives the file its name, and creates missing directories of its path. A file that has the
    /// name is replaced in one step: readers see the old content or the new. Everything is on
    /// stable storage then.
    ///
    /// # Errors
    /// [`VolumeFileError`]; then a file of this name is unchanged.
    async fn finish(self: Box<Self>) -> Result<(), VolumeFileError>;
}

/// Reads and changes the files of network volumes. Implemented by the sandbox, within the same
/// limits and by the same operations as for handlers.
#[async_trait]
pub trait VolumeFiles: Send + Sync + fmt::Debug {
    /// The entries of a directory (`None`: the root) by name, from the one after `after`,
    /// `count_max` at most.
    ///
    /// # Errors
    /// [`VolumeFileError`].
    async fn list_files(
        &self,
        volume: &Volume,
        directory: Option<&FilePath>,
        after: Option<&str>,
        count_max: usize,
    ) -> Result<Vec<FileEntry>, VolumeFileError>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// [`VolumeFileError`].
    async fn open_file(
        &self,
        volume: &Volume,
        path: &FilePath,
    ) -> Result<OpenFile, VolumeFileError>;

    /// Begins to write a file. `bytes` is its size, if it is known: a file without room is refused
    /// at once.
    ///
    /// # Errors
    /// [`VolumeFileError`].
    async fn create_file(
        &self,
        volume: &Volume,
        path: &FilePath,
        bytes: Option<u64>,
    ) -> Result<Box<dyn NewFile>, VolumeFileError>;

    /// Creates a directory, and missing directories of its path, on stable storage. A directory
    /// that exists stays as it is.
    ///
    /// # Errors
    /// [`VolumeFileError`]; directories above it may have been created then.
    async fn create_directory(
        &self,
        volume: &Volume,
        path: &FilePath,
    ) -> Result<(), VolumeFileError>;

    /// Removes a file or an empty directory; with `recursive` also the content of a directory,
    /// entry by entry.
    ///
    /// # Errors
    /// [`VolumeFileError`]; a part of the content may be removed then.
    async fn remove_file(
        &self,
        volume: &Volume,
        path: &FilePath,
        recursive: bool,
    ) -> Result<(), VolumeFileError>;
}

/// Why an operation on a file of a volume was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum VolumeFileError {
    /// There is no such file or directory.
    #[error("the volume has no file or directory `{0}`")]
    NotFound(String),
    /// The volume is being deleted.
    #[error("network volume `{0}` not found")]
    VolumeDeleted(String),
    /// A directory has this path.
    #[error("`{0}` is a directory")]
    IsDirectory(String),
    /// A file has this path, or the path of a directory above it.
    #[error("`{0}` is not a directory, or has a part that is none")]
    NotDirectory(String),
    /// The directory has content.
    #[error("the directory `{0}` is not empty; `recursive=true` removes its content too")]
    NotEmpty(String),
    /// Neither a file nor a directory.
    #[error("`{0}` is neither a file nor a directory; links are not followed")]
    Special(String),
    /// The volume has no room.
    #[error(
        "the volume has no room: its files take {used} of {max} bytes, each with its size rounded up to 4 KiB and \
         16 KiB more; delete files, or make the volume larger"
    )]
    VolumeFull {
        /// Bytes that are in use.
        used: u64,
        /// Bytes that the volume may have.
        max: u64,
    },
    /// The disk of the host has no room.
    #[error("{0}; files cannot grow until there is room")]
    NoSpace(Shortage),
    /// The files of the owner would exceed its share of the disk.
    #[error(
        "the file would exceed the owner's share of the host's disk, of which the owner's data takes {held_mib} MiB; \
         delete handlers or files that are not needed any more"
    )]
    OwnerDiskFull {
        /// MiB that the owner's data takes.
        held_mib: u64,
    },
    /// Too many files of the volume are being read or written, or too many files are open.
    #[error(
        "at most {VOLUME_TRANSFERS_MAX} files of a volume can be read or written at one time, and the files that \
         handlers have open count too; try again shortly"
    )]
    Busy,
    /// The disk.
    #[error("the file cannot be read or written: {0}")]
    Io(io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_in_their_volume() {
        let levels = vec!["d"; VOLUME_LEVELS_MAX].join("/");
        let name = "n".repeat(VOLUME_FILE_NAME_BYTES_MAX);
        for fine in ["a", "a/b.c", "..a/.b", "ä/ö", "a b\n", &levels, &name] {
            assert_eq!(FilePath::parse(fine).unwrap().as_str(), fine);
        }
        let (deep, long) = (format!("{levels}/d"), format!("{name}n"));
        let longest = vec![name.as_str(); 17].join("/");
        for wrong in [
            "", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/..", "./a", "a\0", &deep,
            &long, &longest,
        ] {
            assert_eq!(FilePath::parse(wrong), Err(InvalidFilePath), "{wrong}");
        }
    }

    #[test]
    fn parents_are_listed_from_the_outermost() {
        let path = FilePath::parse("a/b/c").unwrap();
        assert_eq!(path.parents().collect::<Vec<_>>(), ["a", "a/b"]);
        assert_eq!(path.name(), "c");
        assert_eq!(FilePath::parse("c").unwrap().parents().count(), 0);
    }
}
