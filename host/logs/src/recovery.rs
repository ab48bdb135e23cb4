//! What a start finds in the directory.
//!
//! The newest file of an endpoint may end with a part of a line: its process or the power failed
//! while it was written. The start cuts this part off, and continues the file. A file without any
//! whole line, or with a damaged beginning, is left as it is, and the next lines begin another one.

use std::fs;
use std::io;
use std::path::Path;

use memchr::memrchr;
use tracing::warn;

use crate::line_format::{HEADER, LINE_BYTES_MAX, decode, is_of_other_version};
use crate::segment::{self, SegmentName};

/// Bytes at the end of a file in which its last whole line usually is.
const TAIL_BYTES: u64 = 16 << 10;
const _: () = assert!(TAIL_BYTES > 2 * LINE_BYTES_MAX as u64);

/// The end of an endpoint's newest file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tail {
    /// The number of its last whole line.
    pub(crate) last_number: Option<u64>,
    /// Its length now.
    pub(crate) bytes: u64,
    /// Whether lines may be appended to it.
    pub(crate) is_continuable: bool,
}

/// Finds the last whole line of a file of `bytes`, and cuts off the rest.
pub(crate) fn recover(path: &Path, bytes: u64) -> Tail {
    let unknown = Tail { last_number: None, bytes, is_continuable: false };
    let start = segment::read(path, 0, HEADER.len() as u64).unwrap_or_default();
    if is_of_other_version(&start) {
        return unknown;
    }
    let last = last_line(path, bytes.saturating_sub(TAIL_BYTES), bytes);
    let Some((last_number, end)) = last.or_else(|| last_line(path, 0, bytes)) else {
        return unknown;
    };
    if start != HEADER {
        return Tail { last_number: Some(last_number), ..unknown };
    }
    if end == bytes {
        return Tail { last_number: Some(last_number), bytes, is_continuable: true };
    }
    match cut(path, bytes, end) {
        Ok(()) => Tail { last_number: Some(last_number), bytes: end, is_continuable: true },
        Err(error) => {
            warn!(%error, "the log file {} cannot be cut: {error}", path.display());
            Tail { last_number: Some(last_number), ..unknown }
        }
    }
}

/// The number of the last whole line between these positions, and the position behind it.
fn last_line(path: &Path, from: u64, to: u64) -> Option<(u64, u64)> {
    let bytes = segment::read(path, from, to).ok()?;
    let mut before = bytes.get(..memrchr(b'\n', &bytes)?)?;
    loop {
        let start = memrchr(b'\n', before).map_or(0, |last| last + 1);
        if let Some(line) = decode(before.get(start..)?) {
            return Some((line.number, from + before.len() as u64 + 1));
        }
        before = before.get(..start.checked_sub(1)?)?;
    }
}

fn cut(path: &Path, bytes: u64, end: u64) -> io::Result<()> {
    match segment::open_to_append(path, bytes)? {
        Some(file) => file.set_len(end),
        None => Err(io::Error::other("it was replaced")),
    }
}

/// Removes a file that no endpoint has, or that cannot be a file of lines.
pub(crate) fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        warn!(%error, "the log file {} cannot be deleted: {error}", path.display());
    }
}

/// The files with names of this host, by their paths, with their lengths; `None` for one that is no
/// regular file.
pub(crate) fn list(
    dir: &Path,
    mut take: impl FnMut(&Path, SegmentName<'_>, Option<u64>),
) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str().and_then(SegmentName::parse) else { continue };
        // Not that of a link's target.
        let metadata = entry.metadata()?;
        take(&entry.path(), name, metadata.is_file().then_some(metadata.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use gristmill_core::id::{JobId, ShardId, SubmissionKind};
    use gristmill_core::logs::LogLine;
    use gristmill_core::runtime::LogLevel;
    use gristmill_core::time::Timestamp;

    use super::*;
    use crate::line_format::encode;

    fn lines(numbers: std::ops::Range<u64>) -> Vec<u8> {
        let job = JobId::generate(SubmissionKind::Async, ShardId(1));
        let mut bytes = HEADER.to_vec();
        for number in numbers {
            let at = Timestamp::from_millis(number);
            let text = format!("line {number}").into();
            encode(&LogLine { number, at, job, level: LogLevel::Info, text }, &mut bytes);
        }
        bytes
    }

    #[test]
    fn a_file_that_was_torn_at_any_byte_is_cut_after_its_last_whole_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let whole = lines(7..10);
        let ends: Vec<_> = (0..whole.len()).filter(|at| whole[*at] == b'\n').collect();
        for len in 0..=whole.len() {
            for garbage in [&b""[..], b"\0\0\0\0\0\0", b"half a line", b"\n\nx\n"] {
                fs::write(&path, [&whole[..len], garbage].concat()).unwrap();
                let bytes = fs::metadata(&path).unwrap().len();
                let tail = recover(&path, bytes);
                // The first end is that of the header.
                let is_complete =
                    |end: &&usize| **end < len + usize::from(garbage.starts_with(b"\n"));
                let complete = ends[1..].iter().filter(is_complete).count();
                if complete == 0 {
                    assert_eq!(tail, Tail { last_number: None, bytes, is_continuable: false });
                    continue;
                }
                let expected = Tail {
                    last_number: Some(6 + complete as u64),
                    bytes: ends[complete] as u64 + 1,
                    is_continuable: true,
                };
                assert_eq!(tail, expected, "{len} {garbage:?}");
                assert_eq!(fs::read(&path).unwrap(), whole[..=ends[complete]]);
            }
        }
    }

    #[test]
    fn the_last_line_before_megabytes_of_zeros_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let whole = lines(1..5_000);
        fs::write(&path, &whole).unwrap();
        let file = File::options().append(true).open(&path).unwrap();
        (&file).write_all(&vec![0; 1 << 20]).unwrap();
        let tail = recover(&path, file.metadata().unwrap().len());
        let bytes = whole.len() as u64;
        assert_eq!(tail, Tail { last_number: Some(4_999), bytes, is_continuable: true });
    }
}
