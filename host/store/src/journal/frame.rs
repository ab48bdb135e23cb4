//! The layout of a batch in a segment: a head, the encoded batch, and its payloads. A large frame
//! ends at a block's end, so that its last block is written whole.
//!
//! A frame is valid when all of it is present, which its checksum proves. The checksum also covers
//! the segment's salt and the frame's number, so that only the next frame of this segment passes
//! for it.

use std::borrow::Cow;
use std::io;

use crate::journal::checksum::{self, PayloadPart};
use crate::journal::segment::{BLOCK_BYTES, HEADER_BYTES, Header, SegmentFile};
use crate::medium::{PayloadLocation, SegmentId};

/// Bytes of a frame's head: checksum, number of the frame in the segment, length of the encoded
/// batch, length of its payloads; each as a 32-bit little-endian number.
pub(crate) const HEAD_BYTES: u32 = 16;

/// A frame is read in one call if its payloads are at most this many times as long as the encoded
/// batch: then they are many small ones, and one read is cheaper than many. Most larger payloads
/// are never requested.
const SMALL_PAYLOADS: u64 = 16;

/// Frames of this size and more are large.
const LARGE_BYTES: u32 = 64 << 10;

/// The layout of a frame in its segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) is_large: bool,
    /// The position of the next frame.
    pub(crate) end: u32,
}

impl Extent {
    /// The layout of a frame at `at`; `None` beyond 4 GiB.
    pub(crate) fn of(at: u32, batch_bytes: u32, payloads: u32) -> Option<Self> {
        let len = HEAD_BYTES.checked_add(batch_bytes)?.checked_add(payloads)?;
        let (end, is_large) = (at.checked_add(len)?, len >= LARGE_BYTES);
        let end = if is_large { end.checked_next_multiple_of(BLOCK_BYTES)? } else { end };
        Some(Self { is_large, end })
    }
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    checksum: u32,
    number: u32,
    batch_bytes: u32,
    payloads: u32,
}

impl Head {
    fn encode(self) -> [u8; HEAD_BYTES as usize] {
        let mut bytes = [0; HEAD_BYTES as usize];
        let fields =
            [self.checksum, self.number, self.batch_bytes, self.payloads].map(u32::to_le_bytes);
        bytes.copy_from_slice(fields.as_flattened());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = bytes.as_chunks::<4>().0.iter().map(|field| u32::from_le_bytes(*field));
        Some(Self {
            checksum: fields.next()?,
            number: fields.next()?,
            batch_bytes: fields.next()?,
            payloads: fields.next()?,
        })
    }

    /// A checksum that the encoded batch and the payloads are still to be added to.
    fn hasher(self, salt: u64) -> crc32fast::Hasher {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&salt.to_le_bytes());
        hasher.update(self.encode().get(4..).unwrap_or_default());
        hasher
    }
}

/// The head of frame `number`, with the encoded batch `encoded_batch` and `payloads`.
pub(crate) fn head(
    salt: u64,
    number: u32,
    encoded_batch: &[u8],
    payloads: &[PayloadPart],
) -> [u8; HEAD_BYTES as usize] {
    let len = |bytes: usize| u32::try_from(bytes).expect("a batch is far smaller than 4 GiB");
    let payload_bytes = payloads.iter().map(|part| part.len()).sum();
    let head = Head {
        checksum: 0,
        number,
        batch_bytes: len(encoded_batch.len()),
        payloads: len(payload_bytes),
    };
    let mut hasher = head.hasher(salt);
    hasher.update(encoded_batch);
    checksum::cover(&mut hasher, payloads);
    Head { checksum: hasher.finalize(), ..head }.encode()
}

/// A frame that was read.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    file: &'a SegmentFile,
    /// The whole frame, or the part before its payloads.
    bytes: Vec<u8>,
    batch_bytes: u32,
    /// All its payloads, one after the other.
    pub(crate) payloads: PayloadLocation,
}

impl Frame<'_> {
    /// The encoded batch.
    pub(crate) fn encoded_batch(&self) -> &[u8] {
        let from = HEAD_BYTES as usize;
        self.bytes.get(from..from + self.batch_bytes as usize).unwrap_or_default()
    }

    /// A payload of the frame, by its location in the segment.
    ///
    /// # Errors
    /// Of kind [`InvalidData`](io::ErrorKind::InvalidData) when it does not match its checksum.
    pub(crate) fn payload(&self, location: PayloadLocation) -> io::Result<Cow<'_, [u8]>> {
        let bytes = match self.in_memory(location) {
            Some(bytes) => bytes.into(),
            None => Cow::from(self.file.read(location.at, location.len)?),
        };
        checksum::checked_cow(bytes).ok_or_else(|| self.file.damaged_payload(location))
    }

    fn in_memory(&self, location: PayloadLocation) -> Option<&[u8]> {
        let before = HEAD_BYTES + self.batch_bytes;
        let from = location.at.checked_sub(self.payloads.at)?.checked_add(before)? as usize;
        self.bytes.get(from..from.checked_add(location.len as usize)?)
    }
}

/// Reads the frames of a segment in their order, up to the first incomplete one.
#[derive(Debug)]
pub(crate) struct Frames<'a> {
    file: &'a SegmentFile,
    file_len: u64,
    segment: SegmentId,
    salt: u64,
    number: u32,
    at: u32,
    /// Whether large payloads are not read and not checked again.
    was_checked: bool,
}

