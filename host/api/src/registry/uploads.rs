//! Uploads on their way: those that are still written, and those that are whole and wait for the
//! manifest that names them.
//!
//! **Bounds.** [`UPLOADS_MAX`] at one time, [`UPLOADS_OF_OWNER_MAX`] of one owner; each has at most
//! the bytes of a component, all together those that may be staged. One that nobody has touched for
//! [`IDLE_MAX`] goes, with its file; a task looks once a minute, as long as there are any. Nothing
//! of them outlives the process.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use gristmill_core::id::OwnerId;
use gristmill_core::image::{Blob, BlobDigest};
use gristmill_core::runtime::Staged;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::error::{OciCode, RegistryError};
use crate::error::{ApiError, ErrorCode};

/// Uploads at one time.
const UPLOADS_MAX: usize = 64;

/// Uploads of one owner at one time. A push has two, the config and the component.
const UPLOADS_OF_OWNER_MAX: usize = 16;

/// How long an upload stays that nobody touches.
const IDLE_MAX: Duration = Duration::from_secs(600);

/// How often a task looks for those.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Names an upload; hard to guess, though only its owner can use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct UploadId(u128);

impl UploadId {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let id = u128::from_str_radix(text, 16).ok().map(Self);
        id.filter(|id| id.to_string() == text)
    }
}

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// All uploads. A clone shares them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Uploads(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    uploads: HashMap<UploadId, Upload>,
    /// Whether a task looks at them.
    is_swept: bool,
}

#[derive(Debug)]
struct Upload {
    owner: OwnerId,
    name: String,
    /// `None` while a call has it.
    staged: Option<Box<dyn Staged>>,
    /// Once it is whole.
    digest: Option<BlobDigest>,
    touched_at: Instant,
}

impl Upload {
    fn belongs_to(&self, owner: &OwnerId, name: &str) -> bool {
        self.owner == *owner && self.name == name
    }
}

impl Uploads {
    /// Begins an upload.
    ///
    /// # Errors
    /// 429 when there are too many.
    pub(super) fn begin(
        &self,
        owner: &OwnerId,
        name: &str,
        staged: Box<dyn Staged>,
    ) -> Result<UploadId, RegistryError> {
        let mut table = self.0.lock();
        table.sweep();
        let of_owner = table.uploads.values().filter(|upload| upload.owner == *owner).count();
        if table.uploads.len() >= UPLOADS_MAX || of_owner >= UPLOADS_OF_OWNER_MAX {
            let sentence = format!(
                "too many uploads are on their way: {UPLOADS_OF_OWNER_MAX} of one owner, {UPLOADS_MAX} in all"
            );
            return Err(ApiError::new(ErrorCode::ConcurrencyLimited, sentence).into());
        }
        let id = UploadId(rand::random());
        let upload = Upload {
            owner: owner.clone(),
            name: name.to_owned(),
            staged: Some(staged),
            digest: None,
            touched_at: Instant::now(),
        };
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
        Ok(id)
    }

    /// Takes an upload that is being written, for one call.
    ///
    /// # Errors
    /// 404 when there is none of this owner and name; 400 while another call has it.
    pub(super) fn take(
        &self,
        owner: &OwnerId,
        name: &str,
        id: &str,
    ) -> Result<Taken, RegistryError> {
        let unknown = || {
            let sentence =
                format!("upload `{id}` not found: it has ended, or nobody went on with it");
            RegistryError::unknown(OciCode::BlobUploadUnknown, sentence)
        };
        let key = UploadId::parse(id).ok_or_else(unknown)?;
        let mut table = self.0.lock();
        table.sweep();
        let upload = table.uploads.get_mut(&key);
        let upload = upload.filter(|u| u.belongs_to(owner, name) && u.digest.is_none());
        let staged = upload.ok_or_else(unknown)?.staged.take().ok_or_else(|| {
            let sentence = "another call is writing this upload";
            RegistryError::invalid(OciCode::BlobUploadInvalid, sentence)
        })?;
        Ok(Taken { uploads: self.clone(), id: key, staged: Some(staged) })
    }

    /// The size of a whole blob that waits for its manifest.
    pub(super) fn whole(&self, owner: &OwnerId, name: &str, digest: BlobDigest) -> Option<u64> {
        let table = self.0.lock();
        let upload = table
            .uploads
            .values()
            .find(|upload| upload.belongs_to(owner, name) && upload.digest == Some(digest));
        upload?.staged.as_ref().map(|staged| staged.len())
    }

    /// Takes a whole blob out, for the manifest that names it.
    pub(super) fn claim(&self, owner: &OwnerId, name: &str, blob: Blob) -> Option<Box<dyn Staged>> {
        let mut table = self.0.lock();
        let is_it = |upload: &Upload| {
            upload.belongs_to(owner, name)
                && upload.digest == Some(blob.digest)
                && upload.staged.as_ref().is_some_and(|staged| staged.len() == blob.bytes)
        };
        let id = table.uploads.iter().find(|(_, upload)| is_it(upload)).map(|(id, _)| *id)?;
        table.uploads.remove(&id)?.staged
    }
}

