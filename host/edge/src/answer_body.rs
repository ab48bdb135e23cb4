//! The body of an answer: it is passed on in pieces, which show whether the client reads them, and
//! counts among those that wait for their clients.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use gristmill_core::id::OwnerId;
use hyper::body::{Body, Frame, SizeHint};
use tokio_util::sync::CancellationToken;

use crate::activity::Call;
use crate::protocol::QUEUED_BYTES_MAX;
use crate::response_budget::{BudgetPermit, ResponseBudget, SMALL_ANSWER_BYTES};

/// An answer is passed on in pieces of this size, which shows whether the client reads it.
const PIECE_BYTES: usize = 256 << 10;

/// The end of a longer answer on HTTP/2 is a piece of its own: until HTTP takes it, the client has
/// no room for the bytes before it, and the answer counts. Clients may end a connection with many
/// shorter pieces.
const END_BYTES: usize = 256;

/// The body of an answer, which ends its call.
pub(super) struct CountedBody<B> {
    body: B,
    /// The rest of a large piece.
    rest: Bytes,
    holding: Holding,
    call: Call,
}

/// The entry of an answer among those that wait for their clients.
pub(super) enum Holding {
    Whole(Option<BudgetPermit>),
    /// One piece after the other.
    Pieces {
        response_budget: Arc<ResponseBudget>,
        owner: Option<OwnerId>,
        given_up: CancellationToken,
        held: Option<BudgetPermit>,
    },
}

impl Holding {
    pub(super) fn begin_piece(&mut self, bytes: usize, call: &mut Call) {
        if let Self::Pieces { response_budget, owner, given_up, held } = self
            && !call.may_be_uncounted(bytes)
        {
            *held = Some(response_budget.reserve_piece(bytes, owner.as_ref(), given_up));
        }
    }

    fn record_progress(&mut self) {
        let (Self::Whole(held) | Self::Pieces { held, .. }) = self;
        if let Some(held) = held {
            held.record_progress();
        }
    }

    fn end_piece(&mut self) {
        if let Self::Pieces { held, .. } = self {
            *held = None;
        }
    }
}

impl<B> CountedBody<B> {
    pub(super) fn new(body: B, call: Call, holding: Holding) -> Self {
        Self { body, rest: Bytes::new(), holding, call }
    }

    /// The size of the next piece. The bytes that remain in HTTP's queue after the last piece are
    /// not counted any more, so that it is small.
    fn piece_bytes(&self) -> usize {
        let left = self.rest.len();
        let last = match self.call.is_multiplexed {
            true if left > QUEUED_BYTES_MAX => END_BYTES,
            false if left > SMALL_ANSWER_BYTES => SMALL_ANSWER_BYTES,
            true | false => return left,
        };
        (left - last).min(PIECE_BYTES)
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for CountedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.call.taken();
        self.holding.record_progress();
        if self.rest.is_empty() {
            self.holding.end_piece();
            self.call.end_piece();
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            match frame.into_data() {
                Ok(data) => {
                    let Self { holding, call, .. } = &mut *self;
                    holding.begin_piece(data.len(), call);
                    self.rest = data;
                }
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let bytes = self.piece_bytes();
        let piece = self.rest.split_to(bytes);
        // HTTP/1 drops the body with its last piece, and the call ends here. HTTP/2 keeps both
        // until the client has room for the piece, which may be never.
        if self.call.is_multiplexed || !self.is_end_stream() {
            self.call.hand_over(bytes);
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (left, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + left);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + left);
        }
        hint
    }
}

#[cfg(test)]
#[path = "answer_body_tests.rs"]
mod tests;
