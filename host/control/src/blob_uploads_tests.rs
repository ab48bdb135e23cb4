//! Uploads without files: one call at a time, claims by manifests, and which of them give way.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use async_trait::async_trait;
use bytes::Bytes;
use gristmill_core::runtime::{AddComponentError, AddedComponent};

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

    fn open(&self) -> io::Result<File> {
        File::open("/dev/null")
    }

    async fn add(&self, _: &OwnerId) -> Result<AddedComponent, AddComponentError> {
        Err(AddComponentError::Failed("not here".to_owned()))
    }
}

fn owner(name: &str) -> OwnerId {
    OwnerId::new(name).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_upload_serves_one_call_at_a_time_and_is_deleted_when_abandoned() {
    let uploads = BlobUploads::default();
    let me = owner("me");
    let id = uploads.begin(&me, "mill", Box::new(Three)).unwrap().to_string();
    let taken = uploads.take(&me, "mill", &id).unwrap();
    assert!(uploads.take(&me, "mill", &id).is_err(), "somebody has it");
    tokio::time::sleep(IDLE_MAX * 2).await;
    drop(taken);
    for (whose, name, id) in
        [("other", "mill", &*id), ("me", "other", &id), ("me", "mill", "0"), ("me", "mill", "+1")]
    {
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
    let uploads = BlobUploads::default();
    let me = owner("me");
    let blob = Blob { digest: BlobDigest::of(b"abc"), bytes: 3 };
    let id = uploads.begin(&me, "mill", Box::new(Three)).unwrap().to_string();
    let is_there = || uploads.open(&me, "mill", blob.digest).unwrap().map(|(_, bytes)| bytes);
    assert_eq!(is_there(), None);
    uploads.take(&me, "mill", &id).unwrap().finish(blob.digest);
    assert!(uploads.take(&me, "mill", &id).is_err(), "nothing is added to it");
    assert_eq!(is_there(), Some(3));
    assert!(uploads.has(&me, "mill", blob));
    for (whose, name, bytes) in [("other", "mill", 3), ("me", "other", 3), ("me", "mill", 4)] {
        let claim = uploads.claim(&owner(whose), name, [Blob { bytes, ..blob }], [false]);
        assert!(matches!(claim, BlobClaim::Missing(_)), "{claim:?}");
    }
    let other = Blob { digest: BlobDigest::of(b"other"), bytes: 3 };
    let claim = uploads.claim(&me, "mill", [blob, other], [false; 2]);
    assert!(matches!(claim, BlobClaim::Missing(missing) if missing.digest == other.digest));
    let ends = uploads.claim_ends();
    let taken = uploads.claim(&me, "mill", [blob, other], [false, true]);
    let BlobClaim::Taken(taken) = taken else { panic!("{taken:?}") };
    assert!(taken.staged[0].is_some() && taken.staged[1].is_none());
    let again = || uploads.claim(&me, "mill", [blob], [false]);
    assert!(matches!(again(), BlobClaim::Busy), "the other manifest may create an image with it");
    assert!(!ends.has_changed().unwrap());
    assert!(matches!(uploads.claim(&me, "mill", [blob], [true]), BlobClaim::Taken(_)));
    assert!(matches!(again(), BlobClaim::Busy), "one of two claims has ended");
    drop(taken);
    assert!(ends.has_changed().unwrap());
    assert!(matches!(again(), BlobClaim::Missing(_)));
    assert!(uploads.0.lock().claimed.is_empty());
    let id = uploads.begin(&me, "mill", Box::new(Three)).unwrap().to_string();
    uploads.take(&me, "mill", &id).unwrap().end();
    assert!(uploads.0.lock().uploads.is_empty());
}

#[tokio::test(start_paused = true)]
async fn blobs_are_given_back_as_far_as_there_is_room() {
    let uploads = BlobUploads::default();
    let me = owner("me");
    let begin = || uploads.begin(&me, "mill", Box::new(Three)).unwrap().to_string();
    let blobs = [&b"abc"[..], b"def"].map(|blob| Blob { digest: BlobDigest::of(blob), bytes: 3 });
    for blob in blobs {
        uploads.take(&me, "mill", &begin()).unwrap().finish(blob.digest);
    }
    let claim = || match uploads.claim(&me, "mill", blobs, [false; 2]) {
        BlobClaim::Taken(claimed) => claimed,
        other => panic!("{other:?}"),
    };
    let give_back = |mut claimed: ClaimedBlobs<2>| {
        let staged = std::mem::take(&mut claimed.staged);
        claimed.give_back(staged);
    };
    let mut claimed = claim();
    let [first, _] = std::mem::take(&mut claimed.staged);
    claimed.give_back([first, None]);
    drop(claimed);
    assert_eq!(blobs.map(|blob| uploads.has(&me, "mill", blob)), [true, false]);
    uploads.take(&me, "mill", &begin()).unwrap().finish(blobs[1].digest);
    give_back(claim());
    let claimed = claim();
    for _ in 1..UPLOADS_OF_OWNER_MAX {
        begin();
    }
    give_back(claimed);
    assert_eq!(blobs.map(|blob| uploads.has(&me, "mill", blob)), [true, false]);
    // The task removes these, too.
    tokio::time::sleep(IDLE_MAX + SWEEP_EVERY).await;
    assert!(uploads.0.lock().uploads.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_later_owner_can_begin_uploads() {
    let uploads = BlobUploads::default();
    let mut counts = vec![];
    // Each owner takes all places that it can, and a call uses each upload.
    let mut taken = vec![];
    for number in 0..10 {
        let name = owner(&format!("o{number}"));
        let before = taken.len();
        while let Ok(id) = uploads.begin(&name, "mill", Box::new(Three)) {
            taken.push(uploads.take(&name, "mill", &id.to_string()).unwrap());
        }
        counts.push(taken.len() - before);
    }
    assert_eq!(counts, [16, 16, 10, 7, 5, 3, 2, 2, 2, 1]);
    assert_eq!(taken.len(), UPLOADS_MAX);
}

#[tokio::test(start_paused = true)]
async fn the_owner_with_the_most_uploads_gives_way_to_other_owners() {
    let uploads = BlobUploads::default();
    let begin = |name: &str| uploads.begin(&owner(name), "mill", Box::new(Three));
    for number in 0..10 {
        while begin(&format!("o{number}")).is_ok() {}
    }
    assert_eq!(uploads.0.lock().uploads.len(), UPLOADS_MAX);
    assert_eq!(begin("o0").unwrap_err().wait, EVICTABLE_AFTER, "its own");
    for name in ["late", "later"] {
        for _ in 0..UPLOADS_OF_PUSH {
            begin(name).unwrap();
        }
        assert_eq!(begin(name).unwrap_err().wait, EVICTABLE_AFTER, "that is its share");
    }
    let table = uploads.0.lock();
    assert_eq!(table.uploads.len(), UPLOADS_MAX);
    for number in 0..10 {
        let count = table.count_of(&owner(&format!("o{number}")));
        assert!(count >= UPLOADS_OF_PUSH, "a push is not disturbed: {count}");
    }
}

#[tokio::test(start_paused = true)]
async fn owners_do_not_take_the_places_of_equal_ones() {
    let uploads = BlobUploads::default();
    let begin = |name: &str| uploads.begin(&owner(name), "mill", Box::new(Three));
    let owners = UPLOADS_MAX / UPLOADS_OF_PUSH;
    for number in 0..owners {
        for _ in 0..UPLOADS_OF_PUSH {
            begin(&format!("o{number}")).unwrap();
        }
    }
    assert_eq!(begin("late").unwrap_err().wait, EVICTABLE_AFTER);
    assert_eq!(begin("o0").unwrap_err().wait, EVICTABLE_AFTER);
}

#[tokio::test(start_paused = true)]
async fn copies_of_a_blob_give_way() {
    let uploads = BlobUploads::default();
    let begin = |who: &str| uploads.begin(&owner(who), "mill", Box::new(Three));
    let push = |who: &str, blob: &[u8]| {
        let id = begin(who).unwrap().to_string();
        uploads.take(&owner(who), "mill", &id).unwrap().finish(BlobDigest::of(blob));
    };
    let me = owner("me");
    push("me", b"other");
    for _ in 0..2 * UPLOADS_OF_OWNER_MAX {
        push("me", b"abc");
    }
    assert_eq!(uploads.0.lock().uploads.len(), UPLOADS_OF_OWNER_MAX);
    // When all places are taken, copies of other owners are removed too, until no blob has a
    // copy.
    for number in 0..UPLOADS_MAX {
        let who = format!("o{number}");
        while begin(&who).is_ok() {}
    }
    assert_eq!(uploads.0.lock().uploads.len(), UPLOADS_MAX);
    // One copy of each blob is left.
    for blob in [&b"other"[..], b"abc"] {
        assert!(!uploads.release(&owner("o0"), "mill", BlobDigest::of(blob)));
        assert!(uploads.release(&me, "mill", BlobDigest::of(blob)));
        assert!(!uploads.release(&me, "mill", BlobDigest::of(blob)));
    }
}

#[tokio::test(start_paused = true)]
async fn whole_blobs_without_a_manifest_give_way_to_their_owner() {
    let uploads = BlobUploads::default();
    let me = owner("me");
    let begin = || uploads.begin(&me, "mill", Box::new(Three)).map(|id| id.to_string());
    for number in 0..UPLOADS_OF_OWNER_MAX {
        let id = begin().unwrap();
        uploads.take(&me, "mill", &id).unwrap().finish(BlobDigest::of(&number.to_le_bytes()));
    }
    assert!(begin().is_err());
    tokio::time::sleep(EVICTABLE_AFTER).await;
    for _ in 0..UPLOADS_OF_OWNER_MAX {
        begin().unwrap();
    }
    assert!(begin().is_err(), "what is being written keeps its place");
    tokio::time::sleep(EVICTABLE_AFTER).await;
    for _ in 0..UPLOADS_OF_OWNER_MAX {
        begin().expect("interrupted pushes do not lock their owner out");
    }
}

/// An upload on a disk with room for three bytes.
#[derive(Debug)]
struct Small {
    disk: Arc<AtomicU64>,
    len: AtomicU64,
}

#[async_trait]
impl Staged for Small {
    async fn write(&self, piece: Bytes) -> Result<(), StageError> {
        let len = piece.len() as u64;
        if self.disk.load(Relaxed) + len > 3 {
            return Err(StageError::Full);
        }
        self.disk.fetch_add(len, Relaxed);
        self.len.fetch_add(len, Relaxed);
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len.load(Relaxed)
    }

    fn digest(&self) -> BlobDigest {
        BlobDigest::of(b"")
    }

    async fn read(&self, _: usize) -> io::Result<Bytes> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn open(&self) -> io::Result<File> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn add(&self, _: &OwnerId) -> Result<AddedComponent, AddComponentError> {
        Err(AddComponentError::Failed("not here".to_owned()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        self.disk.fetch_sub(self.len(), Relaxed);
    }
}

/// Uploads on such a disk.
#[derive(Default)]
struct SmallDisk {
    uploads: BlobUploads,
    used: Arc<AtomicU64>,
}

impl SmallDisk {
    fn begin(&self, who: &str) -> BlobUploadInUse {
        let staged = Small { disk: self.used.clone(), len: AtomicU64::new(0) };
        let id = self.uploads.begin(&owner(who), "mill", Box::new(staged)).unwrap();
        self.uploads.take(&owner(who), "mill", &id.to_string()).unwrap()
    }

    /// Writes as the runtime does.
    async fn append(
        &self,
        who: &str,
        taken: &BlobUploadInUse,
        piece: &'static str,
    ) -> Result<(), StageError> {
        loop {
            match taken.write(piece.into()).await {
                Err(error) if self.uploads.end_for(&owner(who), &error) => {}
                written => return written,
            }
        }
    }

    async fn push(&self, who: &str) -> BlobUploadInUse {
        let taken = self.begin(who);
        self.append(who, &taken, "a").await.unwrap();
        taken
    }

    fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }
}

#[tokio::test(start_paused = true)]
async fn idle_uploads_give_way_to_the_bytes_of_their_owner() {
    let disk = SmallDisk::default();
    let first = disk.push("me").await.id;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let second = disk.push("me").await.id;
    disk.push("other").await;
    let mine = disk.begin("me");
    let full = |written| matches!(written, Err(StageError::Full));
    assert!(full(disk.append("me", &mine, "d").await), "each upload was touched just now");
    tokio::time::sleep(EVICTABLE_AFTER).await;
    disk.append("me", &mine, "d").await.unwrap();
    let is_there = |id: BlobUploadId| disk.uploads.0.lock().uploads.contains_key(&id);
    assert_eq!([first, second].map(is_there), [false, true], "the oldest one went first");
    disk.append("me", &mine, "e").await.unwrap();
    assert!(!is_there(second));
    assert_eq!((mine.len(), disk.used()), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn the_largest_owner_gives_way_to_the_bytes_of_others() {
    let disk = SmallDisk::default();
    let in_use = disk.push("large").await;
    for _ in 0..2 {
        disk.push("large").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let ids = || disk.uploads.0.lock().uploads.len();
    let small = disk.push("small").await;
    assert_eq!(ids(), 3, "the one that was touched the longest ago has ended");
    drop(small);
    let again = disk.begin("large");
    let refused = disk.append("large", &again, "e").await;
    assert!(matches!(refused, Err(StageError::Full)), "both have as many unused bytes");
    disk.push("third").await;
    assert_eq!((in_use.len(), disk.used()), (1, 3), "an upload in use stays");
    let own_share = StageError::OwnerDiskFull { held_mib: 1 };
    assert!(
        !disk.uploads.end_for(&owner("fourth"), &own_share),
        "no other owner gives way for that"
    );
}

#[tokio::test(start_paused = true)]
async fn copies_give_way_to_the_bytes_of_their_owner() {
    let disk = SmallDisk::default();
    for _ in 0..3 {
        disk.push("me").await.finish(BlobDigest::of(b"a"));
    }
    let mine = disk.begin("me");
    disk.append("me", &mine, "bb").await.unwrap();
    assert!(matches!(disk.append("me", &mine, "b").await, Err(StageError::Full)));
    assert!(disk.uploads.release(&owner("me"), "mill", BlobDigest::of(b"a")), "one copy stays");
}