impl Table {
    fn sweep(&mut self) {
        // What a call has is not idle.
        self.uploads
            .retain(|_, upload| upload.staged.is_none() || upload.touched_at.elapsed() < IDLE_MAX);
    }
}

/// An upload in the hands of one call; it goes back when this is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    uploads: Uploads,
    pub(super) id: UploadId,
    staged: Option<Box<dyn Staged>>,
}

impl Taken {
    /// Ends the upload: the file goes.
    pub(super) fn end(mut self) {
        self.staged = None;
    }

    /// Says that all has come: it waits for its manifest.
    pub(super) fn finish(self, digest: BlobDigest) {
        if let Some(upload) = self.uploads.0.lock().uploads.get_mut(&self.id) {
            upload.digest = Some(digest);
        }
    }
}

impl Deref for Taken {
    type Target = dyn Staged;

    fn deref(&self) -> &(dyn Staged + 'static) {
        &**self.staged.as_ref().expect("only `end` takes it, and nobody has this after that")
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
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
mod tests {
    use std::io;

    use async_trait::async_trait;
    use bytes::Bytes;
    use gristmill_core::runtime::{AddComponentError, Added, StageError};

    use super::*;

    /// Three bytes.
    #[derive(Debug)]
    struct Three;

    #[async_trait]
    impl Staged for Three {
        async fn write(&self, _: Bytes) -> Result<(), StageError> {
            Ok(())
        }

        fn len(&self) -> u64 {
            3
        }

        fn digest(&self) -> BlobDigest {
            BlobDigest::of(b"abc")
        }

        async fn read(&self, _: usize) -> io::Result<Bytes> {
            Ok("abc".into())
        }

        async fn add(self: Box<Self>) -> Result<Added, AddComponentError> {
            Err(AddComponentError::Failed("not here".to_owned()))
        }
    }

    fn owner(name: &str) -> OwnerId {
        OwnerId::new(name).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn one_call_at_a_time_has_an_upload_and_it_goes_when_it_is_left() {
        let uploads = Uploads::default();
        let me = owner("me");
        let id = uploads.begin(&me, "mill", Box::new(Three)).unwrap().to_string();
        let taken = uploads.take(&me, "mill", &id).unwrap();
        assert!(uploads.take(&me, "mill", &id).is_err(), "somebody has it");
        tokio::time::sleep(IDLE_MAX * 2).await;
        drop(taken);
        for (whose, name, id) in [
            ("other", "mill", &*id),
            ("me", "other", &id),
            ("me", "mill", "0"),
            ("me", "mill", "+1"),
        ] {
            assert!(uploads.take(&owner(whose), name, id).is_err(), "{whose} {name} {id}");
        }
        drop(uploads.take(&me, "mill", &id).unwrap());
        tokio::time::sleep(IDLE_MAX + SWEEP_EVERY).await;
        assert!(uploads.0.lock().uploads.is_empty(), "the task has taken it away");
        assert!(!uploads.0.lock().is_swept, "and has ended");
        assert!(uploads.take(&me, "mill", &id).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_whole_blob_is_for_its_manifest_only() {
        let uploads = Uploads::default();
        let me = owner("me");
        let blob = Blob { digest: BlobDigest::of(b"abc"), bytes: 3 };
        let id = uploads.begin(&me, "mill", Box::new(Three)).unwrap().to_string();
        assert_eq!(uploads.whole(&me, "mill", blob.digest), None);
        uploads.take(&me, "mill", &id).unwrap().finish(blob.digest);
        assert!(uploads.take(&me, "mill", &id).is_err(), "nothing is added to it");
        assert_eq!(uploads.whole(&me, "mill", blob.digest), Some(3));
        for (whose, name, bytes) in [("other", "mill", 3), ("me", "other", 3), ("me", "mill", 4)] {
            assert!(uploads.claim(&owner(whose), name, Blob { bytes, ..blob }).is_none());
        }
        assert!(uploads.claim(&me, "mill", blob).is_some());
        assert!(uploads.claim(&me, "mill", blob).is_none());
        let id = uploads.begin(&me, "mill", Box::new(Three)).unwrap().to_string();
        uploads.take(&me, "mill", &id).unwrap().end();
        assert!(uploads.0.lock().uploads.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn uploads_are_bounded_for_each_owner_and_in_all() {
        let uploads = Uploads::default();
        let begin = |name: &str| uploads.begin(&owner(name), "mill", Box::new(Three));
        for number in 0..UPLOADS_MAX / UPLOADS_OF_OWNER_MAX {
            let name = format!("o{number}");
            for _ in 0..UPLOADS_OF_OWNER_MAX {
                begin(&name).unwrap();
            }
            assert!(begin(&name).is_err());
        }
        assert!(begin("late").is_err());
        tokio::time::sleep(IDLE_MAX).await;
        assert!(begin("late").is_ok());
    }
}
