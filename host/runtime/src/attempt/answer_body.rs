//! The body of a handler's answer, with an honest end.
//!
//! A handler ends its body with `finish`. The body of a handler that traps, or is stopped, just has
//! no further pieces, which looks like its end: clients and caches would keep a part of a file as
//! the whole. So `finish` [always sends trailers](crate::host_fns), empty ones if the handler
//! has none, and a body without them ends with an error here.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;

/// The body of an answer.
pub(crate) struct AnswerBody {
    body: HyperOutgoingBody,
    is_finished: bool,
}

impl AnswerBody {
    pub(crate) fn new(body: HyperOutgoingBody) -> Self {
        // An answer without a body.
        let is_finished = body.is_end_stream();
        Self { body, is_finished }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.is_finished {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(match frame {
            Some(Ok(frame)) => match frame.into_trailers() {
                Ok(trailers) => {
                    self.is_finished = true;
                    (!trailers.is_empty()).then(|| Ok(Frame::trailers(trailers)))
                }
                Err(data) => Some(Ok(data)),
            },
            Some(Err(error)) => Some(Err(io::Error::other(error.to_string()))),
            None => Some(Err(io::Error::other("the handler has not finished its answer"))),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.is_finished
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
