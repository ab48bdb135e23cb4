//! One file of the journal: written from front to back, read anywhere, and reused when nothing in
//! it is needed any more. Overwriting existing blocks changes no metadata of the file system, so a
//! sync costs half as much as in a growing file.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt as _, OpenOptionsExt};
use std::path::Path;

#[cfg(target_os = "linux")]
use rustix::fs::{FallocateFlags, fallocate};

use crate::damage::damaged;
use crate::durable;
use crate::medium::{PayloadLocation, SegmentId};

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) id: SegmentId,
    /// The end of the previous segment: everything before it must be readable.
    pub(crate) end_before: u32,
    /// Part of every checksum, so that frames of an earlier use of the file, and client bytes that
    /// look like a frame, do not pass for frames of this one.
    pub(crate) salt: u64,
}

/// The first bytes of a segment.
const MAGIC: &[u8; 8] = b"grmlseg1";

/// Bytes that a disk writes as one unit, or a multiple of that.
pub(crate) const BLOCK_BYTES: u32 = 4_096;

/// Bytes of the header.
pub(crate) const HEADER_BYTES: u32 = 32;

impl Header {
    fn encode(self) -> [u8; HEADER_BYTES as usize] {
        let mut bytes = [0; HEADER_BYTES as usize];
        let (rest, checksum) = bytes.split_at_mut(24);
        let fields = [
            &MAGIC[..],
            &self.id.0.to_le_bytes(),
            &self.end_before.to_le_bytes(),
            &self.salt.to_le_bytes(),
        ];
        rest.copy_from_slice(&fields.concat());
        checksum.copy_from_slice(&u64::from(crc32fast::hash(rest)).to_le_bytes());
        bytes
    }

    /// Recomputes the checksum of a header, and returns its salt.
    #[cfg(feature = "testing")]
    pub(crate) fn reseal(bytes: &mut [u8; HEADER_BYTES as usize]) -> u64 {
        let (rest, checksum) = bytes.split_at_mut(24);
        checksum.copy_from_slice(&u64::from(crc32fast::hash(rest)).to_le_bytes());
        rest.last_chunk().copied().map_or(0, u64::from_le_bytes)
    }

    fn decode(bytes: &[u8; HEADER_BYTES as usize]) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (id, rest) = rest.split_first_chunk()?;
        let (end_before, rest) = rest.split_first_chunk()?;
        let (salt, _) = rest.split_first_chunk()?;
        let header = Self {
            id: SegmentId(u32::from_le_bytes(*id)),
            end_before: u32::from_le_bytes(*end_before),
            salt: u64::from_le_bytes(*salt),
        };
        (header.encode() == *bytes).then_some(header)
    }
}

/// The file of a segment, or a file that is unused at the moment.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    file: File,
    /// The same file, opened to bypass the page cache, if the file system allows it.
    direct: Option<File>,
    /// The number in the file's name.
    pub(crate) slot: u32,
}

