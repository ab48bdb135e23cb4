//! A file or a directory that a handler has open, with its operations. All of them block on the
//! disk, so [`JobIoLimits`] runs them on separate threads.
//!
//! **Invariants.** Nothing grows before its space is taken, and below the disk's reserve no hole of
//! a sparse file is filled either. Handlers can neither follow nor create symbolic links, and
//! cannot create hard links: each file has one name, and counts once. A directory is renamed in its
//! parent only, so that no directory gets deeper than [`DEPTH_MAX`]. Empty directories `*.lock` do
//! not outlast the instance that created them ([`locks`](super::locks)).

use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, SeekFrom, Stat, Timestamps, fchmod, fstat, ftruncate,
    futimens, mkdirat, openat, renameat, seek, statat, unlinkat, utimensat,
};
use rustix::io::Errno;
use tokio::runtime::Handle;
use wasmtime_wasi::p2::bindings::clocks::wall_clock::Datetime;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, DescriptorStat, DescriptorType, ErrorCode, MetadataHashValue, OpenFlags,
};

use super::io_limits::{IoSlot, JobIoLimits};
use super::locks::is_lock;
use super::marks::{MARK, is_marked_directory};
use super::mount::OpenMount;
use super::path::{DEPTH_MAX, Parts};
use super::space::{BLOCK_BYTES, FileKey, NODE_BYTES, allocated, charge, file_charge, size};

/// A link itself, not its target.
const NO_FOLLOW: AtFlags = AtFlags::SYMLINK_NOFOLLOW;

/// A descriptor of a handler.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) mount: OpenMount,
    pub(crate) io_limits: Arc<JobIoLimits>,
    file: Arc<File>,
    kind: Kind,
    flags: DescriptorFlags,
    slot: Option<IoSlot>,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// A directory; `depth` is the number of levels up to the root of its mount.
    Directory { depth: usize },
    /// A file, which counts as open under this key.
    File(FileKey),
}

/// How a file or directory is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenMode {
    pub(crate) open: OpenFlags,
    pub(crate) flags: DescriptorFlags,
}

impl Node {
    /// The root of a mount.
    pub(crate) fn root(mount: OpenMount, io_limits: Arc<JobIoLimits>, slot: IoSlot) -> Self {
        Self {
            file: mount.root.clone(),
            kind: Kind::Directory { depth: 0 },
            flags: DescriptorFlags::READ | DescriptorFlags::MUTATE_DIRECTORY,
            slot: Some(slot),
            mount,
            io_limits,
        }
    }

    /// Runs [`JobIoLimits::look`] on this, for the job that runs when this function is called.
    pub(crate) fn look<T, F>(
        self: &Arc<Self>,
        operation: F,
    ) -> impl Future<Output = Result<T, ErrorCode>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(&Self) -> Result<T, ErrorCode> + Send + 'static,
    {
        let (node, job) = (self.clone(), self.io_limits.current_job());
        async move {
            let looked_at = node.clone();
            node.io_limits.look(job, move || operation(&looked_at)).await
        }
    }

    /// Runs [`JobIoLimits::change`] on this, for the job that runs when this function is called.
    pub(crate) fn change<T, F>(
        self: &Arc<Self>,
        operation: F,
    ) -> impl Future<Output = Result<T, ErrorCode>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(&Self) -> Result<T, ErrorCode> + Send + 'static,
    {
        let (node, job) = (self.clone(), self.io_limits.current_job());
        async move {
            let changed = node.clone();
            node.io_limits.change(job, &node.mount, move || operation(&changed)).await
        }
    }

    /// The mode in which it was opened.
    pub(crate) fn flags(&self) -> DescriptorFlags {
        self.flags
    }

    /// The type of the node.
    pub(crate) fn descriptor_type(&self) -> DescriptorType {
        match self.kind {
            Kind::Directory { .. } => DescriptorType::Directory,
            Kind::File(_) => DescriptorType::RegularFile,
        }
    }

