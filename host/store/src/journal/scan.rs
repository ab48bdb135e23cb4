//! Reads the segments of a directory for programs that look for damage: nothing is written, and
//! damage in one place does not stop the reading of the rest.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::damage::Damage;
use crate::journal::JournalRecord;
use crate::journal::checksum;
use crate::journal::damage;
use crate::journal::frame::{Frame, Frames};
use crate::journal::segment::{Header, SegmentFile};
use crate::journal::tail;
use crate::medium::{PayloadLocation, SegmentId};

/// The segments that were found, and the files that are not segments.
pub(crate) struct Scan {
    pub(crate) segments: BTreeMap<SegmentId, Scanned>,
    pub(crate) damage: Vec<Damage>,
    known: JournalRecord,
}

/// A segment that was found.
pub(crate) struct Scanned {
    pub(crate) file: Arc<SegmentFile>,
    pub(crate) header: Header,
    /// The recorded end, if there is one.
    pub(crate) end: Option<u32>,
    /// Whether the next segment has recorded the end, in a header with a checksum. Frames behind
    /// such an end were not acknowledged: their write failed.
    is_end_certain: bool,
}

fn missing(first: u64, last: u64) -> String {
    match first == last {
        true => format!("segment {first} of the journal is missing"),
        false => format!("segments {first} to {last} of the journal are missing"),
    }
}

impl Scan {
    /// Reads the headers of all files in `dir`.
    pub(crate) fn open(dir: &Path, known: JournalRecord) -> io::Result<Self> {
        let mut scan = Self { segments: BTreeMap::new(), damage: Vec::new(), known };
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries.collect::<Result<Vec<_>, _>>()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let name = entry.file_name();
            let Some(slot) = name.to_str().and_then(SegmentFile::slot_of) else { continue };
            let file = Arc::new(SegmentFile::open_to_read(dir, slot)?);
            match file.header()? {
                Some(header) => {
                    scan.segments.insert(
                        header.id,
                        Scanned { file, header, end: None, is_end_certain: false },
                    );
                }
                None if file.is_blank()? => {}
                None => {
                    let details = "the header of this segment of the journal is damaged";
                    scan.damage.push(damage(dir, &file, 0, details));
                }
            }
        }
        scan.find_ends(dir);
        Ok(scan)
    }

    fn find_ends(&mut self, dir: &Path) {
        let JournalRecord { checkpointed, last, end, .. } = self.known;
        let newest = self.segments.keys().next_back().copied().unwrap_or(checkpointed).max(last);
        let present = self.segments.keys().filter(|id| **id > checkpointed);
        let present = present.map(|id| u64::from(id.0)).chain([u64::from(newest.0) + 1]);
        // A damaged number of the newest segment can be billions ahead: so ranges are listed, not
        // numbers.
        let mut expected = u64::from(checkpointed.0) + 1;
        for number in present {
            if number > expected {
                let details = missing(expected, number - 1);
                self.damage.push(Damage { file: dir.to_owned(), offset: None, details });
            }
            expected = number + 1;
        }
        let ends: Vec<_> = self.segments.values().map(|it| it.header).collect();
        for header in ends {
            let before = SegmentId(header.id.0.saturating_sub(1));
            if let Some(before) = self.segments.get_mut(&before) {
                before.end = Some(header.end_before);
                before.is_end_certain = true;
            }
        }
        if let (Some(newest), Some(end)) = (self.segments.get_mut(&last), end) {
            newest.end = newest.end.or(Some(end));
        }
    }

    /// The segments that are not checkpointed, oldest first.
    pub(crate) fn uncheckpointed(&self) -> impl Iterator<Item = &Scanned> {
        self.segments
            .range(SegmentId(self.known.checkpointed.0.saturating_add(1))..)
            .map(|(_, it)| it)
    }

    /// A payload that stays in the journal.
    pub(crate) fn payload(
        &self,
        dir: &Path,
        location: PayloadLocation,
    ) -> io::Result<Result<Vec<u8>, Damage>> {
        let Some(Scanned { file, .. }) = self.segments.get(&location.segment) else {
            let details = format!("segment {} of the journal is missing", location.segment.0);
            return Ok(Err(Damage { file: dir.to_owned(), offset: None, details }));
        };
        let damaged = |details: &str| {
            damage(dir, file, location.at, format!("{details} of {} bytes", location.len))
        };
        let mut bytes = match file.read(location.at, location.len) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(Err(damaged("the file ends before a payload")));
            }
            Err(error) => return Err(error),
        };
        let Some(len) = checksum::checked(&bytes).map(<[u8]>::len) else {
            return Ok(Err(damaged("damaged payload")));
        };
        bytes.truncate(len);
        Ok(Ok(bytes))
    }
}

impl Scanned {
    /// Passes each intact frame with its position to `take`, and each gap between them, with its
    /// begin and end, to `lose`. Returns the end of the last intact frame: a start refuses a
    /// segment that ends elsewhere than the recorded end.
    pub(crate) fn each_frame(
        &self,
        mut take: impl FnMut(u32, &Frame<'_>),
        mut lose: impl FnMut(u32, Option<u32>),
    ) -> io::Result<u32> {
        let certain_end = self.end.filter(|_| self.is_end_certain);
        let mut frames = Frames::new(&self.file, self.header)?.up_to(certain_end);
        loop {
            let mut at = frames.at();
            while let Some(frame) = frames.next()? {
                take(at, &frame);
                at = frames.at();
            }
            let next = match certain_end {
                Some(end) if end <= at => None,
                _ => tail::find_frame(&self.file, self.header, frames.number(), at)?,
            };
            match next.filter(|(next, _)| certain_end.is_none_or(|end| *next < end)) {
                Some((next, number)) => {
                    lose(at, Some(next));
                    frames = frames.from(next, number);
                }
                None => {
                    if let Some(end) = self.end.filter(|end| *end > at) {
                        lose(at, Some(end));
                    }
                    return Ok(at);
                }
            }
        }
    }
}
