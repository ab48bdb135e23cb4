//! The blobs of pushed images that no image has yet: blobs that are still arriving, and complete
//! blobs that wait for their manifest.
//!
//! **Bounds.** [`UPLOADS_MAX`] at one time. An owner has a third of the places that other owners
//! leave, but at most [`UPLOADS_OF_OWNER_MAX`]; [`UPLOADS_OF_PUSH`] are always allowed. So a later
//! owner finds places: 16 beside one other owner, 10 beside two, and two beside eight owners at
//! their limits. The bytes of each upload, and of all staged uploads, are bounded too.
//!
//! **What gives way.** An upload that no call has touched for [`IDLE_MAX`] is removed, with its
//! file; a task looks once a minute, as long as there are any. For a further upload or further
//! bytes of their owner, older copies of a blob and uploads that no call has touched for
//! [`EVICTABLE_AFTER`] are removed. For those of another owner, the owner that has the most loses
//! the upload that was touched the longest ago, so that touches keep no place. An upload in a call
//! never gives way. All uploads end with the process.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use gristmill_core::deploy::image::{Blob, BlobDigest};
use gristmill_core::id::OwnerId;
use gristmill_core::runtime::{Components, StageError, Staged};
use gristmill_core::sharing::shares::Holdings;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// Uploads at one time.
const UPLOADS_MAX: usize = 64;

/// Most uploads of one owner at one time.
const UPLOADS_OF_OWNER_MAX: usize = 16;

/// Uploads of one push: the config and the component.
const UPLOADS_OF_PUSH: usize = 2;

/// How long an untouched upload is kept.
const IDLE_MAX: Duration = Duration::from_secs(600);

/// Time for which an untouched upload keeps its place even if the place is needed. Clients push the
/// next piece, or the manifest, within seconds.
const EVICTABLE_AFTER: Duration = Duration::from_secs(60);

/// Interval of the task that deletes idle uploads.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Names an upload; hard to guess, although only its owner can use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlobUploadId(u128);

impl BlobUploadId {
    fn parse(text: &str) -> Option<Self> {
        let id = u128::from_str_radix(text, 16).ok().map(Self);
        id.filter(|id| id.to_string() == text)
    }
}

impl fmt::Display for BlobUploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// All uploads. A clone shares them.
#[derive(Debug, Clone, Default)]
pub struct BlobUploads(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    uploads: HashMap<BlobUploadId, Upload>,
    /// Blobs of manifests that are being accepted, with the number of these manifests.
    claimed: HashMap<BlobKey, usize>,
    /// Changes at the end of each [`ClaimedBlobs`].
    claim_ends: watch::Sender<()>,
    /// Whether the task runs.
    is_swept: bool,
}

/// The owner, the name and the digest of a blob.
type BlobKey = (OwnerId, String, BlobDigest);

#[derive(Debug)]
struct Upload {
    owner: OwnerId,
    name: String,
    /// `None` while a call uses it.
    staged: Option<Box<dyn Staged>>,
    /// Set once it is complete.
    digest: Option<BlobDigest>,
    touched_at: Instant,
}

impl Upload {
    fn belongs_to(&self, owner: &OwnerId, name: &str) -> bool {
        self.owner == *owner && self.name == name
    }

    /// Whether this is the complete blob with this digest, for a manifest of this owner and name.
    fn is_whole(&self, owner: &OwnerId, name: &str, digest: BlobDigest) -> bool {
        self.belongs_to(owner, name) && self.digest == Some(digest) && self.staged.is_some()
    }

    /// Time until another upload may replace it, if no call uses it before.
    fn keeps_place(&self) -> Duration {
        EVICTABLE_AFTER.saturating_sub(self.touched_at.elapsed())
    }
}

impl BlobUploads {
    /// No uploads. Each write of these components without room ends uploads that no call uses.
    pub fn new(components: &dyn Components) -> Self {
        let uploads = Self::default();
        let table = Arc::downgrade(&uploads.0);
        components.end_uploads_by(Box::new(move |owner, error| {
            table.upgrade().is_some_and(|table| Self(table).end_for(owner, error))
        }));
        uploads
    }