    /// Opens a file or directory below this directory. Changes the mount, at least its list of open
    /// files.
    pub(crate) fn open(&self, path: &str, mode: OpenMode) -> Result<Self, ErrorCode> {
        let depth = self.depth()?;
        let unsupported = DescriptorFlags::FILE_INTEGRITY_SYNC
            | DescriptorFlags::DATA_INTEGRITY_SYNC
            | DescriptorFlags::REQUESTED_WRITE_SYNC;
        if mode.flags.intersects(unsupported) {
            return Err(ErrorCode::Unsupported);
        }
        let slot = self.io_limits.open_file()?;
        let parts = parts(path)?;
        let (parent, name) = parts.parent(self.file.as_fd()).map_err(code)?;
        let only_directory = mode.open.contains(OpenFlags::DIRECTORY) || parts.is_directory;
        let creates = mode.open.contains(OpenFlags::CREATE);
        let truncates = mode.open.contains(OpenFlags::TRUNCATE);
        if mode.open.contains(OpenFlags::DIRECTORY) && (creates || truncates) {
            return Err(ErrorCode::Invalid);
        }
        if parts.is_directory && creates {
            return Err(ErrorCode::IsDirectory);
        }
        let mut flags = access(mode) | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // A pipe or device, which the operator may have made, must not block the open.
        flags |= OFlags::NONBLOCK | OFlags::NOCTTY;
        if only_directory {
            flags |= OFlags::DIRECTORY;
        }
        let is_exclusive = creates && mode.open.contains(OpenFlags::EXCLUSIVE);
        let mut is_new = false;
        let file = match openat(&parent, name, flags, Mode::empty()) {
            Ok(_) if is_exclusive => return Err(ErrorCode::Exist),
            Ok(file) => file,
            Err(Errno::NOENT) if creates => {
                check_depth(depth + parts.depth())?;
                self.mount.space.take(NODE_BYTES).map_err(code)?;
                is_new = true;
                let flags = flags | OFlags::CREATE | OFlags::EXCL;
                openat(&parent, name, flags, Mode::RUSR | Mode::WUSR).map_err(|error| {
                    self.mount.space.give_back(NODE_BYTES);
                    code(error)
                })?
            }
            Err(_) if is_exclusive && statat(&parent, name, NO_FOLLOW).is_ok() => {
                return Err(ErrorCode::Exist);
            }
            Err(error) => return Err(code(error)),
        };
        let node = self.opened(file, depth + parts.depth(), mode.flags, slot)?;
        // The times of a new file are equal, and it is empty.
        if truncates && !is_new {
            node.set_size(0)?;
        }
        Ok(node)
    }

