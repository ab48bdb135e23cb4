//! The files of volumes for callers outside of handlers: the same operations on the same mounts as
//! those of handlers, each call with limits like one job.
//!
//! **Promises.** A new file has a temporary name in the root of its volume until it is complete and
//! on stable storage; then one rename replaces an older file. A transfer that ends early leaves
//! nothing: its file is removed at once, and after a crash before the next use of the volume, since
//! its mark shows it. **Bounds.**
//! [`VOLUME_TRANSFERS_MAX`](gristmill_core::limits::VOLUME_TRANSFERS_MAX) files of a volume are
//! read or written at one time, with [`PIECE_BYTES`] of each in memory. Each call counts its
//! volume, too, as an open file of the volume's owner, since it keeps the directory open. A removal
//! changes at most [`REMOVED_AT_ONCE`] entries before other operations on the volume have their
//! turn. **Costs.** A page of a list takes memory for its own entries only, and time for all
//! entries of its directory.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::stream::BoxStream;
use gristmill_core::deploy::volume::Volume;
use gristmill_core::deploy::volume_files::{
    FileContent, FileEntry, FileKind, FilePath, NewFile, OpenFile, VolumeFileError, VolumeFiles,
};
use gristmill_core::id::EndpointId;
use gristmill_core::time::Timestamp;
use rustix::fs::{AtFlags, Dir, FileType, Mode, Stat, fchmod, fstat, statat};
use rustix::io::Errno;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, DescriptorType, ErrorCode, OpenFlags,
};

use super::Disks;
use super::marks::{MARK, TEMPORARY_PREFIX, is_temporary};
use super::mount::OpenMount;
use super::node::{Node, OpenMode, code};
use super::space::{file_charge, size};

/// Bytes that one operation reads or writes.
const PIECE_BYTES: usize = 256 << 10;

/// Entries that one operation removes.
const REMOVED_AT_ONCE: usize = 256;

/// Numbers the temporary names of this process.
static UPLOADS: AtomicU64 = AtomicU64::new(0);

/// A volume, for one call.
struct Files {
    mount: OpenMount,
    root: Arc<Node>,
}

impl Disks {
    async fn of_volume(&self, volume: &Volume) -> Result<Files, VolumeFileError> {
        // In the limits of file operations the calls for a volume count as an endpoint.
        let part = EndpointId::new(volume.id.as_str()).map_err(io::Error::other);
        let io_limits = self.io_limits.job(&volume.owner, &part.map_err(VolumeFileError::Io)?);
        let slot = io_limits.open_file().map_err(|_| VolumeFileError::Busy)?;
        let mount = self.volume(volume).await.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => VolumeFileError::VolumeDeleted(volume.id.to_string()),
            _ => VolumeFileError::Io(error),
        })?;
        let root = Arc::new(Node::root(mount.clone(), io_limits, slot));
        Ok(Files { mount, root })
    }
}

#[async_trait]
impl VolumeFiles for Disks {
    async fn list_files(
        &self,
        volume: &Volume,
        directory: Option<&FilePath>,
        after: Option<&str>,
        count_max: usize,
    ) -> Result<Vec<FileEntry>, VolumeFileError> {
        let files = self.of_volume(volume).await?;
        let path = directory.map_or(".", FilePath::as_str).to_owned();
        let (listed, after) = (path.clone(), after.map(str::to_owned));
        let list = move |root: &Node| {
            let node = root.open(&listed, DIRECTORY)?;
            entries(Dir::new(node.directory()?).map_err(code)?, after.as_deref(), count_max)
        };
        files.root.look(list).await.map_err(|error| files.refused(error, &path))
    }

    async fn open_file(
        &self,
        volume: &Volume,
        path: &FilePath,
    ) -> Result<OpenFile, VolumeFileError> {
        let files = self.of_volume(volume).await?;
        let permit = files.transfer()?;
        let name = path.to_string();
        let open = move |root: &Node| {
            let mode = OpenMode { open: OpenFlags::empty(), flags: DescriptorFlags::READ };
            let node = root.open(&name, mode)?;
            let stat = fstat(node.file()?).map_err(code)?;
            Ok((node, stat))
        };
        let opened = files.root.change(open).await;
        let (node, stat) = opened.map_err(|error| files.refused(error, path.as_str()))?;
        let bytes = size(&stat);
        let content = Box::new(Reading { node: Arc::new(node), left: 0..bytes, _permit: permit });
        Ok(OpenFile { bytes, modified_at: modified_at(&stat), content })
    }

