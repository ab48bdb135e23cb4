//! The journal: where every change is first, and where it is acknowledged from.
//!
//! A batch is one frame ([`frame`]) at the end of the newest segment ([`segment`]), and one sync.
//! What a frame says is in [`image`]. The database takes over what is still needed of a segment
//! once the journal is long ([`checkpoint`](crate::checkpoint)); a job that came and went before
//! that never reaches it. Large payloads stay where they were written. A segment that the database
//! has taken over, and in which nothing is needed any more, is written over.
//!
//! **Invariants.** One thread appends. The segments after the last settled one have numbers without
//! a gap, and each says where the one before it ended. Bytes that something points to are *held*,
//! and a segment with held bytes is not written over; a reader that still looks at it afterwards
//! keeps its file from being used again.
//!
//! **Bounds.** Up to [`Settings::journal_bytes`](crate::Settings::journal_bytes) wait for the
//! database; at twice as much, appending waits too. Files of held payloads come on top.

mod blocks;
mod copy;
mod descriptors;
pub(crate) mod frame;
pub(crate) mod image;
pub(crate) mod segment;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::db::make_private_dir;
use crate::error::Failure;
use crate::journal::blocks::BlockWriter;
pub(crate) use crate::journal::copy::SegmentCopy;
use crate::journal::frame::{Extent, Frames, HEAD_BYTES};
use crate::journal::segment::{HEADER_BYTES, Header, Place, SegmentFile, SegmentId};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// Bytes by which a new file grows ahead of small frames that are written into it. A large frame
/// pays for the file system's note by itself.
const GROWTH_BYTES: u32 = 1 << 20;

/// The segments of one directory.
#[derive(Debug)]
pub(crate) struct Journal {
    dir: PathBuf,
    /// The same, open: making a file does not need a descriptor for it.
    directory: File,
    bounds: Bounds,
    segments: Mutex<Segments>,
    /// Told when a segment is settled, or when there will be no more of it.
    settled: Condvar,
}

/// How large the journal may grow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Bytes of a segment; a larger frame has a segment of its own.
    pub(crate) segment_bytes: u32,
    /// Segments that may wait for the database.
    pub(crate) unsettled_max: usize,
}

#[derive(Debug)]
struct Segments {
    /// Those in which something is needed, or may be.
    used: BTreeMap<SegmentId, Segment>,
    /// Files without a use.
    free: Vec<Arc<SegmentFile>>,
    slots: u32,
    /// The database has taken over this one and all before it.
    settled: SegmentId,
    /// The newest.
    last: SegmentId,
    /// Whether the newest is being appended to.
    is_last_open: bool,
    /// Where it ends so far, then.
    open_end: u32,
    /// Nothing is settled any more: do not wait for it.
    is_closed: bool,
}

/// A segment that is in use.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) file: Arc<SegmentFile>,
    pub(crate) header: Header,
    /// Where it ends, once another one was begun.
    pub(crate) end: Option<u32>,
    held_bytes: u64,
}