    fn opened(
        &self,
        file: OwnedFd,
        depth: usize,
        flags: DescriptorFlags,
        slot: IoSlot,
    ) -> Result<Self, ErrorCode> {
        let stat = fstat(&file).map_err(code)?;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Kind::Directory { depth },
            FileType::RegularFile => Kind::File(FileKey::of(&stat)),
            _ => return Err(ErrorCode::NotPermitted),
        };
        if let Kind::File(key) = kind {
            self.mount.space.opened(key);
        }
        Ok(Self {
            mount: self.mount.clone(),
            io_limits: self.io_limits.clone(),
            file: Arc::new(file.into()),
            kind,
            flags,
            slot: Some(slot),
        })
    }

    /// Reads up to `len` bytes; none at the end of the file.
    pub(crate) fn read(&self, len: usize, offset: u64) -> Result<Vec<u8>, ErrorCode> {
        let mut bytes = vec![0; len];
        let count = self.file()?.read_at(&mut bytes, offset)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Writes all bytes, or none when there is no space for them. Changes the mount.
    ///
    /// # Errors
    /// [`ErrorCode::InsufficientSpace`] when the mount is full. Also when the disk is below its
    /// reserve, or the owner beyond its share, and the write needs a further block, be it in a hole
    /// of the file; existing blocks can always be overwritten.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Result<(), ErrorCode> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(ErrorCode::FileTooLarge)?;
        let file = self.file()?;
        let write = || {
            if !self.mount.space.disk_has_room() {
                check_for_holes(file, offset, end)?;
            }
            file.write_all_at(bytes, offset)
        };
        self.resize(|before| before.max(end), write)
    }

    /// Writes all bytes at the end, or none. Changes the mount.
    pub(crate) fn append(&self, bytes: &[u8]) -> Result<(), ErrorCode> {
        let end = size(&fstat(self.file()?).map_err(code)?);
        self.write(bytes, end)
    }

    /// Cuts or extends the file. Changes the mount.
    pub(crate) fn set_size(&self, bytes: u64) -> Result<(), ErrorCode> {
        let file = self.file()?;
        self.resize(|_| bytes, || Ok(ftruncate(file, bytes)?))
    }

    /// Runs an operation that changes the size of the file or its blocks, and counts the
    /// difference, even if it fails half way.
    fn resize(
        &self,
        wanted: impl FnOnce(u64) -> u64,
        change: impl FnOnce() -> std::io::Result<()>,
    ) -> Result<(), ErrorCode> {
        if !self.flags.contains(DescriptorFlags::WRITE) {
            return Err(ErrorCode::NotPermitted);
        }
        let before = fstat(&*self.file).map_err(code)?;
        let wanted = wanted(size(&before));
        if i64::try_from(wanted).is_err() {
            return Err(ErrorCode::FileTooLarge);
        }
        let reserved = file_charge(wanted).max(charge(&before));
        let space = &self.mount.space;
        space.take(reserved - charge(&before)).map_err(code)?;
        let done = change();
        let after = fstat(&*self.file);
        let charged = after.as_ref().map_or(reserved, charge);
        space.give_back(reserved.saturating_sub(charged));
        if let Ok(after) = &after {
            space.reallocated(allocated(&before), allocated(after));
        }
        Ok(done?)
    }

    /// Makes a directory below this one. Changes the mount.
    pub(crate) fn create_directory(&self, path: &str) -> Result<(), ErrorCode> {
        let depth = self.depth()?;
        let parts = parts(path)?;
        check_depth(depth + parts.depth())?;
        let (parent, name) = parts.parent(self.file.as_fd()).map_err(code)?;
        let slot = if is_lock(name) { self.io_limits.lock_slot(&self.mount) } else { None };
        let mark = if slot.is_some() { MARK } else { Mode::empty() };
        self.mount.space.take(NODE_BYTES).map_err(code)?;
        mkdirat(&parent, name, Mode::RWXU | mark).map_err(|error| {
            self.mount.space.give_back(NODE_BYTES);
            code(error)
        })?;
        if let (Some(slot), Ok(stat)) = (slot, statat(&parent, name, NO_FOLLOW)) {
            let parent = parent.into_file(&self.file);
            self.io_limits.hold_lock(&self.mount, &stat, parent, name, slot);
        }
        Ok(())
    }

    /// Removes a file. Changes the mount.
    pub(crate) fn unlink(&self, path: &str) -> Result<(), ErrorCode> {
        self.depth()?;
        let parts = parts(path)?;
        let (parent, name) = parts.parent(self.file.as_fd()).map_err(code)?;
        let stat = statat(&parent, name, NO_FOLLOW).map_err(code)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => return Err(ErrorCode::IsDirectory),
            _ if parts.is_directory => return Err(ErrorCode::NotDirectory),
            _ => {}
        }
        unlinkat(&parent, name, AtFlags::empty()).map_err(code)?;
        self.mount.space.removed(FileKey::of(&stat), charge(&stat), allocated(&stat));
        Ok(())
    }

    /// Removes an empty directory. Changes the mount.
    pub(crate) fn remove_directory(&self, path: &str) -> Result<(), ErrorCode> {
        self.depth()?;
        let parts = parts(path)?;
        let (parent, name) = parts.parent(self.file.as_fd()).map_err(code)?;
        let lock = is_lock(name).then(|| statat(&parent, name, NO_FOLLOW));
        unlinkat(&parent, name, AtFlags::REMOVEDIR).map_err(code)?;
        if let Some(Ok(stat)) = lock {
            self.mount.locks.forget(&stat);
        }
        self.mount.space.give_back(NODE_BYTES);
        Ok(())
    }

    /// Moves a file within the mount, or renames a directory in its parent. Changes the mount.
    pub(crate) fn rename(&self, from: &str, to: &Self, path: &str) -> Result<(), ErrorCode> {
        self.depth()?;
        let depth = to.depth()?;
        if !Arc::ptr_eq(self.mount.mount(), to.mount.mount()) {
            return Err(ErrorCode::CrossDevice);
        }
        let (from, path) = (parts(from)?, parts(path)?);
        check_depth(depth + path.depth())?;
        let (old_parent, old) = from.parent(self.file.as_fd()).map_err(code)?;
        let (new_parent, new) = path.parent(to.file.as_fd()).map_err(code)?;
        let stat = statat(&old_parent, old, NO_FOLLOW).map_err(code)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let [before, after] = [fstat(&old_parent), fstat(&new_parent)];
            if FileKey::of(&before.map_err(code)?) != FileKey::of(&after.map_err(code)?) {
                // The error of a move to another file system: tools copy then.
                return Err(ErrorCode::CrossDevice);
            }
            if is_marked_directory(&stat) {
                // Whatever its new name is: the handler uses it for something else.
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let lock = openat(&old_parent, old, flags, Mode::empty()).map_err(code)?;
                fchmod(lock, Mode::RWXU).map_err(code)?;
                self.mount.locks.forget(&stat);
            }
        } else if from.is_directory || path.is_directory {
            return Err(ErrorCode::NotDirectory);
        }
        let replaced = statat(&new_parent, new, NO_FOLLOW).ok();
        renameat(&old_parent, old, &new_parent, new).map_err(code)?;
        if let Some(replaced) = replaced {
            // A name moved onto itself replaces nothing.
            if FileKey::of(&replaced) != FileKey::of(&stat) {
                let (charge, allocated) = (charge(&replaced), allocated(&replaced));
                self.mount.space.removed(FileKey::of(&replaced), charge, allocated);
                self.mount.locks.forget(&replaced);
            }
        }
        Ok(())
    }

    /// The metadata of this node.
    pub(crate) fn stat(&self) -> Result<DescriptorStat, ErrorCode> {
        fstat(&*self.file).map(|stat| described(&stat)).map_err(code)
    }

    /// The metadata of a path below this directory.
    pub(crate) fn stat_at(&self, path: &str) -> Result<DescriptorStat, ErrorCode> {
        self.raw_stat_at(path).map(|stat| described(&stat))
    }

    fn raw_stat_at(&self, path: &str) -> Result<Stat, ErrorCode> {
        self.depth()?;
        let parts = parts(path)?;
        let (parent, name) = parts.parent(self.file.as_fd()).map_err(code)?;
        let stat = statat(&parent, name, NO_FOLLOW).map_err(code)?;
        if parts.is_directory && FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(ErrorCode::NotDirectory);
        }
        Ok(stat)
    }

    /// Sets the times of this node. As in POSIX, the owner of a file may do that with a descriptor
    /// for reading; handlers own all files of their mounts.
    pub(crate) fn set_times(&self, times: &Timestamps) -> Result<(), ErrorCode> {
        futimens(&*self.file, times).map_err(code)
    }

    /// Sets the times of a path below this directory.
    pub(crate) fn set_times_at(&self, path: &str, times: &Timestamps) -> Result<(), ErrorCode> {
        self.depth()?;
        let parts = parts(path)?;
        let (parent, name) = parts.parent(self.file.as_fd()).map_err(code)?;
        utimensat(&parent, name, times, NO_FOLLOW).map_err(code)
    }

    /// Waits until all that was written is on stable storage.
    pub(crate) fn sync(&self) -> Result<(), ErrorCode> {
        Ok(self.file.sync_all()?)
    }

    /// The same without the times of the file.
    pub(crate) fn sync_data(&self) -> Result<(), ErrorCode> {
        Ok(self.file.sync_data()?)
    }

    /// Two numbers that identify the file.
    pub(crate) fn metadata_hash(&self) -> Result<MetadataHashValue, ErrorCode> {
        fstat(&*self.file).map(|stat| hashed(&stat)).map_err(code)
    }

    /// The same for a path below this directory.
    pub(crate) fn metadata_hash_at(&self, path: &str) -> Result<MetadataHashValue, ErrorCode> {
        self.raw_stat_at(path).map(|stat| hashed(&stat))
    }

    /// Whether both are the same file or directory.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match [fstat(&*self.file), fstat(&*other.file)] {
            [Ok(one), Ok(two)] => FileKey::of(&one) == FileKey::of(&two),
            _ => false,
        }
    }

    /// The file; an error for a directory.
    pub(crate) fn file(&self) -> Result<&File, ErrorCode> {
        match self.kind {
            Kind::File(_) => Ok(&self.file),
            Kind::Directory { .. } => Err(ErrorCode::IsDirectory),
        }
    }

    /// The directory, opened once more; an error for a file.
    pub(crate) fn directory(&self) -> Result<OwnedFd, ErrorCode> {
        self.depth()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&*self.file, ".", flags, Mode::empty()).map_err(code)
    }

    fn depth(&self) -> Result<usize, ErrorCode> {
        match self.kind {
            Kind::Directory { depth } => Ok(depth),
            Kind::File(_) => Err(ErrorCode::NotDirectory),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let Kind::File(key) = self.kind else { return };
        if !self.mount.space.closed(key) {
            return;
        }
        // The last handle of a removed file: closing it frees what may be gigabytes.
        let mount = self.mount.clone();
        let (file, slot) =
            (std::mem::replace(&mut self.file, mount.root.clone()), self.slot.take());
        let close = move || {
            let (charge, allocated) =
                fstat(&*file).map_or((0, 0), |stat| (charge(&stat), allocated(&stat)));
            drop((file, slot));
            mount.space.give_back(charge);
            mount.space.reallocated(allocated, 0);
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(close)),
            Err(_) => close(),
        }
    }
}

