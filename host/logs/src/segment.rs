//! One file of an endpoint's lines: `ENDPOINT.INCARNATION.FIRST.log`, where FIRST is the number of
//! its first line in 16 hexadecimal digits.
//!
//! A file is opened only if it is a regular file, and never through a symbolic link: another
//! program that replaces a file by a link, a pipe or a directory makes its lines unreadable, and
//! nothing else.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use gristmill_core::hex::is_lower_hex;

use rustix::fs::{Mode, OFlags};

/// Largest file, whatever the settings. A search reads one file at a time into memory.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 8 << 20;

/// The ending of a file's name.
const ENDING: &str = ".log";

/// Hexadecimal digits of a number in a name.
const DIGITS: usize = 16;

/// The name of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentName<'a> {
    /// [`EndpointIncarnation::name_on_disk`](gristmill_core::incarnation::EndpointIncarnation::name_on_disk).
    pub(crate) of: &'a str,
    /// The number of the first line.
    pub(crate) first: u64,
}

impl<'a> SegmentName<'a> {
    /// `None`: the file is none of this host's.
    pub(crate) fn parse(name: &'a str) -> Option<Self> {
        let (of, first) = name.strip_suffix(ENDING)?.rsplit_once('.')?;
        let (endpoint, incarnation) = of.rsplit_once('.')?;
        if endpoint.is_empty() {
            return None;
        }
        hexadecimal(incarnation)?;
        // The numbers of lines fit into the numbers of JSON for 200,000 years.
        let first = hexadecimal(first).filter(|first| *first < 1 << 53)?;
        Some(Self { of, first })
    }

    pub(crate) fn path(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{}.{:0DIGITS$x}{ENDING}", self.of, self.first))
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    if !is_lower_hex(text.as_bytes(), DIGITS) {
        return None;
    }
    u64::from_str_radix(text, 16).ok()
}

/// Creates the file, readable by its owner alone.
///
/// # Errors
/// When there is such a name already, and errors of the file system.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)
}

/// Opens the file to append lines to it. `None`: it is not the file of `len` bytes any more.
///
/// # Errors
/// Those of the file system.
pub(crate) fn open_to_append(path: &Path, len: u64) -> io::Result<Option<File>> {
    match open_with(path, OFlags::WRONLY | OFlags::APPEND) {
        Ok(file) => {
            let metadata = file.metadata()?;
            Ok(Some(file).filter(|_| metadata.is_file() && metadata.len() == len))
        }
        Err(error) if is_replaced(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The bytes of the file from `from` to `to`, as far as it has them. Empty if there is no such
/// file.
///
/// # Errors
/// Those of the file system, and a file that is none.
pub(crate) fn read(path: &Path, from: u64, to: u64) -> io::Result<Vec<u8>> {
    let mut file = match open_with(path, OFlags::RDONLY) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = vec![];
    file.seek(SeekFrom::Start(from))?;
    file.take(to.saturating_sub(from)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether the name leads to no regular file, or to none at all.
fn is_replaced(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    // ELOOP: a symbolic link. ENXIO: a pipe without a reader, or a socket.
    matches!(errno, Some(Errno::NOENT | Errno::LOOP | Errno::ISDIR | Errno::NXIO))
}

fn open_with(path: &Path, flags: OFlags) -> io::Result<File> {
    // Without waiting for the other end of a pipe.
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn names_are_parsed_as_they_are_written() {
        let name = SegmentName { of: "my-endpoint_1.00000000000000ff", first: 0x1234 };
        let path = name.path(Path::new("dir"));
        let text = path.to_str().unwrap();
        assert_eq!(text, "dir/my-endpoint_1.00000000000000ff.0000000000001234.log");
        assert_eq!(SegmentName::parse(text.strip_prefix("dir/").unwrap()), Some(name));
        for other in [
            "",
            "README",
            ".log",
            "x.log",
            "x.0000000000001234.log",
            "x.00000000000000ff.0000000000001234",
            "x.00000000000000ff.000000000000123.log",
            "x.00000000000000ff.000000000000123G.log",
            "x.00000000000000FF.0000000000001234.log",
            "x.00000000000000ff.+000000000000123.log",
            "x.00000000000000ff.ffffffffffffffff.log",
            ".00000000000000ff.0000000000001234.log",
        ] {
            assert_eq!(SegmentName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_file_that_was_replaced_is_neither_read_nor_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("target"), "untouched").unwrap();
        symlink(path("target"), path("link")).unwrap();
        fs::create_dir(path("directory")).unwrap();
        let (here, mode) = (rustix::fs::CWD, Mode::RUSR | Mode::WUSR);
        rustix::fs::mknodat(here, path("pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        for name in ["link", "directory", "pipe"] {
            assert!(read(&path(name), 0, 100).is_err(), "{name}");
            assert!(open_to_append(&path(name), 9).unwrap().is_none(), "{name}");
            assert!(create(&path(name)).is_err(), "{name}");
        }
        assert_eq!(read(&path("missing"), 0, 100).unwrap(), b"");
        assert!(open_to_append(&path("missing"), 0).unwrap().is_none());
        assert_eq!(fs::read(path("target")).unwrap(), b"untouched");
        assert_eq!(read(&path("target"), 2, 5).unwrap(), b"tou");
        assert_eq!(read(&path("target"), 5, 1_000).unwrap(), b"ched");
        assert!(open_to_append(&path("target"), 8).unwrap().is_none(), "another length");
        assert!(open_to_append(&path("target"), 9).unwrap().is_some());
        drop(create(&path("new")).unwrap());
        assert_eq!(fs::metadata(path("new")).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