    /// Ends an upload for the bytes of this owner, which were refused with this error. Returns
    /// whether there was one.
    fn end_for(&self, owner: &OwnerId, error: &StageError) -> bool {
        let ended = {
            let mut table = self.0.lock();
            let unneeded = table.remove_unneeded(owner);
            let is_host_full = matches!(error, StageError::Full);
            unneeded.or_else(|| is_host_full.then(|| table.remove_for_bytes(owner)).flatten())
        };
        // Its file is deleted outside the lock.
        ended.is_some()
    }

    /// Begins an upload.
    ///
    /// # Errors
    /// [`TooManyUploads`].
    pub fn begin(
        &self,
        owner: &OwnerId,
        name: &str,
        staged: Box<dyn Staged>,
    ) -> Result<BlobUploadId, TooManyUploads> {
        let mut table = self.0.lock();
        table.sweep();
        if let Err(wait) = table.make_room(owner) {
            let share = u32::try_from(table.share_of(owner)).unwrap_or(u32::MAX);
            return Err(TooManyUploads { share, wait });
        }
        let upload = Upload {
            owner: owner.clone(),
            name: name.to_owned(),
            staged: Some(staged),
            digest: None,
            touched_at: Instant::now(),
        };
        Ok(self.insert(&mut table, upload))
    }

    /// Adds an upload to this table, with the task that removes it some time.
    fn insert(&self, table: &mut Table, upload: Upload) -> BlobUploadId {
        let id = BlobUploadId(rand::random());
        table.uploads.insert(id, upload);
        if !std::mem::replace(&mut table.is_swept, true) {
            let uploads = Arc::downgrade(&self.0);
            // Ends with the last upload, or with the table.
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(SWEEP_EVERY).await;
                    let Some(uploads) = uploads.upgrade() else { return };
                    let mut table = uploads.lock();
                    table.sweep();
                    if table.uploads.is_empty() {
                        table.is_swept = false;
                        return;
                    }
                }
            });
        }
        id
    }

    /// Takes an upload that is being written, for one call.
    ///
    /// # Errors
    /// [`UploadNotTaken`].
    pub fn take(
        &self,
        owner: &OwnerId,
        name: &str,
        id: &str,
    ) -> Result<BlobUploadInUse, UploadNotTaken> {
        let unknown = || UploadNotTaken::Unknown(id.to_owned());
        let key = BlobUploadId::parse(id).ok_or_else(unknown)?;
        let mut table = self.0.lock();
        table.sweep();
        let upload = table.uploads.get_mut(&key);
        let upload = upload.filter(|u| u.belongs_to(owner, name) && u.digest.is_none());
        let staged = upload.ok_or_else(unknown)?.staged.take().ok_or(UploadNotTaken::InUse)?;
        let uploads = self.clone();
        Ok(BlobUploadInUse { uploads, id: key, staged: Some(staged), ends_unless_finished: false })
    }

    /// A complete blob that waits for its manifest, with its size.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn open(
        &self,
        owner: &OwnerId,
        name: &str,
        digest: BlobDigest,
    ) -> io::Result<Option<(File, u64)>> {
        let table = self.0.lock();
        let mut uploads = table.uploads.values();
        let upload = uploads.find(|upload| upload.is_whole(owner, name, digest));
        let Some(staged) = upload.and_then(|upload| upload.staged.as_ref()) else {
            return Ok(None);
        };
        Ok(Some((staged.open()?, staged.len())))
    }

    /// Whether a complete blob waits for its manifest.
    pub fn has(&self, owner: &OwnerId, name: &str, blob: Blob) -> bool {
        self.0.lock().find(owner, name, blob).is_some()
    }

    /// Drops one copy of a complete blob, since each push has its own copy. Returns whether there
    /// was one.
    pub fn release(&self, owner: &OwnerId, name: &str, digest: BlobDigest) -> bool {
        let mut table = self.0.lock();
        let mut uploads = table.uploads.iter();
        let found = uploads.find(|(_, upload)| upload.is_whole(owner, name, digest));
        let Some(id) = found.map(|(id, _)| *id) else { return false };
        table.uploads.remove(&id).is_some()
    }

    /// Removes the complete blobs that a manifest names, or none if one is missing. `is_stored`
    /// says which blobs an image of this name has, so that the manifest needs no upload of them.
    pub fn claim<const N: usize>(
        &self,
        owner: &OwnerId,
        name: &str,
        blobs: [Blob; N],
        is_stored: [bool; N],
    ) -> BlobClaim<N> {
        let mut table = self.0.lock();
        let key = |blob: Blob| (owner.clone(), name.to_owned(), blob.digest);
        let found = blobs.map(|blob| table.find(owner, name, blob));
        for ((blob, id), is_stored) in blobs.into_iter().zip(&found).zip(is_stored) {
            if id.is_some() || is_stored {
                continue;
            }
            return match table.claimed.contains_key(&key(blob)) {
                true => BlobClaim::Busy,
                false => BlobClaim::Missing(blob),
            };
        }
        let staged = found.map(|id| table.uploads.remove(&id?)?.staged);
        let keys: Vec<_> = blobs.into_iter().map(key).collect();
        for key in &keys {
            *table.claimed.entry(key.clone()).or_default() += 1;
        }
        BlobClaim::Taken(ClaimedBlobs { uploads: self.clone(), keys, staged })
    }

    /// Changes when a [`ClaimedBlobs`] ends after this call.
    pub fn claim_ends(&self) -> watch::Receiver<()> {
        self.0.lock().claim_ends.subscribe()
    }
}