    async fn create_file(
        &self,
        volume: &Volume,
        path: &FilePath,
        bytes: Option<u64>,
    ) -> Result<Box<dyn NewFile>, VolumeFileError> {
        let files = self.of_volume(volume).await?;
        let permit = files.transfer()?;
        if !files.mount.space.has_room(file_charge(bytes.unwrap_or(0))) {
            return Err(files.no_room());
        }
        let number = UPLOADS.fetch_add(1, Ordering::Relaxed);
        let temporary = format!("{TEMPORARY_PREFIX}{}-{number}", std::process::id());
        let (name, target) = (temporary.clone(), path.to_string());
        let begin = move |root: &Node| begin(root, &name, &target);
        let begun = files.root.change(begin).await;
        let node = begun.map_err(|error| files.refused(error, path.as_str()))?;
        Ok(Box::new(Upload {
            files,
            node: Arc::new(node),
            temporary,
            path: path.clone(),
            offset: 0,
            piece: BytesMut::new(),
            _permit: permit,
        }))
    }

    async fn create_directory(
        &self,
        volume: &Volume,
        path: &FilePath,
    ) -> Result<(), VolumeFileError> {
        let files = self.of_volume(volume).await?;
        let target = path.clone();
        let create = move |root: &Node| {
            let directories = || target.parents().chain([target.as_str()]);
            create_missing(root, directories())?;
            sync(root, directories())
        };
        files.root.change(create).await.map_err(|error| files.refused(error, path.as_str()))
    }

    async fn remove_file(
        &self,
        volume: &Volume,
        path: &FilePath,
        recursive: bool,
    ) -> Result<(), VolumeFileError> {
        let files = self.of_volume(volume).await?;
        let mut is_begun = false;
        loop {
            let name = path.to_string();
            let remove = move |root: &Node| {
                let mut left = REMOVED_AT_ONCE;
                remove(root, &name, recursive, &mut left)
            };
            match files.root.change(remove).await {
                Ok(true) => return Ok(()),
                Ok(false) => is_begun = true,
                // A job has removed the rest meanwhile.
                Err(ErrorCode::NoEntry) if is_begun => return Ok(()),
                Err(error) => return Err(files.refused(error, path.as_str())),
            }
        }
    }
}

impl Files {
    fn transfer(&self) -> Result<OwnedSemaphorePermit, VolumeFileError> {
        let transfers = self.mount.transfers.clone();
        transfers.try_acquire_owned().map_err(|_| VolumeFileError::Busy)
    }

    /// The error of an operation on a path.
    fn refused(&self, error: ErrorCode, path: &str) -> VolumeFileError {
        let path = path.to_owned();
        match error {
            ErrorCode::NoEntry => VolumeFileError::NotFound(path),
            ErrorCode::IsDirectory => VolumeFileError::IsDirectory(path),
            ErrorCode::NotDirectory => VolumeFileError::NotDirectory(path),
            ErrorCode::NotEmpty => VolumeFileError::NotEmpty(path),
            ErrorCode::NotPermitted | ErrorCode::Loop => VolumeFileError::Special(path),
            ErrorCode::InsufficientSpace => self.no_room(),
            ErrorCode::Quota => VolumeFileError::Busy,
            other => VolumeFileError::Io(io::Error::other(format!("`{path}`: {other}"))),
        }
    }

    /// Why the volume takes no more bytes.
    fn no_room(&self) -> VolumeFileError {
        let account = self.mount.space.account();
        if !account.disk_space().admits_work() {
            return VolumeFileError::NoSpace(account.disk_space().shortage());
        }
        let (used, max) = self.mount.space.used_of();
        if !self.mount.space.disk_has_room() {
            return VolumeFileError::OwnerDiskFull { held_mib: account.bytes() >> 20 };
        }
        VolumeFileError::VolumeFull { used, max }
    }
}

/// How a directory is opened.
const DIRECTORY: OpenMode = OpenMode { open: OpenFlags::DIRECTORY, flags: DescriptorFlags::READ };

