//! Uploads in progress: unnamed files beside the components.
//!
//! **Bounds.** All uploads together have [`STAGED_BYTES_MAX`] bytes, including uploads that wait
//! for their compile. Each owner has [a share](SharedBound) of that, and they count in the owner's
//! share of the disk. A write without room [ends](EndUpload) uploads that no call uses. The reader
//! of an upload bounds its size. A file is deleted with its [`StagedFile`], and the next start
//! deletes the files that a process left behind.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::id::OwnerId;
use gristmill_core::limits::STAGED_BYTES_MAX;
use gristmill_core::runtime::{EndUpload, StageError};
use gristmill_core::sharing::disk_share::DiskAccount;
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use gristmill_core::sharing::shares::{Fit, Holdings, SharedBound};
use gristmill_core::sharing::tenancy::Tenancy;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::compile::component::PREAMBLE_BYTES;
use crate::files::{self, blocking};

/// The staged bytes of all files together, and those of each owner. A clone shares them.
#[derive(Debug, Clone)]
pub(crate) struct StagedTotal(Arc<Total>);

struct Total {
    held: Mutex<Holdings<OwnerId>>,
    bound: SharedBound,
    disk_space: Arc<DiskSpaceGauge>,
    end_upload: OnceLock<EndUpload>,
}

impl fmt::Debug for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Total").field("held", &self.held).finish_non_exhaustive()
    }
}

impl StagedTotal {
    #[cfg(test)]
    fn new(tenancy: Tenancy) -> Self {
        Self::on(Arc::default(), tenancy)
    }

    /// No uploads, on this disk.
    pub(crate) fn on(disk_space: Arc<DiskSpaceGauge>, tenancy: Tenancy) -> Self {
        let bound = SharedBound::new(STAGED_BYTES_MAX, tenancy);
        let (held, end_upload) = (Mutex::default(), OnceLock::new());
        Self(Arc::new(Total { held, bound, disk_space, end_upload }))
    }

    /// A write without room ends other uploads by this function.
    pub(crate) fn end_uploads_by(&self, end_upload: EndUpload) {
        let _ = self.0.end_upload.set(end_upload);
    }

    /// Announces the bytes of a compiled file to the gauge of the disk.
    pub(crate) fn grant(&self, bytes: u64) {
        self.0.disk_space.grant(bytes);
    }

    /// The staged bytes of an owner.
    pub(crate) fn of(&self, owner: &OwnerId) -> StagedPart {
        let account = DiskAccount::new(&self.0.disk_space, owner);
        StagedPart { total: self.clone(), owner: owner.clone(), account }
    }
}

/// The staged bytes of an owner.
#[derive(Debug, Clone)]
pub(crate) struct StagedPart {
    total: StagedTotal,
    owner: OwnerId,
    account: DiskAccount,
}

/// Staged bytes of an owner. Dropping them gives them back.
#[derive(Debug)]
struct Taken {
    part: StagedPart,
    bytes: u64,
}

impl StagedPart {
    /// Takes bytes, for which it ends uploads that no call uses.
    ///
    /// # Errors
    /// When the host or its owner may not have so many more bytes.
    fn take(&self, bytes: u64) -> Result<Taken, StageError> {
        loop {
            let error = match self.try_take(bytes) {
                Err(error @ (StageError::Full | StageError::OwnerDiskFull { .. })) => error,
                other => return other,
            };
            let end_upload = self.total.0.end_upload.get();
            if !end_upload.is_some_and(|end_upload| end_upload(&self.owner, &error)) {
                return Err(error);
            }
        }
    }

    fn try_take(&self, bytes: u64) -> Result<Taken, StageError> {
        let Total { held, bound, disk_space, .. } = &*self.total.0;
        if !disk_space.admits_work() {
            return Err(StageError::NoSpace(disk_space.shortage()));
        }
        if !self.account.admits_work(bytes) {
            return Err(StageError::OwnerDiskFull { held_mib: self.account.bytes() >> 20 });
        }
        if held.lock().try_add(bound, &self.owner, bytes) != Fit::Fits {
            return Err(StageError::Full);
        }
        self.account.add(bytes);
        Ok(Taken { part: self.clone(), bytes })
    }
}

impl Taken {
    /// Adds bytes of the same owner.
    fn add(&mut self, mut more: Self) {
        self.bytes += std::mem::take(&mut more.bytes);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let StagedPart { total, owner, account } = &self.part;
        // A file that is kept is still on the disk, and the catalog counts its component.
        account.remove(self.bytes);
        total.0.held.lock().remove(owner, self.bytes);
    }
}

