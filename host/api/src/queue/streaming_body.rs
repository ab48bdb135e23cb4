//! A response body in pieces: payloads are sent unchanged, without being copied into one buffer.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

/// A body of known length.
pub(crate) struct StreamingBody {
    pieces: VecDeque<Bytes>,
    remaining: u64,
    on_end: Option<Box<dyn FnOnce() + Send>>,
}

impl StreamingBody {
    pub(crate) fn new(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        let pieces: VecDeque<_> = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        let remaining = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self { pieces, remaining, on_end: None }
    }

    /// Calls `then` when the connection has taken the last piece; never, if it closes before.
    pub(crate) fn on_end(mut self, then: impl FnOnce() + Send + 'static) -> Self {
        self.on_end = Some(Box::new(then));
        self
    }

    pub(crate) fn into_body(self) -> Body {
        Body::new(self)
    }
}

impl hyper::body::Body for StreamingBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(piece) = self.pieces.pop_front() else { return Poll::Ready(None) };
        self.remaining -= piece.len() as u64;
        if self.pieces.is_empty()
            && let Some(then) = self.on_end.take()
        {
            then();
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn the_end_is_reported_with_the_last_piece_and_not_before() {
        let ended = Arc::new(AtomicBool::new(false));
        let is_reported = ended.clone();
        let parts = ["ab", "", "c"].map(|part| Bytes::from_static(part.as_bytes()));
        let mut body =
            StreamingBody::new(parts).on_end(move || is_reported.store(true, Ordering::SeqCst));
        assert_eq!(hyper::body::Body::size_hint(&body).exact(), Some(3));
        body.frame().await.unwrap().unwrap();
        assert!(!ended.load(Ordering::SeqCst));
        body.frame().await.unwrap().unwrap();
        assert!(ended.load(Ordering::SeqCst));
        assert!(body.frame().await.is_none());
    }
}