impl Journal {
    /// Opens the journal in `dir`, of which the database has taken over all up to `settled`.
    /// Answers also with the segments after that, oldest first.
    pub(crate) fn open(
        dir: &Path,
        settled: SegmentId,
        bounds: Bounds,
    ) -> io::Result<(Self, Vec<Segment>)> {
        let mut segments = Segments {
            used: BTreeMap::new(),
            free: Vec::new(),
            slots: 0,
            settled,
            last: settled,
            is_last_open: false,
            open_end: 0,
            is_closed: false,
        };
        make_private_dir(dir)?;
        if let Some(parent) = dir.parent() {
            File::open(parent)?.sync_all()?;
        }
        for entry in fs::read_dir(dir)? {
            let name = entry?.file_name();
            let Some(slot) = name.to_str().and_then(SegmentFile::slot_of) else { continue };
            segments.slots = segments.slots.max(slot);
            let file = Arc::new(SegmentFile::open(dir, slot)?);
            match file.header()? {
                Some(header) => {
                    segments.last = segments.last.max(header.id);
                    segments
                        .used
                        .insert(header.id, Segment { file, header, end: None, held_bytes: 0 });
                }
                None => segments.free.push(file),
            }
        }
        let unsettled: Vec<_> =
            segments.used.range(after(settled)..).map(|(_, segment)| segment.clone()).collect();
        for (earlier, later) in unsettled.iter().zip(unsettled.iter().skip(1)) {
            if let Some(segment) = segments.used.get_mut(&earlier.header.id) {
                segment.end = Some(later.header.end_before);
            }
        }
        for (segment, expected) in unsettled.iter().zip(settled.0 + 1..) {
            if segment.header.id != SegmentId(expected) {
                let details = format!("segment {expected} of the journal is missing");
                return Err(damaged(details));
            }
        }
        let journal = Self {
            dir: dir.to_owned(),
            directory: File::open(dir)?,
            bounds,
            segments: Mutex::new(segments),
            settled: Condvar::new(),
        };
        Ok((journal, unsettled))
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The bytes at `place`; `None` when the segment is gone: what was there is elsewhere now, or
    /// nowhere.
    pub(crate) fn read(&self, place: Place) -> io::Result<Option<Bytes>> {
        let file = match self.segments().used.get(&place.segment) {
            Some(segment) => segment.file.clone(),
            None => return Ok(None),
        };
        file.read(place.at, place.len).map(|bytes| Some(bytes.into()))
    }

    /// Keeps the bytes at `places` from being written over.
    pub(crate) fn hold(&self, places: impl Iterator<Item = Place>) {
        self.for_each(places, |segments, place| {
            let segment = segments.used.get_mut(&place.segment);
            debug_assert!(segment.is_some(), "what is held is there");
            if let Some(segment) = segment {
                segment.held_bytes += u64::from(place.len);
            }
        });
    }

    /// Takes a [`hold`](Self::hold) back.
    pub(crate) fn release(&self, places: impl Iterator<Item = Place>) {
        self.for_each(places, |segments, place| {
            let settled = segments.settled;
            let segment = segments.used.get_mut(&place.segment);
            debug_assert!(segment.is_some(), "what is held is there");
            if let Some(segment) = segment {
                segment.held_bytes -= u64::from(place.len);
                if segment.held_bytes == 0 && place.segment <= settled {
                    segments.free(place.segment);
                }
            }
        });
    }

    /// Takes the lock only when there is any place, which for most jobs there is not.
    fn for_each(
        &self,
        places: impl Iterator<Item = Place>,
        mut each: impl FnMut(&mut Segments, Place),
    ) {
        let mut places = places.peekable();
        if places.peek().is_some() {
            let mut segments = self.segments();
            places.for_each(|place| each(&mut segments, place));
        }
    }

    /// Whether bytes at `place` can be held.
    pub(crate) fn has(&self, place: Place) -> bool {
        self.segments().used.contains_key(&place.segment)
    }

    /// The segment that the database is to take over next, if the journal is long.
    pub(crate) fn to_settle(&self) -> Option<Segment> {
        let segments = self.segments();
        let is_long = segments.unsettled() > self.bounds.unsettled_max;
        let first = segments.used.range(after(segments.settled)..).next();
        first.filter(|_| is_long).map(|(_, segment)| segment.clone())
    }

    /// A segment in which little is held, while there are many such: what is left in it should move.
    pub(crate) fn to_compact(&self) -> Option<SegmentId> {
        let segments = self.segments();
        let settled = segments.used.range(..=segments.settled);
        let held = settled.clone().map(|(_, segment)| segment.held_bytes).sum::<u64>();
        let segment_bytes = u64::from(self.bounds.segment_bytes);
        let bytes = settled.clone().count() as u64 * segment_bytes;
        let spare = self.bounds.unsettled_max as u64 * segment_bytes;
        let sparsest = settled.min_by_key(|(_, segment)| segment.held_bytes);
        sparsest.filter(|_| bytes > 2 * held + spare).map(|(id, _)| *id)
    }

    /// The database has taken over the segment and all before it.
    pub(crate) fn set_settled(&self, id: SegmentId) {
        let mut segments = self.segments();
        debug_assert!(id > segments.settled, "segments are settled in their order");
        segments.settled = id;
        segments.free_unheld();
        drop(segments);
        self.settled.notify_all();
    }

    /// Forgets segments in which nothing is needed. For a start, once all that is needed is held.
    pub(crate) fn free_unheld(&self) {
        self.segments().free_unheld();
    }

    /// Gives files back to the file system, when there are more than will soon be used.
    pub(crate) fn trim(&self) -> io::Result<()> {
        let mut segments = self.segments();
        let mut surplus = Vec::new();
        while segments.free.len() > self.bounds.unsettled_max {
            surplus.extend(segments.free.pop());
        }
        drop(segments);
        surplus.iter().try_for_each(|file| file.remove(&self.dir))
    }

    /// All that is needed of the journal now. What is copied is not written over meanwhile: it is
    /// being read.
    pub(crate) fn copy(&self) -> io::Result<Vec<SegmentCopy>> {
        let segments = self.segments();
        let copy = |(id, segment): (&SegmentId, &Segment)| {
            let is_open = segments.is_last_open && *id == segments.last;
            let len = match segment.end {
                Some(end) => end.into(),
                None if is_open => segments.open_end.into(),
                None => segment.file.len()?,
            };
            Ok(SegmentCopy::new(segment.file.clone(), len))
        };
        segments.used.iter().map(copy).collect()
    }

    /// Nothing will be settled any more.
    pub(crate) fn close(&self) {
        self.segments().is_closed = true;
        self.settled.notify_all();
    }

    /// Waits while the database is far behind.
    pub(crate) fn wait_for_room(&self) {
        let mut segments = self.segments();
        while segments.unsettled() > 2 * self.bounds.unsettled_max && !segments.is_closed {
            self.settled.wait(&mut segments);
        }
    }

    /// Begins a segment, in a file that nobody reads any more or a new one.
    fn begin(&self, end_before: u32) -> io::Result<Open> {
        let file = self.unused_file()?;
        let mut segments = self.segments();
        segments.is_last_open = false;
        let next =
            segments.last.0.checked_add(1).ok_or_else(|| io::Error::other("2^32 segments"))?;
        let header = Header { id: SegmentId(next), end_before, salt: rand::random() };
        file.begin(header)?;
        let last = segments.last;
        if let Some(last) = segments.used.get_mut(&last) {
            last.end = Some(end_before);
        }
        segments.last = header.id;
        segments.is_last_open = true;
        segments.open_end = HEADER_BYTES;
        let segment = Segment { file: file.clone(), header, end: None, held_bytes: 0 };
        segments.used.insert(header.id, segment);
        let file_len = file.len()?;
        Ok(Open { file, header, at: HEADER_BYTES, frames: 0, file_len })
    }

    /// A file without readers, or a new one. A new file is made without the lock: with no descriptor
    /// free this waits, and payloads can be read meanwhile.
    fn unused_file(&self) -> io::Result<Arc<SegmentFile>> {
        let mut segments = self.segments();
        let unread = segments.free.iter().position(|file| Arc::strong_count(file) == 1);
        if let Some(at) = unread {
            return Ok(segments.free.swap_remove(at));
        }
        segments.slots += 1;
        let slot = segments.slots;
        drop(segments);
        let file = descriptors::wait_for(|| SegmentFile::open(&self.dir, slot))?;
        // Its name is to survive as well as what is in it.
        self.directory.sync_all()?;
        Ok(Arc::new(file))
    }

    fn segments(&self) -> MutexGuard<'_, Segments> {
        self.segments.lock()
    }
}

