//! The journal: every change is written here first, and acknowledged once it is here.
//!
//! A batch is one frame ([`frame`]) at the end of the newest segment ([`segment`]), and one sync.
//! The journal knows bytes and their locations; [`format`](crate::format) has the encoding of a
//! batch. Once the journal is long, the [checkpoint](crate::checkpoint::segment) copies the live
//! data of the oldest segment into the database; a job that is created and deleted before that
//! never reaches the database. Large payloads stay where they were written. A segment that is
//! checkpointed, and in which nothing is needed any more, is overwritten. On a nearly full disk the
//! bytes of such a segment that are not needed become [holes].
//!
//! A start refuses a journal in which acknowledged data is missing or damaged ([`tail`]). Each
//! payload has its own checksum ([`checksum`]).
//!
//! **Invariants.** One thread appends. The segments that are not checkpointed have consecutive
//! numbers, and each records where the previous one ended. Bytes that a job or delivery refers to
//! are *held*, and a segment with held bytes is not overwritten. A reader that still uses a segment
//! keeps its file from being reused.
//!
//! **Bounds.** Up to [`Settings::journal_bytes`](crate::Settings::journal_bytes) wait for the
//! database; at twice as much, appending waits too. Files of held payloads are not included.

mod blocks;
pub(crate) mod checksum;
mod copy;
mod descriptors;
pub(crate) mod frame;
mod held;
mod holes;
pub(crate) mod scan;
pub(crate) mod segment;
mod tail;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use gristmill_core::runtime::is_no_space;

use crate::damage::Damage;
use crate::error::{Failure, OpenError};
use crate::journal::blocks::BlockWriter;
use crate::journal::checksum::PayloadPart;
pub(crate) use crate::journal::copy::SegmentCopy;
use crate::journal::frame::{Extent, Frames, HEAD_BYTES};
use crate::journal::held::Held;
pub(crate) use crate::journal::holes::Gaps;
use crate::journal::segment::{HEADER_BYTES, Header, SegmentFile};
use crate::medium::{Medium, PayloadLocation, SegmentId};
use crate::private::make_private_dir;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// Bytes by which a new file grows ahead of the small frames that are written into it. For a large
/// frame the cost of growing the file does not matter.
const GROWTH_BYTES: u32 = 1 << 20;

/// The segments of one directory.
#[derive(Debug)]
pub(crate) struct Journal {
    dir: PathBuf,
    /// The same directory, open: creating a file then needs no descriptor for the directory.
    directory: File,
    bounds: Bounds,
    segments: Mutex<Segments>,
    /// Notified when a segment is checkpointed, or when there will be no further checkpoint.
    checkpointed: Condvar,
    /// Whether the file system makes holes in files, as far as that is known.
    makes_holes: AtomicBool,
}

/// Bytes that stay free when payloads move on a nearly full disk: the write-ahead log has up to 4
/// MiB before its pages are written to the tables.
const MOVE_SPARE_BYTES: u64 = 8 << 20;

/// The space for a move of payloads on a nearly full disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MoveRoom {
    pub(crate) free: u64,
    pub(crate) above_reserve: u64,
}

/// The size limits of the journal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Bytes of a segment; a larger frame gets a separate segment.
    pub(crate) segment_bytes: u32,
    /// Segments that may wait for the checkpoint.
    pub(crate) uncheckpointed_max: usize,
}

#[derive(Debug)]
struct Segments {
    /// The segments with bytes that are, or may be, needed.
    used: BTreeMap<SegmentId, Segment>,
    /// The payloads that jobs refer to. A segment without any has no entry.
    held: BTreeMap<SegmentId, Held>,
    /// Unused files.
    free: Vec<Arc<SegmentFile>>,
    slots: u32,
    /// This segment and all earlier ones are checkpointed.
    checkpointed: SegmentId,
    /// The newest segment.
    last: SegmentId,
    /// Whether the newest segment is still being written.
    is_last_open: bool,
    /// The present end of the newest segment.
    open_end: u32,
    /// There will be no further checkpoint: do not wait for one.
    is_closed: bool,
}

