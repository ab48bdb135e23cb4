//! Debts of checkpoints, and holes in a real segment beside readers, backups and reuse.

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
        .map(|byte| checksum::add(&mut parts, [Bytes::from(vec![byte; PAYLOAD_BYTES as usize])]))
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
