//! Uploads in progress: unnamed files beside the components.
//!
//! **Bounds.** All uploads together have [`STAGED_BYTES_MAX`] bytes, including uploads that wait
//! for their compile. Each owner has [a share](SharedBound) of that, and they count in the owner's
//! share of the disk. The reader of an upload bounds its size. A file is deleted with its
//! [`StagedFile`], and the next start deletes the files that a process left behind.

use std::fs::{self, File};
use std::io::{self, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::id::OwnerId;
use gristmill_core::limits::STAGED_BYTES_MAX;
use gristmill_core::runtime::StageError;
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

#[derive(Debug)]
struct Total {
    held: Mutex<Holdings<OwnerId>>,
    bound: SharedBound,
    disk_space: Arc<DiskSpaceGauge>,
}

impl StagedTotal {
    #[cfg(test)]
    fn new(tenancy: Tenancy) -> Self {
        Self::on(Arc::default(), tenancy)
    }

    /// No uploads, on this disk.
    pub(crate) fn on(disk_space: Arc<DiskSpaceGauge>, tenancy: Tenancy) -> Self {
        let bound = SharedBound::new(STAGED_BYTES_MAX, tenancy);
        Self(Arc::new(Total { held: Mutex::default(), bound, disk_space }))
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
    /// # Errors
    /// When the host or its owner may not have so many more bytes.
    fn take(&self, bytes: u64) -> Result<Taken, StageError> {
        let Total { held, bound, disk_space } = &*self.total.0;
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
mod tests {
    use std::sync::mpsc;

    use futures::FutureExt as _;
    use tokio::task::JoinHandle;

    use super::*;

    fn owner(name: &str) -> OwnerId {
        OwnerId::new(name).unwrap()
    }

    fn all(total: &StagedTotal) -> u64 {
        total.0.held.lock().all()
    }

    /// Runs `test` with an upload of the bytes `abc`, where one thread writes for all uploads.
    fn with_one_writing_thread(test: impl AsyncFnOnce(StagedTotal, StagedFile)) {
        let directory = tempfile::tempdir().unwrap();
        let total = StagedTotal::new(Tenancy::default());
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let staged = StagedFile::create(directory.path(), total.of(&owner("a"))).unwrap();
            staged.write("abc".into()).await.unwrap();
            test(total, staged).await;
        });
    }

    /// Keeps the writing thread busy until a message is sent, so that the next piece waits.
    fn occupy_thread() -> (mpsc::Sender<()>, JoinHandle<Result<(), mpsc::RecvError>>) {
        let (release, released) = mpsc::channel();
        (release, tokio::task::spawn_blocking(move || released.recv()))
    }

    #[tokio::test]
    async fn an_upload_is_written_in_pieces_and_deleted_when_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let entries = || fs::read_dir(directory.path()).unwrap().count();
        let total = StagedTotal::new(Tenancy::default());
        let of_owner = total.of(&owner("a"));
        let staged = StagedFile::create(directory.path(), of_owner.clone()).unwrap();
        for piece in ["\0asm", "\x0d\0\x01\0rest"] {
            staged.write(piece.into()).await.unwrap();
        }
        let whole = b"\0asm\x0d\0\x01\0rest";
        assert_eq!((staged.len(), staged.digest()), (12, ComponentDigest::of(whole)));
        assert_eq!(staged.preamble(), &whole[..8]);
        assert_eq!((entries(), all(&total)), (1, 12));
        drop(staged);
        assert_eq!((entries(), all(&total)), (0, 0));

        let staged = StagedFile::create(directory.path(), of_owner).unwrap();
        staged.write("kept".into()).await.unwrap();
        let path = directory.path().join("name");
        // Its compile failed twice; the second time, another upload still keeps the component.
        staged.keep_as(&path).unwrap();
        fs::remove_file(&path).unwrap();
        for _ in 0..2 {
            staged.keep_as(&path).unwrap();
            assert_eq!((fs::read(&path).unwrap(), entries()), (b"kept".to_vec(), 2));
        }
        assert!(staged.write("changed".into()).await.is_err());
        assert_eq!((staged.len(), all(&total)), (4, 4), "until it is compiled");
        drop(staged);
        assert_eq!((fs::read(&path).unwrap(), entries()), (b"kept".to_vec(), 1));
        assert_eq!(all(&total), 0);
    }

    #[tokio::test]
    async fn all_uploads_together_are_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let total = StagedTotal::new(Tenancy::default()).of(&owner("a"));
        let _all_others = total.take(STAGED_BYTES_MAX - 4).unwrap();
        let another = total.take(1).unwrap();
        let staged = StagedFile::create(directory.path(), total.clone()).unwrap();
        staged.write("abc".into()).await.unwrap();
        assert!(matches!(staged.write("d".into()).await, Err(StageError::Full)));
        assert_eq!(staged.len(), 3);
        drop(another);
        staged.write("d".into()).await.unwrap();
    }

    #[tokio::test]
    async fn an_upload_counts_in_its_owners_share_of_the_disk_until_it_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let tenancy = Tenancy::default();
        tenancy.set_several_owners(true);
        let disk_space = Arc::new(DiskSpaceGauge::new(tenancy.clone()));
        disk_space.set(40 << 20, 0);
        let total = StagedTotal::on(disk_space.clone(), tenancy);
        let of_owner = total.of(&owner("a"));
        let staged = StagedFile::create(directory.path(), of_owner.clone()).unwrap();
        let piece = Bytes::from(vec![7; 10 << 20]);
        for _ in 0..3 {
            staged.write(piece.clone()).await.unwrap();
        }
        let refused = staged.write(piece.clone()).await.unwrap_err();
        assert!(matches!(refused, StageError::OwnerDiskFull { held_mib: 30 }), "{refused}");
        assert_eq!((staged.len(), of_owner.account.bytes()), (30 << 20, 30 << 20));
        let other = StagedFile::create(directory.path(), total.of(&owner("b"))).unwrap();
        other.write("grain".into()).await.unwrap();
        disk_space.set(10 << 20, 11 << 20);
        let refused = other.write("rye".into()).await.unwrap_err();
        assert!(matches!(refused, StageError::NoSpace(_)), "{refused}");
        drop(staged);
        assert_eq!(of_owner.account.bytes(), 0);
    }

    #[test]
    fn an_upload_that_is_aborted_before_its_piece_is_written_gives_back_all_bytes() {
        with_one_writing_thread(async |total, staged| {
            let (release, busy) = occupy_thread();
            assert!(staged.write("defg".into()).now_or_never().is_none());
            assert_eq!(all(&total), 7);
            drop(staged);
            assert_eq!(all(&total), 7, "the piece may still be written");
            release.send(()).unwrap();
            busy.await.unwrap().unwrap();
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            assert_eq!(all(&total), 0);
        });
    }

    #[test]
    fn a_piece_whose_caller_has_left_is_not_added_after_the_length_was_returned() {
        with_one_writing_thread(async |total, staged| {
            let (release, busy) = occupy_thread();
            assert!(staged.write("left".into()).now_or_never().is_none());
            assert_eq!(staged.len(), 3);
            release.send(()).unwrap();
            busy.await.unwrap().unwrap();
            staged.write("def".into()).await.unwrap();
            assert_eq!((staged.len(), staged.digest()), (6, ComponentDigest::of(b"abcdef")));
            assert_eq!(all(&total), 6);
        });
    }

    #[test]
    fn the_uploads_of_an_owner_leave_room_for_another() {
        let tenancy = Tenancy::default();
        tenancy.set_several_owners(true);
        let total = StagedTotal::new(tenancy);
        let [first, second] = ["a", "b"].map(|name| total.of(&owner(name)));
        let take_all = |part: &StagedPart| -> Vec<Taken> {
            std::iter::from_fn(|| part.take(1 << 20).ok()).collect()
        };
        let (of_first, of_second) = (take_all(&first), take_all(&second));
        assert_eq!((of_first.len(), of_second.len()), (768, 192));
        drop(of_first);
        assert!(take_all(&second).len() > 400);
    }
}
