//! Examines the bytes behind the first incomplete frame of a segment.
//!
//! A frame is written only after the previous frame was synced. A complete frame of the same use of
//! the file (its salt) with a higher number therefore proves that the bad frame was complete and
//! acknowledged: it is damaged. Without such a frame, the bad frame was being written when the
//! process or the power failed, and was never acknowledged. A damaged last frame looks the same;
//! after an orderly end the tables know the segment's end.
//!
//! Cost: one pass over the bytes behind the last complete frame (some 0.1 s for 64 MiB), and
//! checksums of the few byte sequences that look like a head. Runs once for each start after a
//! crash.

use std::io;

use crate::journal::frame::{Extent, HEAD_BYTES};
use crate::journal::segment::{Header, SegmentFile};

/// Bytes that are examined in one step.
const PIECE_BYTES: u32 = 1 << 20;

/// Bound on the checksummed bytes, as a multiple of the bytes behind the end. Bytes of payloads can
/// look like heads of large frames; each such head costs a checksum, and none passes for a frame.
const CHECKED_TIMES_MAX: u64 = 64;

/// Bytes of the smallest frame.
const FRAME_BYTES_MIN: u32 = HEAD_BYTES + 1;

/// A possible head of a frame, with its fields: number, bytes of the encoded batch, bytes of its
/// payloads.
struct Candidate {
    at: u32,
    number: u32,
    batch_bytes: u32,
    payloads: u32,
}

/// The position and number of the first complete frame at or behind `from` with a number greater
/// than `number`.
pub(crate) fn find_frame(
    file: &SegmentFile,
    header: Header,
    number: u32,
    from: u32,
) -> io::Result<Option<(u32, u32)>> {
    let len = u32::try_from(file.len()?).unwrap_or(u32::MAX);
    let mut budget = CHECKED_TIMES_MAX * u64::from(len.saturating_sub(from));
    let mut at = from;
    while at.saturating_add(HEAD_BYTES) <= len {
        let until = len.min(at.saturating_add(PIECE_BYTES + HEAD_BYTES - 1));
        let bytes = file.read(at, until - at)?;
        for (offset, head) in (at..).zip(bytes.windows(HEAD_BYTES as usize)) {
            let Some(head) = candidate(head, offset, number, len) else { continue };
            let bytes = u64::from(head.batch_bytes) + u64::from(head.payloads);
            if bytes > budget {
                return Ok(None);
            }
            budget -= bytes;
            if is_whole(file, header.salt, &head)? {
                return Ok(Some((offset, head.number)));
            }
        }
        at = at.saturating_add(PIECE_BYTES);
    }
    Ok(None)
}

/// The fields, if the bytes can be the head of a frame with a number greater than `number`.
fn candidate(head: &[u8], at: u32, number: u32, len: u32) -> Option<Candidate> {
    let field = |n: usize| {
        head.get(4 * n..).and_then(<[u8]>::first_chunk).map(|bytes| u32::from_le_bytes(*bytes))
    };
    let found = field(1)?;
    // The segment has room for at most this many frames.
    let number_max = number.saturating_add(len / FRAME_BYTES_MIN + 1);
    if found <= number || found > number_max {
        return None;
    }
    let (batch_bytes, payloads) = (field(2)?, field(3)?);
    let extent = Extent::of(at, batch_bytes, payloads)?;
    (batch_bytes > 0 && extent.end <= len).then_some(Candidate {
        at,
        number: found,
        batch_bytes,
        payloads,
    })
}

fn is_whole(file: &SegmentFile, salt: u64, head: &Candidate) -> io::Result<bool> {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    let (mut at, end) = (head.at + 4, head.at + HEAD_BYTES + head.batch_bytes + head.payloads);
    while at < end {
        let bytes = file.read(at, PIECE_BYTES.min(end - at))?;
        hasher.update(&bytes);
        at += PIECE_BYTES.min(end - at);
    }
    let sum = file.read(head.at, 4)?;
    Ok(sum.first_chunk().is_some_and(|sum| u32::from_le_bytes(*sum) == hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::checksum::PayloadPart;
    use crate::journal::frame;
    use crate::journal::segment::HEADER_BYTES;
    use crate::medium::SegmentId;

    fn frame(salt: u64, number: u32, payload: &[u8]) -> Vec<u8> {
        let head =
            frame::head(salt, number, b"says", &[PayloadPart::Bytes(payload.to_vec().into())]);
        [&head[..], b"says", payload].concat()
    }

    #[test]
    fn a_frame_after_damage_is_found_and_nothing_else_is_mistaken_for_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = SegmentFile::open(dir.path(), 1).unwrap();
        let header = Header { id: SegmentId(1), end_before: 0, salt: 7 };
        file.fill(0, 3 << 20).unwrap();
        let find = |from| find_frame(&file, header, 4, from).unwrap();
        assert_eq!(find(HEADER_BYTES), None, "zeros");
        // A frame of another use of the file, a frame with an earlier number, and a frame with a
        // flipped bit.
        let mut flipped = frame(7, 5, b"x");
        flipped[20] ^= 4;
        for (at, bytes) in [(100, frame(8, 5, b"x")), (200, frame(7, 4, b"x")), (300, flipped)] {
            file.write(&bytes, at).unwrap();
            assert_eq!(find(HEADER_BYTES), None, "{at}");
        }
        // A large frame across the border of a piece, and not at its own position.
        let large = frame(7, 9, &vec![1; 1 << 20]);
        file.write(&large, PIECE_BYTES - 3).unwrap();
        for from in [HEADER_BYTES, 101, PIECE_BYTES - 3] {
            assert_eq!(find(from), Some((PIECE_BYTES - 3, 9)), "{from}");
        }
        assert_eq!(find(PIECE_BYTES - 2), None);
    }

    #[test]
    fn frame_heads_in_payloads_do_not_slow_the_search_without_bound() {
        let dir = tempfile::tempdir().unwrap();
        let file = SegmentFile::open(dir.path(), 1).unwrap();
        let header = Header { id: SegmentId(1), end_before: 0, salt: 7 };
        let head = [9, 9, 9, 9, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 7, 0];
        file.write(&head.repeat(100_000), HEADER_BYTES).unwrap();
        assert_eq!(find_frame(&file, header, 4, HEADER_BYTES).unwrap(), None);
    }
}
