//! Uploads with one writing thread: pieces, bounds, shares of owners, and callers that leave.

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
async fn a_write_without_room_ends_uploads_that_are_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let total = StagedTotal::new(Tenancy::default());
    let unused = Mutex::new(vec![total.of(&owner("a")).take(STAGED_BYTES_MAX - 2).unwrap()]);
    total.end_uploads_by(Box::new(move |asking, error| {
        assert_eq!((asking, error.to_string()), (&owner("b"), StageError::Full.to_string()));
        unused.lock().pop().is_some()
    }));
    let _used = total.of(&owner("a")).take(2).unwrap();
    let staged = StagedFile::create(directory.path(), total.of(&owner("b"))).unwrap();
    staged.write("abc".into()).await.unwrap();
    assert_eq!(all(&total), 5);
    let _rest = total.of(&owner("a")).take(STAGED_BYTES_MAX - 5).unwrap();
    assert!(matches!(staged.write("d".into()).await, Err(StageError::Full)));
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