fn parts(path: &str) -> Result<Parts<'_>, ErrorCode> {
    Parts::of(path).map_err(|bad| code(bad.into()))
}

fn check_depth(depth: usize) -> Result<(), ErrorCode> {
    if depth > DEPTH_MAX { Err(ErrorCode::NameTooLong) } else { Ok(()) }
}

/// Refuses a write that would fill a hole. [`Space::take`](super::space::Space::take) does not see
/// such a write, since a file counts with its whole size, holes included. Costs two system calls.
fn check_for_holes(file: &File, offset: u64, end: u64) -> std::io::Result<()> {
    // A block is allocated as a whole, and bytes beyond the end of the file are already counted.
    let start = offset - offset % BLOCK_BYTES;
    let end = end.min(size(&fstat(file)?));
    // Every file ends in a hole without length, so there is always a next one.
    if start < end && seek(file, SeekFrom::Hole(start))? < end {
        return Err(Errno::NOSPC.into());
    }
    Ok(())
}

fn access(mode: OpenMode) -> OFlags {
    let writes = mode.flags.contains(DescriptorFlags::WRITE);
    match (mode.flags.contains(DescriptorFlags::READ), writes) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        (true | false, false) => OFlags::RDONLY,
    }
}

/// An error of the operating system as a handler sees it.
pub(crate) fn code(error: Errno) -> ErrorCode {
    match error {
        Errno::XDEV => ErrorCode::CrossDevice,
        Errno::DQUOT => ErrorCode::InsufficientSpace,
        Errno::ROFS => ErrorCode::ReadOnly,
        Errno::MFILE | Errno::NFILE => ErrorCode::Quota,
        other => std::io::Error::from(other).into(),
    }
}