/// A used segment.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) file: Arc<SegmentFile>,
    pub(crate) header: Header,
    /// Its end, once a later segment was begun.
    pub(crate) end: Option<u32>,
    /// Bytes that its checkpoint will still write to the tables, at most.
    owed_bytes: u64,
    /// Those that a checkpoint has written.
    settled_bytes: u64,
}

impl Segment {
    fn new(file: Arc<SegmentFile>, header: Header) -> Self {
        Self { file, header, end: None, owed_bytes: 0, settled_bytes: 0 }
    }
}

/// The tables' knowledge of the journal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JournalRecord {
    /// This segment and all earlier ones are checkpointed.
    pub(crate) checkpointed: SegmentId,
    /// A segment that exists: the newest one when this was recorded, which is soon after its first
    /// frame. 0 without a record.
    pub(crate) last: SegmentId,
    /// The end of the newest segment, if the last process closed it in order.
    pub(crate) end: Option<u32>,
}

/// The end of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JournalEnd {
    pub(crate) segment: SegmentId,
    pub(crate) at: u32,
}

impl Journal {
    /// Opens the journal in `dir`, and makes all of it durable that may be replayed. Also returns
    /// the segments that are not checkpointed, oldest first, each with its end.
    ///
    /// # Errors
    /// [`OpenError::Damaged`] when acknowledged data is missing or damaged, as far as that can be
    /// known before the frames are replayed.
    pub(crate) fn open(
        dir: &Path,
        known: JournalRecord,
        bounds: Bounds,
    ) -> Result<(Self, Vec<Segment>), OpenError> {
        let checkpointed = known.checkpointed;
        let mut segments = Segments {
            used: BTreeMap::new(),
            held: BTreeMap::new(),
            free: Vec::new(),
            slots: 0,
            checkpointed,
            last: checkpointed,
            is_last_open: false,
            open_end: 0,
            is_closed: false,
        };
        make_private_dir(dir)?;
        for dir in dir.parent().into_iter().chain([dir]) {
            File::open(dir)?.sync_all()?;
        }
        for entry in fs::read_dir(dir)? {
            let name = entry?.file_name();
            let Some(slot) = name.to_str().and_then(SegmentFile::slot_of) else { continue };
            segments.slots = segments.slots.max(slot);
            let file = Arc::new(SegmentFile::open(dir, slot)?);
            match file.header()? {
                Some(header) => {
                    segments.last = segments.last.max(header.id);
                    segments.used.insert(header.id, Segment::new(file, header));
                }
                None if file.is_blank()? => segments.free.push(file),
                None => {
                    let details = "the header of this segment of the journal is damaged";
                    return Err(damage(dir, &file, 0, details).into());
                }
            }
        }
        let mut uncheckpointed: Vec<_> = segments
            .used
            .range(after(checkpointed)..)
            .map(|(_, segment)| segment.clone())
            .collect();
        let ends: Vec<_> =
            uncheckpointed.iter().skip(1).map(|later| later.header.end_before).collect();
        for (segment, end) in uncheckpointed.iter_mut().zip(ends) {
            segment.end = Some(end);
        }
        let numbers = uncheckpointed.iter().map(|segment| segment.header.id.0);
        let mut expected = checkpointed.0 + 1..=known.last.0.max(segments.last.0);
        let missing = numbers.zip(expected.by_ref()).find(|(found, expected)| found != expected);
        if let Some(missing) = missing.map(|(_, missing)| missing).or_else(|| expected.next()) {
            let details = format!("segment {missing} of the journal is missing");
            return Err(Damage { file: dir.to_owned(), offset: None, details }.into());
        }
        for segment in &uncheckpointed {
            segment.file.sync()?;
        }
        if let Some(newest) = uncheckpointed.last_mut() {
            let end = end_of_newest(dir, newest, known)?;
            if known.end.is_none() {
                newest.file.rewrite(end)?;
            }
            newest.end = Some(end);
            segments.open_end = end;
        }
        for segment in &uncheckpointed {
            segments.used.insert(segment.header.id, segment.clone());
        }
        let journal = Self {
            dir: dir.to_owned(),
            directory: File::open(dir)?,
            bounds,
            segments: Mutex::new(segments),
            checkpointed: Condvar::new(),
            makes_holes: AtomicBool::new(true),
        };
        Ok((journal, uncheckpointed))
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The present end of the journal, in its newest segment.
    pub(crate) fn end(&self) -> JournalEnd {
        let segments = self.segments();
        JournalEnd { segment: segments.last, at: segments.open_end }
    }

    fn file_of(&self, location: PayloadLocation) -> Option<Arc<SegmentFile>> {
        let segments = self.segments();
        let segment = segments.used.get(&location.segment)?;
        // Bytes of a checkpointed segment that are not held may be in a hole. A hole is made only
        // while the file has no reader.
        let is_needed = location.segment > segments.checkpointed
            || segments.held.get(&location.segment).is_some_and(|held| held.has(location));
        is_needed.then(|| segment.file.clone())
    }

    /// Takes the lock only if there is any location; most jobs have none.
    fn for_each(
        &self,
        locations: &mut dyn Iterator<Item = PayloadLocation>,
        mut each: impl FnMut(&mut Segments, PayloadLocation),
    ) {
        let mut locations = locations.peekable();
        if locations.peek().is_some() {
            let mut segments = self.segments();
            locations.for_each(|location| each(&mut segments, location));
        }
    }

    /// Whether bytes at `location` can be held.
    pub(crate) fn has(&self, location: PayloadLocation) -> bool {
        self.segments().used.contains_key(&location.segment)
    }

    /// The segment to checkpoint next, if the journal is long.
    pub(crate) fn next_to_checkpoint(&self) -> Option<Segment> {
        let segments = self.segments();
        let is_long = segments.uncheckpointed() > self.bounds.uncheckpointed_max;
        segments.first_uncheckpointed(|_| is_long)
    }

    /// Records that the checkpoint of a segment will write so many bytes more, at most.
    pub(crate) fn owe(&self, id: SegmentId, bytes: u64) {
        if let Some(segment) = self.segments().used.get_mut(&id) {
            segment.owed_bytes += bytes;
        }
    }

    /// The oldest segment that is not checkpointed and not written any more.
    pub(crate) fn ended_to_checkpoint(&self) -> Option<Segment> {
        let segments = self.segments();
        segments.first_uncheckpointed(|id| !segments.is_last_open || id < segments.last)
    }

    /// The last segment that is checkpointed.
    pub(crate) fn checkpointed(&self) -> SegmentId {
        self.segments().checkpointed
    }

    /// The oldest segment that is not checkpointed and not written any more, if it is `last` or an
    /// earlier one.
    pub(crate) fn ended_up_to(&self, last: SegmentId) -> Option<Segment> {
        let segments = self.segments();
        let has_ended = |id| !segments.is_last_open || id < segments.last;
        segments.first_uncheckpointed(|id| id <= last && has_ended(id))
    }

    /// Whether the segment that is being written has a frame.
    pub(crate) fn has_open_frames(&self) -> bool {
        let segments = self.segments();
        segments.is_last_open && segments.open_end > HEADER_BYTES
    }

    /// The first segment up to `last` that is not checkpointed. A later segment must have begun.
    pub(crate) fn uncheckpointed_up_to(&self, last: SegmentId) -> Option<Segment> {
        self.segments().first_uncheckpointed(|id| id <= last)
    }

    /// The last `count` bytes of a payload, unchecked; `None` when it is not in the journal any
    /// more, or shorter.
    pub(crate) fn read_end(
        &self,
        location: PayloadLocation,
        count: u32,
    ) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = self.file_of(location) else { return Ok(None) };
        let from = location.len.checked_sub(checksum::SUM_BYTES + count);
        let Some(from) = from else { return Ok(None) };
        file.read(location.at + from, count).map(Some)
    }

