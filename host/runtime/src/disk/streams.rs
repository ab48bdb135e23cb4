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
#[path = "streams_tests.rs"]
mod tests;
