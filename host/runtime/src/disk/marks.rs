//! Files that must not outlive their process have a mark: the sticky bit, which handlers can
//! neither see nor set. The next process that uses the volume alone deletes marked files.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, Mode, Stat, unlinkat};

/// The mark.
pub(super) const MARK: Mode = Mode::SVTX;

/// The beginning of the name of a file that is not complete, in the root of a volume.
pub(super) const TEMPORARY_PREFIX: &str = ".gristmill-upload-";

/// Whether this is a directory with the mark.
pub(super) fn is_marked_directory(stat: &Stat) -> bool {
    is_marked(stat, FileType::Directory)
}

/// Whether this is a file that is not complete.
pub(super) fn is_temporary(name: &[u8], stat: &Stat) -> bool {
    name.starts_with(TEMPORARY_PREFIX.as_bytes()) && is_marked(stat, FileType::RegularFile)
}

fn is_marked(stat: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind
        && Mode::from_raw_mode(stat.st_mode).contains(MARK)
}

/// Removes an incomplete file that an earlier process has left behind. Returns whether it did.
pub(super) fn remove_temporary(root: BorrowedFd<'_>, name: &CStr, stat: &Stat) -> bool {
    is_temporary(name.to_bytes(), stat) && unlinkat(root, name, AtFlags::empty()).is_ok()
}
