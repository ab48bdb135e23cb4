//! The files of one endpoint: lines are appended to the newest, which is followed by another one at
//! its largest size, and the oldest is deleted when all of them would exceed their bound.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use gristmill_core::logs::{ArchivePage, ArchiveQuery, LogLine, NEWEST_BYTES_MAX, NEXT_BYTES_MAX};
use gristmill_core::sharing::disk_share::DiskCharge;
use memchr::memmem::{Finder, FinderRev};
use memchr::{memchr, memrchr};
use tracing::warn;

use crate::line_format::{HEADER, LINE_BYTES_MAX, decode, encode, is_of_other_version};
use crate::segment::{self, SEGMENT_BYTES_MAX, SegmentName};

/// The part of an endpoint's bound that one file has. So an endpoint keeps seven eighths of it.
pub(crate) const SEGMENTS: u64 = 8;

/// File systems give space to files in such blocks.
const BLOCK_BYTES: u64 = 4_096;

/// Bounds of an endpoint's files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndpointBounds {
    /// Bytes of all its files.
    bytes_max: u64,
    /// Bytes of one file.
    segment_bytes_max: u64,
    /// Most files, also when some of them are small.
    segments_max: usize,
}

impl EndpointBounds {
    pub(crate) fn new(bytes_max: u64) -> Self {
        // The least has room for the longest line.
        let least = (HEADER.len() + LINE_BYTES_MAX) as u64;
        let segment_bytes_max = (bytes_max / SEGMENTS).clamp(least, SEGMENT_BYTES_MAX);
        let segments_max = usize::try_from(bytes_max / segment_bytes_max).unwrap_or(usize::MAX);
        Self { bytes_max, segment_bytes_max, segments_max: segments_max.max(1) }
    }
}

/// One file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    /// The number of its first line.
    pub(crate) first: u64,
    pub(crate) bytes: u64,
}

/// Space that a file of so many bytes takes.
pub(crate) fn disk_bytes(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK_BYTES)
}

/// The files of one endpoint.
#[derive(Debug)]
pub(crate) struct EndpointFiles {
    /// The beginning of their names.
    name: Box<str>,
    /// The oldest first.
    segments: VecDeque<Segment>,
    /// Whether the newest ends with a whole line of this format.
    is_continuable: bool,
    /// Their space, in the account of the endpoint's owner.
    charge: DiskCharge,
}

/// How far a batch was written.
#[derive(Debug)]
pub(crate) struct Appended {
    /// The number of the last line that was; `None`: none was.
    pub(crate) written_to: Option<u64>,
    pub(crate) outcome: io::Result<()>,
}

impl EndpointFiles {
    /// `charge` has no bytes yet.
    pub(crate) fn new(name: &str, charge: DiskCharge) -> Self {
        Self { name: name.into(), segments: VecDeque::new(), is_continuable: false, charge }
    }

    /// Adds a file that was found, in any order.
    pub(crate) fn add_found(&mut self, found: Segment) {
        let at = self.segments.partition_point(|segment| segment.first < found.first);
        self.segments.insert(at, found);
        self.count();
    }

    /// The newest file.
    pub(crate) fn newest(&self) -> Option<Segment> {
        self.segments.back().copied()
    }

    /// The newest file has so many bytes now, and lines may be appended to it or not.
    pub(crate) fn set_newest(&mut self, bytes: u64, is_continuable: bool) {
        self.is_continuable = is_continuable;
        if let Some(newest) = self.segments.back_mut() {
            newest.bytes = bytes;
        }
        self.count();
    }

    pub(crate) fn path(&self, dir: &Path, first: u64) -> std::path::PathBuf {
        SegmentName { of: &self.name, first }.path(dir)
    }

