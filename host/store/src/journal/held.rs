//! The held payloads of a segment, and the gaps between them: bytes that are not read any more once
//! the segment is checkpointed.
//!
//! **Promise.** A gap has no byte of a held payload or of the segment's header. **Bounds.** Some 12
//! bytes of memory for each held payload, which has 16 KiB or more on the disk, and 4 bytes for
//! each payload that was released since the gaps were taken.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::journal::segment::{BLOCK_BYTES, HEADER_BYTES};
use crate::medium::PayloadLocation;

/// The payloads of one segment that jobs refer to.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// The length of each payload, by its position.
    payloads: BTreeMap<u32, u32>,
    bytes: u64,
    gaps: Gaps,
}

/// The gaps that were not taken yet.
#[derive(Debug, Default)]
enum Gaps {
    #[default]
    All,
    /// Those around the payloads at these positions, which were released since.
    Around(Vec<u32>),
}

impl Held {
    pub(super) fn hold(&mut self, location: PayloadLocation) {
        let before = self.payloads.insert(location.at, location.len);
        debug_assert_eq!(before, None, "a payload belongs to one job");
        self.bytes += u64::from(location.len);
    }

    pub(super) fn release(&mut self, location: PayloadLocation) {
        let found = self.payloads.remove(&location.at);
        debug_assert_eq!(found, Some(location.len), "what is released was held");
        self.bytes -= found.map_or(0, u64::from);
        if let Gaps::Around(released) = &mut self.gaps {
            released.push(location.at);
        }
    }

    pub(super) fn has(&self, location: PayloadLocation) -> bool {
        self.payloads.get(&location.at) == Some(&location.len)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.payloads.is_empty()
    }

    /// Whether there may be gaps that were not taken yet.
    pub(super) fn may_have_gaps(&self) -> bool {
        match &self.gaps {
            Gaps::All => true,
            Gaps::Around(released) => !released.is_empty(),
        }
    }

    /// The gaps of whole blocks that were not taken yet, in a file of `file_len` bytes. Cost: a
    /// step for each held payload the first time, and later one for each that was released since.
    pub(super) fn take_gaps(&mut self, file_len: u32) -> Vec<Range<u32>> {
        let mut gaps = Vec::new();
        let mut add = |gap: Range<u32>| {
            let from = gap.start.checked_next_multiple_of(BLOCK_BYTES);
            let gap = from.unwrap_or(u32::MAX)..gap.end - gap.end % BLOCK_BYTES;
            if gap.start < gap.end {
                gaps.push(gap);
            }
        };
        match std::mem::replace(&mut self.gaps, Gaps::Around(Vec::new())) {
            Gaps::All => {
                let mut end = HEADER_BYTES;
                for (at, len) in &self.payloads {
                    add(end..*at);
                    end = at.saturating_add(*len);
                }
                add(end..file_len);
            }
            Gaps::Around(mut released) => {
                released.sort_unstable();
                let mut next = 0;
                for at in released {
                    // Several released payloads can be in one gap.
                    if at >= next {
                        let before = self.payloads.range(..at).next_back();
                        let end = before.map_or(HEADER_BYTES, |(at, len)| at.saturating_add(*len));
                        next = self.payloads.range(at..).next().map_or(file_len, |(at, _)| *at);
                        add(end..next);
                    }
                }
            }
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::medium::SegmentId;

    fn location(at: u32, len: u32) -> PayloadLocation {
        PayloadLocation { segment: SegmentId(1), at, len }
    }

    #[test]
    fn gaps_are_whole_blocks_between_held_payloads_and_each_is_taken_once() {
        let mut held = Held::default();
        for at in [10_000, 30_000, 50_000, 70_000] {
            held.hold(location(at, 20_000));
        }
        assert_eq!(held.take_gaps(100_000), [4_096..8_192, 90_112..98_304]);
        assert!(!held.may_have_gaps() && held.take_gaps(100_000).is_empty());
        held.release(location(30_000, 20_000));
        held.release(location(50_000, 20_000));
        assert!(held.may_have_gaps() && held.bytes() == 40_000);
        assert!(held.has(location(10_000, 20_000)) && !held.has(location(30_000, 20_000)));
        assert_eq!(held.take_gaps(100_000).as_slice(), std::slice::from_ref(&(32_768..69_632)));
        held.release(location(70_000, 20_000));
        let again = held.take_gaps(100_000);
        assert_eq!(again.as_slice(), std::slice::from_ref(&(32_768..98_304)), "also earlier ones");
        held.release(location(10_000, 20_000));
        assert!(held.is_empty());
    }

    proptest! {
        /// All that is not held is a gap, except the header and parts of blocks.
        #[test]
        fn no_gap_has_a_byte_of_a_held_payload(
            payloads in prop::collection::vec((0_u32..40_000, 16_384_u32..60_000, any::<u8>()), 1..40),
        ) {
            let mut held = Held::default();
            let mut at = HEADER_BYTES;
            let mut locations = Vec::new();
            for (before, len, round) in payloads {
                at += before;
                held.hold(location(at, len));
                locations.push((location(at, len), round % 4));
                at += len;
            }
            let file_len = at + 50_000;
            let mut free = vec![false; file_len as usize];
            for round in 0..3 {
                for gap in held.take_gaps(file_len) {
                    prop_assert!(gap.start % BLOCK_BYTES == 0 && gap.end % BLOCK_BYTES == 0);
                    free[gap.start as usize..gap.end as usize].fill(true);
                }
                let (left, released) = locations.into_iter().partition(|(_, it)| *it != round);
                locations = left;
                let released: Vec<_> = released;
                for (location, _) in released {
                    held.release(location);
                }
            }
            for gap in held.take_gaps(file_len) {
                free[gap.start as usize..gap.end as usize].fill(true);
            }
            let mut needed = vec![false; file_len as usize];
            needed[..HEADER_BYTES as usize].fill(true);
            for (location, _) in &locations {
                let (at, len) = (location.at as usize, location.len as usize);
                needed[at..at + len].fill(true);
            }
            for block in 0..file_len / BLOCK_BYTES {
                let bytes = (block * BLOCK_BYTES) as usize..((block + 1) * BLOCK_BYTES) as usize;
                let is_needed = needed[bytes.clone()].contains(&true);
                prop_assert_eq!(free[bytes.start], !is_needed, "block {}", block);
            }
        }
    }
}
