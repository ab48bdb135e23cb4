//! Writes large frames past the page cache: in whole blocks, from a reused buffer. With the cache
//! each byte would need a page that no reader uses, and on a machine with fresh memory that costs
//! several times as much as the write itself.
//!
//! Cost: a copy of the frame. Bounds: one buffer of [`PIECE_BYTES`], from the first large frame on.

use std::io;

use crate::journal::segment::{BLOCK_BYTES, SegmentFile};

/// Bytes of one write call: enough for the disk's full speed.
const PIECE_BYTES: usize = 1 << 20;

/// Bytes that wait to be written to a file.
#[derive(Debug, Default)]
pub(crate) struct BlockWriter {
    /// Room for a piece, and for the offset at which it is aligned to a block of memory.
    buffer: Vec<u8>,
}

impl BlockWriter {
    /// Writes `parts` one after the other from `at` on, and zeros to the end of the last block.
    pub(crate) fn write<'a>(
        &mut self,
        file: &SegmentFile,
        at: u32,
        parts: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<()> {
        self.buffer.resize(PIECE_BYTES + BLOCK_BYTES as usize, 0);
        let aligned = self.buffer.as_ptr().align_offset(BLOCK_BYTES as usize);
        let piece = self.buffer.get_mut(aligned..aligned + PIECE_BYTES).unwrap_or_default();
        // The rest of the block where the previous frame ended is written first, by itself.
        let until_block = (BLOCK_BYTES - at % BLOCK_BYTES) % BLOCK_BYTES;
        let mut room = if until_block == 0 { PIECE_BYTES } else { until_block as usize };
        let (mut at, mut filled) = (at, 0);
        for mut part in parts {
            while !part.is_empty() {
                let (now, later) = part.split_at(part.len().min(room - filled));
                if let Some(to) = piece.get_mut(filled..filled + now.len()) {
                    to.copy_from_slice(now);
                }
                filled += now.len();
                part = later;
                if filled == room {
                    at = write(file, piece, filled, at)?;
                    (filled, room) = (0, PIECE_BYTES);
                }
            }
        }
        let end = filled.next_multiple_of(BLOCK_BYTES as usize);
        piece.get_mut(filled..end).unwrap_or_default().fill(0);
        write(file, piece, end, at)?;
        Ok(())
    }
}

/// Writes the filled part of a piece, and returns the position of its end.
fn write(file: &SegmentFile, piece: &[u8], filled: usize, at: u32) -> io::Result<u32> {
    let bytes = piece.get(..filled).unwrap_or_default();
    if at.is_multiple_of(BLOCK_BYTES) {
        file.write_blocks(bytes, at)?;
    } else {
        file.write(bytes, at)?;
    }
    Ok(at + u32::try_from(filled).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_end_at_a_block_and_are_complete() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = BlockWriter::default();
        for at in [32, 4_096, 5_000] {
            for len in [1, 3_000, 4_096, 300_000, PIECE_BYTES, 2 * PIECE_BYTES + 5] {
                let file = SegmentFile::open(dir.path(), at * 31 + u32::try_from(len).unwrap());
                let file = file.unwrap();
                file.fill(0, 4 << 20).unwrap();
                file.write(b"before", at - 6).unwrap();
                let bytes: Vec<_> = (0..len).map(|n| u8::try_from(n % 251).unwrap() + 1).collect();
                writer.write(&file, at, bytes.chunks(70_001)).unwrap();
                let end = (at as usize + len).next_multiple_of(BLOCK_BYTES as usize);
                let found = file.read(at - 6, u32::try_from(end).unwrap() - at + 6).unwrap();
                assert_eq!(&found[..6], b"before");
                assert!(found[6..6 + len] == bytes[..], "{len} bytes at {at}");
                assert!(found[6 + len..].iter().all(|byte| *byte == 0));
            }
        }
    }
}
