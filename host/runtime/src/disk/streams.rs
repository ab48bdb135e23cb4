//! Files as streams. A stream has one operation under way at most, and keeps what one operation
//! reads or writes: up to [`PIECE_BYTES`]. A larger write traps, as wasmtime does not compare it
//! with the permitted size. Written bytes are sent to the file when a caller waits for the stream
//! or drops it; a stream that is left behind by a handler that ends may lose its last write.
//!
//! An operation is a task of its own: it waits for locks and permits that others need, so it must
//! not stand still when the handler does not look at its stream.

use std::sync::Arc;

use bytes::Bytes;
use tokio_util::task::AbortOnDropHandle;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;
use wasmtime_wasi::p2::{InputStream, OutputStream, Pollable, StreamError, StreamResult};

use super::io_limits::IoSlot;
use super::node::Node;

/// Most bytes that one operation reads or writes.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

/// Reads a file from an offset on.
pub(crate) struct ReadStream {
    node: Arc<Node>,
    offset: u64,
    state: Reading,
    _slot: IoSlot,
}

enum Reading {
    Idle,
    Busy(AbortOnDropHandle<Result<Vec<u8>, ErrorCode>>),
    Read(Bytes),
    Failed(ErrorCode),
    Ended,
}

impl ReadStream {
    /// # Errors
    /// [`ErrorCode::IsDirectory`], and [`ErrorCode::Quota`] when the job has too much open.
    pub(crate) fn new(node: Arc<Node>, offset: u64) -> Result<Self, ErrorCode> {
        node.file()?;
        let slot = node.io_limits.slot()?;
        Ok(Self { node, offset, state: Reading::Idle, _slot: slot })
    }

    fn begin(&mut self, bytes: usize) {
        let (offset, len) = (self.offset, bytes.min(PIECE_BYTES));
        let reading = self.node.look(move |node| node.read(len, offset));
        self.state = Reading::Busy(AbortOnDropHandle::new(tokio::spawn(reading)));
    }
}

#[async_trait]
impl Pollable for ReadStream {
    async fn ready(&mut self) {
        if matches!(self.state, Reading::Idle) {
            self.begin(PIECE_BYTES);
        }
        if let Reading::Busy(reading) = &mut self.state {
            // A task that panics, or ends with the host, has read nothing.
            self.state = match reading.await.unwrap_or(Err(ErrorCode::Io)) {
                Ok(bytes) if bytes.is_empty() => Reading::Ended,
                Ok(bytes) => Reading::Read(bytes.into()),
                Err(error) => Reading::Failed(error),
            };
        }
    }
}

#[async_trait]
impl InputStream for ReadStream {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        match &mut self.state {
            Reading::Idle if size > 0 => {
                self.begin(size);
                Ok(Bytes::new())
            }
            Reading::Idle | Reading::Busy(_) => Ok(Bytes::new()),
            Reading::Read(bytes) => {
                let part = bytes.split_to(bytes.len().min(size));
                if bytes.is_empty() {
                    self.state = Reading::Idle;
                }
                self.offset += part.len() as u64;
                Ok(part)
            }
            Reading::Failed(error) => {
                let error = *error;
                self.state = Reading::Ended;
                Err(StreamError::LastOperationFailed(error.into()))
            }
            Reading::Ended => Err(StreamError::Closed),
        }
    }

    // The default reads as much as it can at once; the usual caller needs little of that.
    async fn blocking_read(&mut self, size: usize) -> StreamResult<Bytes> {
        if matches!(self.state, Reading::Idle) && size > 0 {
            self.begin(size);
        }
        if !matches!(self.state, Reading::Idle) {
            self.ready().await;
        }
        self.read(size)
    }
}

/// Writes to a file, from an offset on or at its end.
pub(crate) struct WriteStream {
    node: Arc<Node>,
    to: WriteAt,
    state: Writing,
    _slot: IoSlot,
}

/// The position of the next bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WriteAt {
    /// At this offset.
    Offset(u64),
    /// At the end of the file at the time of the write.
    End,
}

enum Writing {
    Idle,
    Busy(AbortOnDropHandle<Result<(), ErrorCode>>),
    Failed(ErrorCode),
    Closed,
}

impl WriteStream {
    /// # Errors
    /// [`ErrorCode::IsDirectory`], and [`ErrorCode::Quota`] when the job has too much open.
    pub(crate) fn new(node: Arc<Node>, to: WriteAt) -> Result<Self, ErrorCode> {
        node.file()?;
        let slot = node.io_limits.slot()?;
        Ok(Self { node, to, state: Writing::Idle, _slot: slot })
    }
}

#[async_trait]
impl Pollable for WriteStream {
    async fn ready(&mut self) {
        if let Writing::Busy(writing) = &mut self.state {
            self.state = match writing.await.unwrap_or(Err(ErrorCode::Io)) {
                Ok(()) => Writing::Idle,
                Err(error) => Writing::Failed(error),
            };
        }
    }
}

#[async_trait]
impl OutputStream for WriteStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        match self.state {
            Writing::Idle if bytes.is_empty() => return Ok(()),
            Writing::Idle if bytes.len() <= PIECE_BYTES => {}
            Writing::Closed => return Err(StreamError::Closed),
            Writing::Idle | Writing::Busy(_) | Writing::Failed(_) => {
                return Err(StreamError::trap("more bytes were written than the stream permitted"));
            }
        }
        let to = self.to;
        if let WriteAt::Offset(offset) = &mut self.to {
            *offset = offset.saturating_add(bytes.len() as u64);
        }
        let write = move |node: &Node| match to {
            WriteAt::Offset(offset) => node.write(&bytes, offset),
            WriteAt::End => node.append(&bytes),
        };
        // Called here and not in the task, which may begin during the next job.
        let writing = self.node.change(write);
        self.state = Writing::Busy(AbortOnDropHandle::new(tokio::spawn(writing)));
        Ok(())
    }

    // All written bytes are already on their way to the file.
    fn flush(&mut self) -> StreamResult<()> {
        self.check_write().map(drop)
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        match self.state {
            Writing::Idle => Ok(PIECE_BYTES),
            Writing::Busy(_) => Ok(0),
            Writing::Failed(error) => {
                self.state = Writing::Closed;
                Err(StreamError::LastOperationFailed(error.into()))
            }
            Writing::Closed => Err(StreamError::Closed),
        }
    }

    async fn cancel(&mut self) {
        self.ready().await;
    }
}

#[cfg(test)]
mod tests {
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
}