/// An upload was not begun: its owner, or the host, has too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "too many uploads are in progress: at most {share} of one owner now, {} in all",
    UPLOADS_MAX
)]
pub struct TooManyUploads {
    /// How many uploads this owner may have now.
    pub share: u32,
    /// The longest time until there is room.
    pub wait: Duration,
}

/// Why a call cannot have an upload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UploadNotTaken {
    /// This owner and name have no such upload that is being written.
    #[error("upload `{0}` not found: it has ended, or was not continued in time")]
    Unknown(String),
    /// Another call has it.
    #[error("another call is writing this upload")]
    InUse,
}

/// The answer to a manifest that claims its blobs.
#[derive(Debug)]
pub enum BlobClaim<const N: usize> {
    /// The blobs.
    Taken(ClaimedBlobs<N>),
    /// Another manifest that is being accepted has the only copy of a blob, and its image will have
    /// the blob.
    Busy,
    /// This blob was not uploaded.
    Missing(Blob),
}

/// The blobs of a manifest that is being accepted. Another manifest of the same owner and name that
/// needs them waits until this is dropped.
#[derive(Debug)]
pub struct ClaimedBlobs<const N: usize> {
    uploads: BlobUploads,
    keys: Vec<BlobKey>,
    /// `None` for blobs that were not uploaded, since an image has them.
    pub staged: [Option<Box<dyn Staged>>; N],
}

impl<const N: usize> ClaimedBlobs<N> {
    /// Returns the blobs, for a later attempt at the manifest: before the claim ends, so that
    /// another manifest that waits for it finds them. A blob without room is dropped.
    pub fn give_back(&self, staged: [Option<Box<dyn Staged>>; N]) {
        let mut table = self.uploads.0.lock();
        for ((owner, name, digest), staged) in self.keys.iter().zip(staged) {
            if staged.is_none() || table.make_room(owner).is_err() {
                continue;
            }
            let upload = Upload {
                owner: owner.clone(),
                name: name.clone(),
                staged,
                digest: Some(*digest),
                touched_at: Instant::now(),
            };
            self.uploads.insert(&mut table, upload);
        }
    }
}