/// The first entries after a name, with their metadata.
fn entries(
    mut directory: Dir,
    after: Option<&str>,
    count_max: usize,
) -> Result<Vec<FileEntry>, ErrorCode> {
    let mut entries = Vec::new();
    let mut after = after.map(str::to_owned);
    loop {
        let wanted = count_max.saturating_sub(entries.len());
        let names = first_names(&mut directory, after.as_deref(), wanted)?;
        let is_last = names.len() < wanted;
        after = names.last().cloned();
        let at = directory.fd().map_err(code)?;
        for name in names {
            match statat(at, &*name, AtFlags::SYMLINK_NOFOLLOW) {
                // A transfer in progress is no file yet.
                Ok(stat) if is_temporary(name.as_bytes(), &stat) => {}
                Ok(stat) => entries.push(described(name, &stat)),
                Err(Errno::NOENT) => {}
                Err(error) => return Err(code(error)),
            }
        }
        // Entries that were left out have made room for further ones.
        if is_last || entries.len() >= count_max {
            return Ok(entries);
        }
        directory.rewind();
    }
}

/// The first names after a name, at most so many.
fn first_names(
    directory: &mut Dir,
    after: Option<&str>,
    count_max: usize,
) -> Result<BTreeSet<String>, ErrorCode> {
    let mut names = BTreeSet::new();
    while let Some(entry) = directory.read() {
        let entry = entry.map_err(code)?;
        // No call can name an entry whose name is not UTF-8; only the operator can create one.
        let Ok(name) = entry.file_name().to_str() else { continue };
        if matches!(name, "." | "..") || after.is_some_and(|after| name <= after) {
            continue;
        }
        let is_among = |last: &String| name < last.as_str();
        if names.len() < count_max || names.last().is_some_and(is_among) {
            names.insert(name.to_owned());
        }
        if names.len() > count_max {
            names.pop_last();
        }
    }
    Ok(names)
}

fn described(name: String, stat: &Stat) -> FileEntry {
    let (kind, bytes) = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => (FileKind::File, size(stat)),
        FileType::Directory => (FileKind::Directory, 0),
        _ => (FileKind::Other, 0),
    };
    FileEntry { name, kind, bytes, modified_at: modified_at(stat) }
}

/// Times before 1970 are shown as 1970.
fn modified_at(stat: &Stat) -> Timestamp {
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
    Timestamp::from_millis(
        seconds.saturating_mul(1_000).saturating_add(stat.st_mtime_nsec / 1_000_000),
    )
}

/// A file that is being sent to a caller.
struct Reading {
    node: Arc<Node>,
    left: Range<u64>,
    _permit: OwnedSemaphorePermit,
}

impl FileContent for Reading {
    fn read(self: Box<Self>, bytes: Range<u64>) -> BoxStream<'static, io::Result<Bytes>> {
        let reading = Self { left: bytes, ..*self };
        Box::pin(futures::stream::unfold(Some(reading), Self::next))
    }
}

impl Reading {
    /// The next piece, and the state after it: none at the end and after an error.
    async fn next(reading: Option<Self>) -> Option<(io::Result<Bytes>, Option<Self>)> {
        let mut reading = reading?;
        if reading.left.is_empty() {
            return None;
        }
        let offset = reading.left.start;
        let left = reading.left.end - offset;
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
        match reading.node.look(move |node| node.read(len, offset)).await {
            Ok(piece) if piece.is_empty() => {
                let error = "the file has become shorter while it was read";
                Some((Err(io::Error::other(error)), None))
            }
            Ok(piece) => {
                reading.left.start += piece.len() as u64;
                Some((Ok(piece.into()), Some(reading)))
            }
            Err(error) => Some((Err(io::Error::other(error)), None)),
        }
    }
}

/// Checks that a file may have this path, and creates it under its temporary name.
fn begin(root: &Node, temporary: &str, target: &str) -> Result<Node, ErrorCode> {
    match root.stat_at(target).map(|stat| stat.type_) {
        Ok(DescriptorType::RegularFile) | Err(ErrorCode::NoEntry) => {}
        Ok(DescriptorType::Directory) => return Err(ErrorCode::IsDirectory),
        Ok(_) => return Err(ErrorCode::NotPermitted),
        Err(error) => return Err(error),
    }
    let open = OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
    let node = root.open(temporary, OpenMode { open, flags: DescriptorFlags::WRITE })?;
    if let Err(error) = fchmod(node.file()?, Mode::RUSR | Mode::WUSR | MARK) {
        // Without the mark it would stay after a crash.
        root.unlink(temporary)?;
        return Err(code(error));
    }
    Ok(node)
}