    /// A segment in which few bytes are held, if there are many such segments: these bytes should
    /// move. On a nearly full disk only if there is `room` for the move: the held bytes are written
    /// to the write-ahead log and then to the tables, before the segment is free. If the file
    /// system makes no holes, any segment is enough then whose move gives back more than it takes.
    pub(crate) fn to_compact(&self, room: Option<MoveRoom>) -> Option<SegmentId> {
        let makes_holes = self.makes_holes.load(Ordering::Relaxed);
        let segments = self.segments();
        let held_bytes = |id: &SegmentId| segments.held.get(id).map_or(0, Held::bytes);
        let has_room = |id: &SegmentId, free: u64| free > 2 * held_bytes(id) + MOVE_SPARE_BYTES;
        let checkpointed = segments.used.range(..=segments.checkpointed);
        if let Some(room) = room {
            let is_worth_it = |id: &SegmentId, segment: &Segment| {
                !makes_holes
                    && segment.end.is_some_and(|end| u64::from(end) > 3 * held_bytes(id))
                    && has_room(id, room.free)
            };
            let mut worth_it = checkpointed.clone().filter(|(id, it)| is_worth_it(id, it));
            if let Some((id, _)) = worth_it.next() {
                return Some(*id);
            }
        }
        // The number of files is to be bounded, so that holes do not count.
        let held = checkpointed.clone().map(|(id, _)| held_bytes(id)).sum::<u64>();
        let segment_bytes = u64::from(self.bounds.segment_bytes);
        let bytes = checkpointed.clone().count() as u64 * segment_bytes;
        let spare = self.bounds.uncheckpointed_max as u64 * segment_bytes;
        let sparsest = checkpointed.map(|(id, _)| *id).min_by_key(held_bytes);
        sparsest
            .filter(|_| bytes > 2 * held + spare)
            .filter(|id| room.is_none_or(|room| has_room(id, room.above_reserve)))
    }