impl Segments {
    /// How many wait for the database; the one that is being appended to does not yet.
    fn unsettled(&self) -> usize {
        let after_settled = self.used.range(after(self.settled)..).count();
        after_settled - usize::from(self.is_last_open)
    }

    fn free_unheld(&mut self) {
        let settled = self.used.range(..=self.settled);
        let unheld = settled.filter(|(_, segment)| segment.held_bytes == 0);
        for id in unheld.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.free(id);
        }
    }

    fn free(&mut self, id: SegmentId) {
        self.free.extend(self.used.remove(&id).map(|segment| segment.file));
    }
}

/// What is in the journal is not what was written.
pub(crate) fn damaged(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

fn after(id: SegmentId) -> SegmentId {
    SegmentId(id.0.saturating_add(1))
}

/// The end of the journal. There is one of them.
#[derive(Debug)]
pub(crate) struct Appender {
    journal: Arc<Journal>,
    open: Option<Open>,
    blocks: BlockWriter,
    /// Where the newest segment of an earlier process ended.
    end_before: u32,
}

/// The segment that is being written.
#[derive(Debug)]
struct Open {
    file: Arc<SegmentFile>,
    header: Header,
    at: u32,
    frames: u32,
    file_len: u64,
}

/// A frame that is on stable storage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Appended {
    /// All its payloads, one after the other.
    pub(crate) payloads: Place,
    /// Whether it is the first of its segment, so that the one before may be settled.
    pub(crate) is_first: bool,
}

