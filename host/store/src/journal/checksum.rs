//! The checksum behind each payload in the journal. The checksum of a frame covers its payloads
//! too, but a reader of one payload does not read the whole frame.
//!
//! **Cost.** 4 bytes for each payload. The bytes of a small payload are read twice when it is
//! written, for its own checksum and for that of its frame. The checksum of a large one becomes a
//! part of the frame's without another pass, which would take some 0.1 ms for a megabyte.

use std::borrow::Cow;
use std::ops::Deref;

use bytes::Bytes;
use crc32fast::Hasher;

/// From this size on, combining two checksums is cheaper than another pass over the bytes.
const COMBINED_FROM_BYTES: u64 = 32 << 10;

/// Bytes of a checksum.
pub(crate) const SUM_BYTES: u32 = 4;

/// The checksum of one payload, as it is stored in the journal and in the tables.
pub(crate) fn of(payload: &[u8]) -> u32 {
    crc32fast::hash(payload)
}

/// The payload without the checksum behind it; `None` when that is wrong.
pub(crate) fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let (payload, sum) = bytes.split_last_chunk()?;
    (of(payload) == u32::from_le_bytes(*sum)).then_some(payload)
}

/// The same for borrowed or owned bytes.
pub(crate) fn checked_cow(bytes: Cow<'_, [u8]>) -> Option<Cow<'_, [u8]>> {
    match bytes {
        Cow::Borrowed(bytes) => checked(bytes).map(Cow::Borrowed),
        Cow::Owned(mut bytes) => {
            let len = checked(&bytes)?.len();
            bytes.truncate(len);
            Some(Cow::Owned(bytes))
        }
    }
}

/// A part of the payloads of a frame.
#[derive(Debug, Clone)]
pub(crate) enum PayloadPart {
    Bytes(Bytes),
    /// The checksum of the preceding pieces, back to the previous checksum.
    Sum {
        of: Hasher,
        bytes: [u8; SUM_BYTES as usize],
    },
}

impl Deref for PayloadPart {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Sum { bytes, .. } => bytes,
        }
    }
}

/// Adds a payload that consists of `parts`, and returns the bytes that it takes with its checksum.
pub(crate) fn add(pieces: &mut Vec<PayloadPart>, parts: impl IntoIterator<Item = Bytes>) -> u32 {
    let mut hasher = Hasher::new();
    let mut len = SUM_BYTES;
    for part in parts {
        hasher.update(&part);
        len += u32::try_from(part.len()).expect("a payload is far below 4 GiB");
        pieces.push(PayloadPart::Bytes(part));
    }
    let bytes = hasher.clone().finalize().to_le_bytes();
    pieces.push(PayloadPart::Sum { of: hasher, bytes });
    len
}

/// Adds the bytes of whole payloads, each with its checksum, to the checksum of their frame.
pub(crate) fn cover(frame: &mut Hasher, parts: &[PayloadPart]) {
    for payload in parts.split_inclusive(|part| matches!(part, PayloadPart::Sum { .. })) {
        match payload.split_last() {
            Some((PayloadPart::Sum { of, bytes }, _)) if of.total_len() >= COMBINED_FROM_BYTES => {
                frame.combine(of);
                frame.update(bytes);
            }
            _ => payload.iter().for_each(|part| frame.update(part)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_the_checksum_of_all_its_bytes() {
        let large = usize::try_from(COMBINED_FROM_BYTES).unwrap();
        let mut pieces = Vec::new();
        for lengths in [[0, 0], [3, 5], [large - 1, 1], [0, large], [large, large - 1], [1, 0]] {
            let part =
                |length: usize| Bytes::from(vec![u8::try_from(length % 251).unwrap(); length]);
            add(&mut pieces, lengths.map(part));
            let mut frame = Hasher::new();
            frame.update(b"head");
            cover(&mut frame, &pieces);
            let whole: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
            assert_eq!(frame.finalize(), of(&[b"head", &whole[..]].concat()), "{lengths:?}");
        }
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let mut pieces = Vec::new();
        let parts = [Bytes::from_static(b"gra"), Bytes::new(), Bytes::from_static(b"in")];
        assert_eq!(add(&mut pieces, parts), 9);
        let whole: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
        assert_eq!(checked(&whole), Some(&b"grain"[..]));
        for bit in 0..8 * whole.len() {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(checked(&flipped), None, "{bit}");
            assert_eq!(checked_cow(flipped.into()), None, "{bit}");
        }
        assert_eq!(checked_cow(whole.into()).as_deref(), Some(&b"grain"[..]));
        assert_eq!(checked(b"abc"), None);
    }
}