    /// The gaps of a checkpointed segment that should become holes, if there is one. The thread
    /// that calls this makes the holes before it begins a [copy](Self::copy).
    pub(crate) fn next_gaps(&self) -> io::Result<Option<Gaps>> {
        if !self.makes_holes.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let segments = &mut *self.segments();
        for (id, held) in segments.held.range_mut(..=segments.checkpointed) {
            let Some(segment) = segments.used.get(id) else { continue };
            // Readers of the file, such as backups, may need bytes that were released meanwhile.
            let is_unread = Arc::strong_count(&segment.file) == 1;
            if is_unread && held.may_have_gaps() {
                let len = u32::try_from(segment.file.len()?).unwrap_or(u32::MAX);
                let ranges = held.take_gaps(len);
                if !ranges.is_empty() {
                    return Ok(Some(Gaps { file: segment.file.clone(), ranges }));
                }
            }
        }
        Ok(None)
    }

    /// Makes the gaps holes of the file.
    pub(crate) fn make_holes(&self, gaps: &Gaps) -> io::Result<()> {
        if !gaps.make_holes()? {
            self.makes_holes.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Of the bytes that the tables were owed for a segment, the first `written` are in the tables.
    /// Returns how many of them were owed until now: a checkpoint that found no space begins again,
    /// and writes the same bytes.
    pub(crate) fn settle_up_to(&self, id: SegmentId, written: u64) -> u64 {
        let mut segments = self.segments();
        let Some(segment) = segments.used.get_mut(&id) else { return 0 };
        let settled = written.saturating_sub(segment.settled_bytes).min(segment.owed_bytes);
        segment.owed_bytes -= settled;
        segment.settled_bytes += settled;
        settled
    }

    /// Marks the segment and all earlier ones as checkpointed. Returns the bytes that the tables
    /// were still owed for it.
    pub(crate) fn set_checkpointed(&self, id: SegmentId) -> u64 {
        let mut segments = self.segments();
        debug_assert!(id > segments.checkpointed, "segments are checkpointed in their order");
        segments.checkpointed = id;
        let checkpointed = segments.used.range_mut(..=id);
        let settled = checkpointed.map(|(_, it)| std::mem::take(&mut it.owed_bytes)).sum();
        segments.free_unheld();
        drop(segments);
        self.checkpointed.notify_all();
        settled
    }

    /// Releases segments without held bytes. For a start, once everything needed is held.
    pub(crate) fn free_unheld(&self) {
        self.segments().free_unheld();
    }

    /// Returns files to the file system, if there are more than will soon be needed; all unused
    /// files while the disk `is_tight`.
    pub(crate) fn trim(&self, is_tight: bool) -> io::Result<()> {
        let spare = if is_tight { 0 } else { self.bounds.uncheckpointed_max };
        let mut segments = self.segments();
        let mut surplus = Vec::new();
        while segments.free.len() > spare {
            surplus.extend(segments.free.pop());
        }
        drop(segments);
        surplus.iter().try_for_each(|file| file.remove(&self.dir))
    }

    /// Copies of all needed segments. A segment is not overwritten while its copy is being read.
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

    /// Waits while the checkpoint is far behind.
    pub(crate) fn wait_for_room(&self) {
        let mut segments = self.segments();
        while segments.uncheckpointed() > 2 * self.bounds.uncheckpointed_max && !segments.is_closed
        {
            self.checkpointed.wait(&mut segments);
        }
    }

    /// Begins a segment, in an unread file or a new one.
    fn begin(&self, end_before: u32) -> Result<Open, AppendError> {
        let file = self.unused_file()?;
        let mut segments = self.segments();
        let next = segments.last.0.checked_add(1);
        let next = next.ok_or_else(|| AppendError::Fatal(io::Error::other("2^32 segments")))?;
        // Writes into holes would change metadata of the file system, as in a growing file, and the
        // zeros that a growing file is filled with are written only behind its end.
        if file.has_holes().map_err(AppendError::Fatal)? {
            file.set_len(0).map_err(AppendError::Fatal)?;
        }
        let salt = rand::random();
        let header = Header { id: SegmentId(next), end_before, salt };
        if let Err(error) = file.begin(header) {
            // Nothing refers to the file yet, and an incomplete header counts as none.
            segments.free.push(file);
            return Err(AppendError::of_write(error));
        }
        // Before any frame, so that a file with frames and without a header is known to be damaged.
        file.sync().map_err(AppendError::Fatal)?;
        let file_len = file.len().map_err(AppendError::Fatal)?;
        segments.is_last_open = false;
        let last = segments.last;
        if let Some(last) = segments.used.get_mut(&last) {
            last.end = Some(end_before);
        }
        segments.last = header.id;
        segments.is_last_open = true;
        segments.open_end = HEADER_BYTES;
        segments.used.insert(header.id, Segment::new(file.clone(), header));
        Ok(Open { file, header, at: HEADER_BYTES, frames: 0, file_len })
    }

    /// A file without readers, or a new one. A new file is created without the lock: without a free
    /// descriptor this waits, and payloads can be read meanwhile.
    fn unused_file(&self) -> Result<Arc<SegmentFile>, AppendError> {
        let mut segments = self.segments();
        let unread = segments.free.iter().position(|file| Arc::strong_count(file) == 1);
        if let Some(at) = unread {
            return Ok(segments.free.swap_remove(at));
        }
        segments.slots += 1;
        let slot = segments.slots;
        drop(segments);
        let file = descriptors::wait_for(|| SegmentFile::open(&self.dir, slot));
        let file = file.map_err(AppendError::of_write)?;
        // The file's name must survive as well as its content.
        self.directory.sync_all().map_err(AppendError::Fatal)?;
        Ok(Arc::new(file))
    }

    fn segments(&self) -> MutexGuard<'_, Segments> {
        self.segments.lock()
    }
}

impl Medium for Journal {
    /// `None` when the payload is not in the journal any more: then it is in the database, or
    /// deleted.
    fn read(&self, location: PayloadLocation) -> io::Result<Option<Bytes>> {
        let Some(file) = self.file_of(location) else { return Ok(None) };
        let bytes = Bytes::from(file.read(location.at, location.len)?);
        let payload = checksum::checked(&bytes).ok_or_else(|| file.damaged_payload(location))?;
        Ok(Some(bytes.slice_ref(payload)))
    }

