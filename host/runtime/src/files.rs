//! Files that exist completely or not at all, and operations on them that may block.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use gristmill_core::catalog::ArtifactDigest;
use gristmill_core::deploy::digest::ComponentDigest;

/// Suffix of the name of a file that is being written.
const TEMPORARY: &str = ".tmp";

/// Numbers the files being written, so that two writers of one path use different names.
static WRITES: AtomicU64 = AtomicU64::new(0);

/// Runs file operations on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Creates a directory that only this user can access, with its parents.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A file that is being written beside its final path. Dropping it removes the file, unless it is
/// at its final path by then.
#[derive(Debug)]
pub(crate) struct Unfinished {
    temporary: PathBuf,
    path: PathBuf,
}

impl Unfinished {
    /// A temporary name for a file that another process creates for `path`.
    pub(crate) fn at(path: &Path) -> Self {
        Self { temporary: temporary(path), path: path.to_owned() }
    }

    /// The path of the file until it is finished.
    pub(crate) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Moves the file, which is on stable storage, to its final path, and returns that. The name is
    /// on stable storage then; until then the path names the old file or none.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn finish(self) -> io::Result<PathBuf> {
        let directory = self.path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        fs::rename(&self.temporary, &self.path)?;
        File::open(directory)?.sync_all()?;
        Ok(self.path.clone())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // After `finish` the file has another name; after a failure the next start removes it.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// A temporary name beside `path`, different for each call.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut temporary = path.as_os_str().to_owned();
    let number = WRITES.fetch_add(1, Ordering::Relaxed);
    temporary.push(format!(".{}-{number}{TEMPORARY}", std::process::id()));
    temporary.into()
}

/// Creates an empty file that only this user can read, for writing.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Reads a file of at most `bytes_max` bytes.
pub(crate) fn read_capped(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let limit = bytes_max as u64 + 1;
    File::open(path)?.take(limit).read_to_end(&mut content)?;
    if content.len() > bytes_max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(content)
}

/// The digest of a file's content; `None` when there is no such file.
pub(crate) fn digest(path: &Path) -> io::Result<Option<ComponentDigest>> {
    match fs::read(path) {
        Ok(content) => Ok(Some(ComponentDigest::of(&content))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A compiled file, open, so that the loaded bytes are the hashed ones even if its name is reused.
#[derive(Debug)]
pub(crate) struct Artifact {
    file: File,
    path: PathBuf,
    /// The digest of the content.
    pub(crate) digest: ArtifactDigest,
}

impl Artifact {
    /// Opens and reads a compiled file; `None` when there is no such file.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        // Without procfs, the name is used.
        let descriptor = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let path = if descriptor.exists() { descriptor } else { path.to_owned() };
        let digest = blake3::Hasher::new().update_mmap(&path)?.finalize().to_hex().to_string();
        Ok(Some(Self { file, path, digest: ArtifactDigest(digest) }))
    }

    /// The file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// A path to this very file while this exists.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes files that an earlier process had begun to write in this directory.
pub(crate) fn remove_temporaries(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.as_os_str().as_encoded_bytes().ends_with(TEMPORARY.as_bytes()) {
            remove(&path)?;
        }
    }
    Ok(())
}

/// The digests of the files `<digest><ending>`.
pub(crate) fn digests(directory: &Path, ending: &str) -> io::Result<Vec<ComponentDigest>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(ending));
        found.extend(stem.and_then(|stem| stem.parse::<ComponentDigest>().ok()));
    }
    Ok(found)
}

/// Removes the files `<digest><ending>` of unwanted digests, and returns their number.
pub(crate) fn remove_unless(
    directory: &Path,
    ending: &str,
    is_wanted: impl Fn(ComponentDigest) -> bool,
) -> io::Result<usize> {
    let mut unwanted = digests(directory, ending)?;
    unwanted.retain(|digest| !is_wanted(*digest));
    for digest in &unwanted {
        remove(&directory.join(format!("{digest}{ending}")))?;
    }
    Ok(unwanted.len())
}

/// Removes a file, if it exists.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