impl<const N: usize> Drop for ClaimedBlobs<N> {
    fn drop(&mut self) {
        let mut table = self.uploads.0.lock();
        for key in &self.keys {
            if let Some(count) = table.claimed.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    table.claimed.remove(key);
                }
            }
        }
        // Under the lock, so that a caller that finds no claim finds this change.
        table.claim_ends.send_replace(());
    }
}

impl Table {
    /// The upload with this complete blob.
    fn find(&self, owner: &OwnerId, name: &str, blob: Blob) -> Option<BlobUploadId> {
        let is_it = |upload: &Upload| {
            upload.is_whole(owner, name, blob.digest)
                && upload.staged.as_ref().is_some_and(|staged| staged.len() == blob.bytes)
        };
        self.uploads.iter().find(|(_, upload)| is_it(upload)).map(|(id, _)| *id)
    }

    /// The oldest complete blob with a younger copy.
    fn oldest_copy(&self, is_eligible: impl Fn(&Upload) -> bool) -> Option<BlobUploadId> {
        let age = |id: &BlobUploadId, upload: &Upload| (upload.touched_at, id.0);
        let has_younger = |(id, upload): &(&BlobUploadId, &Upload)| {
            self.uploads.iter().any(|(other, same)| {
                let digest = upload.digest.filter(|_| age(id, upload) < age(other, same));
                digest.is_some_and(|digest| same.is_whole(&upload.owner, &upload.name, digest))
            })
        };
        let whole = self.uploads.iter().filter(|(_, u)| u.staged.is_some() && is_eligible(u));
        let copies = whole.filter(has_younger);
        copies.min_by_key(|(id, upload)| age(id, upload)).map(|(id, _)| *id)
    }

    fn count_of(&self, owner: &OwnerId) -> usize {
        self.uploads.values().filter(|upload| upload.owner == *owner).count()
    }

    /// How many uploads the owner may have now.
    fn share_of(&self, owner: &OwnerId) -> usize {
        let of_others = self.uploads.len() - self.count_of(owner);
        let third = UPLOADS_MAX.saturating_sub(of_others) / 3;
        third.clamp(UPLOADS_OF_PUSH, UPLOADS_OF_OWNER_MAX)
    }

    /// The unused upload of this owner to remove first, and when.
    fn find_evictable_of(&self, owner: &OwnerId) -> Option<(Duration, BlobUploadId)> {
        let own = self.uploads.iter().filter(|(_, upload)| {
            // An upload in a call is in use.
            upload.staged.is_some() && upload.owner == *owner
        });
        let oldest = own.min_by_key(|(_, upload)| upload.touched_at);
        oldest.map(|(id, upload)| (upload.keeps_place(), *id))
    }

    /// Removes an upload of this owner that is not needed any more, if there is one.
    fn remove_unneeded(&mut self, owner: &OwnerId) -> Option<Upload> {
        let idle = || self.find_evictable_of(owner).filter(|(wait, _)| wait.is_zero());
        let copy = self.oldest_copy(|upload| upload.owner == *owner);
        self.uploads.remove(&copy.or_else(|| idle().map(|(_, id)| id))?)
    }

    /// The unused upload that was touched the longest ago, among those of the owner whose uploads
    /// have the greatest `size` together; with that size, and that of this owner's uploads.
    fn oldest_of_largest(
        &self,
        owner: &OwnerId,
        size: impl Fn(&Upload) -> u64,
    ) -> Option<(BlobUploadId, u64, u64)> {
        let mut sizes = Holdings::<OwnerId>::default();
        self.uploads.values().for_each(|upload| sizes.add(&upload.owner, size(upload)));
        let (largest, most) = sizes.iter().max_by_key(|(_, size)| *size)?;
        let of_largest = self.uploads.iter().filter(|(_, upload)| {
            upload.owner == *largest && upload.staged.is_some() && size(upload) > 0
        });
        let (id, _) = of_largest.min_by_key(|(_, upload)| upload.touched_at)?;
        Some((*id, most, sizes.of(owner)))
    }