    fn hold(&self, locations: &mut dyn Iterator<Item = PayloadLocation>) {
        self.for_each(locations, |segments, location| {
            debug_assert!(segments.used.contains_key(&location.segment), "what is held is there");
            segments.held.entry(location.segment).or_default().hold(location);
        });
    }

    fn release(&self, locations: &mut dyn Iterator<Item = PayloadLocation>) {
        self.for_each(locations, |segments, location| {
            let held = segments.held.get_mut(&location.segment);
            debug_assert!(held.is_some(), "what is released was held");
            let Some(held) = held else { return };
            held.release(location);
            if held.is_empty() {
                segments.held.remove(&location.segment);
                if location.segment <= segments.checkpointed {
                    segments.free(location.segment);
                }
            }
        });
    }

    /// Bytes that the checkpoints of all segments will write, at most.
    fn backlog_bytes(&self) -> u64 {
        self.segments().used.values().map(|segment| segment.owed_bytes).sum()
    }

    /// There will be no further checkpoint.
    fn close(&self) {
        self.segments().is_closed = true;
        self.checkpointed.notify_all();
    }
}

impl Segments {
    /// Number of segments that wait for the checkpoint; the one that is being written does not
    /// count.
    fn uncheckpointed(&self) -> usize {
        let after_checkpointed = self.used.range(after(self.checkpointed)..).count();
        after_checkpointed - usize::from(self.is_last_open)
    }