    /// Space that the files take.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| disk_bytes(segment.bytes)).sum()
    }

    fn count(&mut self) {
        let bytes = self.disk_bytes();
        self.charge.resize(bytes);
    }

    /// Appends lines, whose numbers are greater than all numbers before. Then the oldest files are
    /// deleted, as far as the bounds need it.
    pub(crate) fn append(
        &mut self,
        dir: &Path,
        lines: impl Iterator<Item = Arc<LogLine>>,
        bounds: EndpointBounds,
    ) -> Appended {
        let mut written_to = None;
        let mut outcome = Ok(());
        let mut lines = lines.peekable();
        let mut encoded = vec![];
        while outcome.is_ok() && lines.peek().is_some() {
            outcome = self.append_to_one(dir, &mut lines, &mut encoded, bounds).map(|last| {
                written_to = last;
            });
        }
        self.count();
        Appended { written_to, outcome }
    }

    /// Appends as many lines as the newest file has room for, or else begins the next file with
    /// them. Returns the number of the last of them.
    fn append_to_one(
        &mut self,
        dir: &Path,
        lines: &mut std::iter::Peekable<impl Iterator<Item = Arc<LogLine>>>,
        encoded: &mut Vec<u8>,
        bounds: EndpointBounds,
    ) -> io::Result<Option<u64>> {
        let Some(next) = lines.peek() else { return Ok(None) };
        let first = next.number;
        let line_bytes = |line: &LogLine| (line.text.len().min(LINE_BYTES_MAX) + 128) as u64;
        let has_room = |bytes: u64, line: &LogLine| {
            bytes.saturating_add(line_bytes(line)) <= bounds.segment_bytes_max
        };
        let mut newest = None;
        if let Some(last) = self.newest().filter(|_| self.is_continuable)
            && has_room(last.bytes, next)
        {
            newest = segment::open_to_append(&self.path(dir, last.first), last.bytes)?;
        }
        encoded.clear();
        let (file, before) = match newest {
            Some(file) => (file, self.newest().map_or(0, |newest| newest.bytes)),
            None => {
                let file = self.create(dir, first)?;
                encoded.extend_from_slice(HEADER);
                (file, 0)
            }
        };
        let mut last = None;
        while let Some(line) =
            lines.next_if(|line| last.is_none() || has_room(before + encoded.len() as u64, line))
        {
            encode(&line, encoded);
            last = Some(line.number);
        }
        match (&file).write_all(encoded) {
            Ok(()) => {
                self.set_newest(before + encoded.len() as u64, true);
                // Not before: a disk that fails costs no old lines.
                self.keep_within(dir, bounds);
                Ok(last)
            }
            Err(error) => {
                self.undo(dir, &file, before);
                Err(error)
            }
        }
    }

    /// Begins a new file.
    fn create(&mut self, dir: &Path, first: u64) -> io::Result<File> {
        let path = self.path(dir, first);
        let file = match segment::create(&path) {
            // The operator has removed the directory.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_directory(dir)?;
                segment::create(&path)?
            }
            // The rest of a try that failed: the numbers of lines are never used again.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(&path)?;
                segment::create(&path)?
            }
            created => created?,
        };
        self.segments.push_back(Segment { first, bytes: 0 });
        self.is_continuable = true;
        Ok(file)
    }

    /// Removes what was written of lines that did not fit.
    fn undo(&mut self, dir: &Path, file: &File, before: u64) {
        if before > 0 {
            self.is_continuable = file.set_len(before).is_ok();
        } else if let Some(begun) = self.segments.pop_back() {
            self.is_continuable = false;
            // If this fails, the next start, or the next try, removes it.
            let _ = fs::remove_file(self.path(dir, begun.first));
        }
    }

    /// Deletes the oldest files until the bounds hold, also when the newest has grown to its
    /// largest size.
    pub(crate) fn keep_within(&mut self, dir: &Path, bounds: EndpointBounds) {
        let EndpointBounds { bytes_max, segment_bytes_max, segments_max } = bounds;
        while let Some(newest) = self.newest() {
            let bytes: u64 = self.segments.iter().map(|segment| segment.bytes).sum();
            let then = bytes - newest.bytes + newest.bytes.max(segment_bytes_max);
            let is_needed = self.segments.len() == 1 && newest.bytes <= bytes_max;
            if is_needed || then <= bytes_max && self.segments.len() <= segments_max {
                return;
            }
            self.delete_oldest(dir);
        }
    }

    /// Deletes the oldest file. Returns whether there was one.
    pub(crate) fn delete_oldest(&mut self, dir: &Path) -> bool {
        let Some(oldest) = self.segments.pop_front() else { return false };
        let path = self.path(dir, oldest.first);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                warn!(%error, "the log file {} cannot be deleted: {error}", path.display());
            }
            Ok(()) | Err(_) => {}
        }
        self.count();
        true
    }

    /// The files with lines that a query may select.
    pub(crate) fn select(&self, dir: &Path, query: ArchiveQuery) -> Vec<SelectedFile> {
        let nexts = self.segments.iter().skip(1).map(|segment| segment.first);
        let ends = nexts.map(|first| first.saturating_sub(1)).chain([u64::MAX]);
        let selected = self.segments.iter().zip(ends).filter(|(segment, end)| {
            *end > query.after && segment.first <= query.up_to && segment.bytes > 0
        });
        let file = |(segment, _): (&Segment, u64)| SelectedFile {
            path: self.path(dir, segment.first),
            bytes: segment.bytes,
        };
        selected.map(file).collect()
    }
}