impl SegmentFile {
    /// Opens a file of the journal, or creates it.
    pub(crate) fn open(dir: &Path, slot: u32) -> io::Result<Self> {
        let path = dir.join(name(slot));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path)?;
        Ok(Self { file, direct: open_direct(&path), slot })
    }

    /// Opens a file of the journal for reading only.
    pub(crate) fn open_to_read(dir: &Path, slot: u32) -> io::Result<Self> {
        let file = File::open(dir.join(name(slot)))?;
        Ok(Self { file, direct: None, slot })
    }

    /// Returns the file to the file system. A reader that has it open can still read it.
    pub(crate) fn remove(&self, dir: &Path) -> io::Result<()> {
        fs::remove_file(dir.join(name(self.slot)))
    }

    /// The file's name in the directory.
    pub(crate) fn name(&self) -> String {
        name(self.slot)
    }

    /// The slot of a file, by its name.
    pub(crate) fn slot_of(name: &str) -> Option<u32> {
        name.strip_suffix(".seg")?.parse().ok()
    }

    /// The header; `None` when there is none.
    pub(crate) fn header(&self) -> io::Result<Option<Header>> {
        let mut bytes = [0; HEADER_BYTES as usize];
        match self.file.read_exact_at(&mut bytes, 0) {
            Ok(()) => Ok(Header::decode(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the file is blank: all bytes are zero. A crash can leave such a file behind: its
    /// name exists before its header.
    pub(crate) fn is_blank(&self) -> io::Result<bool> {
        let (mut piece, mut at) = (vec![0; 64 << 10], 0);
        loop {
            let count = self.file.read_at(&mut piece, at)?;
            let bytes = piece.get(..count).unwrap_or_default();
            if bytes.is_empty() {
                return Ok(true);
            }
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += count as u64;
        }
    }

    /// Cuts the file.
    pub(crate) fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    /// Whether the file takes less space than it has bytes.
    pub(crate) fn has_holes(&self) -> io::Result<bool> {
        let metadata = self.file.metadata()?;
        Ok(metadata.blocks().saturating_mul(512) < metadata.len())
    }

    /// Makes a range of whole blocks a hole: its bytes are zero from now on, and take no space.
    #[cfg(target_os = "linux")]
    pub(crate) fn make_hole(&self, range: &Range<u32>) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let len = range.end.saturating_sub(range.start);
        Ok(fallocate(&self.file, flags, range.start.into(), len.into())?)
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn make_hole(&self, _: &Range<u32>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Writes the first bytes again, and syncs all.
    pub(crate) fn rewrite(&self, end: u32) -> io::Result<()> {
        durable::rewrite(&self.file, end.into())
    }

    /// Begins a new use of the file.
    pub(crate) fn begin(&self, header: Header) -> io::Result<()> {
        self.file.write_all_at(&header.encode(), 0)
    }

    pub(crate) fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Writes zeros. The bytes are written, not only allocated: the first write to an allocated
    /// block would make the next sync update metadata.
    pub(crate) fn fill(&self, from: u64, to: u64) -> io::Result<()> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let mut at = from;
        while at < to {
            let count = usize::try_from(to - at).unwrap_or(usize::MAX).min(ZEROS.len());
            self.file.write_all_at(ZEROS.get(..count).unwrap_or(&ZEROS), at)?;
            at += count as u64;
        }
        Ok(())
    }

    pub(crate) fn write(&self, bytes: &[u8], at: u32) -> io::Result<()> {
        self.file.write_all_at(bytes, at.into())
    }

    /// Writes whole blocks. Fastest from memory that is aligned to a block.
    pub(crate) fn write_blocks(&self, bytes: &[u8], at: u32) -> io::Result<()> {
        match self.direct.as_ref().map(|direct| direct.write_all_at(bytes, at.into())) {
            Some(Ok(())) => Ok(()),
            // The file system's blocks are larger than ours.
            Some(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => {
                self.write(bytes, at)
            }
            Some(Err(error)) => Err(error),
            None => self.write(bytes, at),
        }
    }

    pub(crate) fn read(&self, at: u32, len: u32) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len as usize];
        self.file.read_exact_at(&mut bytes, at.into())?;
        Ok(bytes)
    }

    /// Reads as many bytes as are available; none at the end of the file.
    pub(crate) fn read_some(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(into, at)
    }

    /// The error for a payload of this file that does not match its checksum.
    pub(crate) fn damaged_payload(&self, location: PayloadLocation) -> io::Error {
        let PayloadLocation { at, len, .. } = location;
        damaged(format!("a payload of {len} bytes in {} at byte {at} is damaged", self.name()))
    }

    /// Returns when everything written is on stable storage.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(target_os = "linux")]
fn open_direct(path: &Path) -> Option<File> {
    let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).ok()?;
    OpenOptions::new().write(true).custom_flags(direct).open(path).ok()
}

#[cfg(not(target_os = "linux"))]
fn open_direct(_: &Path) -> Option<File> {
    None
}

fn name(slot: u32) -> String {
    format!("{slot:06}.seg")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_complete_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = SegmentFile::open(dir.path(), 7).unwrap();
        assert_eq!(file.header().unwrap(), None);
        assert!(file.is_blank().unwrap());
        let header = Header { id: SegmentId(3), end_before: 77, salt: 0x1234_5678_9abc_def0 };
        file.begin(header).unwrap();
        assert_eq!(file.header().unwrap(), Some(header));
        assert!(!file.is_blank().unwrap());
        for at in 0..HEADER_BYTES {
            let byte = file.read(at, 1).unwrap()[0];
            file.write(&[byte ^ 1], at).unwrap();
            assert_eq!(file.header().unwrap(), None, "byte {at}");
            file.write(&[byte], at).unwrap();
        }
        assert_eq!(SegmentFile::slot_of("000007.seg"), Some(7));
        assert_eq!(SegmentFile::slot_of("000007.old"), None);
    }

    #[test]
    fn a_file_is_filled_and_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = SegmentFile::open(dir.path(), 1).unwrap();
        for (from, to, expected) in [(0, 100_000, 100_000), (5, 7, 100_000), (9, 200_001, 200_001)]
        {
            file.fill(from, to).unwrap();
            assert_eq!(file.len().unwrap(), expected);
        }
        file.write(b"abc", 199_998).unwrap();
        file.sync().unwrap();
        assert_eq!(file.read(199_997, 4).unwrap(), b"\0abc");
        assert!(file.read(200_000, 2).is_err());
        assert!(!file.is_blank().unwrap(), "its last bytes are no zeros");
    }
}