    /// The oldest segment that is not checkpointed, if it is also `wanted`.
    fn first_uncheckpointed(&self, wanted: impl FnOnce(SegmentId) -> bool) -> Option<Segment> {
        let (id, segment) = self.used.range(after(self.checkpointed)..).next()?;
        wanted(*id).then(|| segment.clone())
    }

    fn free_unheld(&mut self) {
        let checkpointed = self.used.range(..=self.checkpointed);
        let unheld = checkpointed.filter(|(id, _)| !self.held.contains_key(id));
        for id in unheld.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.free(id);
        }
    }

    fn free(&mut self, id: SegmentId) {
        self.free.extend(self.used.remove(&id).map(|segment| segment.file));
    }
}

/// Damage in a file of the journal in `dir`.
fn damage(dir: &Path, file: &SegmentFile, offset: u32, details: impl Into<String>) -> Damage {
    Damage { file: dir.join(file.name()), offset: Some(offset.into()), details: details.into() }
}

/// The end of the newest segment: the first incomplete frame, unless that frame was complete once.
fn end_of_newest(dir: &Path, segment: &Segment, known: JournalRecord) -> Result<u32, OpenError> {
    let Segment { file, header, .. } = segment;
    let mut frames = Frames::new(file, *header)?;
    while frames.next()?.is_some() {}
    let end = frames.at();
    let number = frames.number();
    if let Some(closed) = known.end.filter(|_| known.last == header.id) {
        if closed != end {
            let details =
                format!("no whole frame, and the last process closed the segment at byte {closed}");
            return Err(damage(dir, file, end, details).into());
        }
    } else if let Some((at, next)) = tail::find_frame(file, *header, number, end)? {
        let details = format!("no whole frame {number}, and frame {next} follows at byte {at}");
        return Err(damage(dir, file, end, details).into());
    }
    Ok(end)
}

fn after(id: SegmentId) -> SegmentId {
    SegmentId(id.0.saturating_add(1))
}

/// Why a frame was not appended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppendError {
    /// There is no space on the disk. Nothing was synced, so the write does not count, and the
    /// frame may be appended again.
    #[error("{0}")]
    NoSpace(io::Error),
    /// The content of the disk is unknown.
    #[error("{0}")]
    Fatal(io::Error),
}

impl AppendError {
    /// The error of a write that was not synced.
    fn of_write(error: io::Error) -> Self {
        if is_no_space(&error) { Self::NoSpace(error) } else { Self::Fatal(error) }
    }
}

impl From<AppendError> for Failure {
    fn from(error: AppendError) -> Self {
        let (AppendError::NoSpace(error) | AppendError::Fatal(error)) = error;
        Self::Journal(error)
    }
}

/// Appends to the journal. There is only one.
#[derive(Debug)]
pub(crate) struct Appender {
    journal: Arc<Journal>,
    open: Option<Open>,
    blocks: BlockWriter,
    /// The end of the newest segment of an earlier process.
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
    pub(crate) payloads: PayloadLocation,
    /// Whether it is the first of its segment, so that the previous segment may be checkpointed.
    pub(crate) is_first: bool,
}

impl Appender {
    /// An appender to a journal that ended at `end_before` in its newest segment. It begins a new
    /// segment, since the bytes behind that end are unknown.
    pub(crate) fn new(journal: Arc<Journal>, end_before: u32) -> Self {
        Self { journal, open: None, blocks: BlockWriter::default(), end_before }
    }