/// Gives a complete file its name, in directories that are created if they are missing. The file is
/// on stable storage; its name is when this returns.
fn conclude(root: &Node, node: &Node, temporary: &str, path: &FilePath) -> Result<(), ErrorCode> {
    create_missing(root, path.parents())?;
    root.rename(temporary, root, path.as_str())?;
    // Under its own name the mark has no effect; without it the file is like any other.
    fchmod(node.file()?, Mode::RUSR | Mode::WUSR).map_err(code)?;
    sync(root, path.parents())
}

/// Creates those of these directories, the outermost first, that are missing.
fn create_missing<'a>(
    root: &Node,
    directories: impl Iterator<Item = &'a str>,
) -> Result<(), ErrorCode> {
    for directory in directories {
        match root.create_directory(directory) {
            Ok(()) | Err(ErrorCode::Exist) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Puts the entries of these directories, and of the root, on stable storage. An error if one of
/// them is no directory.
fn sync<'a>(root: &Node, directories: impl Iterator<Item = &'a str>) -> Result<(), ErrorCode> {
    for directory in directories {
        root.open(directory, DIRECTORY)?.sync()?;
    }
    root.sync()
}

/// Removes an entry, and the content of a directory before it. Returns whether all is removed: it
/// ends early after `left` entries.
fn remove(parent: &Node, name: &str, recursive: bool, left: &mut usize) -> Result<bool, ErrorCode> {
    match parent.unlink(name) {
        Err(ErrorCode::IsDirectory) => {}
        removed => {
            *left = left.saturating_sub(1);
            return removed.map(|()| true);
        }
    }
    match parent.remove_directory(name) {
        Err(ErrorCode::NotEmpty) if recursive => {}
        removed => {
            *left = left.saturating_sub(1);
            return removed.map(|()| true);
        }
    }
    let node = parent.open(name, DIRECTORY)?;
    let mut entries = Dir::new(node.directory()?).map_err(code)?;
    while let Some(entry) = entries.read() {
        let entry = entry.map_err(code)?;
        let name = entry.file_name().to_str().map_err(|_| ErrorCode::IllegalByteSequence)?;
        if matches!(name, "." | "..") {
            continue;
        }
        if *left == 0 || !remove(&node, name, recursive, left)? {
            return Ok(false);
        }
    }
    parent.remove_directory(name).map(|()| true)
}

/// A file that is being received from a caller.
struct Upload {
    files: Files,
    node: Arc<Node>,
    temporary: String,
    path: FilePath,
    offset: u64,
    /// Bytes that are not written yet.
    piece: BytesMut,
    _permit: OwnedSemaphorePermit,
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upload").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Upload {
    async fn flush(&mut self) -> Result<(), VolumeFileError> {
        let (piece, offset) = (self.piece.split().freeze(), self.offset);
        if piece.is_empty() {
            return Ok(());
        }
        self.offset += piece.len() as u64;
        let written = self.node.change(move |node| node.write(&piece, offset)).await;
        written.map_err(|error| self.files.refused(error, self.path.as_str()))
    }
}

#[async_trait]
impl NewFile for Upload {
    async fn write(&mut self, piece: Bytes) -> Result<(), VolumeFileError> {
        self.piece.extend_from_slice(&piece);
        if self.piece.len() >= PIECE_BYTES { self.flush().await } else { Ok(()) }
    }

    async fn finish(mut self: Box<Self>) -> Result<(), VolumeFileError> {
        self.flush().await?;
        let refused = |error| self.files.refused(error, self.path.as_str());
        self.node.look(Node::sync).await.map_err(refused)?;
        let (node, temporary, path) =
            (self.node.clone(), self.temporary.clone(), self.path.clone());
        let conclude = move |root: &Node| conclude(root, &node, &temporary, &path);
        self.files.root.change(conclude).await.map_err(refused)
    }
}

impl Drop for Upload {
    /// After a whole upload the temporary name does not exist any more.
    fn drop(&mut self) {
        // Without a runtime the host is ending: the next one removes the file.
        let Ok(runtime) = Handle::try_current() else { return };
        let (root, temporary) = (self.files.root.clone(), std::mem::take(&mut self.temporary));
        runtime.spawn(async move { root.change(move |root| root.unlink(&temporary)).await });
    }
}
