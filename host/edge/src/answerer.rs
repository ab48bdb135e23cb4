//! What a connection needs of the program behind it.

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use hyper::body::Body;
use hyper::{HeaderMap, Request, Response};

use crate::call_origin::{CallOrigin, PeerAddress};
use crate::unread::RequestBody;

/// Answers the calls of a listener. Clones are the same.
pub trait Answerer: Clone + Send + Sync + 'static {
    /// The body of an answer; the default is empty.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>
        + Default
        + Send
        + Unpin
        + 'static;

    /// The address of a call's client: `peer`, or the one that a trusted proxy names. Headers by
    /// which another peer names one are removed.
    fn client(&self, peer: PeerAddress, headers: &mut HeaderMap) -> PeerAddress;

    /// Answers a call. An answer that may be large has its [owner](crate::AnswerOwner) among its
    /// extensions.
    fn answer(
        self,
        request: Request<RequestBody>,
        origin: Arc<CallOrigin>,
    ) -> BoxFuture<'static, Response<Self::Body>>;

    /// The answer to a call of this path when there is no memory for the real one, which is
    /// dropped.
    fn over_budget(
        path: &str,
        answer: Response<Self::Body>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}