impl Appender {
    /// An appender to a journal that ended at `end_before` in its newest segment. It begins one of
    /// its own: nobody can tell what the last process has left behind that end.
    pub(crate) fn new(journal: Arc<Journal>, end_before: u32) -> Self {
        Self { journal, open: None, blocks: BlockWriter::default(), end_before }
    }

    /// Appends a frame. It is on stable storage when this returns `Ok`.
    pub(crate) fn append(&mut self, says: &[u8], payloads: &[Bytes]) -> io::Result<Appended> {
        let too_large = || io::Error::other("a batch of 4 GiB");
        let payload_bytes = payloads.iter().map(Bytes::len).sum::<usize>();
        let payload_bytes = u32::try_from(payload_bytes).map_err(|_| too_large())?;
        let says_bytes = u32::try_from(says.len()).map_err(|_| too_large())?;
        let extent_at = |at| Extent::of(at, says_bytes, payload_bytes);
        let segment_bytes = self.journal.bounds.segment_bytes;
        let fits = |open: &Open| extent_at(open.at).is_some_and(|it| it.end <= segment_bytes);
        let open = match &mut self.open {
            Some(open) if fits(open) => open,
            full => {
                let end_before = full.as_ref().map_or(self.end_before, |open| open.at);
                full.insert(self.journal.begin(end_before)?)
            }
        };
        let Extent { is_large, end } = extent_at(open.at).ok_or_else(too_large)?;
        let parts = payloads.iter().map(|payload| &payload[..]);
        let head = frame::head(open.header.salt, open.frames, says, parts.clone());
        let parts = [&head[..], says].into_iter().chain(parts);
        if is_large {
            self.blocks.write(&open.file, open.at, parts)?;
            open.file_len = open.file_len.max(end.into());
        } else {
            open.make_room(end, segment_bytes)?;
            open.file.write(&parts.collect::<Vec<_>>().concat(), open.at)?;
        }
        open.file.sync()?;
        let at = open.at + HEAD_BYTES + says_bytes;
        let payloads = Place { segment: open.header.id, at, len: payload_bytes };
        open.at = end;
        open.frames += 1;
        self.journal.segments().open_end = end;
        Ok(Appended { payloads, is_first: open.frames == 1 })
    }
}

impl Open {
    /// Lets the file reach to `end`, and a little further.
    fn make_room(&mut self, end: u32, segment_bytes: u32) -> io::Result<()> {
        if u64::from(end) > self.file_len {
            self.file_len = end.max(end.saturating_add(GROWTH_BYTES).min(segment_bytes)).into();
            self.file.fill(end.into(), self.file_len)?;
        }
        Ok(())
    }
}

/// Reads what is left of earlier processes: hands each frame to `take`, oldest first, and answers
/// with the end of the newest segment.
///
/// # Errors
/// [`Failure::Journal`] of kind [`InvalidData`](io::ErrorKind::InvalidData) when a frame in the
/// middle cannot be read. What was being written when the last process ended is no error.
pub(crate) fn replay(
    unsettled: &[Segment],
    mut take: impl FnMut(&frame::Frame<'_>) -> Result<(), Failure>,
) -> Result<u32, Failure> {
    let mut end = None;
    for Segment { file, header, .. } in unsettled {
        if let Some(end) = end.filter(|end| *end != header.end_before) {
            let (before, ended) = (header.id.0 - 1, header.end_before);
            let details =
                format!("segment {before} ended at byte {ended}, and can be read to {end}");
            return Err(damaged(details).into());
        }
        let mut frames = Frames::new(file, *header)?;
        while let Some(frame) = frames.next()? {
            take(&frame)?;
        }
        end = Some(frames.at());
    }
    Ok(end.unwrap_or(0))
}