/// One upload.
#[derive(Debug)]
pub(crate) struct StagedFile {
    path: PathBuf,
    /// In an `Arc` for the writing thread, which completes a write that it has begun even if the
    /// caller's future was dropped.
    content: Arc<Mutex<Content>>,
    part: StagedPart,
}

#[derive(Debug)]
struct Content {
    file: File,
    hash: Sha256,
    /// As many as the file has. They are given back after the last write has ended.
    taken: Taken,
    preamble: Vec<u8>,
    /// Set once a component has these bytes, which are never changed in place then.
    is_kept: bool,
}

impl Content {
    /// Appends a piece, for which `taken` was taken.
    fn write(&mut self, piece: &[u8], taken: Taken) -> io::Result<()> {
        if self.is_kept {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if let Err(error) = self.file.write_all(piece) {
            // A part may have been written: the next write begins at the same position.
            self.file.set_len(self.taken.bytes)?;
            self.file.seek(io::SeekFrom::Start(self.taken.bytes))?;
            return Err(error);
        }
        self.hash.update(piece);
        self.taken.add(taken);
        let missing = PREAMBLE_BYTES.saturating_sub(self.preamble.len());
        self.preamble.extend(piece.iter().take(missing));
        Ok(())
    }
}

impl StagedFile {
    /// Creates an empty one in this directory. Blocks on the disk.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn create(directory: &Path, part: StagedPart) -> io::Result<Self> {
        let path = files::temporary(&directory.join("upload"));
        let content = Content {
            file: files::create_private(&path)?,
            hash: Sha256::new(),
            taken: Taken { part: part.clone(), bytes: 0 },
            preamble: Vec::with_capacity(PREAMBLE_BYTES),
            is_kept: false,
        };
        Ok(Self { path, content: Arc::new(Mutex::new(content)), part })
    }

    /// Adds the next bytes. If the future is dropped before a thread begins to write, they are not
    /// added: the length after the drop is therefore final, and a client can continue from it.
    ///
    /// # Errors
    /// [`StageError`]; the earlier bytes are unchanged.
    pub(crate) async fn write(&self, piece: Bytes) -> Result<(), StageError> {
        let (content, taken) = (self.content.clone(), self.part.take(piece.len() as u64)?);
        let caller = Arc::new(());
        let waiting = Arc::downgrade(&caller);
        let written = blocking(move || {
            // The length is read under the same lock, so that its reader waits for a write that has
            // begun.
            let mut content = content.lock();
            match waiting.strong_count() {
                0 => Err(io::ErrorKind::Interrupted.into()),
                _ => content.write(&piece, taken),
            }
        })
        .await;
        drop(caller);
        Ok(written?)
    }

    /// The file, until this is dropped.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> u64 {
        self.content.lock().taken.bytes
    }

    /// Their digest.
    pub(crate) fn digest(&self) -> ComponentDigest {
        ComponentDigest::from_sha256(self.content.lock().hash.clone().finalize().into())
    }

    /// The first bytes.
    pub(crate) fn preamble(&self) -> Vec<u8> {
        self.content.lock().preamble.clone()
    }

    /// Gives the file a further name; it is on stable storage then. The upload stays, so that it
    /// can be kept again if its compile fails; but nothing can be written to it any more. Its bytes
    /// count as staged until this is dropped, and no write is in progress. Blocks on the disk.
    ///
    /// # Errors
    /// Those of the file system; then the file does not exist, or is the earlier one of this name.
    pub(crate) fn keep_as(&self, path: &Path) -> io::Result<()> {
        let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        {
            let mut content = self.content.lock();
            content.is_kept = true;
            content.file.sync_all()?;
        }
        let link = files::temporary(path);
        let named = self.add_name(&link).and_then(|()| fs::rename(&link, path));
        // A rename has no effect if the file has both names already.
        files::remove(&link)?;
        named?;
        File::open(directory)?.sync_all()
    }

    fn add_name(&self, path: &Path) -> io::Result<()> {
        // Some file systems have no hard links.
        if fs::hard_link(&self.path, path).is_err() {
            fs::copy(&self.path, path)?;
            File::open(path)?.sync_all()?;
        }
        Ok(())
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        // A component keeps its file by another name. A file that cannot be removed now is removed
        // at the next start.
        let _ = files::remove(&self.path);
    }
}

#[cfg(test)]
#[path = "staging_tests.rs"]
mod tests;