/// A type of file as a handler sees it.
pub(crate) fn descriptor_type(kind: FileType) -> DescriptorType {
    match kind {
        FileType::RegularFile => DescriptorType::RegularFile,
        FileType::Directory => DescriptorType::Directory,
        FileType::Symlink => DescriptorType::SymbolicLink,
        FileType::Fifo => DescriptorType::Fifo,
        FileType::Socket => DescriptorType::Socket,
        FileType::CharacterDevice => DescriptorType::CharacterDevice,
        FileType::BlockDevice => DescriptorType::BlockDevice,
        FileType::Unknown => DescriptorType::Unknown,
    }
}

fn described(stat: &Stat) -> DescriptorStat {
    DescriptorStat {
        type_: descriptor_type(FileType::from_raw_mode(stat.st_mode)),
        link_count: 1,
        size: size(stat),
        data_access_timestamp: time(stat.st_atime, stat.st_atime_nsec),
        data_modification_timestamp: time(stat.st_mtime, stat.st_mtime_nsec),
        status_change_timestamp: time(stat.st_ctime, stat.st_ctime_nsec),
    }
}

/// A time; `None` when it is before 1970.
fn time(seconds: i64, nanoseconds: u64) -> Option<Datetime> {
    Some(Datetime { seconds: seconds.try_into().ok()?, nanoseconds: nanoseconds.try_into().ok()? })
}

/// Not the numbers of the inode themselves, which are the host's.
fn hashed(stat: &Stat) -> MetadataHashValue {
    let mut hasher = DefaultHasher::new();
    FileKey::of(stat).hash(&mut hasher);
    let lower = hasher.finish();
    hasher.write_u8(0);
    MetadataHashValue { lower, upper: hasher.finish() }
}
