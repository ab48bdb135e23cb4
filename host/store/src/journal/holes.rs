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
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use bytes::Bytes;

    use crate::journal::checksum;
    use crate::journal::segment::BLOCK_BYTES;
    use crate::journal::{Appender, Bounds, Journal, JournalRecord};
    use crate::medium::{Medium as _, PayloadLocation, SegmentId};

    const PAYLOAD_BYTES: u32 = 20_000;

    fn journal(dir: &Path) -> (Arc<Journal>, Appender) {
        let none = SegmentId(0);
        let known = JournalRecord { checkpointed: none, last: none, end: None };
        let bounds = Bounds { segment_bytes: 1 << 20, uncheckpointed_max: 1 };
        let journal = Arc::new(Journal::open(dir, known, bounds).unwrap().0);
        (journal.clone(), Appender::new(journal, 0))
    }

    /// Appends a frame of four payloads, and returns their locations.
    fn append(appender: &mut Appender) -> Vec<PayloadLocation> {
        let mut parts = Vec::new();
        let lengths: Vec<_> = (1..=4)
            .map(|byte| {
                checksum::add(&mut parts, [Bytes::from(vec![byte; PAYLOAD_BYTES as usize])])
            })
            .collect();
        let mut next = appender.append(b"batch", &parts).unwrap().payloads;
        let location = |len| {
            let location = PayloadLocation { len, ..next };
            next.at += len;
            location
        };
        lengths.into_iter().map(location).collect()
    }

    #[test]
    fn a_checkpoint_that_begins_again_settles_no_byte_twice() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, mut appender) = journal(dir.path());
        append(&mut appender);
        journal.owe(SegmentId(1), 100);
        let settle = |written| journal.settle_up_to(SegmentId(1), written);
        assert_eq!((settle(30), settle(70), journal.backlog_bytes()), (30, 40, 30));
        assert_eq!((settle(10), settle(70), settle(90), settle(200)), (0, 0, 20, 10));
        assert_eq!((journal.backlog_bytes(), settle(300)), (0, 0));
    }

    #[test]
    fn unneeded_payloads_become_holes_once_no_reader_and_no_checkpoint_needs_them() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, mut appender) = journal(dir.path());
        let locations = append(&mut appender);
        let [first, second, third, fourth] = locations[..] else { panic!("{locations:?}") };
        journal.hold(&mut [second, third, fourth].into_iter());
        let gaps = || journal.next_gaps().unwrap();
        let is_whole = |location| journal.read(location).unwrap().is_some();
        assert!(gaps().is_none(), "a start would read the frames");
        assert!(is_whole(first));
        assert_eq!(appender.begin_segment().unwrap(), SegmentId(2));
        journal.set_checkpointed(SegmentId(1));
        assert!(!is_whole(first), "it is in the tables");
        journal.release(&mut [third].into_iter());
        assert!(!is_whole(third), "it is deleted");

        let copy = journal.copy().unwrap();
        assert!(gaps().is_none(), "a backup needs what was released after its instant");
        drop(copy);
        let found = gaps().unwrap();
        assert!(gaps().is_none(), "each gap is returned once");
        journal.make_holes(&found).unwrap();
        let file = found.file.clone();
        drop(found);
        if !file.has_holes().unwrap() {
            println!("skipped: the file system of temporary files makes no holes");
            return;
        }
        let block = third.at.next_multiple_of(BLOCK_BYTES);
        assert_eq!(file.read(block, BLOCK_BYTES).unwrap(), [0; BLOCK_BYTES as usize]);
        assert!(is_whole(second) && is_whole(fourth) && file.header().unwrap().is_some());
        journal.release(&mut [fourth].into_iter());
        assert!(gaps().is_none(), "`file` is a reader");
        drop(file);
        let found = gaps().unwrap();
        journal.make_holes(&found).unwrap();
        assert!(is_whole(second) && !is_whole(fourth));

        // The next use of the file begins with a file without holes.
        let file = found.file.clone();
        drop(found);
        journal.release(&mut [second].into_iter());
        drop(file);
        assert_eq!(appender.begin_segment().unwrap(), SegmentId(2), "it has no frame");
        append(&mut appender);
        assert_eq!(appender.begin_segment().unwrap(), SegmentId(3));
        let reused = &journal.segments().used[&SegmentId(3)].file;
        assert!(reused.slot == 1 && !reused.has_holes().unwrap());
    }
}
