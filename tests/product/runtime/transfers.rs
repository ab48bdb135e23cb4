//! The files of volumes through the interface behind the HTTP API, since HTTP answers hide the
//! cause of an error: a full disk, files that change while they are read, and trees as deep as they
//! can be.

use std::fs;

use bytes::Bytes;
use futures::StreamExt as _;
use gristmill_core::deploy::volume::Volume;
use gristmill_core::deploy::volume_files::{FilePath, NewFile, VolumeFileError};
use gristmill_core::id::{OwnerId, VolumeId};
use gristmill_core::time::Timestamp;
use gristmill_tests::{eventually, guests};

use super::bench::Bench;

const MIB: usize = 1 << 20;

fn volume() -> Volume {
    Volume {
        id: VolumeId::new("v").unwrap(),
        owner: OwnerId::operator(),
        name: "volume".to_owned(),
        size_gb: 1,
        created_at: Timestamp::from_millis(0),
    }
}

fn path(text: &str) -> FilePath {
    FilePath::parse(text).unwrap()
}

async fn begin(bench: &Bench, file: &str) -> Result<Box<dyn NewFile>, VolumeFileError> {
    bench.runtime().volumes().create_file(&volume(), &path(file), None).await
}

async fn write(bench: &Bench, file: &str, content: Vec<u8>) {
    let mut new = begin(bench, file).await.unwrap();
    new.write(content.into()).await.unwrap();
    new.finish().await.unwrap();
}

#[tokio::test]
async fn a_full_disk_takes_no_file_and_keeps_the_older_one() {
    let bench = Bench::open(&guests::echo()).await;
    write(&bench, "kept", b"rye".to_vec()).await;
    let on_host = bench.data_dir().join("volumes/v");
    let mut begun = begin(&bench, "kept").await.unwrap();
    begun.write(Bytes::from(vec![1; MIB])).await.unwrap();
    bench.disk_space.set(1, 2);
    let refused = begun.write(Bytes::from(vec![1; MIB])).await.unwrap_err();
    assert!(matches!(refused, VolumeFileError::NoSpace(_)), "{refused}");
    drop(begun);
    let refused = begin(&bench, "new").await.unwrap_err();
    assert!(matches!(refused, VolumeFileError::NoSpace(_)), "{refused}");
    eventually("its bytes are removed", async || {
        (fs::read_dir(&on_host).unwrap().count() == 1).then_some(())
    })
    .await;
    assert_eq!(fs::read(on_host.join("kept")).unwrap(), b"rye");
    // Files can be read and removed.
    let read = bench.runtime().volumes().open_file(&volume(), &path("kept")).await.unwrap();
    assert_eq!(read.bytes, 3);
    bench.runtime().volumes().remove_file(&volume(), &path("kept"), false).await.unwrap();
    bench.disk_space.set(9, 2);
    write(&bench, "new", vec![]).await;
}

#[tokio::test]
async fn a_file_that_changes_while_it_is_read_is_whole_or_an_error() {
    let bench = Bench::open(&guests::echo()).await;
    let read =
        async || bench.runtime().volumes().open_file(&volume(), &path("file")).await.unwrap();
    write(&bench, "file", vec![1; MIB]).await;
    let replaced = read().await;
    write(&bench, "file", vec![2; MIB]).await;
    let pieces = replaced.content.read(0..MIB as u64).map(Result::unwrap);
    assert_eq!(pieces.collect::<Vec<_>>().await.concat(), vec![1; MIB]);

    let mut shorter = read().await.content.read(5..MIB as u64);
    shorter.next().await.unwrap().unwrap();
    let file = fs::OpenOptions::new().write(true).open(bench.data_dir().join("volumes/v/file"));
    file.unwrap().set_len(10).unwrap();
    let error = shorter.next().await.unwrap().unwrap_err();
    assert!(error.to_string().contains("shorter"), "{error}");
    assert!(shorter.next().await.is_none());
}

#[tokio::test]
async fn the_deepest_tree_is_written_listed_and_removed() {
    let bench = Bench::open(&guests::echo()).await;
    let deepest = ["d"; 64].join("/");
    write(&bench, &deepest, b"x".to_vec()).await;
    let above = path(&["d"; 63].join("/"));
    let listed =
        bench.runtime().volumes().list_files(&volume(), Some(&above), None, 10).await.unwrap();
    assert_eq!(listed.len(), 1);
    bench.runtime().volumes().remove_file(&volume(), &path("d"), true).await.unwrap();
    let left = bench.runtime().volumes().list_files(&volume(), None, None, 10).await.unwrap();
    assert_eq!(left, []);
}