    /// Removes an upload of the owner with the most bytes, if this owner has fewer.
    fn remove_for_bytes(&mut self, owner: &OwnerId) -> Option<Upload> {
        let bytes = |upload: &Upload| upload.staged.as_ref().map_or(0, |staged| staged.len());
        let (id, most, own) = self.oldest_of_largest(owner, bytes)?;
        (own < most).then(|| self.uploads.remove(&id)).flatten()
    }

    /// Removes an upload of the owner with the most uploads, if this owner has fewer with one more.
    fn remove_for_place(&mut self, owner: &OwnerId) -> Option<Upload> {
        let (id, most, own) = self.oldest_of_largest(owner, |_| 1)?;
        let kept = (own + 1).max(UPLOADS_OF_PUSH as u64);
        (kept < most).then(|| self.uploads.remove(&id)).flatten()
    }

    /// Makes room for one more upload of this owner.
    ///
    /// # Errors
    /// The time after which there is room, if no call uses an upload before.
    fn make_room(&mut self, owner: &OwnerId) -> Result<(), Duration> {
        let of_owner = |upload: &Upload| upload.owner == *owner;
        let has_most = self.count_of(owner) >= self.share_of(owner);
        if self.uploads.len() < UPLOADS_MAX && !has_most {
            return Ok(());
        }
        // Several pushes at one time may each bring the same blob, and the first to end takes one
        // copy. Copies therefore stay until their room is needed.
        if let Some(id) = self.oldest_copy(|upload| !has_most || of_owner(upload)) {
            self.uploads.remove(&id);
            return Ok(());
        }
        match self.find_evictable_of(owner) {
            Some((Duration::ZERO, id)) => {
                self.uploads.remove(&id);
                Ok(())
            }
            _ if !has_most && self.remove_for_place(owner).is_some() => Ok(()),
            Some((wait, _)) => Err(wait),
            // All uploads that could be removed are in use by calls.
            None => Err(EVICTABLE_AFTER),
        }
    }

    fn sweep(&mut self) {
        // An upload in a call is not idle.
        self.uploads
            .retain(|_, upload| upload.staged.is_none() || upload.touched_at.elapsed() < IDLE_MAX);
    }
}

/// An upload that one call uses; dropping this returns it, or [ends](Self::end_unless_finished) it.
#[derive(Debug)]
pub struct BlobUploadInUse {
    uploads: BlobUploads,
    /// Its id, for the next call.
    pub id: BlobUploadId,
    staged: Option<Box<dyn Staged>>,
    ends_unless_finished: bool,
}

impl BlobUploadInUse {
    /// Ends the upload, and deletes its file.
    pub fn end(mut self) {
        self.staged = None;
    }

    /// From now on, the upload ends with this value, unless it is [finished](Self::finish): its
    /// client sends all bytes in this call, and begins again if it fails.
    pub fn end_unless_finished(&mut self) {
        self.ends_unless_finished = true;
    }

    /// Marks the upload as complete: it waits for its manifest.
    pub fn finish(mut self, digest: BlobDigest) {
        self.ends_unless_finished = false;
        if let Some(upload) = self.uploads.0.lock().uploads.get_mut(&self.id) {
            upload.digest = Some(digest);
        }
    }
}

impl Deref for BlobUploadInUse {
    type Target = dyn Staged;

    fn deref(&self) -> &(dyn Staged + 'static) {
        &**self.staged.as_ref().expect("only `end` takes it, and this value is not used after that")
    }
}

impl Drop for BlobUploadInUse {
    fn drop(&mut self) {
        if self.ends_unless_finished {
            self.staged = None;
        }
        let mut table = self.uploads.0.lock();
        match (self.staged.take(), table.uploads.get_mut(&self.id)) {
            (Some(staged), Some(upload)) => {
                upload.staged = Some(staged);
                upload.touched_at = Instant::now();
            }
            (None, Some(_)) => drop(table.uploads.remove(&self.id)),
            (_, None) => {}
        }
    }
}

#[cfg(test)]
#[path = "blob_uploads_tests.rs"]
mod tests;
