//! Returns unused bytes of a segment to the file system while the disk is nearly full: they become
//! holes of its file. Few payloads that are still needed then do not keep a whole segment.
//!
//! **Promise.** No byte of a hole is read again. Only checkpointed segments have holes: neither a
//! start nor a checkpoint, a repair or a check reads frames of these, but only payloads that jobs
//! refer to, each by its location and with its own checksum. Such a job is not deleted, so no
//! payload of it is in a hole. Every deletion is on stable storage before its payload is released.
//! A loss of power may therefore undo a hole or not. A file that is being read gets no holes.
//!
//! **Costs.** Some 10 µs for each hole. It needs no free space; a move of the payloads that are
//! still needed would need twice their size before it gives back any.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;

use crate::journal::segment::SegmentFile;

/// Unused ranges of whole blocks of a segment. The file is not reused while this exists.
#[derive(Debug)]
pub(crate) struct Gaps {
    pub(super) file: Arc<SegmentFile>,
    pub(super) ranges: Vec<Range<u32>>,
}

impl Gaps {
    /// Makes them holes. False when the file system has no holes.
    pub(super) fn make_holes(&self) -> io::Result<bool> {
        for range in &self.ranges {
            match self.file.make_hole(range) {
                Err(error) if is_unsupported(&error) => return Ok(false),
                done => done?,
            }
        }
        Ok(true)
    }
}

/// Whether the file system, or the kernel's filter of system calls, refuses holes.
fn is_unsupported(error: &io::Error) -> bool {
    let refusals = [Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL, Errno::PERM];
    error.kind() == io::ErrorKind::Unsupported
        || refusals.iter().any(|refusal| error.raw_os_error() == Some(refusal.raw_os_error()))
}

#[cfg(test)]
#[path = "holes_tests.rs"]
mod tests;