impl<'a> Frames<'a> {
    pub(crate) fn new(file: &'a SegmentFile, header: Header) -> io::Result<Self> {
        let file_len = file.len()?;
        let Header { id: segment, salt, .. } = header;
        let (number, at) = (0, HEADER_BYTES);
        Ok(Self { file, file_len, segment, salt, number, at, was_checked: false })
    }

    /// The frames of a segment that was checked before, and ends at `end`.
    pub(crate) fn of_checked(file: &'a SegmentFile, header: Header, end: u32) -> io::Result<Self> {
        let frames = Self::new(file, header)?;
        Ok(Self { file_len: end.into(), was_checked: true, ..frames })
    }

    /// The frames that end no later than `end`, if it is known where the segment ended.
    pub(crate) fn up_to(self, end: Option<u32>) -> Self {
        let file_len = end.map_or(self.file_len, |end| self.file_len.min(end.into()));
        Self { file_len, ..self }
    }

    /// The frames from `at` on; the first of them has this number.
    pub(crate) fn from(self, at: u32, number: u32) -> Self {
        Self { at, number, ..self }
    }

    /// The number of the next frame.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The position of the next frame; after the last frame, the segment's end.
    pub(crate) fn at(&self) -> u32 {
        self.at
    }

    /// The next frame; `None` after the last one.
    pub(crate) fn next(&mut self) -> io::Result<Option<Frame<'a>>> {
        let left = self.file_len.saturating_sub(self.at.into());
        if left < HEAD_BYTES.into() {
            return Ok(None);
        }
        let Some(head) = Head::decode(&self.file.read(self.at, HEAD_BYTES)?) else {
            return Ok(None);
        };
        let Some(extent) = Extent::of(self.at, head.batch_bytes, head.payloads) else {
            return Ok(None);
        };
        let is_next = head.number == self.number && head.batch_bytes > 0;
        if !is_next || u64::from(extent.end) > self.file_len {
            return Ok(None);
        }
        let has_small = u64::from(head.payloads) <= SMALL_PAYLOADS * u64::from(head.batch_bytes);
        let bytes = if has_small || !self.was_checked {
            let bytes = self.file.read(self.at, HEAD_BYTES + head.batch_bytes + head.payloads)?;
            let mut hasher = head.hasher(self.salt);
            hasher.update(bytes.get(HEAD_BYTES as usize..).unwrap_or_default());
            if hasher.finalize() != head.checksum {
                return Ok(None);
            }
            bytes
        } else {
            self.file.read(self.at, HEAD_BYTES + head.batch_bytes)?
        };
        let at = self.at + HEAD_BYTES + head.batch_bytes;
        let payloads = PayloadLocation { segment: self.segment, at, len: head.payloads };
        self.at = extent.end;
        self.number += 1;
        Ok(Some(Frame { file: self.file, bytes, batch_bytes: head.batch_bytes, payloads }))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const HEADER: Header = Header { id: SegmentId(1), end_before: 0, salt: 99 };

    /// Writes a frame with the payloads `xyz` and `w`, and returns its end.
    fn write(file: &SegmentFile, salt: u64, number: u32, at: u32) -> u32 {
        let encoded_batch = format!("frame {number}");
        let mut parts = Vec::new();
        for payload in [&b"xyz"[..], b"w"] {
            checksum::add(&mut parts, [Bytes::from_static(payload)]);
        }
        let head = head(salt, number, encoded_batch.as_bytes(), &parts);
        let payloads = parts.iter().flat_map(|part| part.to_vec()).collect::<Vec<_>>();
        let bytes = [&head[..], encoded_batch.as_bytes(), &payloads].concat();
        file.write(&bytes, at).unwrap();
        at + u32::try_from(bytes.len()).unwrap()
    }

    fn count(file: &SegmentFile) -> (u32, u32) {
        let mut frames = Frames::new(file, HEADER).unwrap();
        let mut count = 0;
        while let Some(frame) = frames.next().unwrap() {
            assert_eq!(frame.encoded_batch(), format!("frame {count}").as_bytes());
            let location =
                |at, len| PayloadLocation { segment: HEADER.id, at: frame.payloads.at + at, len };
            assert_eq!(frame.payload(location(0, 7)).unwrap(), &b"xyz"[..]);
            assert!(matches!(frame.payload(location(7, 5)), Ok(Cow::Borrowed(b"w"))));
            assert!(frame.payload(location(0, 6)).is_err(), "its checksum is cut");
            count += 1;
        }
        (count, frames.at())
    }

    #[test]
    fn frames_are_read_up_to_the_first_incomplete_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = SegmentFile::open(dir.path(), 1).unwrap();
        file.fill(0, 4_096).unwrap();
        assert_eq!(count(&file), (0, HEADER_BYTES));
        let first_end = write(&file, 99, 0, HEADER_BYTES);
        assert_eq!(count(&file), (1, first_end));
        let end = write(&file, 99, 1, first_end);
        assert_eq!(count(&file), (2, end));
        for at in first_end..end {
            let byte = file.read(at, 1).unwrap()[0];
            file.write(&[byte ^ 0x40], at).unwrap();
            assert_eq!(count(&file), (1, first_end), "byte {at}");
            file.write(&[byte], at).unwrap();
        }
        // A frame with the salt of another use of the file, and a frame with another number.
        write(&file, 98, 2, end);
        assert_eq!(count(&file), (2, end));
        write(&file, 99, 1, end);
        assert_eq!(count(&file), (2, end));
    }
}
