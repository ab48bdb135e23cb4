//! Paths that a handler gives, below one of its directories.
//!
//! A path is parsed as text, so `..` is resolved before the operating system sees it, and is then
//! followed one directory at a time, each opened without following links. So no path leads out of
//! the directory that it began in, whatever is on the disk or is renamed meanwhile.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

/// Longest path, in bytes.
const PATH_BYTES_MAX: usize = 4_096;

/// Longest name of one file or directory, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// Deepest level below the root of a mount on which files can be created: a walk over a mount holds
/// one open directory for each level.
pub(crate) const DEPTH_MAX: usize = 64;

/// Why a path is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadPath {
    /// It has no characters.
    Empty,
    /// It is absolute, or leads above the directory that it began in.
    Outside,
    /// It, or one of its names, is too long.
    TooLong,
    /// It has a NUL.
    Nul,
}

impl From<BadPath> for Errno {
    fn from(bad: BadPath) -> Self {
        match bad {
            BadPath::Empty => Self::NOENT,
            BadPath::Outside => Self::PERM,
            BadPath::TooLong => Self::NAMETOOLONG,
            BadPath::Nul => Self::INVAL,
        }
    }
}

/// A parsed path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parts<'a> {
    names: Vec<&'a str>,
    /// Whether it can only name a directory, as `a/` does.
    pub(crate) is_directory: bool,
}

impl<'a> Parts<'a> {
    pub(crate) fn of(path: &'a str) -> Result<Self, BadPath> {
        if path.is_empty() {
            return Err(BadPath::Empty);
        }
        if path.len() > PATH_BYTES_MAX {
            return Err(BadPath::TooLong);
        }
        if path.contains('\0') {
            return Err(BadPath::Nul);
        }
        if path.starts_with('/') {
            return Err(BadPath::Outside);
        }
        let mut names = Vec::new();
        let mut is_directory = false;
        for name in path.split('/') {
            is_directory = matches!(name, "" | "." | "..");
            match name {
                "" | "." => {}
                ".." => drop(names.pop().ok_or(BadPath::Outside)?),
                name if name.len() > NAME_BYTES_MAX => return Err(BadPath::TooLong),
                name => names.push(name),
            }
        }
        Ok(Self { names, is_directory })
    }

    /// How many levels it leads down.
    pub(crate) fn depth(&self) -> usize {
        self.names.len()
    }

    /// Opens the directory that contains the last name, and returns it with this name; the name is
    /// `.` when the path ends where it began.
    pub(crate) fn parent<'d>(&self, from: BorrowedFd<'d>) -> Result<(Parent<'d>, &'a str), Errno> {
        let mut parent = Parent::Same(from);
        let Some((last, above)) = self.names.split_last() else { return Ok((parent, ".")) };
        for name in above {
            parent = Parent::Below(openat(&parent, *name, DIRECTORY, Mode::empty())?);
        }
        Ok((parent, last))
    }
}

/// Flags for opening the directories on a path.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The directory that contains the last name of a path.
#[derive(Debug)]
pub(crate) enum Parent<'d> {
    /// The directory in which the path begins.
    Same(BorrowedFd<'d>),
    /// A directory below it.
    Below(OwnedFd),
}

impl Parent<'_> {
    /// The directory as a file: `start`, if the path begins in the directory itself.
    pub(crate) fn into_file(self, start: &Arc<File>) -> Arc<File> {
        match self {
            Self::Same(_) => start.clone(),
            Self::Below(directory) => Arc::new(directory.into()),
        }
    }
}

impl AsFd for Parent<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Same(directory) => *directory,
            Self::Below(directory) => directory.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{fstat, open};

    use super::*;

    fn names(path: &str) -> Result<(Vec<&str>, bool), BadPath> {
        Parts::of(path).map(|parts| (parts.names, parts.is_directory))
    }

    #[test]
    fn paths_are_taken_apart_as_text() {
        let deep = "a/".repeat(2_000);
        let (too_long, long) = ("x".repeat(NAME_BYTES_MAX + 1), "x".repeat(NAME_BYTES_MAX));
        let cases = [
            ("a", Ok((vec!["a"], false))),
            ("a/b", Ok((vec!["a", "b"], false))),
            ("./a//b/", Ok((vec!["a", "b"], true))),
            ("a/../b", Ok((vec!["b"], false))),
            ("a/..", Ok((vec![], true))),
            (".", Ok((vec![], true))),
            (&long, Ok((vec![&*long], false))),
            ("...", Ok((vec!["..."], false))),
            ("", Err(BadPath::Empty)),
            ("/", Err(BadPath::Outside)),
            ("/a", Err(BadPath::Outside)),
            ("..", Err(BadPath::Outside)),
            ("a/../..", Err(BadPath::Outside)),
            ("a/../../a/b", Err(BadPath::Outside)),
            ("a\0b", Err(BadPath::Nul)),
            (&too_long, Err(BadPath::TooLong)),
        ];
        for (path, expected) in cases {
            assert_eq!(names(path), expected, "{path}");
        }
        assert_eq!(Parts::of(&deep).unwrap().depth(), 2_000);
        assert_eq!(names(&"a/".repeat(2_049)), Err(BadPath::TooLong));
    }

    #[test]
    fn no_link_is_followed() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("a", root.path().join("link")).unwrap();
        let directory = open(root.path(), DIRECTORY, Mode::empty()).unwrap();
        let parent = |path| {
            let (parent, last) = Parts::of(path).unwrap().parent(directory.as_fd())?;
            Ok::<_, Errno>((fstat(&parent).unwrap().st_ino, last.to_owned()))
        };
        let (a, b) = parent("a/b").unwrap();
        assert_eq!((a, &*b), (parent("a/b/../c").unwrap().0, "b"));
        assert_eq!(parent("a").unwrap().1, "a");
        assert!(matches!(parent("link/b"), Err(Errno::NOTDIR | Errno::LOOP)));
        assert_eq!(parent("none/b"), Err(Errno::NOENT));
    }
}