    /// Appends a frame. It is on stable storage when this returns `Ok`.
    ///
    /// # Errors
    /// [`AppendError`]; after [`NoSpace`](AppendError::NoSpace) the same frame may be appended
    /// again, at the same position.
    pub(crate) fn append(
        &mut self,
        encoded_batch: &[u8],
        payloads: &[PayloadPart],
    ) -> Result<Appended, AppendError> {
        let too_large = || AppendError::Fatal(io::Error::other("a batch of 4 GiB"));
        let payload_bytes = payloads.iter().map(|piece| piece.len()).sum::<usize>();
        let payload_bytes = u32::try_from(payload_bytes).map_err(|_| too_large())?;
        let batch_bytes = u32::try_from(encoded_batch.len()).map_err(|_| too_large())?;
        let extent_at = |at| Extent::of(at, batch_bytes, payload_bytes);
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
        let head = frame::head(open.header.salt, open.frames, encoded_batch, payloads);
        let payloads = payloads.iter().map(|payload| &payload[..]);
        let parts = [&head[..], encoded_batch].into_iter().chain(payloads);
        if is_large {
            let written = self.blocks.write(&open.file, open.at, parts);
            written.map_err(AppendError::of_write)?;
            open.file_len = open.file_len.max(end.into());
        } else {
            open.make_room(end, segment_bytes).map_err(AppendError::of_write)?;
            let written = open.file.write(&parts.collect::<Vec<_>>().concat(), open.at);
            written.map_err(AppendError::of_write)?;
        }
        open.file.sync().map_err(AppendError::Fatal)?;
        let at = open.at + HEAD_BYTES + batch_bytes;
        let payloads = PayloadLocation { segment: open.header.id, at, len: payload_bytes };
        open.at = end;
        open.frames += 1;
        self.journal.segments().open_end = end;
        Ok(Appended { payloads, is_first: open.frames == 1 })
    }
}

impl Appender {
    /// Begins a new segment, unless the newest one has no frame yet. All earlier frames are in
    /// earlier segments than the returned one.
    ///
    /// # Errors
    /// [`AppendError`]; after [`NoSpace`](AppendError::NoSpace) nothing has changed.
    pub(crate) fn begin_segment(&mut self) -> Result<SegmentId, AppendError> {
        let open = match &self.open {
            Some(open) if open.frames == 0 => return Ok(open.header.id),
            Some(open) => self.journal.begin(open.at)?,
            None => self.journal.begin(self.end_before)?,
        };
        Ok(self.open.insert(open).header.id)
    }
}

impl Open {
    /// Makes the file reach to `end`, and a little further if the disk has space for that.
    fn make_room(&mut self, end: u32, segment_bytes: u32) -> io::Result<()> {
        if u64::from(end) > self.file_len {
            let file_len = end.max(end.saturating_add(GROWTH_BYTES).min(segment_bytes)).into();
            match self.file.fill(end.into(), file_len) {
                Err(error) if is_no_space(&error) => {}
                filled => {
                    filled?;
                    self.file_len = file_len;
                }
            }
        }
        Ok(())
    }
}

/// Reads the frames of earlier processes: passes each frame to `take`, oldest first, and returns
/// the end of the newest segment.
///
/// # Errors
/// [`Failure::Damaged`] when a frame before the end of its segment cannot be read. A frame that was
/// being written when the last process ended is no error.
pub(crate) fn replay(
    dir: &Path,
    uncheckpointed: &[Segment],
    mut take: impl FnMut(&frame::Frame<'_>) -> Result<(), Failure>,
) -> Result<u32, Failure> {
    let mut ended = 0;
    for Segment { file, header, end, .. } in uncheckpointed {
        let mut frames = Frames::new(file, *header)?.up_to(*end);
        loop {
            let at = frames.at();
            let Some(frame) = frames.next()? else { break };
            take(&frame).map_err(|error| match error {
                Failure::Journal(error) if error.kind() == io::ErrorKind::InvalidData => {
                    Failure::Damaged(damage(dir, file, at, error.to_string()))
                }
                error => error,
            })?;
        }
        ended = frames.at();
        if let Some(end) = end.filter(|end| *end != ended) {
            let details =
                format!("segment {} ended at byte {end}, and can be read to {ended}", header.id.0);
            return Err(Failure::Damaged(damage(dir, file, ended, details)));
        }
    }
    Ok(ended)
}
