//! Streams that a handler neglects, overfills, or keeps for its next job.

use std::time::Duration;

use futures::FutureExt as _;
use gristmill_core::id::{EndpointId, OwnerId};
use gristmill_core::sharing::disk_share::DiskAccount;
use gristmill_core::sharing::tenancy::Tenancy;
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorFlags, OpenFlags};

use super::super::io_limits::IoLimits;
use super::super::mount::{Mount, OpenMount};
use super::super::node::OpenMode;
use super::*;

/// A file on a volume, for a job of its own.
fn file(mount: &OpenMount, io_limits: &IoLimits, name: &str) -> Arc<Node> {
    let owner = OwnerId::new("o").unwrap();
    let io_limits = io_limits.job(&owner, &EndpointId::new("e").unwrap());
    let slot = io_limits.slot().unwrap();
    let root = Node::root(mount.clone(), io_limits, slot);
    let flags = DescriptorFlags::READ | DescriptorFlags::WRITE;
    Arc::new(root.open(name, OpenMode { open: OpenFlags::CREATE, flags }).unwrap())
}

fn volume(dir: &tempfile::TempDir) -> (OpenMount, IoLimits) {
    let mount = Mount::volume(&dir.path().join("v"), 1 << 30, DiskAccount::default());
    (mount.unwrap(), IoLimits::new(Tenancy::default()))
}

/// A handler may look at a stream once, and then compute for hours.
#[tokio::test]
async fn a_stream_that_nobody_looks_at_keeps_no_lock_of_its_volume() {
    let dir = tempfile::tempdir().unwrap();
    let (mount, io_limits) = volume(&dir);
    let (one, other) = (file(&mount, &io_limits, "one"), file(&mount, &io_limits, "other"));
    let alone = mount.change.clone().lock_owned().await;
    let mut stream = WriteStream::new(one, WriteAt::Offset(0)).unwrap();
    stream.write(Bytes::from_static(b"grain")).unwrap();
    assert!(stream.ready().now_or_never().is_none(), "it waits for its turn");
    drop(alone);
    let change = other.change(|node| node.write(b"flour", 0));
    tokio::time::timeout(Duration::from_secs(10), change).await.unwrap().unwrap();
    stream.ready().await;
    assert!(matches!(stream.check_write(), Ok(PIECE_BYTES)));
}

/// Each of the 256 streams of a job would keep it.
#[tokio::test]
async fn a_write_of_more_bytes_than_a_stream_keeps_traps() {
    let dir = tempfile::tempdir().unwrap();
    let (mount, io_limits) = volume(&dir);
    let node = file(&mount, &io_limits, "one");
    for to in [WriteAt::Offset(0), WriteAt::End] {
        let mut stream = WriteStream::new(node.clone(), to).unwrap();
        let refused = stream.write(vec![1; PIECE_BYTES + 1].into());
        assert!(matches!(refused, Err(StreamError::Trap(_))), "{refused:?}");
        assert!(matches!(stream.state, Writing::Idle), "nothing is under way");
        stream.write(vec![1; PIECE_BYTES].into()).unwrap();
        stream.ready().await;
        assert!(matches!(stream.check_write(), Ok(PIECE_BYTES)));
    }
    let size = node.look(Node::stat).await.unwrap().size;
    assert_eq!(size, 2 * PIECE_BYTES as u64, "what was permitted was written");
}

/// A handler may keep a stream in an instance that runs further jobs.
#[tokio::test]
async fn a_write_of_the_job_before_does_not_count_for_the_next_job() {
    let dir = tempfile::tempdir().unwrap();
    let mount = Mount::volume(&dir.path().join("v"), 1 << 20, DiskAccount::default()).unwrap();
    let io_limits = IoLimits::new(Tenancy::default());
    let node = file(&mount, &io_limits, "one");
    // Whether the job finds that its write, or one of the job before, did not fit.
    let is_full_after = async |is_next_job: bool| {
        node.io_limits.begin();
        let alone = mount.change.clone().lock_owned().await;
        let mut stream = WriteStream::new(node.clone(), WriteAt::Offset(2 << 20)).unwrap();
        stream.write(Bytes::from_static(b"grain")).unwrap();
        if is_next_job {
            node.io_limits.begin();
        }
        drop(alone);
        stream.ready().await;
        let Writing::Failed(error) = stream.state else { panic!("it fits") };
        assert_eq!(error, ErrorCode::InsufficientSpace);
        node.io_limits.was_full()
    };
    assert!(is_full_after(false).await);
    assert!(!is_full_after(true).await);
}

/// The turn of the job's operations goes to one stream while the handler waits for another one.
#[tokio::test]
async fn a_stream_that_nobody_looks_at_does_not_block_its_own_job() {
    let dir = tempfile::tempdir().unwrap();
    let (mount, io_limits) = volume(&dir);
    let node = file(&mount, &io_limits, "one");
    let (end, until) = std::sync::mpsc::channel::<()>();
    let busy = node.clone();
    let first = tokio::spawn(async move {
        busy.look(move |_| {
            let _ = until.recv();
            Ok(())
        })
        .await
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    let mut stream = ReadStream::new(node.clone(), 0).unwrap();
    assert!(stream.ready().now_or_never().is_none(), "it waits for its turn");
    let next = tokio::spawn(async move { node.look(|_| Ok(7)).await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(end);
    first.await.unwrap().unwrap();
    let next = tokio::time::timeout(Duration::from_secs(10), next).await.unwrap();
    assert_eq!(next.unwrap().unwrap(), 7);
}
