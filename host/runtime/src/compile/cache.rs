//! The cache of a developer's compiles: whole components, in wasmtime's own cache, and the code of
//! each function, so that a handler with a small change is compiled in a fraction of the time.
//! Nearly all functions of a handler in Python or JavaScript belong to its interpreter:
//! docs/internals/performance.md has the times.
//!
//! A host has no such cache: it compiles a component once, and no data of one upload should become
//! part of another.
//!
//! **Bounds.** Half a GiB of components, and [`FUNCTIONS_BYTES_MAX`] of functions for each engine.
//! Lost or damaged entries are compiled again. The entries run as machine code, so the directory is
//! used only if no other user can access it, or could have written to it before.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::io::{self, Write as _};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gristmill_core::deploy::endpoint::Metering;
use parking_lot::Mutex;
use wasmtime::{Cache, CacheConfig, CacheStore, Config};

use crate::files;

/// Most bytes of functions, 128 MiB; beyond it only those of the newest compile stay. The
/// interpreter of Python has 30 MB.
const FUNCTIONS_BYTES_MAX: usize = 128 << 20;

/// One function in this many is few.
const FEW: usize = 64;

/// Length of the digest at the front of a file, in bytes.
const DIGEST_BYTES: usize = 32;

/// The cache of one compile.
#[derive(Debug)]
pub(crate) struct CompileCache {
    components: Cache,
    functions: Arc<Functions>,
    path: PathBuf,
}

impl CompileCache {
    /// Opens the cache of a directory that [`make_private`] has prepared.
    ///
    /// # Errors
    /// Errors of the file system, and a directory that other users can access; damage is not an
    /// error.
    pub(crate) fn open(directory: &Path, metering: Metering) -> wasmtime::Result<Self> {
        if others_access(directory)? != 0 {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied).into());
        }
        let mut config = CacheConfig::new();
        config.with_directory(directory.join("components"));
        // Clean up after each new component; otherwise the bound would be enforced only once an
        // hour.
        config.with_cleanup_interval(Duration::ZERO);
        let path = directory.join(format!("functions-{}", metering.as_str()));
        let functions = Arc::new(Functions::read(&path)?);
        Ok(Self { components: Cache::new(config)?, functions, path })
    }

    /// Makes the engine of a configuration use the cache.
    ///
    /// # Errors
    /// When the compiler cannot use it.
    pub(crate) fn serve(&self, config: &mut Config) -> wasmtime::Result<()> {
        config.cache(Some(self.components.clone()));
        config.enable_incremental_compilation(self.functions.clone())?;
        Ok(())
    }

    /// Saves the compiled functions, unless writing would take longer than compiling them again.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn save(&self) -> io::Result<()> {
        let made = self.functions.made.lock();
        if made.len() <= self.functions.known.len() / FEW {
            return Ok(());
        }
        let content = self.functions.content(&made);
        // Always the same name, so that killed processes leave at most one file. Not synced: after
        // a power loss, or with two writers, the file does not match its digest.
        let unfinished = self.path.with_extension("new");
        let mut file = files::create_private(&unfinished)?;
        let written = file.write_all(&content).and_then(|()| fs::rename(&unfinished, &self.path));
        if written.is_err() {
            files::remove(&unfinished)?;
        }
        written
    }
}

/// Creates the directory if it is missing, and makes it private if others may only read it, as
/// other programs create it.
///
/// # Errors
/// Errors of the file system; and a directory of another user, or one that others can write to,
/// since they may have put an entry there.
pub(crate) fn make_private(directory: &Path) -> io::Result<()> {
    files::create_private_dir(directory)?;
    let access = others_access(directory)?;
    if access & 0o022 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "other users can write to it; delete it, and it is created again",
        ));
    }
    if access != 0 {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// The permissions of other users for a directory, as bits of its mode.
///
/// # Errors
/// Errors of the file system, and a directory of another user.
fn others_access(directory: &Path) -> io::Result<u32> {
    let found = fs::metadata(directory)?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
    }
    Ok(found.mode() & 0o077)
}

/// The code of functions, as the compiler serialises it, by the input of their compilation.
#[derive(Debug, Default)]
struct Functions {
    /// Their file.
    bytes: Vec<u8>,
    known: HashMap<Vec<u8>, Known>,
    made: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
}

#[derive(Debug)]
struct Known {
    byte_range: Range<usize>,
    is_used: AtomicBool,
}

impl Functions {
    fn read(path: &Path) -> io::Result<Self> {
        match fs::read(path) {
            Ok(bytes) => Ok(Self::from_content(bytes).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// `None`: these bytes are damaged.
    fn from_content(bytes: Vec<u8>) -> Option<Self> {
        let (digest, entries) = bytes.split_first_chunk::<DIGEST_BYTES>()?;
        if blake3::hash(entries) != *digest {
            return None;
        }
        let mut known = HashMap::new();
        let mut at = DIGEST_BYTES;
        while at < bytes.len() {
            let key = part(&bytes, at)?;
            let byte_range = part(&bytes, key.end)?;
            at = byte_range.end;
            let entry = Known { byte_range, is_used: AtomicBool::new(false) };
            known.insert(bytes.get(key)?.to_vec(), entry);
        }
        Some(Self { bytes, known, made: Mutex::default() })
    }

    /// The content of a file: new functions, used functions, and the others while there is room.
    fn content(&self, made: &HashMap<Vec<u8>, Vec<u8>>) -> Vec<u8> {
        let known = |is_used| {
            // A function that was compiled again under the same key is of another compiler version.
            let wanted = self.known.iter().filter(|(key, _)| !made.contains_key(*key));
            let wanted = wanted.filter(move |(_, k)| k.is_used.load(Ordering::Relaxed) == is_used);
            wanted.filter_map(|(key, k)| {
                Some((key.as_slice(), self.bytes.get(k.byte_range.clone())?))
            })
        };
        let new = made.iter().map(|(key, code)| (key.as_slice(), code.as_slice()));
        let mut content = vec![0; DIGEST_BYTES];
        for (key, code) in new.chain(known(true)).chain(known(false)) {
            if content.len() + key.len() + code.len() > FUNCTIONS_BYTES_MAX {
                break;
            }
            for part in [key, code] {
                let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
                content.extend(length.to_le_bytes());
                content.extend(part);
            }
        }
        if let Some((digest, entries)) = content.split_first_chunk_mut::<DIGEST_BYTES>() {
            *digest = blake3::hash(entries).into();
        }
        content
    }
}

/// The range of the part whose length is at `at`.
fn part(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let length = bytes.get(at..)?.first_chunk()?;
    let start = at + size_of::<u32>();
    let end = start.checked_add(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    (end <= bytes.len()).then_some(start..end)
}

impl CacheStore for Functions {
    fn get(&self, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        let known = self.known.get(key)?;
        known.is_used.store(true, Ordering::Relaxed);
        Some(self.bytes.get(known.byte_range.clone())?.into())
    }

    fn insert(&self, key: &[u8], value: Vec<u8>) -> bool {
        self.made.lock().insert(key.to_vec(), value);
        true
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
