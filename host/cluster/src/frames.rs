//! Messages as frames of a body: four bytes with the length of a message, then the message.
//!
//! **Bounds.** A frame has at most [`FRAME_BYTES_MAX`]. A sender's frames wait in memory until the
//! connection takes them; the senders bound what they send before it is confirmed.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes, BytesMut};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use prost::Message;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

/// Most bytes of a message. An output has at most 20 MB, and an emit of a handler is smaller.
pub(crate) const FRAME_BYTES_MAX: usize = 64 << 20;

const LENGTH_BYTES: usize = size_of::<u32>();

/// Shorter frames get a field that no message has. The library h2 counts unread shorter frames
/// against their connection, and ends it beyond 32 MiB of such overhead, which would end all
/// attempts of a host.
pub(crate) const FRAME_BYTES_MIN: usize = 256;

/// The key of the field 2047 with bytes. The other side skips it, as each version does with unknown
/// fields.
const PADDING_KEY: [u8; 2] = [0xfa, 0x7f];

/// The other side receives nothing any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed;

/// Sends frames. Clones send to the same body.
#[derive(Debug, Clone)]
pub(crate) struct FrameSender {
    frames: mpsc::UnboundedSender<Bytes>,
}

/// The body of a request or an answer. It ends when all senders are dropped.
#[derive(Debug)]
pub(crate) struct FrameBody {
    frames: mpsc::UnboundedReceiver<Bytes>,
    /// The task that fills the body, which ends with it.
    _task: Option<AbortOnDropHandle<()>>,
}

/// A body, and the sender of its frames.
pub(crate) fn channel() -> (FrameSender, FrameBody) {
    let (sender, frames) = mpsc::unbounded_channel();
    (FrameSender { frames: sender }, FrameBody { frames, _task: None })
}

/// A body with one message.
pub(crate) fn single(message: &impl Message) -> FrameBody {
    let (sender, body) = channel();
    // The body exists.
    let _ = sender.send(message);
    body
}

impl FrameSender {
    /// Sends a message without waiting.
    ///
    /// # Errors
    /// [`Closed`].
    pub(crate) fn send(&self, message: &impl Message) -> Result<(), Closed> {
        self.frames.send(encode(message)).map_err(|_| Closed)
    }
}

fn encode(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = Vec::with_capacity(LENGTH_BYTES + length);
    frame.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    message.encode(&mut frame).expect("a vector grows");
    pad(&mut frame);
    frame.into()
}

fn pad(frame: &mut Vec<u8>) {
    let missing = FRAME_BYTES_MIN.saturating_sub(frame.len());
    if missing > 0 {
        frame.extend_from_slice(&PADDING_KEY);
        prost::encode_length_delimiter(missing, frame).expect("a vector grows");
        frame.resize(frame.len() + missing, 0);
        let length = frame.len() - LENGTH_BYTES;
        frame.splice(..LENGTH_BYTES, u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    }
}

impl FrameBody {
    /// Aborts the task when the body is dropped.
    pub(crate) fn with_task(self, task: AbortOnDropHandle<()>) -> Self {
        Self { _task: Some(task), ..self }
    }
}

impl Body for FrameBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.frames.poll_recv(context).map(|next| next.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// Reads messages from a body.
#[derive(Debug)]
pub(crate) struct FrameReader<B> {
    body: B,
    read: BytesMut,
}

impl<B> FrameReader<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    pub(crate) fn new(body: B) -> Self {
        Self { body, read: BytesMut::new() }
    }

    /// The next message; `None` at the end of the body. Dropping the future loses nothing.
    ///
    /// # Errors
    /// When the connection is lost, and of kind [`InvalidData`](io::ErrorKind::InvalidData) for a
    /// malformed message.
    pub(crate) async fn next<M: Message + Default>(&mut self) -> io::Result<Option<M>> {
        loop {
            if let Some(length) = self.length()?
                && let Some(end) = length.checked_add(LENGTH_BYTES)
                && end <= self.read.len()
            {
                let mut frame = self.read.split_to(end).freeze();
                frame.advance(LENGTH_BYTES);
                return M::decode(frame).map(Some).map_err(invalid);
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.read.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => return Err(io::Error::other(error)),
                None if self.read.is_empty() => return Ok(None),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// The length of the frame that has begun.
    fn length(&mut self) -> io::Result<Option<usize>> {
        let Some(head) = self.read.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*head)).map_err(invalid)?;
        if length > FRAME_BYTES_MAX {
            return Err(invalid(format!("a frame of {length} bytes")));
        }
        self.read.reserve((length + LENGTH_BYTES).saturating_sub(self.read.len()));
        Ok(Some(length))
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;