/// Creates the directory of all files, for its owner alone.
///
/// # Errors
/// Those of the file system.
pub(crate) fn make_directory(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// A file whose lines a query may select. It may have been deleted since.
#[derive(Debug)]
pub(crate) struct SelectedFile {
    path: std::path::PathBuf,
    bytes: u64,
}

impl SelectedFile {
    /// The lines in it; empty when it cannot be read.
    fn read(&self) -> Vec<u8> {
        match segment::read(&self.path, 0, self.bytes.min(SEGMENT_BYTES_MAX)) {
            Ok(bytes) if is_of_other_version(&bytes) => vec![],
            // Empty if it was deleted meanwhile.
            Ok(bytes) => bytes,
            Err(error) => {
                warn!(%error, "the log file {} cannot be read: {error}", self.path.display());
                vec![]
            }
        }
    }
}

/// Reads the lines that a query selects from files, the oldest file first.
pub(crate) fn read(files: &[SelectedFile], query: ArchiveQuery) -> ArchivePage {
    match query.newest {
        Some(count_max) => {
            let mut reader = Reader::new(query);
            for file in files.iter().rev() {
                if !reader.read_back(&file.read(), count_max) {
                    break;
                }
            }
            let mut lines = reader.lines;
            lines.reverse();
            ArchivePage { lines, is_cut: false }
        }
        None => {
            let mut reader = Reader::new(query);
            let is_cut = !files.iter().all(|file| reader.read_on(&file.read()));
            ArchivePage { lines: reader.lines, is_cut }
        }
    }
}

/// Collects lines.
struct Reader {
    query: ArchiveQuery,
    /// The job of the query as it is written.
    job: Option<String>,
    lines: Vec<Arc<LogLine>>,
    bytes: usize,
    bytes_max: usize,
}

impl Reader {
    fn new(query: ArchiveQuery) -> Self {
        let job = query.job.map(|job| job.to_string());
        let bytes_max = query.newest.map_or(NEXT_BYTES_MAX, |_| NEWEST_BYTES_MAX);
        Self { query, job, lines: vec![], bytes: 0, bytes_max }
    }

    /// Adds lines of a file from its beginning. Returns whether there is room for more.
    fn read_on(&mut self, bytes: &[u8]) -> bool {
        let job = self.job.clone();
        let finder = job.as_ref().map(Finder::new);
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let found = finder.as_ref().map_or(Some(0), |finder| finder.find(rest));
            let Some(inside) = found else { return true };
            let Some((line, end)) = line_around(bytes, at + inside) else { return true };
            at = end;
            let Some(line) = decode(line) else { continue };
            let is_next = self.lines.last().is_none_or(|last| line.number > last.number);
            if is_next && self.is_selected(&line) && !self.add(line) {
                return false;
            }
        }
        true
    }

    /// Adds lines of a file from its end, up to so many in all. Returns whether there is room for
    /// more.
    fn read_back(&mut self, bytes: &[u8], count_max: usize) -> bool {
        let job = self.job.clone();
        let finder = job.as_ref().map(FinderRev::new);
        // Without a part of a line that is being written.
        let mut end = memrchr(b'\n', bytes).map_or(0, |last| last + 1);
        while self.lines.len() < count_max && end > 0 {
            let before = bytes.get(..end).unwrap_or_default();
            let found = match &finder {
                Some(finder) => finder.rfind(before),
                // The line before the last line break.
                None => Some(end - 1),
            };
            let Some(inside) = found else { return true };
            let Some((line, _)) = line_around(bytes, inside) else { return true };
            end = start_of_line(bytes, inside);
            let Some(line) = decode(line) else { continue };
            let is_next = self.lines.last().is_none_or(|next| line.number < next.number);
            if line.number <= self.query.after {
                return false;
            }
            if is_next && self.is_selected(&line) && !self.add(line) {
                return false;
            }
        }
        self.lines.len() < count_max
    }

    fn is_selected(&self, line: &LogLine) -> bool {
        let ArchiveQuery { after, up_to, job, .. } = self.query;
        line.number > after && line.number <= up_to && job.is_none_or(|job| line.job == job)
    }

    /// Returns whether there is room for more.
    fn add(&mut self, line: LogLine) -> bool {
        self.bytes += line.bytes();
        self.lines.push(Arc::new(line));
        self.bytes < self.bytes_max
    }
}

/// The line that contains this byte, without its line break, and the position behind that. `None`:
/// it is not whole.
fn line_around(bytes: &[u8], inside: usize) -> Option<(&[u8], usize)> {
    let start = start_of_line(bytes, inside);
    let end = inside + memchr(b'\n', bytes.get(inside..)?)?;
    Some((bytes.get(start..end)?, end + 1))
}

fn start_of_line(bytes: &[u8], inside: usize) -> usize {
    let before = bytes.get(..inside).unwrap_or_default();
    memrchr(b'\n', before).map_or(0, |last| last + 1)
}
